/* SPDX-License-Identifier: MIT */
/* What the signs codec needs on CUDA: the bits of codec_signs.c. */
#include "mm/device/cuda/device_cuda.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/exact/signs_cuda.h"

mm_status mm_signs_mend_cuda(mm_stream *stream, mm_dtype dtype, const void *mask, void *map, int64_t n) {
    return mm_cuda_check(mm_signs_cuda_mend(mm_cuda_stream(stream), mm_mask_infinity(dtype), mask, map, n),
                         "giving a decoded map its signs");
}
