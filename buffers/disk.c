/* SPDX-License-Identifier: MIT */
#include "buffers/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mm/core/plan/interval_map.h"
#include "mm/core/size.h"
#include "mm/core/text.h"

struct mm_disk {
    char *directory; /* for messages */
    int64_t bytes;
    int file;
    bool direct;
    int64_t memory_align; /* of addresses from which direct accesses may move bytes */
    const mm_disk_io *io;
    pthread_mutex_t lock;
    mm_interval_map lost; /* tag 1: a write failed there, and none has succeeded since */
    bool all_lost;        /* there was no memory to note where */
};

static const mm_disk_io system_io = {pwrite, pread};

/* ---------------------------------------------------------------- life */

/* A file without a name; where the file system has none, one whose name is removed at once. -1: errno. */
static int open_unnamed(const char *directory) {
    const int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
    char path[4096];
    if (snprintf(path, sizeof path, "%s/mm-disk-XXXXXX", directory) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0) unlink(path);
    return named;
}

/* Whether the file takes direct accesses. Some file systems accept the flag and refuse the access. */
static bool make_direct(int file) {
    const int flags = fcntl(file, F_GETFL);
    if (flags < 0 || fcntl(file, F_SETFL, flags | O_DIRECT) != 0) return false;
    _Alignas(MM_DISK_BLOCK) uint8_t block[MM_DISK_BLOCK] = {0};
    if (pwrite(file, block, sizeof block, 0) == (ssize_t)sizeof block &&
        pread(file, block, sizeof block, 0) == (ssize_t)sizeof block)
        return true;
    (void)!fcntl(file, F_SETFL, flags);
    return false;
}

/* What addresses direct accesses take: those of the device's DMA, mostly any word. A block if the kernel does not say
 * it. */
static int64_t memory_align_of(int file) {
#ifdef STATX_DIOALIGN
    struct statx info; /* by the system call: glibc has a function since 2.28, and libmm.so loads with 2.17 */
    if (syscall(SYS_statx, file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_mem_align > 0)
        return info.stx_dio_mem_align;
#endif
    (void)file;
    return MM_DISK_BLOCK;
}

mm_status mm_disk_check_options(const char *caller, const char *directory, int64_t bytes, int64_t bytes_per_s) {
    if (bytes >= 0 && bytes_per_s >= 0 && !directory == (bytes == 0)) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "%s: disk is %s, disk_bytes %lld, disk_bytes_per_s %lld: a disk needs a directory and a limit, and "
                   "nothing may be below 0",
                   caller, directory ? "given" : "NULL", (long long)bytes, (long long)bytes_per_s);
}

mm_status mm_disk_create(const char *directory, int64_t bytes, mm_disk **disk_out) {
    mm_disk *disk = calloc(1, sizeof *disk);
    char *name = strdup(directory);
    if (!disk || !name) {
        free(disk);
        free(name);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the disk %s", MM_BRIEF(directory));
    }
    *disk = (mm_disk){.directory = name, .bytes = bytes, .file = open_unnamed(directory), .io = &system_io};
    if (disk->file < 0) {
        const mm_status status = mm_fail(MM_ERR_INVALID, "disk %s: cannot create a file in this directory: %s",
                                         MM_BRIEF(directory), strerror(errno));
        free(disk->directory);
        free(disk);
        return status;
    }
    disk->direct = make_direct(disk->file);
    disk->memory_align = disk->direct ? memory_align_of(disk->file) : 1;
    pthread_mutex_init(&disk->lock, NULL);
    *disk_out = disk;
    return MM_OK;
}

void mm_disk_destroy(mm_disk *disk) {
    if (!disk) return;
    close(disk->file);
    pthread_mutex_destroy(&disk->lock);
    free(disk->lost.runs);
    free(disk->directory);
    free(disk);
}

int64_t mm_disk_bytes(const mm_disk *disk) { return disk->bytes; }

bool mm_disk_is_direct(const mm_disk *disk) { return disk->direct; }

