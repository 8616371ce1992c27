/* SPDX-License-Identifier: MIT */
/* Times of the latest iterations of a program (mm_execution_observe). */
#ifndef PIPELINE_WINDOW_H
#define PIPELINE_WINDOW_H

#include "pipeline/dispatch.h"

/* Times of a program's latest iterations (mm_execution_observe). */
typedef struct mm_window {
    int most;              /* capacity, in iterations */
    int kept;              /* iterations stored */
    int fresh;             /* iterations stored since the last restart */
    int next;              /* slot of the next iteration */
    bool starts;           /* the next iteration is the first since the last restart */
    int64_t *node_ns;      /* [iteration * nodes + node] */
    int64_t *iteration_ns; /* per iteration: time since the previous one ended, of any program */
    int64_t *sorted;       /* scratch, per iteration */
} mm_window;

/* Adds an iteration. periods: times of its pieces. */
void mm_window_add(mm_execution *execution, const mm_period *periods);

#endif
