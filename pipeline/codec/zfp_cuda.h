/* The kernels of the zfp codec on CUDA, as C sees them: zfp_cuda_encode.cu, zfp_cuda_decode.cu. */
#ifndef PIPELINE_CODEC_ZFP_CUDA_H
#define PIPELINE_CODEC_ZFP_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

/* Which values a thread loads and stores at once, as a float4. */
typedef enum mm_zfp_vectors { MM_ZFP_VECTORS_NONE, MM_ZFP_VECTORS_X, MM_ZFP_VECTORS_C } mm_zfp_vectors;

/* An mm_zfp_layout, in the widths that kernels count in: whatever is counted along one dimension in 32 bits, 4 along a
 * dimension of an image in 31, images, blocks and code in 64. */
typedef struct mm_zfp_work {
    int dims, maxbits;
    uint32_t columns, rows, channels;
    uint32_t stride_x, stride_y, stride_c; /* anything for an extent of 1 */
    uint64_t image;                        /* elements */
    uint32_t blocks_x, blocks_y, blocks_c;
    uint64_t blocks, code_words /* of 32 bits */;
    bool channels_first;
    int multiprocessors; /* whose threads it may take, at most; 0: all */
    /* the launchers' own */
    uint32_t step_n, step_y, step_x, step_c; /* how far a thread's next block is, in blocks of each dimension */
    uint32_t step_code, step_bit;            /* and a lane's next word of its warp's code, in codes and then bits */
    mm_zfp_vectors vectors;
    bool whole; /* no block is partial */
    bool words; /* codes are loaded and stored each by its own thread: they are 1, 2 or 4 whole words */
} mm_zfp_work;

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue. Blocks that are not finite are added to *nonfinite, memory that the device reaches, unless NULL: the only
 * atomic operation, and only of warps that saw one. */
cudaError_t mm_zfp_cuda_encode(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                               unsigned long long *nonfinite);
cudaError_t mm_zfp_cuda_decode(cudaStream_t stream, mm_zfp_work work, const uint32_t *src, float *dst);

#ifdef __cplusplus
}
#endif

#endif
