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
#include "mm/stash/stash_learn.h"

typedef struct mm_stash_slot mm_stash_slot;
typedef struct mm_stash_deferred mm_stash_deferred;

/* A deferred call: one drop, or one release (of what a get gave). */
struct mm_stash_deferred {
    mm_stash_slot *slot;
    mm_event *event; /* of a release: recorded on the caller's stream; NULL if callers compute on their own threads */
    bool returns;
    mm_status failed; /* status of recording the event */
    mm_stash_deferred *next;
};

/* Host memory of an entry. */
typedef struct mm_stash_host {
    void *memory;   /* NULL: none */
    int64_t offset; /* in pinned memory; -1: ordinary memory */
} mm_stash_host;

/* An entry's slot. Its address is valid for the stash's life; once free, it serves later entries. */
struct mm_stash_slot {
    mm_stash_entry id; /* under the lock; 0: free */
    uint32_t index;
    bool dropping;           /* under the lock: its drop is deferred */
    mm_stash_deferred *gets; /* under the lock: one for each get that was not released */
    mm_stash_deferred drop;
    mm_stash_desc kind;
    int64_t iteration; /* in which it was put */
    int number;        /* in the order of that iteration; -1: not known */
    int held;          /* gets that were not released, as far as deferred calls were processed */
    bool dropped;
    bool lossy;                   /* a get gives bytes decoded from a lossy code */
    void *kept;                   /* the caller keeps it in this memory; NULL: it was taken */
    void *place;                  /* its address in the arena while it is held */
    int64_t offset;               /* unplanned: where it lies in the arena; -1: it does not */
    mm_stash_host host;           /* unplanned: its copy in host memory */
    bool lost;                    /* its bytes are lost; stash->lost says why */
    mm_stash_slot *older, *newer; /* unplanned: list of the entries in the arena, in the order in which they came
                                     there */
    mm_stash_slot *next_free;
};

enum { MM_STASH_CHUNK = 256 };

/* Slots, in chunks whose addresses stay. */
typedef struct mm_stash_table {
    mm_stash_slot **chunks;
    size_t n_chunks;
    mm_stash_slot *free;
    uint64_t last; /* number of entries so far */
} mm_stash_table;

/* The order that the iteration follows. */
typedef struct mm_stash_planned {
    mm_learned_order *order;       /* NULL: none */
    mm_stash_slot **slots;         /* per entry of the order: NULL before its put and after its end */
    int cursor;                    /* the next event */
    int step;                      /* the graph's next step, or the one that is under way */
    char why[MM_MESSAGE_CAPACITY]; /* why the order cannot be followed any more */
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
    mm_order recorded;     /* the order of the iteration under way */
    int64_t iteration;     /* number of the iteration under way, or of the next */
    bool marked;           /* mm_stash_iteration_end was called, and nothing was put since */
    bool left_plan;        /* the iteration followed a plan at first, and left it */
    bool was_planned;      /* the iteration that ended last followed a plan to its end */
    mm_ranges arena, host; /* free parts of the arena and of pinned memory */
    size_t taken;          /* number of pieces taken in both */
    int64_t limit_bytes;   /* usable bytes of the arena; the memory above was given back */
    int64_t extent_bytes;  /* highest end of the arena's used bytes */
    mm_stash_slot *oldest, *newest;
    int64_t ordinary_bytes; /* ordinary host memory in use */
    mm_stash_deferred *free_notes;
    mm_failure owed; /* failure of a drop or release, which the next call returns */
    mm_failure lost; /* why bytes of entries are lost */
    mm_stash_refused refused;
    mm_stash_stats stats;
    mm_coverage coverage;               /* bytes that plans which have run may touch */
    int64_t touched_bytes, stray_bytes; /* counts from before the arena was last used without a plan */
    bool is_patterned;                  /* only plans have written to the arena since it was filled with the pattern */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    bool busy; /* a call is inside */
    mm_stash_table table;
    mm_stash_deferred *notes, *last_note; /* deferred calls, in the order in which they came */
};

/* ---- stash_table.c: slots and deferred calls. */

/* Gets a free slot. It has no number yet, so calls do not find it. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_slot_new(mm_stash *stash, mm_stash_slot **slot_out);
/* Gives the slot a number, by which it is found. */
mm_stash_entry mm_stash_slot_publish(mm_stash *stash, mm_stash_slot *slot);
void mm_stash_slot_free(mm_stash *stash, mm_stash_slot *slot);
/* The slot of an entry; NULL: there is none. Under the lock. */
mm_stash_slot *mm_stash_slot_at(const mm_stash *stash, mm_stash_entry entry);
/* Makes the record that the release of a get will use. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_deferred_new(mm_stash *stash, mm_stash_deferred **note_out);
void mm_stash_deferred_free(mm_stash *stash, mm_stash_deferred *note);
void mm_stash_table_fini(mm_stash *stash);

/* ---- stash_desc.c: describes what a tensor's bytes are in memory. */

/* MM_ERR_INVALID. */
MM_CHECKED mm_status mm_stash_desc_of(const mm_stash_tensor *tensor, mm_stash_desc *kind_out);

/* ---- stash_sync.c: orders work between the callers' streams and the stash's own stream. */

