// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

#include <stdarg.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/cuda_emulation/check.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/ptx/ptx.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulation {
namespace {

constexpr unsigned MOST_THREADS = 1024, MOST_GRID_YZ = 65535;
constexpr size_t MOST_SHARED_BYTES = 227 * 1024, STACK_BYTES = 256 * 1024, SHARED_ALIGNMENT = 1024;
constexpr uint64_t GARBAGE = 0xa5a5a5a5a5a5a5a5;

enum class state { READY, AT_BARRIER, AT_EXCHANGE, ENDED };

/* A stack for CUDA threads: the next one gets it when the last one has ended. */
struct fiber {
    std::unique_ptr<char[]> stack;
    ucontext_t birth;
    bool born = false;
    void *place[5]; /* for __builtin_setjmp: where it resumes */
    struct cuda_thread *thread = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    void *fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
    void *tsan = nullptr;
    ~fiber() {
        if (tsan) __tsan_destroy_fiber(tsan);
    }
#endif
};

struct cuda_thread {
    uint3 index;
    state now;
    fiber *on; /* its stack, from its start to its end */
    /* while it waits */
    const char *site; /* the barrier's file, the exchange's operation */
    int line;
    unsigned mask;
    uint64_t value;
    /* what it waited for */
    const lanes *got; /* `exchanged` of the exchange's first lane */
    int count;
    lanes exchanged;
    witness seen;
};

/* The launch that runs on this thread, and the block of it. */
struct running {
    const grid *of;
    const void *arguments;
    std::vector<cuda_thread> threads;
    std::unique_ptr<char, decltype(&free)> shared{nullptr, free}; /* dynamic; asan watches its ends */
    std::vector<unsigned> order;                                  /* of threads, if it is random */
    bool scattered = false;                                       /* the order of threads and blocks is random */
    std::minstd_rand random;
    void *scheduler[5];
    cuda_thread *current = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    void *fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
    void *tsan = nullptr;
#endif
};

thread_local running *launched;

/* Fibers without a CUDA thread, for this thread's launches. The one used last is used next. */
thread_local std::vector<std::unique_ptr<fiber>> idle;

#if defined(__SANITIZE_ADDRESS__)
/* This thread's own stack. */
thread_local const void *stack_bottom;
thread_local size_t stack_bytes;
#endif

/* ---------------------------------------------------------------- fibers */

/* For functions that switch stacks. The compiler must not inline them, nor analyse which registers they preserve. tsan
 * must not count their calls, which return elsewhere, or its own stack of calls overflows. asan must not take a stack
 * that is left for an abandoned one: it would forget what is out of bounds there, with two system calls a switch. */
#if defined(__clang__)
#define HOPS __attribute__((noinline, no_sanitize("thread", "address")))
#else
#define HOPS __attribute__((noinline, noipa, no_sanitize("thread"), no_sanitize("address")))
#endif

[[noreturn]] HOPS void jump(void **place) { __builtin_longjmp(place, 1); }

/* Leaves the fiber of the current thread for the scheduler, until that resumes it. */
HOPS void yield(running *r, fiber *f) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&f->fake_stack, stack_bottom, stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(r->tsan, 0);
#endif
    if (__builtin_setjmp(f->place) == 0) jump(r->scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(launched->current->on->fake_stack, nullptr, nullptr);
#endif
}

void live() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &stack_bottom, &stack_bytes);
#endif
    for (;;) {
        running *r = launched;
        fiber *f = r->current->on;
        r->of->body(r->arguments);
        f->thread->now = state::ENDED;
        yield(r, f);
    }
}

/* Sets where the fiber begins when it is first entered. */
HOPS void fiber_prepare(fiber *f) {
    getcontext(&f->birth);
    f->birth.uc_stack.ss_sp = f->stack.get();
    f->birth.uc_stack.ss_size = STACK_BYTES;
    f->birth.uc_link = nullptr;
    makecontext(&f->birth, live, 0);
}

fiber *fiber_take() {
    if (!idle.empty()) {
        fiber *f = idle.back().release();
        idle.pop_back();
        return f;
    }
    fiber *f = new fiber;
    f->stack.reset(new char[STACK_BYTES]);
    fiber_prepare(f);
#if defined(__SANITIZE_THREAD__)
    f->tsan = __tsan_create_fiber(0);
#endif
    return f;
}

HOPS void enter(running *r, fiber *f) {
    if (__builtin_setjmp(r->scheduler) != 0) return;
    if (f->born) jump(f->place);
    f->born = true;
    setcontext(&f->birth);
    abort();
}

/* Runs a thread that is ready until it waits or ends. */
void resume(running *r, cuda_thread *t) {
    if (!t->on) {
        t->on = fiber_take();
        t->on->thread = t;
        check_thread(&t->seen, (uint32_t)(t - r->threads.data()), t->on->stack.get(), STACK_BYTES);
    }
    fiber *f = t->on;
    r->current = t;
    check_running(&t->seen);
    threadIdx = t->index;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&r->fake_stack, f->stack.get(), STACK_BYTES);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    enter(r, f);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(r->fake_stack, nullptr, nullptr);
