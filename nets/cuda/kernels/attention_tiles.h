/* SPDX-License-Identifier: MIT */
/* The arithmetic of attention in a block of threads: by the units for f32, or by tensor cores. For
 * op_attention_kernels.cu; C++.
 *
 * A block computes the rows of its own tile, and loops over other tiles. The types by_units and by_cores have the same
 * members:
 *
 *   OWN, OTHER, TEAM   rows of the own tile; rows of another tile; threads of a block
 *   own, rows,         tiles in shared memory: the own one; another one, to be multiplied by its rows, by its columns,
 *   columns, both      or by either. All tiles of a kernel take less than 48 KiB
 *   ROWS, ...          what a thread has: scores [ROWS][SCORES] and results [ROWS][CHANNELS], at row(i), column(j) and
 *                      channel(j) of the tile. LANES neighbours share a row; PAIR of its channels are neighbours
 *   multiply, gather   scores = own rows times other rows; results += scores times other columns */
#ifndef NETS_CUDA_KERNELS_ATTENTION_TILES_H
#define NETS_CUDA_KERNELS_ATTENTION_TILES_H

#include "nets/cuda/kernels/cuda_token_kernels.h"
#include "nets/cuda/kernels/tensor_cores.h"
#include "nets/cuda/kernels/vector.h"

enum { WARP = 32 };

/* Where one head of one sample lies. */
template <typename T> struct head {
    const T *q, *k, *v;
    int64_t x_pitch, y_pitch; /* elements from token to token */
    int64_t x_at, k_at, v_at; /* offsets of q, k and v in x */
    int64_t y_at;             /* offset in y */
    int64_t row_at;           /* offset in arrays with one number for each row */
};

/* Head `i` of the queries of all samples. */
template <typename T> static __device__ inline head<T> head_at(const nets_cuda_attention &a, const T *x, int64_t i) {
    const int64_t sample = i / a.heads, first = i % a.heads;
    const int64_t width = (int64_t)a.heads * a.size, kv_width = (int64_t)a.kv_heads * a.size;
    head<T> h;
    h.x_pitch = width + 2 * kv_width;
    h.y_pitch = width;
    h.x_at = sample * a.tokens * h.x_pitch + first * a.size;
    h.k_at = sample * a.tokens * h.x_pitch + width + first / (a.heads / a.kv_heads) * a.size;
    h.v_at = h.k_at + kv_width;
    h.y_at = sample * a.tokens * h.y_pitch + first * a.size;
    h.row_at = i * a.tokens;
    h.q = x + h.x_at;
    h.k = x + h.k_at;
    h.v = x + h.v_at;
    return h;
}

/* V neighbours of a row, in the stored type; zeros past the last token and the last channel. */
template <int V, typename T>
static __device__ inline held<T, V> fetched(const nets_cuda_attention &a, const T *from, int64_t pitch, int64_t row,
                                            int c) {
    held<T, V> h = {};
    if (row < a.tokens && c < a.size) load(from + row * pitch + c, &h);
    return h;
}

/* ---------------------------------------------------------------- by the units for f32 */

/* For heads of up to D channels, a multiple of ACROSS, in maps of T; tiles are f32. ACROSS threads share the rows or
 * the channels of the other tile; DOWN such groups share the own rows. */
