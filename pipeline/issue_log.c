/* SPDX-License-Identifier: MIT */
#include "pipeline/issue_log.h"

#include <stdlib.h>

#include "mm/core/check/issued_check.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"

struct mm_issue_log {
    mm_device_watch watch; /* first: the device is given its address */
    mm_dispatch *dispatch;
    mm_failure differs; /* the first difference, with which every later iteration fails; MM_OK: none */
    pthread_mutex_t lock;
    /* under the lock */
    mm_issued_order order;
    int64_t verified;
    mm_issued *entries;
    size_t n, capacity;
    bool in_iteration;
    bool short_of_memory; /* an entry is missing */
    /* The thread that issues on each stream, known once it has; not set for those that the training thread issues. */
    pthread_t threads[MM_STREAM_COUNT];
    bool has_thread[MM_STREAM_COUNT];
};

static uint64_t number_of(const void *stream) { return (uint64_t)(uintptr_t)stream; }

/* mm_issued.caller of the calling thread. Call it under the lock. */
static int32_t caller(const mm_issue_log *log) {
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (log->has_thread[s] && pthread_equal(log->threads[s], pthread_self())) return 1 + s;
    return 0;
}

/* Call it under the lock. Between iterations only what orders them is kept. */
static void append(mm_issue_log *log, const mm_issued *entry) {
    const bool orders =
        entry->kind == MM_ISSUED_RECORD || entry->kind == MM_ISSUED_WAIT || entry->kind == MM_ISSUED_SYNC;
    if (!log->in_iteration && !orders) return;
    if (log->n == log->capacity) {
        const size_t capacity = log->capacity > 0 ? 2 * log->capacity : 1024;
        mm_issued *entries = realloc(log->entries, capacity * sizeof *entries);
        log->short_of_memory |= entries == NULL;
        if (!entries) return;
        log->entries = entries;
        log->capacity = capacity;
    }
    log->entries[log->n] = *entry;
    log->entries[log->n++].caller = caller(log);
}

static void on_call(mm_device_watch *watch, const mm_issued *entry) {
    mm_issue_log *log = (mm_issue_log *)watch;
    pthread_mutex_lock(&log->lock);
    append(log, entry);
    pthread_mutex_unlock(&log->lock);
}

mm_status mm_issue_log_create(mm_dispatch *d, mm_issue_log **log_out) {
    if (d->config.device->watch)
        return mm_fail(MM_ERR_ORDER, "device %s: its work is verified already", d->config.device->name);
    mm_issue_log *log = calloc(1, sizeof *log);
    if (!log) return mm_fail(MM_ERR_NOMEM, "out of memory for a log of issued work");
    log->watch.issued = on_call;
    log->dispatch = d;
    pthread_mutex_init(&log->lock, NULL);
    d->config.device->watch = &log->watch;
    *log_out = log;
    return MM_OK;
}

void mm_issue_log_destroy(mm_issue_log *log) {
    if (!log) return;
    log->dispatch->config.device->watch = NULL;
    mm_issued_order_fini(&log->order);
    pthread_mutex_destroy(&log->lock);
    free(log->entries);
    free(log);
}

/* Takes what was issued since the last iteration. */
static mm_status follow(mm_issue_log *log) {
    pthread_mutex_lock(&log->lock);
    mm_status status = log->short_of_memory ? mm_fail(MM_ERR_NOMEM, "out of memory for the log of issued work")
                                            : mm_issued_follow(log->entries, log->n, &log->order);
    log->n = 0;
    pthread_mutex_unlock(&log->lock);
    return status;
}

mm_status mm_issue_log_begin(mm_issue_log *log) {
    if (!log) return MM_OK;
    MM_TRY(mm_failure_restore(&log->differs));
    MM_TRY(follow(log));
    pthread_mutex_lock(&log->lock);
    log->in_iteration = true;
    pthread_mutex_unlock(&log->lock);
    return MM_OK;
}

