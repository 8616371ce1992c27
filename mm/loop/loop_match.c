/* SPDX-License-Identifier: MIT */
#include "mm/loop/loop_match.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/text.h"

static bool is_name(const char *name, const char *recorded, int length) {
    return name && strncmp(name, recorded, (size_t)length) == 0 && name[length] == '\0';
}

static bool is_step(const mm_loop_made *made, const mm_loop_step *step) {
    return made->row == step->row && made->phase == step->phase && is_name(step->name, made->name, made->name_length);
}

static bool is_over(const mm_loop_slot *made, const mm_slot *slot, const mm_slot *slots) {
    return made->over < 0 ? !slot->over : slot->over == slots[made->over].where;
}

static bool is_slot(const mm_loop_slot *made, const mm_slot *slot, const mm_slot *slots) {
    if (made->touch != slot->touch || made->form != slot->form || !slot->where || !is_over(made, slot, slots))
        return false;
    if (slot->bytes != made->bytes && (slot->bytes != 0 || made->tensor < 0)) return false;
    return made->tensor < 0 || (made->row == slot->row && is_name(slot->name, made->name, made->name_length));
}

static mm_status refuse_step(const mm_loop *l, const mm_loop_step *step) {
    const mm_loop_recording *r = l->now;
    char was[MM_LOOP_NAME_CAPACITY] = "the end";
    if (l->at < r->n_steps) mm_graph_step_name(r->graph, l->at, was, sizeof was);
    return mm_fail(MM_ERR_ORDER, "step %d of key %lld is %s, recorded was %s; begin another key for another order",
                   l->at, (long long)r->key, MM_LOOP_STEP_TEXT(step), MM_BRIEF(was));
}

/* Describes a slot: "add ln1.3, 4096 bytes". */
static const char *describe(mm_loop_touch touch, const char *name, int length, int32_t row, int64_t bytes, char *text,
                            size_t capacity) {
    char size[32] = "";
    if (bytes > 0) snprintf(size, sizeof size, ", %lld bytes", (long long)bytes);
    if (name)
        snprintf(text, capacity, "%s %.*s.%d%s", mm_loop_touch_name(touch), length, name, row, size);
    else
        snprintf(text, capacity, "%s%s", mm_loop_touch_name(touch), size);
    return text;
}

static mm_status refuse_slot(const mm_loop *l, const mm_loop_step *step, int i, const mm_loop_slot *made,
                             const mm_slot *slot, const mm_slot *slots) {
    char is[MM_BRIEF_CAPACITY], was[MM_BRIEF_CAPACITY];
    if (!slot->where)
        return mm_fail(MM_ERR_INVALID, "%s: slot %d has no pointer to fill", MM_LOOP_STEP_TEXT(step), i + 1);
    describe(slot->touch, slot->name, 60, slot->row, slot->bytes, is, sizeof is);
    describe(made->touch, made->name, made->name_length < 60 ? made->name_length : 60, made->row, made->bytes, was,
             sizeof was);
    return mm_fail(MM_ERR_ORDER,
                   "%s of key %lld: slot %d is: %s; recorded was: %s%s; begin another key for another order or other "
                   "sizes",
                   MM_LOOP_STEP_TEXT(step), (long long)l->now->key, i + 1, is, was,
                   made->form != slot->form || !is_over(made, slot, slots) ? ", in another form or over another slot"
                                                                           : "");
}

mm_status mm_loop_match(mm_loop *l, const mm_loop_step *step, const mm_slot *slots, size_t n) {
    if (l->at >= l->now->n_steps || !is_step(&l->now->steps[l->at], step)) return refuse_step(l, step);
    mm_loop_made *made = &l->now->steps[l->at];
    if ((size_t)made->n_slots != n || (n > 0 && !slots))
        return mm_fail(MM_ERR_ORDER,
                       "%s of key %lld has %zu slots, recorded were %d; begin another key for another order",
                       MM_LOOP_STEP_TEXT(step), (long long)l->now->key, n, made->n_slots);
    if (made->phase == MM_FORWARD && !made->run != !step->run)
        return mm_fail(MM_ERR_ORDER, "%s of key %lld has %s function, recorded was one with%s; begin another key",
                       MM_LOOP_STEP_TEXT(step), (long long)l->now->key, step->run ? "a" : "no", step->run ? "out" : "");
    for (int i = 0; i < made->n_slots; i++)
        if (!is_slot(&made->slots[i], &slots[i], slots))
            return refuse_slot(l, step, i, &made->slots[i], &slots[i], slots);
    for (int i = 0; i < made->n_slots; i++) {
        made->slots[i].where = slots[i].where;
        made->slots[i].row_offset = slots[i].row_offset;
    }
    made->run = step->run;
    made->ctx = step->ctx;
    return MM_OK;
}
