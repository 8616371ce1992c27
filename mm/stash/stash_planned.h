/* SPDX-License-Identifier: MIT */
/* An iteration that follows a learned order. A function returns false if the order cannot be followed any more;
 * follow.why says why. The caller then calls mm_stash_go_off_plan, and handles the event unplanned. */
#ifndef MM_STASH_STASH_PLANNED_H
#define MM_STASH_STASH_PLANNED_H

#include "mm/stash/stash_learn.h"
#include "mm/stash/stash_table.h"

/* The order that the iteration follows. */
typedef struct mm_stash_planned {
    mm_learned_order *order;       /* NULL: none */
    mm_stash_slot **slots;         /* per entry of the order: NULL before its put and after its end */
    int cursor;                    /* the next event */
    int step;                      /* the graph's next step, or the one that is under way */
    char why[MM_MESSAGE_CAPACITY]; /* why the order cannot be followed any more */
} mm_stash_planned;

/* Begins to follow an order, if one is known that begins with this entry. MM_ERR_INFEASIBLE: the only such order is
 * that of the last iteration, and does not fit (stash->refused). */
MM_CHECKED mm_status mm_stash_planned_try(mm_stash *stash, const mm_stash_desc *first);
bool mm_stash_planned_put(mm_stash *stash, mm_stash_slot *slot, void *data);
bool mm_stash_planned_get(mm_stash *stash, mm_stash_slot *slot);
/* Called when nobody holds the entry any more: _return if it is not dropped, _end if it is. */
bool mm_stash_planned_return(mm_stash *stash, mm_stash_slot *slot);
bool mm_stash_planned_end(mm_stash *stash, mm_stash_slot *slot);
/* Ends the iteration, after all entries have ended. */
bool mm_stash_planned_finish(mm_stash *stash);

#endif
