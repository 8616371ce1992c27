/* SPDX-License-Identifier: MIT */
/* All-reduce of shared tensors. */
#ifndef PIPELINE_ALLREDUCE_H
#define PIPELINE_ALLREDUCE_H

#include "mm/core/plan/plan_allreduce.h"
#include "mm/core/plan/program.h"
#include "pipeline/dispatch.h"

typedef struct mm_allreduce_call mm_allreduce_call; /* allreduce.c */

/* All-reduce of the plan's shared tensors by the caller's functions (mm_allreduce_set). */
typedef struct mm_allreduce {
    mm_allreduce_fns fns; /* all NULL: no all-reduce */
    void *ctx;
    mm_allreduce_call *calls;   /* per piece; NULL: the plan copies no shared tensor */
    mm_allreduce_groups groups; /* tensors that are all-reduced in place, by group */
    mm_allreduce_part *tensors; /* scratch: the tensors of one group */
} mm_allreduce;

MM_CHECKED mm_status mm_allreduce_init(mm_execution *execution);
void mm_allreduce_fini(mm_execution *execution);
/* Whether the plan calls functions of the caller's that cannot be recorded (fns.sent, fns.await). */
bool mm_allreduce_is_called(const mm_execution *execution);
/* Call it after a copy of a shared tensor to pinned memory (enqueues fns.sent), and before the copy back (enqueues
 * fns.await, or, if tasks of the device may not block, waits on the calling thread). */
MM_CHECKED mm_status mm_allreduce_call_async(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);
/* Call it before a step. If the step uses tensors that are all-reduced in place, makes the stream wait for them; stream
 * NULL: blocks until they are. */
MM_CHECKED mm_status mm_allreduce_step_begin(mm_dispatch *dispatch, int node, mm_stream *stream);
/* Call it after a step: lets the caller enqueue the all-reduces in place that may begin. */
MM_CHECKED mm_status mm_allreduce_step_end(mm_dispatch *dispatch, int node);

#endif
