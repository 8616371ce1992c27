/* SPDX-License-Identifier: MIT */
/* The table of element types. */
#ifndef MM_CORE_GRAPH_DTYPE_H
#define MM_CORE_GRAPH_DTYPE_H

#include "mm/mm.h"

typedef struct mm_dtype_traits {
    const char *name;        /* for messages and files: "f32" */
    const char *safetensors; /* name in a safetensors file */
    int bytes;               /* of one element */
    bool has_sign;           /* a float, of which steps may read the sign alone (MM_FORM_SIGN) */
} mm_dtype_traits;

extern const mm_dtype_traits mm_dtype_table[MM_DTYPES];

#endif
