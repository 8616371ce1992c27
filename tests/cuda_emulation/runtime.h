/* SPDX-License-Identifier: MIT */
/* Private to the emulated runtime. It has globals, because the real library has one state for the whole process.
 *
 * One lock guards all (runtime.lock); tasks of streams do not run under it. */
#ifndef TESTS_CUDA_EMULATION_RUNTIME_H
#define TESTS_CUDA_EMULATION_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "tests/cuda_emulation/control.h"
#include "tests/cuda_emulation/enqueue.h"

/* ---------------------------------------------------------------- calls (runtime_calls.c) */

#define CUDA_EMULATION_CALLS(X)                                                                                        \
    X(cudaGetLastError)                                                                                                \
    X(cudaPeekAtLastError)                                                                                             \
    X(cudaGetDeviceCount)                                                                                              \
    X(cudaSetDevice)                                                                                                   \
    X(cudaGetDevice)                                                                                                   \
    X(cudaInitDevice)                                                                                                  \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                \
    X(cuCtxPopCurrent)                                                                                                 \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cudaGetDeviceProperties)                                                                                         \
    X(cudaDeviceGetAttribute)                                                                                          \
    X(cudaDeviceSynchronize)                                                                                           \
    X(cudaDriverGetVersion)                                                                                            \
    X(cudaRuntimeGetVersion)                                                                                           \
    X(cudaMemGetInfo)                                                                                                  \
    X(cudaMalloc)                                                                                                      \
    X(cudaFree)                                                                                                        \
    X(cudaHostAlloc)                                                                                                   \
    X(cudaFreeHost)                                                                                                    \
    X(cudaHostRegister)                                                                                                \
    X(cudaHostUnregister)                                                                                              \
    X(cudaHostGetDevicePointer)                                                                                        \
    X(cudaMemcpyAsync)                                                                                                 \
    X(cudaMemcpy2DAsync)                                                                                               \
    X(cudaMemset)                                                                                                      \
    X(cudaMemsetAsync)                                                                                                 \
    X(cudaStreamCreateWithPriority)                                                                                    \
    X(cudaStreamDestroy)                                                                                               \
    X(cudaStreamSynchronize)                                                                                           \
    X(cudaStreamQuery)                                                                                                 \
    X(cudaStreamWaitEvent)                                                                                             \
    X(cudaLaunchHostFunc)                                                                                              \
    X(cudaEventCreateWithFlags)                                                                                        \
    X(cudaEventDestroy)                                                                                                \
    X(cudaEventRecord)                                                                                                 \
    X(cudaEventSynchronize)                                                                                            \
    X(cudaEventQuery)                                                                                                  \
    X(cudaEventElapsedTime)                                                                                            \
    X(cudaFuncSetAttribute)                                                                                            \
    X(cudaFuncGetAttributes)                                                                                           \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessor)                                                                   \
    X(cudaStreamBeginCapture)                                                                                          \
    X(cudaStreamEndCapture)                                                                                            \
    X(cudaStreamIsCapturing)                                                                                           \
    X(cudaGraphInstantiate)                                                                                            \
    X(cudaGraphUpload)                                                                                                 \
    X(cudaGraphLaunch)                                                                                                 \
    X(cudaGraphExecDestroy)                                                                                            \
    X(cudaGraphDestroy)                                                                                                \
    X(cudaGetDriverEntryPointByVersion)                                                                                \
    X(cuMemGetAllocationGranularity)                                                                                   \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemCreate)                                                                                                     \
    X(cuMemRelease)                                                                                                    \
    X(cuMemMap)                                                                                                        \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemSetAccess)                                                                                                  \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendExecute)                                                                                             \
    X(cublasLtMatmulDescInit)                                                                                          \
    X(cublasLtMatmulDescSetAttribute)                                                                                  \
    X(cublasLtMatrixLayoutInit)                                                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                                            \
    X(cublasLtMatmulAlgoConfigSetAttribute)                                                                            \
    X(cublasLtMatmulAlgoInit)                                                                                          \
    X(cublasLtMatmulAlgoCheck)                                                                                         \
    X(cublasLtMatmul)                                                                                                  \
    X(kernel_launch) /* cuda_emulation_enqueue: kernels and libraries */

typedef enum runtime_call {
#define X(name) CALL_##name,
    CUDA_EMULATION_CALLS(X)
#undef X
        CALLS
} runtime_call;

/* Counts the call. Returns the error that was set for it, or the device's. */
cudaError_t runtime_enter(runtime_call call);
/* Saves an error for cudaGetLastError, and returns it. */
cudaError_t runtime_failed(cudaError_t error);
/* runtime_enter for a call that only chooses the thread's context; it does not return the device's error. */
cudaError_t runtime_enter_context(runtime_call call);
/* runtime_enter for a call that may synchronise: it fails while this thread captures, and makes the capture invalid. */
cudaError_t runtime_enter_unsafe(runtime_call call);

