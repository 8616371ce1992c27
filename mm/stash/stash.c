/* SPDX-License-Identifier: MIT */
/* The calls of a stash. One call at a time is inside it, between stash_enter and stash_exit. Drops and releases are
 * deferred: they leave a record, a "note", which the call that is inside processes before it exits. */
#include "mm/stash/stash.h"

#include <string.h>

#include "mm/core/plan/plan.h"
#include "mm/core/size.h"
#include "mm/stash/stash_arena.h"
#include "mm/stash/stash_desc.h"
#include "mm/stash/stash_iteration.h"
#include "mm/stash/stash_report.h"
#include "mm/stash/stash_sync.h"
#include "mm/stash/stash_table.h"

/* ---------------------------------------------------------------- enter and exit */

/* Makes the stash's stream wait for the caller's tasks before a release; if that fails, blocks until they have run. */
static void follow(mm_stash *s, const mm_stash_deferred *note) {
    mm_status status = note->failed;
    if (status == MM_OK) status = mm_stash_sync_wait(s, note->event);
    if (status == MM_OK) return;
    mm_failure_save(&s->owed, mm_fail_in(status, "mm_stash_release"));
    if (note->event && note->failed == MM_OK) {
        mm_status ended = mm_event_sync(note->event);
        (void)ended; /* the status is dropped, because the next call returns the failure anyway */
    }
}

static void read_note(mm_stash *s, mm_stash_deferred *note) {
    mm_stash_slot *e = note->slot;
    if (note->returns) {
        follow(s, note);
        e->held--;
        mm_stash_deferred_free(s, note);
    } else {
        e->dropped = true;
    }
    if (e->held == 0) mm_stash_unhold(s, e);
}

static void stash_enter(mm_stash *s) {
    pthread_mutex_lock(&s->lock);
    while (s->busy) pthread_cond_wait(&s->changed, &s->lock);
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
}

