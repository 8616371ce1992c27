/* One policy's plan for a network and a batch, and what can be said of it. */
#ifndef TOOLS_PLAN_CASE_H
#define TOOLS_PLAN_CASE_H

#include <jansson.h>
#include <stdio.h>

#include "mm/core/account.h"
#include "mm/core/simulate.h"
#include "tools/max_batch.h"
#include "tools/requirement.h"

typedef struct plan_case {
    const char *net;           /* as asked for */
    const facts_source *facts; /* borrowed; NULL: no times */
    target target;
    int64_t batch, budget_bytes, pinned_bytes; /* budget, pinned 0: none */
    bool searched;                             /* the batch is the largest that fits, as found; 1 if none does */
    max_batch found;
    /* made */
    requirement r;
    int64_t staged_bytes; /* of the plan, for the next batch to come in meanwhile; minimum_bytes does without */
    mm_simulation sim;    /* with facts; it holds if nothing is untimed */
    const char *untimed;  /* what the facts have no time of, NULL: nothing */
    mm_account account;
} plan_case;

/* Plans; the fields above "made" are set. The net must outlive it. */
MM_CHECKED mm_status plan_case_init(plan_case *c, const nets_net *net, const char *policy);
void plan_case_fini(plan_case *c);

static inline const mm_plan *plan_case_plan(const plan_case *c) { return c->r.planned.plan; }
bool plan_case_fits(const plan_case *c);

/* The figures that every plan gets, as text; with `by_kind` what the graph declares of each kind beside what is alive
 * at the peak, and the largest segments there. */
void plan_case_print(FILE *file, const plan_case *c, bool by_kind);

/* Its row: stable keys. NULL: out of memory. */
json_t *plan_case_row(const plan_case *c);

#endif
