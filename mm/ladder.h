/* The ladder: what may stand in for a policy when there is less memory than was asked for.
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
 * Nothing on it is lossy unless the policy is, and then with the policy's own codec. A pure function of the policy. */
#ifndef MM_LADDER_H
#define MM_LADDER_H

#include "policies/policy.h"

enum { MM_LADDER_MAX = 12 };

typedef struct mm_rung {
    char spec[MM_POLICY_SPEC];
    bool least_workspaces; /* and the variants with the least workspace, where facts have several */
    const char *step;      /* in a word; static */
} mm_rung;

/* The rungs below the policy, in the order in which they are to be tried; returns how many. */
int mm_ladder_list(const mm_policy *policy, mm_rung rungs_out[MM_LADDER_MAX]);

#endif
