// SPDX-License-Identifier: MIT
/* The update step of all parameters: see nets/optimizer.h. One launch; a block finds its tensor by bisection of the
 * list, which lies in the constant bank. */
#include "nets/cuda/kernels/update_list.h"

/* An optimizer's formula for one element of a tensor. `of` makes it from the update: each thread for itself or, if that
 * is expensive, one thread for its block. */
struct sgd {
    enum { STATES = 1 };
    float lr, keep, decay;

    static __device__ inline sgd of(const nets_cuda_update &update, int tensor) {
        const float decay = is_decayed(update, tensor) ? (float)update.optimizer.weight_decay : 0;
        return {*update.lr, (float)update.optimizer.momentum, decay};
    }
    __device__ float move(float w, float g, float *state) const {
        state[0] = keep * state[0] + (g + decay * w);
        return w - lr * state[0];
    }
};

struct plain_sgd {
    enum { STATES = 0 };
    float lr, decay;

    static __device__ inline plain_sgd of(const nets_cuda_update &update, int tensor) {
        return {*update.lr, is_decayed(update, tensor) ? (float)update.optimizer.weight_decay : 0};
    }
    __device__ float move(float w, float g, float *) const { return w - lr * (g + decay * w); }
};

/* One thread's vector of a tensor. */
template <class Rule, int V> struct moving {
    enum { ROOM = Rule::STATES > 0 ? Rule::STATES : 1 }; /* C++ has no array of size 0 */
    vec<V> w, g, state[ROOM];

    __device__ void start(const nets_cuda_update &update, int tensor, int64_t i) {
        load(update.tensors[tensor].weight + i, &w);
        for (int s = 0; s < Rule::STATES; s++) load(update.tensors[tensor].state[s] + i, &state[s]);
        load(update.tensors[tensor].gradient + i, &g);
    }
    __device__ void finish(const nets_cuda_update &update, int tensor, const Rule &rule, int64_t i) {
        const float clip = update.clip ? *update.clip : 1;
        for (int k = 0; k < V; k++) {
            float at[ROOM];
            for (int s = 0; s < Rule::STATES; s++) at[s] = state[s].at[k];
            w.at[k] = rule.move(w.at[k], __fmul_rn(clip, g.at[k]), at);
            for (int s = 0; s < Rule::STATES; s++) state[s].at[k] = at[s];
        }
        for (int s = 0; s < Rule::STATES; s++) store(update.tensors[tensor].state[s] + i, state[s]);
        store(update.tensors[tensor].weight + i, w);
        if (update.tensors[tensor].copy) store_halves(update.tensors[tensor].copy + i, w);
    }
};

template <int V, class Rule>
static __device__ inline void step(const nets_cuda_update &update, int tensor, const Rule &rule, int64_t i) {
    moving<Rule, V> m;
    m.start(update, tensor, i);
    m.finish(update, tensor, rule, i);
}

template <class Rule>
static __device__ inline void step_chunk(const nets_cuda_update &update, int tensor, const Rule &rule, int64_t mine) {
    moving<Rule, 4> m[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) m[k].start(update, tensor, mine + 4 * THREADS * k);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) m[k].finish(update, tensor, rule, mine + 4 * THREADS * k);
}

static_assert(NETS_CUDA_UPDATE_CHUNK == 4 * AT_ONCE * THREADS, "a block's threads do a chunk at once");

template <class Rule> static __global__ void move_weights(nets_cuda_update update) {
    const int tensor = tensor_of(update, blockIdx.x), thread = (int)threadIdx.x;
    const int64_t begin = (int64_t)(blockIdx.x - update.first_block[tensor]) * NETS_CUDA_UPDATE_CHUNK;
    const int64_t elems = update.tensors[tensor].elems, mine = begin + 4 * thread;
    if (blockIdx.x == 0 && thread == 0 && update.rng) update.rng[NETS_RNG_IMAGE] = 0;
    if (update.halted && *update.halted) return;
    const Rule rule = Rule::of(update, tensor);
    if (begin + NETS_CUDA_UPDATE_CHUNK <= elems) {
        step_chunk(update, tensor, rule, mine);
    } else {
        for (int64_t i = mine; i + 4 <= elems; i += 4 * THREADS) step<4>(update, tensor, rule, i);
        for (int64_t i = elems / 4 * 4 + thread; i < elems; i += THREADS) step<1>(update, tensor, rule, i);
    }
    if (blockIdx.x == 0 && thread == 0 && update.rng && ++update.rng[2] == 0) update.rng[3]++;
}

/* Counting is a launch of its own: when it runs, all blocks of earlier launches have read the old count. */
static __global__ void count_step(uint32_t *step, const uint32_t *halted) {
    if (!halted || !*halted) ++*step;
}

