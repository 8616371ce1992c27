/* SPDX-License-Identifier: MIT */
/* Functions of the runtime, besides CUDA's own, for the emulated kernels and libraries (cuDNN, cuBLAS). */
#ifndef TESTS_CUDA_EMULATION_ENQUEUE_H
#define TESTS_CUDA_EMULATION_ENQUEUE_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exports a function to libraries that are opened at run time (nccl.c). */
#define CUDA_EMULATION_SHOWN __attribute__((visibility("default")))

/* Enqueues run(arg) on the stream; it may access device memory. Takes over `arg` (malloc'd, or NULL), even if it
 * fails, and frees it after the run; or, if the stream is captured, with the graph, which may run it several times, so
 * run must not change it. */
CUDA_EMULATION_SHOWN cudaError_t cuda_emulation_enqueue(cudaStream_t stream, void (*run)(void *arg), void *arg);

/* Records a kernel's launch, for cuda_emulation_launch_get. The stream must exist. */
void cuda_emulation_launched(cudaStream_t stream, const char *kernel, long blocks, long threads, size_t shared_bytes,
                             size_t shared_limit);

/* Most dynamic shared memory of a kernel's block: what cudaFuncSetAttribute has set, at first 48 KiB. */
size_t cuda_emulation_shared_limit(const void *function);

/* The memory that kernels may access around a byte, of a device or pinned: its bytes, and where it begins. 0: they may
 * not access the byte. */
size_t cuda_emulation_memory_at(const void *byte, const void **base_out);

/* The error with which a launch on the stream would fail, for example because the stream was destroyed. For NULL, the
 * default stream, it names no error, although the emulation runs nothing there. */
cudaError_t cuda_emulation_launch_check(cudaStream_t stream);

/* Counts a library's call by its name (control.h). Returns the error that was set for it, or the device's. */
cudaError_t cuda_emulation_enter(const char *name);

/* In a task of cuda_emulation_enqueue: pretends that the task took `ns` longer. Event times of all streams include this
 * pretended time. */
void cuda_emulation_pass(int64_t ns);
/* The same, for the ns that a test has set for each kernel (control.h). */
void cuda_emulation_pass_kernel(void);

/* cuda_emulation_device: the thread's current device. cuda_emulation_on: cudaErrorInvalidResourceHandle, and a stray
 * call (control.h), unless `device` is the current one. */
CUDA_EMULATION_SHOWN int cuda_emulation_device(void);
cudaError_t cuda_emulation_on(int device);

/* Sets the result of the next cudaGetLastError on this thread, because a launch returns nothing. */
void cuda_emulation_set_last_error(cudaError_t error);

#ifdef __cplusplus
}
#endif

#endif
