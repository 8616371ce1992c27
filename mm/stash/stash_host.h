/* SPDX-License-Identifier: MIT */
/* Copies of entries outside the arena: in pinned memory; once that is used up, on the disk, if there is one; and in
 * ordinary memory once that is full, too. */
#ifndef MM_STASH_STASH_HOST_H
#define MM_STASH_STASH_HOST_H

#include "buffers/disk.h"
#include "buffers/layout/ranges.h"
#include "mm/stash/stash_plan.h"
#include "mm/stash/stash_table.h"

/* Takes the lowest free piece of the arena, of pinned memory, or of the disk. *offset_out -1: there is none.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_take(mm_stash *stash, mm_ranges *ranges, int64_t bytes, int64_t *offset_out);
void mm_stash_give(mm_stash *stash, mm_ranges *ranges, int64_t offset, int64_t bytes);

/* Finds a place for a copy of the entry. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_host_take(mm_stash *stash, const mm_stash_slot *slot, mm_stash_host *host_out);
/* The same in ordinary memory. */
MM_CHECKED mm_status mm_stash_host_ordinary(mm_stash *stash, const mm_stash_slot *slot, mm_stash_host *host_out);
/* Marks the place of a copy as taken, which a plan has put into pinned memory or on the disk. Room for it must be
 * reserved (mm_ranges_reserve). */
void mm_stash_host_take_over(mm_stash *stash, const mm_stash_slot *slot);
/* Frees a copy's place, if it has one. Before ordinary memory is freed, copies from and to it run. */
void mm_stash_host_give(mm_stash *stash, const mm_stash_slot *slot, mm_stash_host *host);

/* Copies the entry's bytes from device memory to a place, and back from slot->host: on the stash's stream; or, to and
 * from the disk, blocking. MM_ERR_DEVICE; MM_ERR_IO: the disk is full, or failed. */
MM_CHECKED mm_status mm_stash_host_write(mm_stash *stash, const mm_stash_slot *slot, const mm_stash_host *host,
                                         const void *from);
MM_CHECKED mm_status mm_stash_host_read(mm_stash *stash, const mm_stash_slot *slot, void *to);
/* Copies the bytes of a copy to other memory of the process. What is enqueued for them must have run. */
MM_CHECKED mm_status mm_stash_host_fetch(mm_stash *stash, const mm_stash_slot *slot, void *to);

/* Opens the disk of the options, and what is needed beside it. stash->device must be there. MM_ERR_INVALID: no file can
 * be made in its directory. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_disk_open(mm_stash *stash);
void mm_stash_disk_close(mm_stash *stash);

#endif