#endif
    r->current = nullptr;
    check_running(nullptr);
    if (t->now != state::ENDED) return;
    t->on = nullptr;
    idle.emplace_back(f);
}

/* ---------------------------------------------------------------- blocks */

/* The names of one place in the source are usually one string. */
bool same_site(const char *a, const char *b) { return a == b || strcmp(a, b) == 0; }

/* Tells the checker of a __syncwarp of the lanes in `with`. */
void meet(cuda_thread *warp, uint32_t with, int count) {
    witness *met[32];
    int n = 0;
    for (int l = 0; l < count; l++)
        if (with >> l & 1) met[n++] = &warp[l].seen;
    check_warp(met, n);
}

/* Resumes the lanes whose operation is complete; returns whether there are any. */
bool release_exchanges(cuda_thread *warp, int count) {
    uint32_t alive = 0, waiting = 0;
    for (int l = 0; l < count; l++) {
        alive |= (uint32_t)(warp[l].now != state::ENDED) << l;
        waiting |= (uint32_t)(warp[l].now == state::AT_EXCHANGE) << l;
    }
    bool any = false;
    for (int l = 0; l < count; l++) {
        if (!(waiting >> l & 1)) continue;
        const uint32_t with = warp[l].mask & alive;
        if (with & ~waiting) continue;
        lanes *got = &warp[l].exchanged;
        got->present = with;
        for (int m = 0; m < 32; m++) {
            got->value[m] = with >> m & 1 ? warp[m].value : GARBAGE;
            if ((with >> m & 1) && (warp[m].mask != warp[l].mask || !same_site(warp[m].site, warp[l].site)))
                die("lane %d of a warp is at %s with mask %08x, lane %d at %s with mask %08x", l, warp[l].site,
                    warp[l].mask, m, warp[m].site, warp[m].mask);
        }
        for (int m = 0; m < count; m++) {
            if (!(with >> m & 1)) continue;
            warp[m].got = got;
            warp[m].now = state::READY;
        }
        if (same_site(warp[l].site, "__syncwarp")) meet(warp, with, count);
        waiting &= ~with;
        any = true;
    }
    return any;
}

/* Runs warps until all of them wait for the block or have ended, or none can go on. */
void run_warps(running *r, size_t first, size_t count, bool reverse) {
    for (bool any = true; any;) {
        if (r->scattered) std::shuffle(r->order.begin(), r->order.end(), r->random);
        for (size_t i = 0; i < count; i++) {
            cuda_thread *t = &r->threads[r->scattered ? r->order[i] : first + (reverse ? count - 1 - i : i)];
            if (t->now == state::READY) resume(r, t);
        }
        any = false;
        for (size_t w = 0; w < count; w += warpSize)
            any = release_exchanges(&r->threads[first + w], (int)std::min(count - w, (size_t)warpSize)) || any;
    }
}

const char *where(const cuda_thread *t, char *text, size_t capacity) {
    if (t->now == state::AT_BARRIER)
        snprintf(text, capacity, "thread (%u, %u, %u) waits at the barrier of %s:%d", t->index.x, t->index.y,
                 t->index.z, t->site, t->line);
    else
        snprintf(text, capacity, "thread (%u, %u, %u) waits at %s with mask %08x", t->index.x, t->index.y, t->index.z,
                 t->site, t->mask);
    return text;
}

/* To be called when all threads wait or have ended. Opens the barrier; returns whether any wait there. Since Volta a
 * barrier does not wait for threads that have ended; here it is an error, because no kernel intends it. */
bool release_barrier(running *r) {
    cuda_thread *first = nullptr;
    int count = 0;
    size_t ended = 0;
    char one[256], other[256];
    for (cuda_thread &t : r->threads) {
        ended += t.now == state::ENDED;
        if (t.now == state::ENDED) continue;
        if (!first) first = &t;
        if (t.now == state::AT_EXCHANGE || first->now == state::AT_EXCHANGE || t.line != first->line ||
            !same_site(t.site, first->site)) {
            const cuda_thread *stuck = &t == first || t.now == state::AT_EXCHANGE ? &t : first;
            const cuda_thread *beside = stuck == &t ? first : &t;
            die("the block cannot go on: %s, %s", where(stuck, one, sizeof one), where(beside, other, sizeof other));
        }
        count += t.value != 0;
    }
    if (!first) return false;
    if (ended > 0) die("%zu threads of the block have ended, %s", ended, where(first, one, sizeof one));
    check_barrier();
    for (cuda_thread &t : r->threads) {
        if (t.now == state::ENDED) continue;
        t.count = count;
        t.now = state::READY;
    }
    return true;
}

