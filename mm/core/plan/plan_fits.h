/* SPDX-License-Identifier: MIT */
/* Whether a plan fits its limits. */
#ifndef MM_CORE_PLAN_PLAN_FITS_H
#define MM_CORE_PLAN_PLAN_FITS_H

#include "mm/core/plan/plan.h"

/* Bytes, in pinned memory, of the spills of the plan's pools. */
int64_t mm_plan_spill_bytes(const mm_plan *plan);

/* For the end of a message about too little pinned memory: what else the user can do; "": nothing. */
const char *mm_plan_pinned_hint(const mm_plan *plan);

/* For a message that names a plan's bytes on the device: ", and N bytes (M) of pinned host memory"; "" for 0. Returns
 * buffer. MM_PLAN_PINNED_TEXT: the same in a buffer of its own, which lives as long as the enclosing block. */
enum { MM_PLAN_PINNED_TEXT_CAPACITY = 96 };
const char *mm_plan_pinned_text(int64_t bytes, char buffer[MM_PLAN_PINNED_TEXT_CAPACITY]);
#define MM_PLAN_PINNED_TEXT(bytes) mm_plan_pinned_text(bytes, (char[MM_PLAN_PINNED_TEXT_CAPACITY]){0})

/* MM_ERR_INFEASIBLE if the plan's peak is above the limits; the message is "needs at least N, held by LAYER ...". */
MM_CHECKED mm_status mm_plan_fits(const mm_plan *plan, const mm_limits *limits);

#endif
