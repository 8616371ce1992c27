/* SPDX-License-Identifier: MIT */
/* IDX: a magic number 0x000008RR, with RR the number of dimensions; the dimensions, 32 bits each; all big endian. Then
 * the bytes. */
#include "nets/io/idx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK_BYTES = 1 << 16, UNSIGNED_BYTES = 0x08, WORD_BYTES = 4, GZIP_WINDOW = 16 + MAX_WBITS };

typedef struct input {
    const char *path;
    int fd;
    bool gzip, ended; /* ended: all content was taken */
    z_stream stream;  /* for a plain file it has only the positions in `chunk` and in the output */
    uint8_t header[WORD_BYTES * (1 + NETS_IDX_MAX_RANK)];
    uint8_t chunk[CHUNK_BYTES];
} input;

/* Reads the next chunk if this one is used up; at the file's end the chunk stays empty. */
static mm_status chunk_fill(input *in) {
    if (in->stream.avail_in > 0) return MM_OK;
    ssize_t got;
    do got = read(in->fd, in->chunk, sizeof in->chunk);
    while (got < 0 && errno == EINTR);
    if (got < 0) return mm_fail(MM_ERR_IO, "cannot read %s: %s", in->path, strerror(errno));
    in->stream.next_in = in->chunk;
    in->stream.avail_in = (uInt)got;
    return MM_OK;
}

static mm_status input_open(const char *path, input *in) {
    struct stat info;
    *in = (input){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (in->fd < 0 || fstat(in->fd, &info) != 0) return mm_fail(MM_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return mm_fail(MM_ERR_IO, "cannot read %s: not a regular file", path);
    MM_TRY(chunk_fill(in));
    if (in->stream.avail_in < 2 || in->chunk[0] != 0x1f || in->chunk[1] != 0x8b) return MM_OK;
    if (inflateInit2(&in->stream, GZIP_WINDOW) != Z_OK) return mm_fail(MM_ERR_NOMEM, "%s: no memory for zlib", path);
    in->gzip = true;
    return MM_OK;
}

static void input_close(input *in) {
    if (in->gzip) inflateEnd(&in->stream);
    if (in->fd >= 0) close(in->fd);
}

/* Moves content from the chunk to the output, until either is used up. */
static mm_status move(input *in) {
    z_stream *s = &in->stream;
    if (in->gzip) {
        const int result = inflate(s, Z_NO_FLUSH);
        in->ended = result == Z_STREAM_END;
        if (in->ended || result == Z_OK || result == Z_BUF_ERROR) return MM_OK;
        return mm_fail(MM_ERR_FORMAT, "%s: its gzip data is damaged: %s", in->path, s->msg ? s->msg : "");
    }
    const uInt n = s->avail_in < s->avail_out ? s->avail_in : s->avail_out;
    memcpy(s->next_out, s->next_in, n);
    s->next_in += n;
    s->avail_in -= n;
    s->next_out += n;
    s->avail_out -= n;
    return MM_OK;
}

/* Takes n bytes of content, or as many as there are. */
static mm_status take(input *in, size_t n, uint8_t *bytes_out, size_t *taken_out) {
    in->stream.next_out = bytes_out;
    in->stream.avail_out = (uInt)n;
    while (in->stream.avail_out > 0 && !in->ended) {
        MM_TRY(chunk_fill(in));
        if (in->stream.avail_in > 0)
            MM_TRY(move(in));
        else if (in->gzip)
            return mm_fail(MM_ERR_FORMAT, "%s: ends within its gzip data", in->path);
        else
            in->ended = true;
    }
    *taken_out = n - in->stream.avail_out;
    return MM_OK;
}

static uint32_t word_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void shape_text(int rank, const int64_t dims[], char text_out[static 64]) {
    int length = 0;
    for (int i = 0; i < rank; i++)
        length += snprintf(text_out + length, (size_t)(64 - length), "%s%lld", i ? "x" : "", (long long)dims[i]);
}

static mm_status header_take(input *in, int rank, const int64_t dims[]) {
    const uint8_t *header = in->header;
    const size_t n_bytes = (size_t)(WORD_BYTES * (1 + rank));
    const uint32_t magic = UNSIGNED_BYTES << 8 | (uint32_t)rank;
    size_t taken;
    MM_TRY(take(in, n_bytes, in->header, &taken));
    if (taken < n_bytes) return mm_fail(MM_ERR_FORMAT, "%s: ends after %zu bytes, within its header", in->path, taken);
    if (word_at(header) != magic)
        return mm_fail(MM_ERR_FORMAT, "%s: begins with 0x%08x, must begin with 0x%08x: bytes in %d dimensions",
                       in->path, word_at(header), magic, rank);
    int64_t found[NETS_IDX_MAX_RANK];
    bool same = true;
    for (int i = 0; i < rank; i++) {
        found[i] = word_at(header + (size_t)(WORD_BYTES * (1 + i)));
        same &= found[i] == dims[i];
    }
    if (same) return MM_OK;
    char found_text[64], text[64];
    shape_text(rank, found, found_text);
    shape_text(rank, dims, text);
    return mm_fail(MM_ERR_FORMAT, "%s: holds %s bytes, must hold %s", in->path, found_text, text);
}

static mm_status array_take(input *in, int rank, const int64_t dims[], uint8_t *bytes_out) {
    size_t n_bytes = 1, taken;
    for (int i = 0; i < rank; i++) n_bytes *= (size_t)dims[i];
    MM_TRY(header_take(in, rank, dims));
    MM_TRY(take(in, n_bytes, bytes_out, &taken));
    if (taken < n_bytes) return mm_fail(MM_ERR_FORMAT, "%s: ends after %zu of its %zu bytes", in->path, taken, n_bytes);
    MM_TRY(take(in, 1, in->header, &taken));
    MM_TRY(chunk_fill(in)); /* finds bytes behind the end of a gzip stream, too */
    if (taken > 0 || in->stream.avail_in > 0)
        return mm_fail(MM_ERR_FORMAT, "%s: goes on behind its %zu bytes", in->path, n_bytes);
    return MM_OK;
}

mm_status nets_idx_read(const char *path, int rank, const int64_t dims[], uint8_t *bytes_out) {
    input in;
    mm_status status = input_open(path, &in);
    if (status == MM_OK) status = array_take(&in, rank, dims, bytes_out);
    input_close(&in);
    return status;
}
