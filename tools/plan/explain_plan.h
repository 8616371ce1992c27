/* SPDX-License-Identifier: MIT */
/* A part of mm plan --explain: what codecs make of the stashed maps, what one policy's plan does with them, where its
 * time goes, what more memory would gain, and what is needed at the peak. */
#ifndef TOOLS_PLAN_EXPLAIN_PLAN_H
#define TOOLS_PLAN_EXPLAIN_PLAN_H

#include "tools/plan/plan_case.h"

/* A case's stash and what was decided about it. Times are the facts', or nominal ones if these have none. */
typedef struct explained {
    mm_stash_account stash;
    const mm_facts *facts; /* of the remedies; with the policy's codecs, or if none of them gives values, freelunch's */
    mm_facts times;        /* of the decisions: those of the plan, with times */
    mm_decision *decisions; /* one for each map of the stash */
    mm_planned codecs;      /* freelunch's, if they count */
    bool nominal;           /* times are nominal, and owned */
} explained;

/* The case must outlive it, and must have been planned with plan_case.explained. */
MM_CHECKED mm_status explained_init(explained *e, const plan_case *c);
/* Legal on a zeroed one. */
void explained_fini(explained *e);

/* Writes the words of a decision's kinds: "mask and swap". Returns buffer. */
enum { EXPLAINED_KINDS = 96 };
const char *explained_kinds(uint32_t kinds, char buffer[EXPLAINED_KINDS]);
/* The same as an array. */
json_t *explained_kinds_json(uint32_t kinds);

MM_CHECKED mm_status explain_plan_print(FILE *file, const plan_case *c, const explained *e);
/* Adds the keys codecs, decisions, iteration, more and peak. */
MM_CHECKED mm_status explain_plan_row(json_t *row, const plan_case *c, const explained *e);

#endif
