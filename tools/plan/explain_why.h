/* SPDX-License-Identifier: MIT */
/* The part of mm plan --explain about why a map gets its action: what would come of each other one
 * (policies/alternatives.h). */
#ifndef TOOLS_PLAN_EXPLAIN_WHY_H
#define TOOLS_PLAN_EXPLAIN_WHY_H

#include "policies/alternatives.h"
#include "tools/plan/plan_case.h"

typedef struct explained_other {
    mm_remedy_kind action;
    int64_t price_ns; /* of the action by itself; 0: none, or not known */
    mm_alternative what;
} explained_other;

/* The reasons of one map: its other actions. A kept map of a plan that fits has one reason: there is room. */
typedef struct explained_why {
    bool room;
    explained_other other[MM_REMEDY_KINDS];
    int n;
} explained_why;

typedef struct explained_whys {
    explained_why *maps; /* of the first n of the stash */
    int n;
    mm_anew anew; /* of what the reasons are; ns 0: no map has another action than to be kept */
} explained_whys;

/* Finds the reasons of the first n maps. The caller frees them with explain_why_fini, which is legal on an all-zero
 * struct. */
MM_CHECKED mm_status explain_why_find(const plan_case *c, const mm_stash_account *stash, const mm_decision *decisions,
                                      const mm_graph_facts *times, int n, explained_whys *whys_out);
void explain_why_fini(explained_whys *whys);

/* Writes the reasons of one map: "keep: needs 3MiB more than the budget, at fc backward; swap, 0.6 ms: ..." */
void explain_why_print(FILE *text, const plan_case *c, const explained_whys *whys, int map);
/* Prints one line: of which plan, made anew from the actions, the reasons are. Prints nothing if there are none. */
void explain_why_print_anew(FILE *file, const plan_case *c, const explained_whys *whys);
/* The reasons as an array; [] for a map that is not among the first n. */
json_t *explain_why_json(const plan_case *c, const explained_whys *whys, int map);

#endif
