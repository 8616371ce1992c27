/* SPDX-License-Identifier: MIT */
/* The program's pointers: set when a step begins, NULL when it has ended. */
#ifndef MM_LOOP_LOOP_FILL_H
#define MM_LOOP_LOOP_FILL_H

#include <string.h>

#include "mm/loop/loop.h"

/* A pointer of the program's, of any type. */
static inline void mm_loop_pointer_set(void *where, const void *value) { memcpy(where, &value, sizeof value); }
static inline void *mm_loop_pointer_get(const void *where) {
    void *value;
    memcpy(&value, where, sizeof value);
    return value;
}

/* A place less what the program adds by itself; the result may lie outside of all memory. */
static inline void *mm_loop_pointer_less(void *place, int64_t bytes) {
    return (void *)((uintptr_t)place - (uintptr_t)bytes);
}

/* Sets the pointers of the step that the manager has begun, or computes again; gives first ADDs their zeros or their
 * sum. Pointers may be set even if it fails. */
MM_CHECKED mm_status mm_loop_fill(mm_loop *loop, mm_loop_made *step);
/* Sets the pointers of a step to NULL, but for those to results. */
void mm_loop_clear(mm_loop_made *step);
/* Sets the pointers to the results of a recording to NULL. */
void mm_loop_clear_results(mm_loop_recording *recording);

#endif
