/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/packed/packed_codec.h"

#include <stdio.h>
#include <string.h>

static const mm_packed_format *formats_of(const mm_codec_ops *ops) { return ((const mm_packed_formats *)ops->own)->at; }

const char *mm_packed_format_name(const mm_codec_ops *ops, size_t i) {
    const mm_packed_format *formats = formats_of(ops);
    for (size_t f = 0; f < i; f++)
        if (!formats[f].name) return NULL;
    return formats[i].name;
}

/* A numeric parameter. */
typedef struct parameter {
    const char *name, *of;
    int least, most;
    int *value; /* -1: not given yet */
} parameter;

/* Indices of parameters. SEED: only for codecs that round at random. */
enum { SMS, SEED, PARAMETERS };

static mm_status fail_format(const mm_codec_ops *ops, const char *params) {
    char names[64] = "";
    size_t used = 0;
    for (const mm_packed_format *f = formats_of(ops); f->name && used < sizeof names; f++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", f->name);
    return mm_fail(MM_ERR_INVALID, "codec %s: unknown format '%s'; there are %s, %s", ops->name, params, names,
                   ops->flags.reads_iteration ? "sms= and seed=" : "and sms=");
}

static mm_status parse_number(const mm_codec_ops *ops, const char *params, const char *text, size_t length,
                              const parameter *of) {
    int64_t number = 0;
    const size_t digits = strspn(text, "0123456789"), most = (size_t)snprintf(NULL, 0, "%d", of->most);
    for (size_t i = 0; i < digits && i < most; i++) number = 10 * number + (text[i] - '0');
    if (digits != length || digits == 0 || digits > most || number < of->least || number > of->most)
        return mm_fail(MM_ERR_INVALID, "codec %s: '%s': %s is a number%s, from %d to %d", ops->name, params, of->name,
                       of->of, of->least, of->most);
    *of->value = (int)number;
    return MM_OK;
}

/* The parameter that the text begins with; NULL: the text is a format. */
static const parameter *find(const parameter *parameters, int n, const char *text) {
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(parameters[i].name);
        if (strncmp(text, parameters[i].name, length) == 0 && text[length] == '=') return &parameters[i];
    }
    return NULL;
}

/* Parses parameters, separated by ':' or ','. */
static mm_status parse(const mm_codec_ops *ops, const char *params, int *format, const parameter *parameters) {
    const int n = ops->flags.reads_iteration ? PARAMETERS : SEED;
    for (const char *text = params; *params;) {
        const size_t length = strcspn(text, ",:");
        const parameter *number = find(parameters, n, text);
        if (*(number ? number->value : format) >= 0)
            return mm_fail(MM_ERR_INVALID, "codec %s: '%s': %s is given twice: give it once", ops->name, params,
                           number ? number->name : "the format");
        const size_t skip = number ? strlen(number->name) + 1 : 0;
        if (number) MM_TRY(parse_number(ops, params, text + skip, length - skip, number));
        const mm_packed_format *f = formats_of(ops);
        while (!number && f->name && (strlen(f->name) != length || strncmp(f->name, text, length) != 0)) f++;
        if (!f->name) return fail_format(ops, params);
        if (!number) *format = (int)(f - formats_of(ops));
        if (!text[length]) break;
        text += length + 1;
    }
    if (*format < 0) *format = 0;
    return MM_OK;
}

mm_status mm_packed_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    int format = -1, sms = -1, seed = -1;
    const parameter parameters[PARAMETERS] = {
        [SMS] = {"sms", " of multiprocessors", 1, 1 << 16, &sms}, [SEED] = {"seed", "", 0, INT32_MAX, &seed}};
    MM_TRY(parse(ops, params, &format, parameters));
    mm_codec *base;
    MM_TRY(mm_codec_new(ops, sizeof(mm_packed_codec), &base));
    mm_packed_codec *codec = (mm_packed_codec *)base;
    codec->format = format;
    codec->sms = sms > 0 ? sms : 0;
    codec->seed = seed > 0 ? seed : 0;
    int used = snprintf(codec->base.spec, sizeof codec->base.spec, "%s:%s", ops->name, formats_of(ops)[format].name);
    for (int i = 0; i < PARAMETERS; i++)
        if (*parameters[i].value > 0)
            used += snprintf(codec->base.spec + used, sizeof codec->base.spec - (size_t)used, ",%s=%d",
                             parameters[i].name, *parameters[i].value);
    *codec_out = base;
    return MM_OK;
}

mm_status mm_packed_layout_of(const mm_codec *codec, const mm_shape *shape, mm_packed_layout *layout_out) {
    const mm_packed_codec *packed = (const mm_packed_codec *)codec;
    mm_packed_layout layout = {
        .format = formats_of(codec->ops)[packed->format], .number = packed->format, .sms = packed->sms};
    MM_TRY(mm_float_elems(codec->spec, shape, &layout.elems));
    layout.type = shape->dtype;
    layout.groups = (layout.elems + layout.format.group_elems - 1) / layout.format.group_elems;
    *layout_out = layout;
    return MM_OK;
}

mm_packed_draw mm_packed_draw_of(const mm_codec *codec, const mm_code_inputs *inputs) {
    mm_packed_draw draw = {.seed = (uint32_t)((const mm_packed_codec *)codec)->seed};
    if (!inputs) return draw;
    draw.tensor = (uint32_t)inputs->tensor;
    draw.iteration = inputs->iteration;
    draw.first = inputs->first;
    return draw;
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

enum { STRIP_ELEMS = 2048 }; /* approximate; 8 KiB: a quarter of a first-level cache */

mm_strips mm_packed_strips(const mm_packed_layout *layout) {
    const int64_t group = layout->format.group_elems, groups = group < STRIP_ELEMS ? STRIP_ELEMS / group : 1;
    return (mm_strips){.elems = layout->elems,
                       .period_elems = layout->elems,
                       .strip_elems = groups * group,
                       .strip_bytes = groups * layout->format.group_bytes};
}
