/* Sums over a map's pixels, channel by channel, in one launch. strips.h has the cut and the order of the sums. A block is
 * `chains` threads for each vector of channels. It writes its sums to the scratch, and counts itself; the last block of
 * a group joins the group's, and the last of these the groups', whose sums it uses:
 *
 *   | sums of block 0 [channels], block 1, ... | first quantity of group 0 [channels], second, group 1, ... |
 *
 * Counters are 0 before a launch and after it, so it can be replayed. What blocks hand to one another passes by words,
 * as mm_cuda_load says, between fences. For .cu files; C++. */
#ifndef NETS_CUDA_REDUCE_H
#define NETS_CUDA_REDUCE_H

#include "nets/cuda/ring.h"

/* Blocks of THREADS on a multiprocessor. Chosen: registers suffice, 64 a thread. */
enum { BLOCKS_AT_ONCE = 4 };
/* The same where a thread takes V channels: with eight it has 80 registers, or, if it holds much of each, 128. */
template <int V, bool MUCH = false> constexpr int BLOCKS_OF = V <= 4 ? BLOCKS_AT_ONCE : MUCH ? 2 : 3;

/* Channels of a vector whose parts a thread joins at once: as many as there are registers for. */
enum { JOINED = 4 };

/* ---------------------------------------------------------------- first step: what is summed */

template <int V> struct sums { float q[2][V]; };

template <int V> static __device__ inline void join(sums<V> *a, const sums<V> &b) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < V; k++) a->q[i][k] += b.q[i][k];
}

/* A Source has `fetch`, which loads what it needs of a pixel, and `take`, which adds that to the thread's total. Both get
 * the index of the thread's first element in the pixel. ROWS pixels are fetched before the first is taken, so that
 * their loads overlap. BLOCKS: BLOCKS_OF. */
template <typename Source>
static __device__ inline void take_tile(Source &source, typename Source::total *t, const nets_strips &s,
                                        const nets_tile &tile, int channel) {

    const int64_t first = (int64_t)tile.row * s.channels + channel;
#pragma unroll 1
    for (int pixel = 0; pixel < 16; pixel += Source::ROWS) {
        typename Source::item item[Source::ROWS];
        at_once via;
#pragma unroll
        for (int i = 0; i < Source::ROWS; i++) {
            const int x = (pixel + i) % 4, y = pixel / 4;
            if (x < tile.width && y < tile.height)
                source.visit(first + (int64_t)(y * s.columns + x) * s.channels, &item[i], via);
        }
#pragma unroll
        for (int i = 0; i < Source::ROWS; i++) {
            const int x = (pixel + i) % 4, y = pixel / 4;
            if (x < tile.width && y < tile.height)
                source.take(first + (int64_t)(y * s.columns + x) * s.channels, item[i], t);
        }
    }
}

/* The pixels of a thread's tiles, in their order. */
struct pixels_of {
    unsigned tile, end, step;
    int row, left, lines, width, columns; /* left: pixels of the line; lines: that follow it */

    __device__ bool more() const { return tile < end; }
    __device__ void begin(const nets_strips &s) {
        if (tile >= end) return;
        const nets_tile at = nets_tile_at(&s, (int)tile);
        row = at.row;
        left = width = at.width;
        lines = at.height - 1;
    }
    __device__ void next(const nets_strips &s) {
        row++;
        if (--left > 0) return;
        if (lines > 0) {
            lines--;
            row += s.columns - width;
            left = width;
            return;
        }
        tile += step;
        begin(s);
    }
};

/* Takes the thread's tiles begin, begin + chains, ... below end, in their order. */
template <typename Source>
static __device__ inline void take_tiles(Source &source, typename Source::total *t, const nets_strips &s,
                                         unsigned begin, unsigned end, int channel, void *) {
    source.start(channel);
    for (unsigned tile = begin; tile < end; tile += (unsigned)s.chains)
        take_tile(source, t, s, nets_tile_at(&s, (int)tile), channel);
}

