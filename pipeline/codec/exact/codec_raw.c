/* SPDX-License-Identifier: MIT */
/* raw: the elements as they are. The code of a tensor is a copy of it. */
#include <string.h>

#include "pipeline/codec/codec_impl.h"

static mm_status raw_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    (void)codec;
    int64_t elems;
    MM_TRY(mm_shape_elems(shape, &elems));
    *bytes_out = elems * (int64_t)mm_dtype_bytes(shape->dtype);
    return MM_OK;
}

static int64_t raw_split(const mm_codec *codec, const mm_shape *shape) {
    int64_t bytes;
    if (raw_bound(codec, shape, &bytes) != MM_OK) return 0;
    return mm_split_rows(shape, (uint64_t)(bytes / shape->dims[0]), 8);
}

/* Encodes, and also decodes: both copy the elements. */
static mm_status raw_copy(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                          void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs, (void)counters;
    int64_t bytes;
    MM_TRY(raw_bound(codec, shape, &bytes));
    return mm_copy_async(stream, dst, src, bytes, MM_COPY_ANY); /* mm_dispatch_decode_paused decodes in pinned memory */
}

enum { STRIP_ELEMS = 2048 }; /* 8 KiB: a quarter of a first-level cache */

static void raw_decode_strips(const mm_strips *strips, const void *code, int64_t first, int64_t n, float *elems_out) {
    memcpy(elems_out, (const uint8_t *)code + first * strips->strip_bytes,
           (size_t)mm_strips_elems(strips, first, n) * sizeof *elems_out);
}

static void raw_encode_strips(const mm_strips *strips, const float *elems, int64_t first, int64_t n, void *code_out,
                              void *counters) {
    (void)counters;
    memcpy((uint8_t *)code_out + first * strips->strip_bytes, elems,
           (size_t)mm_strips_elems(strips, first, n) * sizeof *elems);
}

static bool raw_host_strips(mm_codec_strips *s) {
    s->strips = (mm_strips){.elems = s->strips.elems,
                            .period_elems = s->strips.elems,
                            .strip_elems = STRIP_ELEMS,
                            .strip_bytes = STRIP_ELEMS * (int64_t)sizeof(float),
                            .decode = raw_decode_strips,
                            .encode = raw_encode_strips};
    return true;
}

/* raw works on any device, because it only copies. */
#define RAW_ON(device_, strips_)                                                                                       \
    const mm_codec_ops mm_codec_raw_##device_##_ops = {                                                                \
        .name = "raw",                                                                                                 \
        .summary = "a plain copy of the elements",                                                                     \
        .device = #device_,                                                                                            \
        .flags = {.lossless = true, .fixed_size = true, .gives_value = true},                                          \
        .create = mm_codec_new_plain,                                                                                  \
        .destroy = mm_codec_free,                                                                                      \
        .bound = raw_bound,                                                                                            \
        .scratch = mm_codec_no_scratch,                                                                                \
        .split = raw_split,                                                                                            \
        .encode = raw_copy,                                                                                            \
        .decode = raw_copy,                                                                                            \
        .strips = strips_,                                                                                             \
    };
RAW_ON(host, raw_host_strips)
RAW_ON(cuda, NULL)
#undef RAW_ON
