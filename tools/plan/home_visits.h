/* SPDX-License-Identifier: MIT */
/* Where a plan has the homes of persistent tensors, and when copies of those in other memories are on the device. */
#ifndef TOOLS_PLAN_HOME_VISITS_H
#define TOOLS_PLAN_HOME_VISITS_H

#include "mm/core/plan/plan.h"
#include "tools/plan/picture.h"

/* A copy on the device, from the first step that uses it to the last. */
typedef struct home_visit {
    int first, last;              /* steps that use it; -1: none does */
    int32_t begin_node, end_node; /* the nodes from which to which it is there */
    bool fetched;                 /* it begins with a copy from the home; else the first step writes it */
    bool sent;                    /* it ends with a copy to the home */
} home_visit;

/* The visits of a tensor whose home is elsewhere, one by one: *segment is 0 before the first. False: there are no
 * more. */
bool home_next_visit(const mm_plan *plan, mm_tensor tensor, int *segment, home_visit *visit_out);

/* The homes of a plan for a picture, by kind and memory; none if all are on the device. MM_ERR_NOMEM. The caller frees
 * them with picture_homes_fini. */
MM_CHECKED mm_status home_picture(const mm_plan *plan, picture_homes *homes_out);

#endif
