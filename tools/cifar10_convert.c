/* SPDX-License-Identifier: MIT */
/* cifar10_convert SHEETS OUT: turns CIFAR-10 as PNG sheets and label lists into the files of its binary version.
 *
 * SHEETS holds data_batch_1..5.png and test_batch.png, each 1024 x 10000: a row is one image, 32x32 RGB pixels in
 * reading order. train_lables.json and test_lables.json are arrays of the labels in the same order. OUT gets
 * data_batch_1..5.bin and test_batch.bin: for each image its label byte, then its red, green and blue planes. */
#include <jansson.h>
#include <png.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 1024, CHANNELS = 3, IMAGES = 10000, CLASSES = 10, PATH_BYTES = 4096 };

static bool complain(const char *path, const char *what) {
    fprintf(stderr, "cifar10_convert: %s: %s\n", path, what);
    return false;
}

static bool path_make(char path_out[static PATH_BYTES], const char *dir, const char *name, const char *suffix) {
    return snprintf(path_out, PATH_BYTES, "%s/%s%s", dir, name, suffix) < PATH_BYTES || complain(dir, "name too long");
}

/* Returns the sheet's pixels, which the caller frees. NULL: failed; the reason has been printed. */
static uint8_t *sheet_read(const char *path) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    uint8_t *pixels = NULL;
    if (!png_image_begin_read_from_file(&image, path)) {
        complain(path, image.message);
        return NULL;
    }
    image.format = PNG_FORMAT_RGB;
    if (image.width != PIXELS || image.height != IMAGES)
        complain(path, "not a sheet of 1024 x 10000 pixels");
    else if (!(pixels = malloc(PNG_IMAGE_SIZE(image))))
        complain(path, "out of memory");
    else if (!png_image_finish_read(&image, NULL, pixels, 0, NULL)) {
        complain(path, image.message);
        free(pixels);
        pixels = NULL;
    }
    png_image_free(&image);
    return pixels;
}

static void record_make(const uint8_t *pixels, uint8_t label, uint8_t *record_out) {
    record_out[0] = label;
    for (int p = 0; p < PIXELS; p++)
        for (int c = 0; c < CHANNELS; c++) record_out[1 + c * PIXELS + p] = pixels[p * CHANNELS + c];
}

/* labels[first] is the label of the sheet's first image. */
static bool records_write(const char *path, FILE *file, const uint8_t *pixels, const json_t *labels, size_t first) {
    uint8_t record[1 + CHANNELS * PIXELS];
    for (size_t i = 0; i < IMAGES; i++) {
        const json_t *label = json_array_get(labels, first + i);
        if (!json_is_integer(label) || json_integer_value(label) < 0 || json_integer_value(label) >= CLASSES)
            return complain(path, "a label is missing, or is not a number from 0 to 9");
        record_make(pixels + i * PIXELS * CHANNELS, (uint8_t)json_integer_value(label), record);
        if (fwrite(record, sizeof record, 1, file) != 1) return complain(path, "cannot be written");
    }
    return true;
}

static bool convert(const char *sheets, const char *out, const char *name, const json_t *labels, size_t first) {
    char from[PATH_BYTES], to[PATH_BYTES];
    if (!path_make(from, sheets, name, ".png") || !path_make(to, out, name, ".bin")) return false;
    uint8_t *pixels = sheet_read(from);
    if (!pixels) return false;
    FILE *file = fopen(to, "wb");
    bool done = file ? records_write(to, file, pixels, labels, first) : complain(to, "cannot be written");
    if (file && fclose(file) != 0 && done) done = complain(to, "cannot be written");
    free(pixels);
    return done;
}

static json_t *labels_read(const char *sheets, const char *name) {
    char path[PATH_BYTES];
    json_error_t error;
    if (!path_make(path, sheets, name, "_lables.json")) return NULL;
    json_t *labels = json_load_file(path, 0, &error);
    if (!labels) complain(path, error.text);
    return labels;
}

int main(int argc, char **argv) {
    static const char *const train[] = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"};
    if (argc != 3) {
        fprintf(stderr, "usage: cifar10_convert SHEETS OUT\n");
        return 2;
    }
    json_t *train_labels = labels_read(argv[1], "train");
    json_t *test_labels = labels_read(argv[1], "test");
    bool done = train_labels && test_labels && convert(argv[1], argv[2], "test_batch", test_labels, 0);
    for (size_t i = 0; done && i < sizeof train / sizeof *train; i++)
        done = convert(argv[1], argv[2], train[i], train_labels, i * IMAGES);
    json_decref(train_labels);
    json_decref(test_labels);
    return done ? 0 : 1;
}