/* Runs a block: one warp after the other, in odd blocks from the last one; if scattered, all threads at once. */
void run_block(running *r, uint64_t number) {
    const bool reverse = number % 2;
    const size_t threads = r->threads.size(), step = r->scattered ? threads : (size_t)warpSize;
    const size_t steps = (threads + step - 1) / step;
    check_block(number);
    for (cuda_thread &t : r->threads) t.now = state::READY;
    memset(r->shared.get(), (int)(GARBAGE & 0xff), r->of->shared_bytes);
    do {
        for (size_t i = 0; i < steps; i++) {
            const size_t first = (reverse ? steps - 1 - i : i) * step;
            run_warps(r, first, std::min(threads - first, step), reverse);
        }
    } while (release_barrier(r));
}

void run_blocks(running *r) {
    const dim3 grid = r->of->blocks;
    std::vector<uint64_t> order((uint64_t)grid.x * grid.y * grid.z);
    std::iota(order.begin(), order.end(), 0);
    if (r->scattered) std::shuffle(order.begin(), order.end(), r->random);
    for (const uint64_t number : order) {
        blockIdx = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                    (unsigned)(number / grid.x / grid.y)};
        run_block(r, number);
    }
}

cuda_thread *self() { return launched->current; }

} // namespace

namespace {

/* Runs what nvcc made of the kernel. */
void run_ptx(const grid &of, const void *arguments) {
    const parameters p = of.parameters_of(arguments);
    ptx::run({of.function,
              of.kernel,
              {of.blocks.x, of.blocks.y, of.blocks.z},
              {of.threads.x, of.threads.y, of.threads.z},
              of.shared_bytes,
              p.count,
              p.at,
              p.bytes,
              cuda_emulation_memory_at});
}

} // namespace

cudaError_t check(const grid &of) {
    const uint64_t threads = (uint64_t)of.threads.x * of.threads.y * of.threads.z;
    const bool fits = of.blocks.x > 0 && of.blocks.x <= INT32_MAX && of.blocks.y > 0 && of.blocks.y <= MOST_GRID_YZ &&
                      of.blocks.z > 0 && of.blocks.z <= MOST_GRID_YZ && threads > 0 && threads <= MOST_THREADS &&
                      of.threads.z <= 64;
    if (!fits) return cudaErrorInvalidConfiguration;
    return of.shared_bytes <= MOST_SHARED_BYTES ? cudaSuccess : cudaErrorInvalidValue;
}

void run(const grid &of, const void *arguments) {
    cuda_emulation_pass_kernel();
    if (ptx::is_on()) {
        run_ptx(of, arguments);
        return;
    }
    running r;
    r.of = &of;
    r.arguments = arguments;
    void *shared;
    if (posix_memalign(&shared, SHARED_ALIGNMENT, of.shared_bytes) != 0) die("no memory for shared memory");
    r.shared.reset(static_cast<char *>(shared));
#if defined(__SANITIZE_THREAD__)
    r.tsan = __tsan_get_current_fiber();
#endif
    for (unsigned z = 0; z < of.threads.z; z++)
        for (unsigned y = 0; y < of.threads.y; y++)
            for (unsigned x = 0; x < of.threads.x; x++) {
                cuda_thread t = {};
                t.index = {x, y, z};
                r.threads.push_back(t);
            }
    launched = &r;
    blockDim = {of.threads.x, of.threads.y, of.threads.z};
    gridDim = {of.blocks.x, of.blocks.y, of.blocks.z};
    r.order.resize(r.threads.size());
    std::iota(r.order.begin(), r.order.end(), 0);
    check_launch_begins(of.kernel, {arguments, of.argument_bytes},
                        {r.threads.data(), r.threads.size() * sizeof(cuda_thread)}, {r.shared.get(), of.shared_bytes});
    do run_blocks(&r);
    while ((r.scattered = check_runs_again()));
    check_launch_ends();
    launched = nullptr;
}

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("CUDA emulation: ", stderr);
    if (launched) {
        fprintf(stderr, "kernel %s, block (%u, %u, %u)", launched->of->kernel, blockIdx.x, blockIdx.y, blockIdx.z);
        if (self()) fprintf(stderr, ", thread (%u, %u, %u)", threadIdx.x, threadIdx.y, threadIdx.z);
        fputs(": ", stderr);
    }
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

void *dynamic_shared() { return launched->shared.get(); }

int lane() { return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % warpSize; }

int block_barrier(bool predicate, const char *file, int line) {
    cuda_thread *t = self();
    t->site = file;
    t->line = line;
    t->value = predicate;
    t->now = state::AT_BARRIER;
    yield(launched, t->on);
    return t->count;
}

const lanes &exchange(const char *operation, unsigned mask, uint64_t value) {
    cuda_thread *t = self();
    if (!(mask >> lane() & 1)) die("%s with mask %08x, which leaves out the caller's lane %d", operation, mask, lane());
    t->site = operation;
    t->mask = mask;
    t->value = value;
    t->now = state::AT_EXCHANGE;
    yield(launched, t->on);
    return *t->got;
}

} // namespace cuda_emulation
