/* SPDX-License-Identifier: MIT */
#include "tests/mm/manager/rig_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/host/device_host.h"

const rig_device RIG_HOST = {.name = "host", .cpu_reaches_memory = true, .launch = mm_host_launch};

static const rig_device *const DEVICES[] = {
    &RIG_HOST,
#ifdef RIG_EMULATED
    &RIG_CUDA_EMULATED,
#endif
};

const rig_device *rig_device_used(void) {
    const char *name = getenv("MM_RIG_DEVICE");
    if (!name) return &RIG_HOST;
    for (size_t i = 0; i < sizeof DEVICES / sizeof *DEVICES; i++) {
        if (strcmp(DEVICES[i]->name, name) == 0) return DEVICES[i];
    }
    fprintf(stderr, "MM_RIG_DEVICE=%s: this test was built without it\n", name);
    abort();
}
