/* SPDX-License-Identifier: MIT */
/* Times at which the pieces of iterations ran, from events: for traces, and for windows (window.c). */
#include "pipeline/tracing.h"

#include <stdlib.h>
#include <string.h>

#include "mm/device/contract/clock.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/execution_events.h"
#include "pipeline/window.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for tracing a plan's execution"); }

mm_status mm_dispatch_trace(mm_dispatch *d, mm_timeline *timeline) {
    if (timeline && !mm_dispatch_is_timed(d))
        return mm_fail(MM_ERR_UNSUPPORTED, "events of device %s have no times here, so nothing can be traced",
                       d->config.device->ops->name);
    mm_traced_collect(d);
    d->timeline = timeline;
    d->traces += timeline != NULL;
    return MM_OK;
}

/* ---------------------------------------------------------------- what a program needs */

static void set_fini(const mm_execution *p, mm_traced_set *set) {
    if (set != p->traced->sets) {
        for (int i = 0; set->ends && i < p->program->n; i++) mm_event_destroy(set->ends[i]);
        free(set->ends);
    }
    for (int i = 0; set->sums && i < p->allreduce.groups.n; i++) mm_event_destroy(set->sums[i]);
    free(set->sums);
    mm_event_destroy(set->begin);
    free(set->inline_steps);
}

void mm_traced_fini(mm_execution *p) {
    if (!p->traced) return;
    mm_execution **at = &p->dispatch->traced;
    while (*at != p) at = &(*at)->traced->next;
    *at = p->traced->next;
    if (p->traced->sets[0].ends) p->events = p->traced->sets[0].ends;
    for (int i = 0; i < MM_TRACED_AHEAD; i++) set_fini(p, &p->traced->sets[i]);
    free(p->traced->periods);
    free(p->traced);
    p->traced = NULL;
}

static mm_status set_init(mm_execution *p, mm_traced_set *set) {
    if (set->is_made) return MM_OK;
    const size_t n = (size_t)p->program->n + 1;
    if (!set->ends) set->ends = set == p->traced->sets ? p->events : calloc(n, sizeof *set->ends);
    if (!set->inline_steps) set->inline_steps = calloc(n, sizeof *set->inline_steps);
    if (!set->sums) set->sums = calloc((size_t)p->allreduce.groups.n + 1, sizeof *set->sums);
    if (!set->ends || !set->inline_steps || !set->sums) return no_memory();
    MM_TRY(mm_execution_events(p, set->ends));
    if (!set->begin) MM_TRY(mm_event_create(p->dispatch->config.device, &set->begin));
    set->is_made = true;
    return MM_OK;
}

static mm_status create(mm_execution *p) {
    if (p->traced) return MM_OK;
    mm_traced *traced = calloc(1, sizeof *traced);
    const size_t n = (size_t)(p->program->n + p->allreduce.groups.n) + 1;
    if (traced) traced->periods = calloc(n, sizeof *traced->periods);
    if (!traced || !traced->periods) {
        free(traced);
        return no_memory();
    }
    p->traced = traced;
    p->traced->next = p->dispatch->traced;
    p->dispatch->traced = p;
    return MM_OK;
}

/* Adds the program to the timeline, if it is new there. */
static mm_status describe(mm_execution *p) {
    mm_dispatch *d = p->dispatch;
    if (!d->timeline || p->traced->run == d->traces) return MM_OK;
    MM_TRY(mm_timeline_add_plan(d->timeline, p->program, &p->traced->plan));
    MM_TRY(mm_timeline_add_memory(d->timeline, p->traced->plan, p->program, p->facts));
    p->traced->run = d->traces;
    return MM_OK;
}

/* ---------------------------------------------------------------- times */

/* The time from ready_ns, when all that a piece waits for had ended, to the event at its end. If the device times its
 * tasks: from the first one's begin to the last one's end, because the stream may have run something else before. */
static mm_period period_until(mm_event *end, int64_t ready_ns) {
    const mm_task_times tasks = mm_event_tasks(end);
    mm_period period = {ready_ns, mm_event_ns(end)};
    if (tasks.began_ns > ready_ns) period.start_ns = tasks.began_ns;
    if (tasks.ended_ns >= period.start_ns) period.end_ns = tasks.ended_ns;
    return ready_ns > 0 && period.end_ns >= period.start_ns ? period : (mm_period){0, -1};
}

static mm_period period_of(const mm_execution *p, const mm_traced_set *set, int i) {
    if (set->inline_steps[i].end_ns > 0) return set->inline_steps[i];
    const bool is_first = i == p->program->at[MM_STREAM_COMPUTE][0];
    const int64_t ready_ns =
        is_first ? mm_event_ns(set->begin) : mm_program_started(p->program, p->ended_ns, &p->program->pieces[i]);
    return period_until(set->ends[i], ready_ns);
}

/* The time of an all-reduce in place. One that was not begun gets a period of no length, right after the step that it
 * follows. */
static mm_period period_of_sum(const mm_execution *p, const mm_traced_set *set, int sum) {
    const int before = p->program->n + sum - 1;
    const int after = mm_program_piece(p->program, p->allreduce.groups.groups[sum].after, 0);
    int64_t ready_ns = p->ended_ns[after];
    if (sum > 0 && p->traced->periods[before].end_ns > ready_ns) ready_ns = p->traced->periods[before].end_ns;
    return sum < set->n_sums ? period_until(set->sums[sum], ready_ns) : (mm_period){ready_ns, ready_ns};
}

/* Takes the times of a set's iteration. If the iteration still runs, so that some times are not known, all its times
 * are dropped. */
