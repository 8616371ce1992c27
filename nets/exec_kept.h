/* What the forward pass changes of what outlives an iteration, running statistics, kept aside before each iteration:
 * one that fails half-way can be undone. Pinned memory, filled by the compute stream, for each iteration that may be
 * under way. */
#ifndef NETS_EXEC_KEPT_H
#define NETS_EXEC_KEPT_H

#include "nets/exec.h"

typedef struct nets_kept_run nets_kept_run;

typedef struct nets_kept {
    mm_manager *manager;
    mm_device *device;
    uint8_t *memory;
    int64_t bytes;       /* of one copy; there are NETS_AHEAD, one after the other */
    nets_kept_run *runs; /* what lies together is one; none in an evaluation, which changes nothing */
    int n_runs;
    const char *rng;    /* the name of NETS_RNG's tensor */
    int64_t rng_offset; /* in a copy */
} nets_kept;

/* Of a graph that trains and is prepared. Undo with fini, also where it failed. */
MM_CHECKED mm_status nets_kept_init(nets_kept *kept, mm_manager *manager, const nets_lowered *lowered);
/* Legal on a zeroed one. Nothing of it may be enqueued. */
void nets_kept_fini(nets_kept *kept);

/* Enqueues the copy that belongs to the slot of that index, before anything else of its iteration. */
MM_CHECKED mm_status nets_kept_save(nets_kept *kept, int slot, mm_stream *stream);

/* Makes it as if the slot's iteration had never begun, unless it has updated the weights: then its work is done, and
 * stays. *undone_out: which. Between iterations, of streams that are drained; blocks. */
MM_CHECKED mm_status nets_kept_undo(nets_kept *kept, int slot, mm_stream *stream, bool *undone_out);

#endif
