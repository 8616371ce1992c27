/* SPDX-License-Identifier: MIT */
/* A disk of which accesses fail. One disk at a time; any thread may access it. */
#ifndef TESTS_BUFFERS_DISK_FAULT_H
#define TESTS_BUFFERS_DISK_FAULT_H

#include "buffers/disk.h"

typedef enum disk_fault {
    DISK_FAULT_ONCE,     /* one access fails */
    DISK_FAULT_FOR_GOOD, /* it and all later ones */
    DISK_FAULT_WRITES,   /* the same, but reads neither count nor fail */
} disk_fault;

/* From now on `after` accesses succeed; then they fail with this errno. error 0: what is read is not there, and for
 * what is written there is no room. */
void disk_fault_set(mm_disk *disk, disk_fault fault, int after, int error);
/* The disk works again. Returns whether an access failed. */
bool disk_fault_end(mm_disk *disk);

#endif
