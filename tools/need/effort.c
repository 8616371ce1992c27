/* SPDX-License-Identifier: MIT */
#include "tools/need/effort.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"
#include "policies/policy.h"

static const char key[] = "effort";

static bool searches(const mm_policy *policy) {
    for (const mm_option_desc *d = policy->ops->options; d && d->key; d++)
        if (strcmp(d->key, key) == 0) return true;
    return false;
}

static mm_status apply(int64_t effort, const char **policy, texts *texts, bool *any) {
    mm_policy parsed;
    MM_TRY(mm_policy_parse(*policy, &parsed));
    const bool here = searches(&parsed);
    mm_policy_fini(&parsed);
    *any |= here;
    if (!here || strstr(*policy, "effort=")) return MM_OK;
    char *spec = mm_text_format("%s%c%s=%lld", *policy, strchr(*policy, ':') ? ',' : ':', key, (long long)effort);
    const char *kept = spec ? texts_keep(texts, spec) : NULL;
    free(spec);
    if (!kept) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
    *policy = kept;
    return MM_OK;
}

mm_status effort_apply(int64_t effort, const char **policies, int n, texts *texts) {
    bool any = false;
    for (int i = 0; i < n && effort != EFFORT_OPEN; i++) MM_TRY(apply(effort, &policies[i], texts, &any));
    if (any || effort == EFFORT_OPEN) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--plan-effort %lld: none of the policies has an effort to set, as auto has",
                   (long long)effort);
}
