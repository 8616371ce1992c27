/* SPDX-License-Identifier: MIT */
#include "tools/need/policy_marks.h"

#include "mm/core/status.h"
#include "mm/planning/planning.h"

/* Whether `is` holds for a codec that the policy names. */
static bool names_codec(const char *policy, bool (*is)(const mm_codec *codec)) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    mm_codec *codec;
    int n = 0;
    bool found = false;
    if (mm_policy_codecs(policy, specs, &n) != MM_OK) return false;
    for (int i = 0; i < n && !found; i++) {
        if (mm_codec_create(specs[i], "host", &codec) != MM_OK) continue;
        found = is(codec);
        mm_codec_destroy(codec);
    }
    return found;
}

static bool is_lossy(const mm_codec *codec) { return !codec->flags.lossless; }
static bool reads_bound(const mm_codec *codec) { return codec->flags.reads_bound; }

bool policy_is_lossy(const char *policy) { return names_codec(policy, is_lossy); }
/* A policy with a codec that reads an error bound samples: no other policy can be planned with such a codec. */
bool policy_samples(const char *policy) { return names_codec(policy, reads_bound); }

const char *policy_mark(const char *policy) { return policy_is_lossy(policy) ? " (lossy)" : ""; }
