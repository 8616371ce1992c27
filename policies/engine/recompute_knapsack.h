/* SPDX-License-Identifier: MIT */
/* Private to the engine: RECOMPUTE_KNAPSACK, which maps to keep as a 0/1 knapsack: torch's activation memory budget
 * (torch/_functorch/partitioners.py), for comparison. A map weighs its bytes, and is worth the time of the steps that
 * would make it again from other maps of the knapsack. That these may be gone, too, and then have to be made first, it
 * does not see; nor when a map is in memory, and what else is there. */
#ifndef POLICIES_ENGINE_RECOMPUTE_KNAPSACK_H
#define POLICIES_ENGINE_RECOMPUTE_KNAPSACK_H

#include "policies/engine/recompute_levels.h"

/* Solves for all capacities from 0 to `capacity`. take_out[i * (capacity + 1) + c]: with capacity c and the items up to
 * i, the best choice has item i; the rest is that of the items before i, with c - weight[i] if it has, else with c.
 * weight: at least 0. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_knapsack_solve(int n, const int64_t *worth, const int *weight, int capacity, uint8_t *take_out);

/* At most `most` choices, for shares of the maps' bytes from none on. They do not depend on the budget. MM_ERR_NOMEM.
 * The caller frees them with mm_nesting_fini. */
MM_CHECKED mm_status mm_knapsack_choose(mm_nesting *nesting, const mm_schedule *schedule, int most);

#endif
