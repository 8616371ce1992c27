/* SPDX-License-Identifier: MIT */
/* Disk: one file without a name in a directory, as a place for bytes that are not needed soon. It is gone when the
 * process ends, however that happens. Accesses bypass the page cache (O_DIRECT) where the file system can do that, so
 * that what lies on the disk does not take the memory that it was to free.
 *
 * An access is one call of the kernel, which splits a large one and keeps the device busy with its parts. Any thread
 * may read and write; accesses at one time must not have a block of MM_DISK_BLOCK bytes in common, unless all read. */
#ifndef BUFFERS_DISK_H
#define BUFFERS_DISK_H

#include <sys/types.h>

#include "mm/core/status.h"

/* Offsets are multiples of this. The last block of a write is written whole: beyond the bytes, it is zero. */
enum { MM_DISK_BLOCK = 4096 };

typedef struct mm_disk mm_disk;

/* The system's calls; a test puts its own here, which fail. */
typedef struct mm_disk_io {
    ssize_t (*write)(int file, const void *data, size_t bytes, off_t offset);
    ssize_t (*read)(int file, void *data, size_t bytes, off_t offset);
} mm_disk_io;

/* Checks options of `caller` (mm_options.disk): a directory and a limit, or neither. MM_ERR_INVALID. */
MM_CHECKED mm_status mm_disk_check_options(const char *caller, const char *directory, int64_t bytes,
                                           int64_t bytes_per_s);

/* Creates the file; it may grow to `bytes`. MM_ERR_INVALID: the directory does not exist, or takes no file;
 * MM_ERR_NOMEM. The caller destroys it. */
MM_CHECKED mm_status mm_disk_create(const char *directory, int64_t bytes, mm_disk **disk_out);
/* Nothing may use it any more. NULL is legal. */
void mm_disk_destroy(mm_disk *disk);

int64_t mm_disk_bytes(const mm_disk *disk);

/* Takes the first `bytes` of the file from the file system, so that it cannot be full later (where it can promise
 * that). MM_ERR_IO: it has no room for them, or fails; MM_ERR_INVALID: they exceed the file's limit. */
MM_CHECKED mm_status mm_disk_reserve(mm_disk *disk, int64_t bytes);

/* Blocking. MM_ERR_IO: the disk is full or fails, or what is read is not there: also what a write was to put there that
 * failed, until another succeeds. The message names the directory. Not MM_ERR_NOMEM: less memory for plans would not
 * help. */
MM_CHECKED mm_status mm_disk_write(mm_disk *disk, int64_t offset, const void *data, int64_t bytes);
MM_CHECKED mm_status mm_disk_read(mm_disk *disk, int64_t offset, void *data, int64_t bytes);

/* The same from any offset on. A write keeps the other bytes of its first and its last block, which must be there. */
MM_CHECKED mm_status mm_disk_write_part(mm_disk *disk, int64_t offset, const void *data, int64_t bytes);
MM_CHECKED mm_status mm_disk_read_part(mm_disk *disk, int64_t offset, void *data, int64_t bytes);

/* Whether accesses bypass the page cache. */
bool mm_disk_is_direct(const mm_disk *disk);

/* Replaces the system's calls, for tests; borrowed. NULL: the system's. */
void mm_disk_set_io(mm_disk *disk, const mm_disk_io *io);

#endif
