/* What the emulated kernels and libraries (cuDNN, cuBLAS) need of the runtime, beside CUDA's own functions. */
#ifndef TESTS_CUDA_EMULATION_ENQUEUE_H
#define TESTS_CUDA_EMULATION_ENQUEUE_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* run(arg) on the stream's thread, in order; it may touch device memory. `arg` (malloc'd, or NULL) is the emulation's
 * from here on, also when this fails: freed after the run, or, where the stream is captured, with the last of the
 * graph, which runs it any number of times: run must leave it as it is. */
cudaError_t cuda_emulation_enqueue(cudaStream_t stream, void (*run)(void *arg), void *arg);

/* What a launch on the stream returns, where nothing is run: an error for one that was destroyed. NULL: the default
 * one, which does not run anything here. */
cudaError_t cuda_emulation_launch_check(cudaStream_t stream);

/* Counts a library's call by its name, as control.h says; the error that was ordered for it, or of the device. */
cudaError_t cuda_emulation_enter(const char *name);

/* In what cuda_emulation_enqueue runs: as if it had taken so much longer. Events tell it of all streams. */
void cuda_emulation_pass(int64_t ns);

/* The thread's current device; cudaErrorInvalidResourceHandle, and a stray (control.h), unless it is that one. */
int cuda_emulation_device(void);
cudaError_t cuda_emulation_on(int device);

/* What cudaGetLastError returns next on this thread: a launch returns nothing itself. */
void cuda_emulation_set_last_error(cudaError_t error);

#ifdef __cplusplus
}
#endif

#endif
