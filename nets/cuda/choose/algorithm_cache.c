/* SPDX-License-Identifier: MIT */
#include "nets/cuda/choose/algorithm_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/hash.h"
#include "mm/core/log.h"

/* What a line of the file states. */
typedef struct nets_cached_choice {
    char device[128];
    int precision;
    nets_conv_terms terms;
    nets_conv_shape shape;
    nets_conv_pareto front;
} nets_cached_choice;

enum { SHAPE_NUMBERS = sizeof(nets_conv_shape) / sizeof(int), LINE_CAPACITY = 8192 };
_Static_assert(sizeof(nets_conv_shape) == 21 * sizeof(int), "a shape is read and written as its numbers");

static const char HEADER[] = "mm: algorithms of convolutions, 8\n";

/* ---------------------------------------------------------------- text */

static int format_number(char line[LINE_CAPACITY], int at, int64_t number) {
    return at + snprintf(line + at, (size_t)(LINE_CAPACITY - at), " %" PRId64, number);
}

static int format_choice(const nets_conv_choice *c, char line[LINE_CAPACITY], int at) {
    at = format_number(line, at, c->api);
    at = format_number(line, at, c->algorithm);
    at = format_number(line, at, c->math);
    at = format_number(line, at, c->workspace_bytes);
    at = format_number(line, at, c->ns);
    at = format_number(line, at, c->n_knobs);
    for (int i = 0; i < c->n_knobs; i++) {
        at = format_number(line, at, c->knobs[i].type);
        at = format_number(line, at, c->knobs[i].value);
    }
    return at;
}

/* A line takes at most 6500 bytes: the device's name, and all numbers with all their digits. */
static int format_line(const nets_cached_choice *k, char line[LINE_CAPACITY]) {
    const int *numbers = (const int *)&k->shape;
    int at = snprintf(line, LINE_CAPACITY, "%s", k->device);
    at = format_number(line, at, k->precision);
    at = format_number(line, at, k->terms.deterministic);
    at = format_number(line, at, k->terms.limit_bytes);
    at = format_number(line, at, k->terms.tensor_core_limit_bytes);
    for (int i = 0; i < SHAPE_NUMBERS; i++) at = format_number(line, at, numbers[i]);
    at = format_number(line, at, k->front.n);
    for (int i = 0; i < k->front.n; i++) at = format_choice(&k->front.of[i], line, at);
    return at + snprintf(line + at, (size_t)(LINE_CAPACITY - at), "\n");
}

static bool read_number(const char **at, int64_t least, int64_t most, int64_t *number_out) {
    char *end;
    errno = 0;
    long long number = strtoll(*at, &end, 10);
    if (end == *at || errno || number < least || number > most) return false;
    *number_out = number;
    *at = end;
    return true;
}

static bool read_int(const char **at, int *number_out) {
    int64_t number;
    if (!read_number(at, 0, INT32_MAX, &number)) return false;
    *number_out = (int)number;
    return true;
}

static bool read_choice(const char **at, nets_conv_choice *c) {
    if (!read_int(at, &c->api) || !read_int(at, &c->algorithm) || !read_int(at, &c->math) ||
        !read_number(at, 0, INT64_MAX, &c->workspace_bytes) || !read_number(at, 0, INT64_MAX, &c->ns) ||
        !read_int(at, &c->n_knobs) || c->n_knobs > NETS_CONV_KNOBS)
        return false;
    for (int i = 0; i < c->n_knobs; i++)
        if (!read_int(at, &c->knobs[i].type) || !read_number(at, INT64_MIN, INT64_MAX, &c->knobs[i].value))
            return false;
    return true;
}

static bool read_front(const char **at, nets_conv_pareto *front) {
    if (!read_int(at, &front->n) || front->n < 1 || front->n > NETS_WORKSPACES) return false;
    for (int i = 0; i < front->n; i++) {
        const nets_conv_choice *before = i ? &front->of[i - 1] : NULL, *c = &front->of[i];
        if (!read_choice(at, &front->of[i])) return false;
        if (before && (c->workspace_bytes >= before->workspace_bytes || c->ns <= before->ns)) return false;
    }
    return true;
}

static bool read_terms(const char **at, nets_conv_terms *terms) {
    int64_t deterministic;
    if (!read_number(at, 0, 1, &deterministic) || !read_number(at, 0, INT64_MAX, &terms->limit_bytes) ||
        !read_number(at, 0, INT64_MAX, &terms->tensor_core_limit_bytes))
        return false;
    terms->deterministic = deterministic == 1;
    return true;
}

