/* SPDX-License-Identifier: MIT */
#include "tests/core/alloc_fault.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static atomic_int left;
static atomic_bool armed;
static _Thread_local bool is_paused;

void alloc_fault_set(int nth) {
    atomic_store(&left, nth);
    atomic_store(&armed, nth > 0);
}

void alloc_fault_pause(bool paused) { is_paused = paused; }

bool alloc_fault_happened(void) { return atomic_load(&left) <= 0; }

static bool fails(void) { return atomic_load(&armed) && !is_paused && atomic_fetch_sub(&left, 1) == 1; }

#define WRAP(name, params, args)                                                                                       \
    void *__real_##name params;                                                                                        \
    void *__wrap_##name params;                                                                                        \
    void *__wrap_##name params { return fails() ? NULL : __real_##name args; }

WRAP(malloc, (size_t bytes), (bytes))
WRAP(calloc, (size_t n, size_t bytes), (n, bytes))
WRAP(realloc, (void *memory, size_t bytes), (memory, bytes))
WRAP(aligned_alloc, (size_t align, size_t bytes), (align, bytes))
