/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "mm/device/cuda/device_cuda.h"
#include "tests/cuda_emulation/control.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/mm/manager/rig_device.h"

enum { ARG_BYTES = 128 };

typedef struct job {
    mm_status (*fn)(void *arg);
    char arg[ARG_BYTES];
} job;

static void run_job(void *arg) {
    job copy = *(job *)arg;
    if (copy.fn(copy.arg) != MM_OK) cuda_emulation_fault(cudaErrorLaunchFailure);
}

static mm_status launch(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes) {
    job *j = calloc(1, sizeof *j);
    if (!j || arg_bytes > sizeof j->arg) abort();
    j->fn = fn;
    memcpy(j->arg, arg, arg_bytes);
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    mm_status status = mm_cuda_check(cuda_emulation_enqueue(mm_cuda_stream(stream), run_job, j), "mock step");
    mm_device_leave(stream->device, entered);
    return status;
}

static int64_t reserved_bytes(void) {
    const cuda_emulation_alive alive = cuda_emulation_alive_get();
    return (int64_t)(alive.device_bytes + alive.pinned_bytes);
}

const rig_device RIG_CUDA_EMULATED = {
    .name = "cuda", .cpu_reaches_memory = false, .launch = launch, .reserved_bytes = reserved_bytes};
