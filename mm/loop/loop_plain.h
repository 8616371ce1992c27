/* SPDX-License-Identifier: MIT */
/* Plain memory outside the budget, for recordings that compute (MM_LOOP_RECORD_RUN). */
#ifndef MM_LOOP_LOOP_PLAIN_H
#define MM_LOOP_LOOP_PLAIN_H

#include "mm/loop/loop.h"

/* Sets the step's pointers to plain memory: a tensor has one block for the whole iteration, scratch one for each step.
 * Blocks are zero at first, as first ADDs want them. Pointers may be set even if it fails. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_loop_plain_fill(mm_loop *loop, mm_loop_made *step, const mm_slot *slots);
/* Waits for what the program has enqueued on its stream. */
MM_CHECKED mm_status mm_loop_plain_wait(mm_loop *loop);
/* Frees all blocks. Nothing may use them any more. */
void mm_loop_plain_free(mm_loop *loop);

#endif
