/* SPDX-License-Identifier: MIT */
/* Explains a plan's homes: which weights, gradients and states live in pinned memory, and when copies of them are on
 * the device. */
#ifndef TOOLS_PLAN_EXPLAIN_HOMES_H
#define TOOLS_PLAN_EXPLAIN_HOMES_H

#include <jansson.h>
#include <stdio.h>

#include "mm/core/plan/plan.h"

/* Prints sums by kind, and the largest `most` of these tensors with their visits; nothing if all homes are on the
 * device. MM_ERR_NOMEM. */
MM_CHECKED mm_status explain_homes_print(FILE *file, const mm_plan *plan, int most);

/* An array of all of them; empty if all homes are on the device. NULL: out of memory. */
json_t *explain_homes_json(const mm_plan *plan);

#endif
