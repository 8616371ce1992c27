/* SPDX-License-Identifier: MIT */
#include "tests/buffers/disk_fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

/* Global, because the system's calls have no context. */
static atomic_int accesses_left, current, fault_error;

static bool fails_now(void) {
    const int left = atomic_fetch_sub(&accesses_left, 1);
    return left == 0 || (left < 0 && atomic_load(&current) != DISK_FAULT_ONCE);
}

static ssize_t write_or_fail(int file, const void *data, size_t bytes, off_t offset) {
    if (!fails_now()) return pwrite(file, data, bytes, offset);
    errno = atomic_load(&fault_error) ? atomic_load(&fault_error) : ENOSPC;
    return -1;
}

static ssize_t read_or_fail(int file, void *data, size_t bytes, off_t offset) {
    if (atomic_load(&current) == DISK_FAULT_WRITES || !fails_now()) return pread(file, data, bytes, offset);
    errno = atomic_load(&fault_error);
    return errno ? -1 : 0;
}

void disk_fault_set(mm_disk *disk, disk_fault fault, int after, int error) {
    static const mm_disk_io io = {write_or_fail, read_or_fail};
    atomic_store(&accesses_left, after);
    atomic_store(&current, (int)fault);
    atomic_store(&fault_error, error);
    mm_disk_set_io(disk, &io);
}

bool disk_fault_end(mm_disk *disk) {
    mm_disk_set_io(disk, NULL);
    return atomic_load(&accesses_left) < 0;
}
