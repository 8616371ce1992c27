/* SPDX-License-Identifier: MIT */
/* Measures the sizes of a feature map's codes, window by window, for `mm codecs --study`. */
#ifndef TOOLS_STUDY_STUDY_H
#define TOOLS_STUDY_STUDY_H

#include <stdint.h>

#include "mm/core/graph/graph.h"

/* Memory layouts of a map: those that cDMA's Figure 11 compares. */
typedef enum study_layout { STUDY_NCHW, STUDY_NHWC, STUDY_CHWN, STUDY_LAYOUTS } study_layout;
/* In the order of the table's columns. */
typedef enum study_codec { STUDY_ZVC, STUDY_RLE, STUDY_DEFLATE, STUDY_CSR, STUDY_EXPONENT, STUDY_CODECS } study_codec;

extern const char *const study_layout_names[STUDY_LAYOUTS]; /* "nchw" */
extern const char *const study_codec_names[STUDY_CODECS];   /* "zvc" */

enum { STUDY_WINDOW_ELEMS = 1024 /* 4 KiB of f32, as in Figure 11 */ };

typedef struct study_sizes {
    int64_t elems, nonzeros; /* of the whole map; an element with all bits 0 is a zero */
    int64_t window_elems;    /* elements of the windows that were encoded in each layout */
    int elem_bytes;
    /* Bytes of the windows' codes without heads. A code larger than its window counts in full, although our codecs
     * would store that window uncompressed. So dense windows of f32 take 33/32 of their bytes in zvc, as published. */
    int64_t code_bytes[STUDY_CODECS][STUDY_LAYOUTS];
} study_sizes;

/* Measures a map of floats that lies in NHWC; dims: n, h, w, c. Encodes at most most_windows windows in each layout,
 * evenly spread over the map; 0: all. */
void study_measure(const void *map, mm_dtype type, const int64_t dims[4], int64_t most_windows, study_sizes *sizes_out);

/* Bytes of the windows divided by bytes of their codes. */
double study_ratio(const study_sizes *sizes, study_codec codec, study_layout layout);

#endif
