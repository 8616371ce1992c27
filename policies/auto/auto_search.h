/* SPDX-License-Identifier: MIT */
/* The search of `auto`: an action for each map, found by relieving the steps that need most.
 *
 *      bytes alive                 target
 *        |        ____............./......      1. A start: all maps kept, or a choice of nested recomputation.
 *        |    ___/    \___ <- over it           2. Relieve: where most is alive, the map there that costs the least
 *        |___/            \___                     time a byte is masked, made again or swapped, until all is
 *        +-----------------------> nodes           below the target. The plan is drafted anew, and so on.
 *                                               3. Restore: maps whose bytes fit after all are kept again.
 *                                               4. Place and simulate it. The fastest plan that fits stays.
 *
 * What the link costs is not known before: each start is relieved with several prices of it, from next to nothing to
 * its whole time. Fetches begin, and the bytes of maps that leave are left alone until, when a copy ends by the facts'
 * times. Where that is too much memory, a fetch begins at the last moment, or the computation waits for a copy.
 *
 * Starts are relieved to lower budgets of a fixed row, too: what is found there fits in any larger budget, so that
 * these seldom give slower plans.
 *
 * Where all that is not enough, gradient maps that are idle leave, too. In budgets near what any plan needs, starts
 * come from letting all maps leave, too: then one kind of layer at a time gets the action that is the fastest for its
 * maps.
 *
 * Then the best is changed: first every map to every other action, one at a time; then a few maps at once, or a row of
 * them, or the cuts of nested recomputation, chosen by a row of numbers that is always the same. What is changed stays,
 * the rest is relieved and restored as a start is. Work is counted in plans that are drafted, so the same input gives
 * the same plan. */
#ifndef POLICIES_AUTO_AUTO_SEARCH_H
#define POLICIES_AUTO_AUTO_SEARCH_H

#include "policies/engine/engine.h"

/* Improves on a plan. *plan: one that fits, or one that does not (the less it takes the better), or NULL; replaced by a
 * better one, and the old one destroyed; not NULL after success, and NULL after a failure. A plan that fits is better
 * than one that does not; of two that fit, the faster, by mm_simulate; of two that do not, that with the lower peak.
 * facts: with times (nominal.h). menu: its rules are the actions that maps may get, one each, whatever their selectors
 * name; recompute=NESTED, buffers and codes in REGION_GENERAL. trials: number of plans that are drafted. Where
 * limits->stop is set, it returns the best plan so far. MM_ERR_NOMEM, errors of mm_simulate. Thread-safe. */
MM_CHECKED mm_status mm_auto_search(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                    const mm_engine_config *menu, int trials, mm_plan **plan);

#endif
