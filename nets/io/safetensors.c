/* SPDX-License-Identifier: MIT */
/* Element types, sizes and descriptions, for reading and writing. */
#include "nets/io/safetensors.h"

#include "mm/core/status.h"
#include "nets/io/safetensors_header.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian");

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[NETS_SAFETENSORS_DTYPES] = {
    [NETS_SAFETENSORS_F64] = {"F64", 8},   [NETS_SAFETENSORS_I64] = {"I64", 8},   [NETS_SAFETENSORS_U64] = {"U64", 8},
    [NETS_SAFETENSORS_F32] = {"F32", 4},   [NETS_SAFETENSORS_I32] = {"I32", 4},   [NETS_SAFETENSORS_U32] = {"U32", 4},
    [NETS_SAFETENSORS_F16] = {"F16", 2},   [NETS_SAFETENSORS_BF16] = {"BF16", 2}, [NETS_SAFETENSORS_I16] = {"I16", 2},
    [NETS_SAFETENSORS_U16] = {"U16", 2},   [NETS_SAFETENSORS_I8] = {"I8", 1},     [NETS_SAFETENSORS_U8] = {"U8", 1},
    [NETS_SAFETENSORS_BOOL] = {"BOOL", 1},
};

const char *nets_safetensors_dtype_name(nets_safetensors_dtype dtype) { return dtypes[dtype].name; }

int64_t nets_safetensors_dtype_bytes(nets_safetensors_dtype dtype) { return dtypes[dtype].bytes; }

nets_safetensors_dtype nets_safetensors_dtype_find(const char *name) {
    int i = 0;
    while (i < NETS_SAFETENSORS_DTYPES && strcmp(dtypes[i].name, name) != 0) i++;
    return (nets_safetensors_dtype)i;
}

mm_status nets_safetensors_bytes(const nets_safetensors_tensor *tensor, int64_t *bytes_out) {
    if ((unsigned)tensor->dtype >= NETS_SAFETENSORS_DTYPES)
        return mm_fail(MM_ERR_INVALID, "tensor %s: unknown dtype %d", tensor->name, (int)tensor->dtype);
    if (tensor->rank < 0 || tensor->rank > NETS_SAFETENSORS_MAX_RANK)
        return mm_fail(MM_ERR_INVALID, "tensor %s: rank %d, at most %d", tensor->name, tensor->rank,
                       NETS_SAFETENSORS_MAX_RANK);
    int64_t bytes = dtypes[tensor->dtype].bytes;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(bytes, tensor->dims[i], &bytes))
            return mm_fail(MM_ERR_INVALID, "tensor %s: dimension %d of %lld is negative or makes it too large",
                           tensor->name, i, (long long)tensor->dims[i]);
    *bytes_out = bytes;
    return MM_OK;
}

const char *nets_safetensors_describe(const nets_safetensors_tensor *tensor, char *buffer, size_t capacity) {
    size_t at = (size_t)snprintf(buffer, capacity, "%s [", dtypes[tensor->dtype].name);
    for (int i = 0; i < tensor->rank && at < capacity; i++)
        at += (size_t)snprintf(buffer + at, capacity - at, "%s%lld", i ? "," : "", (long long)tensor->dims[i]);
    if (at < capacity) snprintf(buffer + at, capacity - at, "]");
    return buffer;
}
