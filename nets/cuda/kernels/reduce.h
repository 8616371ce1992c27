/* SPDX-License-Identifier: MIT */
/* Sums over a map's pixels, channel by channel, in one launch. strips.h says how the map is cut, and in which order
 * sums are added. A block has `chains` threads for each vector of channels. It writes its sums to the scratch and
 * increments its group's counter. The last block of a group joins the group's sums; the last of these blocks joins the
 * groups' sums and uses them. The scratch:
 *
 *   | sums of block 0 [channels], block 1, ... | first quantity of group 0 [channels], second, group 1, ... |
 *
 * Counters are 0 before a launch and after it, so it can be replayed. Blocks pass sums to one another in words, as
 * mm_cuda_load says, between fences. For .cu files; C++. */
#ifndef NETS_CUDA_KERNELS_REDUCE_H
#define NETS_CUDA_KERNELS_REDUCE_H

#include "nets/cuda/kernels/vector.h"

/* Blocks of THREADS on a multiprocessor. Chosen: a thread then has 64 registers, which suffice. */
enum { BLOCKS_AT_ONCE = 4 };
/* Blocks on a multiprocessor if a thread takes V channels. With eight channels a thread has 80 registers, or 128 if it
 * keeps MUCH for each channel. */
template <int V, bool MUCH = false> constexpr int BLOCKS_OF = V <= 4 ? BLOCKS_AT_ONCE : MUCH ? 2 : 3;

/* ---------------------------------------------------------------- first step: what is summed */

template <int V> struct sums { float q[2][V]; };

template <int V> static __device__ inline void join(sums<V> *a, const sums<V> &b) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < V; k++) a->q[i][k] += b.q[i][k];
}

/* A Source has `fetch`, which loads what it needs of a pixel, and `take`, which adds that to the thread's total. Both
 * get the index of the thread's first element in the pixel. ROWS pixels are fetched before the first is taken, so that
 * their loads overlap. BLOCKS: BLOCKS_OF.
 *
 * take_pixels takes those of pixels 0 .. n - 1 that are inside; row(i) is pixel i's number in the map. */
template <typename Source, typename Inside, typename Row>
static __device__ inline void take_pixels(Source &source, typename Source::total *t, int channels, int channel,
                                          unsigned n, const Inside &inside, const Row &row) {
    const auto place = [&](unsigned i) { return (int64_t)row(i) * channels + channel; };
#pragma unroll 1
    for (unsigned pixel = 0; pixel < n; pixel += Source::ROWS) {
        typename Source::item item[Source::ROWS];
#pragma unroll
        for (unsigned i = 0; i < Source::ROWS; i++)
            if (inside(pixel + i)) source.fetch(place(pixel + i), &item[i]);
#pragma unroll
        for (unsigned i = 0; i < Source::ROWS; i++)
            if (inside(pixel + i)) source.take(place(pixel + i), item[i], t);
    }
}

/* Takes a chain: tiles begin, begin + chains, ... below end. If images are single pixels (s.plane is 1), a tile is one
 * row: a Source with MATRICES then fetches several rows together; a Source without MATRICES takes tile by tile, and
 * needs fewer registers. */
template <typename Source>
static __device__ inline void take_chain(Source &source, typename Source::total *t, const nets_strips &s,
                                         unsigned begin, unsigned end, int channel) {
    const unsigned chains = (unsigned)s.chains;
    if (Source::MATRICES && s.plane == 1) {
        const unsigned n = begin < end ? (end - begin + chains - 1) / chains : 0;
        take_pixels(
            source, t, s.channels, channel, n, [&](unsigned i) { return i < n; },
            [&](unsigned i) { return (int)(begin + i * chains); });
        return;
    }
    for (; begin < end; begin += chains) {
        const nets_tile tile = nets_tile_at(&s, (int)begin);
        take_pixels(
            source, t, s.channels, channel, 16,
            [&](unsigned i) { return (int)(i % 4) < tile.width && (int)(i / 4) < tile.height; },
            [&](unsigned i) { return tile.row + (int)(i / 4) * s.columns + (int)(i % 4); });
    }
}

/* What every thread of a block does first. A Source may overload prepare and take_chain. */
template <typename Source> static __device__ inline void prepare(const Source &) {}

/* Joins the chains of each lane in a tree, in each of n arrays that have an entry for each thread: chain i joins chain
 * i + m / 2, for m = chains, chains / 2, ... 2. Every thread calls it. */