/* Halting is a launch of its own: no block may write *halted while blocks of an update read it. */
static __global__ void halt(nets_cuda_update update, const float *loss, float most, uint32_t *halted, uint32_t as) {
    const int tensor = tensor_of(update, blockIdx.x);
    const int64_t begin = (int64_t)(blockIdx.x - update.first_block[tensor]) * NETS_CUDA_UPDATE_CHUNK;
    const int64_t chunk = NETS_CUDA_UPDATE_CHUNK, rest = update.tensors[tensor].elems - begin;
    const int64_t n = rest < chunk ? rest : chunk; /* 0 if the update has no tensor */
    const float *gradient = update.tensors[tensor].gradient + begin;
    bool bad = blockIdx.x == 0 && threadIdx.x == 0 && loss && !isfinite(*loss);
    for (int64_t i = threadIdx.x; i < n; i += THREADS) bad |= !(fabsf(gradient[i]) <= most);
    if (bad) atomicCAS(halted, 0u, as);
}

/* The sum over a block's threads, in the first of them. */
static __device__ inline double sum_of_block(double mine) {
    __shared__ double all[THREADS];
    all[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
    }
    return all[0];
}

template <int V> static __device__ inline double squares_of(const vec<V> &v) {
    double sum = 0;
    for (int k = 0; k < V; k++) sum += (double)v.at[k] * (double)v.at[k];
    return sum;
}

static __device__ inline double squares_of_chunk(const float *gradient, int64_t elems) {
    const int thread = (int)threadIdx.x;
    double sum = 0;
    if (elems >= NETS_CUDA_UPDATE_CHUNK) {
        vec<4> g[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) load(gradient + 4 * (thread + THREADS * k), &g[k]);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) sum += squares_of(g[k]);
    } else {
        for (int64_t i = 4 * thread; i + 4 <= elems; i += 4 * THREADS) sum += squares_of(loaded<4>(gradient + i));
        for (int64_t i = elems / 4 * 4 + thread; i < elems; i += THREADS) sum += squares_of(loaded<1>(gradient + i));
    }
    return sum;
}

static __global__ void sum_squares(nets_cuda_update update, double *parts, bool adds) {
    double sum = 0;
    for (unsigned chunk = blockIdx.x; chunk < update.first_block[update.n]; chunk += gridDim.x) {
        const int tensor = tensor_of(update, chunk);
        const int64_t begin = (int64_t)(chunk - update.first_block[tensor]) * NETS_CUDA_UPDATE_CHUNK;
        sum += squares_of_chunk(update.tensors[tensor].gradient + begin, update.tensors[tensor].elems - begin);
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = adds ? parts[blockIdx.x] + sum : sum;
}

static __global__ void find_clip(const double *parts, int n, double clip_norm, float *clip) {
    double sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) sum += parts[i];
    sum = sum_of_block(sum);
    if (threadIdx.x) return;
    const double by = clip_norm / (sqrt(sum) + 1e-6);
    *clip = by < 1 ? (float)by : 1; /* 1 also if the sum is NaN: then gradients are NaN anyway */
}

void nets_cuda_update_squares(const nets_cuda_update *update, double *parts, int n, bool adds, cudaStream_t stream) {
    MM_LAUNCH(sum_squares, n, THREADS, 0, stream, *update, parts, adds);
}

void nets_cuda_update_clip(const double *parts, int n, double clip_norm, float *clip, cudaStream_t stream) {
    MM_LAUNCH(find_clip, 1, THREADS, 0, stream, parts, n, clip_norm, clip);
}

/* At least one, also if no tensor has an element: a block also looks at the loss, and counts. */
static uint32_t blocks_of(const nets_cuda_update *update) {
    const uint32_t blocks = update->first_block[update->n];
    return blocks > 0 ? blocks : 1;
}

void nets_cuda_update_halt(const nets_cuda_update *update, const float *loss, float most, uint32_t *halted, uint32_t as,
                           cudaStream_t stream) {
    MM_LAUNCH(halt, blocks_of(update), THREADS, 0, stream, *update, loss, most, halted, as);
}

void nets_cuda_update_sgd(const nets_cuda_update *update, cudaStream_t stream) {
    MM_LAUNCH(move_weights<sgd>, blocks_of(update), THREADS, 0, stream, *update);
}

void nets_cuda_update_plain_sgd(const nets_cuda_update *update, cudaStream_t stream) {
    MM_LAUNCH(move_weights<plain_sgd>, blocks_of(update), THREADS, 0, stream, *update);
}

void nets_cuda_update_adamw(const nets_cuda_update *update, cudaStream_t stream) {
    MM_LAUNCH(move_weights<adamw>, blocks_of(update), THREADS, 0, stream, *update);
}

void nets_cuda_update_count(uint32_t *step, const uint32_t *halted, cudaStream_t stream) {
    MM_LAUNCH(count_step, 1, 1, 0, stream, step, halted);
}

static __global__ void pass_on(uint32_t *rng, uint32_t images) { rng[NETS_RNG_IMAGE] += images; }

void nets_cuda_pass_on(uint32_t *rng, int64_t images, cudaStream_t stream) {
    MM_LAUNCH(pass_on, 1, 1, 0, stream, rng, (uint32_t)images);
}
