#include "pipeline/codec/codec_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const mm_codec_ops *const codecs[] = {
    &mm_codec_raw_host_ops,
    &mm_codec_mask_host_ops,
    &mm_codec_zfp_host_ops,
};

const mm_codec_ops *mm_codec_table(size_t i) { return i < sizeof codecs / sizeof codecs[0] ? codecs[i] : NULL; }

static mm_status fail_unknown(const char *spec, const char *device) {
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        if (strcmp(codecs[i]->device, device) != 0) continue;
        int n = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", codecs[i]->name);
        if (n < 0 || (size_t)n >= sizeof names - used) break;
        used += (size_t)n;
    }
    return mm_fail(MM_ERR_NOT_FOUND, "codec '%s' for device '%s': there are %s", spec, device, used ? names : "none");
}

mm_status mm_codec_create(const char *spec, const char *device, mm_codec **codec_out) {
    const size_t name_length = strcspn(spec, ":");
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        const mm_codec_ops *ops = codecs[i];
        if (strcmp(ops->device, device) != 0) continue;
        if (strlen(ops->name) != name_length || strncmp(ops->name, spec, name_length) != 0) continue;
        return ops->create(spec[name_length] ? spec + name_length + 1 : "", codec_out);
    }
    return fail_unknown(spec, device);
}

void mm_codec_destroy(mm_codec *codec) {
    if (codec) codec->ops->destroy(codec);
}

mm_status mm_codec_new_plain(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    if (params[0]) return mm_fail(MM_ERR_INVALID, "codec %s takes no parameter, got '%s'", ops->name, params);
    mm_codec *codec = calloc(1, sizeof *codec);
    if (!codec) return mm_fail(MM_ERR_NOMEM, "codec %s: %zu bytes", ops->name, sizeof *codec);
    codec->ops = ops;
    snprintf(codec->spec, sizeof codec->spec, "%s", ops->name);
    *codec_out = codec;
    return MM_OK;
}

void mm_codec_free(mm_codec *codec) { free(codec); }

int64_t mm_codec_no_scratch(const mm_codec *codec, const mm_shape *shape) {
    (void)codec, (void)shape;
    return 0;
}

mm_status mm_shape_elems(const mm_shape *shape, int64_t *elems_out) {
    if (shape->rank < 1 || shape->rank > 4)
        return mm_fail(MM_ERR_INVALID, "shape of rank %d: 1 to 4 are possible", shape->rank);
    int64_t bytes = (int64_t)mm_dtype_bytes(shape->dtype);
    for (int d = 0; d < shape->rank; d++) {
        const int64_t dim = shape->dims[d];
        if (dim < 1) return mm_fail(MM_ERR_INVALID, "shape's dimension %d is %lld", d, (long long)dim);
        if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > MM_SHAPE_MAX_BYTES)
            return mm_fail(MM_ERR_INVALID, "shape has more than 2^62 bytes");
    }
    *elems_out = bytes / (int64_t)mm_dtype_bytes(shape->dtype);
    return MM_OK;
}

mm_status mm_codec_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    return codec->ops->bound(codec, shape, bytes_out);
}

int64_t mm_codec_scratch(const mm_codec *codec, const mm_shape *shape) { return codec->ops->scratch(codec, shape); }

int64_t mm_codec_split(const mm_codec *codec, const mm_shape *shape) {
    int64_t elems;
    if (!codec->ops->split || mm_shape_elems(shape, &elems) != MM_OK) return 0;
    return codec->ops->split(codec, shape);
}

int64_t mm_split_rows(const mm_shape *shape, uint64_t row_bits) {
    const uint64_t power_of_two = row_bits & -row_bits;
    const int64_t rows = power_of_two >= 64 ? 1 : (int64_t)(64 / power_of_two);
    return rows < shape->dims[0] ? rows : 0;
}

mm_status mm_codec_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                          void *scratch, mm_codec_counters *counters) {
    return codec->ops->encode(codec, stream, shape, src, dst, scratch, counters);
}

mm_status mm_codec_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                          void *scratch, mm_codec_counters *counters) {
    if (!codec->ops->flags.gives_value)
        return mm_fail(MM_ERR_UNSUPPORTED, "codec %s keeps no values to decode", codec->spec);
    return codec->ops->decode(codec, stream, shape, src, dst, scratch, counters);
}