/* Makes the stash's stream wait for what the caller has enqueued on `stream` so far. */
MM_CHECKED mm_status mm_stash_sync_enter(mm_stash *stash, void *stream);
/* Makes the caller's stream wait for all that is enqueued on the stash's stream so far. */
MM_CHECKED mm_status mm_stash_sync_exit(mm_stash *stash, void *stream);
/* Makes the stash's stream wait for the event. */
MM_CHECKED mm_status mm_stash_sync_wait(mm_stash *stash, mm_event *event);
MM_CHECKED mm_status mm_stash_sync_copy(mm_stash *stash, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
/* Blocks until the stash's stream has run all that is enqueued. */
MM_CHECKED mm_status mm_stash_sync_drain(mm_stash *stash);

/* ---- stash_arena.c: the memory of the arena. */

/* Makes the first `bytes` of the arena usable, and gives the rest back. No entry lies in the arena. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_arena_limit(mm_stash *stash, int64_t bytes);
/* Updates stats.peak_bytes with what the arena and callers take now. */
void mm_stash_note_peak(mm_stash *stash);
/* Call it before an iteration that follows a plan, or (plan NULL) runs without: touched bytes of plans are counted
 * apart. No-op unless measure_touched. */
MM_CHECKED mm_status mm_stash_cover(mm_stash *stash, const mm_stash_plan *plan);
/* mm_stash_touched_get, for the call that is inside. */
MM_CHECKED mm_status mm_stash_touched(mm_stash *stash, mm_touched *touched_out);

/* ---- stash_unplanned.c: entries that are placed at run time. The oldest leave the arena first, because a backward
 * pass needs them last. */

/* Copies the caller's bytes into the arena. On failure the slot has no memory. MM_ERR_INFEASIBLE (stash->refused): the
 * held and kept entries leave no room. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_unplanned_put(mm_stash *stash, mm_stash_slot *slot, const void *data);
/* Brings the bytes into the arena, if they are not there. Fails like mm_stash_unplanned_put; then they stay where they
 * are. */
MM_CHECKED mm_status mm_stash_unplanned_bring(mm_stash *stash, mm_stash_slot *slot);
/* Frees all memory of the slot. */
void mm_stash_unplanned_free(mm_stash *stash, mm_stash_slot *slot);
/* Gives the slot ordinary host memory. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_unplanned_host_ordinary(mm_stash *stash, mm_stash_slot *slot);
/* Takes over n slots (some may be NULL), which lie in the arena and in pinned memory already, where nothing else lies.
 * mm_stash_unplanned_reserve was called before. */
void mm_stash_unplanned_take_over(mm_stash *stash, mm_stash_slot *const *slots, int n);
/* Reserves memory for the bookkeeping of n slots that are taken over. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_unplanned_reserve(mm_stash *stash, int n);
/* Moves all entries to ordinary host memory, so that a plan may have the arena and pinned memory. False: an entry is
 * held, a copy failed, or there is no host memory. */
bool mm_stash_unplanned_clear(mm_stash *stash);

/* ---- stash_planned.c: an iteration that follows a learned order. A function returns false if the order cannot be
 * followed any more; follow.why says why. The caller then calls mm_stash_go_off_plan, and handles the event
 * unplanned. */

/* Begins to follow an order, if one is known that begins with this entry. MM_ERR_INFEASIBLE: the only such order is
 * that of the last iteration, and does not fit (stash->refused). */
MM_CHECKED mm_status mm_stash_planned_try(mm_stash *stash, const mm_stash_desc *first);
bool mm_stash_planned_put(mm_stash *stash, mm_stash_slot *slot, void *data);
bool mm_stash_planned_get(mm_stash *stash, mm_stash_slot *slot);
/* Nobody holds the entry any more. return: it is not dropped; end: it is. */
bool mm_stash_planned_return(mm_stash *stash, mm_stash_slot *slot);
bool mm_stash_planned_end(mm_stash *stash, mm_stash_slot *slot);
/* Ends the iteration, after all entries have ended. */
bool mm_stash_planned_finish(mm_stash *stash);

/* ---- stash_iteration.c: begins and ends iterations, and passes events to their plan, if they follow one. */

/* Called before a put: begins an iteration, if none is under way. MM_ERR_INFEASIBLE as mm_stash_planned_try. */
MM_CHECKED mm_status mm_stash_begin(mm_stash *stash, const mm_stash_desc *first);
/* Puts a new entry. On failure the entry has no memory. */
MM_CHECKED mm_status mm_stash_take_in(mm_stash *stash, mm_stash_slot *slot, void *data);
/* Makes the bytes of an entry that nobody holds available at slot->place; if the caller keeps them, they are at
 * slot->kept. */
MM_CHECKED mm_status mm_stash_serve(mm_stash *stash, mm_stash_slot *slot);
/* Nobody holds the entry any more. If it is dropped, its memory goes, and with the last one the iteration ends. */
void mm_stash_unhold(mm_stash *stash, mm_stash_slot *slot);

/* ---- stash_report.c */

/* Sets what mm_stash_refusal_get returns: there is no room for a tensor under any policy. number: the tensor's in the
 * order. */
void mm_stash_note_refusal(mm_stash *stash, const mm_stash_desc *kind, int number, int64_t needed_bytes);
/* mm_stash_report and mm_stash_plan_segment, for the call that is inside. */
bool mm_stash_report_entry(mm_stash *stash, int i, mm_stash_line *line_out);
bool mm_stash_report_segment(mm_stash *stash, int i, mm_stash_segment *segment_out);

/* ---- stash_off_plan.c */

/* Makes the iteration unplanned from now on. Entries whose bytes cannot be read, because of a device fault, are
 * lost. */
void mm_stash_go_off_plan(mm_stash *stash);

#endif