void mm_disk_set_io(mm_disk *disk, const mm_disk_io *io) { disk->io = io ? io : &system_io; }

mm_status mm_disk_reserve(mm_disk *disk, int64_t bytes) {
    if (bytes > disk->bytes)
        return mm_fail(MM_ERR_INVALID, "disk %s: %s are asked for, its limit is %s", MM_BRIEF(disk->directory),
                       MM_SIZE_TEXT(bytes), MM_SIZE_TEXT(disk->bytes));
    const int64_t whole = (bytes + MM_DISK_BLOCK - 1) / MM_DISK_BLOCK * MM_DISK_BLOCK;
    if (whole == 0) return MM_OK;
    while (fallocate(disk->file, 0, 0, whole) != 0) {
        if (errno == EINTR) continue;
        if (errno == EOPNOTSUPP || errno == ENOSYS) return MM_OK; /* writes will say if it is full */
        return mm_fail(MM_ERR_IO, "disk %s: cannot reserve %s: %s", MM_BRIEF(disk->directory), MM_SIZE_TEXT(whole),
                       strerror(errno));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- accesses */

static mm_status failed(const mm_disk *disk, const char *what, int64_t bytes, int64_t offset, int error) {
    return mm_fail(MM_ERR_IO, "disk %s: cannot %s %lld bytes at %lld: %s", MM_BRIEF(disk->directory), what,
                   (long long)bytes, (long long)offset, error ? strerror(error) : "they are not there");
}

static mm_status write_all(const mm_disk *disk, int64_t offset, const uint8_t *data, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = disk->io->write(disk->file, data + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return failed(disk, "write", bytes - done, offset + done, n < 0 ? errno : ENOSPC);
        done += n;
    }
    return MM_OK;
}

static mm_status read_all(const mm_disk *disk, int64_t offset, uint8_t *data, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = disk->io->read(disk->file, data + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return failed(disk, "read", bytes - done, offset + done, n < 0 ? errno : 0);
        done += n;
    }
    return MM_OK;
}

/* Bytes from the beginning that an access may move as they are: whole blocks at an aligned address. The rest goes
 * through a buffer of our own, BOUNCE bytes at a time. */
enum { BOUNCE = 16 * MM_DISK_BLOCK };
static int64_t as_they_are(const mm_disk *disk, const void *data, int64_t bytes) {
    return (int64_t)((uintptr_t)data % (uintptr_t)disk->memory_align) == 0 ? bytes / MM_DISK_BLOCK * MM_DISK_BLOCK : 0;
}

static int64_t padded(int64_t bytes) { return (bytes + MM_DISK_BLOCK - 1) / MM_DISK_BLOCK * MM_DISK_BLOCK; }

static mm_status check(const mm_disk *disk, int64_t offset, int64_t bytes) {
    if (offset >= 0 && bytes >= 0 && offset % MM_DISK_BLOCK == 0 && offset <= disk->bytes - bytes) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "disk %s: %lld bytes at %lld: not at a block, or beyond the limit of %lld bytes",
                   MM_BRIEF(disk->directory), (long long)bytes, (long long)offset, (long long)disk->bytes);
}

/* Notes whether a write has failed. */
static void note(mm_disk *disk, int64_t offset, int64_t bytes, bool failed) {
    pthread_mutex_lock(&disk->lock);
    if (bytes > 0 && (failed || disk->lost.n > 0))
        disk->all_lost |= !mm_interval_map_tag(&disk->lost, offset, offset + bytes, failed);
    pthread_mutex_unlock(&disk->lock);
}

static mm_status check_there(mm_disk *disk, int64_t offset, int64_t bytes) {
    pthread_mutex_lock(&disk->lock);
    bool lost = disk->all_lost;
    for (size_t i = mm_interval_map_find(&disk->lost, offset); i < disk->lost.n; i++)
        lost |= disk->lost.runs[i].begin < offset + bytes && disk->lost.runs[i].tag;
    pthread_mutex_unlock(&disk->lock);
    if (!lost) return MM_OK;
    return mm_fail(MM_ERR_IO, "disk %s: cannot read %lld bytes at %lld: they could not be written",
                   MM_BRIEF(disk->directory), (long long)bytes, (long long)offset);
}

static mm_status write_padded(mm_disk *disk, int64_t offset, const void *data, int64_t bytes) {
    _Alignas(MM_DISK_BLOCK) uint8_t bounce[BOUNCE];
    int64_t done = as_they_are(disk, data, bytes);
    MM_TRY(write_all(disk, offset, data, done));
    while (done < bytes) {
        const int64_t now = bytes - done < BOUNCE ? bytes - done : BOUNCE;
        memcpy(bounce, (const uint8_t *)data + done, (size_t)now);
        memset(bounce + now, 0, (size_t)(padded(now) - now));
        MM_TRY(write_all(disk, offset + done, bounce, padded(now)));
        done += now;
    }
    return MM_OK;
}

mm_status mm_disk_write(mm_disk *disk, int64_t offset, const void *data, int64_t bytes) {
    MM_TRY(check(disk, offset, bytes));
    const mm_status status = write_padded(disk, offset, data, bytes);
    note(disk, offset, padded(bytes), status != MM_OK);
    return status;
}

mm_status mm_disk_read(mm_disk *disk, int64_t offset, void *data, int64_t bytes) {
    _Alignas(MM_DISK_BLOCK) uint8_t bounce[BOUNCE];
    int64_t done = as_they_are(disk, data, bytes);
    MM_TRY(check(disk, offset, bytes));
    MM_TRY(check_there(disk, offset, bytes));
    MM_TRY(read_all(disk, offset, data, done));
    while (done < bytes) {
        const int64_t now = bytes - done < BOUNCE ? bytes - done : BOUNCE;
        MM_TRY(read_all(disk, offset + done, bounce, padded(now)));
        memcpy((uint8_t *)data + done, bounce, (size_t)now);
        done += now;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- from any offset on */

/* The part of an access that begins at an offset: whole blocks, or what is in one. */
typedef struct part {
    int64_t block; /* offset of its first block */
    int64_t at;    /* where it begins in that block */
    int64_t bytes;
    bool whole; /* of whole blocks */
} part;

static part part_at(int64_t offset, int64_t bytes) {
    const int64_t at = offset % MM_DISK_BLOCK;
    if (at == 0 && bytes >= MM_DISK_BLOCK) return (part){offset, 0, bytes / MM_DISK_BLOCK * MM_DISK_BLOCK, true};
    return (part){offset - at, at, bytes < MM_DISK_BLOCK - at ? bytes : MM_DISK_BLOCK - at, false};
}

mm_status mm_disk_write_part(mm_disk *disk, int64_t offset, const void *data, int64_t bytes) {
    _Alignas(MM_DISK_BLOCK) uint8_t block[MM_DISK_BLOCK];
    for (int64_t done = 0; done < bytes;) {
        const uint8_t *from = (const uint8_t *)data + done;
        const part p = part_at(offset + done, bytes - done);
        if (!p.whole) {
            MM_TRY(mm_disk_read(disk, p.block, block, sizeof block));
            memcpy(block + p.at, from, (size_t)p.bytes);
        }
        MM_TRY(mm_disk_write(disk, p.block, p.whole ? from : block, p.whole ? p.bytes : (int64_t)sizeof block));
        done += p.bytes;
    }
    return MM_OK;
}

mm_status mm_disk_read_part(mm_disk *disk, int64_t offset, void *data, int64_t bytes) {
    _Alignas(MM_DISK_BLOCK) uint8_t block[MM_DISK_BLOCK];
    for (int64_t done = 0; done < bytes;) {
        uint8_t *to = (uint8_t *)data + done;
        const part p = part_at(offset + done, bytes - done);
        MM_TRY(mm_disk_read(disk, p.block, p.whole ? to : block, p.whole ? p.bytes : (int64_t)sizeof block));
        if (!p.whole) memcpy(to, block + p.at, (size_t)p.bytes);
        done += p.bytes;
    }
    return MM_OK;
}