static void collect(mm_execution *p, mm_traced_set *set) {
    mm_timeline *timeline = p->dispatch->timeline;
    bool ended = true;
    if (set->order == 0) return;
    set->order = 0;
    for (int i = 0; i < p->program->n; i++) p->ended_ns[i] = set->ends[i] ? mm_event_ns(set->ends[i]) : 0;
    const int64_t codec_wait_ns = mm_program_codec_wait(p->program, p->ended_ns); /* as mm_execution_measure has it */
    for (int i = 0; i < p->program->n; i++) {
        if (set->inline_steps[i].end_ns > 0) p->ended_ns[i] = set->inline_steps[i].end_ns;
        ended &= p->ended_ns[i] > 0;
    }
    for (int i = 0; i < set->n_sums; i++) ended &= mm_event_ns(set->sums[i]) > 0;
    const bool told = timeline && set->number > 0;
    const int pieces = p->program->n, sums = p->allreduce.groups.n;
    if (told && !ended) timeline->dropped += pieces + sums;
    if (!ended) return;
    for (int i = 0; i < pieces; i++) p->traced->periods[i] = period_of(p, set, i);
    for (int i = 0; i < sums; i++) p->traced->periods[pieces + i] = period_of_sum(p, set, i);
    mm_period *spans = told ? mm_timeline_add(timeline, p->traced->plan, set->number, codec_wait_ns) : NULL;
    if (spans) memcpy(spans, p->traced->periods, (size_t)(pieces + sums) * sizeof *spans);
    if (p->window) mm_window_add(p, p->traced->periods);
}

/* The oldest iteration whose times are not taken; NULL: there is none. */
static mm_traced_set *oldest(const mm_dispatch *d, mm_execution **of) {
    mm_traced_set *first = NULL;
    for (mm_execution *p = d->traced; p; p = p->traced->next)
        for (int i = 0; i < MM_TRACED_AHEAD; i++) {
            mm_traced_set *set = &p->traced->sets[i];
            if (set->order == 0 || (first && first->order < set->order)) continue;
            first = set;
            *of = p;
        }
    return first;
}

/* Takes the oldest iteration's times first. */
void mm_traced_collect(mm_dispatch *d) {
    mm_execution *p;
    for (mm_traced_set *set; (set = oldest(d, &p));) collect(p, set);
}

/* Whether the last piece of each stream has ended. */
static bool has_ended(const mm_execution *p, const mm_traced_set *set) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        const int n = p->program->count[s], last = n > 0 ? p->program->at[s][n - 1] : -1;
        if (last >= 0 && set->ends[last] && set->inline_steps[last].end_ns == 0 && !mm_event_done(set->ends[last]))
            return false;
    }
    return true;
}

/* Takes the times of iterations that were left running and have ended. */
static void collect_ended(mm_dispatch *d) {
    mm_execution *p;
    for (mm_traced_set *set; (set = oldest(d, &p)) && has_ended(p, set);) collect(p, set);
}

/* ---------------------------------------------------------------- an iteration */

static bool is_traced(const mm_execution *p) { return (p->dispatch->timeline || p->window) && !p->dispatch->recording; }

mm_status mm_traced_begin(mm_execution *p) {
    mm_dispatch *d = p->dispatch;
    if (!is_traced(p)) return MM_OK;
    MM_TRY(create(p));
    MM_TRY(describe(p));
    collect_ended(d);
    mm_traced *t = p->traced;
    t->now = d->ahead ? (t->now + 1) % MM_TRACED_AHEAD : t->now;
    mm_traced_set *set = &t->sets[t->now];
    MM_TRY(set_init(p, &t->sets[0]));
    MM_TRY(set_init(p, set));
    collect(p, set);
    set->n_sums = 0;
    p->events = set->ends;
    for (int i = 0; i < p->program->n; i++) set->inline_steps[i] = (mm_period){0};
    return MM_OK;
}

/* A step on the stream has an event at its end only if it is traced, or if something waits for it. */
mm_status mm_traced_piece(mm_execution *p, int piece, mm_stream *stream) {
    if (!is_traced(p)) return MM_OK;
    mm_traced_set *set = &p->traced->sets[p->traced->now];
    if (!stream) {
        set->inline_steps[piece].start_ns = mm_now_ns();
        return MM_OK;
    }
    if (!set->ends[piece]) MM_TRY(mm_event_create(p->dispatch->config.device, &set->ends[piece]));
    const bool is_first = piece == p->program->at[MM_STREAM_COMPUTE][0];
    return is_first ? mm_event_record(set->begin, stream) : MM_OK;
}

void mm_traced_step_end(mm_execution *p, int piece) {
    if (!is_traced(p)) return;
    mm_period *step = &p->traced->sets[p->traced->now].inline_steps[piece];
    if (step->start_ns > 0) step->end_ns = mm_now_ns();
}

mm_status mm_traced_sum(mm_execution *p, mm_stream *stream) {
    if (!is_traced(p)) return MM_OK;
    mm_traced_set *set = &p->traced->sets[p->traced->now];
    if (!set->sums[set->n_sums]) MM_TRY(mm_event_create(p->dispatch->config.device, &set->sums[set->n_sums]));
    return mm_event_record(set->sums[set->n_sums++], stream);
}

void mm_traced_end(mm_execution *p) {
    mm_dispatch *d = p->dispatch;
    if (!is_traced(p)) return;
    mm_traced_set *set = &p->traced->sets[p->traced->now];
    set->order = ++d->orders;
    set->number = d->timeline ? mm_timeline_begin(d->timeline) : 0;
}
