/* SPDX-License-Identifier: MIT */
/* The calls around a step. */
#include "mm/core/text.h"
#include "mm/loop/loop_fill.h"
#include "mm/loop/loop_match.h"
#include "mm/loop/loop_plain.h"
#include "mm/loop/loop_record.h"

/* Sets the pointers of a step that cannot go on to NULL. */
static void give_up(mm_loop *l) {
    if (l->entered) mm_loop_clear(l->entered);
    l->entered = NULL;
}

static mm_status enter_recorded(mm_loop *l, const mm_loop_step *step, const mm_slot *slots, size_t n) {
    MM_TRY(mm_loop_match(l, step, slots, n));
    mm_loop_made *made = &l->now->steps[l->at];
    MM_TRY(mm_layer_begin_on(l->manager, made->layer, made->phase, l->options.stream));
    l->entered = made;
    return mm_loop_fill(l, made);
}

static mm_status enter_new(mm_loop *l, const mm_loop_step *step, const mm_slot *slots, size_t n) {
    MM_TRY(mm_loop_record_step(l->now, step, slots, n));
    if (l->options.record == MM_LOOP_RECORD_ONLY) {
        l->at++;
        return MM_OK;
    }
    mm_loop_made *made = &l->now->steps[l->at];
    l->entered = made;
    return mm_loop_plain_fill(l, made, slots);
}

static mm_status check_enter(const mm_loop *l, const mm_loop_step *step) {
    MM_TRY(mm_check_given(step, "mm_loop_enter", "step"));
    if (l->state == MM_LOOP_IDLE)
        return mm_fail(MM_ERR_ORDER, "mm_loop_enter(%s): no iteration is under way (mm_loop_begin)",
                       MM_LOOP_STEP_TEXT(step));
    if (l->entered)
        return mm_fail(MM_ERR_ORDER, "mm_loop_enter(%s): %s %s is under way (mm_loop_leave)", MM_LOOP_STEP_TEXT(step),
                       MM_BRIEF(l->entered->name), mm_phase_name(l->entered->phase));
    return MM_OK;
}

bool mm_loop_enter(mm_loop *l, const mm_loop_step *step, const mm_slot *slots, size_t n) {
    if (!l || l->failure.status != MM_OK) return false;
    mm_status status = check_enter(l, step);
    if (status == MM_OK)
        status = l->state == MM_LOOP_RUNS ? enter_recorded(l, step, slots, n) : enter_new(l, step, slots, n);
    if (status == MM_OK) return l->entered != NULL;
    give_up(l);
    mm_loop_fail(l, status);
    return false;
}

/* Ends the step that is under way. */
static mm_status leave(mm_loop *l) {
    if (!l->entered)
        return mm_fail(MM_ERR_ORDER, "mm_loop_leave: no step is under way; call it only if mm_loop_enter gave true");
    const mm_loop_made *made = l->entered;
    give_up(l);
    if (l->state == MM_LOOP_RUNS) MM_TRY(mm_layer_end(l->manager, made->layer, made->phase));
    l->at++;
    return MM_OK;
}

void mm_loop_leave(mm_loop *l) {
    if (l && l->failure.status == MM_OK) mm_loop_fail(l, leave(l));
}

void mm_loop_run(mm_loop *l, const mm_loop_step *step, const mm_slot *slots, size_t n) {
    if (!mm_loop_enter(l, step, slots, n)) return;
    mm_status status = mm_check_given((const void *)(uintptr_t)step->run, "mm_loop_run", "step->run");
    if (status == MM_OK && (status = step->run(step->ctx, step->row)) != MM_OK)
        mm_fail_set("%s returned %s", MM_LOOP_STEP_TEXT(step), mm_status_name(status));
    if (status == MM_OK) status = leave(l);
    if (status == MM_OK) return;
    give_up(l);
    mm_loop_fail(l, status);
}

/* A slot of the step that runs; NULL: it has no such slot, or is being recorded. */
static const mm_loop_slot *running_slot(const mm_loop *l, const void *where) {
    if (!l || !l->entered || l->state != MM_LOOP_RUNS) return NULL;
    for (int i = 0; i < l->entered->n_slots; i++)
        if (l->entered->slots[i].where == where) return &l->entered->slots[i];
    return NULL;
}

mm_form mm_loop_form(mm_loop *l, const void *where) {
    const mm_loop_slot *slot = running_slot(l, where);
    return slot && slot->tensor >= 0 ? mm_tensor_form(l->manager, slot->tensor) : MM_FORM_VALUE;
}

bool mm_loop_given(mm_loop *l, const void *where) {
    const mm_loop_slot *slot = running_slot(l, where);
    return slot && slot->first && slot->over >= 0;
}