/* Under MM_ISSUE_THREAD, the worker of a stream issues the stream's operations, and only those. */
void mm_issue_log_piece_begin(mm_issue_log *log, int piece, bool computed) {
    if (!log) return;
    const mm_program *program = log->dispatch->execution->program;
    const mm_stream_id stream = program->pieces[piece].stream;
    pthread_mutex_lock(&log->lock);
    if (log->dispatch->config.issue == MM_ISSUE_THREAD && stream != MM_STREAM_COMPUTE && stream != MM_STREAM_HOST) {
        log->threads[stream] = pthread_self();
        log->has_thread[stream] = true;
    }
    append(log, &(mm_issued){.kind = MM_ISSUED_BEGIN, .piece = piece, .computed = computed});
    pthread_mutex_unlock(&log->lock);
}

void mm_issue_log_piece_end(mm_issue_log *log, int piece) {
    if (!log) return;
    on_call(&log->watch, &(mm_issued){.kind = MM_ISSUED_END, .piece = piece});
}

static mm_issued_plan plan_of(const mm_issue_log *log, const mm_execution *p) {
    const mm_dispatch *d = log->dispatch;
    mm_issued_plan plan = {.program = p->program,
                           .device = number_of(d->base),
                           .pinned = number_of(d->pinned),
                           .sums = number_of(d->sums)};
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        const mm_stream *stream = s == MM_STREAM_COMPUTE ? d->compute
                                  : d->worker[s]         ? mm_worker_stream(d->worker[s])
                                                         : NULL;
        plan.streams[s] = number_of(stream);
    }
    return plan;
}

/* Call it under the lock. */
static mm_status check(mm_issue_log *log, const mm_execution *p, mm_issued_order *order) {
    if (log->short_of_memory) return mm_fail(MM_ERR_NOMEM, "out of memory for the log of issued work");
    const mm_issued_plan plan = plan_of(log, p);
    MM_TRY(mm_issued_check(&plan, log->entries, log->n, order));
    log->verified += p->program->n;
    return MM_OK;
}

mm_status mm_issue_log_end(mm_issue_log *log, const mm_execution *p, bool captured) {
    if (!log) return MM_OK;
    mm_issued_order copy = {0};
    pthread_mutex_lock(&log->lock);
    mm_status status = captured ? mm_issued_order_copy(&log->order, &copy) : MM_OK;
    if (status == MM_OK) status = check(log, p, captured ? &copy : &log->order);
    log->n = 0;
    log->in_iteration = false;
    pthread_mutex_unlock(&log->lock);
    if (status != MM_OK) mm_failure_save(&log->differs, status);
    mm_issued_order_fini(&copy);
    return status;
}

mm_status mm_issue_log_replay(mm_issue_log *log, const mm_execution *p) {
    if (!log) return MM_OK;
    const mm_issued_plan plan = plan_of(log, p);
    MM_TRY(mm_failure_restore(&log->differs));
    MM_TRY(follow(log));
    pthread_mutex_lock(&log->lock);
    const mm_status status = mm_issued_replay(&plan, &log->order);
    if (status == MM_OK) log->verified += p->program->n;
    if (status != MM_OK) mm_failure_save(&log->differs, status);
    pthread_mutex_unlock(&log->lock);
    return status;
}

void mm_issue_log_drop(mm_issue_log *log) {
    if (!log) return;
    pthread_mutex_lock(&log->lock);
    log->n = 0;
    log->in_iteration = log->short_of_memory = false;
    mm_issued_order_fini(&log->order);
    pthread_mutex_unlock(&log->lock);
}

int64_t mm_issue_log_verified(mm_issue_log *log) {
    if (!log) return 0;
    pthread_mutex_lock(&log->lock);
    const int64_t verified = log->verified;
    pthread_mutex_unlock(&log->lock);
    return verified;
}
