/* SPDX-License-Identifier: MIT */
#include "mm/loop/loop_record_slot.h"

#include <string.h>

#include "mm/core/plan/plan.h"
#include "mm/core/text.h"

enum { MOST_SCRATCH = 1 << 30 }; /* chosen: in units of MM_ALIGN, so that a step's sum stays far below 2^62 bytes */

mm_status mm_loop_name(mm_loop_recording *r, const char *name, int32_t row, char **text_out) {
    MM_TRY(mm_loop_grow(&r->texts, r->n_texts, sizeof *r->texts));
    char *text = mm_text_format("%s.%d", name, row);
    if (!text) return mm_fail(MM_ERR_NOMEM, "out of memory for the name %s", MM_BRIEF(name));
    r->texts[r->n_texts++] = text;
    *text_out = text;
    return MM_OK;
}

/* Results of several keys share their memory if they have one name and one size: those of an earlier iteration are
 * gone. Loops of one manager do not share it. */
static mm_status name_result(mm_loop_recording *r, const char *name, int64_t bytes, char **text_out) {
    MM_TRY(mm_loop_grow(&r->texts, r->n_texts, sizeof *r->texts));
    char *text = mm_text_format("%s (result of loop %d, %lld bytes)", name, r->loop->number, (long long)bytes);
    if (!text) return mm_fail(MM_ERR_NOMEM, "out of memory for the name %s", MM_BRIEF(name));
    r->texts[r->n_texts++] = text;
    *text_out = text;
    return MM_OK;
}

static mm_tensor_kind kind_of(const mm_slot *slot, mm_phase phase) {
    if (slot->touch == MM_TOUCH_RESULT) return MM_STATE;
    if (slot->kind != MM_INPUT) return slot->kind;
    return phase == MM_FORWARD ? MM_FEATURE_MAP : MM_GRADIENT_MAP;
}

/* Adds a tensor that is named for the first time. */
static mm_status add_tensor(mm_loop_recording *r, const mm_loop_step *step, const mm_slot *slot, char *name,
                            mm_tensor *tensor_out) {
    const int64_t size = (int64_t)mm_dtype_bytes(slot->dtype);
    if (slot->touch == MM_TOUCH_READ || slot->touch == MM_TOUCH_MODIFY)
        return mm_fail(MM_ERR_INVALID, "%s %s %s, which no step before it has written%s", MM_LOOP_STEP_TEXT(step),
                       slot->touch == MM_TOUCH_READ ? "reads" : "modifies", MM_BRIEF(name),
                       slot->touch == MM_TOUCH_READ ? "" : "; if it adds, declare MM_TOUCH_ADD");
    if (size == 0 || slot->bytes <= 0 || slot->bytes % size != 0)
        return mm_fail(MM_ERR_INVALID, "%s: %s is named first here, and has %lld bytes of %s: give its size",
                       MM_LOOP_STEP_TEXT(step), MM_BRIEF(name), (long long)slot->bytes, mm_dtype_name(slot->dtype));
    const bool result = slot->touch == MM_TOUCH_RESULT;
    char *text = name;
    if (result) MM_TRY(name_result(r, name, slot->bytes, &text));
    const mm_tensor_desc desc = {.name = text,
                                 .kind = kind_of(slot, step->phase),
                                 .ownership = result ? MM_PERSISTENT : MM_MANAGED,
                                 .dtype = slot->dtype,
                                 .rank = 1,
                                 .dims = {slot->bytes / size}};
    MM_TRY(mm_graph_add_tensor(r->graph, &desc, tensor_out));
    return mm_names_add(&r->tensors, name, *tensor_out);
}

static mm_status check_known(const mm_loop_recording *r, const mm_loop_step *step, const mm_slot *slot,
                             const char *name, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(r->graph, tensor);
    if (slot->bytes != 0 && slot->bytes != info->bytes)
        return mm_fail(MM_ERR_INVALID, "%s: %s has %lld bytes here, and %lld where it was named first",
                       MM_LOOP_STEP_TEXT(step), MM_BRIEF(name), (long long)slot->bytes, (long long)info->bytes);
    if (slot->touch == MM_TOUCH_RESULT && info->ownership != MM_PERSISTENT)
        return mm_fail(MM_ERR_INVALID, "%s: %s is a result here, and was not where it was named first",
                       MM_LOOP_STEP_TEXT(step), MM_BRIEF(name));
    return MM_OK;
}

static mm_status record_scratch(const mm_loop_step *step, const mm_slot *slot, mm_loop_slot *made, int64_t *bytes) {
    if (slot->bytes <= 0 || mm_align(slot->bytes) / MM_ALIGN > MOST_SCRATCH)
        return mm_fail(MM_ERR_INVALID, "%s: scratch of %lld bytes", MM_LOOP_STEP_TEXT(step), (long long)slot->bytes);
    made->tensor = -1;
    made->bytes = slot->bytes;
    made->offset = *bytes;
    *bytes += mm_align(slot->bytes);
    return MM_OK;
}

static mm_status record_tensor(mm_loop_recording *r, const mm_loop_step *step, const mm_slot *slot,
                               mm_loop_slot *made) {
    char *name;
    MM_TRY(mm_loop_name(r, slot->name, slot->row, &name));
    made->tensor = mm_names_find(&r->tensors, name);
    made->first = slot->touch == MM_TOUCH_ADD && made->tensor < 0;
    MM_TRY(made->tensor < 0 ? add_tensor(r, step, slot, name, &made->tensor)
                            : check_known(r, step, slot, name, made->tensor));
    const mm_tensor_info *info = mm_graph_tensor(r->graph, made->tensor);
    made->name = info->name;
    made->name_length = (int)strlen(slot->name);
    made->bytes = info->bytes;
    made->lasts = info->ownership == MM_PERSISTENT;
    return MM_OK;
}

mm_status mm_loop_record_slot(mm_loop_recording *r, const mm_loop_step *step, const mm_slot *slot, int i,
                              mm_loop_made *made, int64_t *workspace_bytes) {
    mm_loop_slot *out = &made->slots[i];
    if ((unsigned)slot->touch > MM_TOUCH_RESULT)
        return mm_fail(MM_ERR_INVALID, "%s: slot %d has no touch %d", MM_LOOP_STEP_TEXT(step), i + 1, slot->touch);
    const bool scratch = slot->touch == MM_TOUCH_SCRATCH;
    if (!slot->where || (!scratch && (!slot->name || !*slot->name)))
        return mm_fail(MM_ERR_INVALID, "%s: slot %d has no %s", MM_LOOP_STEP_TEXT(step), i + 1,
                       slot->where ? "name" : "pointer to fill");
    *out = (mm_loop_slot){.row = slot->row, .touch = slot->touch, .form = slot->form, .over = -1};
    return scratch ? record_scratch(step, slot, out, workspace_bytes) : record_tensor(r, step, slot, out);
}
