/* SPDX-License-Identifier: MIT */
/* The library's one clock: CLOCK_MONOTONIC in ns. mm_event_ns uses it too. */
#ifndef MM_DEVICE_CONTRACT_CLOCK_H
#define MM_DEVICE_CONTRACT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t mm_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
