/* SPDX-License-Identifier: MIT */
/* The host's memory for this process: mm_host_memory_get (mm.h), on which all limits and checks of host memory rest.
 *
 * What is free is the least of MemAvailable, and of what the limits of the control groups leave. A limit is the group's
 * memory.max, at which its processes are killed, or memory.high, if that is less, at which they are stopped to reclaim
 * memory (systemd counts both, too). It leaves what the group's working set does not use: memory.current without
 * inactive_file, the page cache that the kernel drops first. kubelet and docker count in the same way. Version 1:
 * memory.limit_in_bytes, memory.usage_in_bytes, total_inactive_file. Swap does not count. */
#ifndef MM_DEVICE_SYSTEM_SYSTEM_MEMORY_H
#define MM_DEVICE_SYSTEM_SYSTEM_MEMORY_H

#include "mm/mm.h"

/* mm_host_memory_get for tests: `root` replaces "/", below which /proc and /sys are looked for. */
void mm_host_memory_get_in(const char *root, mm_host_memory *memory_out);

#endif
