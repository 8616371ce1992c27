/* SPDX-License-Identifier: MIT */
/* signs: wraps a lossy codec, so that decoded elements are above zero exactly where the map's are (signs_value.h), on
 * any device. So one decoded map serves both the backward step of a ReLU, which reads signs, and that of the
 * convolution after it, which reads values.
 *
 *      | the other codec's code, padded with zeros to 256 bytes | mask of the map |
 *
 * Negative elements become 0: it is for maps that have none. */
#include <stdio.h>
#include <string.h>

#include "mm/core/plan/plan.h"
#include "mm/device/host/device_host.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/packed/half_host.h"

typedef struct signs_codec {
    mm_codec base;
    mm_codec *mask, *of;
} signs_codec;

/* mm_codec_ops.own. mend: enqueues mm_signs_value for the n elements of a decoded map, given its mask. */
typedef struct signs_device {
    mm_status (*mend)(mm_stream *stream, mm_dtype dtype, const void *mask, void *map, int64_t n);
} signs_device;

static const signs_codec *signs_of(const mm_codec *codec) { return (const signs_codec *)codec; }

/* ---------------------------------------------------------------- creation */

static void signs_destroy(mm_codec *codec) {
    mm_codec_destroy(signs_of(codec)->mask);
    mm_codec_destroy(signs_of(codec)->of);
    mm_codec_free(codec);
}

static mm_status check(const mm_codec_ops *ops, const mm_codec *of) {
    if (of->flags.lossless || of->flags.exact_signs || !of->flags.gives_value)
        return mm_fail(MM_ERR_INVALID, "codec %s: '%s' has exact signs already: name a lossy codec, as %s:zfp:rate=8",
                       ops->name, of->spec, ops->name);
    return MM_OK;
}

static mm_status signs_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    mm_codec *of = NULL, *mask = NULL, *codec = NULL;
    mm_status status = mm_codec_create(params[0] ? params : "zfp", ops->device, &of);
    if (status == MM_ERR_NOT_FOUND)
        return mm_fail(MM_ERR_INVALID,
                       "codec %s: there is no codec '%s' on device %s: name a lossy one, as %s:zfp:rate=8", ops->name,
                       params, ops->device, ops->name);
    if (status == MM_OK) status = check(ops, of);
    if (status == MM_OK) status = mm_codec_create("mask", ops->device, &mask);
    if (status == MM_OK) status = mm_codec_new(ops, sizeof(signs_codec), &codec);
    if (status != MM_OK) {
        mm_codec_destroy(of);
        mm_codec_destroy(mask);
        return status;
    }
    *(signs_codec *)codec = (signs_codec){.base = *codec, .mask = mask, .of = of};
    codec->flags = of->flags;
    codec->flags.exact_signs = true;
    snprintf(codec->spec, sizeof codec->spec, "%s:%.*s", ops->name, (int)(sizeof codec->spec - strlen(ops->name) - 2),
             of->spec);
    *codec_out = codec;
    return MM_OK;
}

static const char *signs_format(const mm_codec_ops *ops, size_t i) {
    static const char *const formats[] = {"zfp", "dpr", "mx", "group", "eb", "csr:values=fp8"};
    (void)ops;
    return i < sizeof formats / sizeof *formats ? formats[i] : NULL;
}

/* ---------------------------------------------------------------- sizes */

/* Position of the mask in the code. */
static mm_status mask_begin(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    int64_t bytes;
    MM_TRY(mm_codec_bound(signs_of(codec)->of, shape, &bytes));
    *bytes_out = mm_align(bytes);
    return MM_OK;
}

static mm_status signs_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    int64_t begin, mask;
    MM_TRY(mask_begin(codec, shape, &begin));
    MM_TRY(mm_codec_bound(signs_of(codec)->mask, shape, &mask));
    *bytes_out = begin + mask;
    return MM_OK;
}

static mm_status signs_body_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    return mm_codec_body_bound(signs_of(codec)->of, shape, bytes_out);
}

static mm_status signs_body_nominal(const mm_codec *codec, const mm_shape *shape, mm_body_nominal *nominal_out) {
    return mm_codec_body_nominal(signs_of(codec)->of, shape, nominal_out);
}

