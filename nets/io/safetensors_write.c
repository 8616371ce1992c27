/* SPDX-License-Identifier: MIT */
#include "nets/io/safetensors.h"

#include "mm/core/atomic_file.h"
#include "mm/core/json_text.h"
#include "mm/core/status.h"
#include "nets/io/safetensors_header.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_ALIGN 8

struct nets_safetensors_builder {
    json_t *metadata;
    json_t *names; /* a set */
    nets_safetensors_tensor *tensors;
    int64_t n_tensors, capacity;
    int64_t data_bytes;
};

mm_status nets_safetensors_builder_create(nets_safetensors_builder **builder_out) {
    nets_safetensors_builder *builder = calloc(1, sizeof *builder);
    if (builder) {
        builder->metadata = json_object();
        builder->names = json_object();
    }
    if (!builder || !builder->metadata || !builder->names) {
        nets_safetensors_builder_destroy(builder);
        return mm_fail(MM_ERR_NOMEM, "safetensors: no memory");
    }
    *builder_out = builder;
    return MM_OK;
}

void nets_safetensors_builder_destroy(nets_safetensors_builder *builder) {
    if (!builder) return;
    for (int64_t i = 0; i < builder->n_tensors; i++) free((char *)builder->tensors[i].name);
    free(builder->tensors);
    json_decref(builder->metadata);
    json_decref(builder->names);
    free(builder);
}

/* Puts a member into a set, or a text under its key; refuses what JSON cannot hold. The caller sets errno to 0 before
 * it makes the value. */
static mm_status json_put(json_t *object, const char *key, json_t *value) {
    if (value && json_object_set_new(object, key, value) == 0) return MM_OK;
    if (errno == ENOMEM) return mm_fail(MM_ERR_NOMEM, "safetensors: no memory for %.64s", key);
    return mm_fail(MM_ERR_INVALID, "safetensors: %.64s: the name or text is not UTF-8", key);
}

static mm_status room_for_one(nets_safetensors_builder *builder) {
    if (builder->n_tensors < builder->capacity) return MM_OK;
    int64_t capacity = builder->capacity ? 2 * builder->capacity : 64;
    void *grown = realloc(builder->tensors, (size_t)capacity * sizeof *builder->tensors);
    if (!grown) return mm_fail(MM_ERR_NOMEM, "safetensors: no memory for %lld tensors", (long long)capacity);
    builder->tensors = grown;
    builder->capacity = capacity;
    return MM_OK;
}

mm_status nets_safetensors_add(nets_safetensors_builder *builder, const nets_safetensors_tensor *tensor) {
    int64_t bytes, data_bytes;
    MM_TRY(nets_safetensors_bytes(tensor, &bytes));
    if (__builtin_add_overflow(builder->data_bytes, bytes, &data_bytes))
        return mm_fail(MM_ERR_INVALID, "safetensors: too many bytes with tensor %s", tensor->name);
    if (strcmp(tensor->name, NETS_SAFETENSORS_METADATA) == 0 || json_object_get(builder->names, tensor->name))
        return mm_fail(MM_ERR_INVALID, "safetensors: the name %s is taken", tensor->name);
    MM_TRY(room_for_one(builder));
    char *name = strdup(tensor->name);
    if (!name) return mm_fail(MM_ERR_NOMEM, "safetensors: no memory for tensor %s", tensor->name);
    errno = 0;
    mm_status status = json_put(builder->names, name, json_true());
    if (status != MM_OK) {
        free(name);
        return status;
    }
    builder->tensors[builder->n_tensors] = *tensor;
    builder->tensors[builder->n_tensors].name = name;
    builder->n_tensors++;
    builder->data_bytes = data_bytes;
    return MM_OK;
}

mm_status nets_safetensors_add_metadata(nets_safetensors_builder *builder, const char *key, const char *text) {
    errno = 0;
    return json_put(builder->metadata, key, json_string(text));
}

/* ---------------------------------------------------------------- the header */

static int compare_tensors(const void *a, const void *b) {
    const nets_safetensors_tensor *x = a, *y = b;
    int64_t x_bytes = nets_safetensors_dtype_bytes(x->dtype), y_bytes = nets_safetensors_dtype_bytes(y->dtype);
    return x_bytes != y_bytes ? (x_bytes > y_bytes ? -1 : 1) : strcmp(x->name, y->name);
}

