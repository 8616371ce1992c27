/* SPDX-License-Identifier: MIT */
/* Shared by the kernels that update lists of tensors (cuda_kernels.h): which tensor a block has, and AdamW. C++. */
#ifndef NETS_CUDA_KERNELS_UPDATE_LIST_H
#define NETS_CUDA_KERNELS_UPDATE_LIST_H

#include "nets/cuda/kernels/vector.h"

#define NETS_ADAMW_FUNCTION static __device__ inline
#include "nets/adamw.h"

template <class List> static __device__ inline int tensor_of(const List &update, unsigned block) {
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

template <class List> static __device__ inline bool is_decayed(const List &update, int tensor) {
    return update.decayed[tensor / 32] >> tensor % 32 & 1;
}

/* One thread computes the constants for its block. */
struct adamw {
    enum { STATES = 2 };
    nets_adamw_factors f;

    template <class List> static __device__ inline adamw of(const List &update, int tensor) {
        __shared__ nets_adamw_factors all;
        if (threadIdx.x == 0) {
            all = nets_adamw_factors_at(&update.optimizer, *update.step + 1, *update.lr);
            if (!is_decayed(update, tensor)) all.decay = 0;
        }
        __syncthreads();
        return {all};
    }
    __device__ float move(float w, float g, float *state) const {
        return nets_adamw_move(f, w, g, &state[0], &state[1]);
    }
};

static __device__ inline void store_halves(uint16_t *to, const vec<1> &v) {
    *to = nets_bf16_of(__float_as_uint(v.at[0]));
}
static __device__ inline void store_halves(uint16_t *to, const vec<4> &v) {
    uint32_t bits[4];
    for (int k = 0; k < 4; k++) bits[k] = nets_bf16_of(__float_as_uint(v.at[k]));
    *reinterpret_cast<uint2 *>(to) = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

#endif
