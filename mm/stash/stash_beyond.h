/* SPDX-License-Identifier: MIT */
/* MM_STASH_REFUSE_LATER: what finds no room lies outside the budget, and the iteration is refused once it has ended,
 * when its whole order is known.
 *
 *   a put for which there is no room ──▶ host memory
 *   a get                            ──▶ device memory of its own, from host memory; freed when it is released */
#ifndef MM_STASH_STASH_BEYOND_H
#define MM_STASH_STASH_BEYOND_H

#include "mm/stash/stash_learn.h"
#include "mm/stash/stash_table.h"

/* refused: needed_bytes is the most that was found to be missing so far. */
typedef struct mm_stash_beyond {
    int64_t bytes, most_bytes; /* outside the budget now; and at most, or lacking */
    mm_stash_refused refused;
    bool ended;                    /* the iteration has ended, and its refusal was not returned yet */
    const mm_learned_order *order; /* its order; NULL: it was not learned */
} mm_stash_beyond;

/* Whether the stash refuses later, so that a lack of room is no failure. */
bool mm_stash_refuses_later(const mm_stash *stash);
/* Notes that an entry found no room, as stash->refused says. more: bytes more than before that are outside the budget.
 * lacking: bytes that were lacking, and took no device memory. */
void mm_stash_beyond_note(mm_stash *stash, int64_t more, int64_t lacking);
/* Copies the caller's bytes to host memory. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_beyond_put(mm_stash *stash, mm_stash_slot *slot, const void *data);
/* Copies the slot's bytes from host memory to device memory of its own. MM_ERR_INFEASIBLE: there is none; the message
 * is that of before. MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_beyond_bring(mm_stash *stash, mm_stash_slot *slot);
/* Frees that memory. Nobody holds the entry. */
void mm_stash_beyond_leave(mm_stash *stash, mm_stash_slot *slot);

/* Call it when an iteration ends, before its order is learned. */
void mm_stash_beyond_end(mm_stash *stash);
/* Returns the refusal of an iteration that has ended, once. Waits until its order is planned. MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status mm_stash_beyond_refuse(mm_stash *stash);

#endif
