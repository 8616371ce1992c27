/* SPDX-License-Identifier: MIT */
/* Fashion-MNIST (Xiao et al. 2017): 60000 and 10000 grey images of 28x28 in 10 classes, as MNIST's IDX files.
 *
 * An image is fitted to the network's input: each pixel becomes a square of pixels, as large as fits, or, for an input
 * below 28x28, squares of pixels, as small as fits, become their mean. The result is centred on black, in every
 * channel. A row becomes
 *
 *   in 32x32: 2 black, 28, 2 black     in 227x227: 1 black, 28 * 8, 2 black     in 16x16: 1 black, 28 / 2, 1 black
 *
 * A gzip stream can only be read from its beginning, so the split is held in memory, a byte a pixel: 47 MB for
 * training. */
#include "mm/core/status.h"
#include "nets/io/idx.h"
#include "nets/io/reader_source.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIDE           28
#define PIXELS         (SIDE * SIDE)
#define CLASSES        10
#define TRAIN_SAMPLES  60000
#define TEST_SAMPLES   10000
#define DEFAULT_FOLDER "/usr/share/datasets/fashion-mnist" /* the folder of Debian's package */
#define PACKAGE        "Debian's package dataset-fashion-mnist"
#define REMEDY         "install " PACKAGE " (tools/deps fashion-mnist), or use --data synthetic"

/* Statistics of the training set's bytes divided by 255. */
static const double pixel_mean = 0.2860, pixel_deviation = 0.3530;

typedef struct fashion {
    nets_source source;
    uint8_t *images, *labels;
    /* In each direction, how many pixels one becomes, and how many become one; one of the two is 1. */
    int64_t enlarged, reduced;
    int64_t side, top, left; /* the fitted image's, in the network's input */
    double scale;            /* from a sum of bytes to their mean, from 0 to 1 */
} fashion;

static void fit(fashion *data) {
    const nets_image_shape *shape = &data->source.image;
    const int64_t room = shape->height < shape->width ? shape->height : shape->width;
    data->enlarged = room < SIDE ? 1 : room / SIDE;
    data->reduced = 1;
    while (SIDE / data->reduced > room || SIDE % data->reduced) data->reduced++;
    data->side = SIDE * data->enlarged / data->reduced;
    data->top = (shape->height - data->side) / 2;
    data->left = (shape->width - data->side) / 2;
    data->scale = 1 / (255.0 * (double)(data->reduced * data->reduced));
}

/* The fitted image's pixel at (y, x), or black outside of it, normalised. */
static float pixel_at(const fashion *data, const uint8_t *pixels, int64_t y, int64_t x) {
    int64_t sum = 0;
    if (y >= 0 && y < data->side && x >= 0 && x < data->side) {
        const uint8_t *corner = pixels + y * data->reduced / data->enlarged * SIDE + x * data->reduced / data->enlarged;
        for (int64_t i = 0; i < data->reduced; i++)
            for (int64_t j = 0; j < data->reduced; j++) sum += corner[i * SIDE + j];
    }
    return (float)(((double)sum * data->scale - pixel_mean) / pixel_deviation);
}

static mm_status fashion_read(nets_source *source, int64_t index, float *image_out, int32_t *label_out) {
    const fashion *data = (const fashion *)source;
    const nets_image_shape *shape = &source->image;
    const uint8_t *pixels = data->images + index * PIXELS;
    for (int64_t y = 0; y < shape->height; y++)
        for (int64_t x = 0; x < shape->width; x++) {
            const float value = pixel_at(data, pixels, y - data->top, x - data->left);
            for (int64_t c = 0; c < shape->channels; c++) *image_out++ = value;
        }
    *label_out = data->labels[index];
    return MM_OK;
}

/* Finds the file, plain or, as in the package, compressed. */
static mm_status find_file(const char *dir, nets_split split, const char *what, char path_out[static PATH_MAX]) {
    static const char *const endings[] = {"", ".gz"};
    const char *name = split == NETS_SPLIT_TRAIN ? "train" : "t10k";
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (snprintf(path_out, PATH_MAX, "%s/%s-%s-ubyte%s", dir, name, what, endings[i]) >= PATH_MAX)
            return mm_fail(MM_ERR_INVALID, "fashion-mnist: the folder's name is too long (%zu bytes)", strlen(dir));
        if (access(path_out, F_OK) == 0) return MM_OK;
    }
    return mm_fail(MM_ERR_IO, "%s: no such file, nor without .gz; " REMEDY, path_out);
}

static mm_status load(fashion *data, const char *dir, nets_split split) {
    const int64_t dims[] = {data->source.samples, SIDE, SIDE};
    char path[PATH_MAX];
    data->images = malloc((size_t)data->source.samples * PIXELS);
    data->labels = malloc((size_t)data->source.samples);
    if (!data->images || !data->labels)
        return mm_fail(MM_ERR_NOMEM, "fashion-mnist: no memory for %lld images", (long long)data->source.samples);
    MM_TRY(find_file(dir, split, "images-idx3", path));
    MM_TRY(nets_idx_read(path, 3, dims, data->images));
    MM_TRY(find_file(dir, split, "labels-idx1", path));
    MM_TRY(nets_idx_read(path, 1, dims, data->labels));
    for (int64_t i = 0; i < data->source.samples; i++)
        if (data->labels[i] >= CLASSES)
            return mm_fail(MM_ERR_FORMAT, "%s: image %lld has label %d, must be from 0 to %d", path, (long long)i,
                           data->labels[i], CLASSES - 1);
    return MM_OK;
}

static void fashion_close(nets_source *source) {
    fashion *data = (fashion *)source;
    free(data->images);
    free(data->labels);
    free(data);
}

mm_status nets_source_fashion_mnist_open(const char *dir, const nets_reader_options *options, int64_t samples,
                                         nets_source **source_out) {
    const nets_image_shape *wanted = &options->wanted;
    const nets_image_shape image = {
        .height = wanted->height ? wanted->height : SIDE,
        .width = wanted->width ? wanted->width : SIDE,
        .channels = wanted->channels ? wanted->channels : 1,
        .classes = CLASSES,
    };
    MM_TRY(nets_source_check_wanted("fashion-mnist", &image, wanted));
    MM_TRY(nets_source_check_elems("fashion-mnist", &image));
    fashion *data = calloc(1, sizeof *data);
    if (!data) return mm_fail(MM_ERR_NOMEM, "fashion-mnist: no memory for the reader");
    data->source = (nets_source){.ops = &nets_source_fashion_mnist, .samples = samples, .image = image};
    fit(data);
    const mm_status status = load(data, dir, options->split);
    if (status == MM_OK)
        *source_out = &data->source;
    else
        fashion_close(&data->source);
    return status;
}

static mm_status fashion_open(const char *argument, const nets_reader_options *options, nets_source **source_out) {
    if (argument && !argument[0])
        return mm_fail(MM_ERR_INVALID,
                       "fashion-mnist:: must be fashion-mnist:DIR, or fashion-mnist for " DEFAULT_FOLDER);
    return nets_source_fashion_mnist_open(argument ? argument : DEFAULT_FOLDER, options,
                                          options->split == NETS_SPLIT_TRAIN ? TRAIN_SAMPLES : TEST_SAMPLES,
                                          source_out);
}

const nets_source_ops nets_source_fashion_mnist = {
    .name = "fashion-mnist",
    .usage = "fashion-mnist[:DIR]",
    .open = fashion_open,
    .read = fashion_read,
    .close = fashion_close,
};
