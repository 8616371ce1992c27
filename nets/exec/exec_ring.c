/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_ring.h"

#include <string.h>

enum { SLOT_ALIGN = 256 };

static int64_t aligned(int64_t bytes) { return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN; }

int64_t nets_slot_batch_bytes(int64_t images_bytes, int64_t labels_bytes) {
    return aligned(images_bytes) + aligned(labels_bytes) + SLOT_ALIGN;
}

mm_status nets_ring_init(nets_ring *slots, mm_stream *stream, int64_t images_bytes, int64_t labels_bytes) {
    slots->device = stream->device;
    slots->bytes = NETS_AHEAD * (nets_slot_batch_bytes(images_bytes, labels_bytes) + SLOT_ALIGN);
    MM_TRY(mm_device_reserve(slots->device, MM_MEMORY_PINNED, slots->bytes, &slots->memory));
    char *at = slots->memory;
    for (int i = 0; i < NETS_AHEAD; i++) {
        nets_slot *slot = &slots->slot[i];
        slot->images = (float *)at;
        slot->labels = (int32_t *)(at += aligned(images_bytes));
        slot->lr = (float *)(at += aligned(labels_bytes));
        slot->word = (int32_t *)(slot->lr + 1);
        slots->vote = slot->word + 1;
        slot->result = (nets_result *)(at += SLOT_ALIGN);
        *slot->result = (nets_result){0};
        at += SLOT_ALIGN;
        MM_TRY(mm_event_create(slots->device, &slot->done));
    }
    return MM_OK;
}

void nets_ring_fini(nets_ring *slots) {
    for (; slots->collected < slots->submitted; slots->collected++) {
        mm_status ended = mm_event_sync(nets_slots_oldest(slots)->done);
        (void)ended; /* a failure is dropped, since nobody asked for the result */
    }
    for (int i = 0; i < NETS_AHEAD; i++) mm_event_destroy(slots->slot[i].done);
    if (slots->memory) mm_device_release(slots->device, MM_MEMORY_PINNED, slots->memory, slots->bytes);
    memset(slots, 0, sizeof *slots);
}
