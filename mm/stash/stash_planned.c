/* SPDX-License-Identifier: MIT */
/* An iteration that follows a learned order: its events are matched with those of the order, and run steps of the
 * plan. */
#include "mm/stash/stash_planned.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/core/log.h"
#include "mm/stash/stash.h"
#include "mm/stash/stash_arena.h"
#include "mm/stash/stash_desc.h"
#include "mm/stash/stash_sync.h"
#include "mm/stash/stash_unplanned.h"

/* ---------------------------------------------------------------- begin */

/* Makes the execution when it is first needed, in the call that is inside the stash: the dispatcher allows one thread
 * only. */
static mm_status make_execution(mm_stash *s, mm_learned_order *o) {
    const mm_planned *planned = &o->plan.planned;
    if (o->execution || !planned->plan) return MM_OK;
    MM_TRY(mm_dispatch_sync(s->dispatch));
    MM_TRY(mm_execution_create(s->dispatch, planned->program, planned->facts, planned->codecs, &o->execution));
    if (planned->block_bytes > 0)
        mm_execution_set_block(o->execution, (uint8_t *)mm_pool_base(s->pool) + planned->block_offset);
    return MM_OK;
}

static mm_status begin_within(mm_stash *s, mm_learned_order *o) {
    const mm_stash_plan *plan = &o->plan;
    MM_TRY(make_execution(s, o));
    MM_TRY(mm_stash_unplanned_reserve(s, o->order.n_entries));
    MM_TRY(mm_stash_arena_limit(s, s->options.device_bytes - plan->kept_bytes));
    MM_TRY(mm_stash_arena_give_back(s, mm_stash_plan_extent(plan)));
    MM_TRY(mm_stash_cover(s, plan));
    return o->execution ? mm_dispatch_begin(s->dispatch, o->execution) : MM_OK;
}

static mm_status begin(mm_stash *s, mm_learned_order *o) {
    mm_stash_slot **slots = calloc((size_t)o->order.n_entries + 1, sizeof *slots);
    if (!slots) return mm_fail(MM_ERR_NOMEM, "out of memory for %d entries", o->order.n_entries);
    mm_status status = begin_within(s, o);
    if (status != MM_OK) {
        free(slots);
        return status;
    }
    const int64_t extent = mm_stash_plan_extent(&o->plan);
    if (extent > s->extent_bytes) s->extent_bytes = extent;
    s->stats.predicted_bytes = extent + o->plan.kept_bytes;
    s->stats.predicted_kept_bytes = o->plan.kept_bytes;
    s->follow.order = o;
    s->follow.slots = slots;
    s->follow.cursor = s->follow.step = 0;
    return MM_OK;
}

static void report_refused(mm_stash *s) {
    for (const mm_learned_order *o; (o = mm_learner_untold(&s->learner));)
        mm_log_send(&s->options.log, MM_LOG_WARNING, "iterations of an order of %d tensors run unplanned: %s",
                    o->order.n_entries, o->failure.message);
}

mm_status mm_stash_planned_try(mm_stash *s, const mm_stash_desc *first) {
    report_refused(s);
    mm_learned_order *o = mm_learner_find(&s->learner, first);
    if (!o) return MM_OK;
    if (o->state == MM_LEARNED_REFUSED) {
        s->refused = o->refused;
        s->learner.last = NULL; /* the failure is returned only once, because the next iteration may have another order,
                                   which begins in the same way, and fits */
        return mm_failure_restore(&o->failure);
    }
    mm_status status = begin(s, o);
    if (status == MM_OK) return MM_OK;
    mm_log_send(&s->options.log, MM_LOG_WARNING, "an iteration runs unplanned: %s", mm_last_error());
    return MM_OK;
}

/* ---------------------------------------------------------------- steps */

static int node_of(const mm_stash *s, int step) { return mm_execution_node(s->follow.order->execution, step); }

static mm_status step_begin(mm_stash *s, int step) {
    int64_t waited_ns;
    MM_TRY(mm_dispatch_step_begin(s->dispatch, node_of(s, step), s->stream, &waited_ns));
    s->follow.step = step;
    return MM_OK;
}

static mm_status step_end(mm_stash *s, int step) {
    MM_TRY(mm_dispatch_step_end(s->dispatch, node_of(s, step)));
    s->follow.step = step + 1;
    return MM_OK;
}

/* Begins and ends the steps of an event, with no work in between. */
static mm_status run_event(mm_stash *s, int event) {
    const mm_stash_graph *g = &s->follow.order->plan.graph;
    if (g->begins[event] >= 0) MM_TRY(step_begin(s, g->begins[event]));
    if (g->ends[event] >= 0) MM_TRY(step_end(s, g->ends[event]));
    return MM_OK;
}

/* Where the entry lies in the step that has begun. */
static void *address_now(const mm_stash *s, int32_t *segment_out) {
    const mm_plan *plan = s->follow.order->plan.planned.plan;
    *segment_out = plan->bindings[plan->nodes[node_of(s, s->follow.step)].first_binding];
    return mm_dispatch_address(s->dispatch, *segment_out);
}

