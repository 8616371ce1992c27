/* SPDX-License-Identifier: MIT */
#include "tools/need/policy_marks.h"

#include "mm/core/status.h"
#include "mm/planning/planning.h"

/* Finds whether `is` holds for a codec that the policy names. */
static mm_status names_codec(const char *policy, bool (*is)(const mm_codec *codec), bool *found_out) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    mm_codec *codec;
    int n = 0;
    bool found = false;
    mm_status status = mm_policy_codecs(policy, specs, &n);
    for (int i = 0; i < n && status != MM_ERR_NOMEM && !found; i++) {
        status = mm_codec_create(specs[i], "host", &codec);
        if (status != MM_OK) continue;
        found = is(codec);
        mm_codec_destroy(codec);
    }
    if (status == MM_ERR_NOMEM) return status;
    *found_out = found;
    return MM_OK;
}

static bool is_lossy(const mm_codec *codec) { return !codec->flags.lossless; }
static bool reads_bound(const mm_codec *codec) { return codec->flags.reads_bound; }

mm_status policy_stay(mm_policy *policy) {
    if (policy->config.resident == MM_RESIDENT_NONE)
        return mm_fail(
            MM_ERR_INVALID,
            "policy %s: what ranks divide stays on the device; leave resident=, and =host in rules, out, or --divide",
            policy->spec);
    policy->config.resident = MM_RESIDENT_ALL;
    return MM_OK;
}

mm_status policy_stay_text(const char **text, texts *texts) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(*text, &policy));
    const bool moves = policy.config.resident != MM_RESIDENT_ALL;
    mm_status status = policy_stay(&policy);
    if (status == MM_OK && moves) status = mm_policy_print(&policy);
    const char *kept = status == MM_OK && moves ? texts_keep(texts, policy.spec) : *text;
    mm_policy_fini(&policy);
    if (status != MM_OK) return status;
    if (!kept) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
    *text = kept;
    return MM_OK;
}

mm_status policy_find_lossy(const char *policy, bool *lossy_out) { return names_codec(policy, is_lossy, lossy_out); }
/* A policy with a codec that reads an error bound samples: no other policy can be planned with such a codec. */
mm_status policy_find_samples(const char *policy, bool *samples_out) {
    return names_codec(policy, reads_bound, samples_out);
}
