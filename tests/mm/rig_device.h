/* The device that mock steps run on, and how they get on its stream: the host, or, where the environment variable
 * MM_RIG_DEVICE says "cuda", CUDA emulated, if the test is built with it. So the same tests run on both. */
#ifndef TESTS_MM_RIG_DEVICE_H
#define TESTS_MM_RIG_DEVICE_H

#include "mm/mm.h"

typedef struct rig_device {
    const char *name;
    bool cpu_reaches_memory; /* else steps can only run on the stream */

    /* Runs fn(arg) on the stream, in order. `arg` is copied, and fn leaves it as it is. */
    mm_status (*launch)(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);
} rig_device;

extern const rig_device RIG_HOST, RIG_CUDA_EMULATED;

/* The one that this process runs on; ends it where the build has none of that name. */
const rig_device *rig_device_used(void);

#endif