/* Processes notes until there are none, then leaves. */
static void stash_exit(mm_stash *s) {
    pthread_mutex_lock(&s->lock);
    while (s->notes) {
        mm_stash_deferred *note = s->notes;
        s->notes = note->next;
        if (!s->notes) s->last_note = NULL;
        pthread_mutex_unlock(&s->lock);
        read_note(s, note);
        pthread_mutex_lock(&s->lock);
    }
    s->busy = false;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Leaves a note for the call that is inside; if no call is inside, processes the note itself. Called with the lock
 * held, which it releases. */
static void leave_note(mm_stash *s, mm_stash_deferred *note) {
    note->next = NULL;
    *(s->last_note ? &s->last_note->next : &s->notes) = note;
    s->last_note = note;
    const bool mine = !s->busy;
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
    if (mine) stash_exit(s);
}

/* Returns the failure of an earlier drop or release, once. */
static mm_status pay(mm_stash *s) {
    mm_failure owed = s->owed;
    s->owed.status = MM_OK;
    return mm_failure_restore(&owed);
}

/* ---------------------------------------------------------------- put */

/* Makes the caller's stream wait for what was enqueued on the stash's stream; if that fails, blocks until it has
 * run. */
static mm_status lane_leave(mm_stash *s, void *stream) {
    return mm_stash_sync_exit(s, stream) == MM_OK ? MM_OK : mm_stash_sync_drain(s);
}

static mm_status check_size(mm_stash *s, const mm_stash_desc *kind) {
    const int64_t bytes = mm_align(kind->bytes);
    if (bytes <= s->options.device_bytes) return MM_OK;
    mm_stash_note_refusal(s, kind, s->marked ? 0 : s->recorded.n_entries, bytes);
    return mm_fail(MM_ERR_INFEASIBLE, "a tensor of %s needs %s, the budget is %s", mm_stash_producer(kind),
                   MM_SIZE_TEXT(bytes), MM_SIZE_TEXT(s->options.device_bytes));
}

/* Puts the entry. On failure, no task reads the caller's tensor any more. */
static mm_status take_in(mm_stash *s, mm_stash_slot *e, void *data, void *stream) {
    MM_TRY(mm_stash_sync_enter(s, stream));
    MM_TRY(mm_stash_begin(s, &e->kind));
    MM_TRY(mm_stash_take_in(s, e, data));
    s->stats.entries++;
    s->stats.puts++;
    return e->kept ? MM_OK : lane_leave(s, stream);
}

static mm_status put(mm_stash *s, const mm_stash_tensor *tensor, const mm_stash_desc *kind, void *stream,
                     mm_stash_entry *entry_out, mm_stash_answer *answer_out) {
    mm_stash_slot *e;
    MM_TRY(pay(s));
    if (!mm_stash_refuses_later(s)) MM_TRY(check_size(s, kind));
    MM_TRY(mm_stash_slot_new(s, &e));
    e->kind = *kind;
    const int64_t before = s->stats.entries;
    mm_status status = take_in(s, e, (void *)tensor->data, stream);
    if (s->stats.entries == before) {
        mm_stash_slot_free(s, e);
        return status;
    }
    mm_stash_entry entry = mm_stash_slot_publish(s, e);
    if (status != MM_OK) { /* the entry exists, but the caller's stream cannot be made to wait: the device has failed */
        e->dropped = true;
        mm_stash_unhold(s, e);
        return status;
    }
    *answer_out = e->kept ? MM_STASH_KEPT : MM_STASH_TAKEN;
    *entry_out = entry;
    return MM_OK;
}

mm_status mm_stash_put(mm_stash *s, const mm_stash_tensor *tensor, void *stream, mm_stash_entry *entry_out,
                       mm_stash_answer *answer_out) {
    mm_stash_desc kind;
    MM_TRY(mm_check_given(s, "mm_stash_put", "stash"));
    MM_TRY(mm_check_given(tensor, "mm_stash_put", "tensor"));
    MM_TRY(mm_check_given(entry_out, "mm_stash_put", "entry_out"));
    MM_TRY(mm_check_given(answer_out, "mm_stash_put", "answer_out"));
    MM_TRY(mm_stash_desc_of(tensor, &kind));
    stash_enter(s);
    mm_failure failure;
    mm_failure_save(&failure, put(s, tensor, &kind, stream, entry_out, answer_out));
    stash_exit(s);
    return mm_failure_restore(&failure);
}

/* ---------------------------------------------------------------- get, release, drop */

/* Makes the bytes available, and the caller's stream wait for them. */
static mm_status serve(mm_stash *s, mm_stash_slot *e, void *stream) {
    if (e->held == 0) MM_TRY(mm_stash_serve(s, e));
    e->held++;
    return lane_leave(s, stream);
}

/* A get of an entry that the caller kept: the pointer is the caller's own, nothing is held, and nothing is to be
 * released. */
static mm_status get_kept(mm_stash *s, mm_stash_slot *e, void **data_out) {
    MM_TRY(mm_stash_serve(s, e));
    s->stats.gets++;
    *data_out = e->kept;
    return MM_OK;
}

static mm_status get(mm_stash *s, mm_stash_entry entry, void *stream, void **data_out) {
    mm_stash_deferred *note;
    MM_TRY(pay(s));
    pthread_mutex_lock(&s->lock);
    mm_stash_slot *e = mm_stash_slot_at(s, entry);
    if (e && e->dropping) e = NULL;
    pthread_mutex_unlock(&s->lock);
    if (!e) return mm_fail(MM_ERR_NOT_FOUND, "mm_stash_get: there is no entry %llu", (unsigned long long)entry);
    MM_TRY(mm_foreign_check(s->device, stream)); /* nothing here has to wait for the caller's tasks */
    if (e->kept) return get_kept(s, e, data_out);
    MM_TRY(mm_stash_deferred_new(s, &note));
    const int held = e->held;
    mm_status status = serve(s, e, stream);
    if (status != MM_OK) {
        mm_stash_deferred_free(s, note);
        if (e->held > held && --e->held == 0) mm_stash_unhold(s, e);
        return status;
    }
    s->stats.gets++;
    s->stats.lossy_gets += e->lossy;
    *data_out = e->place;
    note->slot = e;
    pthread_mutex_lock(&s->lock);
    note->next = e->gets;
    e->gets = note;
    pthread_mutex_unlock(&s->lock);
    return MM_OK;
}

mm_status mm_stash_get(mm_stash *s, mm_stash_entry entry, void *stream, void **data_out) {
    MM_TRY(mm_check_given(s, "mm_stash_get", "stash"));
    MM_TRY(mm_check_given(data_out, "mm_stash_get", "data_out"));
    stash_enter(s);
    mm_failure failure;
    mm_failure_save(&failure, get(s, entry, stream, data_out));
    stash_exit(s);
    return mm_failure_restore(&failure);
}

void mm_stash_release(mm_stash *s, mm_stash_entry entry, void *stream) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    mm_stash_slot *e = mm_stash_slot_at(s, entry);
    mm_stash_deferred *note = e ? e->gets : NULL;
    if (note) e->gets = note->next;
    pthread_mutex_unlock(&s->lock);
    if (!note) return;
    mm_failure told; /* keeps the caller's mm_last_error */
    mm_failure_save(&told, MM_ERR_DEVICE);
    /* Tried twice: without the event, the stash does not know when the caller's tasks have read the bytes. */
    note->failed = note->event ? mm_foreign_record(note->event, stream) : MM_OK;
    if (note->failed != MM_OK) note->failed = mm_foreign_record(note->event, stream);
    pthread_mutex_lock(&s->lock);
    leave_note(s, note);
    mm_failure_restore(&told);
}

void mm_stash_drop(mm_stash *s, mm_stash_entry entry) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    mm_stash_slot *e = mm_stash_slot_at(s, entry);
    if (!e || e->dropping) {
        pthread_mutex_unlock(&s->lock);
        return;
    }
    e->dropping = true;
    leave_note(s, &e->drop);
}

/* ---------------------------------------------------------------- statistics */

