/* SPDX-License-Identifier: MIT */
#ifndef MM_LOOP_LOOP_MATCH_H
#define MM_LOOP_LOOP_MATCH_H

#include "mm/loop/loop.h"

/* Compares a step that is entered with the recorded one that is next, and takes over its pointers and its function.
 * MM_ERR_ORDER: they differ; the message names both. */
MM_CHECKED mm_status mm_loop_match(mm_loop *loop, const mm_loop_step *step, const mm_slot *slots, size_t n_slots);

#endif
