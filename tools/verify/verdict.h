/* SPDX-License-Identifier: MIT */
/* What the proof says of a plan from a file: for people, and as JSON. */
#ifndef TOOLS_VERIFY_VERDICT_H
#define TOOLS_VERIFY_VERDICT_H

#include <jansson.h>

#include <stdbool.h>
#include <stdio.h>

#include "mm/core/check/counterexample.h"
#include "mm/core/plan/plan_file.h"

enum { VERDICT_UNIT_NS = 1000 }; /* a unit of an execution in a trace */

typedef struct verdict {
    bool proved;
    char message[1024];     /* not proved: why */
    mm_violation violation; /* not proved: the rule, and where */
    mm_counterexample example;
} verdict;

/* Proves the plan. Only a failure of the proof itself is a failure (MM_ERR_NOMEM). The caller frees the verdict with
 * verdict_fini. */
MM_CHECKED mm_status verdict_make(const mm_plan_file *file, verdict *verdict_out);
void verdict_fini(verdict *v);

/* A line if the plan is proved; else the rule, the reason, and the execution up to where it goes wrong. path: as the
 * user named it. */
void verdict_print(FILE *out, const char *path, const mm_plan_file *file, const verdict *v);

/* The same as an object. NULL: out of memory. */
json_t *verdict_json(const char *path, const mm_plan_file *file, const verdict *v);

#endif
