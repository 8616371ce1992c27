/* SPDX-License-Identifier: MIT */
#include "mm/core/json_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/nearest.h"

/* Bytes that jansson 2.14 takes, with malloc's own: for an object and its first buckets; for an array and its first
 * elements; for a key with its share of buckets, while these double; for an element's place, while the array doubles,
 * and a number or a short text. A text's bytes count, too. */
enum { OBJECT_BYTES = 224, ARRAY_BYTES = 128, KEY_BYTES = 144, ELEMENT_BYTES = 104 };

/* At least the bytes of memory that jansson takes for the values of a text. */
static int64_t bytes_of(const char *text, size_t n) {
    int64_t bytes = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        bytes += c == ',' ? ELEMENT_BYTES : c == ':' ? KEY_BYTES : c == '{' ? OBJECT_BYTES : c == '[' ? ARRAY_BYTES : 0;
    }
    return bytes;
}

/* ---------------------------------------------------------------- parse and print */

/* Whether there is so much memory: jansson crashes if it runs out while it parses. */
static bool is_there(int64_t bytes) {
    void *memory = malloc((size_t)bytes);
    free(memory);
    return memory != NULL;
}

/* malloc sets errno if it fails, and nothing else in jansson sets it to ENOMEM. */
mm_status mm_json_parse(const char *text, size_t n, size_t flags, json_t **root_out, json_error_t *error_out) {
    const int64_t bytes = bytes_of(text, n);
    if (bytes > MM_JSON_MOST_BYTES) {
        *error_out = (json_error_t){.line = 1};
        snprintf(error_out->text, sizeof error_out->text, "its values would take more than %lld MiB of memory",
                 (long long)(MM_JSON_MOST_BYTES >> 20));
        return MM_ERR_FORMAT;
    }
    if (!is_there(bytes)) return MM_ERR_NOMEM;
    errno = 0;
    json_t *root = json_loadb(text, n, flags, error_out);
    const bool lacks_memory = errno == ENOMEM;
    if (root && !lacks_memory) {
        *root_out = root;
        return MM_OK;
    }
    json_decref(root);
    return lacks_memory ? MM_ERR_NOMEM : MM_ERR_FORMAT;
}

char *mm_json_print(const json_t *json, size_t flags) {
    errno = 0;
    char *text = json_dumps(json, flags);
    if (errno != ENOMEM) return text;
    free(text);
    return NULL;
}

/* ---------------------------------------------------------------- files */

static mm_status cannot_read(const char *what, const char *path, int error) {
    errno = error; /* for the hint */
    const char *hint = MM_DID_YOU_MEAN_FILE(path);
    return mm_fail(error == ENOMEM ? MM_ERR_NOMEM : MM_ERR_IO, "%s%s: cannot be read: %s%s", what, path,
                   strerror(error), hint);
}

/* The longest text. Chosen: any value of a file takes more memory than it has characters, but for long texts. */
enum { TEXT_MOST = 256 << 20 };

/* Reads the file up to its end, or beyond TEXT_MOST bytes. *error_out: 0, or why not, as errno. */
static char *read_all(FILE *file, size_t *n_out, int *error_out) {
    size_t n = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    while (text) {
        n += fread(text + n, 1, capacity - n, file);
        *error_out = ferror(file) ? errno : 0;
        if (n < capacity || n > TEXT_MOST) {
            *n_out = n;
            return text;
        }
        char *grown = realloc(text, capacity *= 2);
        if (!grown) free(text);
        text = grown;
    }
    *error_out = ENOMEM;
    return NULL;
}

mm_status mm_json_read(const char *what, const char *path, size_t flags, json_t **root_out) {
    FILE *file = fopen(path, "rbe");
    if (!file) return cannot_read(what, path, errno);
    const mm_status status = mm_json_read_stream(what, path, file, flags, root_out);
    fclose(file);
    return status;
}

mm_status mm_json_read_stream(const char *what, const char *path, FILE *file, size_t flags, json_t **root_out) {
    json_error_t error;
    size_t n = 0;
    int why;
    char *text = read_all(file, &n, &why);
    mm_status status = why ? cannot_read(what, path, why)
                       : n > TEXT_MOST
                           ? mm_fail(MM_ERR_FORMAT, "%s%s: has more than %d MiB", what, path, TEXT_MOST >> 20)
                           : MM_OK;
    const bool whole = status == MM_OK;
    if (whole) status = mm_json_parse(text, n, flags, root_out, &error);
    free(text);
    if (!whole || status == MM_OK) return status;
    if (status == MM_ERR_NOMEM) return mm_fail(status, "out of memory for %s%s", what, path);
    return mm_fail(status, "%s%s, line %d: %s", what, path, error.line, error.text);
}
