/* SPDX-License-Identifier: MIT */
/* Copies of the running statistics and of NETS_RNG from before each iteration. The forward pass changes the statistics
 * in place, so an iteration that fails half-way is undone from its copy. There is one copy in pinned memory for each
 * iteration that may be under way; the compute stream writes it. */
#ifndef NETS_EXEC_EXEC_UNDO_H
#define NETS_EXEC_EXEC_UNDO_H

#include "nets/exec/exec.h"

typedef struct nets_undo_run nets_undo_run;

typedef struct nets_undo {
    mm_manager *manager;
    mm_device *device;
    uint8_t *memory;
    int64_t bytes;       /* size of one copy; NETS_AHEAD copies lie one after the other */
    nets_undo_run *runs; /* contiguous ranges of device memory to copy; none in an evaluation, which changes nothing */
    int n_runs;
    int64_t mark_bytes; /* of the mark behind the copies (nets_undo_mark) */
    const char *rng;    /* the name of NETS_RNG's tensor */
    int64_t rng_offset; /* its offset in a copy */
    /* The host updates; the counts of updates before the iteration of which it has updated a weight, and before that of
     * which it has updated all. Its tasks write them; read when these are done. */
    bool on_host;
    uint32_t host_began[2], host_ended[2];
} nets_undo;

/* For a training graph that the manager has prepared. Call fini also after a failure. */
MM_CHECKED mm_status nets_undo_init(nets_undo *undo, mm_manager *manager, const nets_lowered *lowered);
/* Legal on a zeroed one. No copy may still be enqueued. */
void nets_undo_fini(nets_undo *undo);

/* Forgets earlier marks. Call it when no iteration is under way. */
void nets_undo_unmark(nets_undo *undo);
/* Enqueues a mark of the iteration, if it updates weights in several steps: it is about to update the first of them,
 * unless updates are halted. A later step may fail, for want of what it reads. */
MM_CHECKED mm_status nets_undo_mark(nets_undo *undo, mm_stream *stream);
/* Called by tasks of the host stream, if the host updates: it is about to update the first weights of the iteration
 * whose copy is in the slot; it has updated the last. */
void nets_undo_host_begins(nets_undo *undo, int slot);
void nets_undo_host_ended(nets_undo *undo, int slot);

/* Enqueues the copy for the slot with this index. It must be enqueued before anything else of the slot's iteration. */
MM_CHECKED mm_status nets_undo_save(nets_undo *undo, int slot, mm_stream *stream);

/* Restores what the slot's iteration changed, unless the iteration has updated the weights: then everything stays as it
 * is, and *undone_out is false. If it has updated some of them only, NETS_RNG's halted word becomes NETS_TORN. Call it
 * between iterations, with the streams drained; it blocks. */
MM_CHECKED mm_status nets_undo_apply(nets_undo *undo, int slot, mm_stream *stream, bool *undone_out);

#endif
