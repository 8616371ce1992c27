#include "mm/device/device_host.h"
#include "tests/mm/rig_device.h"

const rig_device RIG_DEVICE = {.name = "host", .cpu_reaches_memory = true};

mm_status rig_device_launch(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes) {
    return mm_host_launch(stream, fn, arg, arg_bytes);
}
