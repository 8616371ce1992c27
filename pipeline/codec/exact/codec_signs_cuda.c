/* SPDX-License-Identifier: MIT */
/* The step of the signs codec on CUDA, with the same bits as on the host (codec_signs.c). */
#include "mm/device/cuda/device_cuda.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/exact/signs_cuda.h"

mm_status mm_signs_mend_cuda(mm_stream *stream, mm_dtype dtype, const void *mask, void *map, int64_t n) {
    return mm_cuda_check(mm_signs_cuda_mend(mm_cuda_stream(stream), mm_mask_infinity(dtype), mask, map, n),
                         "setting the signs of a decoded map");
}
