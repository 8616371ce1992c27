/* SPDX-License-Identifier: MIT */
/* Captures and graphs. A graph runs its tasks in the order in which they were enqueued, on one stream: this is less
 * parallel than CUDA's graphs, never less ordered. What CUDA refuses is refused: see each error. */
#include <stdlib.h>

#include "tests/cuda_emulation/runtime.h"

/* A graph; its executables share it. */
struct CUgraph_st {
    int references, device;
    task *head, *tail;
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
    unsigned long long flags;
};

/* The capture that this thread began in a mode that forbids what may synchronise: its number and its stream. */
static _Thread_local struct {
    long number;
    capture *of;
} own;

static void graph_release_locked(struct CUgraph_st *graph) {
    if (--graph->references > 0) return;
    for (task *t = graph->head, *next; t; t = next) {
        next = t->next;
        task_destroy(t);
    }
    free(graph);
}

void capture_invalidate(capture *of) { of->invalid = true; }

cudaError_t capture_refuse_unsafe(void) {
    if (!own.number) return cudaSuccess;
    pthread_mutex_lock(&runtime.lock);
    capture_invalidate(own.of);
    pthread_mutex_unlock(&runtime.lock);
    return cudaErrorStreamCaptureUnsupported;
}

/* ---------------------------------------------------------------- while a stream is captured */

void capture_add_node(cudaStream_t stream, task *t) {
    capture *of = stream->capture;
    of->clock[stream->place].nodes[stream->place]++;
    if (of->graph->tail)
        of->graph->tail->next = t;
    else
        of->graph->head = t;
    of->graph->tail = t;
}

void capture_record(cudaStream_t stream, cudaEvent_t event) {
    event->captured = stream->capture->number;
    event->clock = stream->capture->clock[stream->place];
}

static void clock_merge(capture_clock *into, const capture_clock *from) {
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        if (from->nodes[i] > into->nodes[i]) into->nodes[i] = from->nodes[i];
}

/* The running capture of that number, if the stream takes part in it or this thread began it. */
static capture *find_capture(cudaStream_t stream, long number) {
    if (stream->capture) return stream->capture->number == number ? stream->capture : NULL;
    return own.number == number ? own.of : NULL;
}

cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event) {
    if (!event->captured) { /* the event is recorded by uncaptured work */
        if (!event->last) return cudaSuccess;
        capture_invalidate(stream->capture);
        return cudaErrorStreamCaptureIsolation;
    }
    capture *of = find_capture(stream, event->captured);
    if (!of) {
        if (stream->capture) capture_invalidate(stream->capture);
        return stream->capture ? cudaErrorStreamCaptureMerge : cudaErrorCapturedEvent;
    }
    if (of->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!stream->capture) {
        if (of->streams == CAPTURE_STREAMS) return cudaErrorNotSupported;
        stream->capture = of;
        stream->place = of->streams;
        of->stream[of->streams++] = stream;
    }
    clock_merge(&of->clock[stream->place], &event->clock);
    return cudaSuccess;
}

/* ---------------------------------------------------------------- begin and end */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    ENTER(cudaStreamBeginCapture);
    /* Thread-local is the mode that is used: other threads' captures may be under way. */
    if (!stream || mode != cudaStreamCaptureModeThreadLocal || own.number) return runtime_failed(cudaErrorInvalidValue);
    ON(stream->device);
    capture *of = calloc(1, sizeof *of);
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (!of || !graph) {
        free(of);
        free(graph);
        return runtime_failed(cudaErrorMemoryAllocation);
    }
    pthread_mutex_lock(&runtime.lock);
    bool captured = stream->capture != NULL;
    if (!captured) {
        graph->references = 1;
        graph->device = stream->device;
        runtime.alive.graphs++;
        *of =
            (capture){.number = ++runtime.captures, .origin = stream, .streams = 1, .stream = {stream}, .graph = graph};
        stream->capture = of;
        stream->place = 0;
        own.number = of->number;
        own.of = of;
    }
    pthread_mutex_unlock(&runtime.lock);
    if (!captured) return cudaSuccess;
    free(of);
    free(graph);
    return runtime_failed(cudaErrorInvalidValue);
}

