/* SPDX-License-Identifier: MIT */
#include "pipeline/dispatch.h"

#include <stdlib.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/device/contract/clock.h"
#include "mm/device/trace.h"
#include "pipeline/allreduce.h"
#include "pipeline/capture.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/operation.h"
#include "pipeline/running.h"
#include "pipeline/runtime_alloc.h"
#include "pipeline/self_check.h"
#include "pipeline/tracing.h"
#include "pipeline/variable_codes.h"

/* ---------------------------------------------------------------- failures and progress */

/* Keeps the first failure, and wakes threads that wait for progress. */
static void fail_iteration(mm_dispatch *d, mm_status status) {
    pthread_mutex_lock(&d->lock);
    if (d->failure.status == MM_OK) mm_failure_save(&d->failure, status);
    pthread_cond_broadcast(&d->progress);
    pthread_mutex_unlock(&d->lock);
    mm_runtime_alloc_stop(d->execution);
}

/* Blocks until piece `seq` of a stream has been issued, or the iteration has failed. */
static mm_status wait_issued(mm_dispatch *d, mm_stream_id stream, int32_t seq, bool training_thread) {
    pthread_mutex_lock(&d->lock);
    if (d->issued[stream] < seq && d->failure.status == MM_OK) {
        int64_t start = mm_now_ns();
        while (d->issued[stream] < seq && d->failure.status == MM_OK) pthread_cond_wait(&d->progress, &d->lock);
        if (training_thread) d->waited_ns += mm_now_ns() - start;
    }
    mm_status status = mm_failure_restore(&d->failure);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static bool has_failed(mm_dispatch *d) {
    pthread_mutex_lock(&d->lock);
    bool failed = d->failure.status != MM_OK;
    pthread_mutex_unlock(&d->lock);
    return failed;
}

static void mark_issued(mm_dispatch *d, const mm_piece *piece) {
    pthread_mutex_lock(&d->lock);
    d->issued[piece->stream] = piece->seq;
    pthread_cond_broadcast(&d->progress);
    pthread_mutex_unlock(&d->lock);
}

/* ---------------------------------------------------------------- operations */

/* Makes the piece's stream wait for the pieces that it needs, for each event at most once. */
static mm_status enqueue_waits(mm_dispatch *d, const mm_piece *piece) {
    mm_execution *p = d->execution;
    int32_t *joined = d->joined[piece->stream];
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (piece->wait[s] <= joined[s]) continue;
        if (s != MM_STREAM_COMPUTE) MM_TRY(wait_issued(d, s, piece->wait[s], piece->stream == MM_STREAM_COMPUTE));
        mm_event *event = p->events[p->program->at[s][piece->wait[s]]];
        MM_TRY(mm_stream_wait(mm_dispatch_stream(d, &p->plan->nodes[piece->node]), event));
        joined[s] = piece->wait[s];
    }
    return MM_OK;
}

static mm_status record(mm_dispatch *d, int piece, mm_stream *stream) {
    mm_event *event = d->execution->events[piece];
    return event ? mm_event_record(event, stream) : MM_OK;
}

static mm_status issue(mm_dispatch *d, int index) {
    mm_execution *p = d->execution;
    const mm_piece *piece = &p->program->pieces[index];
    int node = piece->node;
    mm_stream *stream = mm_dispatch_stream(d, &p->plan->nodes[node]);
    MM_TRY(enqueue_waits(d, piece));
    const bool is_first = mm_piece_is_first(p->program, piece);
    if (is_first) MM_TRY(mm_runtime_alloc_take(p, node));
    MM_TRY(mm_traced_piece(p, index, stream));
    if (is_first) MM_TRY(mm_self_check_before(p, node));
    mm_issue_log_piece_begin(d->log, index, false);
    MM_TRY(mm_operation_enqueue(d, piece, stream));
    mm_issue_log_piece_end(d->log, index);
    if (mm_piece_is_last(p->program, piece)) MM_TRY(mm_self_check_after(p, node));
    MM_TRY(record(d, index, stream));
    /* The unoptimised workflow frees after each operation, so it waits for the operation, as cudaFree would. */
    if (mm_runtime_alloc_uses(p, node)) MM_TRY(mm_event_sync(p->events[index]));
    if (mm_piece_is_last(p->program, piece)) mm_runtime_alloc_give(p, node);
    return MM_OK;
}

