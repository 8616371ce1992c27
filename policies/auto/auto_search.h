/* SPDX-License-Identifier: MIT */
/* The search of `auto`: an action for each map, found by relieving the steps that need most.
 *
 *      bytes alive                 target
 *        |        ____............./......      1. A start: all maps kept, or a choice of nested recomputation.
 *        |    ___/    \___ <- over it           2. Relieve: at the node where most is alive, the map that costs the
 *        |___/            \___                     least time a byte is masked, made again or swapped, until all
 *        +-----------------------> nodes           is below the target. What waits there between two backward uses
 *                                                  is dropped or leaves again. The plan is drafted anew, and so on.
 *                                               3. Restore: maps whose bytes fit after all are kept again.
 *                                               4. Place and simulate the draft. The fastest plan that fits wins.
 *
 * How much a copy delays the computation is not known beforehand, so each start is relieved with several prices for the
 * link's time, from next to nothing to more than it takes. By the facts' times, fetches begin early enough for their
 * copies, and the bytes of a map that leaves are not reused until its copy has ended. Where that takes too much memory,
 * a fetch begins at the last moment, or the computation waits for a copy. Some starts leave the copies' times to the
 * engine instead (mm_auto_choice.lead 0), which needs less memory.
 *
 * Starts are relieved to lower budgets of a fixed row, too: a plan that is found there fits any larger budget, so a
 * larger budget seldom gives a slower plan.
 *
 * In budgets near what any plan needs, there are more starts: all maps leave, and gradient maps, too, while they are
 * idle. Then one kind of layer at a time gets the action that is the fastest for its maps.
 *
 * Then the best choice is changed: first all maps that have the same place in equal blocks, to every other action
 * (auto_classes.c), or half of them; then every map, one at a time; then a few maps at once, or a row of them, or the
 * cuts of nested recomputation, as pseudo-random numbers say, which are the same each time. Maps that were changed stay
 * so, the rest is relieved and restored as a start is. Work is counted in nodes of the plans that are drafted and
 * placed, so the same input gives the same plan. */
#ifndef POLICIES_AUTO_AUTO_SEARCH_H
#define POLICIES_AUTO_AUTO_SEARCH_H

#include "policies/engine/engine.h"

/* An assignment, with its arrays. */
typedef struct mm_auto_choice {
    int8_t *rule;          /* per tensor */
    uint8_t *eager;        /* per tensor, MM_AUTO_EAGER bits */
    uint8_t *brief;        /* per tensor: mm_assignment.brief */
    int lead;              /* time allowed for copies, in permille of what they take alone; 0: copies are not timed, but
                              issued in the engine's own order (mm_assignment.fetch and gone are NULL) */
    int nesting;           /* choice of nested recomputation in the survey, with its levels and cuts; -1: none */
    int32_t *fetch, *gone; /* per tensor */
} mm_auto_choice;

/* How a search weighs actions. */
typedef struct mm_auto_weights {
    double link; /* price of a ns of the link, in ns */
    bool deep;   /* maps that the choice of nested recomputation keeps may be made again, too */
    bool capped; /* freeing more bytes than a node has above the target counts for nothing */
} mm_auto_weights;

/* The best choice of a search, for searches with other menus. Initialise it with zeros. */
typedef struct mm_auto_hint {
    const mm_engine_config *menu; /* borrowed; NULL: there is none */
    mm_auto_choice choice;
    mm_auto_weights weights;
} mm_auto_hint;

void mm_auto_hint_fini(mm_auto_hint *hint);

/* Whether a budget is near what any plan needs: below twice (chosen) the lower bound of that. Plans need at most 1.5
 * times the bound (measured). */
bool mm_auto_is_small(const mm_graph *graph, const mm_graph_facts *facts, int64_t device_bytes);

/* Improves on a plan. *plan: one that fits, or one that does not (the less it takes the better), or NULL. If a better
 * one is found, it replaces *plan, and the old one is destroyed. *plan is not NULL after success, and NULL after a
 * failure. A plan that fits is better than one that does not; of two that fit, the faster, by mm_simulate; of two that
 * do not, the one with the lower peak. facts: with times (nominal.h). menu: its rules are the actions, of which each
 * map may get one, whatever the selectors name; recompute=NESTED, buffers and codes in REGION_GENERAL. work: number of
 * nodes of the plans that are drafted, up to twice as many, and up to four times where that pays; to place a plan
 * counts as several drafts of it, to draft it again as an eighth. hint: what an earlier search for the same graph,
 * facts and limits found, or nothing; replaced by what this one finds, with `menu` borrowed; may be NULL. like: as for
 * mm_survey_create. Ends early if limits->stop is set. MM_ERR_NOMEM, errors of mm_simulate. Thread-safe. */
MM_CHECKED mm_status mm_auto_search(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                    const mm_engine_config *menu, const mm_survey *like, int64_t work,
                                    mm_auto_hint *hint, mm_plan **plan);

#endif
