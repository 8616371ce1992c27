/* SPDX-License-Identifier: MIT */
/* The engine: the planner of most policies. Rules say what happens to a map between its last forward and its first
 * backward use; the engine schedules it.
 *
 * A rule names layers. It applies to a map if it names a layer whose output lies in the map's storage (conv -> bn ->
 * relu written in place are all three). The first rule that applies and can serve the map is taken; a map without such
 * a rule is kept. What the engine adds to the plan:
 *
 *   eviction    ENCODE, OUT or both, as the action says; after the last forward step that uses the map
 *   fetch       IN, DECODE or both; ahead of the backward step that needs the map
 *   recompute   forward steps again; right before that backward step */
#ifndef POLICIES_ENGINE_ENGINE_H
#define POLICIES_ENGINE_ENGINE_H

#include "policies/rules/config.h"
#include "policies/schedule/schedule.h"

enum {
    MM_LEVEL_STAGE = UINT8_MAX
}; /* level of a map that is there only while the backward pass is in the map's stage
                                        (recompute_chain.h) */

/* Gives each map one of the rules, whatever their selectors name: the rules are a menu. The caller owns the arrays. */
typedef struct mm_assignment {
    const int8_t *rule; /* per tensor: index of its rule; -1: kept. A map that its rule cannot serve is kept */
    /* RECOMPUTE_NESTED: per tensor and per step, as in mm_nesting. NULL: each map that is made again is made once, and
     * then kept until its last use. */
    const uint8_t *level, *cut;
    /* Per tensor. fetch: step before which its fetch begins, at the latest the one that needs it. gone: forward step up
     * to which its bytes are not reused, so that nothing waits for a copy that may not have ended. NULL: fetches are as
     * the configuration says (fetch, depth), and bytes are not reused until the next map has left. */
    const int32_t *fetch, *gone;
    /* Without `fetch` (else it is ignored): kept maps take their turns among the fetches, so that these run no further
     * ahead than if all maps were swapped. */
    bool paced;
    /* Per tensor: a lean-swapped map, or gradient map, leaves after each step that uses it, unless the next step does,
     * too. A map also leaves after steps that run again. NULL: none does. */
    const uint8_t *brief;
} mm_assignment;

/* Which of the eligible maps (those that a rule serves) the engine acts on; the others are kept. */
typedef struct mm_selection {
    int limit; /* number of maps that are selected */
    int of;    /* the number of eligible maps, if the selected ones are to be spread evenly over them. 0: the first ones
                  in order of first use are selected; these are needed again last */
    const int *of_rule; /* per rule, its number of eligible maps: all maps of a rule are selected before any of the next
                           rule's. Of the last rule that is reached, maps are spread evenly, or the first ones taken if
                           it recomputes. NULL: rules do not matter */
    int nesting;        /* RECOMPUTE_NESTED: which choice of kept maps, from 0 (mm_survey_nestings) */
    const mm_assignment *assigned; /* if not NULL, it says which maps are acted on, and all of the above is ignored */
} mm_selection;

/* What all plans for one graph, one set of rules and one recompute mode share, whatever maps are selected, and however
 * they are fetched and placed. Borrows the arguments until destroyed. like: a survey of the same graph and facts, which
 * may spare time; NULL: there is none. MM_ERR_INVALID: a rule names no layer; MM_ERR_NOMEM. */
typedef struct mm_survey mm_survey;
MM_CHECKED mm_status mm_survey_create(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                      const mm_engine_config *config, const mm_survey *like, mm_survey **survey_out);
/* The most choices that a recompute mode has. */
enum { MM_SURVEY_NESTINGS = 96 };
/* Number of choices that RECOMPUTE_NESTED has, the one with the least memory first; 0: another mode. */
int mm_survey_nestings(const mm_survey *survey);
/* NULL is legal. */
void mm_survey_destroy(mm_survey *survey);

/* The plan that acts on the selected maps; the caller destroys it. MM_ERR_INFEASIBLE: it needs more than config->k
 * buffers; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_plan_maps(const mm_survey *survey, const mm_engine_config *config,
                                         const mm_selection *selection, mm_layout_algorithm layout, mm_plan **plan_out);

/* Plans are of no use to the caller from below_bytes, or below_ns, on (INT64_MAX: no limit). The time of those that
 * take more than device_bytes is not asked for. */
