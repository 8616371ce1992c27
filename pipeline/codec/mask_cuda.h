/* The kernel of the mask codec on CUDA, as C sees it. */
#ifndef PIPELINE_CODEC_MASK_CUDA_H
#define PIPELINE_CODEC_MASK_CUDA_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues. infinity: of elements of 16 bits, mm_mask_infinity; 0: they are floats of 32. */
cudaError_t mm_mask_cuda_encode(cudaStream_t stream, int64_t elems, const void *src, uint16_t infinity, uint32_t *dst);

#ifdef __cplusplus
}
#endif

#endif
