/* SPDX-License-Identifier: MIT */
/* mask on CUDA, with the same bits as in codec_mask.c. */
#include "mm/device/cuda/device_cuda.h"
#include "pipeline/codec/block/code_blocks.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/exact/mask_cuda.h"

static mm_status cuda_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs, (void)counters;
    int64_t elems;
    MM_TRY(mm_float_elems(codec->spec, shape, &elems));
    return mm_cuda_check(mm_mask_cuda_encode(mm_cuda_stream(stream), elems, src, mm_mask_infinity(shape->dtype), dst),
                         "mask's encode");
}

static bool cuda_strips(mm_codec_strips *s) {
    s->strips = mm_mask_strips(s->strips.elems);
    s->strips.blocks = MM_BLOCKS_MASK;
    return true;
}

const mm_codec_ops mm_codec_mask_cuda_ops = {
    .name = "mask",
    .summary = MM_MASK_SUMMARY,
    .device = "cuda",
    .flags = {.lossless = true, .fixed_size = true, .gives_sign = true},
    .create = mm_codec_new_plain,
    .destroy = mm_codec_free,
    .bound = mm_mask_bound,
    .scratch = mm_codec_no_scratch,
    .split = mm_mask_split,
    .encode = cuda_encode,
    .strips = cuda_strips,
};
