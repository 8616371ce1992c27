/* The proof that a plan and its program are right (mm_program_prove), in passes. Inside mm/core only. Each pass relies
 * on what the ones before it have established.
 *
 *   form      every index in range, every segment and node well-formed: nothing later can go astray
 *   pieces    the same of the program; each node's work is in its pieces, once
 *   clocks    for each piece, how far every stream is known to have come when it ends (mm_program_clocks)
 *   uses      walk in issue order: which value each segment holds, who reads it, who may still be at it
 *   sharing   segments on the same bytes: all users of one before the first of the next
 *   limits    regions, heap, and the budget
 *
 * The walk in issue order of the nodes stands for every execution: each write is ordered after all earlier users of its segment,
 * each read after the write that it sees, so whatever order of the streams the waits allow, all find the same. */
#ifndef MM_CORE_PLAN_CHECK_H
#define MM_CORE_PLAN_CHECK_H

#include "mm/core/program.h"

/* What the walk knows of a segment. */
typedef struct mm_residence {
    int32_t users[MM_STREAM_COUNT]; /* seq of the last user on each stream so far; -1: none */
    int32_t first, last;            /* first and last user; -1: none */
    int32_t writer;                 /* node that wrote what it holds; -1: none did in this iteration */
    int32_t value;                  /* what it holds, see mm_check.current; -1 */
    bool exact;                     /* that value bit for bit (a code: what was encoded was) */
    bool always_exact;              /* and whatever it held before was, too */
    bool unread;                    /* an operation wrote it, and nobody has used that yet */
} mm_residence;

typedef struct mm_check {
    const mm_plan *plan;
    const mm_graph *graph;
    const mm_facts *facts;
    const mm_limits *limits;
    const mm_program *program;
    int32_t (*clocks)[MM_STREAM_COUNT]; /* per piece: mm_program_clocks */
    int32_t *node_at[MM_STREAM_COUNT];  /* per stream and a node's seq: the node */
    mm_residence *residences;           /* per segment */
    int32_t *current; /* per tensor: the number of its present value. Each write makes a new one; an alias takes its
                         input's, so that a change of the shared storage leaves the others' values in no segment. */
    int32_t values;   /* how many there are */
    int32_t *seen;    /* per binding of a step that ran: the value that it read or wrote there */
    int32_t *ran;     /* per step of the graph: the node that ran it; a recomputation looks there */
} mm_check;

mm_status mm_check_form(const mm_check *check);
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

/* Whether the plan lets `output` share the storage of `input`, and the step declares them equal. */
bool mm_check_may_share(const mm_check *check, const mm_step_info *step, mm_tensor input, mm_tensor output);

/* Refuses the plan: "plan POLICY of GRAPH: STEP, tensor NAME: why". node, tensor: -1 for none. */
mm_status mm_check_refuse(const mm_check *check, int node, mm_tensor tensor, const char *why, ...) MM_PRINTF(4, 5);

/* The same about a segment. */
mm_status mm_check_refuse_segment(const mm_check *check, int segment, const char *why);

/* "conv1 backward", or "encode of conv1 after conv2 forward". Returns buffer. */
const char *mm_check_node_name(const mm_check *check, int node, char *buffer, size_t capacity);

#endif
