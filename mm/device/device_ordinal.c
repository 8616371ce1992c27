/* SPDX-License-Identifier: MIT */
/* Messages about how many devices of a kind there are. */
#include <stdio.h>

#include "mm/device/contract/device.h"

void mm_device_count_text(const char *kind, int count, char *text, size_t capacity) {
    if (count > 1)
        snprintf(text, capacity, "there are %d, %s:0 to %s:%d", count, kind, kind, count - 1);
    else
        snprintf(text, capacity, count == 1 ? "there is 1, %s:0" : "no %s answers here", kind);
}

mm_status mm_device_fail_ordinal(const char *kind, int ordinal, int count) {
    char there[64];
    mm_device_count_text(kind, count, there, sizeof there);
    return mm_fail(MM_ERR_NOT_FOUND, "no device '%s:%d': %s", kind, ordinal, there);
}
