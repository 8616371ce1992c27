// SPDX-License-Identifier: MIT
/* The sums of sums.h. One warp sums a strip; each of its threads has four neighbouring lanes, and loads their elements
 * at once. Then one warp adds up the strips' results, which lie in the scratch. */
#include "mm/device/cuda/cuda_launch.h"

#define MM_SUMS_FUNCTION static __device__ inline
#include "mm/device/contract/sums.h"

enum { WARP = 32, OWN = MM_SUMS_LANES / WARP, THREADS = 256, AHEAD = 4 };

typedef struct own_lanes {
    mm_sums_part lane[OWN];
} own_lanes;

static __device__ void begin(own_lanes *of) {
    for (int k = 0; k < OWN; k++) of->lane[k] = mm_sums_part{0, 0, 0, 0};
}

static __device__ inline void add_element(mm_sums_part *to, float element) {
    const uint32_t bits = __float_as_uint(element) & 0x7fffffff;
    const double value = __uint_as_float(bits);
    to->sum_abs += value;
    to->sum_squares += value * value;
    to->nonzero += bits != 0;
    if (bits > to->max_bits) to->max_bits = bits;
}

static __device__ inline void add_four(own_lanes *to, float4 row) {
    add_element(&to->lane[0], row.x);
    add_element(&to->lane[1], row.y);
    add_element(&to->lane[2], row.z);
    add_element(&to->lane[3], row.w);
}

/* Adds up the warp's lanes, by halves. Thread 0 gets the result. */
static __device__ mm_sums_part fold(own_lanes *of) {
    for (int threads = WARP / 2; threads > 0; threads /= 2)
        for (int k = 0; k < OWN; k++) {
            mm_sums_part *mine = &of->lane[k];
            const mm_sums_part other = {__shfl_down_sync(0xffffffffu, mine->sum_abs, threads),
                                        __shfl_down_sync(0xffffffffu, mine->sum_squares, threads),
                                        (int64_t)__shfl_down_sync(0xffffffffu, (long long)mine->nonzero, threads),
                                        __shfl_down_sync(0xffffffffu, mine->max_bits, threads)};
            mm_sums_add(mine, &other);
        }
    for (int half = OWN / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) mm_sums_add(&of->lane[k], &of->lane[k + half]);
    return of->lane[0];
}

static __global__ void __launch_bounds__(THREADS)
    strips(const float *__restrict__ src, int64_t elems, int64_t strip_elems, int64_t n_strips, mm_sums_part *parts) {
    const int thread = threadIdx.x % WARP;
    const int64_t strip = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP, first = strip * strip_elems;
    own_lanes lanes;
    if (strip >= n_strips) return; /* true for the whole warp */
    const int64_t n = elems - first < strip_elems ? elems - first : strip_elems, rows = n / MM_SUMS_LANES;
    const float4 *row = reinterpret_cast<const float4 *>(src + first) + thread;
    begin(&lanes);
    int64_t r = 0;
    for (; r + AHEAD <= rows; r += AHEAD) {
        float4 ahead[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) ahead[a] = row[(r + a) * WARP];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) add_four(&lanes, ahead[a]);
    }
    for (; r < rows; r++) add_four(&lanes, row[r * WARP]);
    for (int k = 0; k < OWN; k++) {
        const int64_t i = rows * MM_SUMS_LANES + thread * OWN + k;
        if (i < n) add_element(&lanes.lane[k], src[first + i]);
    }
    const mm_sums_part part = fold(&lanes);
    if (thread == 0) parts[strip] = part;
}

static __global__ void __launch_bounds__(WARP) finish(const mm_sums_part *parts, int64_t n_strips, mm_sums *sums_out) {
    own_lanes lanes;
    begin(&lanes);
    for (int64_t first = threadIdx.x * OWN; first < n_strips; first += MM_SUMS_LANES)
        for (int k = 0; k < OWN; k++)
            if (first + k < n_strips) mm_sums_add(&lanes.lane[k], &parts[first + k]);
    const mm_sums_part all = fold(&lanes);
    if (threadIdx.x == 0) *sums_out = mm_sums_of(&all);
}

extern "C" cudaError_t cuda_sums_launch(cudaStream_t stream, const float *src, int64_t elems, void *scratch,
                                        mm_sums *sums_out) {
    const int64_t n = mm_sums_strips(elems), blocks = (n * WARP + THREADS - 1) / THREADS;
    mm_sums_part *parts = (mm_sums_part *)scratch;
    if (n > 0)
        MM_LAUNCH(strips, (unsigned)blocks, THREADS, 0, stream, src, elems, mm_sums_strip_elems(elems), n, parts);
    MM_LAUNCH(finish, 1, WARP, 0, stream, parts, n, sums_out);
    return cudaGetLastError();
}
