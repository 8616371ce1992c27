/* SPDX-License-Identifier: MIT */
/* Checks a trace by the rules of its format (Chrome's "Trace Event Format"), and by what ours promise:
 *  - every process and thread with events has a name; times are not negative;
 *  - slices of a thread nest, and those of a stream do not even overlap;
 *  - each flow has one beginning and one end, in order, each at a slice that is no wait, and its ends are an operation
 *    and a step;
 *  - a replan has a time, its graph, and what it went by;
 *  - the memory of a plan (mm/core/account/plan_memory.h) is of a process that has a name;
 *  - each iteration counts the memory at each of its steps, and names all its steps once, in order. */
#ifndef TESTS_CORE_TRACE_CHECK_H
#define TESTS_CORE_TRACE_CHECK_H

#include <jansson.h>
#include <stdbool.h>

#include "mm/core/plan/plan.h"

enum { TRACE_PROCESSES = 32 };

typedef struct trace_process {
    char name[512];
    int64_t busy_ns[MM_STREAM_COUNT]; /* slices of its streams, without waits */
    int64_t wait_ns[MM_STREAM_COUNT];
    int64_t iterations_ns; /* slices of its iterations */
    int64_t sums_ns;       /* slices of sums in place */
    int iterations, sums, flows, counters, slices, waits, memories, replans, labels;
} trace_process;

typedef struct trace_checked {
    trace_process process[TRACE_PROCESSES];
    int n;
    int64_t dropped;
} trace_checked;

/* rows: NULL, or an array with an object for each process, of which "timeline" has an array for each kind of memory, as
 * `mm plan --explain --json` writes it: the counters must be these numbers in every iteration. False: why is on
 * stderr. */
bool trace_check(const char *path, const json_t *rows, trace_checked *checked_out);

#endif
