/* The update step of all parameters: see nets/sgd.h. One launch; a block finds its tensor by bisection of the list, which
 * lies in the constant bank. */
#include "nets/cuda_vector.h"

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

template <int V> static __device__ inline void step(const nets_cuda_sgd &update, int tensor, float lr, int64_t i) {
    float *weight = update.tensors[tensor].weight + i, *momentum = update.tensors[tensor].momentum + i;
    vec<V> w, v, g;
    load(weight, &w);
    load(momentum, &v);
    load(update.tensors[tensor].gradient + i, &g);
    for (int k = 0; k < V; k++) {
        v.at[k] = update.keep * v.at[k] + (g.at[k] + update.decay * w.at[k]);
        w.at[k] -= lr * v.at[k];
    }
    store(momentum, v);
    store(weight, w);
}

static __global__ void sgd(nets_cuda_sgd update) {
    const int tensor = tensor_of(update, blockIdx.x);
    const int64_t elems = update.tensors[tensor].elems;
    const int64_t begin = (int64_t)(blockIdx.x - update.first_block[tensor]) * NETS_CUDA_SGD_CHUNK;
    const int64_t end = elems - begin < NETS_CUDA_SGD_CHUNK ? elems : begin + NETS_CUDA_SGD_CHUNK;
    const float lr = *update.lr;
    const int thread = (int)threadIdx.x;
    for (int64_t i = begin + 4 * thread; i + 4 <= end; i += 4 * THREADS) step<4>(update, tensor, lr, i);
    for (int64_t i = end / 4 * 4 + thread; i < end; i += THREADS) step<1>(update, tensor, lr, i);
    if (blockIdx.x == 0 && thread == 0 && update.rng && ++update.rng[2] == 0) update.rng[3]++;
}

void nets_cuda_sgd_update(const nets_cuda_sgd *update, cudaStream_t stream) {
    MM_LAUNCH(sgd, update->first_block[update->n], THREADS, 0, stream, *update);
}