/* Every node of every stream must come before the origin's end. */
static bool joined(const capture *of) {
    const capture_clock *origin = &of->clock[0];
    for (int i = 0; i < of->streams; i++)
        if (of->clock[i].nodes[i] > origin->nodes[i]) return false;
    return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph_out) {
    cudaError_t error = runtime_enter(CALL_cudaStreamEndCapture);
    if (!stream) return runtime_failed(cudaErrorInvalidResourceHandle);
    if (error == cudaSuccess) error = runtime_on(stream->device);
    pthread_mutex_lock(&runtime.lock);
    capture *of = stream->capture;
    if (!of || of->origin != stream) {
        pthread_mutex_unlock(&runtime.lock);
        return runtime_failed(cudaErrorStreamCaptureUnmatched);
    }
    if (error == cudaSuccess && of->invalid) error = cudaErrorStreamCaptureInvalidated;
    if (error == cudaSuccess && !joined(of)) error = cudaErrorStreamCaptureUnjoined;
    for (int i = 0; i < of->streams; i++) of->stream[i]->capture = NULL;
    if (error == cudaSuccess)
        *graph_out = of->graph;
    else {
        graph_release_locked(of->graph);
        runtime.alive.graphs--;
    }
    own.number = 0;
    own.of = NULL;
    pthread_mutex_unlock(&runtime.lock);
    free(of);
    return runtime_failed(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    ENTER(cudaStreamIsCapturing);
    if (!stream) return runtime_failed(cudaErrorInvalidResourceHandle); /* as all calls with the default stream */
    pthread_mutex_lock(&runtime.lock);
    const capture *of = stream->capture;
    *status = !of           ? cudaStreamCaptureStatusNone
              : of->invalid ? cudaStreamCaptureStatusInvalidated
                            : cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&runtime.lock);
    return cudaSuccess;
}

/* ---------------------------------------------------------------- graphs */

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    ENTER(cudaGraphInstantiate);
    const unsigned long long known = cudaGraphInstantiateFlagUseNodePriority;
    if (!graph || (flags & ~known) != 0) return runtime_failed(cudaErrorInvalidValue);
    ON(graph->device);
    cudaGraphExec_t exec = calloc(1, sizeof *exec);
    if (!exec) return runtime_failed(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&runtime.lock);
    exec->graph = graph;
    graph->references++;
    runtime.alive.graphs++;
    if (flags & cudaGraphInstantiateFlagUseNodePriority) runtime.alive.prioritized++;
    exec->flags = flags;
    pthread_mutex_unlock(&runtime.lock);
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    ENTER(cudaGraphUpload);
    if (!exec || !stream) return runtime_failed(cudaErrorInvalidValue);
    ON(stream->device);
    return runtime_on(exec->graph->device);
}

static void graph_run(void *arg) {
    const struct CUgraph_st *graph = arg;
    for (const task *t = graph->head; t; t = t->next) task_perform(t);
}

/* Tasks are destroyed under the lock, so this has it. */
static void graph_done(void *arg) { graph_release_locked(arg); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    ENTER(cudaGraphLaunch);
    if (!exec || !stream) return runtime_failed(cudaErrorInvalidValue);
    ON(stream->device);
    ON(exec->graph->device);
    pthread_mutex_lock(&runtime.lock);
    exec->graph->references++;
    task *t = task_create(TASK_RUN, graph_run, exec->graph, graph_done);
    cudaError_t error = !t                ? cudaErrorMemoryAllocation
                        : stream->capture ? cudaErrorStreamCaptureUnsupported
                                          : stream_append_locked(stream, t);
    if (t && error == cudaErrorStreamCaptureUnsupported) task_destroy(t);
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    cudaError_t error = runtime_enter(CALL_cudaGraphExecDestroy);
    if (!exec) return runtime_failed(cudaErrorInvalidValue);
    pthread_mutex_lock(&runtime.lock);
    graph_release_locked(exec->graph);
    runtime.alive.graphs--;
    if (exec->flags & cudaGraphInstantiateFlagUseNodePriority) runtime.alive.prioritized--;
    pthread_mutex_unlock(&runtime.lock);
    free(exec);
    return error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    cudaError_t error = runtime_enter(CALL_cudaGraphDestroy);
    if (!graph) return runtime_failed(cudaErrorInvalidValue);
    pthread_mutex_lock(&runtime.lock);
    graph_release_locked(graph);
    runtime.alive.graphs--;
    pthread_mutex_unlock(&runtime.lock);
    return error;
}
