/* SPDX-License-Identifier: MIT */
/* A timeline: when the pieces of iterations ran. It copies what a trace says about the pieces, because their plans may
 * be gone when the trace is written. Its buffer of times is bounded: iterations that find no room in it are dropped,
 * and counted. mm_timelines_write makes a trace of it. Threads: one at a time. */
#ifndef MM_CORE_TIMELINE_TIMELINE_H
#define MM_CORE_TIMELINE_TIMELINE_H

#include "mm/core/account/account.h"
#include "mm/core/plan/program.h"

/* Chosen: enough for 65536 iterations with 16 pieces each, or for 2600 iterations of ResNet-32 with 400 pieces each. */
enum { MM_TIMELINE_BYTES = 16 << 20 };

/* What a trace says about a piece. */
typedef struct mm_timeline_piece {
    mm_node_kind kind;
    mm_stream_id stream;
    int32_t step; /* STEP, RECOMPUTE: the graph's step; else -1 */
    mm_phase phase;
    const char *layer;             /* the step's layer; for an operation, the layer that produced the tensor. NULL:
                                      none */
    const char *tensor_name;       /* operations; else NULL */
    mm_tensor tensor;              /* operations; else -1 */
    int64_t bytes;                 /* operations: of the tensor's part; steps: of the tensors that they write */
    int64_t stored_bytes;          /* operations: of that part's code or copy (mm_program_stored) */
    int32_t part, parts;           /* which of the node's pieces it is, and their number */
    int32_t before;                /* index of the piece before it on its stream; -1: none */
    int32_t due;                   /* operations: index of the step's piece after which it is queued; -1: none */
    int32_t wait[MM_STREAM_COUNT]; /* per stream: index of the piece that it waits for; -1: none */
} mm_timeline_piece;

/* Live bytes of a step and of the operations queued after it: mm_account_step. */
typedef struct mm_timeline_step {
    int32_t piece; /* index of its first piece */
    int64_t bytes[MM_ACCOUNT_KINDS];
} mm_timeline_step;

/* A map's way from its eviction to the step that reads it when it is back. links[first] to links[first + n - 1] are
 * indices of pieces; the last one is the piece of the step that reads the map. */
typedef struct mm_timeline_flow {
    mm_tensor tensor;
    int32_t first, n;
} mm_timeline_flow;

/* A group of tensors that are all-reduced in place (mm_plan_allreduce_groups). */
typedef struct mm_timeline_sum {
    const char *tensor_name; /* name of the first tensor */
    int n;                   /* number of tensors */
    int64_t bytes;
} mm_timeline_sum;

/* A plan that iterations ran. */
typedef struct mm_timeline_plan {
    char *graph, *policy;
    char *names; /* names of layers and tensors, one after the other */
    mm_timeline_piece *pieces;
    int n_pieces;
    mm_timeline_sum *sums;
    int n_sums;
    mm_timeline_step *steps;
    int n_steps;
    mm_timeline_flow *flows;
    int n_flows;
    int32_t *links;
    char *memory; /* JSON (mm_plan_memory); NULL: not added */
} mm_timeline_plan;

typedef struct mm_timeline_iteration {
    int32_t plan;
    int64_t number; /* from 1, among all iterations of the run, dropped ones too */
    int64_t first;  /* its spans begin at spans[first]: one for each of the plan's pieces, then for each of its sums */
    int64_t codec_wait_ns; /* mm_program_codec_wait: what `hidden` in tables counts as waiting */
} mm_timeline_iteration;

/* A policy planned again, because iterations took other times than planned. */
typedef struct mm_timeline_replan {
    const char *graph;
    int64_t at_ns;
    int64_t measured_ns, planned_ns; /* time of an iteration under the old plan */
    int64_t left_ns, new_ns;         /* its prediction from measured times: under the old plan, and under the new one */
} mm_timeline_replan;

typedef struct mm_timeline {
    char *name;     /* name of the run */
    char *machine;  /* the device that ran it, or the machine whose rates predict it; "": not known */
    bool predicted; /* the simulator's times; else measured ones */
    bool lossy;     /* a plan has a lossy code (mm_timeline_add_memory) */
    mm_timeline_plan *plans;
    int n_plans;
    mm_timeline_iteration *iterations; /* from the end of the buffer downwards; [-1 - i] is the i-th */
    int64_t n_iterations, begun;       /* begun: iterations that were begun, including dropped ones */
    mm_period *spans;                  /* at the beginning of the buffer */
    int64_t n_spans;
    int64_t buffer_bytes;
    int64_t dropped; /* number of pieces, and of replans, that found no room */
    mm_timeline_replan *replans;
    int n_replans;
} mm_timeline;

/* Creates an empty timeline of measured times, on no machine that is known. buffer_bytes: 0 for MM_TIMELINE_BYTES;
 * memory is taken as it is used. MM_ERR_NOMEM. MM_ERR_INVALID: buffer_bytes is negative. The caller destroys it. */
MM_CHECKED mm_status mm_timeline_create(const char *name, int64_t buffer_bytes, mm_timeline **timeline_out);
/* Says where the times are from. The name is copied. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_timeline_set_source(mm_timeline *timeline, const char *machine, bool predicted);
/* NULL is legal. */
void mm_timeline_destroy(mm_timeline *timeline);

/* Adds a plan: copies what a trace says about it. *plan_out: its index. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_timeline_add_plan(mm_timeline *timeline, const mm_program *program, int *plan_out);

static inline bool mm_period_is_known(const mm_period *span) { return span->end_ns >= span->start_ns; }

/* Counts an iteration that begins. Returns its number, from 1. */
static inline int64_t mm_timeline_begin(mm_timeline *timeline) { return ++timeline->begun; }

/* Makes room for the spans of an iteration under a plan, one per piece and then one per sum in place. The caller fills
 * them in; a span of unknown time ends before it starts. NULL: the buffer is full; the iteration counts as dropped. */
mm_period *mm_timeline_add(mm_timeline *timeline, int plan, int64_t number, int64_t codec_wait_ns);

/* Records that a graph got a new plan. The graph's name is copied. */
void mm_timeline_add_replan(mm_timeline *timeline, const char *graph, const mm_timeline_replan *replan);

/* Number of pieces that are missing: those of iterations that found no room, and those whose time is not known. */
int64_t mm_timeline_dropped(const mm_timeline *timeline);

static inline const mm_timeline_iteration *mm_timeline_iteration_at(const mm_timeline *timeline, int64_t i) {
    return &timeline->iterations[-1 - i];
}

/* Adds to a plan of the timeline what lies where in memory, and its decisions on maps (mm_plan_memory). Sets
 * timeline->lossy if the plan has a lossy code. facts: the plan's. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_timeline_add_memory(mm_timeline *timeline, int plan, const mm_program *program,
                                            const mm_graph_facts *facts);

/* Writes timelines to a file in Chrome's "Trace Event Format", each as a process; tools/README.md says what is in it.
 * Times count from the earliest of all. The file appears as a whole, or not at all. MM_ERR_IO, MM_ERR_NOMEM,
 * MM_ERR_FORMAT: a name is not UTF-8. */
MM_CHECKED mm_status mm_timelines_write(mm_timeline *const *timelines, int n, const char *path);

#endif
