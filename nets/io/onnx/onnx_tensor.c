/* SPDX-License-Identifier: MIT */
#include "nets/io/onnx/onnx_tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/net_ops.h"

static const int64_t MOST_ELEMS = INT64_C(1) << 26;

mm_status onnx_tensor_create(onnx_tensors *list, bool real, int rank, const int64_t dims[], onnx_tensor **tensor_out) {
    const int64_t most = list->largest > MOST_ELEMS ? list->largest : MOST_ELEMS;
    int64_t elems = 1;
    if (rank > ONNX_RANK_MAX)
        return mm_fail(MM_ERR_UNSUPPORTED, "a constant of %d dimensions; at most %d are read", rank, ONNX_RANK_MAX);
    for (int d = 0; d < rank; d++) elems = nets_mul(elems, dims[d]);
    if (elems < 0 || elems > most)
        return mm_fail(MM_ERR_UNSUPPORTED, "a computed constant of more than %lld elements", (long long)most);
    onnx_tensor *tensor = calloc(1, sizeof *tensor);
    const size_t bytes = (size_t)elems * (real ? sizeof *tensor->reals : sizeof *tensor->wholes);
    void *data = tensor ? calloc(1, bytes ? bytes : 1) : NULL;
    if (!data) {
        free(tensor);
        return mm_fail(MM_ERR_NOMEM, "no memory for a constant of %lld elements", (long long)elems);
    }
    *tensor = (onnx_tensor){.rank = rank, .elems = elems, .real = real, .next = list->first};
    if (rank) memcpy(tensor->dims, dims, (size_t)rank * sizeof *dims);
    if (real)
        tensor->reals = data;
    else
        tensor->wholes = data;
    list->first = tensor;
    *tensor_out = tensor;
    return MM_OK;
}

void onnx_tensors_fini(onnx_tensors *list) {
    for (onnx_tensor *next, *tensor = list->first; tensor; tensor = next) {
        next = tensor->next;
        free(tensor->reals);
        free(tensor->wholes);
        free(tensor);
    }
    *list = (onnx_tensors){0};
}

mm_status onnx_tensor_of(onnx_tensors *list, const int64_t numbers[], int n, onnx_tensor **tensor_out) {
    MM_TRY(onnx_tensor_create(list, false, 1, &(int64_t){n}, tensor_out));
    if (n) memcpy((*tensor_out)->wholes, numbers, (size_t)n * sizeof *numbers);
    return MM_OK;
}

mm_status onnx_tensor_gather(onnx_tensors *list, const onnx_tensor *from, int64_t first, int rank, const int64_t dims[],
                             const int64_t strides[], onnx_tensor **tensor_out) {
    onnx_tensor *to;
    MM_TRY(onnx_tensor_create(list, from->real, rank, dims, &to));
    int64_t index[ONNX_RANK_MAX] = {0};
    for (int64_t i = 0, at = first; i < to->elems; i++) {
        if (from->real)
            to->reals[i] = from->reals[at];
        else
            to->wholes[i] = from->wholes[at];
        for (int d = rank - 1; d >= 0; d--) {
            at += strides[d];
            if (++index[d] < dims[d]) break;
            at -= strides[d] * dims[d];
            index[d] = 0;
        }
    }
    *tensor_out = to;
    return MM_OK;
}

mm_status onnx_tensor_expand(onnx_tensors *list, const onnx_tensor *from, int rank, const int64_t dims[],
                             bool *fits_out, onnx_tensor **tensor_out) {
    int64_t own[ONNX_RANK_MAX], strides[ONNX_RANK_MAX] = {0};
    *fits_out = rank >= from->rank && rank <= ONNX_RANK_MAX;
    if (!*fits_out) return MM_OK;
    onnx_strides(from->rank, from->dims, own);
    for (int d = 0; d < from->rank; d++) {
        const int at = rank - from->rank + d;
        *fits_out = *fits_out && (from->dims[d] == dims[at] || from->dims[d] == 1);
        if (from->dims[d] != 1) strides[at] = own[d];
    }
    return *fits_out ? onnx_tensor_gather(list, from, 0, rank, dims, strides, tensor_out) : MM_OK;
}

double onnx_tensor_at(const onnx_tensor *tensor, int64_t i) {
    return tensor->real ? (double)tensor->reals[i] : (double)tensor->wholes[i];
}

void onnx_tensor_put(onnx_tensor *tensor, int64_t i, double value) {
    if (tensor->real)
        tensor->reals[i] = (float)value;
    else
        /* as a saturating cast: a double beyond int64 has no defined one */
        tensor->wholes[i] = isnan(value)       ? 0
                            : value >= 0x1p63  ? INT64_MAX
                            : value <= -0x1p63 ? INT64_MIN
                                               : (int64_t)value;
}

void onnx_strides(int rank, const int64_t dims[], int64_t strides_out[]) {
    for (int64_t d = rank - 1, stride = 1; d >= 0; stride *= dims[d--]) strides_out[d] = stride;
}

bool onnx_broadcast(int rank_a, const int64_t a[], int rank_b, const int64_t b[], int *rank_out, int64_t dims_out[]) {
    const int rank = rank_a > rank_b ? rank_a : rank_b;
    for (int d = 0; d < rank; d++) {
        const int in_a = d - (rank - rank_a), in_b = d - (rank - rank_b);
        const int64_t x = in_a < 0 ? 1 : a[in_a], y = in_b < 0 ? 1 : b[in_b];
        if (x != y && x != 1 && y != 1) return false;
        dims_out[d] = x == 1 ? y : x;
    }
    *rank_out = rank;
    return true;
}
