#include "pipeline/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/internal.h"

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---------------------------------------------------------------- failures and progress */

/* Keeps the first failure with its message, and wakes whoever waits for progress. */
static void fail_iteration(mm_dispatch *d, mm_status status) {
    pthread_mutex_lock(&d->lock);
    if (d->failed == MM_OK) {
        d->failed = status;
        strncpy(d->message, mm_last_error(), sizeof d->message - 1);
    }
    pthread_cond_broadcast(&d->progress);
    pthread_mutex_unlock(&d->lock);
    mm_unplanned_stop(d->program);
}

/* The iteration's failure, told once more to this thread. Called under the lock. */
static mm_status tell_failure(mm_dispatch *d) {
    if (d->failed == MM_OK) return MM_OK;
    return mm_fail(d->failed, "%s", d->message);
}

mm_status mm_dispatch_failure(mm_dispatch *d) {
    pthread_mutex_lock(&d->lock);
    mm_status status = tell_failure(d);
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* Blocks until operation `seq` of a stream has been issued, or the iteration has failed. */
static mm_status wait_issued(mm_dispatch *d, mm_stream_id stream, int32_t seq, bool training_thread) {
    pthread_mutex_lock(&d->lock);
    if (d->issued[stream] < seq && d->failed == MM_OK) {
        int64_t start = now_ns();
        while (d->issued[stream] < seq && d->failed == MM_OK) pthread_cond_wait(&d->progress, &d->lock);
        if (training_thread) d->waited_ns += now_ns() - start;
    }
    mm_status status = tell_failure(d);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static bool has_failed(mm_dispatch *d) {
    pthread_mutex_lock(&d->lock);
    bool failed = d->failed != MM_OK;
    pthread_mutex_unlock(&d->lock);
    return failed;
}

static void mark_issued(mm_dispatch *d, const mm_node *node) {
    pthread_mutex_lock(&d->lock);
    d->issued[node->stream] = node->seq;
    pthread_cond_broadcast(&d->progress);
    pthread_mutex_unlock(&d->lock);
}

/* ---------------------------------------------------------------- operations */

/* Makes a node's stream wait for what the node waits for, each event once. */
static mm_status enqueue_waits(mm_dispatch *d, const mm_node *node) {
    int32_t *joined = d->joined[node->stream];
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (node->wait[s] <= joined[s]) continue;
        if (s != MM_STREAM_COMPUTE) MM_TRY(wait_issued(d, s, node->wait[s], node->stream == MM_STREAM_COMPUTE));
        int awaited = d->program->node_of_seq[s][node->wait[s]];
        MM_TRY(mm_stream_wait(mm_dispatch_stream(d, node), d->program->events[awaited]));
        joined[s] = node->wait[s];
    }
    return MM_OK;
}

static mm_shape tensor_shape(const mm_graph *graph, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(graph, tensor);
    mm_shape shape = {.dtype = info->dtype, .rank = info->rank};
    memcpy(shape.dims, info->dims, sizeof shape.dims);
    return shape;
}

static void *address_or_null(mm_dispatch *d, int segment) {
    return segment < 0 ? NULL : mm_dispatch_address(d, segment);
}

static mm_status enqueue_encode(mm_dispatch *d, const mm_node *node, mm_stream *stream) {
    const mm_plan *plan = d->program->plan;
    const mm_segment *dst = &plan->segments[node->dst];
    mm_shape shape = tensor_shape(plan->graph, node->tensor);
    void *code = mm_dispatch_address(d, node->dst);
    void *target = node->stage >= 0 ? mm_dispatch_address(d, node->stage) : code;
    MM_TRY(mm_codec_encode(d->program->codecs[dst->codec], stream, &shape, mm_dispatch_address(d, node->src), target,
                           address_or_null(d, node->work), d->counters));
    if (target != code) MM_TRY(mm_copy_async(stream, code, target, dst->bytes, MM_COPY_DEVICE));
    pthread_mutex_lock(&d->lock);
    d->stats.encodes++;
    d->stats.encoded_bytes += mm_graph_tensor(plan->graph, node->tensor)->bytes;
    d->stats.coded_bytes += dst->bytes;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

static mm_status enqueue_decode(mm_dispatch *d, const mm_node *node, mm_stream *stream) {
    const mm_plan *plan = d->program->plan;
    mm_shape shape = tensor_shape(plan->graph, node->tensor);
    int codec = plan->segments[node->src].codec;
    MM_TRY(mm_codec_decode(d->program->codecs[codec], stream, &shape, mm_dispatch_address(d, node->src),
                           mm_dispatch_address(d, node->dst), address_or_null(d, node->work), d->counters));
    pthread_mutex_lock(&d->lock);
    d->stats.decodes++;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

/* Offload and prefetch. */
static mm_status enqueue_copy(mm_dispatch *d, const mm_node *node, mm_stream *stream) {
    const mm_plan *plan = d->program->plan;
    bool out = node->kind == MM_NODE_OUT;
    int64_t bytes = plan->segments[node->dst].bytes;
    MM_TRY(mm_copy_async(stream, mm_dispatch_address(d, node->dst), mm_dispatch_address(d, node->src), bytes,
                         out ? MM_COPY_OUT : MM_COPY_IN));
    pthread_mutex_lock(&d->lock);
    *(out ? &d->stats.out_bytes : &d->stats.in_bytes) += bytes;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

static mm_status enqueue_op(mm_dispatch *d, const mm_node *node, mm_stream *stream) {
    switch (node->kind) {
    case MM_NODE_ENCODE:
        return enqueue_encode(d, node, stream);
    case MM_NODE_DECODE:
        return enqueue_decode(d, node, stream);
    default:
        return enqueue_copy(d, node, stream);
    }
}

static mm_status record(mm_dispatch *d, int index, mm_stream *stream) {
    mm_event *event = d->program->events[index];
    return event ? mm_event_record(event, stream) : MM_OK;
}

static mm_status issue(mm_dispatch *d, int index) {
    mm_program *p = d->program;
    const mm_node *node = &p->plan->nodes[index];
    mm_stream *stream = mm_dispatch_stream(d, node);
    MM_TRY(enqueue_waits(d, node));
    MM_TRY(mm_unplanned_take(p, index));
    MM_TRY(mm_self_check_before(p, index));
    MM_TRY(enqueue_op(d, node, stream));
    MM_TRY(mm_self_check_after(p, index));
    MM_TRY(record(d, index, stream));
    /* The unoptimised workflow frees after each operation, so it waits for it, as cudaFree would. */
    if (mm_unplanned_uses(p, index)) MM_TRY(mm_event_sync(p->events[index]));
    mm_unplanned_give(p, index);
    return MM_OK;
}

/* A worker's job. After a failure the remaining ones are passed over. */
static void run_job(void *ctx, int32_t index) {
    mm_dispatch *d = ctx;
    if (has_failed(d)) return;
    const mm_node *node = &d->program->plan->nodes[index];
    mm_status status = issue(d, index);
    if (status == MM_OK) {
        mark_issued(d, node);
        return;
    }
    mm_fail_prefix("%s of %s", mm_stream_id_name(node->stream),
                   mm_graph_tensor(d->program->plan->graph, node->tensor)->name);
    fail_iteration(d, status);
}

/* ---------------------------------------------------------------- steps */

/* The caller computes inline: blocks until what the node waits for has happened. */
static mm_status await_inputs(mm_dispatch *d, const mm_node *node) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (s == MM_STREAM_COMPUTE || node->wait[s] < 0) continue;
        MM_TRY(wait_issued(d, s, node->wait[s], true));
        mm_event *event = d->program->events[d->program->node_of_seq[s][node->wait[s]]];
        int64_t start = mm_event_done(event) ? 0 : now_ns();
        MM_TRY(mm_event_sync(event));
        if (start) d->waited_ns += now_ns() - start;
    }
    /* Steps that ran on the stream before, or poison that was put there. */
    return d->inline_compute && !d->config.self_check ? MM_OK : mm_stream_sync(d->compute);
}

mm_status mm_dispatch_step_begin(mm_dispatch *d, int index, mm_stream *stream, int64_t *waited_ns_out) {
    const mm_node *node = &d->program->plan->nodes[index];
    if (stream && stream != d->compute)
        return mm_fail(MM_ERR_INVALID, "the stream is not this manager's compute stream (mm_compute_stream)");
    d->waited_ns = 0;
    MM_TRY(mm_unplanned_take(d->program, index));
    MM_TRY(stream ? enqueue_waits(d, node) : await_inputs(d, node));
    d->inline_compute = stream == NULL;
    if (d->waited_ns > 0) {
        pthread_mutex_lock(&d->lock);
        d->stats.host_waits++;
        d->stats.host_wait_ns += d->waited_ns;
        pthread_mutex_unlock(&d->lock);
    }
    *waited_ns_out = d->waited_ns;
    return MM_OK;
}

mm_status mm_dispatch_step_end(mm_dispatch *d, int index) {
    mm_program *p = d->program;
    MM_TRY(mm_self_check_after(p, index));
    MM_TRY(record(d, index, d->compute));
    mm_unplanned_give(p, index);
    for (int i = index + 1; i < p->plan->n_nodes && mm_node_is_op(&p->plan->nodes[i]); i++)
        mm_worker_push(d->worker[p->plan->nodes[i].stream], i);
    return MM_OK;
}

/* ---------------------------------------------------------------- iterations */

mm_status mm_dispatch_begin(mm_dispatch *d, mm_program *program) {
    static const char *const names[MM_STREAM_COUNT] = {"", "mm-encode", "mm-decode", "mm-out", "mm-in"};
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++) {
        int jobs = program->plan->stream_nodes[s];
        if (jobs == 0) continue;
        if (!d->worker[s]) {
            bool threaded = d->config.issue == MM_ISSUE_THREAD;
            mm_worker *worker;
            MM_TRY(mm_worker_create(d->config.device, names[s], threaded, run_job, d, &worker));
            pthread_mutex_lock(&d->lock); /* mm_dispatch_stats_get looks for it from any thread */
            d->worker[s] = worker;
            pthread_mutex_unlock(&d->lock);
        }
        MM_TRY(mm_worker_reserve(d->worker[s], jobs));
    }
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        d->issued[s] = -1;
        for (int t = 0; t < MM_STREAM_COUNT; t++) d->joined[s][t] = -1;
    }
    d->failed = MM_OK;
    d->inline_compute = false;
    d->program = program;
    return MM_OK;
}

