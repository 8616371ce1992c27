/* SPDX-License-Identifier: MIT */
/* Tests inspect and control the emulated CUDA by these functions. */
#ifndef TESTS_CUDA_EMULATION_CONTROL_H
#define TESTS_CUDA_EMULATION_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Resets all: no device memory in use, no failure, all counts 0. Nothing may be alive, and no call may have strayed
 * (cuda_emulation_strays). */
void cuda_emulation_reset(void);

/* The machine: number of devices (default 2), each one's memory (4 GiB), and what other processes hold of it (64
 * MiB). */
void cuda_emulation_set_devices(int count);
void cuda_emulation_set_memory(size_t total_bytes, size_t others_bytes);

/* Makes each launch of a kernel take so many ns longer in event times, until the reset. Kernels run faster on PTX than
 * compiled by gcc; with this, a test knows which of kernel and library is faster. */
void cuda_emulation_slow_kernels(int64_t ns);

/* So many bytes that cudaMemGetInfo calls free are not given by cuMemCreate from now on, as where others take them. */
void cuda_emulation_keep_back(size_t bytes);

/* Registrations of host memory above so many bytes fail from now on; 0: above 512 GiB - 1, as with driver 580. */
void cuda_emulation_set_registration(size_t most_bytes);

/* Number of calls of a CUDA function ("cudaMalloc", "cuMemMap") since the reset, by all threads and by this one. NULL:
 * of all functions, except those that choose the thread's context. Aborts for a function that the emulation does not
 * have. */
long cuda_emulation_calls(const char *name);
long cuda_emulation_calls_here(const char *name);
/* Number of calls, by all threads, of functions that synchronise, allocate, free or capture, which a training loop
 * must not call. Waits for a single event (cudaEventSynchronize) do not count. */
long cuda_emulation_dear_calls(void);
/* The i-th function's name; NULL past the last. */
const char *cuda_emulation_name(size_t i);

/* Makes the nth call (from 1) of `name` from now on, by any thread, return `error` and do nothing. Only one such fault
 * is set at a time; nth 0 clears it. */
void cuda_emulation_fail(const char *name, long nth, cudaError_t error);
/* Whether the call that cuda_emulation_fail chose has been made. */
bool cuda_emulation_failed(void);

/* Makes the device fail, as a faulting kernel does; to be called on any thread, or in a task of cuda_emulation_enqueue.
 * Until the reset, enqueued tasks do not run, and all calls of all threads return the error. */
void cuda_emulation_fault(cudaError_t error);

/* A kernel's launch, or its recording into a graph. */
typedef struct cuda_emulation_launch {
    const char *kernel; /* as MM_LAUNCH has it: "encode<CODE>"; NULL: there was no such launch */
    long blocks, threads /* of a block */;
    size_t shared_bytes; /* dynamic */
    size_t shared_limit; /* the most of it that the kernel may have (cudaFuncSetAttribute) */
    int priority;        /* of the stream: 0, or negative where it is more urgent */
} cuda_emulation_launch;

/* The i-th last launch (0: the last) of all threads since the reset. The last 1024 are known. */
cuda_emulation_launch cuda_emulation_launch_get(long i);

/* Number of stray calls so far: those that used a stream, an event, memory or a library's handle of a device other
 * than the thread's current one. Each has returned an error. */
long cuda_emulation_strays(void);
/* Sets the number of stray calls to 0, for tests that stray on purpose. */
void cuda_emulation_forget_strays(void);
/* Whether the process has made a context on the device since the reset. */
bool cuda_emulation_has_context(int device);

/* Numbers of objects that exist. */
typedef struct cuda_emulation_alive {
    long urgent; /* streams with a high priority, which also count in `streams` */
    long streams, events, graphs /* and their executables */, ranges /* of addresses */;
    long contexts;    /* retained and not released primary contexts */
    long prioritized; /* executables whose nodes keep their streams' priorities */
    size_t device_bytes, pinned_bytes;
} cuda_emulation_alive;

cuda_emulation_alive cuda_emulation_alive_get(void);

#ifdef __cplusplus
}
#endif

#endif
