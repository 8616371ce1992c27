/* SPDX-License-Identifier: MIT */
#include "tools/measure/disk_speed.h"

#include <stdlib.h>
#include <string.h>

#include "buffers/disk.h"
#include "mm/device/contract/clock.h"

/* Bytes of an access and of the file, how often one block is read, and how long each rate is measured at most. Chosen:
 * an access is as large as a feature map of some MiB, the file too large for the cache of most drives' controllers. */
enum { ACCESS_BYTES = 16 << 20, ACCESSES = 32, BLOCKS = 64 };
static const int64_t MOST_NS = 1000000000;

/* Accesses of `size` bytes one after the other; returns by *ns_out how long one took. */
static mm_status repeat(mm_disk *disk, uint8_t *data, int64_t size, int most, bool write, double *ns_out) {
    const int64_t room = mm_disk_bytes(disk) / size;
    const int64_t begin = mm_now_ns();
    int n = 0;
    for (; n < most && n < room && (n == 0 || mm_now_ns() - begin < MOST_NS); n++)
        MM_TRY(write ? mm_disk_write(disk, n * size, data, size) : mm_disk_read(disk, n * size, data, size));
    *ns_out = (double)(mm_now_ns() - begin) / n;
    return MM_OK;
}

static mm_status measure(mm_disk *disk, uint8_t *data, int64_t size, disk_speed *out) {
    double store, load, block;
    MM_TRY(repeat(disk, data, size, ACCESSES, true, &store)); /* takes the file's blocks from the file system */
    MM_TRY(repeat(disk, data, size, ACCESSES, true, &store));
    MM_TRY(repeat(disk, data, size, ACCESSES, false, &load));
    MM_TRY(repeat(disk, data, MM_DISK_BLOCK, BLOCKS, false, &block));
    const double beyond = block - load * MM_DISK_BLOCK / (double)size;
    *out = (disk_speed){.store_bytes_per_s = (int64_t)((double)size * 1e9 / store),
                        .load_bytes_per_s = (int64_t)((double)size * 1e9 / load),
                        .latency_ns = beyond > 0 ? (int64_t)beyond : 0,
                        .direct = mm_disk_is_direct(disk)};
    return MM_OK;
}

mm_status disk_speed_measure(const char *directory, int64_t bytes, disk_speed *speed_out) {
    const int64_t most = bytes < (int64_t)ACCESSES * ACCESS_BYTES ? bytes : (int64_t)ACCESSES * ACCESS_BYTES;
    const int64_t size = (most < ACCESS_BYTES ? most : ACCESS_BYTES) / MM_DISK_BLOCK * MM_DISK_BLOCK;
    if (size == 0)
        return mm_fail(MM_ERR_INVALID, "disk %s: too small to be measured: less than %d bytes", directory,
                       MM_DISK_BLOCK);
    mm_disk *disk;
    MM_TRY(mm_disk_create(directory, most, &disk));
    uint8_t *data = aligned_alloc(MM_DISK_BLOCK, (size_t)size);
    mm_status status = data ? mm_disk_reserve(disk, most) : mm_fail(MM_ERR_NOMEM, "out of memory to measure a disk");
    if (data) memset(data, 0x5a, (size_t)size);
    if (status == MM_OK) status = measure(disk, data, size, speed_out);
    free(data);
    mm_disk_destroy(disk);
    return status;
}
