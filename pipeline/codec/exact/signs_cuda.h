/* SPDX-License-Identifier: MIT */
/* The CUDA kernel of the signs codec, for C. */
#ifndef PIPELINE_CODEC_EXACT_SIGNS_CUDA_H
#define PIPELINE_CODEC_EXACT_SIGNS_CUDA_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues mm_signs_value of the n elements of a decoded map. infinity: mm_mask_infinity of the type (0 for f32). */
cudaError_t mm_signs_cuda_mend(cudaStream_t stream, uint16_t infinity, const uint32_t *mask, void *map, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
