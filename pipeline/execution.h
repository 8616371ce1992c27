/* SPDX-License-Identifier: MIT */
/* A program that is ready to run: its state, which the files of the pipeline share. */
#ifndef PIPELINE_EXECUTION_H
#define PIPELINE_EXECUTION_H

#include "mm/core/plan/program.h"
#include "pipeline/allreduce.h"
#include "pipeline/codec/code_block.h"
#include "pipeline/disk_move.h"
#include "pipeline/dispatch.h"
#include "pipeline/runtime_alloc.h"
#include "pipeline/self_check.h"
#include "pipeline/tracing.h"
#include "pipeline/variable_codes.h"
#include "pipeline/window.h"

/* Results of the plan's measures, in pinned memory. All measures run on one stream, so they share one scratch. */
typedef struct mm_measured_sums {
    uint8_t scratch[MM_SUMS_SCRATCH_BYTES];
    mm_sums sums[]; /* per tensor */
} mm_measured_sums;

struct mm_execution {
    mm_dispatch *dispatch;
    const mm_program *program;
    const mm_plan *plan; /* program->plan */
    const mm_graph_facts *facts;
    mm_codec *const *codecs;
    const mm_code_block *block; /* numbers that codecs read on the device; NULL: no codec reads any */
    int32_t *node_of_step;
    mm_event **events; /* per piece: its end; NULL if it is never waited for nor timed */
    mm_event *begin;   /* recorded before the first step; NULL unless config.measure_times */
    mm_traced *traced; /* NULL: it was never traced */
    mm_window *window; /* NULL: it is not observed */
    int64_t *ended_ns; /* per piece, of the iteration that ended last; NULL if events have no times */
    int64_t *total_ns; /* per node, sum over `timed` iterations; NULL unless config.measure_times */
    int64_t timed;
    bool has_unplanned;
    mm_runtime_alloc runtime_alloc;
    mm_self_check check;
    mm_variable_codes variable_codes;
    mm_allreduce allreduce;
    mm_disk_move *disk_moves;   /* per piece: its access to the disk; NULL: the plan uses no disk */
    mm_codec_strips *strips;    /* per segment: strips of a code that a step reads or writes without its codec; NULL:
                              * none */
    mm_measured_sums *measured; /* NULL: the plan measures nothing */
    mm_replay *recorded;        /* the recording; NULL: none */
    mm_dispatch_stats recorded_did; /* what one replay adds to the statistics */
};

/* The event of a node's end; NULL if it has none. */
static inline mm_event *mm_execution_event(const mm_execution *p, int node) {
    return p->events[p->program->at[p->plan->nodes[node].stream][p->program->last[node]]];
}

/* After a drain: adds up the nodes' times if config.measure_times. Returns how long the computation waited for codecs
 * (mm_dispatch_stats.codec_wait_ns); 0 if events have no times. */
int64_t mm_execution_measure(mm_execution *execution);

#endif