/* A worker's job: issues a piece. After a failure it does nothing. */
static void run_job(void *ctx, int32_t index) {
    mm_dispatch *d = ctx;
    if (has_failed(d)) return;
    const mm_piece *piece = &d->execution->program->pieces[index];
    mm_status status = issue(d, index);
    if (status == MM_OK) {
        mark_issued(d, piece);
        return;
    }
    const mm_plan *plan = d->execution->plan;
    mm_fail_prefix("%s of %s", mm_stream_id_name(piece->stream),
                   mm_graph_tensor(plan->graph, plan->nodes[piece->node].tensor)->name);
    fail_iteration(d, status);
}

/* ---------------------------------------------------------------- steps */

/* The one piece of a step. */
static int piece_of_step(const mm_dispatch *d, int node) { return mm_program_piece(d->execution->program, node, 0); }

/* For a caller that computes inline: blocks until the pieces that the step needs have ended. */
static mm_status await_inputs(mm_dispatch *d, const mm_piece *piece) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (s == MM_STREAM_COMPUTE || piece->wait[s] < 0) continue;
        MM_TRY(wait_issued(d, s, piece->wait[s], true));
        mm_event *event = d->execution->events[d->execution->program->at[s][piece->wait[s]]];
        int64_t start = mm_event_done(event) ? 0 : mm_now_ns();
        MM_TRY(mm_event_sync(event));
        if (start) d->waited_ns += mm_now_ns() - start;
    }
    /* Waits for earlier steps on the stream, and for the self-check's fills there. */
    return d->inline_compute && !d->config.self_check ? MM_OK : mm_stream_sync(d->compute);
}

static void trace_step(mm_dispatch *d, int node) {
    const mm_graph *graph = d->execution->plan->graph;
    const mm_step_info *step = mm_graph_step(graph, d->execution->plan->nodes[node].step);
    mm_trace_push(mm_phase_name(step->phase), mm_graph_layer(graph, step->layer)->name);
    d->in_step = true;
}

static void trace_step_end(mm_dispatch *d) {
    if (d->in_step) mm_trace_pop();
    d->in_step = false;
}

mm_status mm_dispatch_step_begin(mm_dispatch *d, int node, mm_stream *stream, int64_t *waited_ns_out) {
    const int index = piece_of_step(d, node);
    const mm_piece *piece = &d->execution->program->pieces[index];
    if (stream && stream != d->compute)
        return mm_fail(MM_ERR_INVALID, "the stream is not this manager's compute stream (mm_compute_stream)");
    if (stream) MM_TRY(mm_stream_check(stream));
    if (stream) stream = mm_dispatch_stream(d, &d->execution->plan->nodes[node]);
    d->waited_ns = 0;
    if (piece->seq == 0 && piece->stream == MM_STREAM_COMPUTE && d->execution->begin)
        MM_TRY(mm_event_record(d->execution->begin, d->compute));
    MM_TRY(mm_runtime_alloc_take(d->execution, node));
    MM_TRY(stream ? enqueue_waits(d, piece) : await_inputs(d, piece));
    MM_TRY(mm_allreduce_step_begin(d, node, stream));
    d->inline_compute = stream == NULL;
    if (d->waited_ns > 0) {
        pthread_mutex_lock(&d->lock);
        d->stats.host_waits++;
        *(stream ? &d->stats.issue_wait_ns : &d->stats.data_wait_ns) += d->waited_ns;
        pthread_mutex_unlock(&d->lock);
    }
    *waited_ns_out = d->waited_ns;
    trace_step(d, node);
    MM_TRY(mm_traced_piece(d->execution, index, stream));
    mm_issue_log_piece_begin(d->log, index, stream == NULL);
    return MM_OK;
}

/* Counts the codes that the step has read and written by itself. */
static void count_codes(mm_dispatch *d, int node) {
    const mm_plan *plan = d->execution->plan;
    const mm_node *n = &plan->nodes[node];
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    if (!d->execution->strips) return;
    pthread_mutex_lock(&d->lock);
    for (int u = 0; u < step->n_uses; u++) {
        const int32_t read = plan->bindings[n->first_binding + u], written = mm_node_code(plan, n, u);
        d->stats.decodes += read >= 0 && mm_use_is_coded(&step->uses[u], &plan->segments[read]);
        if (written < 0) continue;
        d->stats.encodes++;
        d->stats.encoded_bytes += mm_graph_tensor(plan->graph, plan->segments[written].tensor)->bytes;
        d->stats.coded_bytes += plan->segments[written].bytes;
    }
    pthread_mutex_unlock(&d->lock);
}

