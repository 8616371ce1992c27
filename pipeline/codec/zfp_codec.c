#include "pipeline/codec/zfp_codec.h"

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

/* A tensor of lower rank is one field, and its blocks span rows. */
int64_t mm_zfp_codec_split(const mm_codec *codec, const mm_shape *shape) {
    mm_zfp_layout layout;
    if (shape->rank != 4 || mm_zfp_codec_layout(codec, shape, &layout) != MM_OK) return 0;
    return mm_split_rows(shape, (uint64_t)(layout.blocks / shape->dims[0]) * (uint64_t)layout.maxbits, 64);
}
