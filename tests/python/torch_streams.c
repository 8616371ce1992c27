/* SPDX-License-Identifier: MIT */
/* libmm with emulated CUDA, and the calls of CUDA that gpu_streams.py makes: streams are threads. libmm.so itself shows
 * only mm_*. A call that fails ends the program. */
#include <stdio.h>
#include <stdlib.h>

#include <time.h>

#include <cuda_runtime_api.h>

#include "tests/cuda_emulation/enqueue.h"

enum { COPY_NS = 1000000 };

#define SHOWN __attribute__((visibility("default")))

SHOWN void *streams_create(void);
SHOWN void streams_run(void *stream, void (*run)(int64_t number), int64_t number);
SHOWN void streams_wait(void *stream, void *other);
SHOWN void streams_sync(void *stream);
SHOWN void *streams_alloc(size_t bytes);
SHOWN void streams_capture(void *stream, int begin);

static void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: error %d\n", what, (int)error);
    abort();
}

void *streams_create(void) {
    cudaStream_t stream;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
    return stream;
}

typedef struct call {
    void (*run)(int64_t number);
    int64_t number;
} call;

static void perform(void *arg) {
    const call *c = arg;
    c->run(c->number);
}

/* Enqueues a call of the function, which may read and write device memory; calls of several streams run together. */
void streams_run(void *stream, void (*run)(int64_t number), int64_t number) {
    call *c = malloc(sizeof *c);
    if (!c) abort();
    *c = (call){run, number};
    check(cuda_emulation_enqueue(stream, perform, c), "cuda_emulation_enqueue");
}

static void sleep_a_while(void *arg) {
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = COPY_NS}, NULL);
}

/* Each copy of mm takes longer. */
cudaError_t __real_cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                                   cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                                   cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                                   cudaStream_t stream) {
    check(cuda_emulation_enqueue(stream, sleep_a_while, NULL), "cuda_emulation_enqueue");
    return __real_cudaMemcpyAsync(dst, src, bytes, kind, stream);
}

/* Has `stream` wait for what is enqueued on `other`. */
void streams_wait(void *stream, void *other) {
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventRecord(event, other), "cudaEventRecord");
    check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
    check(cudaEventDestroy(event), "cudaEventDestroy");
}

void streams_sync(void *stream) { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

void *streams_alloc(size_t bytes) {
    void *memory;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

/* As torch.cuda.graph: begins to capture the stream, or ends that, and forgets what was captured. */
void streams_capture(void *stream, int begin) {
    cudaGraph_t graph;
    if (begin) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        return;
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}
