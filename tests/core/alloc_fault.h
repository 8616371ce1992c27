/* SPDX-License-Identifier: MIT */
/* Makes one allocation of the process fail. The linker redirects malloc, its kin, and functions of the C library that
 * allocate here (--wrap), where the code that it links statically calls them: all of ours, and no shared library. */
#ifndef TESTS_CORE_ALLOC_FAULT_H
#define TESTS_CORE_ALLOC_FAULT_H

#include <stdbool.h>

/* Makes the nth allocation from now on fail (n from 1, counted over all threads). 0: none fails. */
void alloc_fault_set(int nth);
/* While paused, the calling thread's allocations are not counted and do not fail. */
void alloc_fault_pause(bool paused);
bool alloc_fault_happened(void);
/* How many allocations from the one that is to fail: after alloc_fault_set(n), n minus those since; below 1: it has
 * failed. */
int alloc_fault_left(void);

#endif
