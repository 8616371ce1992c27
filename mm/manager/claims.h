/* SPDX-License-Identifier: MIT */
/* Tests what the loop claims (mm_options.self_check): that each step uses tensors as its graph declares, and that a
 * recomputation repeats a step and changes nothing else.
 *
 *              begin of a step                              its end
 *   read       sum the bytes                                sum them again: equal
 *   write      fill with a mark, a NaN (not over an input)  look for an element that still has it
 *   alias                                                   sum input and output: equal
 *   again      sum persistent and external tensors          sum them again: equal; sum outputs: as the first time
 *
 * All of that is enqueued on the compute stream, before the step's own tasks and behind them. A caller that computes on
 * its own thread gets the finding from mm_layer_end, else it comes from the call that ends the iteration. Marks change
 * with each iteration, so that no value is taken for one by a coincidence that stays. All functions do nothing without
 * self_check. */
#ifndef MM_MANAGER_CLAIMS_H
#define MM_MANAGER_CLAIMS_H

#include "mm/manager/manager.h"

/* Called when an iteration begins that runs the steps. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_claims_begin(mm_manager *manager);
/* Called when a step, or a recomputation of it, may use its tensors, and when it has used them. node: of the plan;
 * inline_compute: the caller computes on its own thread. _end: MM_ERR_INVALID if a claim is wrong, and that is known
 * already. */
MM_CHECKED mm_status mm_claims_step_begin(mm_manager *manager, int node, bool inline_compute);
MM_CHECKED mm_status mm_claims_step_end(mm_manager *manager, int node, bool inline_compute);
/* Called when all tasks have ended, also if some have failed. MM_ERR_INVALID: the first wrong claim of a step that has
 * run. */
MM_CHECKED mm_status mm_claims_end(mm_manager *manager);
/* Called when the step under way asks for a tensor that it does not declare: mm_last_error is what mm_claims_step_end
 * returns. */
void mm_claims_undeclared(mm_manager *manager);
void mm_claims_destroy(mm_claims *claims);

#endif