mm_codec_counters *mm_dispatch_counters(const mm_dispatch *d) { return d->counters; }

mm_status mm_dispatch_step_end(mm_dispatch *d, int node) {
    mm_execution *p = d->execution;
    int index = piece_of_step(d, node);
    trace_step_end(d);
    mm_traced_step_end(p, index);
    MM_TRY(mm_self_check_after(p, node));
    mm_issue_log_piece_end(d->log, index);
    MM_TRY(record(d, index, mm_dispatch_stream(d, &p->plan->nodes[node])));
    if (mm_node_on_host(&p->plan->nodes[node])) mark_issued(d, &p->program->pieces[index]);
    MM_TRY(mm_allreduce_step_end(d, node));
    mm_runtime_alloc_give(p, node);
    count_codes(d, node);
    for (int i = index + 1; i < p->program->n && !mm_node_runs_step(&p->plan->nodes[p->program->pieces[i].node]); i++)
        mm_worker_push(d->worker[p->program->pieces[i].stream], i);
    return MM_OK;
}

/* ---------------------------------------------------------------- iterations */

mm_status mm_dispatch_begin(mm_dispatch *d, mm_execution *execution) {
    MM_TRY(mm_traced_begin(execution));
#define NAME(name, word) "mm-" word,
    static const char *const names[] = {MM_STREAMS(NAME)};
#undef NAME
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++) {
        int jobs = execution->program->count[s];
        if (jobs == 0) continue;
        if (!d->worker[s]) {
            const bool threaded = d->config.issue == MM_ISSUE_THREAD && s != MM_STREAM_HOST; /* the caller issues */
            mm_worker *worker;
            MM_TRY(mm_worker_create(d->config.device, names[s], threaded, run_job, d, &worker));
            pthread_mutex_lock(&d->lock); /* mm_dispatch_stats_get reads it from any thread */
            d->worker[s] = worker;
            pthread_mutex_unlock(&d->lock);
        }
        MM_TRY(mm_worker_reserve(d->worker[s], jobs));
    }
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        d->issued[s] = -1;
        for (int t = 0; t < MM_STREAM_COUNT; t++) d->joined[s][t] = -1;
    }
    if (d->ahead) MM_TRY(mm_event_record(d->behind, d->compute));
    MM_TRY(mm_issue_log_begin(d->log));
    d->failure.status = MM_OK;
    d->inline_compute = d->rehearsed = false;
    d->execution = execution;
    return MM_OK;
}

mm_status mm_dispatch_rehearse(mm_dispatch *d, mm_execution *execution) {
    mm_status status = mm_dispatch_begin(d, execution);
    d->rehearsed = true;
    return status;
}

/* The stream of that number; NULL: a side stream that no program has used yet. */
static mm_stream *stream_of(const mm_dispatch *d, int s) {
    if (s == MM_STREAM_COMPUTE) return d->compute;
    return d->worker[s] ? mm_worker_stream(d->worker[s]) : NULL;
}

/* The same as stream_of, but s = MM_STREAM_COUNT is the stream of all-reduces in place. */
static mm_stream *any_stream_of(const mm_dispatch *d, int s) {
    return s == MM_STREAM_COUNT ? d->sums : stream_of(d, s);
}

/* Returns MM_ERR_FORMAT if damaged codes were decoded since the last call. Only devices whose tasks cannot fail count
 * damaged codes; on others the decode itself fails. */
static mm_status check_codes(mm_dispatch *d) {
    const int64_t all = atomic_load(&d->counters->damaged_chunks), damaged = all - d->damaged_chunks;
    d->damaged_chunks = all;
    if (damaged == 0) return MM_OK;
    return damaged == 1
               ? mm_fail(MM_ERR_FORMAT, "1 chunk of codes was damaged when it was decoded")
               : mm_fail(MM_ERR_FORMAT, "%lld chunks of codes were damaged when they were decoded", (long long)damaged);
}