/* The same with a ring. */
template <typename Source>
static __device__ inline void take_tiles_ahead(Source &source, typename Source::total *t, const nets_strips &s,
                                               unsigned begin, unsigned end, int channel, void *shared) {
    constexpr int STAGES = STAGES_OF<Source::ARRAYS>;
    ring<STAGES> rows = ring<STAGES>::of(shared, Source::ARRAYS, Source::WORDS);
    typename Source::item item;
    pixels_of pixels = {begin, end, (unsigned)s.chains, 0, 0, 0, 0, 0};
    pixels.begin(s);
    int waiting = 0;
    const auto begin_next = [&] {
        if (pixels.more()) {
            ahead via = rows.next_ahead();
            if (Source::WORDS > 0) via.row(pixels.row);
            source.visit((int64_t)pixels.row * s.channels + channel, &item, via);
            pixels.next(s);
            waiting++;
        }
        end_stage();
    };
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) begin_next();
    source.start(channel);
    for (;;) {
        begin_next();
        if (waiting == 0) break;
        waiting--;
        wait_for_stages<STAGES - 1>();
        arrived via = rows.next_arrived();
        const int64_t at = Source::WORDS > 0 ? (int64_t)via.row() * s.channels + channel : 0;
        source.visit(0, &item, via);
        source.take(at, item, t);
    }
}

/* Whether a Source's rows are read ahead: it then has `visit`, and of each row ARRAYS slots and WORDS. */
template <typename Source, typename = void> struct reads_ahead {
    enum { YES = 0 };
};
template <typename Source> struct reads_ahead<Source, decltype((void)Source::AHEAD)> {
    enum { YES = BN_PIPELINE && Source::AHEAD };
};

/* What every thread of a block does first of all. A Source that needs something has its own of these two. */
template <typename Source> static __device__ inline void prepare(const Source &) {}

/* In each of n arrays of a number for each thread, chain i of a lane joins chain i + m / 2, for m = chains, chains / 2, ... 2.
 * Every thread calls it. */
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

/* A channel's sums of several blocks. */
struct wide {
    double q[2];
};

static __device__ inline void join(wide *a, const wide &b) {
    a->q[0] += b.q[0];
    a->q[1] += b.q[1];
}

/* Where blocks leave what other blocks read. */
struct handed {
    unsigned long long *blocks, *groups; /* of the scratch */
    unsigned *counters;                  /* for each tile of channels: one for each group, then one for these */
};

static __device__ inline unsigned long long word_of(float a, float b) {
    return (unsigned long long)__float_as_uint(b) << 32 | __float_as_uint(a);
}

/* How many counters a tile of channels has. */
static __host__ __device__ inline int counters_of(const nets_strips &s) { return s.groups + 1; }

/* Sums of parts, as they were handed over: ROWS words of a channel. At most MOST of all channels are loaded before the first
 * is added; with a ring, STAGES. */
struct from_blocks {
    enum { MOST = 2, ROWS = 1, STAGES = 4 };
    typedef unsigned long long word;
    const unsigned long long *at;
    int channels;

    __device__ word get(int i, int c) const { return mm_cuda_load(at + (int64_t)i * channels + c); }
    static __device__ wide sums_of(word w) {
        return {{__uint_as_float((unsigned)w), __uint_as_float((unsigned)(w >> 32))}};
    }
    static __device__ word of_rows(const word *rows) { return rows[0]; }
};

struct from_groups {
    enum { MOST = 1, ROWS = 2, STAGES = 2 };
    typedef wide word;
    const unsigned long long *at;
    int channels;

    __device__ double quantity(int64_t i, int c) const {
        return __longlong_as_double((long long)mm_cuda_load(at + i * channels + c));
    }
    __device__ wide get(int i, int c) const { return {{quantity(2 * i, c), quantity(2 * i + 1, c)}}; }
    static __device__ wide sums_of(const wide &w) { return w; }
    static __device__ wide of_rows(const unsigned long long *rows) {
        return {{__longlong_as_double((long long)rows[0]), __longlong_as_double((long long)rows[1])}};
    }
    static __device__ void put(unsigned long long *at, const wide &w, int i, int c, int channels) {
        for (int q = 0; q < 2; q++)
            mm_cuda_store(at + (int64_t)(2 * i + q) * channels + c, (unsigned long long)__double_as_longlong(w.q[q]));
    }
};

static __device__ inline unsigned long long word_of(unsigned low, unsigned high) {
    return (unsigned long long)high << 32 | low;
}

