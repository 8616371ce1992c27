/* The kernels of the zfp codec on CUDA, as C sees them: zfp_cuda_encode.cu, zfp_cuda_decode.cu. */
#ifndef PIPELINE_CODEC_ZFP_CUDA_H
#define PIPELINE_CODEC_ZFP_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

/* An mm_zfp_layout, in the widths that kernels count in: whatever is counted along one dimension in 32 bits, 3 rows of an
 * image in 31, blocks and code in 64. */
typedef struct mm_zfp_work {
    int dims, maxbits;
    uint32_t columns, rows, channels;
    uint32_t blocks_x, blocks_y, blocks_c;
    uint64_t blocks, code_words /* of 32 bits */;
    int multiprocessors; /* whose threads it may take, at most; 0: all */
    /* the launchers' own: how far a thread's next block is, in blocks of each dimension */
    uint32_t step_n, step_y, step_x, step_c;
    bool vectors; /* values are loaded and stored four at once */
    bool words;   /* so are codes, each by its own thread: they are 1, 2 or 4 whole words */
} mm_zfp_work;

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue. Blocks that are not finite are added to *nonfinite, memory that the device reaches, unless NULL: the only atomic
 * operation, and only of warps that saw one. */
cudaError_t mm_zfp_cuda_encode(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                               unsigned long long *nonfinite);
cudaError_t mm_zfp_cuda_decode(cudaStream_t stream, mm_zfp_work work, const uint32_t *src, float *dst);

#ifdef __cplusplus
}
#endif

#endif
