/* SPDX-License-Identifier: MIT */
/* What 'mm plan' searches before it plans: --max-batch, --fastest-batch, --max-context. */
#ifndef TOOLS_PLAN_PLAN_SEARCH_H
#define TOOLS_PLAN_PLAN_SEARCH_H

#include "tools/plan/plan_case.h"

/* "largest batch"; NULL: PLAN_AS_GIVEN. */
const char *plan_search_what(plan_search search);
/* Prints what was found and what the next larger one would need. PLAN_AS_GIVEN: nothing. */
void plan_search_print(FILE *file, const plan_case *c);
/* Adds the keys max_batch; fastest_batch, max_batch and tried; or max_context and next_context. */
void plan_search_row(json_t *row, const plan_case *c);
/* PLAN_FASTEST_BATCH: a table of the batches that were tried. MM_ERR_NOMEM. */
MM_CHECKED mm_status plan_search_table(FILE *file, const plan_case *c);

#endif
