/* SPDX-License-Identifier: MIT */
/* The recordings of a loop, by key. */
#ifndef MM_LOOP_LOOP_KEYS_H
#define MM_LOOP_LOOP_KEYS_H

#include "mm/loop/loop.h"

/* NULL: the key is not known. */
mm_loop_recording *mm_loop_find(const mm_loop *loop, int64_t key);
/* Adds an empty recording. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_loop_add(mm_loop *loop, int64_t key, mm_loop_recording **recording_out);
/* Has the manager plan a recording that is learned, and compute its steps again by their functions. Errors of
 * mm_recompute_set. */
MM_CHECKED mm_status mm_loop_plan(mm_loop_recording *recording);
/* Forgets and frees a recording. No iteration of it may be under way. */
void mm_loop_drop(mm_loop *loop, mm_loop_recording *recording);

#endif
