/* SPDX-License-Identifier: MIT */
#include "tools/train/host_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include "mm/core/system_file.h"

/* The process's peak of resident memory ("high-water mark"), in bytes; 0: unknown. */
static int64_t most_resident(void) {
    char text[4096];
    const long long kib =
        mm_system_file_read("/proc/self/status", text, sizeof text) ? mm_system_file_number(text, "VmHWM:") : -1;
    return kib > 0 ? (int64_t)kib * 1024 : 0;
}

/* Resets the peak: Linux does when 5 is written here (proc(5)). False: refused, as in some containers. */
static bool count_anew(void) {
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool written = write(fd, "5", 1) == 1;
    close(fd);
    return written;
}

void host_memory_begin(host_memory *memory) {
    memory->counted_anew = count_anew();
    memory->before_bytes = most_resident();
}

int64_t host_memory_peak(const host_memory *memory) {
    int64_t most = most_resident();
    return memory->counted_anew || most > memory->before_bytes ? most : 0;
}
