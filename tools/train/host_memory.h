/* SPDX-License-Identifier: MIT */
/* The process's peak of resident memory, from a time on. */
#ifndef TOOLS_TRAIN_HOST_MEMORY_H
#define TOOLS_TRAIN_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct host_memory {
    int64_t before_bytes; /* the peak until then */
    bool counted_anew;    /* the system has reset its peak */
} host_memory;

/* Begins. The process has one count, so an earlier one ends. */
void host_memory_begin(host_memory *memory);

/* The peak since, in bytes. 0: not known, because the system has no figure, or because it could not be reset and the
 * peak before was higher. */
int64_t host_memory_peak(const host_memory *memory);

#endif
