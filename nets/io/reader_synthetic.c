/* SPDX-License-Identifier: MIT */
/* Synthetic data: learnable images of any shape that need no file. A sample is its class's smooth colour pattern under
 * noise of its own. With labels for pixels an image is a grid of regions of one colour and class each, under the same
 * noise. The data is fixed: the same for every seed, run and machine (no libm). */
#include "mm/core/status.h"
#include "nets/io/reader_random.h"
#include "nets/io/reader_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A pattern is a grid of random colours, interpolated between. */
#define GRID            4
#define TRAIN_SAMPLES   5000
#define TRAIN_PER_TEST  5
#define DATA_SEED       0
#define DEFAULT_SIDE    32
#define DEFAULT_COLOURS 3
#define DEFAULT_CLASSES 10

typedef struct synthetic {
    nets_source source;
    nets_split split;
} synthetic;

/* Maps random bits to [-1, 1). */
static float unit_of(uint64_t bits) { return (float)(int32_t)(bits >> 32) * 0x1p-31f; }

static float pattern_corner(int64_t label, int64_t channel, int64_t gy, int64_t gx) {
    uint64_t key = nets_random_key(NETS_RANDOM_PATTERN, DATA_SEED, (uint64_t)label, (uint64_t)channel);
    return unit_of(nets_random_at(key, (uint64_t)(gy * (GRID + 1) + gx)));
}

/* One row of one channel, between the grid's corners at the row's ends. */
static void pattern_row_write(const float edges[static GRID + 1], const nets_image_shape *shape, float *row_out) {
    float scale = 1.0f / (float)shape->width;
    int64_t cell = 0, within = 0; /* x * GRID = cell * width + within */
    for (int64_t x = 0; x < shape->width; x++) {
        row_out[x * shape->channels] = edges[cell] + (float)within * scale * (edges[cell + 1] - edges[cell]);
        for (within += GRID; within >= shape->width; within -= shape->width) cell++;
    }
}

/* The pattern alone: bilinear between the grid's corners. */
static void pattern_write(const nets_image_shape *shape, int64_t label, float *image_out) {
    for (int64_t c = 0; c < shape->channels; c++) {
        float corners[GRID + 1][GRID + 1], edges[GRID + 1];
        for (int64_t gy = 0; gy <= GRID; gy++)
            for (int64_t gx = 0; gx <= GRID; gx++) corners[gy][gx] = pattern_corner(label, c, gy, gx);
        for (int64_t y = 0; y < shape->height; y++) {
            int64_t cell = y * GRID / shape->height;
            float below = (float)(y * GRID % shape->height) / (float)shape->height;
            for (int64_t gx = 0; gx <= GRID; gx++)
                edges[gx] = corners[cell][gx] + below * (corners[cell + 1][gx] - corners[cell][gx]);
            pattern_row_write(edges, shape, image_out + y * shape->width * shape->channels + c);
        }
    }
}

/* Adds sample `index`'s noise to its image. */
static void noise_add(const synthetic *data, int64_t index, float *image) {
    const nets_image_shape *shape = &data->source.image;
    uint64_t key = nets_random_key(NETS_RANDOM_NOISE, DATA_SEED, data->split, (uint64_t)index);
    int64_t elems = shape->height * shape->width * shape->channels;
    for (int64_t i = 0; i < elems; i++) image[i] += unit_of(nets_random_at(key, (uint64_t)i));
}

/* Each token is computed from the one before it, but one in eight is random. A token's label is the next token; with
 * one label for the sample, `labels` is 1, it is the one behind the last. */
static mm_status write_tokens(const synthetic *data, int64_t index, int64_t labels, float *image_out,
                              int32_t *labels_out) {
    const uint64_t classes = (uint64_t)data->source.image.classes;
    const uint64_t key = nets_random_key(NETS_RANDOM_NOISE, DATA_SEED, data->split, (uint64_t)index);
    uint64_t token = nets_random_below(nets_random_at(key, 0), classes);
    for (int64_t i = 0; i < data->source.image.width; i++) {
        const uint64_t bits = nets_random_at(key, (uint64_t)i + 1);
        image_out[i] = (float)token;
        token = bits % 8 == 0 ? nets_random_below(bits, classes) : (5 * token + 3) % classes;
        labels_out[labels > 1 ? i : 0] = (int32_t)token;
    }
    return MM_OK;
}

