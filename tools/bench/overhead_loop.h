/* SPDX-License-Identifier: MIT */
/* What mm_loop_enter + mm_loop_leave cost, beside mm_layer_begin + mm_layer_end of the same steps. */
#ifndef TOOLS_BENCH_OVERHEAD_LOOP_H
#define TOOLS_BENCH_OVERHEAD_LOOP_H

#include "mm/core/status.h"

typedef struct overhead_loop overhead_loop;

/* Learns a chain of steps of six slots each, under liveness, where steps wait for nothing. The caller destroys it. */
MM_CHECKED mm_status overhead_loop_create(overhead_loop **overhead_out);
/* Runs an iteration by the one, and one by the other. host_ns: how long the thread spins before each step, as the
 * program's own work would last. keep: the times count. */
MM_CHECKED mm_status overhead_loop_measure(overhead_loop *overhead, int64_t host_ns, bool keep);
void overhead_loop_report(overhead_loop *overhead);
/* NULL is legal. */
void overhead_loop_destroy(overhead_loop *overhead);

#endif
