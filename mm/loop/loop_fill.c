/* SPDX-License-Identifier: MIT */
#include "mm/loop/loop_fill.h"

#include "mm/manager/iteration.h"

static mm_status zero(mm_loop *l, void *data, int64_t bytes) {
    if (!l->is_inline) return mm_fill_async(mm_compute_stream(l->manager), data, 0, bytes);
    memset(data, 0, (size_t)bytes);
    return MM_OK;
}

static mm_status copy(mm_loop *l, void *data, const void *from, int64_t bytes) {
    if (data == from) return MM_OK;
    if (!l->is_inline) return mm_copy_async(mm_compute_stream(l->manager), data, from, bytes, MM_COPY_DEVICE);
    memcpy(data, from, (size_t)bytes);
    return MM_OK;
}

/* The first ADD of an iteration: the tensor is zero, or equals the slot `over`. */
static mm_status begin_sum(mm_loop *l, const mm_loop_made *step, const mm_loop_slot *slot, void *data) {
    if (slot->over < 0) return zero(l, data, slot->bytes);
    return copy(l, data, mm_iteration_address(l->manager, step->slots[slot->over].use), slot->bytes);
}

mm_status mm_loop_fill(mm_loop *l, mm_loop_made *step) {
    uint8_t *workspace = mm_workspace_data(l->manager); /* NULL if nothing is scratch */
    bool began = false;
    for (int i = 0; i < step->n_slots; i++) {
        const mm_loop_slot *slot = &step->slots[i];
        uint8_t *data = slot->use < 0 ? workspace + slot->offset : mm_iteration_address(l->manager, slot->use);
        if (slot->first) MM_TRY(begin_sum(l, step, slot, data));
        began |= slot->first;
        mm_loop_pointer_set(slot->where, mm_loop_pointer_less(data, slot->row_offset));
    }
    /* What was enqueued here on mm's stream comes before the step's own tasks. */
    return began ? mm_caller_stream_hand_over(l->manager) : MM_OK;
}

void mm_loop_clear(mm_loop_made *step) {
    for (int i = 0; i < step->n_slots; i++) {
        mm_loop_slot *slot = &step->slots[i];
        if (slot->lasts || !slot->where) continue;
        mm_loop_pointer_set(slot->where, NULL);
        if (!step->run) slot->where = NULL;
    }
}

void mm_loop_clear_results(mm_loop_recording *r) {
    for (int s = 0; s < r->n_steps; s++)
        for (int i = 0; i < r->steps[s].n_slots; i++) {
            mm_loop_slot *slot = &r->steps[s].slots[i];
            if (slot->lasts && slot->where) mm_loop_pointer_set(slot->where, NULL);
            slot->where = NULL;
        }
}
