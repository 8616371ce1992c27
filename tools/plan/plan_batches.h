/* SPDX-License-Identifier: MIT */
/* Compares policies by what a search found: the end of 'mm plan' with --max-batch, --fastest-batch or --max-context. */
#ifndef TOOLS_PLAN_PLAN_BATCHES_H
#define TOOLS_PLAN_PLAN_BATCHES_H

#include "tools/plan/plan_case.h"

/* Prints a table of several policies; and, if a plan pins memory that nothing limits, that --pinned would. All cases
 * were searched alike. MM_ERR_NOMEM. */
MM_CHECKED mm_status plan_batches_print(FILE *file, const plan_case *cases, int n);

#endif