template <typename T> static __device__ inline void join_chains(T *all, int n) {
    const int lanes = (int)blockDim.x, threads = lanes * (int)blockDim.y,
              mine = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    for (int half = (int)blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int k = 0; k < n && (int)threadIdx.y < half; k++)
            join(&all[k * threads + mine], all[k * threads + mine + half * lanes]);
    }
}

/* ---------------------------------------------------------------- second step: blocks' sums are joined and used */

/* A channel's sums over several blocks. */
struct wide {
    double q[2];
};

static __device__ inline void join(wide *a, const wide &b) {
    a->q[0] += b.q[0];
    a->q[1] += b.q[1];
}

/* The memory through which blocks pass sums to one another. */
struct handed {
    unsigned long long *blocks, *groups; /* in the scratch */
    unsigned *counters;                  /* for each tile of channels: one for each group, one for all groups */
};

static __device__ inline unsigned long long word_of(float a, float b) {
    return (unsigned long long)__float_as_uint(b) << 32 | __float_as_uint(a);
}

/* How many counters a tile of channels has. */
static __host__ __device__ inline int counters_of(const nets_strips &s) { return s.groups + 1; }

/* How the sums of parts are read: from_blocks or from_groups. A thread loads ROUND parts of AT_ONCE channels before it
 * adds the first: a load from the level-2 cache takes longer than all else, but loaded parts take registers. */
struct from_blocks {
    enum { ROUND = 5, AT_ONCE = 2 };
    typedef unsigned long long word;
    const unsigned long long *at;
    int channels;

    __device__ word get(int i, int c) const {
        return mm_cuda_load(at + (unsigned)i * (unsigned)channels + (unsigned)c);
    }
    static __device__ wide sums_of(word w) {
        return {{__uint_as_float((unsigned)w), __uint_as_float((unsigned)(w >> 32))}};
    }
};

struct from_groups {
    enum { ROUND = 5, AT_ONCE = 1 };
    typedef wide word;
    const unsigned long long *at;
    int channels;

    __device__ double quantity(int64_t i, int c) const {
        return __longlong_as_double((long long)mm_cuda_load(at + i * channels + c));
    }
    __device__ wide get(int i, int c) const { return {{quantity(2 * i, c), quantity(2 * i + 1, c)}}; }
    static __device__ wide sums_of(const wide &w) { return w; }
    static __device__ void put(unsigned long long *at, const wide &w, int i, int c, int channels) {
        for (int q = 0; q < 2; q++)
            mm_cuda_store(at + (int64_t)(2 * i + q) * channels + c, (unsigned long long)__double_as_longlong(w.q[q]));
    }
};

/* The thread's k-th channel when blocks' sums are joined: a warp reads neighbouring words. */
template <int V> static __device__ inline int joined_channel(int k) {
    return (int)((blockIdx.y * V + k) * blockDim.x + threadIdx.x);
}

/* Joins the sums of parts first .. end - 1, each of `blocks` blocks. In the first V chains, a thread returns the sums
 * of channel joined_channel(threadIdx.y), if the map has that channel. */
template <int V, typename Finish, typename From>
static __device__ inline wide join_parts(const Finish &f, const nets_strips &s, const From &from, int first, int end,
                                         int blocks, wide *all) {
    constexpr int ROUND = From::ROUND, MOST = From::AT_ONCE * (V > 4 && !Finish::FROM_ORIGIN ? 2 : 1);
    constexpr int AT = V < MOST ? V : MOST;
    const int step = (int)blockDim.y, chain = (int)threadIdx.y, threads = step * (int)blockDim.x;
    wide *const mine = all + chain * (int)blockDim.x + (int)threadIdx.x;
    double my_origin = 0;
#pragma unroll 1
    for (int k0 = 0; k0 < V; k0 += AT) {
        wide w[AT] = {};
        typename From::word origin[AT];
        const auto channel = [&](int k) { return min(joined_channel<V>(k0 + k), s.channels - 1); };
        for (int k = 0; k < AT && Finish::FROM_ORIGIN; k++) origin[k] = from.get(first, channel(k));
        for (int part = first + chain; part < end; part += ROUND * step) {
            typename From::word got[ROUND][AT];
#pragma unroll
            for (int i = 0; i < ROUND; i++)
                for (int k = 0; k < AT && part + i * step < end; k++) got[i][k] = from.get(part + i * step, channel(k));
#pragma unroll
            for (int i = 0; i < ROUND; i++) {
                if (part + i * step >= end) break;
                const double rows = (double)nets_strips_rows(&s, (int64_t)(part + i * step) * blocks, blocks);
                for (int k = 0; k < AT; k++)
                    f.part(From::sums_of(got[i][k]), Finish::FROM_ORIGIN ? From::sums_of(origin[k]).q[0] : 0, rows,
                           &w[k]);
            }
        }
        for (int k = 0; k < AT; k++) {
            mine[(k0 + k) * threads] = w[k];
            if (Finish::FROM_ORIGIN && k0 + k == chain) my_origin = From::sums_of(origin[k]).q[0];
        }
    }
    join_chains(all, V);
    __syncthreads();
    wide sum = {};
    if (chain >= V) return sum;
    sum = mine[chain * (threads - (int)blockDim.x)];
    f.close(my_origin, (double)nets_strips_rows(&s, (int64_t)first * blocks, (int64_t)(end - first) * blocks), &sum);
    return sum;
}

