/* SPDX-License-Identifier: MIT */
/* A stash's state, which its files share.
 *
 *   put, get ────────▶ stash_enter (stash.c): one call at a time is inside, and works on all below
 *   drop, release ───▶ deferred ("notes"): the call that is inside processes them before it exits; if none is, the
 *                      caller enters
 *
 * An iteration follows a plan (stash_planned.c), or its entries are placed at run time (stash_unplanned.c). It can
 * change from the first to the second (stash_off_plan.c).
 *
 * Only members marked "under the lock" are shared with threads that are not inside. No lock is held over a call of the
 * device or of the log. */
#ifndef MM_STASH_STASH_H
#define MM_STASH_STASH_H

#include <pthread.h>

#include "buffers/layout/ranges.h"
#include "buffers/pool.h"
#include "mm/manager/coverage.h"
#include "mm/stash/stash_beyond.h"
#include "mm/stash/stash_learn.h"
#include "mm/stash/stash_planned.h"
#include "mm/stash/stash_table.h"

struct mm_stash {
    mm_stash_options options;
    mm_device *device;
    bool is_inline; /* callers compute on their own threads */
    mm_pool *pool, *pinned;
    mm_disk *disk; /* NULL: none */
    mm_dispatch *dispatch;
    mm_stream *stream; /* the dispatcher's compute stream, on which all unplanned work is enqueued, too, so that it is
                                 in order; NULL if is_inline */
    mm_event *entered, *left; /* recorded on the caller's stream, and on this one; NULL if is_inline */
    mm_learner learner;
    mm_stash_planned follow;
    mm_order recorded;       /* the order of the iteration under way */
    int64_t iteration;       /* number of the iteration under way, or of the next */
    bool marked;             /* mm_stash_iteration_end was called, and nothing was put since */
    bool left_plan;          /* the iteration followed a plan at first, and left it */
    bool was_planned;        /* the iteration that ended last followed a plan to its end */
    mm_ranges arena, host;   /* free parts of the arena and of pinned memory */
    mm_ranges file;          /* free parts of the disk */
    size_t taken;            /* number of pieces that are taken in these three together */
    void *staging;           /* pinned memory between the device and the disk; NULL: the CPU reaches the arena */
    int64_t limit_bytes;     /* usable bytes of the arena; the memory above was given back to the system */
    int64_t extent_bytes;    /* highest end of the arena's used bytes */
    int64_t unplanned_bytes; /* the part of it that unplanned iterations used, since pages were last given back */
    mm_stash_slot *oldest, *newest;
    int64_t ordinary_bytes; /* ordinary host memory in use */
    mm_stash_deferred *free_notes;
    mm_failure owed; /* failure of a drop or release, which the next call returns */
    mm_failure lost; /* why bytes of entries are lost */
    mm_stash_refused refused;
    mm_stash_beyond beyond; /* MM_STASH_REFUSE_LATER */
    mm_stash_stats stats;
    mm_coverage coverage;               /* bytes that plans which have run may touch */
    int64_t touched_bytes, stray_bytes; /* counts of touched bytes from before the arena was last used without a plan */
    bool is_patterned;                  /* only plans have written to the arena since it was filled with the pattern */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    bool busy; /* a call is inside */
    mm_stash_table table;
    mm_stash_deferred *notes, *last_note; /* deferred calls, in the order in which they came */
};

#endif
