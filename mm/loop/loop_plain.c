/* SPDX-License-Identifier: MIT */
#include "mm/loop/loop_plain.h"

#include <stdlib.h>

#include "mm/loop/loop_fill.h"
#include "mm/manager/manager.h"

static mm_status find_block(mm_loop *l, const mm_loop_slot *slot, void **memory_out) {
    for (int i = 0; slot->tensor >= 0 && i < l->n_blocks; i++)
        if (l->blocks[i].tensor == slot->tensor) {
            *memory_out = l->blocks[i].memory;
            return MM_OK;
        }
    MM_TRY(mm_loop_grow(&l->blocks, l->n_blocks, sizeof *l->blocks));
    MM_TRY(mm_device_reserve(l->manager->device, MM_MEMORY_DEVICE, slot->bytes, memory_out));
    l->blocks[l->n_blocks++] = (mm_loop_block){slot->tensor, *memory_out, slot->bytes};
    return MM_OK;
}

mm_status mm_loop_plain_fill(mm_loop *l, mm_loop_made *step, const mm_slot *slots) {
    for (int i = 0; i < step->n_slots; i++) {
        void *memory;
        MM_TRY(find_block(l, &step->slots[i], &memory));
        step->slots[i].where = slots[i].where;
        mm_loop_pointer_set(slots[i].where, mm_loop_pointer_less(memory, slots[i].row_offset));
    }
    return MM_OK;
}

mm_status mm_loop_plain_wait(mm_loop *l) {
    mm_event *event;
    if (l->is_inline || l->n_blocks == 0) return MM_OK;
    MM_TRY(mm_event_create(l->manager->device, &event));
    mm_status status = mm_foreign_record(event, l->options.stream);
    if (status == MM_OK) status = mm_event_sync(event);
    mm_event_destroy(event);
    return status;
}

void mm_loop_plain_free(mm_loop *l) {
    for (int i = 0; i < l->n_blocks; i++)
        mm_device_release(l->manager->device, MM_MEMORY_DEVICE, l->blocks[i].memory, l->blocks[i].bytes);
    free(l->blocks);
    l->blocks = NULL;
    l->n_blocks = 0;
}
