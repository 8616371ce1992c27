/* SPDX-License-Identifier: MIT */
/* Begins and ends iterations, and passes their events to the plan, if they follow one. */
#include "mm/stash/stash_iteration.h"

#include <stdio.h>

#include "mm/core/log.h"
#include "mm/core/size.h"
#include "mm/stash/stash.h"
#include "mm/stash/stash_arena.h"
#include "mm/stash/stash_beyond.h"
#include "mm/stash/stash_desc.h"
#include "mm/stash/stash_off_plan.h"
#include "mm/stash/stash_planned.h"
#include "mm/stash/stash_report.h"
#include "mm/stash/stash_table.h"
#include "mm/stash/stash_unplanned.h"

static bool is_following(const mm_stash *s) { return s->follow.order != NULL; }

/* Whether the entry was put in the iteration under way. If not, it is left from an earlier one. */
static bool is_of_now(const mm_stash *s, const mm_stash_slot *e) { return e->iteration == s->iteration; }

/* ---------------------------------------------------------------- begin and end */

static mm_status begin_unplanned(mm_stash *s) {
    MM_TRY(mm_stash_cover(s, NULL));
    if (s->taken > 0) return MM_OK;
    if (mm_stash_arena_limit(s, s->options.device_bytes - s->stats.kept_bytes) == MM_OK) return MM_OK;
    mm_log_send(&s->options.log, MM_LOG_WARNING, "an iteration gets only %s of the arena: %s",
                MM_SIZE_TEXT(s->limit_bytes), mm_last_error());
    return MM_OK;
}

/* Whether the order is to be planned. An order without gets is not: it comes from a forward pass whose backward pass
 * never ran. */
static bool is_worth_a_plan(const mm_stash *s) {
    const mm_order *o = &s->recorded;
    return !s->options.unplanned && !o->lost && o->open == 0 && o->n_gets > 0;
}

/* Ends the iteration; entries may be left if mm_stash_iteration_end was called. */
static void end(mm_stash *s) {
    s->was_planned = is_following(s) && mm_stash_planned_finish(s);
    if (is_following(s)) mm_stash_go_off_plan(s);
    mm_stash_beyond_end(s);
    if (!s->was_planned) s->learner.last_known = is_worth_a_plan(s) && mm_learner_add(&s->learner, &s->recorded);
    if (mm_learner_gives_up(&s->learner))
        mm_log_send(&s->options.log, MM_LOG_WARNING,
                    "%d orders of saved tensors in a row never came again, as if shapes change in each iteration: "
                    "iterations run unplanned, and an order is planned only when it comes a second time",
                    MM_LEARNED_IN_VAIN);
    s->beyond.order = s->learner.last_known ? s->learner.last : NULL;
    s->stats.planned += s->was_planned;
    s->stats.off_plan += s->left_plan;
    s->stats.iterations++;
    s->iteration++;
    s->left_plan = s->marked = false;
    mm_order_clear(&s->recorded);
}

mm_status mm_stash_begin(mm_stash *s, const mm_stash_desc *first) {
    if (s->stats.entries > 0 && !s->marked) return MM_OK;
    if (s->marked) end(s);
    MM_TRY(mm_stash_beyond_refuse(s));
    if (s->learner.terms.keep_always) return MM_OK;
    if (!s->options.unplanned && s->stats.kept_bytes == 0 && mm_stash_unplanned_clear(s))
        MM_TRY(mm_stash_planned_try(s, first));
    return is_following(s) ? MM_OK : begin_unplanned(s);
}

/* ---------------------------------------------------------------- events */

