/* SPDX-License-Identifier: MIT */
/* A .npy file: "\x93NUMPY", a byte each of major and minor version, the header's length (2 bytes little endian in
 * version 1, 4 in version 2), the header, and the elements. The header is a dict as Python writes one:
 *
 *   {'descr': '|u1', 'fortran_order': False, 'shape': (100, 32, 32, 3), }
 *
 * Source: numpy.lib.format. */
#include "nets/io/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mm/core/nearest.h"

enum { MAGIC_BYTES = 6, MAX_HEADER_BYTES = 1 << 14 };

/* name and descr are NumPy's names of the type. */
static const struct {
    const char *name, *descr;
    int64_t bytes;
} TYPES[NETS_NPY_TYPES] = {[NETS_NPY_UINT8] = {"uint8", "|u1", 1},
                           [NETS_NPY_INT32] = {"int32", "<i4", 4},
                           [NETS_NPY_INT64] = {"int64", "<i8", 8}};

/* ---------------------------------------------------------------- the header's text */

typedef struct header {
    char descr[32];
    bool fortran_order;
    bool has_descr, has_order, has_shape;
} header;

static void skip_spaces(const char **at) { *at += strspn(*at, " \n\t"); }

static bool take(const char **at, const char *text) {
    skip_spaces(at);
    size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0) return false;
    *at += n;
    return true;
}

/* Takes 'text' or "text", without escapes. */
static bool take_text(const char **at, char *text_out, size_t capacity) {
    skip_spaces(at);
    char quote = **at;
    if (quote != '\'' && quote != '"') return false;
    const char *begin = ++*at, *end = strchr(begin, quote);
    if (!end || (size_t)(end - begin) >= capacity) return false;
    memcpy(text_out, begin, (size_t)(end - begin));
    text_out[end - begin] = '\0';
    *at = end + 1;
    return true;
}

static bool take_number(const char **at, int64_t *number_out) {
    skip_spaces(at);
    const char *begin = *at;
    int64_t number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, **at - '0', &number))
            return false;
    *number_out = number;
    return *at > begin;
}

/* Takes (), (5,), (5, 3), ...: up to NETS_NPY_MAX_RANK numbers. */
static bool take_shape(const char **at, nets_npy *npy) {
    if (!take(at, "(")) return false;
    for (npy->rank = 0; !take(at, ")"); npy->rank++) {
        if (npy->rank == NETS_NPY_MAX_RANK || !take_number(at, &npy->dims[npy->rank])) return false;
        if (!take(at, ",")) {
            npy->rank++;
            return take(at, ")");
        }
    }
    return true;
}

static bool take_item(const char **at, header *h, nets_npy *npy) {
    char key[32];
    if (!take_text(at, key, sizeof key) || !take(at, ":")) return false;
    if (strcmp(key, "descr") == 0) return h->has_descr = take_text(at, h->descr, sizeof h->descr);
    if (strcmp(key, "shape") == 0) return h->has_shape = take_shape(at, npy);
    if (strcmp(key, "fortran_order") != 0) return false;
    h->fortran_order = take(at, "True");
    return h->has_order = h->fortran_order || take(at, "False");
}

static bool parse_header(const char *at, header *h, nets_npy *npy) {
    if (!take(&at, "{")) return false;
    while (!take(&at, "}")) {
        if (!take_item(&at, h, npy)) return false;
        if (!take(&at, ",")) {
            if (!take(&at, "}")) return false;
            break;
        }
    }
    skip_spaces(&at);
    return !*at && h->has_descr && h->has_order && h->has_shape;
}

/* ---------------------------------------------------------------- the file */

