/* SPDX-License-Identifier: MIT */
/* A digest of everything in a plan. */
#ifndef TESTS_GOLDEN_WHOLE_DIGEST_H
#define TESTS_GOLDEN_WHOLE_DIGEST_H

#include "mm/core/plan/program.h"

/* The digest of every node with its stream, its waits and the segments that it uses; of every segment, alias and
 * region; and every piece. (mm_plan_digest tells plans of one graph apart, by less.) */
uint64_t whole_digest(const mm_program *program);

#endif
