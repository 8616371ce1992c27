/* SPDX-License-Identifier: MIT */
/* Packed codecs on CUDA, with the same bits as in codec_dpr.c, codec_mx.c and codec_group.c. */
#include "mm/device/cuda/device_cuda.h"
#include "pipeline/codec/block/code_blocks.h"
#include "pipeline/codec/block/dpr_value.h"
#include "pipeline/codec/packed/group_code.h"
#include "pipeline/codec/packed/mx_block.h"
#include "pipeline/codec/packed/packed_codec.h"
#include "pipeline/codec/packed/packed_cuda.h"

_Static_assert(sizeof(_Atomic int64_t) == sizeof(unsigned long long), "kernels count in it");

/* mm_codec_ops.own. */
typedef struct packed_cuda {
    mm_packed_formats formats;
    mm_packed_cuda_encode_fn encode;
    mm_packed_cuda_decode_fn decode;
} packed_cuda;

static mm_status cuda_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch;
    const packed_cuda *own = codec->ops->own;
    const mm_packed_draw draw = mm_packed_draw_of(codec, inputs);
    mm_packed_layout layout;
    MM_TRY(mm_packed_layout_of(codec, shape, &layout));
    unsigned long long *nonfinite = counters ? (unsigned long long *)&counters->nonfinite_blocks : NULL;
    return mm_cuda_check(own->encode(mm_cuda_stream(stream), layout.number, layout.sms, layout.type, layout.elems, src,
                                     dst, &draw, nonfinite),
                         "a packed codec's encode");
}

static mm_status cuda_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs, (void)counters;
    const packed_cuda *own = codec->ops->own;
    mm_packed_layout layout;
    MM_TRY(mm_packed_layout_of(codec, shape, &layout));
    return mm_cuda_check(
        own->decode(mm_cuda_stream(stream), layout.number, layout.sms, layout.type, layout.elems, src, dst),
        "a packed codec's decode");
}

/* Kernels with blocks of code (code_blocks_cuda.h) need neighbouring channels in one word, and whole groups. */
static bool dpr_strips(mm_codec_strips *s) {
    static const mm_code_blocks of_formats[] = {MM_BLOCKS_DPR_FP16, MM_BLOCKS_NONE, MM_BLOCKS_DPR_FP8};
    mm_packed_layout layout;
    if (s->shape.rank != 4 || mm_packed_layout_of(s->codec, &s->shape, &layout) != MM_OK) return false;
    const int64_t of_word = layout.format.group_elems / MM_DPR_GROUP_WORDS;
    if (s->shape.dims[3] % of_word != 0 || layout.elems % layout.format.group_elems != 0) return false;
    s->strips = mm_packed_strips(&layout);
    s->strips.blocks = of_formats[layout.number];
    return s->strips.blocks != MM_BLOCKS_NONE;
}

static const packed_cuda dpr_cuda = {{{MM_DPR_FORMATS(MM_DPR_PACKED)}}, mm_dpr_cuda_encode, mm_dpr_cuda_decode};
const mm_codec_ops mm_codec_dpr_cuda_ops =
    MM_PACKED_OPS("dpr", MM_DPR_SUMMARY, "cuda", &dpr_cuda, false, cuda_encode, cuda_decode, dpr_strips);

static const packed_cuda mx_cuda = {{{MM_MX_FORMATS(MM_MX_PACKED)}}, mm_mx_cuda_encode, mm_mx_cuda_decode};
const mm_codec_ops mm_codec_mx_cuda_ops =
    MM_PACKED_OPS("mx", MM_MX_SUMMARY, "cuda", &mx_cuda, false, cuda_encode, cuda_decode, NULL);

static const packed_cuda group_cuda = {
    {{MM_GROUP_FORMATS(MM_GROUP_PACKED)}}, mm_group_cuda_encode, mm_group_cuda_decode};
const mm_codec_ops mm_codec_group_cuda_ops =
    MM_PACKED_OPS("group", MM_GROUP_SUMMARY, "cuda", &group_cuda, true, cuda_encode, cuda_decode, NULL);
