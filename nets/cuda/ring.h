/* Rows that a thread reads ahead: copied from global memory to shared memory while it computes with earlier ones. So bytes
 * are on their way that no register waits for. Each thread has slots of its own, which no other reads: no barrier. With
 * `threads` of a block and `arrays` that are read:
 *
 *   | stage 0: array 0 [threads] x 16 bytes, array 1, ... | stage 1 ... | stage 0: words [threads] x 4 bytes ... | ...
 *
 * A slot is a vector of 16 bytes. On the emulation copies are at once. For .cu files; C++. */
#ifndef NETS_CUDA_RING_H
#define NETS_CUDA_RING_H

#include "nets/cuda/vector.h"

#ifndef BN_PIPELINE
#define BN_PIPELINE 1
#endif
#ifndef BN_HINTS
#define BN_HINTS 1
#endif
#ifndef BN_SLOTS
#define BN_SLOTS 8
#endif

/* Stages where so many arrays are read: BN_SLOTS slots a thread, and no fewer than two stages. A block's ring stays below the
 * 48 KiB that a kernel has without asking. */
template <int ARRAYS> constexpr int STAGES_OF = ARRAYS <= 2 ? BN_SLOTS / ARRAYS : ARRAYS == 3 ? 3 : 2;

static __device__ inline void copy_ahead(char *slot, const void *from, bool last) {
#ifdef __CUDA_ARCH__
    const unsigned to = (unsigned)__cvta_generic_to_shared(slot);
    if (BN_HINTS && last) {
        unsigned long long policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
                     :
                     : "r"(to), "l"(__cvta_generic_to_global(from)), "l"(policy)
                     : "memory");
    } else {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :
                     : "r"(to), "l"(__cvta_generic_to_global(from))
                     : "memory");
    }
#else
    (void)last;
    *reinterpret_cast<uint4 *>(slot) = *reinterpret_cast<const uint4 *>(from);
#endif
}

static __device__ inline void copy_word_ahead(uint32_t *slot, const uint32_t *from) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(slot)), "l"(__cvta_generic_to_global(from))
                 : "memory");
#else
    *slot = *from;
#endif
}

/* Two words that another block of the launch has handed over. */
static __device__ inline void copy_handed_ahead(char *slot, const unsigned long long *from) {
#ifdef __CUDA_ARCH__
    copy_ahead(slot, from, false);
#else
    for (int i = 0; i < 2; i++) reinterpret_cast<unsigned long long *>(slot)[i] = mm_cuda_load(from + i);
#endif
}

/* Ends a stage's copies. */
static __device__ inline void end_stage() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

/* Waits for the copies of all stages that were ended but the last N. */
template <int N> static __device__ inline void wait_for_stages() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
#endif
}

/* How a row's arrays are visited, in the same order each time: `at_once` loads them; `ahead` begins copies of them;
 * `arrived` has what was copied. */
struct ahead {
    char *slot;
    uint32_t *words;
    int threads;

    template <typename T, int V> __device__ void operator()(const T *from, held<T, V> *, bool last = false) {
        static_assert(V == PER_LOAD<T>, "a slot is 16 bytes");
        copy_ahead(slot, from, last);
        slot += threads * 16;
    }
    __device__ void word(const uint32_t *from, uint32_t *) {
        copy_word_ahead(words, from);
        words += threads;
    }
    __device__ void row(int row) {
        *words = (uint32_t)row;
        words += threads;
    }
};

struct arrived {
    const char *slot;
    const uint32_t *words;
    int threads;

    template <typename T, int V> __device__ void operator()(const T *, held<T, V> *h, bool = false) {
        *h = *reinterpret_cast<const held<T, V> *>(slot);
        slot += threads * 16;
    }
    __device__ void word(const uint32_t *, uint32_t *w) {
        *w = *words;
        words += threads;
    }
    __device__ int row() {
        const int row = (int)*words;
        words += threads;
        return row;
    }
};

/* A thread's slots. */
template <int STAGES> struct ring {
    char *slots;
    uint32_t *words;
    int threads, arrays, words_each;
    int in, out; /* stages */

    static __device__ ring of(void *shared, int arrays, int words_each) {
        const int threads = (int)(blockDim.x * blockDim.y), mine = (int)(threadIdx.y * blockDim.x + threadIdx.x);
        char *const begin = static_cast<char *>(shared);
        return {begin + mine * 16,
                reinterpret_cast<uint32_t *>(begin + STAGES * arrays * threads * 16) + mine,
                threads,
                arrays,
                words_each,
                0,
                0};
    }
    static __device__ int after(int stage) { return stage + 1 == STAGES ? 0 : stage + 1; }
    __device__ ahead next_ahead() {
        const int stage = in;
        in = after(in);
        return {slots + stage * arrays * threads * 16, words + stage * words_each * threads, threads};
    }
    __device__ arrived next_arrived() {
        const int stage = out;
        out = after(out);
        return {slots + stage * arrays * threads * 16, words + stage * words_each * threads, threads};
    }
};

static inline size_t ring_bytes(int stages, int arrays, int words_each, int64_t threads) {
    return (size_t)(stages * (arrays * 16 + words_each * 4) * threads);
}

/* write_rows, with a ring of `shared` memory in place of registers. fetch(row, item, via) visits. */
template <int STAGES, typename Item, typename T, typename Fetch, typename Make>
static __device__ inline void write_rows_ahead(const my_rows &r, int64_t pitch, T *out, void *shared, int arrays,
                                               int words_each, const Fetch &fetch, const Make &make) {
    ring<STAGES> rows = ring<STAGES>::of(shared, arrays, words_each);
    Item item;
    int next = r.first;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (next >= r.least) {
            ahead via = rows.next_ahead();
            fetch(next, &item, via);
        }
        next -= r.step;
        end_stage();
    }
#pragma unroll 1
    for (int row = r.first; row >= r.least; row -= r.step) {
        if (next >= r.least) {
            ahead via = rows.next_ahead();
            fetch(next, &item, via);
        }
        next -= r.step;
        end_stage();
        wait_for_stages<STAGES - 1>();
        arrived via = rows.next_arrived();
        fetch(row, &item, via);
        store(out + row * pitch, make(item, row));
    }
}

#endif
