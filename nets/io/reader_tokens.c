/* SPDX-License-Identifier: MIT */
/* Tokens from a file: the bytes of a text, or 16-bit numbers. A sample is a row of as many tokens as the network takes;
 * each token's label is the next token. Samples follow each other without overlap, so an epoch reads every token once,
 * but for a rest that fills no sample:
 *
 *   | sample 0 | sample 1 | ... | rest |   the last tenth: | sample 0 | ... |
 *   | training: nine tenths            |                   | test           |
 *
 * The file is not held in memory. */
#include "mm/core/nearest.h"
#include "mm/core/status.h"
#include "nets/io/reader_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEST_SHARE = 10, CHECKED_BYTES = 1 << 16 };
static const int64_t CHECKED_MOST = INT64_C(1) << 30; /* bytes; chosen: a second's work */

typedef struct tokens {
    nets_source source;
    char *path;
    int fd;
    int64_t bytes_each; /* bytes of a token: 1 or 2 */
    int64_t first, n;   /* tokens of the split */
    uint8_t *raw;       /* bytes of one sample and its last label */
} tokens;

static mm_status read_at(const tokens *data, int64_t token, int64_t n, uint8_t *bytes_out) {
    const int64_t n_bytes = n * data->bytes_each, offset = token * data->bytes_each;
    for (int64_t done = 0; done < n_bytes;) {
        const ssize_t got = pread(data->fd, bytes_out + done, (size_t)(n_bytes - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return mm_fail(MM_ERR_IO, "cannot read %s: %s", data->path, strerror(errno));
        if (got == 0)
            return mm_fail(MM_ERR_IO, "%s: ends at byte %lld: it shrank while in use", data->path,
                           (long long)(offset + done));
        done += got;
    }
    return MM_OK;
}

static int32_t token_at(const tokens *data, const uint8_t *raw, int64_t i) {
    return data->bytes_each == 1 ? raw[i] : raw[2 * i] | raw[2 * i + 1] << 8;
}

static mm_status check_token(const tokens *data, int64_t place, int32_t token) {
    if (token < data->source.image.classes) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "%s: token %lld is %d, must be from 0 to %lld: the network has a vocabulary of %lld",
                   data->path, (long long)place, token, (long long)data->source.image.classes - 1,
                   (long long)data->source.image.classes);
}

/* Checks the split's tokens; of a large file those at the beginning, and all others when they are read. */
static mm_status check_tokens(const tokens *data) {
    uint8_t raw[CHECKED_BYTES];
    const int64_t most = CHECKED_BYTES / data->bytes_each, checked = CHECKED_MOST / data->bytes_each;
    const int64_t end = data->first + (data->n < checked ? data->n : checked);
    if (data->source.image.classes > (data->bytes_each == 1 ? UINT8_MAX : UINT16_MAX)) return MM_OK;
    for (int64_t at = data->first; at < end; at += most) {
        const int64_t rest = end - at, n = rest < most ? rest : most;
        MM_TRY(read_at(data, at, n, raw));
        for (int64_t i = 0; i < n; i++) MM_TRY(check_token(data, at + i, token_at(data, raw, i)));
    }
    return MM_OK;
}

static mm_status check_network(const tokens *data, const nets_reader_options *options) {
    const nets_image_shape *wanted = &options->wanted;
    const int64_t labels = options->label_map[0] ? options->label_map[0] * options->label_map[1] : 1;
    if (wanted->tokens && wanted->height == 1 && wanted->channels == 1 && labels == wanted->width) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "%s: has tokens, each with a label; the network takes %lldx%lldx%lld and %lld labels", data->path,
                   (long long)wanted->height, (long long)wanted->width, (long long)wanted->channels, (long long)labels);
}

/* Divides the file's tokens into training and test. */
static mm_status split(tokens *data, int64_t all, const nets_reader_options *options) {
    const int64_t test = all / TEST_SHARE, context = options->wanted.width;
    const bool is_test = options->split == NETS_SPLIT_TEST;
    data->first = is_test ? all - test : 0;
    data->n = is_test ? test : all - test;
    data->source.samples = data->n > 0 ? (data->n - 1) / context : 0;
    if (data->source.samples < 1)
        return mm_fail(
            MM_ERR_INVALID,
            "%s: has %lld tokens, of which %s takes %lld: too short for a context of %lld and one token more",
            data->path, (long long)all, is_test ? "evaluation" : "training", (long long)data->n, (long long)context);
    if (data->source.samples > NETS_SAMPLES_MOST)
        return mm_fail(MM_ERR_FORMAT, "%s: has %lld samples, must be at most %d", data->path,
                       (long long)data->source.samples, NETS_SAMPLES_MOST);
    return MM_OK;
}

