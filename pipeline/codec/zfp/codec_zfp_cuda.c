/* SPDX-License-Identifier: MIT */
/* zfp on CUDA, with the same bits as in codec_zfp.c. zfp_cuda_kernel.h describes the kernels. */
#include <stddef.h>

#include "mm/device/cuda/device_cuda.h"
#include "pipeline/codec/block/code_blocks.h"
#include "pipeline/codec/zfp/zfp_codec.h"
#include "pipeline/codec/zfp/zfp_cuda.h"

_Static_assert(sizeof(_Atomic int64_t) == sizeof(unsigned long long), "kernels count in it");
_Static_assert(offsetof(mm_codec_counters, nonfinite_blocks) == 0,
               "kernels of other layers count at mm_coded.counters");

/* Whether the kernels' integers can index a dimension: its whole extent, and the values of a block along it. */
static bool countable(int64_t extent, int64_t stride) {
    const int64_t others = extent < 4 ? extent - 1 : 3;
    int64_t far;
    return extent <= UINT32_MAX && !__builtin_mul_overflow(others, stride, &far) && far <= INT32_MAX;
}

/* The kernels' work for a shape. MM_ERR_UNSUPPORTED if their integers cannot index it: such maps exceed any GPU's
 * memory, except single fields with 2^29 elements or more in a row or plane. */
static mm_status work_of(const mm_codec *codec, const mm_shape *shape, mm_zfp_layout *layout_out,
                         mm_zfp_work *work_out) {
    MM_TRY(mm_zfp_codec_layout(codec, shape, layout_out));
    const mm_zfp_layout *l = layout_out;
    const int64_t images = l->blocks / (l->blocks_y * l->blocks_x * l->blocks_c);
    if (images > UINT32_MAX || !countable(l->columns, l->stride_x) || !countable(l->rows, l->stride_y) ||
        !countable(l->channels, l->stride_c))
        return mm_fail(
            MM_ERR_UNSUPPORTED,
            "codec %s on cuda cannot index %lld images of %lld rows of %lld columns of %lld channels, with strides of "
            "%lld, %lld and %lld elements: counts must be below 2^32, and three strides below 2^31",
            codec->spec, (long long)images, (long long)l->rows, (long long)l->columns, (long long)l->channels,
            (long long)l->stride_y, (long long)l->stride_x, (long long)l->stride_c);
    *work_out = (mm_zfp_work){
        .dims = l->dims,
        .maxbits = l->maxbits,
        .type = l->type,
        .columns = (uint32_t)l->columns,
        .rows = (uint32_t)l->rows,
        .channels = (uint32_t)l->channels,
        .stride_x = (uint32_t)l->stride_x,
        .stride_y = (uint32_t)l->stride_y,
        .stride_c = (uint32_t)l->stride_c,
        .image = (uint64_t)(l->columns * l->rows * l->channels),
        .channels_first = l->channels_first,
        .blocks_x = (uint32_t)l->blocks_x,
        .blocks_y = (uint32_t)l->blocks_y,
        .blocks_c = (uint32_t)l->blocks_c,
        .blocks = (uint64_t)l->blocks,
        .code_words = (uint64_t)l->code_bytes / 4,
        .multiprocessors = ((const mm_zfp_codec *)codec)->spec.sms,
    };
    return MM_OK;
}

static mm_status cuda_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    mm_zfp_layout layout;
    mm_zfp_work work;
    MM_TRY(work_of(codec, shape, &layout, &work));
    *bytes_out = layout.code_bytes;
    return MM_OK;
}

static mm_status cuda_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs;
    mm_zfp_layout layout;
    mm_zfp_work work;
    MM_TRY(work_of(codec, shape, &layout, &work));
    unsigned long long *nonfinite = counters ? (unsigned long long *)&counters->nonfinite_blocks : NULL;
    return mm_cuda_check(mm_zfp_cuda_encode(mm_cuda_stream(stream), work, src, dst, nonfinite), "zfp's encode");
}

static mm_status cuda_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs, (void)counters;
    mm_zfp_layout layout;
    mm_zfp_work work;
    MM_TRY(work_of(codec, shape, &layout, &work));
    return mm_cuda_check(mm_zfp_cuda_decode(mm_cuda_stream(stream), work, src, dst), "zfp's decode");
}

/* Kernels with blocks of code (code_blocks_cuda.h) need maps in NHWC and, if a code is not of whole words, the 32 codes
 * of a warp. */
static bool cuda_strips(mm_codec_strips *s) {
    const mm_zfp_spec *spec = &((const mm_zfp_codec *)s->codec)->spec;
    if (s->shape.rank != 4 || spec->channels_first || !mm_zfp_codec_strips(s)) return false;
    const bool whole_warps = s->shape.dims[3] % 32 == 0;
    s->strips.blocks = spec->maxbits == 64                   ? MM_BLOCKS_ZFP_4
                       : spec->maxbits == 128                ? MM_BLOCKS_ZFP_8
                       : spec->maxbits == 102 && whole_warps ? MM_BLOCKS_ZFP_6_4
                                                             : MM_BLOCKS_NONE;
    return s->strips.blocks != MM_BLOCKS_NONE;
}

const mm_codec_ops mm_codec_zfp_cuda_ops = {
    .name = "zfp",
    .summary = MM_ZFP_SUMMARY,
    .device = "cuda",
    .flags = {.fixed_size = true, .gives_value = true},
    .create = mm_zfp_codec_create,
    .destroy = mm_codec_free,
    .bound = cuda_bound,
    .scratch = mm_codec_no_scratch,
    .split = mm_zfp_codec_split,
    .encode = cuda_encode,
    .decode = cuda_decode,
    .strips = cuda_strips,
};