static int64_t signs_scratch(const mm_codec *codec, const mm_shape *shape) {
    return mm_codec_scratch(signs_of(codec)->of, shape);
}

/* ---------------------------------------------------------------- encode and decode */

static mm_status signs_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                              void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    const signs_codec *signs = signs_of(codec);
    int64_t begin, end;
    MM_TRY(mask_begin(codec, shape, &begin));
    MM_TRY(mm_codec_bound(signs->of, shape, &end));
    MM_TRY(mm_codec_encode(signs->of, stream, shape, src, dst, scratch, inputs, counters));
    if (begin > end) MM_TRY(mm_fill_async(stream, (uint8_t *)dst + end, 0, begin - end));
    return mm_codec_encode(signs->mask, stream, shape, src, (uint8_t *)dst + begin, NULL, NULL, counters);
}

static mm_status signs_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                              void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    const signs_device *device = codec->ops->own;
    int64_t begin, elems;
    MM_TRY(mm_float_elems(codec->spec, shape, &elems));
    MM_TRY(mask_begin(codec, shape, &begin));
    MM_TRY(mm_codec_decode(signs_of(codec)->of, stream, shape, src, dst, scratch, inputs, counters));
    return device->mend(stream, shape->dtype, (const uint8_t *)src + begin, dst, elems);
}

/* ---------------------------------------------------------------- on the host */

typedef struct mend_job {
    const uint32_t *mask;
    void *map;
    int64_t elems;
    uint16_t infinity; /* mm_mask_infinity */
    mm_host_pool *pool;
} mend_job;

enum { ROW = 1024 }; /* elements of a row: a thread gets whole rows, and so whole words of the mask */

static void mend_rows(const void *arg, int64_t from, int64_t to) {
    const mend_job *job = arg;
    const int64_t end = to * ROW < job->elems ? to * ROW : job->elems;
    const int64_t first = from * ROW;
    mm_signs_mend(job->infinity, job->mask + first / MM_MASK_WORD_BITS,
                  (uint8_t *)job->map + first * (job->infinity ? 2 : 4), end - first);
}

static mm_status mend_run(void *arg) {
    const mend_job *job = arg;
    mm_codec_run_rows(job->pool, (job->elems + ROW - 1) / ROW, 1, mend_rows, job);
    return MM_OK;
}

static mm_status mend_host(mm_stream *stream, mm_dtype dtype, const void *mask, void *map, int64_t n) {
    mend_job job = {.mask = mask, .map = map, .elems = n, .infinity = mm_mask_infinity(dtype)};
    if (stream->device->ops == &mm_device_host_ops) job.pool = mm_host_codec_pool(stream);
    return mm_host_launch(stream, mend_run, &job, sizeof job);
}

#define SIGNS_ON(device_, mend_)                                                                                       \
    static const signs_device device_ = {mend_};                                                                       \
    const mm_codec_ops mm_codec_signs_##device_##_ops = {                                                              \
        .name = "signs",                                                                                               \
        .summary = "signs:CODEC, a lossy codec and an exact mask: decoded elements are above zero exactly where the "  \
                   "map's are, and else 0; for maps that are never negative",                                          \
        .device = #device_,                                                                                            \
        .flags = {.fixed_size = true, .gives_value = true, .exact_signs = true}, /* the flags of signs:zfp */          \
        .own = &(device_),                                                                                             \
        .create = signs_create,                                                                                        \
        .format = signs_format,                                                                                        \
        .destroy = signs_destroy,                                                                                      \
        .bound = signs_bound,                                                                                          \
        .body_bound = signs_body_bound,                                                                                \
        .body_nominal = signs_body_nominal,                                                                            \
        .scratch = signs_scratch,                                                                                      \
        .encode = signs_encode,                                                                                        \
        .decode = signs_decode,                                                                                        \
    };
SIGNS_ON(host, mend_host)
#ifdef MM_CODEC_CUDA
SIGNS_ON(cuda, mm_signs_mend_cuda)
#endif
#undef SIGNS_ON
