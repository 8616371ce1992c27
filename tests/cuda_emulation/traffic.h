/* SPDX-License-Identifier: MIT */
/* How many bytes of device memory each kernel moves: only in programs with the checker (check.h). */
#ifndef TESTS_CUDA_EMULATION_TRAFFIC_H
#define TESTS_CUDA_EMULATION_TRAFFIC_H

#ifdef __cplusplus
extern "C" {
#endif

/* What all launches of a kernel have done. `once` and `written` count each byte once a launch, as if a launch found in
 * a cache what it has read or written; `read` counts every read. */
typedef struct cuda_emulation_traffic {
    const char *kernel; /* as MM_LAUNCH has it */
    long launches, read, once, written;
} cuda_emulation_traffic;

/* Forgets all traffic. No kernel may run. */
void cuda_emulation_traffic_reset(void);
/* The traffic of the i-th kernel since then; kernel is NULL past the last. No kernel may run. */
cuda_emulation_traffic cuda_emulation_traffic_get(int i);

#ifdef __cplusplus
}
#endif

#endif