template <int D, typename T_> struct by_units {
    typedef T_ T;
    typedef int64_t index;
    enum { ACROSS = 16, DOWN = 8, TEAM = ACROSS * DOWN };
    enum { OWN = D > 64 ? 16 : D > 32 ? 32 : 64, OTHER = D > 64 ? 16 : 32, PITCH = D + 4, WIDE = OTHER + 4 };
    enum { ROWS = OWN / DOWN, CHANNELS = D / ACROSS, SCORES = OTHER / ACROSS, LANES = ACROSS, PAIR = 1 };

    template <int N> struct __align__(16) tile { float at[N][PITCH]; };
    typedef tile<OWN> own;
    typedef tile<OTHER> rows, columns, both;
    struct __align__(16) exchange {
        float at[OWN][WIDE]; /* scores of own rows */
    };

    static __device__ int across() { return (int)threadIdx.x % ACROSS; }
    static __device__ int down() { return (int)threadIdx.x / ACROSS; }
    static __device__ int row(int i) { return down() + i * DOWN; }
    static __device__ int column(int j) { return across() + j * ACROSS; }
    static __device__ int channel(int j) { return across() + j * ACROSS; }

    template <int V, int N>
    static __device__ void fetch_by(const nets_cuda_attention &a, const T *from, int64_t pitch, int64_t first,
                                    tile<N> *to) {
        for (int i = (int)threadIdx.x; i < N * (D / V); i += TEAM) {
            const int row = i / (D / V), c = i % (D / V) * V;
            const vec<V> v = fetched<V>(a, from, pitch, first + row, c).floats();
            for (int k = 0; k < V; k++) to->at[row][c + k] = v.at[k];
        }
    }
    template <int N>
    static __device__ void fetch(const nets_cuda_attention &a, const T *from, int64_t pitch, int64_t first,
                                 tile<N> *to) {
        if (a.size % PER_LOAD<T> == 0)
            fetch_by<PER_LOAD<T>>(a, from, pitch, first, to);
        else
            fetch_by<1>(a, from, pitch, first, to);
    }

    static __device__ void multiply(const own &mine, const rows &other, float products[ROWS][SCORES]) {
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < SCORES; j++) products[i][j] = 0;
#pragma unroll 4
        for (int c = 0; c < D; c += 4) {
            vec<4> p[ROWS], q[SCORES];
#pragma unroll
            for (int i = 0; i < ROWS; i++) load(&mine.at[row(i)][c], &p[i]);
#pragma unroll
            for (int j = 0; j < SCORES; j++) load(&other.at[column(j)][c], &q[j]);
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < SCORES; j++)
#pragma unroll
                    for (int k = 0; k < 4; k++) products[i][j] = fmaf(p[i].at[k], q[j].at[k], products[i][j]);
        }
    }

    /* Threads exchange their scores in `between`, which is free before and after. */
    static __device__ void gather(const float scores[ROWS][SCORES], const columns &other, exchange *between,
                                  float sums[ROWS][CHANNELS]) {
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < SCORES; j++) between->at[row(i)][column(j)] = scores[i][j];
        __syncthreads();
#pragma unroll 2
        for (int r = 0; r < OTHER; r += 4) {
            vec<4> s[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++) load(&between->at[row(i)][r], &s[i]);
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int j = 0; j < CHANNELS; j++) {
                    const float value = other.at[r + k][channel(j)];
#pragma unroll
                    for (int i = 0; i < ROWS; i++) sums[i][j] = fmaf(s[i].at[k], value, sums[i][j]);
                }
        }
        __syncthreads();
    }
};

/* ---------------------------------------------------------------- by tensor cores */

/* For bf16 heads of up to D channels, a multiple of 8. Each warp has 16 own rows; lane 4 g + t has rows g and g + 8.
 * Scores are rounded to bf16 to be multiplied; sums are f32. The tiles' pitches put the words that a warp loads at once
 * in different banks. */
