/* SPDX-License-Identifier: MIT */
/* The table of entries, and the records of deferred calls ("notes"). */
#ifndef MM_STASH_STASH_TABLE_H
#define MM_STASH_STASH_TABLE_H

#include "mm/device/contract/device.h"
#include "mm/stash/stash_order.h"

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

/* Where the copy of an entry's bytes outside the arena lies. */
typedef enum mm_stash_where {
    MM_STASH_NOWHERE = 0, /* there is none */
    MM_STASH_IN_PINNED,
    MM_STASH_ON_DISK,
    MM_STASH_IN_ORDINARY,
} mm_stash_where;

typedef struct mm_stash_host {
    mm_stash_where where;
    void *memory;   /* NULL on the disk */
    int64_t offset; /* in pinned memory, or on the disk */
} mm_stash_host;

/* An entry's slot. Its address is valid for the stash's life; once free, it serves later entries. */
struct mm_stash_slot {
    mm_stash_entry id; /* under the lock; 0: free */
    uint32_t index;
    bool dropping;           /* under the lock: its drop is deferred */
    mm_stash_deferred *gets; /* under the lock: one for each get that was not released */
    mm_stash_deferred drop;
    mm_stash_desc kind;
    int64_t iteration; /* number of the iteration in which it was put */
    int number;        /* number of the entry in the order of that iteration; -1: not known */
    int held;          /* number of gets that were not released; deferred releases count once they are processed */
    bool dropped;
    bool lossy;                   /* a get gives bytes decoded from a lossy code */
    void *kept;                   /* the caller's memory of an entry that the caller keeps; NULL: the entry was taken */
    void *place;                  /* its address in device memory while it is held */
    void *beyond;                 /* while it is held: its device memory outside the budget; NULL: none */
    int64_t offset;               /* unplanned: where it lies in the arena; -1: it does not */
    mm_stash_host host;           /* unplanned: its copy in host memory, or on the disk */
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

#endif
