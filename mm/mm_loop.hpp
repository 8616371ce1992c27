// SPDX-License-Identifier: MIT
// mm_loop.h for C++14: a step is a lambda, which gets the pointers of its slots and can be computed again. Header only;
// experimental, as mm_loop.h.
//
//   mm::loop loop(manager);
//   loop.iterate(TRAINING, [&] {
//       for (int l = 0; l < layers; l++)
//           loop.step("ln1", l, [=](float *y, const float *x) { layernorm(y, x); },
//                     mm::write<float>("ln1", l, n), mm::read<float>("residual", l));
//       loop.step(mm::at("softmax", 0, MM_FORWARD, MM_LAYER_LOSS), [=](float *p, const float *x) { softmax(p, x); },
//                 mm::result<float>("probs", 0, n, &probs), mm::read<float>("residual", layers));
//   });
//
// The lambda of a forward step may be called again, from a later step of the iteration: it captures by value, or what
// outlives the iteration; gives the same bits each time; and changes nothing of the program's. One that cannot do that
// is passed to once(). Failures are thrown as mm::error, by iterate(). An exception that a lambda throws gives the
// iteration up, and leaves iterate().
#ifndef MM_MM_LOOP_HPP
#define MM_MM_LOOP_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "mm/mm_loop.h"

namespace mm {

class error : public std::runtime_error {
  public:
    explicit error(mm_status status) : std::runtime_error(mm_last_error()), status_(status) {}
    mm_status status() const { return status_; }

  private:
    mm_status status_;
};

inline void check(mm_status status) {
    if (status != MM_OK) throw error(status);
}

// The mm_dtype of an element's type. Others: mm_slot.dtype of a typed slot's `raw`.
template <class T> struct dtype_of {
    static_assert(sizeof(T) == 0, "mm has no such type: set raw.dtype of a slot of bytes (uint8_t)");
};
template <> struct dtype_of<float> : std::integral_constant<mm_dtype, MM_F32> {};
template <> struct dtype_of<std::int32_t> : std::integral_constant<mm_dtype, MM_I32> {};
template <> struct dtype_of<std::uint8_t> : std::integral_constant<mm_dtype, MM_U8> {};

// A slot whose pointer the lambda gets as a P (T * or const T *).
template <class P> struct slot {
    mm_slot raw;
    P *result;      // the program's pointer to a result, which is read after the step; null for others
    int over_index; // -1: none

    // As mm_slot.over; i counts the step's slots from 0.
    slot over(int i) const {
        slot other = *this;
        other.over_index = i;
        return other;
    }
    // As mm_slot.kind.
    slot kind(mm_tensor_kind kind) const {
        slot other = *this;
        other.raw.kind = kind;
        return other;
    }
};

// Slots by touch (mm_loop_touch). elems: the tensor's elements; 0: it was named before.
template <class T> slot<const T *> read(const char *name, std::int32_t row) {
    return {mm_slot_read(name, row, nullptr), nullptr, -1};
}
template <class T> slot<T *> typed(mm_slot raw) {
    raw.dtype = dtype_of<T>::value;
    return {raw, nullptr, -1};
}
template <class T> slot<T *> write(const char *name, std::int32_t row, std::int64_t elems) {
    return typed<T>(mm_slot_write(name, row, nullptr, elems * std::int64_t(sizeof(T))));
}
template <class T> slot<T *> modify(const char *name, std::int32_t row) {
    return typed<T>(mm_slot_modify(name, row, nullptr));
}
template <class T> slot<T *> add(const char *name, std::int32_t row, std::int64_t elems) {
    return typed<T>(mm_slot_add(name, row, nullptr, elems * std::int64_t(sizeof(T))));
}
template <class T> slot<T *> scratch(std::int64_t elems) {
    return typed<T>(mm_slot_scratch(nullptr, elems * std::int64_t(sizeof(T))));
}
// `where` is set when the step has run, and to null when the next iteration begins.
template <class T> slot<T *> result(const char *name, std::int32_t row, std::int64_t elems, T **where) {
    slot<T *> made = typed<T>(mm_slot_result(name, row, nullptr, elems * std::int64_t(sizeof(T))));
    made.result = where;
    return made;
}

// A step's name and properties. Forward steps of the kind MM_LAYER_OTHER need none: step(name, row, ...).
inline mm_loop_step at(const char *name, std::int32_t row, mm_phase phase, mm_layer_kind kind = MM_LAYER_OTHER) {
    const mm_loop_step made = {name, row, phase, kind, nullptr, nullptr};
    return made;
}

class loop {
  public:
    explicit loop(mm_manager *manager) { check(mm_loop_create(manager, nullptr, &loop_)); }
    loop(mm_manager *manager, const mm_loop_options &options) { check(mm_loop_create(manager, &options, &loop_)); }
    ~loop() { mm_loop_destroy(loop_); }
    loop(const loop &) = delete;
    loop &operator=(const loop &) = delete;

