/* SPDX-License-Identifier: MIT */
/* Captures and replays, as CUDA graphs. */
#include <stdlib.h>

#include "mm/device/cuda/cuda_internal.h"

typedef struct cuda_replay {
    mm_replay base;
    cudaGraphExec_t exec;
} cuda_replay;

void cuda_capture_join(cuda_stream *stream, long capture) {
    cuda_device *device = cuda_device_of(&stream->base);
    if (stream->capture == capture) return;
    cuda_time_pause(stream);
    stream->capture = capture;
    stream->next_captured = device->captured;
    device->captured = stream;
}

mm_status cuda_capture_begin(mm_stream *base) {
    cuda_stream *stream = (cuda_stream *)base;
    cuda_device *device = cuda_device_of(base);
    if (atomic_load(&device->capturing) != 0)
        return mm_fail(MM_ERR_ORDER, "stream %s: a capture is under way on this device", stream->name);
    cuda_time_pause(stream);
    MM_TRY(
        cuda_stream_fail(stream, mm_cuda_check(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal),
                                               "cudaStreamBeginCapture")));
    long number = atomic_fetch_add(&device->captures, 1) + 1;
    device->captured = NULL;
    cuda_capture_join(stream, number);
    atomic_store(&device->capturing, number);
    return MM_OK;
}

/* Makes the stream that the capture began on wait for all other streams that joined the capture. */
static mm_status join_all(const cuda_device *device, const cuda_stream *origin) {
    for (const cuda_stream *s = device->captured; s != NULL; s = s->next_captured) {
        if (s == origin) continue;
        CUDA_TRY(cudaEventRecord(s->join, s->stream), "cudaEventRecord");
        CUDA_TRY(cudaStreamWaitEvent(origin->stream, s->join, 0), "cudaStreamWaitEvent");
    }
    return MM_OK;
}

static mm_status make_replay(cuda_stream *stream, cudaGraph_t graph, mm_replay **replay_out) {
    cuda_device *device = cuda_device_of(&stream->base);
    cuda_replay *replay = calloc(1, sizeof *replay);
    if (replay == NULL) return mm_fail(MM_ERR_NOMEM, "cuda: no memory for captured work");
    replay->base.device = &device->base;
    /* Without this flag all nodes run at the priority of the stream that the graph is launched on. */
    mm_status status = mm_cuda_check(
        cudaGraphInstantiate(&replay->exec, graph, cudaGraphInstantiateFlagUseNodePriority), "cudaGraphInstantiate");
    if (status == MM_OK) {
        status = mm_cuda_check(cudaGraphUpload(replay->exec, stream->stream), "cudaGraphUpload");
        if (status != MM_OK) cudaGraphExecDestroy(replay->exec);
    }
    if (status != MM_OK) {
        free(replay);
        return status;
    }
    atomic_fetch_add(&device->alive, 1);
    *replay_out = &replay->base;
    return MM_OK;
}

mm_status cuda_capture_end(mm_stream *base, mm_replay **replay_out) {
    cuda_stream *stream = (cuda_stream *)base;
    cuda_device *device = cuda_device_of(base);
    cudaGraph_t graph = NULL;
    if (stream->capture == 0 || stream->capture != atomic_load(&device->capturing))
        return mm_fail(MM_ERR_ORDER, "stream %s: no capture was begun on it", stream->name);
    mm_status status = join_all(device, stream);
    cudaError_t ended = cudaStreamEndCapture(stream->stream, &graph);
    if (status == MM_OK) status = mm_cuda_check(ended, "cudaStreamEndCapture");
    for (cuda_stream *s = device->captured; s != NULL; s = s->next_captured) s->capture = 0;
    device->captured = NULL;
    atomic_store(&device->capturing, 0);
    if (status == MM_OK) status = make_replay(stream, graph, replay_out);
    if (graph != NULL) cudaGraphDestroy(graph);
    cudaGetLastError();
    return cuda_stream_fail(stream, status);
}

mm_status cuda_replay_launch(mm_replay *base, mm_stream *stream) {
    cudaStream_t handle = cuda_stream_task(stream);
    return cuda_stream_fail((cuda_stream *)stream,
                            mm_cuda_check(cudaGraphLaunch(((cuda_replay *)base)->exec, handle), "cudaGraphLaunch"));
}

void cuda_replay_destroy(mm_replay *base) {
    cuda_replay *replay = (cuda_replay *)base;
    cudaGraphExecDestroy(replay->exec);
    cudaGetLastError();
    atomic_fetch_sub(&((cuda_device *)base->device)->alive, 1);
    free(replay);
}
