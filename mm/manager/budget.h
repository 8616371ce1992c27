/* SPDX-License-Identifier: MIT */
/* A budget that follows the graphs (mm_options.device_bytes 0): it is what they need, as far as the device has it.
 *
 *      |--- budget: has memory ---|--- addresses only, reserved at creation ---|
 */
#ifndef MM_MANAGER_BUDGET_H
#define MM_MANAGER_BUDGET_H

#include "mm/manager/manager.h"

/* Reserves the addresses for such a budget: as many as bytes are free on the device, less an eighth, which libraries
 * may allocate beside the arena. The caller destroys the pool. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_budget_reserve(mm_device *device, mm_pool **pool_out);

/* If the budget follows the graphs: sets it to what the prepared graphs, and `added` (NULL: none), need with the
 * persistent tensors that there are: under liveness, or under `policy`, if that needs more. Logs it. It never becomes
 * smaller. MM_ERR_NOMEM; MM_ERR_INFEASIBLE: more than there are addresses. On failure of its own nothing changed. */
MM_CHECKED mm_status mm_budget_follow(mm_manager *manager, const mm_policy *policy, const mm_graph *added);

/* Ends what mm_budget_follow began: with a failure the budget is again what it was before, `bytes`. Returns
 * `status`. */
MM_CHECKED mm_status mm_budget_keep(mm_manager *manager, int64_t bytes, mm_status status);

/* Sets the budget's number. From any thread. */
void mm_budget_put(mm_manager *manager, int64_t bytes);

#endif
