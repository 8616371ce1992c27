/* What the host and the device pass each other in an iteration: pinned memory for a batch, its learning rate and its
 * result, in a ring, so that the next batch can be put there while the device works on the last one. */
#ifndef NETS_EXEC_SLOTS_H
#define NETS_EXEC_SLOTS_H

#include "nets/exec.h"

typedef struct nets_slot {
    float *images;
    int32_t *labels;
    float *lr;
    nets_result *result;
    mm_event *done; /* recorded once the iteration is enqueued */
} nets_slot;

typedef struct nets_slots {
    nets_slot slot[NETS_AHEAD];
    mm_device *device;
    void *memory;
    int64_t bytes;
    int64_t submitted, collected; /* iterations; the i-th has slot i % NETS_AHEAD */
} nets_slots;

/* Bytes that a batch and its learning rate take, each part aligned. */
int64_t nets_slot_batch_bytes(int64_t images_bytes, int64_t labels_bytes);

/* Reserves the memory, on the device of the stream. Undo with fini, also where it failed. */
MM_CHECKED mm_status nets_slots_init(nets_slots *slots, mm_stream *stream, int64_t images_bytes, int64_t labels_bytes);
/* Waits for iterations that were not collected. Legal on a zeroed one. */
void nets_slots_fini(nets_slots *slots);

static inline nets_slot *nets_slots_next(nets_slots *slots) { return &slots->slot[slots->submitted % NETS_AHEAD]; }
static inline nets_slot *nets_slots_oldest(nets_slots *slots) { return &slots->slot[slots->collected % NETS_AHEAD]; }

#endif
