/* SPDX-License-Identifier: MIT */
#include "tools/measure/device_speed.h"

#include <stdio.h>
#include <string.h>

#include "mm/device/contract/clock.h"
#include "pipeline/codec/codec.h"
#include "tools/measure/smooth.h"

enum { STREAMS = 2, BLOCKS = 4 };

/* A block is a feature map of images of 64 KiB: 1/512 of the free memory, within LEAST_IMAGES (2 MiB) and MOST_IMAGES
 * (256 MiB). Chosen: the largest exceeds a large device's cache, and all blocks take a small part of the memory. */
enum { CHANNELS = 64, SIDE = 16, IMAGE_BYTES = CHANNELS * SIDE * SIDE * 4, LEAST_IMAGES = 32, MOST_IMAGES = 4096 };

/* In pinned memory: inputs of codecs with variable codes or an error bound. */
typedef struct pinned_inputs {
    mm_body_record record;
    float bound;
} pinned_inputs;

typedef struct bench {
    mm_device *device;
    int64_t bytes; /* of each block */
    mm_stream *stream[STREAMS];
    uint8_t *block[BLOCKS]; /* device memory; the last is the pool of variable codes */
    uint8_t *pinned[STREAMS];
    mm_shape shape; /* of a block as a feature map */
    mm_codec *codec;
    void *scratch; /* of the codec */
    pinned_inputs *of_codec;
    mm_code_body body;
    mm_code_inputs inputs;
    double pinned_seconds; /* to allocate `pinned` */
} bench;

static double now(void) { return (double)mm_now_ns() * 1e-9; }

/* ---------------------------------------------------------------- the work that is measured; each enqueues one
 * block */

static mm_status copy_out(bench *b) {
    return mm_copy_async(b->stream[0], b->pinned[0], b->block[0], b->bytes, MM_COPY_OUT);
}

static mm_status copy_in(bench *b) {
    return mm_copy_async(b->stream[1], b->block[1], b->pinned[1], b->bytes, MM_COPY_IN);
}

static mm_status copy_both(bench *b) {
    MM_TRY(copy_out(b));
    return copy_in(b);
}

static mm_status copy_within(bench *b) {
    return mm_copy_async(b->stream[0], b->block[1], b->block[0], b->bytes, MM_COPY_DEVICE);
}

static mm_status encode(bench *b) {
    return mm_codec_encode(b->codec, b->stream[0], &b->shape, b->block[0], b->block[1], b->scratch, &b->inputs, NULL);
}

static mm_status decode(bench *b) {
    return mm_codec_decode(b->codec, b->stream[0], &b->shape, b->block[1], b->block[2], b->scratch, &b->inputs, NULL);
}

static void set_images(bench *b, int64_t images) {
    b->bytes = images * IMAGE_BYTES;
    b->shape = (mm_shape){.dtype = MM_F32, .rank = 4, .dims = {images, SIDE, SIDE, CHANNELS}};
}

static mm_status run(bench *b, mm_status (*work)(bench *b), int times, double *seconds_out) {
    double start = now();
    for (int i = 0; i < times; i++) MM_TRY(work(b));
    for (int i = 0; i < STREAMS; i++) MM_TRY(mm_stream_sync(b->stream[i]));
    *seconds_out = now() - start;
    return MM_OK;
}

/* Repetitions must last this long together to give a rate. Chosen. */
static const double ENOUGH_SECONDS = 0.03;

/* Measures bytes per second. After a warm-up, doubles the number of repetitions until they last long enough. */
static mm_status measure(bench *b, mm_status (*work)(bench *b), int64_t *rate_out) {
    enum { TIMES_MAX = 4096 };
    double seconds;
    MM_TRY(run(b, work, 1, &seconds));
    for (int times = 1;; times *= 2) {
        MM_TRY(run(b, work, times, &seconds));
        if (seconds >= ENOUGH_SECONDS || times >= TIMES_MAX) {
            *rate_out = (int64_t)((double)b->bytes * times / seconds);
            return MM_OK;
        }
    }
}

/* ---------------------------------------------------------------- codecs */

static mm_status measure_both(bench *b, device_codec_speed *speed) {
    MM_TRY(measure(b, encode, &speed->encode));
    return b->codec->flags.gives_value ? measure(b, decode, &speed->decode) : MM_OK;
}

/* Measures encode and decode. A codec that takes long enough for the smallest block is measured with that block. */
static mm_status measure_ways(bench *b, device_codec_speed *speed_out) {
    const int64_t images = b->shape.dims[0];
    device_codec_speed speed = {0};
    double seconds = 0;
    snprintf(speed.spec, sizeof speed.spec, "%s", b->codec->spec);
    set_images(b, LEAST_IMAGES);
    mm_status status = run(b, encode, 1, &seconds);
    if (seconds < ENOUGH_SECONDS) set_images(b, images);
    if (status == MM_OK) status = measure_both(b, &speed);
    set_images(b, images);
    if (status == MM_OK) *speed_out = speed;
    return status;
}

