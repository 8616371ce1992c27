/* SPDX-License-Identifier: MIT */
/* One policy's plan for a network and a batch, with its account and its simulation. */
#ifndef TOOLS_PLAN_CASE_H
#define TOOLS_PLAN_CASE_H

#include <jansson.h>
#include <stdio.h>

#include "mm/core/account/account.h"
#include "mm/core/time/simulate.h"
#include "tools/max_batch.h"
#include "tools/requirement.h"
#include "tools/traces.h"

typedef struct plan_case {
    const char *net;           /* as the user named it */
    const facts_source *facts; /* borrowed; NULL: no times */
    target target;
    int ranks;                /* devices that each train such a batch, and add up gradients; at least 1 */
    int64_t batch, sub_batch; /* sub_batch: images of a pass (nets_exec_create_sub); the batch: whole batches */
    int64_t budget_bytes;     /* 0: no limit */
    int64_t pinned_bytes;     /* INT64_MAX: no limit */
    bool searched;            /* `batch` is found.batch, the largest that fits; 1 if none fits */
    max_batch found;
    bool explained; /* simulates without facts too, by nominal times, and in a larger budget */
    /* set by plan_case_init */
    int64_t sample_tokens;     /* of a network of tokens, whose speed is told in tokens; else 0 */
    requirement_passes passes; /* of a whole batch there is one */
    int64_t iteration_ns;      /* with facts, or explained; of all passes */
    int64_t bound_ns;   /* with facts: no plan with these codecs takes less (mm/core/time/time_bound.h); of all passes;
                                  INT64_MAX: none fits */
    int64_t more_bytes; /* explained: how much larger that budget is, */
    int64_t more_ns;    /* and the time of all passes in it; 0: they do not fit */
    mm_moves moves;     /* of all passes */
    int64_t defragmentations; /* of all passes */
    int64_t staged_bytes;     /* bytes of the plan for staging the next batch; minimum_bytes is without */
    mm_simulation sim;        /* with facts, or explained; of the pass that needs most; valid if `untimed` is NULL */
    const char *untimed;      /* an operation that the facts have no time of; NULL: none */
    mm_account account;
} plan_case;

/* Plans. The members before those that it sets must be set; the net must outlive the case. */
MM_CHECKED mm_status plan_case_init(plan_case *c, const nets_net *net, const char *policy);
void plan_case_fini(plan_case *c);

/* Of the pass that needs most. */
static inline const requirement *plan_case_need(const plan_case *c) { return requirement_most(&c->passes); }
static inline const mm_plan *plan_case_plan(const plan_case *c) { return plan_case_need(c)->planned.plan; }
bool plan_case_fits(const plan_case *c);

/* Prints the plan's figures. by_kind: also the declared bytes and the live bytes at the peak by kind, and the largest
 * segments there. */
void plan_case_print(FILE *file, const plan_case *c, bool by_kind);

/* Adds the simulated iteration of the pass that needs most. Errors of traces_add; MM_ERR_INVALID: there is none,
 * because the facts have no time of an operation. */
MM_CHECKED mm_status plan_case_trace(const plan_case *c, traces *t);

/* The plan's figures as a JSON object; keys are stable. NULL: out of memory. */
json_t *plan_case_row(const plan_case *c);

#endif
