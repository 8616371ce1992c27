/* SPDX-License-Identifier: MIT */
/* The portfolio of `auto`. It plans with all other policies whose codecs are all in the menu (the rules of auto's
 * configuration), but those for comparison alone, in the forms that pay, searches from the fastest of their plans, and
 * takes the fastest plan that fits. So auto is hardly ever slower than one of them. If the menu has lossy codecs, it
 * does so without these first, so that naming one never makes a plan slower. */
#ifndef POLICIES_AUTO_AUTO_PORTFOLIO_H
#define POLICIES_AUTO_AUTO_PORTFOLIO_H

#include "policies/auto/auto_search.h"
#include "policies/policy.h"

typedef struct mm_portfolio {
    const mm_graph *graph;
    const mm_graph_facts *facts; /* with times, measured or nominal */
    const mm_limits *limits;
    const mm_engine_config *menu;  /* as in mm_auto_search */
    const mm_engine_config *tried; /* the part of the menu with which all members were tried before; NULL: none */
    mm_survey *survey;             /* with the whole menu */
    mm_plan *plan;                 /* the best so far; NULL: none */
    int64_t ns;                    /* its iteration's time; INT64_MAX: it does not fit */
    int64_t copying_ns;            /* lower bound of the time of a plan that copies every map that it does not keep */
    int nodes;                     /* of the plan that keeps all maps: steps, and copies of persistent tensors */
    bool searches;                 /* search even if no member's plan fits */
    mm_auto_hint hint;             /* the best choice of the searches so far */
    char *smallest; /* the policy whose plan has the lowest peak, while none fits; owned; NULL: none of the engine's */
} mm_portfolio;

/* The spec of the i-th policy that is tried, with %s for a codec; NULL past the last. */
const char *mm_portfolio_member(int i);

bool mm_portfolio_fits(const mm_portfolio *p, const mm_plan *plan);

/* Compares a plan with p->plan: keeps the better, destroys the other. One that fits is better, then the faster one. Of
 * two that do not fit, one within the pinned memory is better, then the smaller one. NULL is no plan. Errors of
 * mm_simulate: the plan is destroyed. */
MM_CHECKED mm_status mm_portfolio_offer(mm_portfolio *p, mm_plan *plan);

/* Plans with the menu. *plan_out: the fastest plan that fits; if none does, the plan of another policy with the lowest
 * peak. The caller destroys it. Errors of mm_policy_ops.plan, mm_simulate. */
MM_CHECKED mm_status mm_portfolio_plan(mm_portfolio *p, mm_plan **plan_out);

/* Removes the menu's rules for which `serves` is false. */
void mm_portfolio_filter(mm_engine_config *menu, const mm_graph_facts *facts,
                         bool (*serves)(const mm_graph_facts *facts, const mm_rule *rule));

#endif
