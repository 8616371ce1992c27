/* What tests can see and do of the emulated CUDA. */
#ifndef TESTS_CUDA_EMULATION_CONTROL_H
#define TESTS_CUDA_EMULATION_CONTROL_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A new start: no device memory in use, no failure, counts of 0. Nothing may be alive, and no call may have strayed
 * (cuda_emulation_strays). */
void cuda_emulation_reset(void);

/* The machine: how many devices it has (2), each one's memory (4 GiB), what other processes hold of it (64 MiB). */
void cuda_emulation_set_devices(int count);
void cuda_emulation_set_memory(size_t total_bytes, size_t others_bytes);

/* Calls of a function of CUDA by name ("cudaMalloc", "cuMemMap") since the reset: by all threads, and by this one
 * (NULL: of all functions but those that choose the thread's context). Aborts for a name that the emulation does not have. */
long cuda_emulation_calls(const char *name);
long cuda_emulation_calls_here(const char *name);
/* By all threads, of all that synchronises, allocates, frees or captures: what a training loop must not do. Waits for a
 * single event (cudaEventSynchronize) are not among them. */
long cuda_emulation_dear_calls(void);
/* The i-th name, NULL past the last. */
const char *cuda_emulation_name(size_t i);

/* The nth call (from 1) of `name` from now on, by any thread, returns `error` and does nothing. One at a time; nth 0:
 * none. */
void cuda_emulation_fail(const char *name, long nth, cudaError_t error);
/* Whether it has. */
bool cuda_emulation_failed(void);

/* As a kernel that faults where this is called: on a stream's thread (in what cuda_emulation_enqueue runs), or
 * anywhere. Work enqueued is passed over from here on, and every call of any thread returns the error until the
 * reset. */
void cuda_emulation_fault(cudaError_t error);

/* Calls so far that used a stream, an event, memory or a library's handle of a device that was not the thread's current
 * one: each has returned an error. */
long cuda_emulation_strays(void);
/* Forgets them: for those who stray on purpose. */
void cuda_emulation_forget_strays(void);
/* Whether the process has a context on the device since the reset. */
bool cuda_emulation_has_context(int device);

/* What was made and not destroyed. */
typedef struct cuda_emulation_alive {
    long urgent; /* of the streams, those that go before others */
    long streams, events, graphs /* and their executables */, ranges /* of addresses */;
    long contexts;    /* uses of primary ones that were not given back */
    long prioritized; /* executables whose nodes keep their streams' priorities */
    size_t device_bytes, pinned_bytes;
} cuda_emulation_alive;

cuda_emulation_alive cuda_emulation_alive_get(void);

#ifdef __cplusplus
}
#endif

#endif
