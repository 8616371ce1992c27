/* SPDX-License-Identifier: MIT */
#include "tools/need/update_when.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/policy.h"
#include "tools/need/sub_batch.h"

mm_status update_runs_add(update_runs *runs, const char *text, const char *policy_spec, int64_t batch, bool whole,
                          bool has_budget) {
    mm_policy policy;
    int64_t n;
    MM_TRY(sub_batch_read(text, policy_spec, batch, whole, &n));
    MM_TRY(mm_policy_parse(policy_spec, &policy));
    runs->compares |= policy.ops->observer && policy.config.comet.guard;
    mm_policy_fini(&policy);
    runs->sub_batches |= n > 0 ? n < batch : text || has_budget;
    return MM_OK;
}

static const char *refusal(const target *t, nets_update_when when, const update_runs *runs) {
    nets_lowering how = target_lowering(t, NETS_TRAIN);
    how.update = when;
    how.pass.whole = runs->sub_batches;
    if (runs->ranks) how.allreduce.n = 2;
    const char *why = nets_update_refusal(&how, t->optimizer.clip_norm > 0);
    if (why || when != NETS_UPDATE_IN_BACKWARD) return why;
    if (runs->compares) return "the policy compares gradients of whole iterations";
    return runs->undo ? "an overflow may be found after some updates, which --on-overflow stop allows" : NULL;
}

mm_status update_when_read(target *t, const update_runs *runs) {
    static const char *const words[] = {[NETS_UPDATE_AT_END] = "at-end",
                                        [NETS_UPDATE_BY_LAYER] = "by-layer",
                                        [NETS_UPDATE_IN_BACKWARD] = "in-backward"};
    enum { WORDS = sizeof words / sizeof *words };
    const bool on_host = t->optimizer.on_host;
    const char *text = words[on_host ? NETS_UPDATE_IN_BACKWARD : NETS_UPDATE_AT_END], *why;
    if (t->update_text && (!on_host || strcmp(t->update_text, "auto") != 0)) text = t->update_text;
    if (strcmp(text, "auto") == 0) {
        why = refusal(t, NETS_UPDATE_IN_BACKWARD, runs);
        t->update = why ? NETS_UPDATE_AT_END : NETS_UPDATE_IN_BACKWARD;
        if (why) fprintf(stderr, "mm %s: --update auto: at-end: %s\n", runs->command, why);
        return MM_OK;
    }
    int when = 0;
    while (when < WORDS && strcmp(text, words[when]) != 0) when++;
    if (when == WORDS)
        return mm_fail(MM_ERR_INVALID, "--update %s: must be at-end, by-layer, in-backward or auto", text);
    why = refusal(t, (nets_update_when)when, runs);
    if (why)
        return mm_fail(MM_ERR_INVALID, "%s%s: %s",
                       on_host && !t->update_text ? "--optimizer on=host: update " : "--update ", text, why);
    t->update = (nets_update_when)when;
    return MM_OK;
}