/* NULL for a side stream that no program has used yet. */
static mm_stream *stream_of(const mm_dispatch *d, int s) {
    if (s == MM_STREAM_COMPUTE) return d->compute;
    return d->worker[s] ? mm_worker_stream(d->worker[s]) : NULL;
}

/* Waits for every stream; the first failure of any. Streams are made usable again. */
static mm_status drain(mm_dispatch *d) {
    mm_status status = MM_OK;
    char message[sizeof d->message] = "";
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        mm_stream *stream = stream_of(d, s);
        if (!stream) continue;
        mm_status one = mm_stream_sync(stream);
        if (one != MM_OK && status == MM_OK) {
            status = one;
            strncpy(message, mm_last_error(), sizeof message - 1);
        }
    }
    for (int s = 0; status != MM_OK && s < MM_STREAM_COUNT; s++) {
        mm_stream *stream = stream_of(d, s);
        if (stream) mm_stream_reset(stream);
    }
    return status == MM_OK ? MM_OK : mm_fail(status, "%s", message);
}

mm_status mm_dispatch_end(mm_dispatch *d) {
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (d->worker[s]) mm_worker_drain(d->worker[s]);
    mm_status status = drain(d);
    pthread_mutex_lock(&d->lock);
    if (d->failed != MM_OK) status = tell_failure(d);
    pthread_mutex_unlock(&d->lock);
    if (status == MM_OK) status = mm_self_check_end(d->program);
    if (status == MM_OK) mm_program_measure(d->program);
    mm_unplanned_reset(d->program);
    d->program = NULL;
    return status;
}

