// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "tests/cuda_emulation/ptx/ptx_code.h"
#include "tests/cuda_emulation/ptx/ptx_module.h"

namespace ptx {
namespace {

/* ---------------------------------------------------------------- places */

uint64_t address(warp &w, const instruction &i, int lane) {
    if (i.address == NO_REGISTER) return (uint64_t)i.offset;
    if (i.wide_address) return w.at<uint64_t>(i.address)[lane] + (uint64_t)i.offset;
    return w.at<uint32_t>(i.address)[lane] + (uint32_t)i.offset;
}

bool within(uint64_t at, size_t bytes, const void *base, size_t size) {
    const uint64_t from = at - (uint64_t)(uintptr_t)base;
    return from < size && bytes <= size - from;
}

/* Memory of the device, or pinned, or a variable of the module. */
bool find_global(warp &w, uint64_t at, size_t bytes) {
    block *b = w.of;
    if (within(at, bytes, b->known, b->known_bytes)) return true;
    const void *base = nullptr;
    size_t size = b->memory_at(reinterpret_cast<const void *>(at), &base);
    if (size == 0) size = module_variable_at(*b->code->of, reinterpret_cast<const void *>(at), &base);
    if (size == 0) return false;
    b->known = static_cast<const char *>(base);
    b->known_bytes = size;
    return within(at, bytes, base, size);
}

/* Where the lane's address is in this program's memory. */
char *place(warp &w, const instruction &i, int lane, size_t bytes) {
    const uint64_t at = address(w, i, lane);
    const size_t local = w.of->code->local_bytes;
    if (at % bytes) die(w, i, lane, "address 0x%llx is not aligned to %zu bytes", (unsigned long long)at, bytes);
    switch (i.where) {
    case space::SHARED:
        if (!within(at, bytes, nullptr, w.of->shared_bytes))
            die(w, i, lane, "byte %lld of %zu of shared memory", (long long)at, w.of->shared_bytes);
        return w.of->shared + at;
    case space::LOCAL:
        if (!within(at, bytes, nullptr, local))
            die(w, i, lane, "byte %lld of %zu of the thread's local memory", (long long)at, local);
        return w.local + (size_t)lane * local + at;
    case space::PARAM:
        if (!within(at, bytes, nullptr, w.of->code->parameter_bytes))
            die(w, i, lane, "byte %lld of %zu of parameters", (long long)at, w.of->code->parameter_bytes);
        return const_cast<char *>(w.of->parameters) + at;
    case space::GENERIC:
        if (within(at, bytes, w.of->shared, w.of->shared_bytes) ||
            within(at, bytes, w.local + (size_t)lane * local, local))
            return reinterpret_cast<char *>(at);
        break;
    case space::GLOBAL:
        break;
    }
    if (!find_global(w, at, bytes))
        die(w, i, lane, "%zu bytes at 0x%llx are not in memory that the GPU can reach", bytes, (unsigned long long)at);
    return reinterpret_cast<char *>(at);
}

/* ---------------------------------------------------------------- loads and stores */

/* E: type of an element; R: of the register, as wide or wider. */
template <class E, class R> void load(warp &w, const instruction &i) {
    const int n = i.elements;
    for (int l = 0; l < LANES; l++) {
        if (!(w.mask >> l & 1)) continue;
        const char *from = place(w, i, l, n * sizeof(E));
        E all[4];
        if (n == 1)
            memcpy(all, from, sizeof(E));
        else
            memcpy(all, from, n * sizeof(E));
        for (int e = 0; e < n; e++)
            if (i.reg[e] != NO_REGISTER) w.at<R>(i.reg[e])[l] = (R)all[e]; // NOLINT(bugprone-signed-char-misuse)
    }
}

template <class E, class R> void store(warp &w, const instruction &i) {
    const int n = i.elements;
    for (int l = 0; l < LANES; l++) {
        if (!(w.mask >> l & 1)) continue;
        E all[4];
        for (int e = 0; e < n; e++) all[e] = (E)w.at<R>(i.reg[e])[l];
        memcpy(place(w, i, l, n * sizeof(E)), all, n * sizeof(E));
    }
}

/* ---------------------------------------------------------------- atomics */

/* reg: the old value, operands. Streams run at the same time, so these are real atomic operations. */
template <class T, class F> void atomic(warp &w, const instruction &i) {
    for (int l = 0; l < LANES; l++) {
        if (!(w.mask >> l & 1)) continue;
        T *at = reinterpret_cast<T *>(place(w, i, l, sizeof(T))), old, next;
        const T a = w.at<T>(i.reg[1])[l], b = i.reg[2] == NO_REGISTER ? a : w.at<T>(i.reg[2])[l];
        __atomic_load(at, &old, __ATOMIC_RELAXED);
        do next = F::of(old, a, b);
        while (!__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        if (i.reg[0] != NO_REGISTER) w.at<T>(i.reg[0])[l] = old;
    }
}

#define ATOMIC(name, expression)                                                                                       \
    struct name {                                                                                                      \
        template <class T> static T of(T old, T a, T b) {                                                              \
            (void)b;                                                                                                   \
            return (T)(expression);                                                                                    \
        }                                                                                                              \
    };
ATOMIC(a_add, old + a)
ATOMIC(a_and, old &a)
ATOMIC(a_or, old | a)
ATOMIC(a_xor, old ^ a)
ATOMIC(a_min, a < old ? a : old)
ATOMIC(a_max, a > old ? a : old)
ATOMIC(a_exchange, ((void)old, a))
ATOMIC(a_compare, old == a ? b : old)
ATOMIC(a_increment, old >= a ? 0 : old + 1)

/* ---------------------------------------------------------------- parts of registers */

template <class W, class N> void pack(warp &w, const instruction &i) {
    W out[LANES];
    for (int l = 0; l < LANES; l++) {
        out[l] = 0;
        for (size_t n = 0; n < sizeof(W) / sizeof(N); n++)
            out[l] |= (W)((W)w.at<N>(i.reg[1 + n])[l] << 8 * sizeof(N) * n);
    }
    put(w, i.reg[0], out);
}

template <class W, class N> void unpack(warp &w, const instruction &i) {
    constexpr size_t PARTS = sizeof(W) / sizeof(N);
    W from[LANES];
    memcpy(from, w.at<W>(i.reg[PARTS]), sizeof from);
    for (size_t n = 0; n < PARTS; n++) {
        N out[LANES];
        for (int l = 0; l < LANES; l++) out[l] = (N)(from[l] >> 8 * sizeof(N) * n);
        if (i.reg[n] != NO_REGISTER) put(w, i.reg[n], out);
    }
}

template <space WHERE> void to_generic(warp &w, const instruction &i) {
    const uint64_t *from = w.at<uint64_t>(i.reg[1]);
    uint64_t out[LANES];
    for (int l = 0; l < LANES; l++)
        out[l] =
            from[l] + (WHERE == space::SHARED  ? (uint64_t)(uintptr_t)w.of->shared
                       : WHERE == space::LOCAL ? (uint64_t)(uintptr_t)(w.local + (size_t)l * w.of->code->local_bytes)
                                               : 0);
    put(w, i.reg[0], out);
}

struct row {
    const char *type;
    int width;
    executor load, store;
};
#define ROW(type, E, R) {type, sizeof(R), load<E, R>, store<E, R>},
#define BYTES(type, sign)                                                                                              \
    ROW(type, sign##int8_t, sign##int16_t) ROW(type, sign##int8_t, sign##int32_t) ROW(type, sign##int8_t, sign##int64_t)
#define HALVES(type, sign)                                                                                             \
    ROW(type, sign##int16_t, sign##int16_t)                                                                            \
    ROW(type, sign##int16_t, sign##int32_t) ROW(type, sign##int16_t, sign##int64_t)
#define WORDS(type, sign)   ROW(type, sign##int32_t, sign##int32_t) ROW(type, sign##int32_t, sign##int64_t)
#define DOUBLES(type, sign) ROW(type, sign##int64_t, sign##int64_t)
const row rows[] = {BYTES("u8", u) BYTES("b8", u) BYTES("s8", ) HALVES("u16", u) HALVES("b16", u) HALVES("s16", )
                        WORDS("u32", u) WORDS("b32", u) WORDS("f32", u) WORDS("s32", ) DOUBLES("u64", u)
                            DOUBLES("b64", u) DOUBLES("f64", u) DOUBLES("s64", )};

const row *row_of(const char *type, int width) {
    for (const row &r : rows)
        if (strcmp(r.type, type) == 0 && r.width == width) return &r;
    return nullptr;
}

const struct {
    const char *operation, *type;
    executor run;
} atomics[] = {
    {"add", "u32", atomic<uint32_t, a_add>},       {"add", "s32", atomic<uint32_t, a_add>},
    {"add", "u64", atomic<uint64_t, a_add>},       {"add", "f32", atomic<float, a_add>},
    {"and", "b32", atomic<uint32_t, a_and>},       {"or", "b32", atomic<uint32_t, a_or>},
    {"xor", "b32", atomic<uint32_t, a_xor>},       {"min", "u32", atomic<uint32_t, a_min>},
    {"min", "s32", atomic<int32_t, a_min>},        {"min", "u64", atomic<uint64_t, a_min>},
    {"max", "u32", atomic<uint32_t, a_max>},       {"max", "s32", atomic<int32_t, a_max>},
    {"max", "u64", atomic<uint64_t, a_max>},       {"exch", "b32", atomic<uint32_t, a_exchange>},
    {"exch", "b64", atomic<uint64_t, a_exchange>}, {"cas", "b32", atomic<uint32_t, a_compare>},
    {"cas", "b64", atomic<uint64_t, a_compare>},   {"inc", "u32", atomic<uint32_t, a_increment>},
};

} // namespace

executor load_of(const char *type, int width) {
    const row *r = row_of(type, width);
    return r ? r->load : nullptr;
}

executor store_of(const char *type, int width) {
    const row *r = row_of(type, width);
    return r ? r->store : nullptr;
}

executor atomic_of(const char *operation, const char *type) {
    for (const auto &a : atomics)
        if (strcmp(a.operation, operation) == 0 && strcmp(a.type, type) == 0) return a.run;
    return nullptr;
}

executor pack_of(int wide, int narrow) {
    if (wide == 4 && narrow == 2) return pack<uint32_t, uint16_t>;
    if (wide == 8 && narrow == 4) return pack<uint64_t, uint32_t>;
    return wide == 8 && narrow == 2 ? pack<uint64_t, uint16_t> : nullptr;
}

executor unpack_of(int wide, int narrow) {
    if (wide == 4 && narrow == 2) return unpack<uint32_t, uint16_t>;
    if (wide == 8 && narrow == 4) return unpack<uint64_t, uint32_t>;
    return wide == 8 && narrow == 2 ? unpack<uint64_t, uint16_t> : nullptr;
}

executor address_of(space where) {
    return where == space::SHARED  ? to_generic<space::SHARED>
           : where == space::LOCAL ? to_generic<space::LOCAL>
                                   : to_generic<space::GLOBAL>;
}

} // namespace ptx
