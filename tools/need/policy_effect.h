/* SPDX-License-Identifier: MIT */
/* What a policy can do in one network: whether it may change values, and whether it acts at all. */
#ifndef TOOLS_NEED_POLICY_EFFECT_H
#define TOOLS_NEED_POLICY_EFFECT_H

#include "mm/planning/planning.h"
#include "tools/args/texts.h"
#include "tools/need/plan_work.h"

typedef struct policy_effect {
    bool lossy;            /* the codec of some map is lossy */
    unsigned lossy_codecs; /* plan_work_lossy_codecs of its facts */
    const char *idle;  /* the policy has rules, and they can act on no map of the network: a sentence that says so, and
                         which option of the policy would make it act. NULL: it acts, or keeps all maps by design */
    const char *would; /* with `idle`: the spec of the policy with that option; NULL: no option does */
    /* For runs whose plans act on nothing, as the budget forces no more: as `idle` and `would`. NULL: the policy has no
     * rules, or `idle` is set. */
    const char *unforced, *unforced_would;
} policy_effect;

/* Why a run whose plans do `work` acts on nothing: idle or unforced; NULL: it acts, or keeps all maps by design.
 * *would_out: the spec that would act, or NULL. */
const char *policy_effect_idle(const policy_effect *effect, const plan_work *work, const char **would_out);

/* The graph is one pass of training. device: where the codecs run. `texts` owns the effect's texts. Errors of
 * mm_policy_parse, mm_planned_init and mm_policy_reach. */
MM_CHECKED mm_status policy_effect_find(const char *policy, const mm_graph *graph, const char *device, texts *texts,
                                        policy_effect *effect_out);

#endif
