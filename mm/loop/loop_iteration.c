/* SPDX-License-Identifier: MIT */
/* Iterations: begun, ended, given up. */
#include "mm/core/text.h"
#include "mm/loop/loop_fill.h"
#include "mm/loop/loop_keys.h"
#include "mm/loop/loop_plain.h"

static mm_status begin(mm_loop *l, int64_t key) {
    mm_loop_recording *r = mm_loop_find(l, key);
    if (l->now) mm_loop_clear_results(l->now);
    mm_loop_plain_free(l);
    l->now = NULL;
    l->at = 0;
    if (!r) {
        MM_TRY(mm_loop_add(l, key, &l->now));
        l->state = MM_LOOP_RECORDS;
        return MM_OK;
    }
    MM_TRY(mm_loop_plan(r));
    MM_TRY(mm_iteration_begin(l->manager, r->graph));
    l->now = r;
    l->state = MM_LOOP_RUNS;
    return MM_OK;
}

mm_status mm_loop_begin(mm_loop *l, int64_t key) {
    MM_TRY(mm_check_given(l, "mm_loop_begin", "loop"));
    if (l->state != MM_LOOP_IDLE)
        return mm_fail(MM_ERR_ORDER, "mm_loop_begin: an iteration of key %lld is under way; end or abort it first",
                       (long long)l->now->key);
    l->failure.status = MM_OK;
    const mm_status status = begin(l, key);
    mm_loop_fail(l, status);
    return status;
}

/* The step that is under way, or that is left. */
static mm_status check_complete(const mm_loop *l) {
    char next[MM_LOOP_NAME_CAPACITY];
    if (l->entered)
        return mm_fail(MM_ERR_ORDER, "mm_loop_end: %s %s is under way (mm_loop_leave)", MM_BRIEF(l->entered->name),
                       mm_phase_name(l->entered->phase));
    if (l->state == MM_LOOP_RECORDS || l->at == l->now->n_steps) return MM_OK;
    mm_graph_step_name(l->now->graph, l->at, next, sizeof next);
    return mm_fail(MM_ERR_ORDER,
                   "mm_loop_end: key %lld has %d more steps, the next is %s; begin another key for another order",
                   (long long)l->now->key, l->now->n_steps - l->at, MM_BRIEF(next));
}

/* Ends the iteration that has failed, in the manager, too. A recording that failed is dropped. */
static void lose(mm_loop *l) {
    const mm_loop_state state = l->state;
    l->state = MM_LOOP_IDLE;
    if (l->entered) mm_loop_clear(l->entered);
    l->entered = NULL;
    if (state == MM_LOOP_IDLE) return;
    mm_loop_clear_results(l->now);
    if (state == MM_LOOP_RUNS) {
        mm_iteration_abort(l->manager);
        return;
    }
    mm_failure last; /* the caller's mm_last_error stays */
    mm_failure_save(&last, MM_ERR_ORDER);
    mm_status waited = mm_loop_plain_wait(l);
    (void)waited; /* the iteration has failed already */
    mm_failure_restore(&last);
    mm_loop_plain_free(l);
    mm_loop_drop(l, l->now);
}

static mm_status end_recording(mm_loop *l, bool *again_out) {
    MM_TRY(mm_graph_freeze(l->now->graph));
    MM_TRY(mm_loop_plain_wait(l));
    l->now->learned = true;
    l->state = MM_LOOP_IDLE;
    MM_TRY(mm_loop_plan(l->now));
    *again_out = l->options.record == MM_LOOP_RECORD_ONLY;
    return MM_OK;
}

static mm_status end_run(mm_loop *l) {
    MM_TRY(l->options.ahead ? mm_iteration_end_async(l->manager) : mm_iteration_end(l->manager));
    l->state = MM_LOOP_IDLE;
    return MM_OK;
}

mm_status mm_loop_end(mm_loop *l, bool *again_out) {
    MM_TRY(mm_check_given(l, "mm_loop_end", "loop"));
    MM_TRY(mm_check_given(again_out, "mm_loop_end", "again_out"));
    bool again = false;
    mm_failure first = l->failure;
    l->failure.status = MM_OK;
    if (first.status == MM_OK && l->state == MM_LOOP_IDLE)
        return mm_fail(MM_ERR_ORDER, "mm_loop_end: no iteration is under way (mm_loop_begin)");
    mm_status status = mm_failure_restore(&first);
    if (status == MM_OK) status = check_complete(l);
    if (status == MM_OK) status = l->state == MM_LOOP_RUNS ? end_run(l) : end_recording(l, &again);
    if (status == MM_OK)
        *again_out = again;
    else
        lose(l);
    return status;
}

void mm_loop_abort(mm_loop *l) {
    if (!l) return;
    l->failure.status = MM_OK;
    lose(l);
}
