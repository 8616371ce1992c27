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
    char *spec;
    bool least_workspaces; /* and the variants with the least workspace, where facts have several */
    const char *step;      /* in a word; static */
} mm_rung;

/* The rungs below a policy, in the order in which they are to be tried. */
typedef struct mm_ladder {
    mm_rung rungs[MM_LADDER_MAX];
    int n;
} mm_ladder;

/* MM_ERR_NOMEM. The caller ends it. */
MM_CHECKED mm_status mm_ladder_init(mm_ladder *ladder, const mm_policy *policy);
void mm_ladder_fini(mm_ladder *ladder);

#endif