/* Accepts exactly what format_line writes. */
static bool parse_line(const char *line, nets_cached_choice *k) {
    size_t length = strcspn(line, " ");
    if (length == 0 || length >= sizeof k->device) return false;
    memset(k, 0, sizeof *k);
    memcpy(k->device, line, length);
    const char *at = line + length;
    int *numbers = (int *)&k->shape;
    if (!read_int(&at, &k->precision) || !read_terms(&at, &k->terms)) return false;
    for (int i = 0; i < SHAPE_NUMBERS; i++)
        if (!read_int(&at, &numbers[i])) return false;
    if (!read_front(&at, &k->front)) return false;
    char again[LINE_CAPACITY];
    int written = format_line(k, again);
    return strncmp(again, line, (size_t)written) == 0;
}

/* ---------------------------------------------------------------- list */

static bool same_terms(const nets_conv_terms *a, const nets_conv_terms *b) {
    return a->deterministic == b->deterministic && a->limit_bytes == b->limit_bytes &&
           a->tensor_core_limit_bytes == b->tensor_core_limit_bytes;
}

static bool same_key(const nets_cached_choice *a, const nets_cached_choice *b) {
    return strcmp(a->device, b->device) == 0 && a->precision == b->precision && same_terms(&a->terms, &b->terms) &&
           memcmp(&a->shape, &b->shape, sizeof a->shape) == 0;
}

static mm_status append(nets_algorithm_cache *choices, const nets_cached_choice *k) {
    if (choices->n == choices->capacity) {
        int capacity = choices->capacity ? 2 * choices->capacity : 64;
        nets_cached_choice *more = realloc(choices->kept, (size_t)capacity * sizeof *more);
        if (!more) return mm_fail(MM_ERR_NOMEM, "no memory for the choice of %d algorithms", capacity);
        choices->kept = more;
        choices->capacity = capacity;
    }
    choices->kept[choices->n++] = *k;
    return MM_OK;
}

/* Where in the text the last line begins; 0: its count or checksum is wrong. *n_out: the number of lines it states. */
static size_t check_end(const char *text, size_t length, int *n_out) {
    size_t last = length;
    if (length < sizeof HEADER || text[length - 1] != '\n' || strlen(text) != length) return 0;
    for (last--; last > 0 && text[last - 1] != '\n';) last--;
    char expected[64];
    if (sscanf(text + last, "end %d", n_out) != 1 || *n_out < 0) return 0;
    snprintf(expected, sizeof expected, "end %d %016" PRIx64 "\n", *n_out, mm_hash_bytes(MM_HASH_BEGIN, text, last));
    return strcmp(text + last, expected) == 0 ? last : 0;
}

/* MM_ERR_INVALID: the text is not what write_file wrote. */
static mm_status parse(nets_algorithm_cache *choices, const char *text, size_t length) {
    int n;
    size_t end = check_end(text, length, &n);
    if (!end || strncmp(text, HEADER, sizeof HEADER - 1) != 0)
        return mm_fail(MM_ERR_INVALID, "it is truncated, damaged or not a file of algorithms");
    for (size_t at = sizeof HEADER - 1; at < end; at += strcspn(text + at, "\n") + 1) {
        nets_cached_choice k;
        if (!parse_line(text + at, &k)) return mm_fail(MM_ERR_INVALID, "its line at byte %zu cannot be read", at);
        MM_TRY(append(choices, &k));
    }
    return choices->n == n ? MM_OK : mm_fail(MM_ERR_INVALID, "it has %d lines instead of %d", choices->n, n);
}

/* Chosen: thousands of lines, far more than any networks have; each is read in time that grows with what follows. */
enum { TEXT_MOST = 1 << 20 };

static mm_status read_all(FILE *file, char **text_out, size_t *length_out) {
    char *text = NULL;
    size_t length = 0, capacity = 0, got = 1;
    while (got > 0) {
        if (capacity - length < 2) {
            char *more = realloc(text, capacity = 2 * capacity + (1 << 14));
            if (!more) {
                free(text);
                return mm_fail(MM_ERR_NOMEM, "no memory to read it");
            }
            text = more;
        }
        got = fread(text + length, 1, capacity - length - 1, file);
        length += got;
        if (length > TEXT_MOST) {
            free(text);
            return mm_fail(MM_ERR_INVALID, "it has more than %d KiB", TEXT_MOST >> 10);
        }
    }
    text[length] = '\0';
    *text_out = text;
    *length_out = length;
    return MM_OK;
}