template <int D> struct by_cores {
    typedef bf16 T;
    typedef int index; /* of a row: with 64 bits, by_key spills at 64 channels; by_units does with 32 bits */
    enum { OWN = D > 64 ? 32 : 64, OTHER = D > 64 ? 16 : 32, TEAM = OWN / 16 * WARP, V = PER_LOAD<bf16> };
    enum { ROWS = 2, CHANNELS = D / 4, SCORES = OTHER / 4, LANES = 4, PAIR = 2 };

    template <int N> struct __align__(16) by_rows { bf16 at[N][D + 8]; };
    typedef by_rows<OWN> own;
    typedef by_rows<OTHER> rows;
    struct __align__(16) columns {
        bf16 at[D][OTHER + 8];
    };
    struct both {
        by_rows<OTHER> by_row;
        columns by_column;
    };
    struct exchange {};

    static __device__ int lane() { return (int)threadIdx.x % WARP; }
    static __device__ int row(int i) { return (int)threadIdx.x / WARP * 16 + lane() / 4 + 8 * i; }
    static __device__ int column(int j) { return j / 2 * 8 + lane() % 4 * 2 + j % 2; }
    static __device__ int channel(int j) { return column(j); }

    /* Threads go along rows, so that loads are coalesced. */
    template <int N>
    static __device__ void fetch(const nets_cuda_attention &a, const bf16 *from, int64_t pitch, int64_t first,
                                 by_rows<N> *to) {
        for (int i = (int)threadIdx.x; i < N * (D / V); i += TEAM) {
            const int row = i / (D / V), c = i % (D / V) * V;
            store(&to->at[row][c], fetched<V>(a, from, pitch, first + row, c));
        }
    }
    /* Threads go along columns, so that stores are in different banks. */
    static __device__ void fetch(const nets_cuda_attention &a, const bf16 *from, int64_t pitch, int64_t first,
                                 columns *to) {
        for (int i = (int)threadIdx.x; i < OTHER * (D / V); i += TEAM) {
            const int row = i % OTHER, c = i / OTHER * V;
            bf16 some[V];
            const held<bf16, V> h = fetched<V>(a, from, pitch, first + row, c);
            memcpy(some, &h.w, sizeof some);
            for (int k = 0; k < V; k++) to->at[c + k][row] = some[k];
        }
    }
    static __device__ void fetch(const nets_cuda_attention &a, const bf16 *from, int64_t pitch, int64_t first,
                                 both *to) {
        fetch(a, from, pitch, first, &to->by_row);
        fetch(a, from, pitch, first, &to->by_column);
    }

    static __device__ unsigned word(const bf16 *at) { return *reinterpret_cast<const unsigned *>(at); }

    static __device__ void multiply(const own &mine, const rows &other, float products[ROWS][SCORES]) {
        const int g = lane() / 4, two = lane() % 4 * 2;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < SCORES; j++) products[i][j] = 0;
#pragma unroll
        for (int c = two; c < D; c += 16) {
            const unsigned p[4] = {word(&mine.at[row(0)][c]), word(&mine.at[row(1)][c]), word(&mine.at[row(0)][c + 8]),
                                   word(&mine.at[row(1)][c + 8])};
#pragma unroll
            for (int n = 0; n < OTHER; n += 8) {
                const unsigned q[2] = {word(&other.at[n + g][c]), word(&other.at[n + g][c + 8])};
                add(&products[0][n / 4], &products[1][n / 4], p, q);
            }
        }
    }
    static __device__ void multiply(const own &mine, const both &other, float products[ROWS][SCORES]) {
        multiply(mine, other.by_row, products);
    }

    static __device__ void gather(const float scores[ROWS][SCORES], const columns &other, exchange *,
                                  float sums[ROWS][CHANNELS]) {
        const int g = lane() / 4, two = lane() % 4 * 2;
#pragma unroll
        for (int r = 0; r < OTHER; r += 16) {
            /* Scores j and j + 1 are for rows r + two and r + two + 1; the next two scores are for the rows 8 later. */
            const int j = r / 4;
            const unsigned p[4] = {halves_of(scores[0][j], scores[0][j + 1]), halves_of(scores[1][j], scores[1][j + 1]),
                                   halves_of(scores[0][j + 2], scores[0][j + 3]),
                                   halves_of(scores[1][j + 2], scores[1][j + 3])};
#pragma unroll
            for (int c = 0; c < D; c += 8) {
                const unsigned q[2] = {word(&other.at[c + g][r + two]), word(&other.at[c + g][r + two + 8])};
                add(&sums[0][c / 4], &sums[1][c / 4], p, q);
            }
        }
    }
    static __device__ void gather(const float scores[ROWS][SCORES], const both &other, exchange *between,
                                  float sums[ROWS][CHANNELS]) {
        gather(scores, other.by_column, between, sums);
    }

    /* Adds the product p q, a tile of 8 columns, to the lane's sums: it has two columns of the tile in each of its two
     * rows. */
    static __device__ void add(float first[2], float second[2], const unsigned p[4], const unsigned q[2]) {
        float d[4] = {first[0], first[1], second[0], second[1]};
        multiply_tiles(d, p, q);
        for (int k = 0; k < 2; k++) {
            first[k] = d[k];
            second[k] = d[2 + k];
        }
    }
};

#endif
