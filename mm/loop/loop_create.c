/* SPDX-License-Identifier: MIT */
/* The life of a loop. */
#include <stdlib.h>

#include "mm/loop/loop_fill.h"
#include "mm/loop/loop_keys.h"
#include "mm/loop/loop_plain.h"
#include "mm/manager/manager.h"

static mm_status take_options(const mm_loop_options *given, size_t bytes, mm_loop_options *taken) {
    *taken = (mm_loop_options){0};
    if (!given) return MM_OK;
    MM_TRY(mm_take_options(given, bytes, taken, sizeof *taken, "mm_loop_create"));
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
    mm_loop_clear_results(r);
    mm_loop_drop(l, r);
    return MM_OK;
}
