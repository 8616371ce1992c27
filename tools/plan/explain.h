/* SPDX-License-Identifier: MIT */
/* mm plan --explain: the largest stashed maps with what could be done with each (remedies) and what was decided; where
 * the time goes (explain_plan.h); lower bounds; and all accounts as JSON. */
#ifndef TOOLS_PLAN_EXPLAIN_H
#define TOOLS_PLAN_EXPLAIN_H

#include "mm/core/account/account_bound.h"
#include "mm/core/account/account_maps.h"
#include "tools/need/target.h"
#include "tools/plan/plan_case.h"

/* An mm_lower_bound with the names of the steps that need it. */
typedef struct explain_bound {
    int64_t batch;
    mm_lower_bound bound;
    char held_by[256], offloaded_held_by[256];
} explain_bound;

/* The bound of a net at a batch. Batch 1 is moDNN's smallest sub-batch. source: a machine's workspaces are used;
 * measured facts are ignored, since they are for another batch. NULL: none. */
MM_CHECKED mm_status explain_bound_of(const nets_net *net, const target *target, int64_t batch,
                                      const facts_source *source, explain_bound *bound_out);

/* Prints, for cases of one net and one batch: the largest stashed maps, with the bytes of them that each case holds;
 * what each case holds by class of maps; and the bounds of one image (`image`) and of the cases' batch. */
MM_CHECKED mm_status explain_print(FILE *file, const plan_case *cases, int n, const explain_bound *image);

/* Adds to a case's row the keys kinds, peak_segments, stashed_maps, maps (mm_map_account), timeline (live bytes at each
 * step, by kind), memory (mm_plan_memory), and those of explain_plan_row; the bounds of `image` as lower_bound_bytes,
 * _held_by, _offloaded_bytes and _offloaded_held_by; and those of the case's batch with the prefix batch_ before. */
MM_CHECKED mm_status explain_row(json_t *row, const plan_case *c, const explain_bound *image);

#endif
