/* The engine behind every policy that does something about feature maps: rules say what becomes of a map between its
 * last forward and its first backward use, the engine schedules it.
 *
 * A rule looks at the layers whose outputs lie in a map's storage (conv -> bn -> relu in one storage is all three). The
 * first rule that names one of them and can serve the map counts; a map that none does is kept.
 *
 *   put away    after the last forward step that uses the map:  ENCODE and OUT, as the action says
 *   fetched     ahead of the backward step that needs it:       IN and DECODE
 *   recomputed  right before that step                                                                            */
#ifndef POLICIES_ENGINE_H
#define POLICIES_ENGINE_H

#include "policies/config.h"
#include "policies/schedule.h"

/* Which of the maps that the rules name the engine acts on; the others are kept. */
typedef struct mm_selection {
    int limit; /* so many */
    int of;    /* spread evenly over so many, which is how many there are; 0: the first, those used longest ago at the
                  turn of the iteration */
    const int *of_rule; /* all that a rule acts on before any of the next rule's; those of the last one that is reached
                           spread evenly over so many, or the first if it recomputes. NULL: whichever rule it is */
} mm_selection;

/* What the plans of a graph by the rules and in the recompute mode of a configuration have in common, whatever is
 * selected, fetched ahead or placed where. Borrows what it is made of. MM_ERR_INVALID: a rule names no layer. */
typedef struct mm_survey mm_survey;
MM_CHECKED mm_status mm_survey_create(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                      const mm_engine_config *config, mm_survey **survey_out);
void mm_survey_destroy(mm_survey *survey);

/* The plan for the selected maps. */
MM_CHECKED mm_status mm_engine_plan_maps(const mm_survey *survey, const mm_engine_config *config,
                                         const mm_selection *selection, mm_layout_algorithm layout, mm_plan **plan_out);

/* What it takes at the least: bytes, and time by the facts' times. Much faster than the search for its places.
 * *eligible_out: how many maps there are to select from; of_rule_out: how many of them each rule acts on, one for each
 * rule, or NULL. */
MM_CHECKED mm_status mm_engine_bound_maps(const mm_survey *survey, const mm_engine_config *config,
                                          const mm_selection *selection, int *eligible_out, int *of_rule_out,
                                          mm_bounds *bounds_out, int64_t *ns_out);

/* The fastest that fits the limits of a set of plans, for growing numbers of maps, by the facts' times, or by nominal
 * ones (nominal.h) if they have none. The set does not depend on the budget, so a larger one never makes the step
 * longer; the plan for all maps as `always` makes it is in it, so the minimum is not above that of
 * `always` by as much as a unit of alignment.
 * MM_ERR_INFEASIBLE if doing nothing does not fit, and what would need less takes more buffers than are wanted (k). */
MM_CHECKED mm_status mm_engine_plan_needed(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                           const mm_engine_config *config, mm_plan **plan_out);

MM_CHECKED mm_status mm_engine_plan(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                    const mm_engine_config *config, mm_plan **plan_out);

#endif
