/* SPDX-License-Identifier: MIT */
/* The device that mock steps run on, so that the same tests run on both: the host, or, if the environment variable
 * MM_RIG_DEVICE is "cuda" and the test is built with it, emulated CUDA. */
#ifndef TESTS_MM_MANAGER_RIG_DEVICE_H
#define TESTS_MM_MANAGER_RIG_DEVICE_H

#include "mm/mm.h"

typedef struct rig_device {
    const char *name;
    bool cpu_reaches_memory; /* else steps can only run on the stream */

    /* Enqueues fn(arg) on the stream. `arg` is copied; fn must not change it. */
    mm_status (*launch)(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);

    /* Device and pinned memory that is reserved by anybody in this process. NULL: it is not counted. */
    int64_t (*reserved_bytes)(void);
} rig_device;

extern const rig_device RIG_HOST, RIG_CUDA_EMULATED;

/* The device of this process. Ends the process if the build does not have it. */
const rig_device *rig_device_used(void);

#endif
