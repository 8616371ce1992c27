/* SPDX-License-Identifier: MIT */
/* One policy's plan for a network and a batch, with its account and its simulation. */
#ifndef TOOLS_PLAN_PLAN_CASE_H
#define TOOLS_PLAN_PLAN_CASE_H

#include <jansson.h>
#include <stdio.h>

#include "tools/args/traces.h"
#include "tools/need/forecast.h"
#include "tools/need/max_batch.h"

typedef struct plan_case {
    const char *net; /* as the user named it */
    need_case asked;
    int ranks;     /* devices that each train such a batch, and add up gradients; at least 1 */
    bool searched; /* the batch is found.batch, the largest that fits; 1 if none fits */
    max_batch found;
    bool explained; /* simulates without facts too, by nominal times, and in a larger budget */
    /* set by plan_case_init */
    int64_t sample_tokens; /* of a network of tokens, whose speed is told in tokens; else 0 */
    need need;
    forecast forecast;    /* times with facts, or explained */
    int64_t more_bytes;   /* explained: how much larger a larger budget is, */
    int64_t more_ns;      /* and the time of an iteration in it; 0: the plans do not fit */
    int64_t staged_bytes; /* bytes of the plan for staging the next batch; minimum_bytes is without */
    mm_simulation sim;    /* with facts, or explained; of the pass that needs most; valid if forecast.untimed is "" */
    mm_account account;
} plan_case;

/* Plans. The members before those that it sets must be set. */
MM_CHECKED mm_status plan_case_init(plan_case *c);
void plan_case_fini(plan_case *c);

/* Of the pass that needs most. */
static inline const need_pass *plan_case_need(const plan_case *c) { return need_most(&c->need); }
static inline const mm_plan *plan_case_plan(const plan_case *c) { return plan_case_need(c)->planned.plan; }
bool plan_case_fits(const plan_case *c);

/* Whether the forecast's bound says something of the plan. */
bool plan_case_has_gap(const plan_case *c);

/* Prints the plan's figures. by_kind: also the declared bytes and the live bytes at the peak by kind, and the largest
 * segments there. */
void plan_case_print(FILE *file, const plan_case *c, bool by_kind);

/* Adds the simulated iteration of the pass that needs most. Errors of traces_add; MM_ERR_INVALID: there is none,
 * because the facts have no time of an operation. */
MM_CHECKED mm_status plan_case_trace(const plan_case *c, traces *t);

/* The plan's figures as a JSON object; keys are stable. NULL: out of memory. */
json_t *plan_case_row(const plan_case *c);

#endif
