/* SPDX-License-Identifier: MIT */
/* A hash of a plan. */
#ifndef MM_CORE_PLAN_PLAN_DIGEST_H
#define MM_CORE_PLAN_PLAN_DIGEST_H

#include "mm/core/plan/plan.h"

/* A hash of what a plan's nodes do and wait for, and of where segments lie. Equal hashes are taken for equal plans. */
uint64_t mm_plan_digest(const mm_plan *plan);

#endif
