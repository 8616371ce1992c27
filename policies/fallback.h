/* Fallback: what may stand in for a policy when there is less memory than was asked for.
 *
 *   the policy itself
 *   smaller workspaces     each step's variant with the least scratch
 *   planned memory         no allocation for each map (the naive forms), storage used again
 *   later decodes          one map fetched ahead
 *   more swapping          the maps that the policy keeps go to host memory, too
 *   a stronger policy      cheap layers recomputed; then all layers of segments, with what they are made of swapped;
 *                          then everything out, the computation waiting; all recomputed, nothing swapped; a lossy code
 *                          for all
 *
 * Nothing on it is lossy unless the policy is, and then with the policy's own codec. A pure function of the policy's
 * configuration. */
#ifndef POLICIES_FALLBACK_H
#define POLICIES_FALLBACK_H

#include "policies/policy.h"

enum { MM_FALLBACK_MAX = 12 };

/* A substitute, with the variants of the least workspace where facts have several. */
typedef struct mm_substitute {
    mm_policy policy;
    const char *step; /* in a word; static */
} mm_substitute;

/* The substitutes of a policy, in the order in which they are to be tried; the first is the policy itself. */
typedef struct mm_fallback {
    mm_substitute substitutes[MM_FALLBACK_MAX];
    int n;
} mm_fallback;

/* MM_ERR_NOMEM. The caller ends it. */
MM_CHECKED mm_status mm_fallback_init(mm_fallback *fallback, const mm_policy *policy);
void mm_fallback_fini(mm_fallback *fallback);

#endif
