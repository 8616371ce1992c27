/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/codec_impl.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/nearest.h"

static mm_status fail_unknown(const char *spec, const char *kind) {
    char names[256] = "";
    size_t used = 0;
    mm_nearest near = {.text = spec, .length = strcspn(spec, ":")};
    for (size_t i = 0; mm_codec_table(i); i++) {
        if (strcmp(mm_codec_table(i)->device, kind) != 0) continue;
        mm_nearest_try(&near, mm_codec_table(i)->name);
        int n = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", mm_codec_table(i)->name);
        if (n < 0 || (size_t)n >= sizeof names - used) break;
        used += (size_t)n;
    }
    return mm_fail(MM_ERR_NOT_FOUND, "no codec '%s' for device '%s'%s: there are %s", spec, kind,
                   MM_DID_YOU_MEAN(&near), used ? names : "none");
}

mm_status mm_codec_create(const char *spec, const char *device, mm_codec **codec_out) {
    const size_t name_length = strcspn(spec, ":");
    const mm_device_ops *kind;
    int ordinal;
    MM_TRY(mm_device_find(device, &kind, &ordinal));
    for (size_t i = 0; mm_codec_table(i); i++) {
        const mm_codec_ops *ops = mm_codec_table(i);
        if (strcmp(ops->device, kind->name) != 0) continue;
        if (strlen(ops->name) != name_length || strncmp(ops->name, spec, name_length) != 0) continue;
        return ops->create(ops, spec[name_length] ? spec + name_length + 1 : "", codec_out);
    }
    return fail_unknown(spec, kind->name);
}

const char *mm_codec_format(const mm_codec_ops *ops, size_t i) {
    if (ops->format) return ops->format(ops, i);
    return i == 0 ? "" : NULL;
}

void mm_codec_destroy(mm_codec *codec) {
    if (codec) codec->ops->destroy(codec);
}

mm_status mm_codec_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    return codec->ops->bound(codec, shape, bytes_out);
}

mm_status mm_codec_body_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    if (codec->ops->body_bound) return codec->ops->body_bound(codec, shape, bytes_out);
    int64_t bytes;
    MM_TRY(mm_codec_bound(codec, shape, &bytes));
    *bytes_out = 0;
    return MM_OK;
}

mm_status mm_codec_body_nominal(const mm_codec *codec, const mm_shape *shape, mm_body_nominal *nominal_out) {
    if (codec->ops->body_nominal) return codec->ops->body_nominal(codec, shape, nominal_out);
    int64_t bytes;
    MM_TRY(mm_codec_bound(codec, shape, &bytes));
    *nominal_out = (mm_body_nominal){0};
    return MM_OK;
}

int64_t mm_codec_scratch(const mm_codec *codec, const mm_shape *shape) { return codec->ops->scratch(codec, shape); }

int64_t mm_codec_split(const mm_codec *codec, const mm_shape *shape) {
    int64_t elems;
    if (!codec->ops->split || mm_shape_elems(shape, &elems) != MM_OK) return 0;
    return codec->ops->split(codec, shape);
}

bool mm_codec_strips_of(const mm_codec *codec, const mm_shape *shape, mm_codec_strips *strips_out) {
    int64_t elems;
    if (!codec->ops->strips || !codec->flags.fixed_size || codec->flags.reads_iteration || codec->flags.reads_bound ||
        shape->dtype != MM_F32 || mm_shape_elems(shape, &elems) != MM_OK)
        return false;
    *strips_out = (mm_codec_strips){.strips = {.elems = elems}, .codec = codec, .shape = *shape};
    return codec->ops->strips(strips_out);
}

/* Whether the inputs have what the codec needs. */
static mm_status check_inputs(const mm_codec *codec, const mm_code_inputs *inputs, bool encode) {
    const mm_code_body *body = inputs ? inputs->body : NULL;
    const char *lacks = !codec->flags.fixed_size && !body                        ? "place for its body"
                        : !codec->flags.fixed_size && encode && !body->record    ? "record of its body"
                        : codec->flags.reads_bound && !(inputs && inputs->bound) ? "error bound"
                                                                                 : NULL;
    if (lacks) return mm_fail(MM_ERR_INVALID, "codec %s: mm_code_inputs has no %s: set it", codec->spec, lacks);
    return MM_OK;
}

mm_status mm_codec_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                          void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    MM_TRY(check_inputs(codec, inputs, true));
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    mm_status status = codec->ops->encode(codec, stream, shape, src, dst, scratch, inputs, counters);
    mm_device_leave(stream->device, entered);
    return status;
}

mm_status mm_codec_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                          void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    if (!codec->flags.gives_value)
        return mm_fail(MM_ERR_UNSUPPORTED, "codec %s cannot decode: its codes have no values", codec->spec);
    MM_TRY(check_inputs(codec, inputs, false));
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    mm_status status = codec->ops->decode(codec, stream, shape, src, dst, scratch, inputs, counters);
    mm_device_leave(stream->device, entered);
    return status;
}
