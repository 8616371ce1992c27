/* SPDX-License-Identifier: MIT */
#include "mm/loop/loop_record.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "mm/loop/loop_record_slot.h"

/* The step's layer, which is new unless the recording has a step of that name. */
static mm_status find_layer(mm_loop_recording *r, const mm_loop_step *step, mm_loop_made *made) {
    char *name;
    MM_TRY(mm_loop_name(r, step->name, step->row, &name));
    made->layer = mm_names_find(&r->layers, name);
    if (made->layer < 0) {
        MM_TRY(mm_graph_add_layer(r->graph, name, step->kind, &made->layer));
        MM_TRY(mm_names_add(&r->layers, name, made->layer));
    }
    made->name = mm_graph_layer(r->graph, made->layer)->name;
    made->name_length = (int)strlen(step->name);
    return MM_OK;
}

/* Declares what may lie over what. Results have places of their own: a first ADD that equals one is a copy. */
static mm_status allow_over(mm_loop_recording *r, const mm_loop_made *made, const mm_loop_slot *slot) {
    if (slot->over < 0 || (slot->touch == MM_TOUCH_ADD && !slot->first)) return MM_OK;
    const mm_loop_slot *over = &made->slots[slot->over];
    if (slot->lasts || over->lasts) return MM_OK;
    return slot->first ? mm_graph_allow_alias(r->graph, over->tensor, slot->tensor)
                       : mm_graph_allow_inplace(r->graph, over->tensor, slot->tensor);
}

static mm_access access_of(const mm_loop_slot *slot) {
    switch (slot->touch) {
    case MM_TOUCH_READ:
        return MM_READ;
    case MM_TOUCH_MODIFY:
        return MM_MODIFY;
    case MM_TOUCH_ADD:
        return slot->first ? MM_WRITE : MM_MODIFY;
    default:
        return MM_WRITE;
    }
}

static mm_status add_to_graph(mm_loop_recording *r, const mm_loop_step *step, mm_loop_made *made,
                              int64_t workspace_bytes) {
    mm_use *uses = malloc(((size_t)made->n_slots + 1) * sizeof *uses);
    size_t n = 0;
    if (!uses) return mm_fail(MM_ERR_NOMEM, "out of memory for a step's uses");
    for (int i = 0; i < made->n_slots; i++) {
        mm_loop_slot *slot = &made->slots[i];
        slot->use = slot->tensor < 0 ? -1 : (int)n;
        if (slot->tensor >= 0) uses[n++] = (mm_use){slot->tensor, access_of(slot), slot->form};
    }
    const mm_status status = mm_graph_add_step(r->graph, made->layer, step->phase, uses, n, (size_t)workspace_bytes);
    free(uses);
    MM_TRY(status);
    for (int i = 0; i < made->n_slots; i++) MM_TRY(allow_over(r, made, &made->slots[i]));
    if (step->phase != MM_FORWARD) return MM_OK;
    mm_layer_properties properties = mm_layer_kind_properties(step->kind);
    properties.repeatable = step->run != NULL;
    return mm_graph_set_properties(r->graph, made->layer, &properties);
}

static mm_status check_step(const mm_loop_step *step, const mm_slot *slots, size_t n) {
    if (!step->name || !*step->name) return mm_fail(MM_ERR_INVALID, "mm_loop_enter: a step has no name");
    if (n > 0) MM_TRY(mm_check_given(slots, "mm_loop_enter", "slots"));
    if (n > INT_MAX / 2) return mm_fail(MM_ERR_INVALID, "%s: %zu slots", MM_LOOP_STEP_TEXT(step), n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (slots[i].where && slots[i].where == slots[j].where)
                return mm_fail(MM_ERR_INVALID, "%s: slots %zu and %zu fill the same pointer", MM_LOOP_STEP_TEXT(step),
                               j + 1, i + 1);
    return MM_OK;
}

/* Finds the slot that slot i may lie over, or equals. The graph checks pairs; but a copy is none, so the check is made
 * here for all. */
static mm_status find_over(const mm_loop_step *step, const mm_slot *slots, mm_loop_made *made, int i) {
    mm_loop_slot *slot = &made->slots[i];
    const bool may = slot->touch == MM_TOUCH_WRITE || slot->touch == MM_TOUCH_ADD;
    if (!slots[i].over) return MM_OK;
    for (int j = 0; j < made->n_slots; j++)
        if (slots[j].where == slots[i].over) slot->over = j;
    const mm_loop_slot *over = may && slot->over >= 0 ? &made->slots[slot->over] : NULL;
    if (!over || over->touch != MM_TOUCH_READ || over->form != MM_FORM_VALUE)
        return mm_fail(
            MM_ERR_INVALID,
            "%s: slot %d has a wrong `over`: only a write or an ADD may have one, the `where` of a slot whose "
            "elements the step reads",
            MM_LOOP_STEP_TEXT(step), i + 1);
    if (over->bytes != slot->bytes)
        return mm_fail(MM_ERR_INVALID, "%s: %s of %lld bytes cannot be over %s of %lld", MM_LOOP_STEP_TEXT(step),
                       slot->name, (long long)slot->bytes, over->name, (long long)over->bytes);
    return MM_OK;
}

static mm_status record(mm_loop_recording *r, const mm_loop_step *step, const mm_slot *slots, mm_loop_made *made) {
    int64_t workspace_bytes = 0;
    MM_TRY(find_layer(r, step, made));
    for (int i = 0; i < made->n_slots; i++) MM_TRY(mm_loop_record_slot(r, step, &slots[i], i, made, &workspace_bytes));
    for (int i = 0; i < made->n_slots; i++) MM_TRY(find_over(step, slots, made, i));
    return add_to_graph(r, step, made, workspace_bytes);
}

mm_status mm_loop_record_step(mm_loop_recording *r, const mm_loop_step *step, const mm_slot *slots, size_t n) {
    MM_TRY(check_step(step, slots, n));
    MM_TRY(mm_loop_grow(&r->steps, r->n_steps, sizeof *r->steps));
    mm_loop_made made = {.row = step->row, .phase = step->phase, .n_slots = (int)n, .run = step->run, .ctx = step->ctx};
    made.slots = calloc(n + 1, sizeof *made.slots);
    if (!made.slots) return mm_fail(MM_ERR_NOMEM, "out of memory for the slots of %s", MM_LOOP_STEP_TEXT(step));
    const mm_status status = record(r, step, slots, &made);
    if (status == MM_OK)
        r->steps[r->n_steps++] = made;
    else
        free(made.slots);
    return status;
}
