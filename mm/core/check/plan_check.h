/* SPDX-License-Identifier: MIT */
/* Private to mm/core: the check of a plan and its program (mm_program_prove), in passes. Each pass relies on what the
 * passes before it have established.
 *
 *   form      all indices are in range, all segments and nodes are well-formed
 *   pools     pools have room for all bodies
 *   pieces    the program is well-formed; the pieces of each node do its work once
 *   clocks    for each piece, which pieces of other streams have ended when it ends (mm_program_clocks)
 *   uses      walk in issue order: which value each segment holds, who reads it, who may still use it
 *   sharing   segments that share bytes: all users of one come before the first user of the next
 *   limits    regions, heap, and the budget
 *
 * One walk in issue order proves all executions that the waits allow: each write comes after all earlier users of its
 * segment, and each read after the write whose value it reads, so all executions read the same values. */
#ifndef MM_CORE_CHECK_PLAN_CHECK_H
#define MM_CORE_CHECK_PLAN_CHECK_H

#include "mm/core/check/plan_rules.h"

/* State of a segment during the walk. */
typedef struct mm_residence {
    int32_t users[MM_STREAM_COUNT]; /* seq of the last user so far on each stream; -1: none */
    int32_t first, last;            /* first and last user; -1: none */
    int32_t writer;                 /* node that wrote its value; -1: none did in this iteration */
    int32_t value;                  /* number of its value (mm_check.current); -1: none */
    bool exact;                     /* it holds that value bit for bit (a code: the value that was encoded) */
    bool always_exact;              /* `exact` was true for all values that it has held */
    bool unread;                    /* an operation wrote the value, and no node has used it yet */
} mm_residence;

typedef struct mm_check {
    const mm_plan *plan;
    const mm_graph *graph;
    const mm_graph_facts *facts;
    const mm_limits *limits;
    const mm_program *program;
    mm_violation *violation;            /* set with a refusal */
    int32_t (*clocks)[MM_STREAM_COUNT]; /* per piece: mm_program_clocks */
    int32_t *node_at[MM_STREAM_COUNT];  /* per stream and seq of a node: the node */
    mm_residence *residences;           /* per segment */
    /* per tensor: the number of its present value. Each write makes a new value. An alias has the value of its
     * input; so after a write to shared storage no segment holds the other's value. */
    int32_t *current;
    int32_t values;    /* number of values so far */
    int32_t *seen;     /* per binding of a step that has run: number of the value that the step read or wrote */
    int32_t *ran;      /* per step of the graph: the node that ran it first, with which recomputations are compared */
    bool *useful;      /* per node: whether a value that it wrote was read */
    bool *ran_exactly; /* per step of the graph: whether all that this node read was exact */
} mm_check;

mm_status mm_check_form(const mm_check *check);
mm_status mm_check_pools(const mm_check *check);
mm_status mm_check_pieces(const mm_check *check);
mm_status mm_check_uses(mm_check *check);
mm_status mm_check_sharing(const mm_check *check);
mm_status mm_check_limits(const mm_check *check);

/* Whether all nodes up to number `seq` of a stream, with all their pieces, have ended before any piece of `node`
 * starts. */
static inline bool mm_check_ended(const mm_check *check, int stream, int32_t seq, int node) {
    const mm_node *n = &check->plan->nodes[node];
    if (stream == (int)n->stream) return seq < n->seq;
    const int first = mm_program_piece(check->program, node, 0);
    return check->program->last[check->node_at[stream][seq]] <= check->clocks[first][stream];
}

/* The rules of form for pools, of one segment; a part of the pass `form`. */
mm_status mm_check_pool_form(const mm_check *check, int segment);

static inline int64_t mm_check_add_saturated(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Whether `output` shares the storage of `input` in the plan, and the step declares them equal. */
bool mm_check_may_share(const mm_check *check, const mm_step_info *step, mm_tensor input, mm_tensor output);

/* Returns MM_ERR_PLAN with "plan POLICY of GRAPH: STEP, tensor NAME: why (rule N)". node, tensor: -1 for none. */
mm_status mm_check_refuse(const mm_check *check, mm_rule rule, int node, mm_tensor tensor, const char *why, ...)
    MM_PRINTF(5, 6);

/* As mm_check_refuse, for a segment. */
mm_status mm_check_refuse_segment(const mm_check *check, mm_rule rule, int segment, const char *why);

/* Adds to a refusal the node that may not have ended, and the segments: mm_violation. Returns `refused`. */
mm_status mm_check_against(const mm_check *check, int other, int segment, int old, mm_status refused);

/* Writes a node's name, such as "conv1 backward" or "encode of conv1 after conv2 forward". Returns buffer. */
const char *mm_check_node_name(const mm_check *check, int node, char *buffer, size_t capacity);

#endif
