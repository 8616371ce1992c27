/* SPDX-License-Identifier: MIT */
/* Constants of an ONNX graph: its initializers, and what follows from them and from shapes alone. Real numbers are kept
 * as floats, whole numbers and booleans as int64. */
#ifndef NETS_IO_ONNX_TENSOR_H
#define NETS_IO_ONNX_TENSOR_H

#include "nets/io/onnx/onnx_view.h"

typedef struct onnx_tensor onnx_tensor;
struct onnx_tensor {
    /* The initializer whose elements it has, all of them; NULL: of none. Borrowed from the file. */
    const char *name;
    bool transposed;   /* it is that initializer, a matrix, transposed */
    bool used, shared; /* by a parameter, by several */
    int rank;
    int64_t dims[ONNX_RANK_MAX];
    int64_t elems; /* the dims' product */
    bool real;
    float *reals;    /* if real */
    int64_t *wholes; /* else */
    onnx_tensor *next;
};

/* The tensors of one import. A zeroed list is empty. */
typedef struct onnx_tensors {
    onnx_tensor *first;
    int64_t largest; /* elements of the largest initializer */
} onnx_tensors;

/* Makes a tensor of zeros. MM_ERR_UNSUPPORTED: it would be larger than any initializer and than 2^26 elements (chosen:
 * real graphs compute shapes, masks and rows of positions), or have more than ONNX_RANK_MAX dimensions; MM_ERR_NOMEM.
 * The list owns it. */
MM_CHECKED mm_status onnx_tensor_create(onnx_tensors *list, bool real, int rank, const int64_t dims[],
                                        onnx_tensor **tensor_out);
void onnx_tensors_fini(onnx_tensors *list);

/* Whole numbers, [n]. */
MM_CHECKED mm_status onnx_tensor_of(onnx_tensors *list, const int64_t numbers[], int n, onnx_tensor **tensor_out);

/* A tensor of `dims` whose element at index i0, i1, ... is the source's element `first` + i0 * strides[0] + ...; those
 * lie in the source. */
MM_CHECKED mm_status onnx_tensor_gather(onnx_tensors *list, const onnx_tensor *from, int64_t first, int rank,
                                        const int64_t dims[], const int64_t strides[], onnx_tensor **tensor_out);

/* Enlarges a tensor to `dims` by ONNX's rule: dimensions of 1 are repeated, missing ones are 1. False in *fits_out: it
 * does not fit. */
MM_CHECKED mm_status onnx_tensor_expand(onnx_tensors *list, const onnx_tensor *from, int rank, const int64_t dims[],
                                        bool *fits_out, onnx_tensor **tensor_out);

/* Element i as a number. */
double onnx_tensor_at(const onnx_tensor *tensor, int64_t i);
void onnx_tensor_put(onnx_tensor *tensor, int64_t i, double value);

/* The strides of dense dims, in elements. */
void onnx_strides(int rank, const int64_t dims[], int64_t strides_out[]);
/* The dims that a and b have together by ONNX's rule of broadcasting. False: they do not fit. */
bool onnx_broadcast(int rank_a, const int64_t a[], int rank_b, const int64_t b[], int *rank_out, int64_t dims_out[]);

#endif
