/* SPDX-License-Identifier: MIT */
/* A stash's state, which the files of its layer share.
 *
 *   put, get ─────────▶ the turn (stash.c): one call at a time works on all below
 *   drop, give_back ──▶ notes: whoever has the turn reads them before it leaves; while nobody has it, the caller
 *                            takes it
 *
 * An iteration follows a plan (stash_follow.c), or its entries are placed at run time (stash_loose.c). From the first
 * it can change to the second (stash_leave.c).
 *
 * Only what says "under the lock" is shared with threads that do not have the turn. No lock is held over a call of the
 * device or of the log. */
#ifndef MM_STASH_STASH_H
#define MM_STASH_STASH_H

#include <pthread.h>

#include "buffers/layout/ranges.h"
#include "buffers/pool.h"
#include "mm/manager/coverage.h"
#include "mm/stash/stash_learn.h"

typedef struct mm_stash_slot mm_stash_slot;
typedef struct mm_stash_deferred mm_stash_deferred;

/* One drop, or one return of what a get gave. */
struct mm_stash_deferred {
    mm_stash_slot *slot;
    mm_event *event; /* returns: recorded on the stream of the caller; NULL where callers compute inline */
    bool returns;
    mm_status failed; /* of the recording */
    mm_stash_deferred *next;
};

/* Host memory of an entry. */
typedef struct mm_stash_host {
    void *memory;   /* NULL: none */
    int64_t offset; /* in pinned memory; -1: ordinary memory */
} mm_stash_host;

/* An entry. Its address stays for the stash's life, and serves later entries. */
struct mm_stash_slot {
    mm_stash_entry id; /* under the lock; 0: free */
    uint32_t index;
    bool dropping;           /* under the lock: its drop is noted */
    mm_stash_deferred *gets; /* under the lock: of gets that were not given back */
    mm_stash_deferred drop;
    mm_stash_desc kind;
    int64_t iteration; /* that it was put in */
    int number;        /* in the order of that; -1: not known */
    int held;          /* gets that were not given back, as far as notes were read */
    bool dropped;
    bool lossy;                   /* a get gives what a lossy code gave back */
    void *kept;                   /* the caller's memory; NULL: it was taken */
    void *place;                  /* where the plan that is followed has it, while it is held */
    int64_t offset;               /* placed at run time: in the arena; -1: it does not lie there */
    mm_stash_host host;           /* the same: its bytes in host memory */
    bool lost;                    /* its bytes are; stash->lost says why */
    mm_stash_slot *older, *newer; /* list of those in the arena, in the order in which they came there */
    mm_stash_slot *next_free;
};

enum { MM_STASH_CHUNK = 256 };

/* Slots, in chunks whose addresses stay. */
typedef struct mm_stash_table {
    mm_stash_slot **chunks;
    size_t n_chunks;
    mm_stash_slot *free;
    uint64_t last; /* entries so far */
} mm_stash_table;

/* The order that the iteration follows. */
typedef struct mm_stash_planned {
    mm_learned_order *order;       /* NULL: none */
    mm_stash_slot **slots;         /* per entry of the order: NULL before its put and after its end */
    int cursor;                    /* the next event */
    int step;                      /* of the graph: the next, or the one that is under way */
    char why[MM_MESSAGE_CAPACITY]; /* it cannot be followed any more */
} mm_stash_planned;

