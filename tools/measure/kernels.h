/* SPDX-License-Identifier: MIT */
/* The kernels that a GPU runs, and when, as CUPTI tells it. CUPTI (libcupti, of the CUDA toolkit or a pip torch) is
 * loaded when it is wanted: nothing is linked with it. */
#ifndef TOOLS_MEASURE_KERNELS_H
#define TOOLS_MEASURE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "mm/core/status.h"

typedef struct kernel {
    char *name; /* as the compiler has it, mangled */
    int step;   /* what kernels_step had said when it was launched; -1: nothing, or a recording was replayed */
    uint32_t stream, correlation; /* CUPTI's numbers */
    int64_t begin_ns, end_ns;     /* by CUPTI's clock */
    int64_t gap_ns; /* from when all before it on its stream had ended; 0: it is the stream's first, or began earlier */
} kernel;

typedef struct kernels {
    kernel *of; /* by when they began */
    int n, capacity;
    struct kernels_step_of {
        uint32_t correlation;
        int step;
    } * steps;
    int n_steps, steps_capacity;
    bool out_of_memory;
    struct cupti *cupti; /* between begin and end */
} kernels;

/* Notes all kernels from here on. One at a time in a process, because CUPTI's callbacks have no context.
 * MM_ERR_UNSUPPORTED: there is no CUPTI, or it refuses; MM_ERR_NOMEM. */
MM_CHECKED mm_status kernels_begin(kernels *k);
/* What the calling thread launches from here on belongs to this step; -1: to none. Between begin and end. */
void kernels_step(kernels *k, int step);
/* Ends it, once the device is idle. On failure what was noted is incomplete. */
MM_CHECKED mm_status kernels_end(kernels *k);
/* Legal on a zeroed one. */
void kernels_fini(kernels *k);

/* How long at least one of them ran, and from the first one's begin to the last one's end. */
void kernels_span(const kernels *k, int64_t *busy_ns_out, int64_t *span_ns_out);

#endif
