/* SPDX-License-Identifier: MIT */
/* Makes one allocation of the process fail. The linker redirects malloc and its kin here (--wrap). */
#ifndef TESTS_MM_STASH_ALLOC_FAULT_H
#define TESTS_MM_STASH_ALLOC_FAULT_H

#include <stdbool.h>

/* The nth allocation (from 1) from now on, of all threads, fails; 0: none does. */
void alloc_fault_set(int nth);
/* Allocations are neither counted nor fail while paused. For the calling thread alone. */
void alloc_fault_pause(bool paused);
bool alloc_fault_happened(void);

#endif
