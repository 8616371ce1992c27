/* SPDX-License-Identifier: MIT */
/* The life of a loop, and what its files share. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"
#include "mm/loop/loop_keys.h"
#include "mm/loop/loop_plain.h"
#include "mm/manager/manager.h"

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

/* Converts options of the caller's header into those of this one. */
static mm_status take_options(const mm_loop_options *given, size_t bytes, mm_loop_options *taken) {
    *taken = (mm_loop_options){0};
    if (!given) return MM_OK;
    for (size_t i = sizeof *taken; i < bytes; i++)
        if (((const uint8_t *)given)[i])
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "mm_loop_create: the options have %zu bytes, of which mm %s knows %zu, and byte %zu is not "
                           "0: they are of a newer mm.h; run with its library, or leave out what is newer",
                           bytes, MM_VERSION, sizeof *taken, i);
    memcpy(taken, given, bytes < sizeof *taken ? bytes : sizeof *taken);
    if ((unsigned)taken->record > MM_LOOP_RECORD_RUN)
        return mm_fail(MM_ERR_INVALID, "mm_loop_create: there is no mm_loop_record %d", taken->record);
    return MM_OK;
}

mm_status mm_loop_create_sized(mm_manager *m, const mm_loop_options *given, size_t options_bytes, mm_loop **loop_out) {
    mm_loop_options options;
    MM_TRY(mm_check_given(m, "mm_loop_create", "manager"));
    MM_TRY(mm_check_given(loop_out, "mm_loop_create", "loop_out"));
    MM_TRY(take_options(given, options_bytes, &options));
    MM_TRY(mm_foreign_check(m->device, options.stream));
    mm_loop *l = calloc(1, sizeof *l);
    if (!l) return mm_fail(MM_ERR_NOMEM, "out of memory for a loop");
    l->manager = m;
    l->options = options;
    l->number = m->loops++;
    l->is_inline = mm_device_is_inline(m->device);
    *loop_out = l;
    return MM_OK;
}

/* Pointers of the program's are left as they are: they may be gone. */
void mm_loop_destroy(mm_loop *l) {
    if (!l) return;
    if (l->state == MM_LOOP_RUNS) mm_iteration_abort(l->manager);
    mm_status waited = mm_loop_plain_wait(l);
    (void)waited; /* failures are dropped, as mm_manager_destroy drops them */
    mm_loop_plain_free(l);
    while (l->n_recordings > 0) mm_loop_drop(l, l->recordings[l->n_recordings - 1]);
    free(l->recordings);
    free(l);
}

mm_status mm_loop_forget(mm_loop *l, int64_t key) {
    MM_TRY(mm_check_given(l, "mm_loop_forget", "loop"));
    if (l->state != MM_LOOP_IDLE)
        return mm_fail(MM_ERR_ORDER, "mm_loop_forget: an iteration of key %lld is under way", (long long)l->now->key);
    MM_TRY(mm_manager_sync(l->manager));
    mm_loop_recording *r = mm_loop_find(l, key);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "mm_loop_forget: key %lld is not known", (long long)key);
    mm_loop_drop(l, r);
    return MM_OK;
}
