/* SPDX-License-Identifier: MIT */
/* --plan-effort: how long policies search that do. */
#ifndef TOOLS_NEED_EFFORT_H
#define TOOLS_NEED_EFFORT_H

#include "tools/args/args.h"
#include "tools/args/texts.h"

enum { EFFORT_OPEN = -1, /* not given: what the policy says */ EFFORT_MOST = 1000000 };

#define EFFORT_ARG(effort)                                                                                             \
    ARG("--plan-effort", "N", "how long auto searches beyond other policies' plans, in multiples; 0: not (1)",         \
        ARG_COUNT, effort, 0, EFFORT_MOST)

/* Writes the effort into each of these policies that has an option for it, unless it is given there; the new texts are
 * kept by `texts`. effort EFFORT_OPEN: does nothing. MM_ERR_INVALID: a policy that is none, or none that searches;
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status effort_apply(int64_t effort, const char **policies, int n, texts *texts);

#endif
