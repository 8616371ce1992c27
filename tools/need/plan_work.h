/* SPDX-License-Identifier: MIT */
/* What plans do beyond computing each step once, and whether two runs have the same plans. */
#ifndef TOOLS_NEED_PLAN_WORK_H
#define TOOLS_NEED_PLAN_WORK_H

#include <stdbool.h>

#include "mm/core/facts/facts.h"
#include "mm/core/plan/plan.h"

/* All zero: of no plan. */
typedef struct plan_work {
    uint64_t digest; /* of the plans, in the order in which they were added; 0: no plan. Equal digests are taken for
                        equal plans */
    bool acts;       /* a plan offloads, encodes or recomputes something */
    bool lossy;      /* a plan has a code of a lossy codec */
} plan_work;

/* The lossy ones of the facts' codecs, a bit each. */
unsigned plan_work_lossy_codecs(const mm_graph_facts *facts);

/* Adds a plan. lossy_codecs: plan_work_lossy_codecs of the facts that it was made with. */
void plan_work_add(plan_work *work, const mm_plan *plan, unsigned lossy_codecs);

#endif
