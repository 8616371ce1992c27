/* SPDX-License-Identifier: MIT */
/* The CUDA kernels of the zfp codec, for C: zfp_cuda_encode.cu, zfp_cuda_decode.cu. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_CUDA_H
#define PIPELINE_CODEC_ZFP_ZFP_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "mm/mm_base.h"

/* The dimension along which a thread loads and stores four values at once, as a float4. */
typedef enum mm_zfp_vectors { MM_ZFP_VECTORS_NONE, MM_ZFP_VECTORS_X, MM_ZFP_VECTORS_C } mm_zfp_vectors;

/* An mm_zfp_layout in the integer widths of the kernels: numbers that count along one dimension have 32 bits (in an
 * image, 4 strides along a dimension fit in 31 bits); numbers that count images, blocks or words of code have 64. */
typedef struct mm_zfp_work {
    int dims, maxbits;
    mm_dtype type; /* type of the map's elements; kernels get a float pointer */
    uint32_t columns, rows, channels;
    uint32_t stride_x, stride_y, stride_c; /* undefined for an extent of 1 */
    uint64_t image;                        /* elements of an image */
    uint32_t blocks_x, blocks_y, blocks_c;
    uint64_t blocks, code_words /* of 32 bits */;
    bool channels_first;
    int multiprocessors; /* most multiprocessors to use; 0: all */
    /* set by the launchers: */
    uint32_t step_y, step_x, step_c;    /* distance to a thread's next block: in blocks along each dimension, */
    uint64_t step_first;                /* in elements, */
    uint64_t carry_x, carry_y, carry_c; /* and in elements to add when a dimension wraps */
    uint32_t step_code, step_bit;       /* distance to a lane's next word of its warp's code: in codes and bits */
    mm_zfp_vectors vectors;
    bool whole; /* no block is partial */
    bool words; /* a block's code is 1, 2 or 4 whole words, which the block's own thread loads and stores */
} mm_zfp_work;

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue the kernels. *nonfinite, in memory that the device reaches, is increased by the number of blocks that are not
 * finite, with one atomic operation for each warp that has any; NULL: not counted. */
cudaError_t mm_zfp_cuda_encode(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                               unsigned long long *nonfinite);
cudaError_t mm_zfp_cuda_decode(cudaStream_t stream, mm_zfp_work work, const uint32_t *src, float *dst);

#ifdef __cplusplus
}
#endif

#endif
