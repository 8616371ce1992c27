/* SPDX-License-Identifier: MIT */
/* What a policy can do in one graph, whatever the budget. */
#ifndef POLICIES_REACH_H
#define POLICIES_REACH_H

#include "policies/policy.h"

typedef struct mm_reach {
    bool by_rules; /* the policy acts by rules. False for naive and liveness, which keep all maps by design, and for
                      modnn, which has no rules; `maps` is 0 then */
    int maps;      /* number of maps that the rules can act on */
    int lossy;     /* number of those that a lossy codec may take */
} mm_reach;

/* facts: with the policy's codecs; their times do not matter. MM_ERR_INVALID: the facts lack a codec, or a rule names
 * no layer that there is; MM_ERR_NOMEM. Pure; as fast as one draft of a plan, for auto as one for each action. */
MM_CHECKED mm_status mm_policy_reach(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                                     mm_reach *reach_out);

#endif