/* A missing file counts as empty. */
static mm_status read_file(nets_algorithm_cache *choices) {
    FILE *file = fopen(choices->path, "rb");
    char *text;
    size_t length;
    if (!file && errno == ENOENT) return MM_OK;
    if (!file) return mm_fail(MM_ERR_IO, "it cannot be read: %s", strerror(errno));
    mm_status status = read_all(file, &text, &length);
    fclose(file);
    MM_TRY(status);
    status = parse(choices, text, length);
    free(text);
    return status;
}

static mm_status write_file(const nets_algorithm_cache *choices) {
    size_t size = sizeof HEADER + (size_t)choices->n * LINE_CAPACITY + 64, length = sizeof HEADER - 1;
    char *text = malloc(size);
    if (!text) return mm_fail(MM_ERR_NOMEM, "no memory to write %d lines", choices->n);
    memcpy(text, HEADER, length);
    for (int i = 0; i < choices->n; i++) length += (size_t)format_line(&choices->kept[i], text + length);
    length += (size_t)snprintf(text + length, size - length, "end %d %016" PRIx64 "\n", choices->n,
                               mm_hash_bytes(MM_HASH_BEGIN, text, length));
    mm_status status = mm_atomic_file_save(choices->path, text, length);
    free(text);
    return status;
}

/* ---------------------------------------------------------------- the cache */

mm_status nets_algorithm_cache_init(nets_algorithm_cache *choices, const nets_backend_config *config,
                                    const char *device) {
    *choices = (nets_algorithm_cache){.precision = config->precision, .log = config->log};
    snprintf(choices->device, sizeof choices->device, "%s", device);
    if (!config->algorithms_path) return MM_OK;
    choices->path = strdup(config->algorithms_path);
    if (!choices->path) return mm_fail(MM_ERR_NOMEM, "no memory for a file's name");
    mm_status status = read_file(choices);
    if (status == MM_OK) return MM_OK;
    if (status == MM_ERR_NOMEM) {
        nets_algorithm_cache_fini(choices);
        return status;
    }
    choices->n = 0;
    mm_log_send(&choices->log, MM_LOG_WARNING, "%s: %s; algorithms are chosen anew", choices->path, mm_last_error());
    return MM_OK;
}

void nets_algorithm_cache_fini(nets_algorithm_cache *choices) {
    free(choices->kept);
    free(choices->path);
    *choices = (nets_algorithm_cache){0};
}

static nets_cached_choice key_of(const nets_algorithm_cache *choices, const nets_conv_shape *shape,
                                 const nets_conv_terms *terms) {
    nets_cached_choice key = {.precision = choices->precision, .terms = *terms, .shape = *shape};
    memcpy(key.device, choices->device, sizeof key.device);
    return key;
}

static nets_cached_choice *find(const nets_algorithm_cache *choices, const nets_conv_shape *shape,
                                const nets_conv_terms *terms) {
    nets_cached_choice key = key_of(choices, shape, terms);
    for (int i = 0; i < choices->n; i++) {
        if (!choices->device[0]) memcpy(key.device, choices->kept[i].device, sizeof key.device);
        if (same_key(&key, &choices->kept[i])) return &choices->kept[i];
    }
    return NULL;
}

const nets_conv_pareto *nets_algorithm_cache_find(const nets_algorithm_cache *choices, const nets_conv_shape *shape,
                                                  const nets_conv_terms *terms) {
    const nets_cached_choice *k = find(choices, shape, terms);
    return k ? &k->front : NULL;
}

mm_status nets_algorithm_cache_store(nets_algorithm_cache *choices, const nets_conv_shape *shape,
                                     const nets_conv_terms *terms, const nets_conv_pareto *front) {
    nets_cached_choice *k = find(choices, shape, terms), fresh = key_of(choices, shape, terms);
    fresh.front = *front;
    if (k)
        *k = fresh;
    else
        MM_TRY(append(choices, &fresh));
    if (choices->path && write_file(choices) != MM_OK)
        mm_log_send(&choices->log, MM_LOG_WARNING, "%s; the chosen algorithms are not saved", mm_last_error());
    return MM_OK;
}
