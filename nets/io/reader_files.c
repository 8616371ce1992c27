/* SPDX-License-Identifier: MIT */
/* The user's own data: images and labels in two .npy files. Neither is held in memory: a sample is read when its batch
 * is made. */
#include "mm/core/status.h"
#include "nets/io/npy.h"
#include "nets/io/reader_source.h"

#include <stdlib.h>
#include <string.h>

enum { CHECKED_AT_ONCE = 4096 }; /* labels */

/* Indices of the images' dims; dims[0] is the number of images. */
enum { HEIGHT = 1, WIDTH, CHANNELS, IMAGE_RANK };

typedef struct files {
    nets_source source;
    char *paths; /* both, one after the other */
    nets_npy images, labels;
    int64_t image_elems;
    int64_t label_elems; /* labels of an image: 1, or one for each pixel */
    uint8_t *pixels;     /* one image's */
    int64_t *label_row;  /* one row */
    float normalised[256];
} files;

static mm_status check_shapes(const files *data, const int64_t map[2]) {
    const nets_npy *images = &data->images, *labels = &data->labels;
    const int64_t *dims = images->dims;
    char shape[256];
    if (images->rank != IMAGE_RANK || images->elems < 1)
        return mm_fail(MM_ERR_FORMAT,
                       "%s: has shape %s, must be [images, height, width, channels], or without channels", images->path,
                       nets_npy_shape_text(images, shape));
    bool pixels = map[0] > 0;
    if (labels->rank != (pixels ? IMAGE_RANK - 1 : 1))
        return mm_fail(MM_ERR_FORMAT, "%s: has shape %s; the network wants %s", labels->path,
                       nets_npy_shape_text(labels, shape),
                       pixels ? "a label for each pixel: [images, height, width]" : "a label for each image: [images]");
    if (labels->dims[0] != dims[0])
        return mm_fail(MM_ERR_FORMAT, "%s: has labels for %lld images, %s has %lld images", labels->path,
                       (long long)labels->dims[0], images->path, (long long)dims[0]);
    if (pixels && (labels->dims[HEIGHT] != dims[HEIGHT] || labels->dims[WIDTH] != dims[WIDTH]))
        return mm_fail(MM_ERR_FORMAT, "%s: has labels of %lldx%lld pixels, the images of %s have %lldx%lld",
                       labels->path, (long long)labels->dims[HEIGHT], (long long)labels->dims[WIDTH], images->path,
                       (long long)dims[HEIGHT], (long long)dims[WIDTH]);
    if (dims[0] > NETS_SAMPLES_MOST)
        return mm_fail(MM_ERR_FORMAT, "%s: has %lld images, must be at most %d", images->path, (long long)dims[0],
                       NETS_SAMPLES_MOST);
    return MM_OK;
}

static mm_status check_label(const files *data, int64_t place, int64_t label) {
    int64_t classes = data->source.image.classes;
    if (label >= 0 && label < classes) return MM_OK;
    return mm_fail(MM_ERR_FORMAT, "%s: image %lld has label %lld, must be from 0 to %lld: there are %lld classes",
                   data->labels.path, (long long)(place / data->label_elems), (long long)label, (long long)classes - 1,
                   (long long)classes);
}

/* Checks that all labels are in 0..classes-1. If the network does not say how many classes there are, the greatest
 * label does. */
static mm_status check_labels(files *data, int64_t wanted_classes) {
    int64_t labels[CHECKED_AT_ONCE], greatest = 0;
    data->source.image.classes = wanted_classes ? wanted_classes : INT32_MAX;
    for (int64_t first = 0; first < data->labels.elems; first += CHECKED_AT_ONCE) {
        int64_t rest = data->labels.elems - first, n = rest < CHECKED_AT_ONCE ? rest : CHECKED_AT_ONCE;
        MM_TRY(nets_npy_read_numbers(&data->labels, first, n, labels));
        for (int64_t i = 0; i < n; i++) {
            MM_TRY(check_label(data, first + i, labels[i]));
            if (labels[i] > greatest) greatest = labels[i];
        }
    }
    if (!wanted_classes) data->source.image.classes = greatest + 1;
    return MM_OK;
}

/* Whether the images would be as wanted if their channels came last, as those of PyTorch do not. */
static bool is_channels_first(const int64_t dims[IMAGE_RANK], const nets_image_shape *wanted) {
    return wanted->channels > 0 && dims[1] == wanted->channels && dims[2] == wanted->height && dims[3] == wanted->width;
}

