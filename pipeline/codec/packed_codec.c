#include "pipeline/codec/packed_codec.h"

#include <stdio.h>
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
    return mm_fail(MM_ERR_INVALID, "codec %s: unknown format '%s'; there are %s, and sms=", ops->name, params, names);
}

/* "sms=N". */
static mm_status parse_sms(const mm_codec_ops *ops, const char *params, const char *text, size_t length, int *sms_out) {
    enum { DIGITS = 5, MOST = 1 << 16 };
    int64_t number = 0;
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < digits && i < DIGITS; i++) number = 10 * number + (text[i] - '0');
    if (digits != length || digits > DIGITS || number < 1 || number > MOST)
        return mm_fail(MM_ERR_INVALID, "codec %s: '%s': sms is a number of multiprocessors, from 1 to %d", ops->name,
                       params, MOST);
    *sms_out = (int)number;
    return MM_OK;
}

/* One after the other, separated by ':' or ','. -1, 0: not given yet. */
static mm_status parse(const mm_codec_ops *ops, const char *params, int *format, int *sms) {
    static const char key[] = "sms=";
    for (const char *text = params; *params;) {
        const size_t length = strcspn(text, ",:"), skip = sizeof key - 1;
        const bool is_sms = strncmp(text, key, skip) == 0;
        if (is_sms ? *sms > 0 : *format >= 0)
            return mm_fail(MM_ERR_INVALID, "codec %s: '%s': %s is given twice: give it once", ops->name, params,
                           is_sms ? "sms" : "the format");
        if (is_sms) MM_TRY(parse_sms(ops, params, text + skip, length - skip, sms));
        const mm_packed_format *f = formats_of(ops);
        while (!is_sms && f->name && (strlen(f->name) != length || strncmp(f->name, text, length) != 0)) f++;
        if (!f->name) return fail_format(ops, params);
        if (!is_sms) *format = (int)(f - formats_of(ops));
        if (!text[length]) break;
        text += length + 1;
    }
    if (*format < 0) *format = 0;
    return MM_OK;
}

mm_status mm_packed_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    int format = -1, sms = 0;
    MM_TRY(parse(ops, params, &format, &sms));
    mm_codec *base;
    MM_TRY(mm_codec_new(ops, sizeof(mm_packed_codec), &base));
    mm_packed_codec *codec = (mm_packed_codec *)base;
    codec->format = format;
    codec->sms = sms;
    int used = snprintf(codec->base.spec, sizeof codec->base.spec, "%s:%s", ops->name, formats_of(ops)[format].name);
    if (sms > 0) snprintf(codec->base.spec + used, sizeof codec->base.spec - (size_t)used, ",sms=%d", sms);
    *codec_out = base;
    return MM_OK;
}

mm_status mm_packed_layout_of(const mm_codec *codec, const mm_shape *shape, mm_packed_layout *layout_out) {
    const mm_packed_codec *packed = (const mm_packed_codec *)codec;
    mm_packed_layout layout = {
        .format = formats_of(codec->ops)[packed->format], .number = packed->format, .sms = packed->sms};
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
