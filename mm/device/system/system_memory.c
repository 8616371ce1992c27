/* SPDX-License-Identifier: MIT */
#include "mm/device/system/system_memory.h"

#include <stdio.h>
#include <unistd.h>

#include "mm/device/system/control_group.h"

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/* A number of a group; `otherwise` if there is none. */
static int64_t number(const char *folder, const char *file, const char *key, int64_t otherwise) {
    int64_t value;
    return mm_group_numbers(folder, file, key, 1, &value) == 1 ? value : otherwise;
}

/* An mm_group_fn. ctx: an mm_host_memory, which has the machine's memory and the limits so far. */
static void look_at(void *ctx, const char *folder, bool v2) {
    mm_host_memory *memory = ctx;
    const int64_t limit =
        v2 ? lesser(number(folder, "memory.max", "", INT64_MAX), number(folder, "memory.high", "", INT64_MAX))
           : number(folder, "memory.limit_in_bytes", "", INT64_MAX);
    if (limit < 0 || limit >= memory->machine_bytes) return; /* version 1 writes "no limit" as a large number */
    const int64_t used = number(folder, v2 ? "memory.current" : "memory.usage_in_bytes", "", 0);
    const int64_t cache = number(folder, "memory.stat", v2 ? "inactive_file " : "total_inactive_file ", 0);
    const int64_t working = used > cache ? used - cache : 0;
    memory->total_bytes = lesser(memory->total_bytes, limit);
    memory->free_bytes = lesser(memory->free_bytes, limit > working ? limit - working : 0);
}

/* A line of /proc/meminfo, in bytes; if it has none, pages by the C library. */
static int64_t machine(const char *root, const char *key, int pages) {
    char folder[MM_GROUP_PATH_CAPACITY];
    snprintf(folder, sizeof folder, "%s/proc", root);
    const int64_t kib = number(folder, "meminfo", key, -1);
    return kib >= 0 ? kib * 1024 : (int64_t)sysconf(pages) * sysconf(_SC_PAGESIZE);
}

void mm_host_memory_get_in(const char *root, mm_host_memory *memory_out) {
    const int64_t total = machine(root, "MemTotal:", _SC_PHYS_PAGES);
    const int64_t available = machine(root, "MemAvailable:", _SC_AVPHYS_PAGES);
    mm_host_memory memory = {.machine_bytes = total, .total_bytes = total, .free_bytes = lesser(available, total)};
    mm_groups_visit(root, "memory", look_at, &memory);
    *memory_out = memory;
}

void mm_host_memory_get(mm_host_memory *memory_out) {
    if (memory_out) mm_host_memory_get_in("", memory_out);
}