void mm_dispatch_abort(mm_dispatch *d) {
    if (!d->program) return;
    /* The caller's reason to abort stays its last error. */
    char reason[sizeof d->message];
    snprintf(reason, sizeof reason, "%s", mm_last_error());
    /* Whoever waits for an operation that is dropped here must not wait for ever. */
    mm_fail_set("the iteration was aborted");
    fail_iteration(d, MM_ERR_ORDER);
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (d->worker[s]) mm_worker_cancel(d->worker[s]);
    mm_status drained = drain(d);
    (void)drained; /* given up anyway */
    mm_fail_set("%s", reason);
    mm_unplanned_reset(d->program);
    d->program = NULL;
}

void *mm_dispatch_address(mm_dispatch *d, int segment) {
    const mm_segment *s = &d->program->plan->segments[segment];
    if (!s->dynamic) return (s->pinned ? d->staging : d->base) + s->offset;
    mm_unplanned *u = &d->program->unplanned;
    pthread_mutex_lock(&u->lock);
    void *address = u->address[segment];
    pthread_mutex_unlock(&u->lock);
    return address;
}

/* ---------------------------------------------------------------- life */

mm_status mm_dispatch_create(const mm_dispatch_config *config, mm_dispatch **dispatch_out) {
    mm_dispatch *d = calloc(1, sizeof *d);
    if (!d) return mm_fail(MM_ERR_NOMEM, "out of memory for a dispatcher");
    d->config = *config;
    d->base = mm_pool_base(config->pool);
    if (config->staging) d->staging = mm_pool_base(config->staging);
    void *counters;
    mm_status status = mm_device_reserve(config->device, MM_MEMORY_PINNED, sizeof *d->counters, &counters);
    if (status != MM_OK) goto err_free;
    d->counters = counters;
    *d->counters = (mm_codec_counters){0};
    status = mm_stream_create(config->device, "mm-compute", -1, &d->compute);
    if (status != MM_OK) goto err_release;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->progress, NULL);
    *dispatch_out = d;
    return MM_OK;
