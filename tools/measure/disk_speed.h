/* SPDX-License-Identifier: MIT */
/* The rates of a disk, as stores and loads have them: large accesses that follow each other. */
#ifndef TOOLS_MEASURE_DISK_SPEED_H
#define TOOLS_MEASURE_DISK_SPEED_H

#include <stdbool.h>

#include "mm/core/status.h"

typedef struct disk_speed {
    int64_t store_bytes_per_s, load_bytes_per_s;
    int64_t latency_ns; /* of an access of one block, beyond its bytes at these rates */
    bool direct;        /* accesses bypass the page cache; else the rates may be those of memory */
} disk_speed;

/* Writes and reads a file without a name in the directory, of at most `bytes`, for about a second. MM_ERR_IO,
 * MM_ERR_INVALID, MM_ERR_NOMEM. */
MM_CHECKED mm_status disk_speed_measure(const char *directory, int64_t bytes, disk_speed *speed_out);

#endif