static mm_status open_both(files *data, const nets_reader_options *options) {
    const char *labels_path = data->paths + strlen(data->paths) + 1;
    MM_TRY(nets_npy_open(data->paths, 1 << NETS_NPY_UINT8, &data->images));
    MM_TRY(nets_npy_open(labels_path, 1 << NETS_NPY_UINT8 | 1 << NETS_NPY_INT32 | 1 << NETS_NPY_INT64, &data->labels));
    if (data->images.rank == CHANNELS) data->images.dims[data->images.rank++] = 1; /* [images, height, width] */
    MM_TRY(check_shapes(data, options->label_map));
    const int64_t *dims = data->images.dims;
    data->source.samples = dims[0];
    data->source.image = (nets_image_shape){dims[HEIGHT], dims[WIDTH], dims[CHANNELS], options->wanted.classes, false};
    mm_status fits = nets_source_check_wanted(data->images.path, &data->source.image, &options->wanted);
    if (fits != MM_OK && is_channels_first(dims, &options->wanted))
        return mm_fail(fits, "%s; its channels come first: save numpy.transpose(array, (0, 2, 3, 1))", mm_last_error());
    MM_TRY(fits);
    data->image_elems = data->images.elems / dims[0];
    data->label_elems = data->labels.elems / dims[0];
    MM_TRY(check_labels(data, options->wanted.classes));
    data->pixels = malloc((size_t)data->image_elems);
    data->label_row = malloc((size_t)dims[WIDTH] * sizeof *data->label_row);
    if (!data->pixels || !data->label_row)
        return mm_fail(MM_ERR_NOMEM, "files: no memory for an image of %lld bytes", (long long)data->image_elems);
    for (int v = 0; v < 256; v++) data->normalised[v] = (float)(v / 127.5 - 1);
    return MM_OK;
}

static void files_close(nets_source *source) {
    files *data = (files *)source;
    nets_npy_close(&data->images);
    nets_npy_close(&data->labels);
    free(data->pixels);
    free(data->label_row);
    free(data->paths);
    free(data);
}

static mm_status files_open(const char *argument, const nets_reader_options *options, nets_source **source_out) {
    const char *comma = argument ? strchr(argument, ',') : NULL;
    if (!comma || comma == argument || !comma[1] || strchr(comma + 1, ','))
        return mm_fail(MM_ERR_INVALID, "files:%s: must be two paths without commas: files:IMAGES.npy,LABELS.npy",
                       argument ? argument : "");
    files *data = calloc(1, sizeof *data);
    char *paths = strdup(argument);
    if (!data || !paths) {
        free(data);
        free(paths);
        return mm_fail(MM_ERR_NOMEM, "files: no memory for the reader");
    }
    paths[comma - argument] = '\0';
    data->paths = paths;
    data->images.fd = data->labels.fd = -1;
    data->source.ops = &nets_source_files;
    mm_status status = open_both(data, options);
    if (status == MM_OK)
        *source_out = &data->source;
    else
        files_close(&data->source);
    return status;
}

static mm_status read_image(const files *data, int64_t index, float *image_out) {
    MM_TRY(nets_npy_read_bytes(&data->images, index * data->image_elems, data->image_elems, data->pixels));
    for (int64_t i = 0; i < data->image_elems; i++) image_out[i] = data->normalised[data->pixels[i]];
    return MM_OK;
}

/* Reads n labels from index `place` on, and checks them again, because the file may have changed after it was
 * opened. */
static mm_status read_labels(const files *data, int64_t place, int64_t n, int32_t *labels_out) {
    MM_TRY(nets_npy_read_numbers(&data->labels, place, n, data->label_row));
    for (int64_t i = 0; i < n; i++) {
        MM_TRY(check_label(data, place + i, data->label_row[i]));
        labels_out[i] = (int32_t)data->label_row[i];
    }
    return MM_OK;
}

static mm_status files_read(nets_source *source, int64_t index, float *image_out, int32_t *label_out) {
    MM_TRY(read_image((files *)source, index, image_out));
    return read_labels((files *)source, index, 1, label_out);
}

static mm_status files_read_map(nets_source *source, int64_t index, const int64_t map[2], float *image_out,
                                int32_t *labels_out) {
    const files *data = (const files *)source;
    int64_t height = source->image.height, width = source->image.width;
    int64_t top = (height - map[0]) / 2, left = (width - map[1]) / 2;
    MM_TRY(read_image(data, index, image_out));
    for (int64_t y = 0; y < map[0]; y++) {
        int64_t place = (index * height + top + y) * width + left;
        MM_TRY(read_labels(data, place, map[1], labels_out + y * map[1]));
    }
    return MM_OK;
}

const nets_source_ops nets_source_files = {
    .name = "files",
    .usage = "files:IMAGES.npy,LABELS.npy",
    .one_set = true,
    .open = files_open,
    .read = files_read,
    .read_map = files_read_map,
    .close = files_close,
};
