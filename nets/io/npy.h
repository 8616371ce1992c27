/* SPDX-License-Identifier: MIT */
/* Reads arrays of NumPy's .npy files, versions 1 and 2 of the format, in C order and little endian. Elements are read
 * from the file on demand, not mapped: if the file shrinks during a run, that is an error and not a SIGBUS. */
#ifndef NETS_IO_NPY_H
#define NETS_IO_NPY_H

#include "mm/core/status.h"

enum { NETS_NPY_MAX_RANK = 8 };

/* The types that are read. */
typedef enum nets_npy_type { NETS_NPY_UINT8, NETS_NPY_INT32, NETS_NPY_INT64, NETS_NPY_TYPES } nets_npy_type;

typedef struct nets_npy {
    const char *path; /* borrowed; messages name it */
    int fd;           /* -1: not open */
    nets_npy_type type;
    int rank;
    int64_t dims[NETS_NPY_MAX_RANK]; /* each at least 0 */
    int64_t elems;                   /* their product */
    int64_t offset_bytes;            /* the first element's, in the file */
} nets_npy;

/* Opens an array of one of these types (`1 << type`, joined by |); the caller closes it. MM_ERR_IO: the file is missing
 * or unreadable. MM_ERR_FORMAT: it is not such an array, or not as long as its shape says. Messages name the path. */
MM_CHECKED mm_status nets_npy_open(const char *path, unsigned types, nets_npy *npy_out);

/* Reads elements [first, first + n) of an array of uint8. MM_ERR_IO. Any thread may call it. */
MM_CHECKED mm_status nets_npy_read_bytes(const nets_npy *npy, int64_t first, int64_t n, uint8_t *elems_out);

/* The same of an array of any type, as numbers. */
MM_CHECKED mm_status nets_npy_read_numbers(const nets_npy *npy, int64_t first, int64_t n, int64_t *elems_out);

/* Legal also on one that was never opened and has fd -1. */
void nets_npy_close(nets_npy *npy);

/* The array's shape as text, "[100, 32, 32, 3]". Returns text_out. */
const char *nets_npy_shape_text(const nets_npy *npy, char text_out[256]);

#endif
