/* Packed codecs on CUDA: their kernels, as C sees them, and what runs them. */
#ifndef PIPELINE_CODEC_PACKED_CUDA_H
#define PIPELINE_CODEC_PACKED_CUDA_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue all groups of `elems` floats in that format, by its number, on at most `sms` multiprocessors (0: all). src and
 * dst: aligned to 16 and 8 bytes, or 8 and 16. Blocks of which infinities or NaNs took the finite values are added to *nonfinite, memory that the device reaches,
 * unless NULL. */
typedef cudaError_t (*mm_packed_cuda_encode_fn)(cudaStream_t stream, int format, int sms, int64_t elems,
                                                const float *src, void *dst, unsigned long long *nonfinite);
typedef cudaError_t (*mm_packed_cuda_decode_fn)(cudaStream_t stream, int format, int sms, int64_t elems,
                                                const void *src, float *dst);

cudaError_t mm_dpr_cuda_encode(cudaStream_t stream, int format, int sms, int64_t elems, const float *src, void *dst,
                               unsigned long long *nonfinite);
cudaError_t mm_dpr_cuda_decode(cudaStream_t stream, int format, int sms, int64_t elems, const void *src, float *dst);
cudaError_t mm_mx_cuda_encode(cudaStream_t stream, int format, int sms, int64_t elems, const float *src, void *dst,
                              unsigned long long *nonfinite);
cudaError_t mm_mx_cuda_decode(cudaStream_t stream, int format, int sms, int64_t elems, const void *src, float *dst);

#ifdef __cplusplus
}
#endif

#endif
