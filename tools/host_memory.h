/* How much memory this process takes at the most, from a time on. */
#ifndef TOOLS_HOST_MEMORY_H
#define TOOLS_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct host_memory {
    int64_t before_bytes; /* the most until then */
    bool counted_anew;    /* the system counts the most from there on */
} host_memory;

/* Begins. There is one count in the process: one that began earlier ends. */
void host_memory_begin(host_memory *memory);

/* The most that was resident since. 0: not known, because the system tells nothing, or because it does not count anew
 * and more was resident before. */
int64_t host_memory_peak(const host_memory *memory);

#endif