/* MM_STASH_KEEP_ALWAYS: the caller keeps the tensor, if the budget has room for it. */
static mm_status keep(mm_stash *s, mm_stash_slot *e, const void *data) {
    const int64_t piece = mm_stash_piece(&e->kind), needed = s->stats.kept_bytes + piece;
    if (needed > s->options.device_bytes) {
        mm_stash_note_refusal(s, &e->kind, s->recorded.n_entries, needed);
        if (mm_stash_refuses_later(s)) mm_stash_beyond_note(s, 0, needed - s->options.device_bytes);
    }
    if (needed <= s->options.device_bytes || mm_stash_refuses_later(s)) {
        e->kept = (void *)data;
        return MM_OK;
    }
    return mm_fail(MM_ERR_INFEASIBLE, "no room for %s of %s: %s are kept, and the budget is %s",
                   MM_SIZE_TEXT(mm_stash_piece(&e->kind)), mm_stash_producer(&e->kind),
                   MM_SIZE_TEXT(s->stats.kept_bytes), MM_SIZE_TEXT(s->options.device_bytes));
}

static mm_status put_unplanned(mm_stash *s, mm_stash_slot *e, const void *data) {
    if (s->learner.terms.keep_always) return keep(s, e, data);
    mm_status status = mm_stash_unplanned_put(s, e, data);
    return status == MM_ERR_INFEASIBLE && mm_stash_refuses_later(s) ? mm_stash_beyond_put(s, e, data) : status;
}

mm_status mm_stash_take_in(mm_stash *s, mm_stash_slot *e, void *data) {
    e->iteration = s->iteration;
    const bool follows = is_following(s) && mm_stash_planned_put(s, e, data);
    if (is_following(s) && !follows) mm_stash_go_off_plan(s);
    if (!follows) e->number = s->recorded.n_entries;
    if (!follows) MM_TRY(put_unplanned(s, e, data));
    if (e->kept) s->stats.kept_bytes += mm_stash_piece(&e->kind);
    mm_stash_note_peak(s);
    mm_order_put(&s->recorded, &e->kind);
    return MM_OK;
}

/* Lets the plan make the bytes available. False: there is no plan, or it cannot; then the iteration goes off plan. */
static bool serve_as_planned(mm_stash *s, mm_stash_slot *e) {
    if (!is_following(s)) return false;
    if (is_of_now(s, e) && mm_stash_planned_get(s, e)) return true;
    if (!is_of_now(s, e)) snprintf(s->follow.why, sizeof s->follow.why, "an entry of an earlier iteration was got");
    mm_stash_go_off_plan(s);
    return false;
}

static mm_status serve_unplanned(mm_stash *s, mm_stash_slot *e) {
    if (e->lost) return mm_failure_restore(&s->lost);
    if (e->kept) return MM_OK;
    mm_status status = mm_stash_unplanned_bring(s, e);
    MM_TRY(status == MM_ERR_INFEASIBLE && mm_stash_refuses_later(s) ? mm_stash_beyond_bring(s, e) : status);
    e->place = e->beyond ? e->beyond : (uint8_t *)mm_pool_base(s->pool) + e->offset;
    return MM_OK;
}

mm_status mm_stash_serve(mm_stash *s, mm_stash_slot *e) {
    if (!serve_as_planned(s, e)) MM_TRY(serve_unplanned(s, e));
    if (!is_of_now(s, e)) return MM_OK;
    mm_order_add(&s->recorded, MM_ORDER_GET, e->number);
    if (e->kept) mm_order_add(&s->recorded, MM_ORDER_RETURN, e->number);
    return MM_OK;
}

static void release(mm_stash *s, mm_stash_slot *e) {
    if (e->kept) s->stats.kept_bytes -= mm_stash_piece(&e->kind);
    mm_stash_unplanned_free(s, e);
    mm_stash_slot_free(s, e);
    if (--s->stats.entries == 0) end(s);
}

void mm_stash_unhold(mm_stash *s, mm_stash_slot *e) {
    if (is_of_now(s, e)) {
        mm_order_add(&s->recorded, e->dropped ? MM_ORDER_END : MM_ORDER_RETURN, e->number);
        if (is_following(s) && !(e->dropped ? mm_stash_planned_end : mm_stash_planned_return)(s, e))
            mm_stash_go_off_plan(s);
    }
    e->place = NULL;
    mm_stash_beyond_leave(s, e);
    if (e->dropped) release(s, e);
}
