/* SPDX-License-Identifier: MIT */
/* What the files of a loop share. */
#include "mm/loop/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"

mm_status mm_loop_grow(void *array, int count, size_t item_bytes) {
    void *items;
    if (count & (count - 1)) return MM_OK;
    memcpy(&items, array, sizeof items);
    items = realloc(items, (count ? 2 * (size_t)count : 1) * item_bytes);
    if (!items) return mm_fail(MM_ERR_NOMEM, "out of memory for a loop of %d items", count);
    memcpy(array, &items, sizeof items);
    return MM_OK;
}

void mm_loop_fail(mm_loop *l, mm_status status) {
    if (l->failure.status == MM_OK) mm_failure_save(&l->failure, status);
}

const char *mm_loop_step_text(const mm_loop_step *step, char buffer[MM_LOOP_NAME_CAPACITY]) {
    snprintf(buffer, MM_LOOP_NAME_CAPACITY, "%s.%d %s", MM_BRIEF(step->name ? step->name : "unnamed"), step->row,
             mm_phase_name(step->phase));
    return buffer;
}

const char *mm_loop_touch_name(mm_loop_touch touch) {
    static const char *const names[] = {
        [MM_TOUCH_READ] = "read", [MM_TOUCH_WRITE] = "write",     [MM_TOUCH_MODIFY] = "modify",
        [MM_TOUCH_ADD] = "add",   [MM_TOUCH_SCRATCH] = "scratch", [MM_TOUCH_RESULT] = "result",
    };
    return (unsigned)touch <= MM_TOUCH_RESULT ? names[touch] : "unknown touch";
}