static mm_status open_file(tokens *data, const nets_reader_options *options) {
    struct stat file;
    data->fd = open(data->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (data->fd < 0 || fstat(data->fd, &file) != 0)
        return mm_fail(MM_ERR_IO, "cannot read %s: %s%s", data->path, strerror(errno),
                       MM_DID_YOU_MEAN_FILE(data->path));
    if (!S_ISREG(file.st_mode)) return mm_fail(MM_ERR_IO, "cannot read %s: not a regular file", data->path);
    if (file.st_size % data->bytes_each != 0)
        return mm_fail(MM_ERR_FORMAT, "%s: has %lld bytes, must be of 16-bit tokens", data->path,
                       (long long)file.st_size);
    MM_TRY(check_network(data, options));
    data->source.image = options->wanted;
    MM_TRY(split(data, file.st_size / data->bytes_each, options));
    MM_TRY(check_tokens(data));
    data->raw = malloc((size_t)((options->wanted.width + 1) * data->bytes_each));
    return data->raw ? MM_OK : mm_fail(MM_ERR_NOMEM, "%s: no memory for a sample", data->path);
}

static void tokens_close(nets_source *source) {
    tokens *data = (tokens *)source;
    if (data->fd >= 0) close(data->fd);
    free(data->raw);
    free(data->path);
    free(data);
}

static mm_status open_tokens(const nets_source_ops *ops, int64_t bytes_each, const char *argument,
                             const nets_reader_options *options, nets_source **source_out) {
    if (!argument || !*argument) return mm_fail(MM_ERR_INVALID, "%s: must be a path: %s", ops->name, ops->usage);
    tokens *data = calloc(1, sizeof *data);
    if (data) *data = (tokens){.source.ops = ops, .fd = -1, .bytes_each = bytes_each, .path = strdup(argument)};
    if (!data || !data->path) {
        free(data);
        return mm_fail(MM_ERR_NOMEM, "%s: no memory for the reader", ops->name);
    }
    const mm_status status = open_file(data, options);
    if (status == MM_OK)
        *source_out = &data->source;
    else
        tokens_close(&data->source);
    return status;
}

static mm_status text_open(const char *argument, const nets_reader_options *options, nets_source **source_out) {
    return open_tokens(&nets_source_text, 1, argument, options, source_out);
}

static mm_status numbers_open(const char *argument, const nets_reader_options *options, nets_source **source_out) {
    return open_tokens(&nets_source_tokens, 2, argument, options, source_out);
}

/* Checks the tokens again, since the file may have changed since it was opened. */
static mm_status tokens_read_map(nets_source *source, int64_t index, const int64_t map[2], float *image_out,
                                 int32_t *labels_out) {
    const tokens *data = (const tokens *)source;
    const int64_t context = source->image.width, first = data->first + index * context;
    (void)map;
    MM_TRY(read_at(data, first, context + 1, data->raw));
    for (int64_t i = 0; i <= context; i++) {
        const int32_t token = token_at(data, data->raw, i);
        MM_TRY(check_token(data, first + i, token));
        if (i < context) image_out[i] = (float)token;
        if (i > 0) labels_out[i - 1] = token;
    }
    return MM_OK;
}

/* A context of one token, which has one label: check_network refuses other samples of one label. */
static mm_status tokens_read(nets_source *source, int64_t index, float *image_out, int32_t *label_out) {
    return tokens_read_map(source, index, (const int64_t[2]){1, 1}, image_out, label_out);
}

const nets_source_ops nets_source_text = {
    .name = "text",
    .usage = "text:FILE",
    .open = text_open,
    .read = tokens_read,
    .read_map = tokens_read_map,
    .close = tokens_close,
};

const nets_source_ops nets_source_tokens = {
    .name = "tokens",
    .usage = "tokens:FILE",
    .open = numbers_open,
    .read = tokens_read,
    .read_map = tokens_read_map,
    .close = tokens_close,
};