/* ---------------------------------------------------------------- events */

static const mm_order_event *expected(const mm_stash *s) {
    const mm_order *o = &s->follow.order->order;
    return s->follow.cursor < o->n_events ? &o->events[s->follow.cursor] : NULL;
}

/* Skips the next events of the order if they are of entries that have ended already, earlier than in the order, or of
 * entries that callers keep: no step depends on when kept entries are read. */
static mm_status skip(mm_stash *s) {
    const mm_stash_planned *f = &s->follow;
    for (const mm_order_event *e; (e = expected(s)) && e->kind != MM_ORDER_PUT; s->follow.cursor++) {
        if (f->slots[e->entry] && !f->order->plan.kept[e->entry]) return MM_OK;
        MM_TRY(run_event(s, s->follow.cursor));
    }
    return MM_OK;
}

static bool is_expected(const mm_stash *s, mm_order_event_kind kind, int entry) {
    const mm_order_event *e = expected(s);
    return e && e->kind == kind && e->entry == entry;
}

/* Notes in follow.why that the iteration differs from the order, which is not a failure. */
static bool differs(mm_stash *s, const char *what, const mm_stash_slot *slot) {
    snprintf(s->follow.why, sizeof s->follow.why, "%s of tensor %d of %s came out of order", what, slot->number,
             mm_stash_producer(&slot->kind));
    return false;
}

static bool fails(mm_stash *s, mm_status status) {
    if (status == MM_OK) return false;
    snprintf(s->follow.why, sizeof s->follow.why, "%s", mm_last_error());
    return true;
}

bool mm_stash_planned_put(mm_stash *s, mm_stash_slot *slot, void *data) {
    mm_stash_planned *f = &s->follow;
    int32_t segment;
    if (fails(s, skip(s))) return false;
    const mm_order *o = &f->order->order;
    const mm_order_event *e = expected(s);
    slot->number = e && e->kind == MM_ORDER_PUT ? e->entry : o->n_entries;
    if (!e || e->kind != MM_ORDER_PUT || !mm_stash_desc_equal(&o->entries[e->entry], &slot->kind))
        return differs(s, "a put", slot);
    if (f->order->plan.kept[e->entry]) {
        slot->kept = data;
    } else {
        if (fails(s, step_begin(s, f->order->plan.graph.begins[f->cursor]))) return false;
        if (fails(s, mm_stash_sync_copy(s, address_now(s, &segment), data, slot->kind.bytes, MM_COPY_DEVICE)))
            return false;
        if (fails(s, step_end(s, f->order->plan.graph.ends[f->cursor]))) return false;
        s->stats.moved_bytes += slot->kind.bytes;
    }
    f->slots[slot->number] = slot;
    f->cursor++;
    return true;
}

bool mm_stash_planned_get(mm_stash *s, mm_stash_slot *slot) {
    mm_stash_planned *f = &s->follow;
    const mm_stash_plan *plan = &f->order->plan;
    int32_t segment;
    if (slot->kept) return true;
    if (fails(s, skip(s))) return false;
    if (!is_expected(s, MM_ORDER_GET, slot->number)) return differs(s, "a get", slot);
    const int step = plan->graph.begins[f->cursor];
    if (fails(s, step_begin(s, step))) return false;
    slot->place = address_now(s, &segment);
    slot->lossy = !plan->planned.exact[segment];
    if (plan->graph.ends[f->cursor] >= 0 && fails(s, step_end(s, step))) return false;
    f->cursor++;
    return true;
}

/* Orders leave out a return that the entry's end follows directly, so an end is accepted here. */
bool mm_stash_planned_return(mm_stash *s, mm_stash_slot *slot) {
    if (fails(s, skip(s))) return false;
    mm_stash_planned *f = &s->follow;
    if (is_expected(s, MM_ORDER_END, slot->number)) return true;
    if (!is_expected(s, MM_ORDER_RETURN, slot->number)) return differs(s, "a return", slot);
    if (fails(s, run_event(s, f->cursor))) return false;
    f->cursor++;
    return true;
}

bool mm_stash_planned_end(mm_stash *s, mm_stash_slot *slot) {
    if (fails(s, skip(s))) return false;
    mm_stash_planned *f = &s->follow;
    if (is_expected(s, MM_ORDER_END, slot->number)) {
        if (fails(s, run_event(s, f->cursor))) return false;
        f->cursor++;
    }
    f->slots[slot->number] = NULL;
    return !fails(s, skip(s));
}

bool mm_stash_planned_finish(mm_stash *s) {
    mm_learned_order *o = s->follow.order;
    if (s->follow.cursor < o->order.n_events) {
        snprintf(s->follow.why, sizeof s->follow.why, "it ended after %d of %d events", s->follow.cursor,
                 o->order.n_events);
        return false;
    }
    if (o->execution && fails(s, mm_dispatch_end_async(s->dispatch))) return false;
    free(s->follow.slots);
    s->follow.order = NULL;
    mm_learner_note(&s->learner, o);
    return true;
}
