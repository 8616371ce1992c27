/* SPDX-License-Identifier: MIT */
/* Measures the process's peak of resident memory from a given time on. */
#ifndef TOOLS_TRAIN_HOST_MEMORY_H
#define TOOLS_TRAIN_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct host_memory {
    int64_t before_bytes; /* the peak before host_memory_begin */
    bool counted_anew;    /* the system has reset the peak */
} host_memory;

/* Begins to measure. Linux has one peak for the process, so an earlier measurement ends. */
void host_memory_begin(host_memory *memory);

/* The peak since host_memory_begin, in bytes. 0: unknown, because the system has no figure, or because the peak could
 * not be reset and was higher before. */
int64_t host_memory_peak(const host_memory *memory);

#endif