/* Waits for all streams, and resets them if one has failed. Returns the first failure: d->ahead_failure, or else a
 * stream's. */
static mm_status drain(mm_dispatch *d) {
    mm_failure first = d->ahead_failure;
    d->ahead_failure.status = MM_OK;
    d->ahead = false;
    for (int s = 0; s <= MM_STREAM_COUNT; s++) {
        mm_stream *stream = any_stream_of(d, s);
        if (!stream) continue;
        mm_status one = mm_stream_sync(stream);
        if (first.status == MM_OK) mm_failure_save(&first, one);
    }
    for (int s = 0; first.status != MM_OK && s <= MM_STREAM_COUNT; s++) {
        mm_stream *stream = any_stream_of(d, s);
        if (stream) mm_stream_reset(stream);
    }
    const mm_status codes = check_codes(d);
    if (first.status == MM_OK) mm_failure_save(&first, codes);
    mm_traced_collect(d);
    return mm_failure_restore(&first);
}

/* Waits as drain does, for an iteration that has failed or is aborted. The iteration's own failure is dropped: the
 * caller knows it already. The failure of earlier iterations that were left running stays in d->ahead_failure. */
static void drain_lost(mm_dispatch *d) {
    mm_failure ahead = d->ahead_failure;
    if (d->ahead && ahead.status == MM_OK) mm_failure_save(&ahead, mm_event_sync(d->behind));
    /* Damaged codes are only counted, and may belong to an iteration that was left running. */
    if (d->ahead && ahead.status == MM_OK) mm_failure_save(&ahead, check_codes(d));
    mm_status drained = drain(d);
    (void)drained;
    d->ahead_failure = ahead;
}

static void add_ns(mm_dispatch *d, int64_t *figure, int64_t ns) {
    pthread_mutex_lock(&d->lock);
    *figure += ns;
    pthread_mutex_unlock(&d->lock);
}

/* Blocks until all operations have been issued. */
static void drain_workers(mm_dispatch *d) {
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (d->worker[s]) mm_worker_drain(d->worker[s]);
}

mm_status mm_dispatch_end(mm_dispatch *d) {
    int64_t start = mm_now_ns();
    drain_workers(d);
    mm_status status = MM_OK;
    if (has_failed(d)) {
        drain_lost(d);
        status = mm_dispatch_failure(d);
    } else
        status = drain(d);
    add_ns(d, &d->stats.end_wait_ns, mm_now_ns() - start);
    if (status == MM_OK) status = mm_self_check_end(d->execution);
    if (status == MM_OK) status = mm_issue_log_end(d->log, d->execution, false);
    if (status != MM_OK) mm_issue_log_drop(d->log);
    if (status == MM_OK) add_ns(d, &d->stats.codec_wait_ns, mm_execution_measure(d->execution));
    if (status == MM_OK) mm_traced_end(d->execution);
    mm_traced_collect(d);
    mm_runtime_alloc_reset(d->execution);
    d->execution = NULL;
    return status;
}

/* Makes the compute stream wait for the program's side streams. The side streams need not wait for the compute stream:
 * in the next iteration, each operation comes after a step of that iteration. */
static mm_status join_streams(mm_dispatch *d) {
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++) {
        if (d->execution->plan->stream_nodes[s] == 0) continue;
        MM_TRY(mm_event_record(d->join[s], mm_worker_stream(d->worker[s])));
        MM_TRY(mm_stream_wait(d->compute, d->join[s]));
    }
    return MM_OK;
}

mm_status mm_dispatch_end_async(mm_dispatch *d) {
    const mm_execution *p = d->execution;
    if (p->has_unplanned || p->total_ns || d->config.self_check) return mm_dispatch_end(d);
    int64_t start = mm_now_ns();
    drain_workers(d);
    add_ns(d, &d->stats.end_wait_ns, mm_now_ns() - start);
    mm_status status = mm_dispatch_failure(d);
    if (status == MM_OK) status = join_streams(d);
    if (status == MM_OK) status = mm_issue_log_end(d->log, p, false);
    if (status != MM_OK) fail_iteration(d, status);
    if (status != MM_OK) return mm_dispatch_end(d);
    mm_traced_end(d->execution);
    d->ahead = true;
    d->execution = NULL;
    return MM_OK;
}

