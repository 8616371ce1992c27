/* SPDX-License-Identifier: MIT */
/* Records which kernels a GPU runs and when, using CUPTI. CUPTI (libcupti, from the CUDA toolkit or a pip torch) is
 * loaded when needed; nothing is linked with it. */
#ifndef TOOLS_MEASURE_KERNELS_H
#define TOOLS_MEASURE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "mm/core/status.h"

typedef struct kernel {
    char *name; /* mangled */
    int step;   /* the step set by kernels_step when it was launched; -1: none, or it was part of a replay */
    uint32_t stream, correlation; /* CUPTI's numbers */
    int64_t begin_ns, end_ns;     /* by CUPTI's clock */
    int64_t gap_ns; /* idle time of its stream before it; 0: the stream's first kernel, or it overlaps an earlier one */
} kernel;

typedef struct kernels {
    kernel *of; /* sorted by begin_ns */
    int n, capacity;
    struct kernels_step_of {
        uint32_t correlation;
        int step;
    } * steps;
    int n_steps, steps_capacity;
    bool out_of_memory;
    struct cupti *cupti; /* between kernels_begin and kernels_end */
} kernels;

/* Records all kernels from now on. Only one recording at a time in a process, because CUPTI's callbacks have no
 * context. MM_ERR_UNSUPPORTED: there is no CUPTI, or it refuses; MM_ERR_NOMEM. */
MM_CHECKED mm_status kernels_begin(kernels *k);
/* Kernels that the calling thread launches from now on belong to `step`; -1: to none. Legal while recording. */
void kernels_step(kernels *k, int step);
/* Ends the recording. The device must be idle. On failure the records are incomplete. */
MM_CHECKED mm_status kernels_end(kernels *k);
/* Legal on an all-zero struct. */
void kernels_fini(kernels *k);

/* busy_ns: how long at least one kernel ran; span_ns: from the begin of the first to the end of the last. */
void kernels_span(const kernels *k, int64_t *busy_ns_out, int64_t *span_ns_out);

#endif