struct mm_stash {
    mm_stash_options options;
    mm_device *device;
    bool is_inline; /* callers compute on their own threads */
    mm_pool *pool, *pinned;
    mm_dispatch *dispatch;
    mm_stream *stream; /* the dispatcher's compute stream, on which all unplanned work is enqueued, too, so that it is
                                 in order; NULL if is_inline */
    mm_event *entered, *left; /* recorded on the caller's stream, and on this one; NULL if is_inline */
    mm_learner learner;
    mm_stash_planned follow;
    mm_order recorded;     /* of the iteration under way */
    int64_t iteration;     /* number of the one under way, or of the next */
    bool marked;           /* mm_stash_iteration_end was called, and nothing put since */
    bool left_plan;        /* the iteration began by a plan, and left it */
    bool was_planned;      /* the iteration that ended last had a plan to its end */
    mm_ranges arena, host; /* free parts of the arena and of pinned memory */
    size_t taken;          /* pieces of both that are taken */
    int64_t limit_bytes;   /* of the arena, as it may be used now: what is above was given back */
    int64_t extent_bytes;  /* highest end that was used of it */
    mm_stash_slot *oldest, *newest;
    int64_t ordinary_bytes; /* host memory beside pinned memory */
    mm_stash_deferred *free_notes;
    mm_failure owed; /* of a drop or return, for the next call */
    mm_failure lost; /* why bytes of entries are lost */
    mm_stash_refused refused;
    mm_stash_stats stats;
    mm_coverage coverage;               /* bytes that plans which have run may touch */
    int64_t touched_bytes, stray_bytes; /* before the arena was last used without a plan */
    bool is_patterned;                  /* nothing was written but by plans */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    bool busy; /* a call has the turn */
    mm_stash_table table;
    mm_stash_deferred *notes, *last_note; /* in the order in which they came */
};

/* ---- stash_table.c: slots and notes. */

/* A slot that is not found by its number yet. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_slot_new(mm_stash *stash, mm_stash_slot **slot_out);
/* Gives the slot a number, by which it is found. */
mm_stash_entry mm_stash_slot_publish(mm_stash *stash, mm_stash_slot *slot);
void mm_stash_slot_free(mm_stash *stash, mm_stash_slot *slot);
/* The slot of an entry; NULL: there is none. Under the lock. */
mm_stash_slot *mm_stash_slot_at(const mm_stash *stash, mm_stash_entry entry);
/* A note for a get. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_deferred_new(mm_stash *stash, mm_stash_deferred **note_out);
void mm_stash_deferred_free(mm_stash *stash, mm_stash_deferred *note);
void mm_stash_table_fini(mm_stash *stash);

/* ---- stash_kind.c */

/* MM_ERR_INVALID. */
MM_CHECKED mm_status mm_stash_desc_of(const mm_stash_tensor *tensor, mm_stash_desc *kind_out);

/* ---- stash_lane.c: the order of work between streams of callers and the stash's own. */