/* MM_ERR_UNSUPPORTED: the codec does not take the map, or a code can be larger than the map. */
static mm_status measure_codec(bench *b, const char *spec, device_codec_speed *speed_out) {
    int64_t bound;
    MM_TRY(mm_codec_create(spec, b->device->ops->name, &b->codec));
    int64_t scratch_bytes = mm_codec_scratch(b->codec, &b->shape);
    mm_status status = mm_codec_bound(b->codec, &b->shape, &bound);
    if (status == MM_OK && bound > b->bytes)
        status = mm_fail(MM_ERR_UNSUPPORTED, "%s: cannot be measured, because a code can be larger than its map", spec);
    if (status == MM_OK && scratch_bytes > 0)
        status = mm_device_reserve(b->device, MM_MEMORY_DEVICE, scratch_bytes, &b->scratch);
    if (status == MM_OK) status = measure_ways(b, speed_out);
    mm_device_release(b->device, MM_MEMORY_DEVICE, b->scratch, scratch_bytes);
    b->scratch = NULL;
    mm_codec_destroy(b->codec);
    return status;
}

/* Measures all codecs of the device, except those that cannot be measured. */
static mm_status measure_codecs(bench *b, device_speed *speed) {
    const mm_codec_ops *ops;
    for (size_t i = 0; (ops = mm_codec_table(i)) != NULL && speed->n_codecs < DEVICE_CODECS_MAX; i++) {
        if (strcmp(ops->device, b->device->ops->name) != 0) continue;
        mm_status status = measure_codec(b, ops->name, &speed->codec[speed->n_codecs]);
        speed->n_codecs += status == MM_OK;
        if (status != MM_OK && status != MM_ERR_UNSUPPORTED) return status;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- the whole */

static mm_status open_bench(bench *b) {
    mm_memory_info info;
    mm_device_memory_info(b->device, &info);
    int64_t images = info.free_bytes / 512 / IMAGE_BYTES;
    images = images < LEAST_IMAGES ? LEAST_IMAGES : images > MOST_IMAGES ? MOST_IMAGES : images;
    set_images(b, images);
    for (int i = 0; i < STREAMS; i++) MM_TRY(mm_stream_create(b->device, "speed", 0, &b->stream[i]));
    for (int i = 0; i < BLOCKS; i++)
        MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->bytes, (void **)&b->block[i]));
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_PINNED, sizeof *b->of_codec, (void **)&b->of_codec));
    b->of_codec->bound = 0.01f; /* values go up to about 7: smooth_put */
    b->body = (mm_code_body){.pool = b->block[BLOCKS - 1], .pool_bytes = b->bytes, .record = &b->of_codec->record};
    b->inputs = (mm_code_inputs){.body = &b->body, .bound = &b->of_codec->bound};
    double start = now();
    for (int i = 0; i < STREAMS; i++)
        MM_TRY(mm_device_reserve(b->device, MM_MEMORY_PINNED, b->bytes, (void **)&b->pinned[i]));
    b->pinned_seconds = now() - start;
    smooth_put((float *)b->pinned[0], b->bytes / 4, 0);
    memset(b->pinned[1], 0, (size_t)b->bytes);
    return mm_copy_async(b->stream[0], b->block[0], b->pinned[0], b->bytes, MM_COPY_IN);
}

static mm_status measure_link(bench *b, device_speed *speed) {
    MM_TRY(measure(b, copy_out, &speed->out));
    MM_TRY(measure(b, copy_in, &speed->in));
    return measure(b, copy_both, &speed->both);
}

static void close_bench(bench *b) {
    for (int i = 0; i < STREAMS; i++) mm_stream_destroy(b->stream[i]);
    for (int i = 0; i < STREAMS; i++) mm_device_release(b->device, MM_MEMORY_PINNED, b->pinned[i], b->bytes);
    mm_device_release(b->device, MM_MEMORY_PINNED, b->of_codec, sizeof *b->of_codec);
    for (int i = 0; i < BLOCKS; i++) mm_device_release(b->device, MM_MEMORY_DEVICE, b->block[i], b->bytes);
}

mm_status device_speed_measure(mm_device *device, device_speed *speed_out) {
    bench b = {.device = device};
    device_speed speed = {0};
    mm_status status = open_bench(&b);
    if (status == MM_OK) status = measure_link(&b, &speed);
    if (status == MM_OK) status = measure(&b, copy_within, &speed.copy);
    if (status == MM_OK) speed.pinned = (int64_t)((double)(STREAMS * b.bytes) / b.pinned_seconds);
    if (status == MM_OK) status = measure_codecs(&b, &speed);
    close_bench(&b);
    if (status == MM_OK) *speed_out = speed;
    return status;
}

mm_status device_speed_link(mm_device *device, device_speed *speed_out) {
    bench b = {.device = device};
    device_speed speed = {0};
    mm_status status = open_bench(&b);
    if (status == MM_OK) status = measure_link(&b, &speed);
    close_bench(&b);
    if (status == MM_OK) *speed_out = speed;
    return status;
}

mm_status device_speed_codec(mm_device *device, const char *spec, device_codec_speed *speed_out) {
    bench b = {.device = device};
    mm_status status = open_bench(&b);
    if (status == MM_OK) status = measure_codec(&b, spec, speed_out);
    close_bench(&b);
    return status;
}
