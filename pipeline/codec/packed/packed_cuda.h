/* SPDX-License-Identifier: MIT */
/* Packed codecs on CUDA: the C interface of their kernels. */
#ifndef PIPELINE_CODEC_PACKED_PACKED_CUDA_H
#define PIPELINE_CODEC_PACKED_PACKED_CUDA_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "mm/mm_base.h"
#include "pipeline/codec/packed/packed_draw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue the encoding or decoding of `elems` elements of a type, in the format with that index, on at most `sms`
 * multiprocessors (0: all). Elements must be aligned to 16 bytes, codes to 8. *nonfinite, which the device can write,
 * is increased by the number of blocks that lost finite values because they also have infinities or NaNs; NULL: not
 * counted. draw: only for codecs that round at random. */
typedef cudaError_t (*mm_packed_cuda_encode_fn)(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                                const void *src, void *dst, const mm_packed_draw *draw,
                                                unsigned long long *nonfinite);
typedef cudaError_t (*mm_packed_cuda_decode_fn)(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                                const void *src, void *dst);

cudaError_t mm_dpr_cuda_encode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems, const void *src,
                               void *dst, const mm_packed_draw *draw, unsigned long long *nonfinite);
cudaError_t mm_dpr_cuda_decode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems, const void *src,
                               void *dst);
cudaError_t mm_mx_cuda_encode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems, const void *src,
                              void *dst, const mm_packed_draw *draw, unsigned long long *nonfinite);
cudaError_t mm_mx_cuda_decode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems, const void *src,
                              void *dst);
cudaError_t mm_group_cuda_encode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                 const void *src, void *dst, const mm_packed_draw *draw, unsigned long long *nonfinite);
cudaError_t mm_group_cuda_decode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                 const void *src, void *dst);

#ifdef __cplusplus
}
#endif

#endif