    mm_loop *get() const { return loop_; }

    // Runs `steps`, which calls step() and once(): an iteration with the key, twice if it had to be recorded.
    template <class F> void iterate(std::int64_t key, F &&steps) {
        for (bool again = true; again;) {
            check(mm_loop_begin(loop_, key)); // sets pointers in tasks_ to null
            tasks_.clear();
            try {
                steps();
            } catch (...) {
                mm_loop_abort(loop_);
                throw;
            }
            const mm_status status = mm_loop_end(loop_, &again);
            if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
            check(status);
        }
    }

    // A step that computes f(pointers of the slots, in their order), and can be computed again if it is a forward step.
    template <class F, class... P> void step(const mm_loop_step &what, F f, const slot<P> &...slots) {
        enter(what, true, std::move(f), slots...);
    }
    template <class F, class... P> void step(const char *name, std::int32_t row, F f, const slot<P> &...slots) {
        enter(at(name, row, MM_FORWARD), true, std::move(f), slots...);
    }
    // The same for a step that must be computed only once an iteration.
    template <class F, class... P> void once(const mm_loop_step &what, F f, const slot<P> &...slots) {
        enter(what, false, std::move(f), slots...);
    }

    // In a lambda: as mm_loop_given and mm_loop_form. i counts slots from 0.
    bool given(std::size_t i) const { return mm_loop_given(loop_, running_[i]); }
    mm_form form(std::size_t i) const { return mm_loop_form(loop_, running_[i]); }

  private:
    struct task {
        virtual ~task() = default;
    };
    // A step's lambda, and the pointers that mm fills. They stay until the next iteration has begun.
    template <class F, class... P> struct task_of : task {
        task_of(loop *owner, F f, const slot<P> &...slots)
            : owner(owner), f(std::move(f)), wheres{static_cast<void *>(slots.result)..., nullptr} {
            for (std::size_t i = 0; i < sizeof...(P); i++)
                if (!wheres[i]) wheres[i] = &pointers[i];
        }
        loop *owner;
        F f;
        void *pointers[sizeof...(P) + 1] = {};
        void *wheres[sizeof...(P) + 1]; // of results: the program's own pointers

        void *pointer(std::size_t i) const {
            void *value;
            std::memcpy(&value, wheres[i], sizeof value);
            return value;
        }
        template <std::size_t... I> void call(std::index_sequence<I...>) {
            owner->running_ = wheres;
            f(static_cast<P>(pointer(I))...);
        }
        static mm_status run(void *ctx, std::int32_t) {
            auto *self = static_cast<task_of *>(ctx);
            try {
                self->call(std::index_sequence_for<P...>());
            } catch (...) { // mm's frames, which are C, lie between this and iterate()
                if (!self->owner->thrown_) self->owner->thrown_ = std::current_exception();
                return MM_ERR_INVALID;
            }
            return MM_OK;
        }
    };

    template <class F, class... P> void enter(mm_loop_step what, bool again, F f, const slot<P> &...slots) {
        std::unique_ptr<task_of<F, P...>> made(new task_of<F, P...>(this, std::move(f), slots...));
        mm_slot raw[] = {slots.raw..., mm_slot()};
        const int over[] = {slots.over_index..., -1};
        for (std::size_t i = 0; i < sizeof...(P); i++) {
            raw[i].where = made->wheres[i];
            if (over[i] >= 0) raw[i].over = std::size_t(over[i]) < sizeof...(P) ? made->wheres[over[i]] : made.get();
        }
        what.run = again ? task_of<F, P...>::run : nullptr;
        what.ctx = made.get();
        auto *self = made.get();
        tasks_.push_back(std::move(made));
        if (!mm_loop_enter(loop_, &what, raw, sizeof...(P))) return;
        self->call(std::index_sequence_for<P...>());
        mm_loop_leave(loop_);
    }

    mm_loop *loop_ = nullptr;
    std::vector<std::unique_ptr<task>> tasks_;
    std::exception_ptr thrown_;
    void *const *running_ = nullptr; // `where` of each slot of the lambda that runs
};

} // namespace mm

#endif
