/* SPDX-License-Identifier: MIT */
/* Makes one allocation of the process fail. The linker redirects malloc and similar functions here (--wrap). */
#ifndef TESTS_MM_STASH_ALLOC_FAULT_H
#define TESTS_MM_STASH_ALLOC_FAULT_H

#include <stdbool.h>

/* Makes the nth allocation from now on fail (n from 1, counted over all threads). 0: none fails. */
void alloc_fault_set(int nth);
/* While paused, the calling thread's allocations are not counted and do not fail. */
void alloc_fault_pause(bool paused);
bool alloc_fault_happened(void);

#endif
