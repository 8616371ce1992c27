#include "nets/io/temp_file.h"

#include "mm/core/status.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ATTEMPTS    100
#define MAX_WRITE_BYTES (INT64_C(1) << 30)

static mm_status fail_errno(const char *path, const char *what) {
    int error = errno;
    return mm_fail(error == ENOMEM ? MM_ERR_NOMEM : MM_ERR_IO, "%s: %s: %s", path, what, strerror(error));
}

/* The name behind links, so that a link keeps pointing at what is replaced. A name that does not exist yet stays. */
static mm_status resolve(const char *path, char **resolved_out) {
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return mm_fail(MM_ERR_IO, "%s: cannot be written: not a regular file", path);
    char *resolved = realpath(path, NULL);
    if (!resolved && errno == ENOENT) resolved = strdup(path);
    if (!resolved) return fail_errno(path, "cannot be written");
    *resolved_out = resolved;
    return MM_OK;
}

/* Whether the open file is still that of this name: who had it before may have given it its final name, or removed it.
 * A file of several names is somebody's, put there to be written over. */
static bool is_still(int fd, const char *temp_path) {
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(temp_path, &named) == 0 && S_ISREG(opened.st_mode) &&
           opened.st_nlink == 1 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* Whoever writes a temporary file holds its lock, which ends with its process: a file that is not locked is what a
 * killed run left. -1: it is another's, or cannot be written; then errno tells which. */
static int claim(const char *temp_path) {
    const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    bool own = true;
    int fd = open(temp_path, flags | O_EXCL, 0666);
    if (fd < 0 && errno == EEXIST) {
        own = false;
        fd = open(temp_path, flags, 0666);
        if (fd < 0) errno = EEXIST; /* a folder, a link, a file of somebody else */
    }
    if (fd < 0) return -1;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) locked = own; /* a file system without locks: what is there stays there */
    if (locked && is_still(fd, temp_path) && ftruncate(fd, 0) == 0) return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

/* Names that are the same for all processes instead of mkstemp's, which also would make the file private. */
static int open_beside(const char *path, char **temp_path_out) {
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        char *temp_path;
        if (asprintf(&temp_path, "%s.%d.tmp", path, i) < 0) {
            errno = ENOMEM;
            return -1;
        }
        int fd = claim(temp_path);
        if (fd >= 0) {
            *temp_path_out = temp_path;
            return fd;
        }
        int error = errno;
        free(temp_path);
        errno = error;
        if (error != EEXIST) return -1;
    }
    return -1;
}

mm_status nets_temp_file_create(const char *path, nets_temp_file *file_out) {
    char *resolved = NULL, *temp_path = NULL;
    if (!path[0]) return mm_fail(MM_ERR_INVALID, "no file name given to write to");
    MM_TRY(resolve(path, &resolved));
    int fd = open_beside(resolved, &temp_path);
    if (fd < 0) {
        mm_status status = fail_errno(path, "cannot be written");
        free(resolved);
        return status;
    }
    *file_out = (nets_temp_file){.path = resolved, .temp_path = temp_path, .fd = fd};
    return MM_OK;
}

mm_status nets_temp_file_write(nets_temp_file *file, const void *bytes, int64_t n_bytes) {
    const char *from = bytes;
    while (n_bytes > 0) {
        ssize_t written = write(file->fd, from, (size_t)(n_bytes < MAX_WRITE_BYTES ? n_bytes : MAX_WRITE_BYTES));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(file->path, "writing failed");
        from += written;
        n_bytes -= written;
    }
    return MM_OK;
}

/* A rename is on disk when its folder is. Some file systems cannot sync folders; the file is whole either way. */
static void sync_folder_of(char *path) {
    int fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

mm_status nets_temp_file_commit(nets_temp_file *file) {
    int failed = fsync(file->fd) != 0;
    if (!failed) failed = rename(file->temp_path, file->path) != 0;
    if (failed) {
        mm_status status = fail_errno(file->path, "writing failed");
        nets_temp_file_abandon(file);
        return status;
    }
    close(file->fd);
    sync_folder_of(file->path);
    free(file->temp_path);
    free(file->path);
    return MM_OK;
}

void nets_temp_file_abandon(nets_temp_file *file) {
    close(file->fd);
    unlink(file->temp_path);
    free(file->temp_path);
    free(file->path);
}
