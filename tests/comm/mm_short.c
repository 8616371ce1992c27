/* SPDX-License-Identifier: MIT */
/* The command mm with a device that runs out of memory once MM_SHORT_AFTER (an environment variable) all-reduces have
 * begun. */
#include <stdatomic.h>
#include <stdlib.h>

#include "nets/comm/comm.h"
#include "tests/suite/device_fault.h"

__typeof__(comm_allreduce_begin) __real_comm_allreduce_begin, __wrap_comm_allreduce_begin;
void __wrap_comm_allreduce_begin(comm *m, comm_op kind, void *data, int64_t elems) {
    static atomic_int begun;
    const char *after = getenv("MM_SHORT_AFTER");
    __real_comm_allreduce_begin(m, kind, data, elems);
    if (after && atomic_fetch_add(&begun, 1) + 1 == atoi(after)) device_fault_set(DEVICE_FAULT_MEMORY_CALL, 1);
}