/* Whether this block is the last of the n blocks that call this with the counter; if so, it sees what the others wrote
 * before. Every thread of a block calls it. The barriers order the accesses of the block's threads, and one thread's
 * fences then order all of these for other blocks. The last call sets the counter back to 0. */
static __device__ inline bool is_last(unsigned *counter, int n) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        __threadfence();
        last = atomicInc(counter, (unsigned)n - 1) == (unsigned)n - 1;
        if (last) __threadfence();
    }
    __syncthreads();
    return last;
}

/* A Finish has three functions: `part` adds a part's quantities to sums, `close` turns the sums into quantities of the
 * group, and `finish` uses a channel's quantities. The first two compute in double. FROM_ORIGIN: `part` also gets the
 * first quantity of the first part, and sums deviations from it. */
template <int V, typename Source, typename Finish>
static __global__ void __launch_bounds__(THREADS, int(Source::BLOCKS))
    reduce(Source source, Finish f, nets_strips s, handed to) {
    typedef typename Source::total total;
    MM_DYNAMIC_SHARED(wide, shared);
    total *const all = reinterpret_cast<total *>(shared);
    const int channel = my_channel<V>(), block = (int)blockIdx.x, group = block / s.together;
    total t = {};
    prepare(source);
    if (channel < s.channels) {
        source.start(channel);
        const unsigned each = (unsigned)s.each * (unsigned)s.chains, begin = (unsigned)block * each;
        /* begin + each cannot overflow: begin < s.tiles < 2^31, and `each` is small beside 2^31. */
        const unsigned end = min(begin + each, (unsigned)s.tiles);
        take_chain(source, &t, s, begin + threadIdx.y, end, channel);
    }
    all[threadIdx.y * blockDim.x + threadIdx.x] = t;
    join_chains(all, 1);
    __syncthreads();
    const int joined = joined_channel<V>((int)threadIdx.y), lane = joined - (int)(blockIdx.y * blockDim.x) * V;
    const bool finishes = (int)threadIdx.y < V && joined < s.channels;
    if (finishes)
        mm_cuda_store(to.blocks + (int64_t)block * s.channels + joined,
                      word_of(all[lane / V].q[0][lane % V], all[lane / V].q[1][lane % V]));

    unsigned *const counters = to.counters + blockIdx.y * (unsigned)counters_of(s);
    const int begin = group * s.together, end = min(begin + s.together, s.blocks);
    if (!is_last(counters + group, end - begin)) return;
    const wide of_group = join_parts<V>(f, s, from_blocks{to.blocks, s.channels}, begin, end, 1, shared);
    if (finishes) from_groups::put(to.groups, of_group, group, joined, s.channels);
    if (!is_last(counters + s.groups, s.groups)) return;
    const wide sum = join_parts<V>(f, s, from_groups{to.groups, s.channels}, 0, s.groups, s.together, shared);
    if (finishes) f.finish(joined, sum, (double)s.rows);
}

/* The scratch has nets_strips_bytes. */
template <int V, typename Source, typename Finish>
static void sum_up(const Source &source, const Finish &f, const nets_cuda_reduction &over, void *scratch,
                   cudaStream_t stream) {
    const nets_strips &s = over.strips;
    const int64_t vectors = s.channels / V, lanes = lanes_for(vectors);
    const dim3 grid((unsigned)s.blocks, (unsigned)ceil_div(vectors, lanes)), block((unsigned)lanes, (unsigned)s.chains);
    unsigned long long *words = static_cast<unsigned long long *>(scratch);
    const handed to = {words, words + (int64_t)s.blocks * s.channels, over.counters};
    const size_t joined = V * sizeof(wide), total = sizeof(typename Source::total);
    const size_t each = joined > total ? joined : total;
    void (*kernel)(Source, Finish, nets_strips, handed) = reduce<V, Source, Finish>;
    MM_LAUNCH(kernel, grid, block, lanes * s.chains * each, stream, source, f, s, to);
}

#endif