/* Adds the thread's parts, which it reads ahead, to w. */
template <int V, typename Finish, typename From>
static __device__ inline void take_parts_ahead(const Finish &f, const nets_strips &s, const From &from, int first,
                                               int end, int blocks, int channel, double *origin, wide *w,
                                               wide *shared) {
    constexpr int STAGES = From::STAGES;
    ring<STAGES> parts = ring<STAGES>::of(shared, From::ROWS * V / 2, 0);
    const int step = (int)blockDim.y;
    int next = first + (int)threadIdx.y;
    const auto begin_next = [&] {
        ahead via = parts.next_ahead();
        for (int k = 0; k < From::ROWS * V && next < end; k += 2, via.slot += via.threads * 16)
            copy_handed_ahead(via.slot, from.at + (int64_t)(From::ROWS * next + k / V) * s.channels + channel + k % V);
        next += step;
        end_stage();
    };
    for (int i = 0; i < STAGES - 1; i++) begin_next();
    for (int k = 0; k < V; k++) origin[k] = From::sums_of(from.get(first, channel + k)).q[0];
#pragma unroll 1
    for (int part = first + (int)threadIdx.y; part < end; part += step) {
        begin_next();
        wait_for_stages<STAGES - 1>();
        arrived via = parts.next_arrived();
        unsigned long long words[V][From::ROWS];
        for (int k = 0; k < From::ROWS * V; k += 2, via.slot += via.threads * 16) {
            const uint4 two = *reinterpret_cast<const uint4 *>(via.slot);
            words[k % V][k / V] = word_of(two.x, two.y);
            words[k % V + 1][k / V] = word_of(two.z, two.w);
        }
        const double rows = (double)nets_strips_rows(&s, (int64_t)part * blocks, blocks);
        for (int k = 0; k < V; k++) f.part(From::sums_of(From::of_rows(words[k])), origin[k], rows, &w[k]);
    }
}

/* Joins the sums of parts first .. end - 1, of so many blocks each. They are the result's of the thread's channel, which is
 * another one in each of the first V chains: what follows takes many registers. */
template <int V, bool AHEAD, typename Finish, typename From>
static __device__ inline wide join_parts(const Finish &f, const nets_strips &s, const From &from, int first, int end,
                                         int blocks, int channel, bool mine, wide *all) {
    constexpr int ROUND = int(Finish::PARTS) < int(From::MOST) ? int(Finish::PARTS) : int(From::MOST);
    const int step = (int)blockDim.y, threads = step * (int)blockDim.x;
    wide w[V];
    double origin[V];
    for (int k = 0; k < V; k++) w[k] = {};
    if constexpr (AHEAD) {
        if (mine) take_parts_ahead<V>(f, s, from, first, end, blocks, channel, origin, w, all);
        __syncthreads(); /* `all` lies where the ring was */
    }
    for (int k = 0; k < V && !AHEAD; k++) origin[k] = mine ? From::sums_of(from.get(first, channel + k)).q[0] : 0;
    for (int part = first + (int)threadIdx.y; !AHEAD && mine && part < end; part += ROUND * step) {
        typename From::word got[ROUND][V];
#pragma unroll
        for (int i = 0; i < ROUND; i++)
            for (int k = 0; k < V && part + i * step < end; k++) got[i][k] = from.get(part + i * step, channel + k);
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            if (part + i * step >= end) break;
            const double rows = (double)nets_strips_rows(&s, (int64_t)(part + i * step) * blocks, blocks);
            for (int k = 0; k < V; k++) f.part(From::sums_of(got[i][k]), origin[k], rows, &w[k]);
        }
    }
    const int at = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    for (int k = 0; k < V; k++) all[k * threads + at] = w[k];
    join_chains(all, V);
    __syncthreads();
    wide sum = {};
    if (!mine || threadIdx.y >= V) return sum;
    sum = all[(int)threadIdx.y * threads + (int)threadIdx.x];
    const double rows = (double)nets_strips_rows(&s, (int64_t)first * blocks, (int64_t)(end - first) * blocks);
    f.close(From::sums_of(from.get(first, channel + (int)threadIdx.y)).q[0], rows, &sum);
    return sum;
}

/* Whether this block is the last of n that come here; then it sees what the others wrote. Every thread calls it. */
static __device__ inline bool is_last(unsigned *counter, int n) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicAdd(counter, 1u) == (unsigned)n - 1;
        if (last) atomicExch(counter, 0u);
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/* A Finish has `part`, which adds a part's quantities to sums, `close`, which makes of sums the quantities of their
 * group, both in double, and `finish`, which uses those of a channel. PARTS: how many may be loaded at once, for as many
 * registers. */
