/* SPDX-License-Identifier: MIT */
/* The portfolio of `auto`: it plans by all other policies whose codecs are all in its menu, in the forms that pay,
 * searches from the fastest of their plans, and takes the fastest that fits. So it is never slower than one of them.
 * Where the menu has lossy codecs it does so without these first: naming one never makes a plan slower. */
#ifndef POLICIES_AUTO_AUTO_PORTFOLIO_H
#define POLICIES_AUTO_AUTO_PORTFOLIO_H

#include "policies/policy.h"

typedef struct mm_portfolio {
    const mm_graph *graph;
    const mm_facts *facts; /* with times, measured or nominal */
    const mm_limits *limits;
    const mm_engine_config *menu;  /* as of mm_auto_search */
    const mm_engine_config *tried; /* the part of the menu by which all was tried before; NULL: none */
    mm_plan *plan;                 /* the best so far; NULL: none */
    int64_t ns;                    /* its iteration's time; INT64_MAX: it does not fit */
    int64_t copying_ns;            /* no plan that copies what it does not keep takes less */
    bool searches;                 /* also where no member fits */
} mm_portfolio;

bool mm_portfolio_fits(const mm_portfolio *p, const mm_plan *plan);

/* Keeps the better of both plans, and ends the other: one that fits, then the faster one. Of two that do not fit, one
 * within the pinned memory, then the smaller one. NULL is no plan. Errors of mm_simulate: the plan is ended. */
MM_CHECKED mm_status mm_portfolio_offer(mm_portfolio *p, mm_plan *plan);

/* Plans by the menu. *plan_out: the fastest plan that fits; if none does, the one with the lowest peak of those of
 * other policies. The caller ends it. Errors of mm_policy_ops.plan, mm_simulate. */
MM_CHECKED mm_status mm_portfolio_plan(mm_portfolio *p, mm_plan **plan_out);

/* Ends the rules of a configuration of which `serves` is false. */
void mm_portfolio_filter(mm_engine_config *menu, const mm_facts *facts,
                         bool (*serves)(const mm_facts *facts, const mm_rule *rule));

#endif
