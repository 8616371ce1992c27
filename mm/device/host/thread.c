/* SPDX-License-Identifier: MIT */
#include "mm/device/host/thread.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The first version of the kernel's struct sched_attr (sched_setattr(2)), for which the C library has no header. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} attributes;

void mm_thread_run_soon(void) {
    enum { SLICE_NS = 100000, ITSELF = 0, NO_FLAGS = 0 }; /* SLICE_NS: the shortest time slice that Linux grants */
    attributes now = {0};
    if (syscall(SYS_sched_getattr, ITSELF, &now, sizeof now, NO_FLAGS) != 0 || now.policy != 0) return;
    now.size = sizeof now;
    now.runtime_ns = SLICE_NS;
    (void)!syscall(SYS_sched_setattr, ITSELF, &now, NO_FLAGS); /* the call is a hint, so a failure does not matter */
}
