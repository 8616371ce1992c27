/* SPDX-License-Identifier: MIT */
/* Traces that stay in memory. */
#ifndef MM_MANAGER_TRACING_CALLS_H
#define MM_MANAGER_TRACING_CALLS_H

#include "mm/core/timeline/timeline.h"

/* Ends the trace that is under way (mm_trace_start), and gives its timeline to the caller. Waits for iterations that
 * were ended without waiting, and drops their failure. Between iterations. MM_ERR_ORDER: no trace is under way. */
MM_CHECKED mm_status mm_trace_take(mm_manager *manager, mm_timeline **timeline_out);

#endif
