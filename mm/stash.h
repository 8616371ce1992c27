/* A stash's state, which the files of its layer share.
 *
 *   put, get ─────────▶ the turn (stash.c): one call at a time works on all below
 *   drop, give_back ──▶ notes: whoever has the turn reads them before it leaves; without a turn taken, the caller takes it
 *
 * Only what says "under the lock" is shared with threads that do not have the turn. No lock is held over a call of the
 * device or of the log. */
#ifndef MM_STASH_H
#define MM_STASH_H

#include <pthread.h>

#include "buffers/pool.h"
#include "buffers/ranges.h"
#include "mm/core/graph.h"

typedef struct mm_stash_slot mm_stash_slot;
typedef struct mm_stash_note mm_stash_note;

/* One drop, or one return of what a get gave. */
struct mm_stash_note {
    mm_stash_slot *slot;
    mm_event *event; /* returns: recorded on the stream of the caller; NULL where callers compute inline */
    bool returns;
    mm_status failed; /* of the recording */
    mm_stash_note *next;
};

/* Host memory of an entry. */
typedef struct mm_stash_host {
    void *memory;   /* NULL: none */
    int64_t offset; /* in pinned memory; -1: ordinary memory */
} mm_stash_host;

/* What an entry is. */
typedef struct mm_stash_kind {
    mm_dtype dtype;
    uint32_t flags;
    int rank;                  /* at least 1 */
    int64_t dims[MM_RANK_MAX]; /* in the order in memory, without dimensions of 1 */
    int64_t bytes;
    char producer[64]; /* cut */
} mm_stash_kind;

/* An entry. Its address stays for the stash's life, and serves later entries. */
struct mm_stash_slot {
    mm_stash_entry id; /* under the lock; 0: free */
    uint32_t index;
    bool dropping;       /* under the lock: its drop is noted */
    mm_stash_note *gets; /* under the lock: of gets that were not given back */
    mm_stash_note drop;
    mm_stash_kind kind;
    void *kept;         /* the caller's memory; NULL: it was taken */
    int64_t offset;     /* in the arena; -1: it does not lie there */
    mm_stash_host host; /* its bytes in host memory */
    int held;           /* gets that were not given back, as far as notes were read */
    bool dropped;
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

struct mm_stash {
    mm_stash_options options;
    mm_device *device;
    bool is_inline; /* callers compute on their own threads */
    mm_pool *pool, *pinned;
    mm_stream *stream;        /* where all unplanned work is enqueued, so that it is in order; NULL if is_inline */
    mm_event *entered, *left; /* recorded on the caller's stream, and on this one; NULL if is_inline */
    mm_ranges arena, host;    /* free parts of the arena and of pinned memory */
    size_t taken;             /* pieces of both that are taken */
    int64_t limit_bytes;      /* of the arena, as it may be used now */
    int64_t extent_bytes;     /* highest end that was used of it */
    mm_stash_slot *oldest, *newest;
    int64_t ordinary_bytes; /* host memory beside pinned memory */
    mm_stash_note *free_notes;
    mm_failure owed; /* of a drop or return, for the next call */
    mm_stash_stats stats;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    bool busy; /* a call has the turn */
    mm_stash_table table;
    mm_stash_note *notes, *last_note; /* in the order in which they came */
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
MM_CHECKED mm_status mm_stash_note_new(mm_stash *stash, mm_stash_note **note_out);
void mm_stash_note_free(mm_stash *stash, mm_stash_note *note);
void mm_stash_table_fini(mm_stash *stash);

/* ---- stash_kind.c */

/* MM_ERR_INVALID. */
MM_CHECKED mm_status mm_stash_kind_of(const mm_stash_tensor *tensor, mm_stash_kind *kind_out);

/* ---- stash_lane.c: the order of work between streams of callers and the stash's own. */

/* What is enqueued from now on runs after what the caller has enqueued on its stream. */
MM_CHECKED mm_status mm_lane_enter(mm_stash *stash, void *stream);
/* What the caller enqueues on its stream from now on runs after all that is enqueued so far. */
MM_CHECKED mm_status mm_lane_leave(mm_stash *stash, void *stream);
/* What is enqueued from now on runs after the event. */
MM_CHECKED mm_status mm_lane_follow(mm_stash *stash, mm_event *event);
MM_CHECKED mm_status mm_lane_copy(mm_stash *stash, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
/* Waits for all that is enqueued. */
MM_CHECKED mm_status mm_lane_drain(mm_stash *stash);

/* ---- stash_loose.c: entries that are placed at run time. Those that came first leave first, because a backward pass
 * needs them last. */

/* Copies the caller's bytes into the arena. On failure the slot has no memory. MM_ERR_INFEASIBLE, MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_loose_put(mm_stash *stash, mm_stash_slot *slot, const void *data);
/* Brings the bytes into the arena, if they are not there. On failure they stay where they are. */
MM_CHECKED mm_status mm_loose_bring(mm_stash *stash, mm_stash_slot *slot);
/* Frees all memory of the slot. */
void mm_loose_free(mm_stash *stash, mm_stash_slot *slot);

#endif
