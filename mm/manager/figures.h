/* SPDX-License-Identifier: MIT */
/* Figures of iterations, beyond the public statistics (mm_stats_get). */
#ifndef MM_MANAGER_FIGURES_H
#define MM_MANAGER_FIGURES_H

#include "pipeline/dispatch.h"

/* Sizes of the codes of a graph's maps in the iteration that ended last (mm_execution_codes). Waits for iterations that
 * were ended without waiting. *n_out: their number; at most `capacity` are filled in. Between iterations. MM_ERR_ORDER:
 * the graph is not prepared; else the failure of an iteration. */
MM_CHECKED mm_status mm_code_sizes(mm_manager *manager, const mm_graph *graph, mm_code_size *sizes_out, int capacity,
                                   int *n_out);

/* How long the thread that drives the manager has blocked in calls of iterations: for data, for workers to issue, and
 * at the end for the device. Does not call the device. */
int64_t mm_host_wait_ns(mm_manager *manager);

#endif
