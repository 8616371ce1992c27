/* SPDX-License-Identifier: MIT */
/* Tracing of iterations. The functions do nothing unless iterations are traced or observed. */
#ifndef PIPELINE_TRACING_H
#define PIPELINE_TRACING_H

#include "pipeline/dispatch.h"

/* Events of one iteration of a program, and the times of steps that the caller computed without a stream. */
typedef struct mm_traced_set {
    mm_event **ends;         /* per piece: its end; the first set has the execution's own events */
    mm_event *begin;         /* before the first step */
    mm_period *inline_steps; /* per piece: time of a step without a stream; end 0: the piece is not a step without a
                              * stream */
    mm_event **sums;         /* per all-reduce in place: its end; NULL until it is traced */
    int n_sums;              /* all-reduces in place that were begun */
    bool is_made;
    int64_t order;  /* the iteration's number among all that were traced or observed; 0: no iteration, or its times are
                     * taken */
    int64_t number; /* its iteration's number in the timeline; 0: it is not for a timeline */
} mm_traced_set;

/* Tracing of a program. */
typedef struct mm_traced {
    int64_t run; /* number of the tracing (mm_dispatch.traces) that `plan` belongs to */
    int plan;    /* index of the program in the timeline */
    int now;     /* index of the set of the iteration under way, or else of the latest */
    mm_traced_set sets[MM_TRACED_AHEAD];
    mm_period *periods; /* scratch: per piece, then per all-reduce in place */
    mm_execution *next; /* list of the dispatcher's executions that were traced */
} mm_traced;

void mm_traced_fini(mm_execution *execution);
/* An iteration begins: it gets events of its own. */
MM_CHECKED mm_status mm_traced_begin(mm_execution *execution);
/* Call it before a piece, when all waits of its stream are enqueued. stream NULL: the caller computes it. */
MM_CHECKED mm_status mm_traced_piece(mm_execution *execution, int piece, mm_stream *stream);
/* Call it after a step. */
void mm_traced_step_end(mm_execution *execution, int piece);
/* Call it when the next all-reduce in place is enqueued. */
MM_CHECKED mm_status mm_traced_sum(mm_execution *execution, mm_stream *stream);
/* Call it when the iteration has ended without failure, or is left running. */
void mm_traced_end(mm_execution *execution);
/* Call it when all streams are idle. Takes the times of iterations that have ended, and drops the others. */
void mm_traced_collect(mm_dispatch *dispatch);

#endif
