/* SPDX-License-Identifier: MIT */
/* When copies of persistent tensors whose homes are not on the device are there. */
#ifndef MM_CORE_PLAN_PLAN_VISITS_H
#define MM_CORE_PLAN_PLAN_VISITS_H

#include "mm/core/plan/plan.h"

/* A copy on the device, from the first step that uses it to the last. */
typedef struct mm_plan_visit {
    int first, last;              /* steps that use it; -1: none does */
    int32_t begin_node, end_node; /* the nodes from which to which it is there */
    bool fetched;                 /* it begins with a copy from the home; else the first step writes it */
    bool sent;                    /* it ends with a copy to the home */
} mm_plan_visit;

/* The visits of a tensor whose home is elsewhere, one by one: *segment is 0 before the first. False: there are no
 * more. */
bool mm_plan_next_visit(const mm_plan *plan, mm_tensor tensor, int *segment, mm_plan_visit *visit_out);

#endif
