/* SPDX-License-Identifier: MIT */
/* The homes of a manager's persistent tensors: where they are, their bytes, and moving them between iterations. */
#ifndef MM_MANAGER_HOME_MOVES_H
#define MM_MANAGER_HOME_MOVES_H

#include "mm/manager/manager.h"

/* The address of a persistent tensor's home; NULL: it is on the disk. */
static inline uint8_t *mm_home_address(const mm_manager *m, const mm_persistent *entry) {
    const mm_place *place = &entry->place;
    if (place->memory == MM_MEM_DISK) return NULL;
    return (uint8_t *)mm_pool_base(place->memory == MM_MEM_PINNED ? m->pinned : m->pool) + place->offset;
}

/* Copies bytes of a home from `offset` on, in whatever memory it is. The streams must be idle; copies from and to the
 * device are enqueued on the compute stream. MM_ERR_DEVICE; MM_ERR_IO. */
MM_CHECKED mm_status mm_home_read(mm_manager *m, const mm_persistent *entry, int64_t offset, void *data, int64_t bytes);
MM_CHECKED mm_status mm_home_write(mm_manager *m, const mm_persistent *entry, int64_t offset, const void *data,
                                   int64_t bytes);
/* Waits for such copies, unless `status` is a failure; of both, returns the first. */
MM_CHECKED mm_status mm_home_sync(mm_manager *m, mm_status status);

/* Moves all persistent tensors to these homes, with their values, piece by piece through a buffer in the CPU's memory
 * that is small beside them (mm/planning/home_route.h says how large), and zeroes those that are being added. The
 * streams must be idle. MM_ERR_NOMEM, and MM_ERR_IO of a disk that is full: nothing changed. MM_ERR_DEVICE; MM_ERR_IO:
 * what had moved was moved back. If that failed, too, as the message then says, what is lost cannot be read: it fails
 * with MM_ERR_IO until it is set anew, or an iteration has written it. What is lost already stays so: its home moves
 * without bytes. */
MM_CHECKED mm_status mm_homes_move(mm_manager *m, const mm_homes *homes);

/* MM_ERR_IO: the graph reads a persistent tensor that was lost, and does not write it first. */
MM_CHECKED mm_status mm_homes_check_whole(mm_manager *m, const mm_graph *graph);
/* An iteration of the graph has been issued to its end: of what was lost, notes what it writes first. */
void mm_homes_note_written(mm_manager *m, const mm_graph *graph);
/* All iterations have ended, with this status. MM_OK: what was noted is no longer lost. Else it still is. */
void mm_homes_judge_written(mm_manager *m, mm_status status);

#endif
