/* SPDX-License-Identifier: MIT */
/* The parser. It trusts nothing: a file may be damaged, cut short, or made to do harm. */
#include "nets/io/safetensors_header.h"

#include "mm/core/json_text.h"
#include "mm/core/status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8

static int64_t header_length(const uint8_t *bytes) {
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    return length > NETS_SAFETENSORS_MAX_HEADER_BYTES ? -1 : (int64_t)length;
}

static mm_status json_parse(const char *label, const uint8_t *bytes, int64_t n_bytes, json_t **json_out) {
    if (n_bytes < LENGTH_BYTES + 2)
        return mm_fail(MM_ERR_FORMAT, "%s: %lld bytes are too few for a safetensors file", label, (long long)n_bytes);
    int64_t length = header_length(bytes);
    if (length < 2 || length > n_bytes - LENGTH_BYTES || bytes[LENGTH_BYTES] != '{')
        return mm_fail(MM_ERR_FORMAT, "%s: not a safetensors file, or cut short (%lld bytes)", label,
                       (long long)n_bytes);
    json_error_t error;
    const mm_status status =
        mm_json_parse((const char *)bytes + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, json_out, &error);
    if (status == MM_ERR_NOMEM)
        return mm_fail(status, "%s: no memory for its header of %lld bytes", label, (long long)length);
    return status == MM_OK ? MM_OK : mm_fail(status, "%s: header, byte %d: %s", label, error.position, error.text);
}

static mm_status metadata_check(const char *label, json_t *metadata) {
    const char *key;
    json_t *text;
    if (!json_is_object(metadata)) return mm_fail(MM_ERR_FORMAT, "%s: its metadata is not an object", label);
    json_object_foreach(metadata, key, text) {
        if (!json_is_string(text)) return mm_fail(MM_ERR_FORMAT, "%s: metadata %s is not a text", label, key);
    }
    return MM_OK;
}

/* An integer of at least 0; -1 for anything else. */
static int64_t natural_of(const json_t *json) {
    return json_is_integer(json) && json_integer_value(json) >= 0 ? json_integer_value(json) : -1;
}

static mm_status shape_parse(const char *label, const json_t *shape, nets_safetensors_tensor *tensor) {
    if (!json_is_array(shape) || json_array_size(shape) > NETS_SAFETENSORS_MAX_RANK)
        return mm_fail(MM_ERR_FORMAT, "%s: tensor %s: its shape is not a list of at most %d sizes", label, tensor->name,
                       NETS_SAFETENSORS_MAX_RANK);
    tensor->rank = (int)json_array_size(shape);
    for (int i = 0; i < tensor->rank; i++) {
        tensor->dims[i] = natural_of(json_array_get(shape, (size_t)i));
        if (tensor->dims[i] < 0)
            return mm_fail(MM_ERR_FORMAT, "%s: tensor %s: dimension %d is not a size", label, tensor->name, i);
    }
    return MM_OK;
}

static mm_status tensor_parse(const char *label, const char *name, const json_t *entry, const uint8_t *data,
                              int64_t data_bytes, nets_safetensors_tensor *tensor) {
    tensor->name = name;
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    tensor->dtype = dtype ? nets_safetensors_dtype_find(dtype) : NETS_SAFETENSORS_DTYPES;
    if (tensor->dtype == NETS_SAFETENSORS_DTYPES)
        return mm_fail(MM_ERR_FORMAT, "%s: tensor %s: unknown dtype %.16s", label, name, dtype ? dtype : "(none)");
    MM_TRY(shape_parse(label, json_object_get(entry, "shape"), tensor));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    int64_t begin = natural_of(json_array_get(offsets, 0)), end = natural_of(json_array_get(offsets, 1));
    if (json_array_size(offsets) != 2 || begin < 0 || end < begin || end > data_bytes)
        return mm_fail(MM_ERR_FORMAT, "%s: tensor %s: offsets %lld to %lld are not within its %lld bytes of data",
                       label, name, (long long)begin, (long long)end, (long long)data_bytes);
    int64_t bytes;
    if (nets_safetensors_bytes(tensor, &bytes) != MM_OK || bytes != end - begin) {
        char text[128];
        return mm_fail(MM_ERR_FORMAT, "%s: tensor %s: %s does not take the %lld bytes that its offsets give it", label,
                       name, nets_safetensors_describe(tensor, text, sizeof text), (long long)(end - begin));
    }
    tensor->data = data + begin;
    return MM_OK;
}

