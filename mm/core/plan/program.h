/* SPDX-License-Identifier: MIT */
/* The program: what is issued. A plan is lowered to it once; the check proves it, the simulator times it, and the
 * pipeline issues it. It is plain data: pieces in issue order, each a step or a part of an operation.
 *
 * Most nodes are one piece. Two nodes are cut into several pieces if the second carries on with the result of the
 * first: ENCODE and the OUT of its code, IN and the DECODE of that code. So a codec and the link work on one map at
 * the same time. Both nodes are cut at the same rows of the map's outermost dimension (images); the codec says where
 * its code may be cut (mm_code_facts.split_rows). The OUT of an all-reduced tensor (mm_graph_allreduce) and the IN of
 * its sum are cut too, if the tensor is large: part of it comes back while the rest goes out. All processes must cut
 * the tensor alike, so all must use the same size of a piece (mm_graph_facts.piece_bytes); files of facts, which may
 * differ between them, do not hold it.
 *
 *      whole   encode |0 0 0 0|                  pieces  encode |0|1|2|3|
 *              out            |0 0 0 0|                  out      |0|1|2|3|
 *
 * Piece k of the second node waits for piece k of the first. All other waits of each of the two nodes are waits of its
 * first piece. The pieces of a node follow each other on its stream. */
#ifndef MM_CORE_PLAN_PROGRAM_H
#define MM_CORE_PLAN_PROGRAM_H

#include "mm/core/plan/plan.h"

/* Most pieces of a node with a code. Chosen: with 8, the first piece, during which the second node cannot work yet, is
 * an eighth of the map; each piece costs two launches and an event. */
enum { MM_PIECES_MOST = 8 };

typedef struct mm_piece {
    int32_t node;
    mm_stream_id stream;
    int32_t seq;                   /* number on its stream, from 0, in issue order */
    int32_t wait[MM_STREAM_COUNT]; /* per other stream: seq of the piece, earlier in issue order, that must have ended
                                      before this one starts; -1: none */
    /* The part of the node's work that it does; 0 for steps. */
    int64_t first_row, rows;             /* rows of the map's outermost dimension */
    int64_t map_offset;                  /* of these rows in the map, in bytes */
    int64_t stored_offset, stored_bytes; /* of these rows in the stored form (mm_program_stored), in bytes */
} mm_piece;

typedef struct mm_program {
    const mm_plan *plan; /* borrowed */
    mm_piece *pieces;    /* in issue order */
    int n;
    int32_t *first, *last;          /* per node: seq of its first and its last piece */
    int32_t *at[MM_STREAM_COUNT];   /* per stream and seq: index of the piece */
    int32_t count[MM_STREAM_COUNT]; /* number of pieces on each stream */
} mm_program;

/* The segment with an operation's stored form: the code that it encodes or decodes, or the copy that it makes. For a
 * measure, which makes nothing: its source. */
static inline int32_t mm_program_stored(const mm_node *op) {
    const mm_node_cost cost = mm_node_table[op->kind].cost;
    return cost == MM_COST_DECODE || cost == MM_COST_MEMORY ? op->src : op->dst;
}

/* Whether the node copies an all-reduced tensor to pinned memory or back. */
static inline bool mm_node_allreduces(const mm_plan *plan, const mm_node *n) {
    return (n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN) &&
           mm_allreduce_copies(mm_graph_tensor(plan->graph, n->tensor)->shared);
}

/* Lowers a plan, and borrows it. MM_ERR_PLAN: a node waits for a node that does not exist; MM_ERR_NOMEM. On failure
 * *program_out is empty. The caller frees it with mm_program_fini. */
MM_CHECKED mm_status mm_program_init(const mm_plan *plan, const mm_graph_facts *facts, mm_program *program_out);
void mm_program_fini(mm_program *program);

/* Vector clocks. clocks_out, per piece and stream: seq of the last piece of that stream that is known to have ended
 * when the piece has ended; on its own stream that is the piece itself; -1: none. Waits must be for earlier pieces. */
void mm_program_clocks(const mm_program *program, int32_t (*clocks_out)[MM_STREAM_COUNT]);

/* Proves a program and the plan that it was lowered from, with one vector clock for each stream: that all executions
 * which its waits allow read what the plain loop reads, and that bytes stay within the limits. The rules are in
 * mm/core/check/plan_rules.h; mm/core/check/SPECIFICATION.md explains them, and shows why they suffice.
 * MM_ERR_PLAN: the message names tensor, step, reason and rule. MM_ERR_INFEASIBLE: only a limit is exceeded.
 * MM_ERR_NOMEM. O(n log n), and for each segment a move of the later entries of an interval map (interval_map.h).
 * exact_out (may be NULL): per segment, whether all values that it ever holds are bit for bit those that were first
 * computed; for a code, those that were encoded. False for a decoded lossy code, for a recomputation from one or by
 * another variant, for a segment that holds such a value at any time, and for workspaces and pools. */
MM_CHECKED mm_status mm_program_prove(const mm_program *program, const mm_graph_facts *facts, const mm_limits *limits,
                                      bool *exact_out);

/* ---------------------------------------------------------------- times of an execution, measured or simulated
 *
 * ended_ns: per piece, when it ended; 0: not known. */

/* When a piece ran. */
typedef struct mm_period {
    int64_t start_ns, end_ns;
} mm_period;

/* Per node, the time of all its pieces. periods: per piece, all known. */
void mm_program_node_times(const mm_program *program, const mm_period *periods, int64_t *node_ns_out);

/* When a piece started: when its stream was free, and the pieces that it waits for had ended. 0: none of these ends is
 * known. */
int64_t mm_program_started(const mm_program *program, const int64_t *ended_ns, const mm_piece *piece);

/* Per side stream: how long the computation waited while that stream ran an operation that it needed. For each step
 * that waits, follows the chain of waits backwards: a step waits for a decode, that for a prefetch, that for an
 * offload, that for an encode. Needs the ends of all operations, and the end of each step that comes right before a
 * step that waits for an operation. */
void mm_program_waits(const mm_program *program, const int64_t *ended_ns, int64_t waits_out[MM_STREAM_COUNT]);

/* How long the computation waited for codecs. */
int64_t mm_program_codec_wait(const mm_program *program, const int64_t *ended_ns);

/* Whether a step waits for an operation. */
static inline bool mm_piece_waits(const mm_piece *step) {
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++)
        if (step->wait[s] >= 0) return true;
    return false;
}

static inline bool mm_piece_is_first(const mm_program *p, const mm_piece *piece) {
    return piece->seq == p->first[piece->node];
}
static inline bool mm_piece_is_last(const mm_program *p, const mm_piece *piece) {
    return piece->seq == p->last[piece->node];
}

/* Whether two pieces that have one stored form have bytes of it in common. */
static inline bool mm_pieces_overlap(const mm_piece *a, const mm_piece *b) {
    return a->stored_offset < b->stored_offset + b->stored_bytes &&
           b->stored_offset < a->stored_offset + a->stored_bytes;
}

/* Index of the i-th piece of a node. */
static inline int mm_program_piece(const mm_program *p, int node, int i) {
    return p->at[p->plan->nodes[node].stream][p->first[node] + i];
}
static inline int mm_program_pieces(const mm_program *p, int node) { return p->last[node] - p->first[node] + 1; }

#endif
