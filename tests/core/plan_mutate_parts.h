/* SPDX-License-Identifier: MIT */
/* Shared by the files of mutations, plan_mutate_*.c, of which each has one subject. */
#ifndef TESTS_CORE_PLAN_MUTATE_PARTS_H
#define TESTS_CORE_PLAN_MUTATE_PARTS_H

#include "tests/core/plan_mutate.h"

/* Each ended by a NULL name. */
extern const mutation mutations_of_order[], mutations_of_moves[], mutations_of_recomputes[], mutations_of_bytes[],
    mutations_of_uses[], mutations_of_limits[], mutations_of_persistents[], mutations_of_pools[],
    mutations_of_measures[], mutations_of_codes[];

/* ---------------------------------------------------------------- uniform random choice */

int mutant_below(mutant *m, int n);
mm_node *mutant_node(mutant *m);
mm_segment *mutant_segment(mutant *m); /* NULL: the plan has none */

/* A node, or a segment, for which fits() is true; NULL: there is none. */
mm_node *mutant_find_node(mutant *m, bool (*fits)(const mm_node *));
mm_segment *mutant_find_segment(mutant *m, bool (*fits)(const mm_segment *));
/* A wait of some node; a binding of a managed tensor. NULL: there is none. */
int32_t *mutant_find_wait(mutant *m);
int32_t *mutant_find_binding(mutant *m);
/* Another segment of the same tensor; -1: there is none. */
int mutant_find_sibling(mutant *m, int segment);

bool node_has_wait(const mm_node *n);
static inline bool node_is_op(const mm_node *n) { return !mm_node_runs_step(n); }
static inline bool node_has_target(const mm_node *n) { return n->dst >= 0; }
static inline bool node_is_measure(const mm_node *n) { return n->kind == MM_NODE_MEASURE; }
static inline bool node_is_extra(const mm_node *n) { return n->kind != MM_NODE_STEP; }
static inline bool node_is_encode(const mm_node *n) { return n->kind == MM_NODE_ENCODE; }
static inline bool node_is_store_or_load(const mm_node *n) {
    return n->kind == MM_NODE_STORE || n->kind == MM_NODE_LOAD;
}
static inline bool node_is_move(const mm_node *n) {
    return n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN || node_is_store_or_load(n);
}
static inline bool node_is_recompute(const mm_node *n) { return n->kind == MM_NODE_RECOMPUTE; }
static inline bool node_has_work(const mm_node *n) { return n->work >= 0; }
static inline bool segment_is_raw(const mm_segment *s) { return s->content == MM_CONTENT_RAW; }
static inline bool segment_is_coded(const mm_segment *s) { return s->content == MM_CONTENT_CODED; }
static inline bool segment_is_pool(const mm_segment *s) { return s->content == MM_CONTENT_POOL; }
static inline bool segment_has_pool(const mm_segment *s) { return s->pool >= 0; }
static inline bool segment_has_spill(const mm_segment *s) { return s->spill >= 0; }
static inline bool segment_is_placed(const mm_segment *s) { return !s->dynamic; }
static inline bool segment_is_pinned(const mm_segment *s) { return s->memory == MM_MEM_PINNED; }

/* ---------------------------------------------------------------- order */

/* Inserts a node before node `at`, which gets its seq; waits for later nodes of its stream still mean the same nodes.
 * The plan must have room. */
void mutant_insert(mm_plan *plan, int at, mm_node node);
/* Sets seq of all nodes by their present order. */
void mutant_renumber(mm_plan *plan);
/* Moves node `from` to place `to`. Waits for nodes of its stream still mean the same nodes. */
void mutant_move_node(mm_plan *plan, int from, int to);

#endif
