/* SPDX-License-Identifier: MIT */
/* Private to the engine: what a plan takes at least, known before it is built. */
#ifndef POLICIES_ENGINE_ENGINE_FLOOR_H
#define POLICIES_ENGINE_ENGINE_FLOOR_H

#include "policies/engine/engine_build.h"

/* A lower bound of the peak (mm_bounds.peak_bytes) of the plan that mm_engine_build would build: what is alive at each
 * step whatever the operations between the steps do. It takes a small part of the time that building the plan takes,
 * and rules out most plans that exceed a budget. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_floor(const mm_engine *engine, int64_t *bytes_out);

/* A lower bound of that plan's time (mm_draft_time): its steps, what runs again at least once, copies and codecs.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_least_time(const mm_engine *engine, int64_t *ns_out);

#endif