mm_status mm_dispatch_sync(mm_dispatch *d) { return d->ahead || d->ahead_failure.status != MM_OK ? drain(d) : MM_OK; }

bool mm_dispatch_owes_failure(const mm_dispatch *d) { return d->ahead_failure.status != MM_OK; }

void mm_dispatch_abort(mm_dispatch *d) {
    if (!d->execution) return;
    trace_step_end(d);
    /* Saves mm_last_error: it may say why the caller aborts. */
    mm_failure reason;
    mm_failure_save(&reason, MM_ERR_ORDER);
    /* Wakes threads that wait for an operation which is dropped here. */
    mm_fail_set("the iteration was aborted");
    fail_iteration(d, MM_ERR_ORDER);
    mm_record_abort(d);
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (d->worker[s]) mm_worker_cancel(d->worker[s]);
    drain_lost(d);
    mm_issue_log_drop(d->log);
    mm_failure_restore(&reason);
    mm_runtime_alloc_reset(d->execution);
    d->execution = NULL;
}

/* ---------------------------------------------------------------- life */

/* Reserved memory is zero, so the counters begin at 0. */
static mm_status create_counters(mm_dispatch *d) {
    void *counters;
    MM_TRY(mm_device_reserve(d->config.device, MM_MEMORY_PINNED, sizeof *d->counters, &counters));
    d->counters = counters;
    return MM_OK;
}

mm_status mm_dispatch_create(const mm_dispatch_config *config, mm_dispatch **dispatch_out) {
    mm_dispatch *d = calloc(1, sizeof *d);
    if (!d) return mm_fail(MM_ERR_NOMEM, "out of memory for a dispatcher");
    d->config = *config;
    d->base = mm_pool_base(config->pool);
    if (config->pinned) d->pinned = mm_pool_base(config->pinned);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->progress, NULL);
    mm_status status = create_counters(d);
    if (status == MM_OK)
        status = mm_stream_create(config->device, "mm-compute", config->equal_streams ? 0 : -1, &d->compute);
    if (status == MM_OK) status = mm_event_create(config->device, &d->behind);
    if (status == MM_OK && config->verify_issued) status = mm_issue_log_create(d, &d->log);
    for (int s = MM_STREAM_COMPUTE + 1; status == MM_OK && s < MM_STREAM_COUNT; s++)
        status = mm_event_create(config->device, &d->join[s]);
    if (status != MM_OK) {
        mm_dispatch_destroy(d);
        return status;
    }
    *dispatch_out = d;
    return MM_OK;
}

void mm_dispatch_destroy(mm_dispatch *d) {
    if (!d) return;
    mm_dispatch_abort(d);
    for (int s = 0; s < MM_STREAM_COUNT; s++) mm_worker_destroy(d->worker[s]);
    mm_stream_destroy(d->sums);
    mm_event_destroy(d->ready);
    mm_event_destroy(d->summed);
    mm_stream_destroy(d->compute);
    mm_issue_log_destroy(d->log);
    mm_event_destroy(d->behind);
    for (int s = 0; s < MM_STREAM_COUNT; s++) mm_event_destroy(d->join[s]);
    mm_device_release(d->config.device, MM_MEMORY_PINNED, d->counters, sizeof *d->counters);
    pthread_cond_destroy(&d->progress);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

mm_stream *mm_dispatch_compute(const mm_dispatch *d) { return d->compute; }

mm_stream *mm_dispatch_host(const mm_dispatch *d) { return mm_worker_stream(d->worker[MM_STREAM_HOST]); }

void mm_dispatch_stats_get(mm_dispatch *d, mm_dispatch_stats *stats_out) {
    mm_stream *streams[MM_STREAM_COUNT];
    pthread_mutex_lock(&d->lock);
    *stats_out = d->stats;
    mm_variable_codes_add(d, stats_out);
    for (int s = 0; s < MM_STREAM_COUNT; s++) streams[s] = stream_of(d, s);
    pthread_mutex_unlock(&d->lock);
    stats_out->verified = mm_issue_log_verified(d->log);
    stats_out->nonfinite_blocks = atomic_load(&d->counters->nonfinite_blocks);
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (streams[s]) mm_stream_stats_get(streams[s], &stats_out->stream[s]);
}
