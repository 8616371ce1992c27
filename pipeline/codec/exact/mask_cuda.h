/* SPDX-License-Identifier: MIT */
/* The CUDA kernel of the mask codec, for C. */
#ifndef PIPELINE_CODEC_EXACT_MASK_CUDA_H
#define PIPELINE_CODEC_EXACT_MASK_CUDA_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues the encoding. infinity: mm_mask_infinity of the type (0 for f32). */
cudaError_t mm_mask_cuda_encode(cudaStream_t stream, int64_t elems, const void *src, uint16_t infinity, uint32_t *dst);

#ifdef __cplusplus
}
#endif

#endif
