/* SPDX-License-Identifier: MIT */
#include "tools/train/host_memory.h"

#include <stdio.h>

/* The process's peak of resident memory ("high-water mark"), in bytes; 0: unknown. */
static int64_t most_resident(void) {
    char line[128];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && kib == 0 && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %lld kB", &kib);
    if (file) fclose(file);
    return (int64_t)kib * 1024;
}

/* Resets the peak: Linux does when 5 is written here (proc(5)). False: refused, as in some containers. */
static bool count_anew(void) {
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (!file) return false;
    bool written = fputs("5", file) >= 0;
    return fclose(file) == 0 && written;
}

void host_memory_begin(host_memory *memory) {
    memory->counted_anew = count_anew();
    memory->before_bytes = most_resident();
}

int64_t host_memory_peak(const host_memory *memory) {
    int64_t most = most_resident();
    return memory->counted_anew || most > memory->before_bytes ? most : 0;
}
