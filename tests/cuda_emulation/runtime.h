/* Inside the emulated runtime. It stands for a library that is one for the whole process, so it has globals.
 *
 * One lock for everything (runtime.lock); no work of a stream runs under it. */
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

/* Counts the call; the error that was ordered for it, or of the device. */
cudaError_t runtime_enter(runtime_call call);
/* Keeps an error for cudaGetLastError, and gives it. */
cudaError_t runtime_failed(cudaError_t error);
/* The same of a call that only chooses the thread's context: the device's error is not told by it. */
cudaError_t runtime_enter_context(runtime_call call);
/* Also refused while this thread captures, as what may synchronise is: the capture is then invalid. */
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

enum { RUNTIME_DEVICES = 4 }; /* at most */

typedef struct runtime_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* a recording is done, a stream has finished something */
    int devices;
    bool has_context[RUNTIME_DEVICES];
    int retained[RUNTIME_DEVICES]; /* how often the primary context is */
    size_t used_bytes[RUNTIME_DEVICES];
    long strays; /* calls that used what is another device's */
    size_t total_bytes, others_bytes;
    cudaError_t fault;
    cuda_emulation_alive alive;
    long captures;        /* begun so far: each has a number, from 1 */
    cudaStream_t streams; /* that were made and not destroyed */
} runtime_state;

extern runtime_state runtime;

/* The calling thread's current device; a thread that has chosen none gets device 0, and the context there. Without the
 * lock. */
int runtime_device(void);
/* As if no thread had chosen a device: but threads other than this one keep what they have. */
void runtime_forget_contexts(void);
/* cudaErrorInvalidResourceHandle, counted as a stray, unless the device is the calling thread's current one. CUDA is as
 * strict with launches and recordings; elsewhere it lets the call pass, or makes a context on a device that was not
 * meant. Without the lock. */
cudaError_t runtime_on(int device);
#define ON(device)                                                                                                     \
    do {                                                                                                               \
        cudaError_t on_ = runtime_on(device);                                                                          \
        if (on_ != cudaSuccess) return on_;                                                                            \
    } while (0)

/* ---------------------------------------------------------------- memory (runtime_memory.c) */

/* Between them the CPU may touch the device's memory; they nest, over all threads. Under the lock. */
void memory_open_locked(int device);
void memory_close_locked(int device);

/* ---------------------------------------------------------------- work (runtime_stream.c, runtime_event.c) */

/* One recording of an event; a wait is for the one that was the event's last. Shared; under the lock. */
typedef struct recording {
    int references;
    bool done;
    int64_t ns;
} recording;

recording *recording_create(void); /* with one reference; NULL without memory */
void recording_release(recording *of);

typedef enum task_kind { TASK_RUN, TASK_RECORD, TASK_WAIT } task_kind;

typedef struct task {
    struct task *next;
    task_kind kind;
    void (*run)(void *arg);
    void *arg; /* owned, given to `release` */
    void (*release)(void *arg);
    recording *recording; /* a reference */
} task;

/* NULL without memory: arg is released then. */
task *task_create(task_kind kind, void (*run)(void *arg), void *arg, void (*release)(void *arg));
void task_destroy(task *of);
/* RUN: does it, unless the device has failed. Without the lock. */
void task_perform(const task *of);

/* Streams of one capture, at most. */
enum { CAPTURE_STREAMS = 16 };

/* What of each stream of a capture comes before: how many of its nodes. */
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
    bool stopping, urgent;
    bool open;        /* its device's memory, for it */
    capture *capture; /* it takes part in, at `place` */
    int place;
};

struct CUevent_st {
    int device;
    bool timed;
    recording *last;
    long captured; /* the number of the capture that it was recorded in last; 0: in none */
    capture_clock clock;
};

/* Appends, or adds to the capture's graph. The task is owned from here on. `locked` by the caller. */
cudaError_t stream_append_locked(cudaStream_t stream, task *of);

/* ---------------------------------------------------------------- captures (runtime_graph.c): under the lock */

void capture_add_node(cudaStream_t stream, task *of);
void capture_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event);
/* Of this thread's capture, if it has one that forbids what may synchronise. */
cudaError_t capture_refuse_unsafe(void);
void capture_invalidate(capture *of);

#endif