template <int V, typename Source, typename Finish>
static __global__ void __launch_bounds__(THREADS, int(Source::BLOCKS))
    reduce(Source source, Finish f, nets_strips s, handed to) {
    typedef typename Source::total total;
    MM_DYNAMIC_SHARED(wide, shared);
    total *const all = reinterpret_cast<total *>(shared);
    const int channel = my_channel<V>(), block = (int)blockIdx.x, group = block / s.together;
    const bool mine = channel < s.channels, first = threadIdx.y == 0;
    total t = {};
    prepare(source);
    if (mine) {
        const unsigned each = (unsigned)s.each * (unsigned)s.chains, begin = (unsigned)block * each;
        const unsigned end = min(begin + each, (unsigned)s.tiles); /* below 2^32: each is small beside 2^31 tiles */
        if constexpr (reads_ahead<Source>::YES)
            take_tiles_ahead(source, &t, s, begin + threadIdx.y, end, channel, shared);
        else
            take_tiles(source, &t, s, begin + threadIdx.y, end, channel, shared);
    }
    if (reads_ahead<Source>::YES) __syncthreads(); /* sums lie where the ring was */
    all[threadIdx.y * blockDim.x + threadIdx.x] = t;
    join_chains(all, 1);
    for (int k = 0; k < V && mine && first; k++)
        mm_cuda_store(to.blocks + (int64_t)block * s.channels + channel + k,
                      word_of(all[threadIdx.x].q[0][k], all[threadIdx.x].q[1][k]));

    constexpr int AT = V < JOINED ? V : JOINED;
    constexpr bool AHEAD = reads_ahead<Source>::YES;
    const bool finishes = mine && threadIdx.y < AT;
    const int finished = channel + (int)threadIdx.y;
    unsigned *const counters = to.counters + blockIdx.y * (unsigned)counters_of(s);
    const int begin = group * s.together, end = min(begin + s.together, s.blocks);
    if (!is_last(counters + group, end - begin)) return;
#pragma unroll 1
    for (int k = 0; k < V; k += AT) {
        if (k > 0) __syncthreads(); /* the sums before have been read */
        const wide sum =
            join_parts<AT, AHEAD>(f, s, from_blocks{to.blocks, s.channels}, begin, end, 1, channel + k, mine, shared);
        if (finishes) from_groups::put(to.groups, sum, group, finished + k, s.channels);
    }

    if (!is_last(counters + s.groups, s.groups)) return;
#pragma unroll 1
    for (int k = 0; k < V; k += AT) {
        if (k > 0) __syncthreads();
        const wide sum = join_parts<AT, AHEAD>(f, s, from_groups{to.groups, s.channels}, 0, s.groups, s.together,
                                               channel + k, mine, shared);
        if (finishes) f.finish(finished + k, sum, (double)s.rows);
    }
}

/* In scratch of nets_cuda_reduction_bytes. */
template <int V, typename Source, typename Finish>
static void sum_up(const Source &source, const Finish &f, const nets_cuda_reduction &over, void *scratch,
                   cudaStream_t stream) {
    const nets_strips &s = over.strips;
    const int64_t vectors = s.channels / V, lanes = lanes_for(vectors);
    const dim3 grid((unsigned)s.blocks, (unsigned)ceil_div(vectors, lanes)), block((unsigned)lanes, (unsigned)s.chains);
    unsigned long long *words = static_cast<unsigned long long *>(scratch);
    const handed to = {words, words + (int64_t)s.blocks * s.channels, over.counters};
    const size_t joined = (V < JOINED ? V : JOINED) * sizeof(wide), total = sizeof(typename Source::total);
    size_t bytes = lanes * s.chains * (joined > total ? joined : total);
    if constexpr (reads_ahead<Source>::YES)
        bytes =
            larger(bytes, larger(ring_bytes(from_blocks::STAGES, from_blocks::ROWS * JOINED / 2, 0, lanes * s.chains),
                                 ring_bytes(from_groups::STAGES, from_groups::ROWS * JOINED / 2, 0, lanes * s.chains)));
    if constexpr (reads_ahead<Source>::YES)
        bytes = larger(bytes, ring_bytes(STAGES_OF<Source::ARRAYS>, Source::ARRAYS, Source::WORDS, lanes * s.chains));
    void (*kernel)(Source, Finish, nets_strips, handed) = reduce<V, Source, Finish>;
    MM_LAUNCH(kernel, grid, block, bytes, stream, source, f, s, to);
}

#endif
