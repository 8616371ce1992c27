/* SPDX-License-Identifier: MIT */
/* The pinned memory through which the CPU and the device exchange a batch, its learning rate and its result. It is a
 * ring of slots: the next batch is written while the device reads the last one. */
#ifndef NETS_EXEC_EXEC_RING_H
#define NETS_EXEC_EXEC_RING_H

#include "nets/exec/exec.h"

typedef struct nets_slot {
    float *images;
    int32_t *labels;
    float *lr;
    int32_t *word; /* nets_exec_set_word */
    nets_result *result;
    mm_event *done; /* recorded after the iteration's last work */
} nets_slot;

typedef struct nets_ring {
    nets_slot slot[NETS_AHEAD];
    mm_device *device;
    int32_t *vote; /* for nets_exec_enqueue_vote; at most one vote is under way */
    void *memory;
    int64_t bytes;
    int64_t submitted, collected; /* iterations; the i-th uses slot i % NETS_AHEAD */
} nets_ring;

/* Bytes of a batch and its learning rate, each part aligned. */
int64_t nets_slot_batch_bytes(int64_t images_bytes, int64_t labels_bytes);

/* Reserves the memory through the stream's device. Call fini also after a failure. */
MM_CHECKED mm_status nets_ring_init(nets_ring *ring, mm_stream *stream, int64_t images_bytes, int64_t labels_bytes);
/* Waits for iterations that are not collected, and releases the memory. Legal on a zeroed one. */
void nets_ring_fini(nets_ring *ring);

static inline nets_slot *nets_ring_next(nets_ring *ring) { return &ring->slot[ring->submitted % NETS_AHEAD]; }
static inline nets_slot *nets_ring_oldest(nets_ring *ring) { return &ring->slot[ring->collected % NETS_AHEAD]; }

#endif