static json_t *entry_make(const nets_safetensors_tensor *tensor, int64_t begin, int64_t end) {
    json_t *shape = json_array();
    for (int i = 0; shape && i < tensor->rank; i++)
        if (json_array_append_new(shape, json_integer(tensor->dims[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", nets_safetensors_dtype_name(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* The header's text for tensors in their final order; NULL if memory ran out. */
static char *header_text(const nets_safetensors_builder *builder) {
    json_t *header = json_object();
    int failed = !header;
    if (!failed && json_object_size(builder->metadata))
        failed = json_object_set(header, NETS_SAFETENSORS_METADATA, builder->metadata) != 0;
    for (int64_t i = 0, at = 0; !failed && i < builder->n_tensors; i++) {
        int64_t bytes;
        failed = nets_safetensors_bytes(&builder->tensors[i], &bytes) != MM_OK ||
                 json_object_set_new(header, builder->tensors[i].name,
                                     entry_make(&builder->tensors[i], at, at + bytes)) != 0;
        at += bytes;
    }
    char *text = failed ? NULL : mm_json_print(header, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(header);
    return text;
}

/* ---------------------------------------------------------------- the file */

static mm_status write_header(mm_atomic_file *file, const char *text) {
    static const char spaces[HEADER_ALIGN + 1] = "        ";
    size_t length = strlen(text), padding = (HEADER_ALIGN - length % HEADER_ALIGN) % HEADER_ALIGN;
    uint64_t padded = length + padding;
    if (padded > NETS_SAFETENSORS_MAX_HEADER_BYTES)
        return mm_fail(MM_ERR_INVALID, "%s: its header would have %zu bytes, at most %d are allowed", file->path,
                       length, NETS_SAFETENSORS_MAX_HEADER_BYTES);
    MM_TRY(mm_atomic_file_write(file, &padded, sizeof padded));
    MM_TRY(mm_atomic_file_write(file, text, (int64_t)length));
    return mm_atomic_file_write(file, spaces, (int64_t)padding);
}

/* Where the data of tensors without data comes from. */
typedef struct origin {
    nets_safetensors_fetch fetch;
    void *ctx, *piece;
    int64_t piece_bytes;
} origin;

/* file NULL: the data is only fetched. */
static mm_status write_tensor(const nets_safetensors_tensor *tensor, const origin *from, mm_atomic_file *file) {
    int64_t bytes;
    MM_TRY(nets_safetensors_bytes(tensor, &bytes));
    if (tensor->data) return file ? mm_atomic_file_write(file, tensor->data, bytes) : MM_OK;
    for (int64_t at = 0; at < bytes; at += from->piece_bytes) {
        int64_t n = bytes - at < from->piece_bytes ? bytes - at : from->piece_bytes;
        MM_TRY(from->fetch(from->ctx, tensor, at, from->piece, n));
        if (file) MM_TRY(mm_atomic_file_write(file, from->piece, n));
    }
    return MM_OK;
}

static mm_status write_tensors(const nets_safetensors_builder *builder, const origin *from, mm_atomic_file *file) {
    for (int64_t i = 0; i < builder->n_tensors; i++) MM_TRY(write_tensor(&builder->tensors[i], from, file));
    return MM_OK;
}

static mm_status write_all(const nets_safetensors_builder *builder, const char *text, const origin *from,
                           mm_atomic_file *file) {
    MM_TRY(write_header(file, text));
    return write_tensors(builder, from, file);
}

static mm_status write_file(nets_safetensors_builder *builder, const origin *from, const char *path) {
    if (builder->n_tensors)
        qsort(builder->tensors, (size_t)builder->n_tensors, sizeof *builder->tensors, compare_tensors);
    if (!path) return write_tensors(builder, from, NULL);
    char *text = header_text(builder);
    if (!text) return mm_fail(MM_ERR_NOMEM, "%s: no memory for its header", path);
    mm_atomic_file file;
    mm_status status = mm_atomic_file_create(path, &file);
    if (status == MM_OK) {
        status = write_all(builder, text, from, &file);
        if (status == MM_OK)
            status = mm_atomic_file_commit(&file);
        else
            mm_atomic_file_abandon(&file);
    }
    free(text);
    return status;
}

static mm_status no_data(void *ctx, const nets_safetensors_tensor *tensor, int64_t offset, void *data_out,
                         int64_t bytes) {
    (void)ctx, (void)offset, (void)data_out, (void)bytes;
    return mm_fail(MM_ERR_INVALID, "safetensors: tensor %s has no data", tensor->name);
}

mm_status nets_safetensors_write(nets_safetensors_builder *builder, const char *path) {
    const origin none = {.fetch = no_data, .piece_bytes = INT64_MAX};
    return write_file(builder, &none, path);
}

mm_status nets_safetensors_write_from(nets_safetensors_builder *builder, const char *path, int64_t piece_bytes,
                                      nets_safetensors_fetch fetch, void *ctx) {
    const origin from = {fetch, ctx, malloc((size_t)piece_bytes), piece_bytes};
    if (!from.piece) return mm_fail(MM_ERR_NOMEM, "%s: no memory to write it", path ? path : "a state");
    mm_status status = write_file(builder, &from, path);
    free(from.piece);
    return status;
}
