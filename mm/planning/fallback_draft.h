/* SPDX-License-Identifier: MIT */
/* Goes down the ladder: drafts plans under the wanted policy if they fit, or else under the first of its substitutes
 * (policies/fallback.h) whose plans fit. The plan set does not change. */
#ifndef MM_PLANNING_FALLBACK_DRAFT_H
#define MM_PLANNING_FALLBACK_DRAFT_H

#include "mm/planning/plan_set.h"

typedef struct mm_fallback_request {
    const mm_policy *policy;
    mm_limits limits;
    bool is_short;             /* there is less memory than was asked for, so substitutes may be tried */
    const mm_new_graph *added; /* a new graph, or NULL */
    bool others_stay;    /* the other graphs keep their plans if the new one fits under the policy that runs now */
    mm_refusal *refusal; /* receives why no plans fit (MM_ERR_INFEASIBLE); NULL: not wanted */
} mm_fallback_request;

/* A misfit as data, but for its message and advice. policy: its spec. others: the n graphs beside it. */
mm_refusal mm_misfit_describe(const mm_plan_set *set, const mm_limits *limits, const char *policy,
                              const mm_misfit *misfit, const mm_new_graph *others, int n);

/* Drafts plans that fit. The caller frees the draft. MM_ERR_INFEASIBLE: no plans fit; the message says how much the
 * policy needs, which other graph's persistent tensors count in that, and which policy would fit. */
MM_CHECKED mm_status mm_fallback_draft(const mm_plan_set *set, const mm_fallback_request *request, mm_draft *draft_out);

#endif
