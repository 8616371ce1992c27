/* SPDX-License-Identifier: MIT */
/* Fallback: the substitutes for a policy when there is less memory than it was given.
 *
 *   the policy itself
 *   smaller workspaces     for each step the variant with the smallest workspace
 *   planned memory         for naive forms: places are planned, instead of an allocation for each map
 *   later decodes          only one map fetched ahead
 *   more swapping          maps that the policy does not evict are swapped too
 *   a stronger policy      recompute cheap layers, then also swap; recompute whole segments and swap their inputs; swap
 *                          all maps while the computation waits; recompute all, swap nothing; keep signs alone; any
 *                          action on any map; compress all maps
 *
 * A substitute is lossy only if the policy is, and then it uses the policy's codec. Weights and states may leave the
 * device (resident=) if they may under the policy. The list depends on the policy's
 * configuration alone. */
#ifndef POLICIES_FALLBACK_H
#define POLICIES_FALLBACK_H

#include "policies/policy.h"

/* An upper bound of what fallback.c adds: 4 forms of the policy, 8 stronger policies, one that compresses, and auto
 * twice. */
enum { MM_FALLBACK_MAX = 15 };

/* A substitute. Its plan uses, for each step, the variant with the smallest workspace. */
typedef struct mm_substitute {
    mm_policy policy;
    const char *step; /* what it changes, in a few words; a static string */
} mm_substitute;

/* The substitutes of a policy, in the order in which to try them; the first is the policy itself. */
typedef struct mm_fallback {
    mm_substitute substitutes[MM_FALLBACK_MAX];
    int n;
    mm_resident resident; /* the policy's: substitutes that have the option keep it */
} mm_fallback;

/* MM_ERR_NOMEM. The caller frees it with mm_fallback_fini. */
MM_CHECKED mm_status mm_fallback_init(mm_fallback *fallback, const mm_policy *policy);
void mm_fallback_fini(mm_fallback *fallback);

#endif
