/* SPDX-License-Identifier: MIT */
/* The command mm, whose device has no memory left in the midst of training: once what it does with other ranks has
 * begun as many times as the environment's MM_SHORT_AFTER says. */
#include <stdatomic.h>
#include <stdlib.h>

#include "nets/multi/multi.h"
#include "tests/suite/device_fault.h"

__typeof__(multi_begin) __real_multi_begin, __wrap_multi_begin;
void __wrap_multi_begin(multi *m, multi_kind kind, void *data, int64_t elems) {
    static atomic_int begun;
    const char *after = getenv("MM_SHORT_AFTER");
    __real_multi_begin(m, kind, data, elems);
    if (after && atomic_fetch_add(&begun, 1) + 1 == atoi(after)) device_fault_set(DEVICE_FAULT_MEMORY_CALL, 1);
}
