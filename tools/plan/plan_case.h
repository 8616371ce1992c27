/* SPDX-License-Identifier: MIT */
/* One policy's plan for a network and a batch, with its memory account and its simulation. */
#ifndef TOOLS_PLAN_PLAN_CASE_H
#define TOOLS_PLAN_PLAN_CASE_H

#include <jansson.h>
#include <stdio.h>

#include "tools/args/traces.h"
#include "tools/need/fastest_batch.h"
#include "tools/need/forecast.h"
#include "tools/need/largest.h"
#include "tools/need/policy_effect.h"
#include "tools/need/sub_batch_offer.h"

/* What is searched before planning. */
typedef enum plan_search {
    PLAN_AS_GIVEN,
    PLAN_MAX_BATCH,
    PLAN_FASTEST_BATCH,
    PLAN_MAX_CONTEXT,
    PLAN_SEARCHES
} plan_search;

typedef struct plan_case {
    const char *net; /* as the user named it */
    need_case asked;
    int ranks; /* number of devices, which each train asked.batch and add up gradients; at least 1 */
    plan_search search;
    largest found;         /* MAX_BATCH, MAX_CONTEXT: asked has that batch or context, or the smallest if none fits */
    fastest_batch fastest; /* FASTEST_BATCH: the same */
    nets_net *own_net;     /* MAX_CONTEXT: asked.net, owned; NULL: the caller's net */
    bool offers;           /* look whether `auto` would gain by sub-batches */
    bool explained;        /* also simulate without facts, with nominal times, and in a larger budget */
    bool explains_all;     /* explained: all stashed maps, not only the largest */
    texts *texts;          /* owns the texts of `effect`; borrowed */
    /* set by plan_case_init */
    policy_effect effect;  /* of the policy in this network */
    int64_t sample_tokens; /* tokens of a sample, if the network reads tokens; else 0 */
    need need;
    forecast forecast;    /* has times if there are facts, or if explained */
    int64_t more_bytes;   /* explained: how much larger the larger budget is */
    int64_t more_ns;      /* explained: time of an iteration in it; 0: the plans do not fit */
    int64_t staged_bytes; /* bytes of the plan for staging the next batch; minimum_bytes does not include them */
    mm_simulation sim;    /* of plan_case_need's pass, if forecast has times; valid if forecast.untimed is "" */
    sub_batch_offer offer;
    mm_account account;
    mm_held_step *timeline; /* of the account: one for each of its steps */
} plan_case;

/* Plans. The caller must have set the members above "set by plan_case_init". */
MM_CHECKED mm_status plan_case_init(plan_case *c);
void plan_case_fini(plan_case *c);

/* The pass with the largest minimum, and its plan. */
static inline const need_pass *plan_case_need(const plan_case *c) { return need_most(&c->need); }
static inline const mm_plan *plan_case_plan(const plan_case *c) { return plan_case_need(c)->planned.plan; }
bool plan_case_fits(const plan_case *c);
/* Whether the minimum was found: it was asked for (need_case.wants_plan is not set), or the budget is too small. */
static inline bool plan_case_knows_minimum(const plan_case *c) { return c->need.least_bytes > 0; }
/* "--max-batch"; NULL: PLAN_AS_GIVEN. */
const char *plan_search_option(plan_search search);
/* Searches as c->search says, and sets c->asked to what was found. Errors of the search. */
MM_CHECKED mm_status plan_case_search(plan_case *c);
/* Refuses a case that does not fit, with MM_ERR_INFEASIBLE, in the words of 'mm train'. */
MM_CHECKED mm_status plan_case_refuse(const plan_case *c);

/* The machine that the plan is for: that of the facts, or else the target's device. */
static inline const char *plan_case_machine(const plan_case *c) {
    return c->asked.facts ? facts_source_machine(c->asked.facts) : c->asked.target->device;
}

/* Whether the plan's gap to the bound of its time is known: the bound is, and the plan fits. */
bool plan_case_has_gap(const plan_case *c);
/* Of what that bound is one: whole batches or these sub-batches, this budget or the plan's bytes, these codecs. */
const char *plan_case_bound_of(const plan_case *c);

/* Prints the plan's figures. by_kind: also prints, by kind, the declared bytes and those live at the peak, and the
 * largest segments at the peak. */
void plan_case_print(FILE *file, const plan_case *c, bool by_kind);

/* Adds the simulated iteration of plan_case_need's pass. Errors of traces_add; MM_ERR_INVALID: nothing was simulated,
 * because the facts lack the time of an operation. */
MM_CHECKED mm_status plan_case_trace(const plan_case *c, traces *t);

/* The plan's figures as a JSON object; keys are stable. NULL: out of memory. */
json_t *plan_case_row(const plan_case *c);

#endif
