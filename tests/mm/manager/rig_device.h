/* SPDX-License-Identifier: MIT */
/* The device for mock steps, so that the same tests run on the host and, if MM_RIG_DEVICE is "cuda" and the test is
 * built with it, on emulated CUDA. */
#ifndef TESTS_MM_MANAGER_RIG_DEVICE_H
#define TESTS_MM_MANAGER_RIG_DEVICE_H

#include "mm/mm.h"

typedef struct rig_device {
    const char *name;
    bool cpu_reaches_memory; /* else steps can only run on the stream */

    /* Enqueues fn(arg) on the stream. `arg` is copied; fn must not change it. */
    mm_status (*launch)(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);

    /* Device and pinned memory that this process has reserved. NULL: the device does not count it. */
    int64_t (*reserved_bytes)(void);
} rig_device;

extern const rig_device RIG_HOST, RIG_CUDA_EMULATED;

/* The device of this process. Ends the process if the build does not have it. */
const rig_device *rig_device_used(void);

#endif
