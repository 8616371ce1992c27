/* The device that mock steps run on, and how they get on its stream. Two implementations, of which BUILD chooses: the
 * host, and CUDA where it is emulated, so that the same tests run on both. */
#ifndef TESTS_MM_RIG_DEVICE_H
#define TESTS_MM_RIG_DEVICE_H

#include "mm/mm.h"

typedef struct rig_device {
    const char *name;
    bool cpu_reaches_memory; /* else steps can only run on the stream */
} rig_device;

extern const rig_device RIG_DEVICE;

/* Runs fn(arg) on the stream, in order. `arg` is copied, and fn leaves it as it is. */
mm_status rig_device_launch(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);

#endif
