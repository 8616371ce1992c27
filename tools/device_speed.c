#include "tools/device_speed.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pipeline/codec/codec.h"

enum { STREAMS = 2, BLOCKS = 3 };

typedef struct bench {
    mm_device *device;
    int64_t bytes; /* of each block */
    mm_stream *stream[STREAMS];
    uint8_t *block[BLOCKS]; /* device memory */
    uint8_t *pinned[STREAMS];
    mm_shape shape; /* of the block's bytes as a feature map */
    mm_codec *codec;
    void *scratch; /* of the codec */
} bench;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- what is measured: each enqueues a block's worth */

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
    return mm_codec_encode(b->codec, b->stream[0], &b->shape, b->block[0], b->block[1], b->scratch, NULL);
}

static mm_status decode(bench *b) {
    return mm_codec_decode(b->codec, b->stream[0], &b->shape, b->block[1], b->block[2], b->scratch, NULL);
}

static mm_status run(bench *b, mm_status (*work)(bench *b), int times, double *seconds_out) {
    double start = now();
    for (int i = 0; i < times; i++) MM_TRY(work(b));
    for (int i = 0; i < STREAMS; i++) MM_TRY(mm_stream_sync(b->stream[i]));
    *seconds_out = now() - start;
    return MM_OK;
}

/* Bytes a second: after one run to warm up, as often as it takes to last long enough to be measured. */
static mm_status measure(bench *b, mm_status (*work)(bench *b), int64_t *rate_out) {
    enum { TIMES_MAX = 4096 };
    const double enough = 0.03;
    double seconds;
    MM_TRY(run(b, work, 1, &seconds));
    for (int times = 1;; times *= 2) {
        MM_TRY(run(b, work, times, &seconds));
        if (seconds >= enough || times >= TIMES_MAX) {
            *rate_out = (int64_t)((double)b->bytes * times / seconds);
            return MM_OK;
        }
    }
}

/* ---------------------------------------------------------------- codecs */

static mm_status measure_codec(bench *b, device_speed *speed) {
    struct device_codec_speed figures = {0};
    snprintf(figures.spec, sizeof figures.spec, "%s", b->codec->spec);
    MM_TRY(measure(b, encode, &figures.encode));
    if (b->codec->ops->flags.gives_value) MM_TRY(measure(b, decode, &figures.decode));
    speed->codec[speed->n_codecs++] = figures;
    return MM_OK;
}

/* One that does not take the map, or whose code is larger than it, is left out. */
static mm_status try_codec(bench *b, const mm_codec_ops *ops, device_speed *speed) {
    int64_t bound;
    MM_TRY(mm_codec_create(ops->name, b->device->ops->name, &b->codec));
    int64_t scratch_bytes = mm_codec_scratch(b->codec, &b->shape);
    mm_status status = MM_OK;
    if (mm_codec_bound(b->codec, &b->shape, &bound) == MM_OK && bound <= b->bytes) {
        if (scratch_bytes > 0) status = mm_device_reserve(b->device, MM_MEMORY_DEVICE, scratch_bytes, &b->scratch);
        if (status == MM_OK) status = measure_codec(b, speed);
    }
    mm_device_release(b->device, MM_MEMORY_DEVICE, b->scratch, scratch_bytes);
    b->scratch = NULL;
    mm_codec_destroy(b->codec);
    return status;
}

static mm_status measure_codecs(bench *b, device_speed *speed) {
    const mm_codec_ops *ops;
    for (size_t i = 0; (ops = mm_codec_table(i)) != NULL && speed->n_codecs < DEVICE_CODECS_MAX; i++)
        if (strcmp(ops->device, b->device->ops->name) == 0) MM_TRY(try_codec(b, ops, speed));
    return MM_OK;
}

/* ---------------------------------------------------------------- the whole */

/* Something like what a ReLU gives: smooth, and half of it zero. */
static void put_map(float *values, int64_t n) {
    uint32_t state = 1;
    float level = 0;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        level = 0.9f * level + (float)(int32_t)state * 0x1p-31f;
        values[i] = level > 0 ? level : 0;
    }
}

static mm_status open_bench(bench *b) {
    enum { CHANNELS = 64, SIDE = 16, IMAGE_BYTES = CHANNELS * SIDE * SIDE * 4, LEAST_IMAGES = 32, MOST_IMAGES = 4096 };
    mm_memory_info info;
    mm_device_memory_info(b->device, &info);
    /* Enough to keep a large device busy, too much for its cache, and a small part of what there is. */
    int64_t images = info.free_bytes / 512 / IMAGE_BYTES;
    images = images < LEAST_IMAGES ? LEAST_IMAGES : images > MOST_IMAGES ? MOST_IMAGES : images;
    b->bytes = images * IMAGE_BYTES;
    b->shape = (mm_shape){.dtype = MM_F32, .rank = 4, .dims = {images, SIDE, SIDE, CHANNELS}};
    for (int i = 0; i < STREAMS; i++) MM_TRY(mm_stream_create(b->device, "speed", 0, &b->stream[i]));
    for (int i = 0; i < BLOCKS; i++)
        MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->bytes, (void **)&b->block[i]));
    for (int i = 0; i < STREAMS; i++)
        MM_TRY(mm_device_reserve(b->device, MM_MEMORY_PINNED, b->bytes, (void **)&b->pinned[i]));
    put_map((float *)b->pinned[0], b->bytes / 4);
    memset(b->pinned[1], 0, (size_t)b->bytes);
    return mm_copy_async(b->stream[0], b->block[0], b->pinned[0], b->bytes, MM_COPY_IN);
}

static mm_status measure_all(bench *b, device_speed *speed) {
    MM_TRY(open_bench(b));
    MM_TRY(measure(b, copy_out, &speed->out));
    MM_TRY(measure(b, copy_in, &speed->in));
    MM_TRY(measure(b, copy_both, &speed->both));
    MM_TRY(measure(b, copy_within, &speed->copy));
    return measure_codecs(b, speed);
}

mm_status device_speed_measure(mm_device *device, device_speed *speed_out) {
    bench b = {.device = device};
    device_speed speed = {0};
    mm_status status = measure_all(&b, &speed);
    for (int i = 0; i < STREAMS; i++) mm_stream_destroy(b.stream[i]);
    for (int i = 0; i < STREAMS; i++) mm_device_release(device, MM_MEMORY_PINNED, b.pinned[i], b.bytes);
    for (int i = 0; i < BLOCKS; i++) mm_device_release(device, MM_MEMORY_DEVICE, b.block[i], b.bytes);
    if (status == MM_OK) *speed_out = speed;
    return status;
}
