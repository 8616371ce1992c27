/* SPDX-License-Identifier: MIT */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

#include "mm/device/trace.h"

void mm_trace_push(const char *what, const char *name) {
    char text[128];
    snprintf(text, sizeof text, "%s %s", what, name);
    nvtxRangePushA(text);
}

void mm_trace_pop(void) { nvtxRangePop(); }