static mm_status read_at(const nets_npy *npy, int64_t offset, int64_t n_bytes, void *bytes_out) {
    for (int64_t done = 0; done < n_bytes;) {
        ssize_t got = pread(npy->fd, (char *)bytes_out + done, (size_t)(n_bytes - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return mm_fail(MM_ERR_IO, "cannot read %s: %s", npy->path, strerror(errno));
        if (got == 0)
            return mm_fail(MM_ERR_IO, "%s: ends at byte %lld: it shrank while in use", npy->path,
                           (long long)(offset + done));
        done += got;
    }
    return MM_OK;
}

static mm_status not_npy(const char *path, const char *why) {
    return mm_fail(MM_ERR_FORMAT, "%s: is no .npy file of version 1 or 2: %s; numpy.save writes one", path, why);
}

/* Gives the header's text, and sets offset_bytes. `file_bytes`: size of the whole file. */
static mm_status read_header(nets_npy *npy, int64_t file_bytes, char text_out[MAX_HEADER_BYTES + 1]) {
    unsigned char begin[MAGIC_BYTES + 6];
    if (file_bytes < (int64_t)sizeof begin) return not_npy(npy->path, "it is too short");
    MM_TRY(read_at(npy, 0, sizeof begin, begin));
    if (memcmp(begin, "\x93NUMPY", MAGIC_BYTES) != 0) return not_npy(npy->path, "it does not begin like one");
    int major = begin[MAGIC_BYTES];
    if (major != 1 && major != 2) return not_npy(npy->path, "it is of another version");
    const unsigned char *length = begin + MAGIC_BYTES + 2;
    int64_t n_bytes = length[0] | length[1] << 8;
    if (major == 2) n_bytes |= (int64_t)length[2] << 16 | (int64_t)length[3] << 24;
    npy->offset_bytes = MAGIC_BYTES + 2 + (major == 1 ? 2 : 4) + n_bytes;
    if (n_bytes > MAX_HEADER_BYTES) return not_npy(npy->path, "its header is too long");
    if (npy->offset_bytes > file_bytes) return not_npy(npy->path, "it ends within its header");
    MM_TRY(read_at(npy, npy->offset_bytes - n_bytes, n_bytes, text_out));
    text_out[n_bytes] = '\0';
    return strlen(text_out) == (size_t)n_bytes ? MM_OK : not_npy(npy->path, "its header holds a zero");
}

const char *nets_npy_shape_text(const nets_npy *npy, char text_out[256]) {
    size_t at = 0;
    for (int d = 0; d < npy->rank; d++)
        at += (size_t)snprintf(text_out + at, 256 - at, "%s%lld", d ? ", " : "[", (long long)npy->dims[d]);
    snprintf(text_out + at, 256 - at, "%s", npy->rank ? "]" : "[]");
    return text_out;
}

static mm_status check_size(nets_npy *npy, int64_t file_bytes) {
    int64_t bytes = TYPES[npy->type].bytes, end;
    char shape[256];
    bool fits = true;
    npy->elems = 1;
    for (int d = 0; d < npy->rank; d++) fits &= !__builtin_mul_overflow(npy->elems, npy->dims[d], &npy->elems);
    fits = fits && !__builtin_mul_overflow(bytes, npy->elems, &bytes);
    fits = fits && !__builtin_add_overflow(npy->offset_bytes, bytes, &end);
    if (fits && end == file_bytes) return MM_OK;
    nets_npy_shape_text(npy, shape);
    if (!fits) return mm_fail(MM_ERR_FORMAT, "%s: its shape %s is too large for any file", npy->path, shape);
    return mm_fail(MM_ERR_FORMAT, "%s: has %lld bytes, its shape %s of %s takes %lld", npy->path, (long long)file_bytes,
                   shape, TYPES[npy->type].name, (long long)end);
}

/* Finds the type by its NumPy name. Bytes have no byte order, so the first character of the name is ignored for them.
 * */
static mm_status find_type(nets_npy *npy, const char *descr, unsigned types) {
    char list[128] = "";
    int last = -1;
    for (int t = 0; t < NETS_NPY_TYPES; t++) {
        if (!(types >> t & 1)) continue;
        const int skipped = t == NETS_NPY_UINT8 && *descr;
        if (strcmp(descr + skipped, TYPES[t].descr + skipped) == 0) {
            npy->type = (nets_npy_type)t;
            return MM_OK;
        }
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s ('%s')", at ? " or " : "", TYPES[t].name, TYPES[t].descr);
        last = t;
    }
    return mm_fail(MM_ERR_FORMAT, "%s: has elements of type '%s', must be %s: save array.astype('%s')", npy->path,
                   descr, list, TYPES[last].descr);
}

static mm_status read_all(nets_npy *npy, unsigned types) {
    struct stat info;
    char text[MAX_HEADER_BYTES + 1];
    header h = {0};
    if (fstat(npy->fd, &info) != 0) return mm_fail(MM_ERR_IO, "cannot read %s: %s", npy->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return mm_fail(MM_ERR_FORMAT, "%s: is no regular file", npy->path);
    MM_TRY(read_header(npy, info.st_size, text));
    if (!parse_header(text, &h, npy)) return not_npy(npy->path, "its header is not that of an array of numbers");
    MM_TRY(find_type(npy, h.descr, types));
    if (h.fortran_order)
        return mm_fail(MM_ERR_FORMAT,
                       "%s: is in Fortran order, must be in C order: save numpy.ascontiguousarray(array)", npy->path);
    return check_size(npy, info.st_size);
}

mm_status nets_npy_open(const char *path, unsigned types, nets_npy *npy_out) {
    nets_npy npy = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (npy.fd < 0)
        return mm_fail(MM_ERR_IO, "cannot read %s: %s%s", path, strerror(errno), MM_DID_YOU_MEAN_FILE(path));
    mm_status status = read_all(&npy, types);
    if (status == MM_OK)
        *npy_out = npy;
    else
        nets_npy_close(&npy);
    return status;
}

static mm_status read_elems(const nets_npy *npy, int64_t first, int64_t n, void *elems_out) {
    const int64_t bytes = TYPES[npy->type].bytes;
    return read_at(npy, npy->offset_bytes + first * bytes, n * bytes, elems_out);
}

mm_status nets_npy_read_bytes(const nets_npy *npy, int64_t first, int64_t n, uint8_t *elems_out) {
    return read_elems(npy, first, n, elems_out);
}

/* Reads the elements into the end of the numbers' own memory, and widens them from the first one on: element i is read
 * before number i is written over it. */
mm_status nets_npy_read_numbers(const nets_npy *npy, int64_t first, int64_t n, int64_t *elems_out) {
    const int64_t bytes = TYPES[npy->type].bytes;
    char *raw = (char *)elems_out + n * ((int64_t)sizeof *elems_out - bytes);
    MM_TRY(read_elems(npy, first, n, raw));
    for (int64_t i = 0; i < n && npy->type != NETS_NPY_INT64; i++) {
        int32_t value = (uint8_t)raw[i * bytes];
        if (npy->type == NETS_NPY_INT32) memcpy(&value, raw + i * bytes, sizeof value);
        elems_out[i] = value;
    }
    return MM_OK;
}

void nets_npy_close(nets_npy *npy) {
    if (npy->fd >= 0) close(npy->fd);
    npy->fd = -1;
}