static mm_status synthetic_read(nets_source *source, int64_t index, float *image_out, int32_t *label_out) {
    const synthetic *data = (const synthetic *)source;
    const nets_image_shape *shape = &source->image;
    if (shape->tokens) return write_tokens(data, index, 1, image_out, label_out);
    int64_t label = index % shape->classes;
    pattern_write(shape, label, image_out);
    noise_add(data, index, image_out);
    *label_out = (int32_t)label;
    return MM_OK;
}

/* The class of a sample's pixel, which is that of the pixel's grid cell. */
static int64_t region_class(const synthetic *data, int64_t index, int64_t y, int64_t x) {
    const nets_image_shape *shape = &data->source.image;
    uint64_t key = nets_random_key(NETS_RANDOM_REGION, DATA_SEED, data->split, (uint64_t)index);
    int64_t cell = y * GRID / shape->height * GRID + x * GRID / shape->width;
    return (int64_t)nets_random_below(nets_random_at(key, (uint64_t)cell), (uint64_t)shape->classes);
}

static mm_status synthetic_read_map(nets_source *source, int64_t index, const int64_t map[2], float *image_out,
                                    int32_t *labels_out) {
    const synthetic *data = (const synthetic *)source;
    const nets_image_shape *shape = &source->image;
    int64_t top = (shape->height - map[0]) / 2, left = (shape->width - map[1]) / 2;
    if (shape->tokens) return write_tokens(data, index, map[0] * map[1], image_out, labels_out);
    for (int64_t y = 0; y < shape->height; y++)
        for (int64_t x = 0; x < shape->width; x++) {
            int64_t label = region_class(data, index, y, x);
            float *pixel = image_out + (y * shape->width + x) * shape->channels;
            for (int64_t c = 0; c < shape->channels; c++) pixel[c] = pattern_corner(label, c, 0, 0);
            if (y >= top && y < top + map[0] && x >= left && x < left + map[1])
                labels_out[(y - top) * map[1] + (x - left)] = (int32_t)label;
        }
    noise_add(data, index, image_out);
    return MM_OK;
}

static void synthetic_close(nets_source *source) { free(source); }

static mm_status parse_samples(const char *argument, int64_t *samples_out) {
    static const char key[] = "samples=";
    if (!argument) {
        *samples_out = TRAIN_SAMPLES;
        return MM_OK;
    }
    const char *digits = argument + sizeof key - 1;
    bool known = strncmp(argument, key, sizeof key - 1) == 0 && digits[0] >= '0' && digits[0] <= '9';
    char *end = NULL;
    errno = 0;
    long long samples = known ? strtoll(digits, &end, 10) : 0;
    if (!known || *end || errno || samples < 1 || samples > NETS_SAMPLES_MOST)
        return mm_fail(MM_ERR_INVALID, "synthetic:%s: expected synthetic:samples=N, N from 1 to %d", argument,
                       NETS_SAMPLES_MOST);
    *samples_out = samples;
    return MM_OK;
}

static mm_status synthetic_open(const char *argument, const nets_reader_options *options, nets_source **source_out) {
    const nets_image_shape *wanted = &options->wanted;
    nets_split split = options->split;
    int64_t samples;
    MM_TRY(parse_samples(argument, &samples));
    nets_image_shape image = {
        .height = wanted->height ? wanted->height : DEFAULT_SIDE,
        .width = wanted->width ? wanted->width : DEFAULT_SIDE,
        .channels = wanted->channels ? wanted->channels : DEFAULT_COLOURS,
        .classes = wanted->classes ? wanted->classes : DEFAULT_CLASSES,
        .tokens = wanted->tokens,
    };
    MM_TRY(nets_source_check_elems("synthetic", &image));
    if (image.classes < 1 || image.classes > INT32_MAX)
        return mm_fail(MM_ERR_INVALID, "synthetic: %lld classes: from 1 to %d", (long long)image.classes, INT32_MAX);
    synthetic *data = calloc(1, sizeof *data);
    if (!data) return mm_fail(MM_ERR_NOMEM, "synthetic: no memory for the reader");
    data->split = split;
    data->source.ops = &nets_source_synthetic;
    data->source.image = image;
    data->source.samples = split == NETS_SPLIT_TRAIN ? samples : (samples + TRAIN_PER_TEST - 1) / TRAIN_PER_TEST;
    *source_out = &data->source;
    return MM_OK;
}

const nets_source_ops nets_source_synthetic = {
    .name = "synthetic",
    .usage = "synthetic[:samples=N]",
    .open = synthetic_open,
    .read = synthetic_read,
    .read_map = synthetic_read_map,
    .close = synthetic_close,
};