#define ENTER(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t enter_ = runtime_enter(CALL_##call);                                                               \
        if (enter_ != cudaSuccess) return enter_;                                                                      \
    } while (0)
#define ENTER_UNSAFE(call)                                                                                             \
    do {                                                                                                               \
        cudaError_t enter_ = runtime_enter_unsafe(CALL_##call);                                                        \
        if (enter_ != cudaSuccess) return enter_;                                                                      \
    } while (0)

/* ---------------------------------------------------------------- the machine (runtime_device.c) */

enum { RUNTIME_DEVICES = 4 }; /* most devices */

typedef struct runtime_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* a recording is done, or a stream has finished a task */
    int devices;
    bool has_context[RUNTIME_DEVICES];
    int retained[RUNTIME_DEVICES]; /* reference counts of the primary contexts */
    size_t used_bytes[RUNTIME_DEVICES];
    long strays; /* calls that used objects of a device other than the current one */
    size_t total_bytes, others_bytes;
    cudaError_t fault;
    cuda_emulation_alive alive;
    long captures;        /* number of captures so far; they are numbered from 1 */
    cudaStream_t streams; /* list of the streams that exist */
} runtime_state;

extern runtime_state runtime;

/* The calling thread's current device. A thread that has chosen none gets device 0, and a context there. To be called
 * without the lock. */
int runtime_device(void);
/* Makes this thread one that has chosen no device, and forgets all contexts. Other threads keep theirs. */
void runtime_forget_contexts(void);
/* cudaErrorInvalidResourceHandle, counted as a stray call, unless the device is the calling thread's current one. CUDA,
 * too, refuses launches and recordings that use an object of another device; other such calls it allows, or makes a
 * context on a device that the caller did not mean. To be called without the lock. */
cudaError_t runtime_on(int device);
#define ON(device)                                                                                                     \
    do {                                                                                                               \
        cudaError_t on_ = runtime_on(device);                                                                          \
        if (on_ != cudaSuccess) return on_;                                                                            \
    } while (0)

/* ---------------------------------------------------------------- memory (runtime_memory.c) */

/* Between these two calls the CPU may access the device's memory. Pairs of calls nest, counted over all threads. To be
 * called under the lock. */
void memory_open_locked(int device);
void memory_close_locked(int device);

/* ---------------------------------------------------------------- work (runtime_stream.c, runtime_event.c) */

/* One recording of an event. A wait for the event waits for the recording that was the latest when the wait was
 * enqueued. Reference-counted, under the lock. */
typedef struct recording {
    int references;
    bool done;
    int64_t ns;
} recording;

recording *recording_create(void); /* with one reference; NULL without memory */
void recording_release(recording *of);

typedef enum task_kind { TASK_RUN, TASK_CALL, TASK_RECORD, TASK_WAIT } task_kind;

typedef struct task {
    struct task *next;
    task_kind kind;
    void (*run)(void *arg);
    void *arg; /* owned; freed by `release` */
    void (*release)(void *arg);
    recording *recording; /* a reference */
} task;

/* NULL: out of memory; arg is released then. */
task *task_create(task_kind kind, void (*run)(void *arg), void *arg, void (*release)(void *arg));
void task_destroy(task *of);
/* Runs a TASK_RUN or TASK_CALL, unless the device has failed. To be called without the lock. */
void task_perform(const task *of);

/* Most streams of a capture. */
enum { CAPTURE_STREAMS = 16 };

/* Vector clock: per stream of a capture, the number of its nodes that come before. */
typedef struct capture_clock {
    long nodes[CAPTURE_STREAMS];
} capture_clock;

typedef struct capture {
    long number;
    cudaStream_t origin;
    bool invalid;
    int streams;
    cudaStream_t stream[CAPTURE_STREAMS];
    capture_clock clock[CAPTURE_STREAMS]; /* of each stream */
    struct CUgraph_st *graph;
} capture;

struct CUstream_st {
    cudaStream_t next_alive;
    int device;
    pthread_t thread;
    pthread_cond_t work;
    task *head, *tail;
    long queued, finished;
    bool stopping;
    int priority;
    bool open;        /* it has opened its device's memory */
    capture *capture; /* the capture that it takes part in, as stream `place` of it; NULL: none */
    int place;
};

struct CUevent_st {
    int device;
    bool timed;
    recording *last;
    long captured; /* number of the capture that its latest recording is in; 0: none */
    capture_clock clock;
};

/* Forgets all launches, for the reset. To be called under the lock. */
void runtime_forget_launches(void);

/* Appends the task to the stream, or to its capture's graph, and takes it over. Under the lock. */
cudaError_t stream_append_locked(cudaStream_t stream, task *of);

/* ---------------------------------------------------------------- captures (runtime_graph.c): under the lock */

void capture_add_node(cudaStream_t stream, task *of);
void capture_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event);
/* The error of a call that may synchronise, if this thread has a capture that forbids it. */
cudaError_t capture_refuse_unsafe(void);
void capture_invalidate(capture *of);

#endif
