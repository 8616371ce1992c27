/* The update step of all parameters: see nets/sgd.h. One launch; a block finds its tensor by bisection of the list,
 * which lies in the constant bank. */
#include "nets/cuda/vector.h"

static __device__ inline int tensor_of(const nets_cuda_sgd &update, unsigned block) {
    int low = 0, high = update.n; /* first_block[low] <= block < first_block[high] */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (update.first_block[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* One thread's vector of a tensor. */
template <int V> struct moving {
    vec<V> w, v, g;

    __device__ void start(const nets_cuda_sgd &update, int tensor, int64_t i) {
        load(update.tensors[tensor].weight + i, &w);
        load(update.tensors[tensor].momentum + i, &v);
        load(update.tensors[tensor].gradient + i, &g);
    }
    __device__ void finish(const nets_cuda_sgd &update, int tensor, float lr, int64_t i) {
        for (int k = 0; k < V; k++) {
            v.at[k] = update.keep * v.at[k] + (g.at[k] + update.decay * w.at[k]);
            w.at[k] -= lr * v.at[k];
        }
        store(update.tensors[tensor].momentum + i, v);
        store(update.tensors[tensor].weight + i, w);
    }
};

template <int V> static __device__ inline void step(const nets_cuda_sgd &update, int tensor, float lr, int64_t i) {
    moving<V> m;
    m.start(update, tensor, i);
    m.finish(update, tensor, lr, i);
}

static __device__ inline void step_chunk(const nets_cuda_sgd &update, int tensor, float lr, int64_t mine) {
    moving<4> m[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) m[k].start(update, tensor, mine + 4 * THREADS * k);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) m[k].finish(update, tensor, lr, mine + 4 * THREADS * k);
}

static_assert(NETS_CUDA_SGD_CHUNK == 4 * AT_ONCE * THREADS, "a block's threads do a chunk at once");

static __global__ void sgd(nets_cuda_sgd update) {
    const int tensor = tensor_of(update, blockIdx.x), thread = (int)threadIdx.x;
    const int64_t begin = (int64_t)(blockIdx.x - update.first_block[tensor]) * NETS_CUDA_SGD_CHUNK;
    const int64_t elems = update.tensors[tensor].elems, mine = begin + 4 * thread;
    if (update.halted && *update.halted) return;
    const float lr = *update.lr;
    if (begin + NETS_CUDA_SGD_CHUNK <= elems) {
        step_chunk(update, tensor, lr, mine);
    } else {
        for (int64_t i = mine; i + 4 <= elems; i += 4 * THREADS) step<4>(update, tensor, lr, i);
        for (int64_t i = elems / 4 * 4 + thread; i < elems; i += THREADS) step<1>(update, tensor, lr, i);
    }
    if (blockIdx.x == 0 && thread == 0 && update.rng && ++update.rng[2] == 0) update.rng[3]++;
}

/* A launch of its own: while others update, nobody writes what they look at. */
static __global__ void halt(nets_cuda_sgd update, const float *loss, float most, uint32_t *halted) {
    const int tensor = tensor_of(update, blockIdx.x);
    const int64_t begin = (int64_t)(blockIdx.x - update.first_block[tensor]) * NETS_CUDA_SGD_CHUNK;
    const int64_t chunk = NETS_CUDA_SGD_CHUNK, rest = update.tensors[tensor].elems - begin;
    const int64_t n = rest < chunk ? rest : chunk;
    const float *gradient = update.tensors[tensor].gradient + begin;
    bool bad = blockIdx.x == 0 && threadIdx.x == 0 && !isfinite(*loss);
    for (int64_t i = threadIdx.x; i < n; i += THREADS) bad |= !(fabsf(gradient[i]) <= most);
    if (bad) atomicOr(halted, 1u);
}

void nets_cuda_sgd_halt(const nets_cuda_sgd *update, const float *loss, float most, uint32_t *halted,
                        cudaStream_t stream) {
    MM_LAUNCH(halt, update->first_block[update->n], THREADS, 0, stream, *update, loss, most, halted);
}

void nets_cuda_sgd_update(const nets_cuda_sgd *update, cudaStream_t stream) {
    MM_LAUNCH(sgd, update->first_block[update->n], THREADS, 0, stream, *update);
}
