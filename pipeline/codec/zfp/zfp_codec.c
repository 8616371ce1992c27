/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/zfp/zfp_codec.h"

#include <stdio.h>

mm_status mm_zfp_codec_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    mm_zfp_spec spec;
    MM_TRY(mm_zfp_spec_parse(params, &spec));
    mm_codec *base;
    MM_TRY(mm_codec_new(ops, sizeof(mm_zfp_codec), &base));
    ((mm_zfp_codec *)base)->spec = spec;
    snprintf(base->spec, sizeof base->spec, "zfp:%s", spec.canonical);
    *codec_out = base;
    return MM_OK;
}

mm_status mm_zfp_codec_layout(const mm_codec *codec, const mm_shape *shape, mm_zfp_layout *layout_out) {
    const mm_zfp_spec *spec = &((const mm_zfp_codec *)codec)->spec;
    return mm_zfp_layout_make(shape, spec->dims, spec->channels_first, spec->maxbits, layout_out);
}

mm_status mm_zfp_codec_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    mm_zfp_layout layout;
    MM_TRY(mm_zfp_codec_layout(codec, shape, &layout));
    *bytes_out = layout.code_bytes;
    return MM_OK;
}

/* Only codes of tensors of rank 4 can be split: a tensor of lower rank is one field, whose blocks span rows. */
int64_t mm_zfp_codec_split(const mm_codec *codec, const mm_shape *shape) {
    mm_zfp_layout layout;
    if (shape->rank != 4 || mm_zfp_codec_layout(codec, shape, &layout) != MM_OK) return 0;
    return mm_split_rows(shape, (uint64_t)(layout.blocks / shape->dims[0]) * (uint64_t)layout.maxbits, 64);
}

bool mm_zfp_codec_strips(mm_codec_strips *s) {
    mm_zfp_layout layout;
    if (mm_zfp_codec_layout(s->codec, &s->shape, &layout) != MM_OK || layout.dims != 2 || layout.channels_first)
        return false;
    const int64_t bits = layout.blocks_x * layout.blocks_c * layout.maxbits, row = layout.columns * layout.channels;
    if (bits % 64 != 0) return false;
    s->strips = (mm_strips){.elems = s->strips.elems,
                            .period_elems = layout.rows * row,
                            .strip_elems = (layout.rows < MM_ZFP_SIDE ? layout.rows : MM_ZFP_SIDE) * row,
                            .strip_bytes = bits / 8};
    return true;
}
