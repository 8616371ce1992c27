#include "pipeline/codec/packed_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/dtype.h"

static const mm_packed_format *formats_of(const mm_codec_ops *ops) { return ((const mm_packed_formats *)ops->own)->at; }

const char *mm_packed_format_name(const mm_codec_ops *ops, size_t i) {
    const mm_packed_format *formats = formats_of(ops);
    for (size_t f = 0; f < i; f++)
        if (!formats[f].name) return NULL;
    return formats[i].name;
}

static mm_status fail_format(const mm_codec_ops *ops, const char *params) {
    char names[64] = "";
    size_t used = 0;
    for (const mm_packed_format *f = formats_of(ops); f->name && used < sizeof names; f++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", f->name);
    return mm_fail(MM_ERR_INVALID, "codec %s: unknown format '%s'; there are %s", ops->name, params, names);
}

mm_status mm_packed_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    const mm_packed_format *formats = formats_of(ops);
    int format = 0;
    while (*params && formats[format].name && strcmp(formats[format].name, params) != 0) format++;
    if (!formats[format].name) return fail_format(ops, params);
    mm_packed_codec *codec = calloc(1, sizeof *codec);
    if (!codec) return mm_fail(MM_ERR_NOMEM, "codec %s: %zu bytes", ops->name, sizeof *codec);
    codec->base.ops = ops;
    codec->format = format;
    snprintf(codec->base.spec, sizeof codec->base.spec, "%s:%s", ops->name, formats[format].name);
    *codec_out = &codec->base;
    return MM_OK;
}

mm_status mm_packed_layout_of(const mm_codec *codec, const mm_shape *shape, mm_packed_layout *layout_out) {
    mm_packed_layout layout = {.format = formats_of(codec->ops)[((const mm_packed_codec *)codec)->format]};
    MM_TRY(mm_shape_elems(shape, &layout.elems));
    if (shape->dtype != MM_F32)
        return mm_fail(MM_ERR_UNSUPPORTED, "codec %s takes f32 only, not %s", codec->spec, mm_dtype_name(shape->dtype));
    layout.groups = (layout.elems + layout.format.group_elems - 1) / layout.format.group_elems;
    *layout_out = layout;
    return MM_OK;
}

mm_status mm_packed_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    mm_packed_layout layout;
    MM_TRY(mm_packed_layout_of(codec, shape, &layout));
    *bytes_out = layout.groups * layout.format.group_bytes;
    return MM_OK;
}

int64_t mm_packed_split(const mm_codec *codec, const mm_shape *shape) {
    mm_packed_layout layout;
    if (mm_packed_layout_of(codec, shape, &layout) != MM_OK) return 0;
    return mm_split_rows(shape, (uint64_t)(layout.elems / shape->dims[0]), (uint64_t)layout.format.group_elems);
}
