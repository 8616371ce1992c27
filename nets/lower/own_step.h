/* SPDX-License-Identifier: MIT */
/* A step of the graph that is none of a layer of the net. Internal to lowering. */
#ifndef NETS_LOWER_OWN_STEP_H
#define NETS_LOWER_OWN_STEP_H

#include "nets/lower/lower.h"

/* Adds the step, and a layer for it. */
MM_CHECKED mm_status nets_lower_own_step(nets_lowered *out, const char *name, mm_phase phase, const mm_use *uses,
                                         size_t n, int64_t workspace_bytes);

#endif
