/* SPDX-License-Identifier: MIT */
/* What a policy can do in one network: whether it may change values, and whether it acts at all. */
#ifndef TOOLS_NEED_POLICY_EFFECT_H
#define TOOLS_NEED_POLICY_EFFECT_H

#include "mm/planning/planning.h"
#include "tools/args/texts.h"

typedef struct policy_effect {
    bool lossy;        /* the codec of some map is lossy */
    const char *idle;  /* the policy has rules, and they can act on no map of the network: a sentence that says so, and
                         which option of the policy would make it act. NULL: it acts, or keeps all maps by design */
    const char *would; /* with `idle`: the spec of the policy with that option; NULL: no option does */
} policy_effect;

/* The graph is one pass of training. device: where the codecs run. `texts` owns the effect's texts. Errors of
 * mm_policy_parse, mm_planned_init and mm_policy_reach. */
MM_CHECKED mm_status policy_effect_find(const char *policy, const mm_graph *graph, const char *device, texts *texts,
                                        policy_effect *effect_out);

#endif