/* What is enqueued from now on runs after what the caller has enqueued on its stream. */
MM_CHECKED mm_status mm_stash_sync_enter(mm_stash *stash, void *stream);
/* What the caller enqueues on its stream from now on runs after all that is enqueued so far. */
MM_CHECKED mm_status mm_stash_sync_exit(mm_stash *stash, void *stream);
/* What is enqueued from now on runs after the event. */
MM_CHECKED mm_status mm_stash_sync_wait(mm_stash *stash, mm_event *event);
MM_CHECKED mm_status mm_stash_sync_copy(mm_stash *stash, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
/* Waits for all that is enqueued. */
MM_CHECKED mm_status mm_stash_sync_drain(mm_stash *stash);

/* ---- stash_arena.c: the memory of the arena. */

/* Makes the first `bytes` of the arena usable, and gives the rest back. No entry lies in the arena. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_arena_limit(mm_stash *stash, int64_t bytes);
/* The arena, and what callers keep, take so much now. */
void mm_stash_note_peak(mm_stash *stash);
/* Before an iteration by a plan, or (plan NULL) without: what was touched is counted apart. No-op unless
 * measure_touched. */
MM_CHECKED mm_status mm_stash_cover(mm_stash *stash, const mm_stash_plan *plan);
/* mm_stash_touched_get, of who has the turn. */
MM_CHECKED mm_status mm_stash_touched(mm_stash *stash, mm_touched *touched_out);

/* ---- stash_loose.c: entries that are placed at run time. Those that came first leave first, because a backward pass
 * needs them last. */

/* Copies the caller's bytes into the arena. On failure the slot has no memory. MM_ERR_INFEASIBLE (stash->refused): what
 * is held and kept leaves no room. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_unplanned_put(mm_stash *stash, mm_stash_slot *slot, const void *data);
/* Brings the bytes into the arena, if they are not there. On failure, which is as mm_stash_unplanned_put's, they stay where they
 * are. */
MM_CHECKED mm_status mm_stash_unplanned_bring(mm_stash *stash, mm_stash_slot *slot);
/* Frees all memory of the slot. */
void mm_stash_unplanned_free(mm_stash *stash, mm_stash_slot *slot);
/* Gives the slot ordinary host memory. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_unplanned_host_ordinary(mm_stash *stash, mm_stash_slot *slot);
/* Takes over n slots (NULL among them) that have places in the arena and in pinned memory already. Nothing else has.
 * Room for them was reserved. */
void mm_stash_unplanned_take_over(mm_stash *stash, mm_stash_slot *const *slots, int n);
/* Reserves that room. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_unplanned_reserve(mm_stash *stash, int n);
/* Moves all entries to ordinary host memory, so that a plan may have the arena and pinned memory. False: one is held,
 * or there is no memory. */
bool mm_stash_unplanned_clear(mm_stash *stash);

/* ---- stash_follow.c: an iteration that follows a learned order. A function returns false where the order cannot be
 * followed any more; follow.why says why. The caller then calls mm_stash_go_off_plan, and does unplanned what the event asks. */

/* Begins to follow an order, if there is one that begins so. MM_ERR_INFEASIBLE: there is, and it has no plan
 * (stash->refused). */
MM_CHECKED mm_status mm_stash_planned_try(mm_stash *stash, const mm_stash_desc *first);
bool mm_stash_planned_put(mm_stash *stash, mm_stash_slot *slot, void *data);
bool mm_stash_planned_get(mm_stash *stash, mm_stash_slot *slot);
/* Nobody holds the entry any more; it is not dropped, or (end) it is. */
bool mm_stash_planned_return(mm_stash *stash, mm_stash_slot *slot);
bool mm_stash_planned_end(mm_stash *stash, mm_stash_slot *slot);
/* All entries have ended. */
bool mm_stash_planned_finish(mm_stash *stash);

/* ---- stash_iteration.c: what iterations are, and whether they follow a plan. */

/* Before a put: begins an iteration, if none is under way. MM_ERR_INFEASIBLE as mm_stash_planned_try. */
MM_CHECKED mm_status mm_stash_begin(mm_stash *stash, const mm_stash_desc *first);
/* Puts a new entry. On failure it has no memory. */
MM_CHECKED mm_status mm_stash_take_in(mm_stash *stash, mm_stash_slot *slot, void *data);
/* Makes the bytes of an entry that nobody holds be there, at slot->place; or, if they are kept, at slot->kept. */
MM_CHECKED mm_status mm_stash_serve(mm_stash *stash, mm_stash_slot *slot);
/* Nobody holds the entry any more. If it is dropped, its memory goes, and with the last one the iteration ends. */
void mm_stash_unhold(mm_stash *stash, mm_stash_slot *slot);

/* ---- stash_report.c */

/* What mm_stash_refusal_get tells of a tensor, of that number in the order, for which there is no room under any
 * policy. */
void mm_stash_note_refusal(mm_stash *stash, const mm_stash_desc *kind, int number, int64_t needed_bytes);
/* mm_stash_report and mm_stash_plan_segment, of who has the turn. */
bool mm_stash_report_entry(mm_stash *stash, int i, mm_stash_line *line_out);
bool mm_stash_report_segment(mm_stash *stash, int i, mm_stash_segment *segment_out);

/* ---- stash_leave.c */

/* From now on the iteration is unplanned. Entries whose bytes cannot be had are lost (device faults). */
void mm_stash_go_off_plan(mm_stash *stash);

#endif
