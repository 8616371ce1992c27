/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_ring.h"

#include <string.h>

enum { SLOT_ALIGN = 256 };

static int64_t aligned(int64_t bytes) { return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN; }

int64_t nets_slot_batch_bytes(int64_t images_bytes, int64_t labels_bytes) {
    return aligned(images_bytes) + aligned(labels_bytes) + SLOT_ALIGN;
}

mm_status nets_ring_init(nets_ring *ring, mm_stream *stream, int64_t images_bytes, int64_t labels_bytes) {
    ring->device = stream->device;
    ring->bytes = NETS_AHEAD * (nets_slot_batch_bytes(images_bytes, labels_bytes) + SLOT_ALIGN);
    MM_TRY(mm_device_reserve(ring->device, MM_MEMORY_PINNED, ring->bytes, &ring->memory));
    char *at = ring->memory;
    for (int i = 0; i < NETS_AHEAD; i++) {
        nets_slot *slot = &ring->slot[i];
        slot->images = (float *)at;
        slot->labels = (int32_t *)(at += aligned(images_bytes));
        slot->lr = (float *)(at += aligned(labels_bytes));
        slot->word = (int32_t *)(slot->lr + 1);
        ring->vote = slot->word + 1;
        slot->result = (nets_result *)(at += SLOT_ALIGN);
        *slot->result = (nets_result){0};
        at += SLOT_ALIGN;
        MM_TRY(mm_event_create(ring->device, &slot->done));
    }
    return MM_OK;
}

void nets_ring_fini(nets_ring *ring) {
    for (; ring->collected < ring->submitted; ring->collected++) {
        mm_status ended = mm_event_sync(nets_ring_oldest(ring)->done);
        (void)ended; /* a failure is dropped, since nobody asked for the result */
    }
    for (int i = 0; i < NETS_AHEAD; i++) mm_event_destroy(ring->slot[i].done);
    if (ring->memory) mm_device_release(ring->device, MM_MEMORY_PINNED, ring->memory, ring->bytes);
    memset(ring, 0, sizeof *ring);
}
