/* SPDX-License-Identifier: MIT */
/* The part of mm plan --explain about one policy's plan: how far codecs compress the stashed maps, what the plan does
 * with them, where its time goes, how much faster it would be with more memory, and what is needed at the peak. */
#ifndef TOOLS_PLAN_EXPLAIN_PLAN_H
#define TOOLS_PLAN_EXPLAIN_PLAN_H

#include "mm/core/account/account_stash.h"
#include "tools/plan/explain_why.h"

enum { EXPLAIN_MAPS = 10 }; /* how many maps are listed, unless all are */

/* A case's stash and what was decided about it. Times are the facts', or nominal ones if the facts have none. */
typedef struct explained {
    mm_stash_account stash;
    const mm_graph_facts
        *facts;           /* for the remedies; with the policy's codecs, or freelunch's if none of them gives values */
    mm_graph_facts times; /* for the decisions: the plan's facts, with times */
    mm_decision *decisions; /* one for each map of the stash */
    mm_planned codecs;      /* freelunch's, if `facts` has those */
    bool nominal;           /* `times` are nominal, and owned */
    explained_whys whys;
} explained;

/* The case must outlive *e, and must have been planned with plan_case.explained. */
MM_CHECKED mm_status explained_init(explained *e, const plan_case *c);
/* Legal on an all-zero struct. */
void explained_fini(explained *e);

/* Writes the kinds of a decision as text: "mask and swap". Returns buffer. */
enum { EXPLAINED_KINDS = 96 };
const char *explained_kinds(uint32_t kinds, char buffer[EXPLAINED_KINDS]);
/* The kinds as a JSON array. */
json_t *explained_kinds_json(uint32_t kinds);

MM_CHECKED mm_status explain_plan_print(FILE *file, const plan_case *c, const explained *e);
/* Adds the keys codecs, decisions, iteration, more and peak. */
MM_CHECKED mm_status explain_plan_row(json_t *row, const plan_case *c, const explained *e);

#endif