static mm_status tensors_parse(nets_safetensors_header *header, const char *label, const uint8_t *data,
                               int64_t data_bytes) {
    const char *name;
    json_t *entry;
    json_object_foreach(header->json, name, entry) {
        if (strcmp(name, NETS_SAFETENSORS_METADATA) == 0) {
            MM_TRY(metadata_check(label, entry));
        } else {
            nets_safetensors_tensor *tensor = &header->tensors[header->n_tensors];
            MM_TRY(tensor_parse(label, name, entry, data, data_bytes, tensor));
            header->n_tensors++;
        }
    }
    return MM_OK;
}

/* Orders tensors by the place of their data; of tensors at the same place, those of no bytes come first. */
static int compare_places(const void *a, const void *b) {
    const nets_safetensors_tensor *x = a, *y = b;
    int64_t x_bytes = 0, y_bytes = 0;
    if (x->data != y->data) return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
    bool counted = nets_safetensors_bytes(x, &x_bytes) == MM_OK && nets_safetensors_bytes(y, &y_bytes) == MM_OK;
    return counted && x_bytes != y_bytes ? (x_bytes < y_bytes ? -1 : 1) : strcmp(x->name, y->name);
}

/* Sorts the tensors by place, and makes sure that they fill the data. */
static mm_status places_check(nets_safetensors_header *header, const char *label, const uint8_t *data,
                              int64_t data_bytes) {
    qsort(header->tensors, (size_t)header->n_tensors, sizeof *header->tensors, compare_places);
    const uint8_t *end = data;
    for (int64_t i = 0; i < header->n_tensors; i++) {
        const nets_safetensors_tensor *tensor = &header->tensors[i];
        int64_t bytes;
        MM_TRY(nets_safetensors_bytes(tensor, &bytes));
        const uint8_t *begin = tensor->data;
        if (begin != end)
            return mm_fail(MM_ERR_FORMAT, "%s: tensor %s begins at %lld, but the one before it ends at %lld", label,
                           tensor->name, (long long)(begin - data), (long long)(end - data));
        end = begin + bytes;
    }
    if (end - data != data_bytes)
        return mm_fail(MM_ERR_FORMAT, "%s: %lld bytes of data, but its tensors end at %lld", label,
                       (long long)data_bytes, (long long)(end - data));
    return MM_OK;
}

static int compare_names(const void *a, const void *b, void *tensors) {
    const nets_safetensors_tensor *t = tensors;
    return strcmp(t[*(const int64_t *)a].name, t[*(const int64_t *)b].name);
}

mm_status nets_safetensors_header_init(nets_safetensors_header *header, const char *label, const uint8_t *bytes,
                                       int64_t n_bytes) {
    nets_safetensors_header made = {0};
    MM_TRY(json_parse(label, bytes, n_bytes, &made.json));
    size_t capacity = json_object_size(made.json) + 1;
    made.tensors = calloc(capacity, sizeof *made.tensors);
    made.order = calloc(capacity, sizeof *made.order);
    mm_status status = MM_OK;
    if (!made.tensors || !made.order)
        status = mm_fail(MM_ERR_NOMEM, "%s: no memory for its %zu tensors", label, capacity);
    const uint8_t *data = bytes + LENGTH_BYTES + header_length(bytes);
    int64_t data_bytes = n_bytes - (data - bytes);
    if (status == MM_OK) status = tensors_parse(&made, label, data, data_bytes);
    if (status == MM_OK) status = places_check(&made, label, data, data_bytes);
    if (status != MM_OK) {
        nets_safetensors_header_fini(&made);
        return status;
    }
    for (int64_t i = 0; i < made.n_tensors; i++) made.order[i] = i;
    qsort_r(made.order, (size_t)made.n_tensors, sizeof *made.order, compare_names, made.tensors);
    *header = made;
    return MM_OK;
}

void nets_safetensors_header_fini(nets_safetensors_header *header) {
    json_decref(header->json);
    free(header->tensors);
    free(header->order);
    *header = (nets_safetensors_header){0};
}

const nets_safetensors_tensor *nets_safetensors_header_find(const nets_safetensors_header *header, const char *name) {
    int64_t low = 0, high = header->n_tensors;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const nets_safetensors_tensor *tensor = &header->tensors[header->order[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0) return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
