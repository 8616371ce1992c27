/* SPDX-License-Identifier: MIT */
/* Measurements of one quantity, printed as n, min, median and p95. */
#ifndef TOOLS_BENCH_SAMPLES_H
#define TOOLS_BENCH_SAMPLES_H

#include <stdint.h>
#include <stdio.h>

#include "mm/core/status.h"

/* A zeroed list is empty. */
typedef struct samples {
    double *at;
    int64_t n, capacity;
} samples;

typedef struct samples_summary {
    int64_t n;
    double min, median, p95;
} samples_summary;

MM_CHECKED mm_status samples_add(samples *s, double value);
void samples_fini(samples *s);

/* Sorts the samples, and returns their summary; all zero if there are none. */
samples_summary samples_summarize(samples *s);

/* Prints "  label  n  min  median  p95 unit", and "  ratio x peer" unless peer is NULL. Values are multiplied by
 * `scale` first. */
void samples_print(FILE *file, samples *s, const char *label, double scale, const char *unit, double ratio,
                   const char *peer);
/* Prints the heading for samples_print. */
void samples_print_head(FILE *file, const char *title);

#endif