static void add_devices(mm_stash *s, mm_stash_stats *stats) {
    mm_dispatch_stats d;
    mm_dispatch_stats_get(s->dispatch, &d);
    stats->out_bytes += d.out_bytes;
    stats->in_bytes += d.in_bytes;
    stats->encoded_bytes += d.encoded_bytes;
    stats->coded_bytes += d.coded_bytes;
    stats->store_bytes += d.store_bytes;
    stats->load_bytes += d.load_bytes;
    pthread_mutex_lock(&s->learner.lock);
    stats->plans = s->learner.plans;
    stats->planning_ns = s->learner.planning_ns;
    stats->needed_bytes = s->learner.needed_bytes;
    pthread_mutex_unlock(&s->learner.lock);
}

void mm_stash_stats_get_sized(mm_stash *s, mm_stash_stats *stats_out, size_t stats_bytes) {
    if (!s || !stats_out) return;
    stash_enter(s);
    mm_stash_stats stats = s->stats;
    stats.arena_bytes = s->limit_bytes;
    stats.beyond_bytes = s->beyond.most_bytes;
    add_devices(s, &stats);
    stash_exit(s);
    memset(stats_out, 0, stats_bytes);
    memcpy(stats_out, &stats, stats_bytes < sizeof stats ? stats_bytes : sizeof stats);
}

mm_status mm_stash_touched_get(mm_stash *s, mm_touched *touched_out) {
    MM_TRY(mm_check_given(s, "mm_stash_touched_get", "stash"));
    MM_TRY(mm_check_given(touched_out, "mm_stash_touched_get", "touched_out"));
    stash_enter(s);
    mm_failure failure;
    mm_failure_save(&failure, mm_stash_touched(s, touched_out));
    stash_exit(s);
    return mm_failure_restore(&failure);
}

/* ---------------------------------------------------------------- the budget */

static mm_status set_budget(mm_stash *s, int64_t bytes) {
    const int64_t most = mm_pool_bytes(s->pool);
    MM_TRY(pay(s));
    if (bytes <= 0 || bytes > most)
        return mm_fail(MM_ERR_INVALID, "mm_stash_budget_set: device_bytes is %lld: must be from 1 to %lld",
                       (long long)bytes, (long long)most);
    if (s->stats.entries > 0)
        return mm_fail(MM_ERR_ORDER,
                       "mm_stash_budget_set: there are %lld entries; the budget can change while there is none",
                       (long long)s->stats.entries);
    MM_TRY(mm_dispatch_sync(s->dispatch)); /* the last iteration may still run */
    if (bytes < s->limit_bytes) MM_TRY(mm_stash_arena_limit(s, bytes));
    s->options.device_bytes = bytes;
    s->was_planned = false; /* its plan is gone */
    mm_learner_plan_again(&s->learner, bytes);
    return MM_OK;
}

mm_status mm_stash_budget_set(mm_stash *s, int64_t device_bytes) {
    MM_TRY(mm_check_given(s, "mm_stash_budget_set", "stash"));
    stash_enter(s);
    mm_failure failure;
    mm_failure_save(&failure, set_budget(s, device_bytes));
    stash_exit(s);
    return mm_failure_restore(&failure);
}

/* ---------------------------------------------------------------- plans */

void mm_stash_iteration_end(mm_stash *s) {
    if (!s) return;
    stash_enter(s);
    s->marked = s->stats.entries > 0;
    stash_exit(s);
}

static mm_status report_newest(mm_stash *s) {
    MM_TRY(pay(s));
    MM_TRY(mm_stash_beyond_refuse(s));
    const mm_learned_order *o = s->learner.last;
    if (!o || !mm_learned_fits_not(o)) return MM_OK;
    s->refused = o->refused;
    return mm_failure_restore(&o->failure);
}

mm_status mm_stash_wait_planned(mm_stash *s) {
    MM_TRY(mm_check_given(s, "mm_stash_wait_planned", "stash"));
    mm_learner_wait(&s->learner);
    stash_enter(s);
    mm_failure failure;
    if (mm_learner_is_idle(&s->learner))
        mm_failure_save(&failure, report_newest(s));
    else
        failure.status = MM_OK;
    stash_exit(s);
    return mm_failure_restore(&failure);
}

bool mm_stash_refusal_get(mm_stash *s, mm_stash_refusal *refusal_out) {
    if (!s || !refusal_out) return false;
    stash_enter(s);
    const mm_stash_refused *r = &s->refused;
    *refusal_out =
        (mm_stash_refusal){r->needed_bytes, r->device_bytes, r->tensor_bytes, r->tensor, r->producer, r->policy};
    stash_exit(s);
    return r->needed_bytes > 0;
}

bool mm_stash_report(mm_stash *s, int i, mm_stash_line *line_out) {
    if (!s || !line_out) return false;
    stash_enter(s);
    const bool told = mm_stash_report_entry(s, i, line_out);
    stash_exit(s);
    return told;
}

bool mm_stash_plan_segment(mm_stash *s, int i, mm_stash_segment *segment_out) {
    if (!s || !segment_out) return false;
    stash_enter(s);
    const bool told = mm_stash_report_segment(s, i, segment_out);
    stash_exit(s);
    return told;
}
