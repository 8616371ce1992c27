/* SPDX-License-Identifier: MIT */
#include "tests/accuracy/codec_fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/host/device_host.h"
#include "pipeline/codec/codec.h"

typedef mm_status codec_call(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters);
codec_call __real_mm_codec_encode, __real_mm_codec_decode, __wrap_mm_codec_encode, __wrap_mm_codec_decode;

/* Global, since the functions that the linker puts in place of the codecs' have no context argument. */
static atomic_int current;
static atomic_llong masks, decodes;

void codec_fault_set(codec_fault fault) {
    atomic_store(&current, (int)fault);
    atomic_store(&masks, 0);
    atomic_store(&decodes, 0);
}

int64_t codec_fault_masks(void) { return atomic_load(&masks); }
int64_t codec_fault_decodes(void) { return atomic_load(&decodes); }

/* Spoils a mask or a map, `data`; `before` is a copy of it. */
typedef void spoil_fn(const mm_shape *shape, const void *before, void *data);

typedef struct spoil_job {
    spoil_fn *spoil;
    mm_shape shape;
    void *data;
    int64_t bytes;
} spoil_job;

static mm_status run_spoil(void *arg) {
    const spoil_job *job = arg;
    void *before = malloc((size_t)job->bytes);
    if (!before) return mm_fail(MM_ERR_NOMEM, "no memory to spoil %lld bytes", (long long)job->bytes);
    memcpy(before, job->data, (size_t)job->bytes);
    job->spoil(&job->shape, before, job->data);
    free(before);
    return MM_OK;
}

static int64_t elems_of(const mm_shape *shape) {
    int64_t elems = 1;
    for (int d = 0; d < shape->rank; d++) elems *= shape->dims[d];
    return elems;
}

/* The place that element i of an NHWC tensor has when height and width are exchanged. */
static int64_t transposed(const mm_shape *shape, int64_t i) {
    const int64_t h = shape->dims[1], w = shape->dims[2], c = shape->dims[3];
    const int64_t n = i / (h * w * c), y = i / (w * c) % h, x = i / c % w;
    return ((n * w + x) * h + y) * c + i % c;
}

/* ---------------------------------------------------------------- masks */

static void copy_bit(const uint8_t *from, int64_t i, uint8_t *to, int64_t j) {
    const unsigned bit = from[i / 8] >> i % 8 & 1;
    to[j / 8] = (uint8_t)((to[j / 8] & ~(1u << j % 8)) | bit << j % 8);
}

static void shift_mask(const mm_shape *shape, const void *before, void *data) {
    for (int64_t i = 1; i < elems_of(shape); i++) copy_bit(before, i, data, i - 1);
}

static void fill_mask(const mm_shape *shape, const void *before, void *data) {
    (void)before;
    memset(data, 0xff, (size_t)elems_of(shape) / 8);
}

static void transpose_mask(const mm_shape *shape, const void *before, void *data) {
    for (int64_t i = 0; i < elems_of(shape); i++) copy_bit(before, i, data, transposed(shape, i));
}

/* Encodes a map with ZFP, decodes it, and encodes the mask of the result. */
static mm_status encode_mask_of_decoded(const mm_codec *mask, mm_stream *stream, const mm_shape *shape, const void *src,
                                        void *dst) {
    mm_codec *zfp;
    int64_t bytes;
    MM_TRY(mm_codec_create("zfp:rate=4", "host", &zfp));
    mm_status status = mm_codec_bound(zfp, shape, &bytes);
    void *code = malloc((size_t)bytes), *map = malloc((size_t)elems_of(shape) * sizeof(float));
    if (!code || !map) status = mm_fail(MM_ERR_NOMEM, "no memory for a code of %lld bytes", (long long)bytes);
    if (status == MM_OK) status = __real_mm_codec_encode(zfp, stream, shape, src, code, NULL, NULL, NULL);
    if (status == MM_OK) status = __real_mm_codec_decode(zfp, stream, shape, code, map, NULL, NULL, NULL);
    if (status == MM_OK) status = __real_mm_codec_encode(mask, stream, shape, map, dst, NULL, NULL, NULL);
    mm_status drained = mm_stream_sync(stream);
    free(code);
    free(map);
    mm_codec_destroy(zfp);
    return status == MM_OK ? drained : status;
}

/* ---------------------------------------------------------------- maps */

static void transpose_map(const mm_shape *shape, const void *before, void *data) {
    const float *from = before;
    float *to = data;
    for (int64_t i = 0; i < elems_of(shape); i++) to[transposed(shape, i)] = from[i];
}

static void put_channels_outside(const mm_shape *shape, const void *before, void *data) {
    const int64_t plane = shape->dims[1] * shape->dims[2], c = shape->dims[3];
    const float *from = before;
    float *to = data;
    for (int64_t i = 0; i < elems_of(shape); i++) to[(i / (plane * c) * c + i % c) * plane + i / c % plane] = from[i];
}

static void shift_map(const mm_shape *shape, const void *before, void *data) {
    const int64_t row = shape->dims[2] * shape->dims[3];
    memcpy(data, (const float *)before + row, (size_t)(elems_of(shape) - row) * sizeof(float));
}

/* ---------------------------------------------------------------- in the functions' place */

static spoil_fn *const spoilers[] = {
    [FAULT_NONE] = NULL,
    [FAULT_MASK_SHIFTED] = shift_mask,
    [FAULT_MASK_ONES] = fill_mask,
    [FAULT_MASK_TRANSPOSED] = transpose_mask,
    [FAULT_MASK_OF_DECODED] = NULL,
    [FAULT_MAP_TRANSPOSED] = transpose_map,
    [FAULT_MAP_NCHW] = put_channels_outside,
    [FAULT_MAP_SHIFTED] = shift_map,
};

static mm_status spoil(mm_stream *stream, codec_fault fault, const mm_shape *shape, void *data, int64_t bytes) {
    if (!spoilers[fault] || shape->rank != 4) return MM_OK;
    const spoil_job job = {.spoil = spoilers[fault], .shape = *shape, .data = data, .bytes = bytes};
    return mm_host_launch(stream, run_spoil, &job, sizeof job);
}

mm_status __wrap_mm_codec_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                 void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    const codec_fault fault = (codec_fault)atomic_load(&current);
    const bool is_mask = codec->flags.gives_sign;
    if (is_mask) atomic_fetch_add(&masks, 1);
    if (is_mask && fault == FAULT_MASK_OF_DECODED) return encode_mask_of_decoded(codec, stream, shape, src, dst);
    MM_TRY(__real_mm_codec_encode(codec, stream, shape, src, dst, scratch, inputs, counters));
    if (!is_mask || fault >= FAULT_MAP_TRANSPOSED) return MM_OK;
    int64_t bytes;
    MM_TRY(mm_codec_bound(codec, shape, &bytes));
    return spoil(stream, fault, shape, dst, bytes);
}

mm_status __wrap_mm_codec_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                 void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    const codec_fault fault = (codec_fault)atomic_load(&current);
    atomic_fetch_add(&decodes, 1);
    MM_TRY(__real_mm_codec_decode(codec, stream, shape, src, dst, scratch, inputs, counters));
    if (fault < FAULT_MAP_TRANSPOSED) return MM_OK;
    return spoil(stream, fault, shape, dst, elems_of(shape) * (int64_t)sizeof(float));
}