err_release:
    mm_device_release(config->device, MM_MEMORY_PINNED, d->counters, sizeof *d->counters);
err_free:
    free(d);
    return status;
}

void mm_dispatch_destroy(mm_dispatch *d) {
    if (!d) return;
    mm_dispatch_abort(d);
    for (int s = 0; s < MM_STREAM_COUNT; s++) mm_worker_destroy(d->worker[s]);
    mm_stream_destroy(d->compute);
    mm_device_release(d->config.device, MM_MEMORY_PINNED, d->counters, sizeof *d->counters);
    pthread_cond_destroy(&d->progress);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

mm_stream *mm_dispatch_compute(const mm_dispatch *d) { return d->compute; }

void mm_dispatch_stats_get(mm_dispatch *d, mm_dispatch_stats *stats_out) {
    mm_stream *streams[MM_STREAM_COUNT];
    pthread_mutex_lock(&d->lock);
    *stats_out = d->stats;
    for (int s = 0; s < MM_STREAM_COUNT; s++) streams[s] = stream_of(d, s);
    pthread_mutex_unlock(&d->lock);
    stats_out->nonfinite_blocks = atomic_load(&d->counters->nonfinite_blocks);
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (streams[s]) mm_stream_stats_get(streams[s], &stats_out->stream[s]);
}
