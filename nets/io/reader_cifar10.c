/* SPDX-License-Identifier: MIT */
/* CIFAR-10 in its binary version (Krizhevsky 2009): five training files and a test file of 10000 records, each a
 * label byte and 3072 bytes of planes R, G, B.
 *
 * Records are read with pread, not mapped: a file that shrinks during a run is an error then, not a SIGBUS. */
#include "mm/core/status.h"
#include "nets/io/reader_source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDE         32
#define PIXELS       (SIDE * SIDE)
#define CHANNELS     3
#define CLASSES      10
#define RECORD_BYTES (1 + CHANNELS * PIXELS)
#define RECORDS      10000
#define TRAIN_FILES  5
#define AUGMENT_PAD  4
#define SUBFOLDER    "cifar-10-batches-bin"
#define REMEDY       "run tools/fetch-cifar10 %s, or use --data synthetic"

/* Statistics of the training set's bytes divided by 255. */
static const double channel_mean[CHANNELS] = {0.4914, 0.4822, 0.4465};
static const double channel_deviation[CHANNELS] = {0.2470, 0.2435, 0.2616};

typedef struct cifar10 {
    nets_source source;
    int64_t records; /* in a file */
    int n_files;
    int fds[TRAIN_FILES]; /* -1: not open */
    char paths[TRAIN_FILES][PATH_MAX];
    float normalised[CHANNELS][256];
} cifar10;

static const nets_image_shape cifar10_image = {.height = SIDE, .width = SIDE, .channels = CHANNELS, .classes = CLASSES};

static void file_name(nets_split split, int file, char name_out[static 32]) {
    if (split == NETS_SPLIT_TEST)
        snprintf(name_out, 32, "test_batch.bin");
    else
        snprintf(name_out, 32, "data_batch_%d.bin", file + 1);
}

/* Where the files lie: the folder itself, or the one that unpacking the published archive makes in it. */
static const char *subfolder_of(const char *dir, nets_split split) {
    char name[32], path[PATH_MAX];
    struct stat info;
    file_name(split, 0, name);
    int length = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (length >= PATH_MAX || stat(path, &info) == 0) return "";
    length = snprintf(path, sizeof path, "%s/" SUBFOLDER, dir);
    return length < PATH_MAX && stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? SUBFOLDER "/" : "";
}

static mm_status open_file(cifar10 *data, int file, const char *dir, const char *subfolder, nets_split split) {
    char name[32];
    file_name(split, file, name);
    char *path = data->paths[file];
    long long expected = (long long)data->records * RECORD_BYTES;
    if (snprintf(path, PATH_MAX, "%s/%s%s", dir, subfolder, name) >= PATH_MAX)
        return mm_fail(MM_ERR_INVALID, "cifar10: the folder's name is too long (%zu bytes)", strlen(dir));
    data->fds[file] = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (data->fds[file] < 0)
        return mm_fail(MM_ERR_IO, "%s: %s (expected %lld bytes); " REMEDY, path, strerror(errno), expected, dir);
    struct stat info;
    if (fstat(data->fds[file], &info) != 0) return mm_fail(MM_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return mm_fail(MM_ERR_FORMAT, "%s: not a regular file; " REMEDY, path, dir);
    if (info.st_size != expected)
        return mm_fail(MM_ERR_FORMAT, "%s: expected %lld bytes, found %lld; " REMEDY, path, expected,
                       (long long)info.st_size, dir);
    return MM_OK;
}

static void cifar10_close(nets_source *source) {
    cifar10 *data = (cifar10 *)source;
    for (int i = 0; i < data->n_files; i++)
        if (data->fds[i] >= 0) close(data->fds[i]);
    free(data);
}

mm_status nets_source_cifar10_open(const char *dir, nets_split split, int64_t records, nets_source **source_out) {
    cifar10 *data = calloc(1, sizeof *data);
    if (!data) return mm_fail(MM_ERR_NOMEM, "cifar10: no memory for the reader");
    data->n_files = split == NETS_SPLIT_TRAIN ? TRAIN_FILES : 1;
    data->records = records;
    data->source = (nets_source){
        .ops = &nets_source_cifar10,
        .samples = data->n_files * records,
        .image = cifar10_image,
        .augment_pad = AUGMENT_PAD,
    };
    for (int i = 0; i < data->n_files; i++) data->fds[i] = -1;
    for (int c = 0; c < CHANNELS; c++)
        for (int v = 0; v < 256; v++)
            data->normalised[c][v] = (float)((v / 255.0 - channel_mean[c]) / channel_deviation[c]);
    const char *subfolder = subfolder_of(dir, split);
    for (int i = 0; i < data->n_files; i++) {
        mm_status status = open_file(data, i, dir, subfolder, split);
        if (status != MM_OK) {
            cifar10_close(&data->source);
            return status;
        }
    }
    *source_out = &data->source;
    return MM_OK;
}

static mm_status cifar10_open(const char *argument, const nets_reader_options *options, nets_source **source_out) {
    if (!argument || !argument[0]) return mm_fail(MM_ERR_INVALID, "cifar10 needs its folder: cifar10:DIR");
    MM_TRY(nets_source_check_wanted("cifar10", &cifar10_image, &options->wanted));
    return nets_source_cifar10_open(argument, options->split, RECORDS, source_out);
}

static mm_status read_record(const cifar10 *data, int64_t index, uint8_t *record_out) {
    int64_t file = index / data->records, within = index % data->records;
    off_t offset = within * RECORD_BYTES;
    for (size_t done = 0; done < RECORD_BYTES;) {
        ssize_t got = pread(data->fds[file], record_out + done, RECORD_BYTES - done, offset + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return mm_fail(MM_ERR_IO, "%s: %s", data->paths[file], strerror(errno));
        if (got == 0)
            return mm_fail(MM_ERR_IO, "%s: ends within record %lld: it shrank while in use", data->paths[file],
                           (long long)within);
        done += (size_t)got;
    }
    if (record_out[0] >= CLASSES)
        return mm_fail(MM_ERR_FORMAT, "%s: record %lld has label %d, expected 0 to %d", data->paths[file],
                       (long long)within, record_out[0], CLASSES - 1);
    return MM_OK;
}

static mm_status cifar10_read(nets_source *source, int64_t index, float *image_out, int32_t *label_out) {
    const cifar10 *data = (const cifar10 *)source;
    uint8_t record[RECORD_BYTES];
    MM_TRY(read_record(data, index, record));
    for (int p = 0; p < PIXELS; p++)
        for (int c = 0; c < CHANNELS; c++)
            image_out[p * CHANNELS + c] = data->normalised[c][record[1 + c * PIXELS + p]];
    *label_out = record[0];
    return MM_OK;
}

const nets_source_ops nets_source_cifar10 = {
    .name = "cifar10",
    .usage = "cifar10:DIR",
    .open = cifar10_open,
    .read = cifar10_read,
    .close = cifar10_close,
};
