// SPDX-License-Identifier: MIT
/* AdamW's update of parameters whose states are codes: see nets/state_codes.h. A block of threads takes a few blocks of
 * codes, one after the other; a thread has EACH neighbouring elements in GROUPS places of one. */
#include "nets/cuda/kernels/update_list.h"

#define NETS_STATE_FUNCTION static __device__ inline
#include "nets/state_encode.h"

enum { EACH = 4, GROUPS = NETS_STATE_BLOCK / (EACH * THREADS) };
static_assert((int)NETS_STATE_BLOCK == EACH * GROUPS * THREADS, "a block's threads do a block of codes at once");
static_assert((int)NETS_STATE_CODES == (int)THREADS, "each thread copies a number of each map");
static_assert(sizeof(nets_cuda_coded_update) <= 32764, "a kernel's arguments");

/* The largest of the threads' numbers, which are floats' bits without sign, for all threads. `all`: THREADS words. */
static __device__ inline float largest_of_block(int mine, int *all) {
    all[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) all[threadIdx.x] = max(all[threadIdx.x], all[threadIdx.x + half]);
    }
    __syncthreads();
    const int most = all[0];
    __syncthreads();
    return __int_as_float(most);
}

static __device__ inline void load_codes(const uint8_t *from, int n, uint8_t *codes) {
    if (n == EACH) {
        const uchar4 four = *reinterpret_cast<const uchar4 *>(from);
        codes[0] = four.x, codes[1] = four.y, codes[2] = four.z, codes[3] = four.w;
    } else {
#pragma unroll
        for (int k = 0; k < EACH; k++) codes[k] = k < n ? from[k] : 0;
    }
}

static __device__ inline void store_codes(uint8_t *to, int n, const uint8_t *codes) {
    if (n == EACH) {
        *reinterpret_cast<uchar4 *>(to) = make_uchar4(codes[0], codes[1], codes[2], codes[3]);
    } else {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (k < n) to[k] = codes[k];
    }
}

static __device__ inline vec<EACH> load_some(const float *from, int n) {
    vec<EACH> v = {};
    if (n == EACH) {
        load(from, &v);
    } else {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (k < n) v.at[k] = from[k];
    }
    return v;
}

/* Stores n of a thread's weights, and their copies. */
static __device__ inline void store_some(float *to, uint16_t *copy, int n, const vec<EACH> &v) {
    if (n == EACH) {
        store(to, v);
        if (copy) store_halves(copy, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (k >= n) break;
        const vec<1> one = {{v.at[k]}};
        store(to + k, one);
        if (copy) store_halves(copy + k, one);
    }
}

/* Updates the block of codes that begins with element `at`. */
static __device__ inline void move_block(const nets_cuda_coded_update &update, int tensor, const adamw &rule,
                                         const nets_state_maps &maps, int64_t at, int *words) {
    const auto &t = update.tensors[tensor];
    const int64_t block = at / NETS_STATE_BLOCK;
    const int elems = (int)min((int64_t)NETS_STATE_BLOCK, t.elems - at);
    const float clip = update.clip ? *update.clip : 1, before[2] = {t.absmax[0][block], t.absmax[1][block]};
    float state[2][GROUPS][EACH];
    int most[2] = {0, 0};
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const int mine = EACH * ((int)threadIdx.x + THREADS * g), n = max(0, min(EACH, elems - mine));
        uint8_t codes[2][EACH];
        for (int s = 0; s < 2; s++) load_codes(t.codes[s] + at + mine, n, codes[s]);
        vec<EACH> w = load_some(t.weight + at + mine, n);
        const vec<EACH> gradient = load_some(t.gradient + at + mine, n);
        for (int k = 0; k < EACH; k++) {
            float both[2];
            for (int s = 0; s < 2; s++) both[s] = maps.of[s].value[codes[s][k]] * before[s];
            w.at[k] = rule.move(w.at[k], __fmul_rn(clip, gradient.at[k]), both);
            for (int s = 0; s < 2; s++) {
                state[s][g][k] = both[s];
                if (k < n) most[s] = max(most[s], __float_as_int(fabsf(both[s])));
            }
        }
        store_some(t.weight + at + mine, t.copy ? t.copy + at + mine : NULL, n, w);
    }
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const float absmax = largest_of_block(most[s], words);
        if (threadIdx.x == 0) t.absmax[s][block] = absmax;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            const int mine = EACH * ((int)threadIdx.x + THREADS * g), n = max(0, min(EACH, elems - mine));
            uint8_t codes[EACH];
            for (int k = 0; k < EACH; k++) codes[k] = nets_state_encode(maps.of[s].above, s, state[s][g][k], absmax);
            store_codes(t.codes[s] + at + mine, n, codes);
        }
    }
}

static __global__ void move_coded(nets_cuda_coded_update update) {
    __shared__ nets_state_maps maps;
    __shared__ int words[THREADS];
    const int tensor = tensor_of(update, blockIdx.x), thread = (int)threadIdx.x;
    const int64_t begin = (int64_t)(blockIdx.x - update.first_block[tensor]) * NETS_CUDA_CODED_CHUNK;
    const int64_t end = min(begin + NETS_CUDA_CODED_CHUNK, update.tensors[tensor].elems);
    if (update.halted && *update.halted) return;
    for (int s = 0; s < 2; s++) {
        maps.of[s].value[thread] = update.maps.of[s].value[thread];
        maps.of[s].above[thread] = update.maps.of[s].above[thread];
    }
    const adamw rule = adamw::of(update, tensor); /* synchronises */
    for (int64_t at = begin; at < end; at += NETS_STATE_BLOCK) move_block(update, tensor, rule, maps, at, words);
}

void nets_cuda_update_coded(const nets_cuda_coded_update *update, cudaStream_t stream) {
    MM_LAUNCH(move_coded, update->first_block[update->n], THREADS, 0, stream, *update);
}
