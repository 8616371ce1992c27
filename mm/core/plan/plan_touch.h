/* SPDX-License-Identifier: MIT */
/* The segments that a node uses. */
#ifndef MM_CORE_PLAN_PLAN_TOUCH_H
#define MM_CORE_PLAN_PLAN_TOUCH_H

#include "mm/core/plan/plan.h"

/* A use of a segment by a node. */
typedef struct mm_touch {
    int32_t segment;
    int32_t use;      /* index of the step's use; -1: a code that the step writes, an operation's source or target, a
                         workspace, or a pool */
    mm_access access; /* MM_WRITE for a workspace, and for a pool that a code is encoded into */
    bool work;        /* a workspace, scratch or stage: no other node may use it */
} mm_touch;

/* Iterates over the segments that a node touches: a step's uses in their order, the codes that it writes, source,
 * target, workspace and stage, and, if it encodes or decodes a code with a body, the body's pool and its spill. A
 * segment that is named twice is visited twice. Uses without a segment are skipped. Start with *i = 0. False: no
 * more. */
bool mm_node_next_touch(const mm_plan *plan, const mm_node *node, int *i, mm_touch *touch_out);

/* The numbers of some segments that a node touches; -1: none. */
typedef struct mm_touch_row {
    const int32_t *segments; /* NULL if n is 0 */
    int n;
} mm_touch_row;

/* The numbers of all of them, in the same order: those of a step's uses, those of the codes that it writes, and all
 * others. For planners, which need no more than the numbers, of all nodes of many plans. */
enum { MM_TOUCH_ROWS = 3, MM_TOUCH_OWN = 6 };
typedef struct mm_touch_rows {
    mm_touch_row row[MM_TOUCH_ROWS];
    int32_t own[MM_TOUCH_OWN]; /* what the last row points to */
} mm_touch_rows;

/* Fills *rows_out, which points into itself and into the plan: valid until either changes. */
void mm_node_touch_rows(const mm_plan *plan, const mm_node *node, mm_touch_rows *rows_out);

#endif
