/* SPDX-License-Identifier: MIT */
/* --plan-effort: how long policies that search for a plan, as auto does, go on searching. */
#ifndef TOOLS_NEED_EFFORT_H
#define TOOLS_NEED_EFFORT_H

#include "tools/args/args.h"
#include "tools/args/texts.h"

enum { EFFORT_OPEN = -1, /* not given: the policy's own effort */ EFFORT_MOST = 1000000 };

#define EFFORT_ARG(effort)                                                                                             \
    ARG("--plan-effort", "N", "how long auto searches beyond other policies' plans, in multiples; 0: not (1)",         \
        ARG_COUNT, effort, 0, EFFORT_MOST)

/* Adds effort=N to each policy that has that option, unless its text sets it already. `texts` owns the new texts.
 * effort EFFORT_OPEN: does nothing. MM_ERR_INVALID: a text is not a policy, or no policy has the option;
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status effort_apply(int64_t effort, const char **policies, int n, texts *texts);

#endif