typedef struct mm_engine_wanted {
    int64_t device_bytes, below_bytes, below_ns;
} mm_engine_wanted;

/* Lower bounds of a plan. */
typedef struct mm_engine_bounds {
    mm_bounds bytes;
    int64_t ns;      /* INT64_MAX: it was not computed */
    int eligible;    /* the number of eligible maps */
    bool early;      /* the selection alone shows that the plan is of no use, however its maps are fetched and placed */
    uint64_t digest; /* of the plan without places: equal ones are placed equally. 0: it is of no use */
} mm_engine_bounds;

/* Bounds that plan; much faster than placing it, and the faster the sooner it is known to be of no use. of_rule_out:
 * the number of eligible maps per rule, or NULL. Errors as above. */
MM_CHECKED mm_status mm_engine_bound_within(const mm_survey *survey, const mm_engine_config *config,
                                            const mm_selection *selection, const mm_engine_wanted *wanted,
                                            int *of_rule_out, mm_engine_bounds *bounds_out);

/* A lower bound of that plan's peak by the selection alone, which is found faster still. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_bound_maps(const mm_survey *survey, const mm_engine_config *config,
                                          const mm_selection *selection, int64_t *bytes_out);

/* The first and the last node at which a segment's storage is in use, and its bytes. bytes 0: another segment of the
 * storage counts it, or it is persistent, pinned or unused. */
typedef struct mm_span {
    int32_t first, last;
    int64_t bytes;
} mm_span;

/* A plan without places. */
typedef struct mm_engine_draft {
    mm_plan *plan; /* its simulated time is as if no bytes were used twice */
    mm_bounds bounds;
    mm_span *spans; /* per segment */
    int8_t *taken;  /* per tensor: the rule that was taken; -1: it is kept */
} mm_engine_draft;

/* The plan before it is placed; the caller frees it with mm_engine_draft_fini. Errors as above. */
MM_CHECKED mm_status mm_engine_draft_maps(const mm_survey *survey, const mm_engine_config *config,
                                          const mm_selection *selection, mm_engine_draft *draft_out);
void mm_engine_draft_fini(mm_engine_draft *draft);

/* taken_out: per tensor, the rule that is taken; -1: it is kept. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_take_maps(const mm_survey *survey, const mm_engine_config *config,
                                         const mm_selection *selection, int8_t *taken_out);

/* Whether the configuration has regions that may lend idle bytes (mm_engine_config.lends). */
bool mm_engine_may_lend(const mm_engine_config *config);

/* when=needed: compares plans that act on more and more maps, and returns the fastest that fits the limits; if none
 * fits, the one with the lowest peak. Times are the facts', or nominal ones (nominal.h) if they have none. The set of
 * plans does not depend on the budget, so a larger budget never makes the step slower. The set contains the plan of
 * `always`, so the least budget exceeds that of `always` by less than a unit of alignment. MM_ERR_INFEASIBLE: the plan
 * that keeps all maps does not fit, and all others need more than config->k buffers. */
MM_CHECKED mm_status mm_engine_plan_needed(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                           const mm_engine_config *config, mm_plan **plan_out);

/* The same for a caller that compares several configurations: skips plans that take at least below_ns or below_bytes by
 * their bounds (INT64_MAX: no limit), and does not search longer for the lowest peak once a plan fits. like: as for
 * mm_survey_create. *plan_out: the fastest of the others that fits; if none fits, one with a low peak; NULL if all were
 * skipped. Facts without times: as above. */
MM_CHECKED mm_status mm_engine_plan_below(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                          const mm_engine_config *config, const mm_survey *like, int64_t below_ns,
                                          int64_t below_bytes, mm_plan **plan_out);

/* Checks that the facts have the codecs of all rules, and that these can use them. MM_ERR_INVALID. */
MM_CHECKED mm_status mm_engine_check_codecs(const mm_graph_facts *facts, const mm_engine_config *config);

/* The plan of the configuration, by its `when`: mm_policy_ops.plan. */
MM_CHECKED mm_status mm_engine_plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                    const mm_engine_config *config, mm_plan **plan_out);

#endif
