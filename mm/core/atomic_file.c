/* SPDX-License-Identifier: MIT */
#include "mm/core/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
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

/* Replaces *path by the target of the link that it is, relative to the link's folder. *more_out: it was a link. */
static mm_status follow(char **path, bool *more_out) {
    enum { TARGET_MOST = 4096 };
    char target[TARGET_MOST];
    const ssize_t n = readlink(*path, target, sizeof target);
    const char *slash = strrchr(*path, '/');
    const size_t folder = n > 0 && target[0] != '/' && slash ? (size_t)(slash + 1 - *path) : 0;
    *more_out = n > 0 && n < TARGET_MOST;
    if (!*more_out) return MM_OK;
    char *leads_to = malloc(folder + (size_t)n + 1);
    if (!leads_to) return mm_fail(MM_ERR_NOMEM, "%s: out of memory to follow the link", *path);
    memcpy(leads_to, *path, folder);
    memcpy(leads_to + folder, target, (size_t)n);
    leads_to[folder + (size_t)n] = '\0';
    free(*path);
    *path = leads_to;
    return MM_OK;
}

/* The descriptor that the path names: /dev/stdout, /dev/fd/63 of a shell's >(...); -1: it names none. */
static int descriptor_of(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *digits = path + strlen(folders[i]);
        if (strncmp(path, folders[i], strlen(folders[i])) != 0 || !*digits || strlen(digits) > 6) continue;
        if (digits[strspn(digits, "0123456789")] == '\0') return atoi(digits);
    }
    return -1;
}

bool mm_atomic_file_is_stream(const char *path) {
    struct stat info;
    return descriptor_of(path) >= 0 || (stat(path, &info) == 0 && (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode)));
}

/* A descriptor that the process has is duplicated, not opened again: so it keeps its place in a file. What stdio holds
 * back for standard output goes there first. */
static mm_status open_stream(const char *path, mm_atomic_file *file_out) {
    const int named = descriptor_of(path);
    if (named == STDOUT_FILENO) fflush(stdout);
    const int fd = named >= 0 ? fcntl(named, F_DUPFD_CLOEXEC, 0) : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    char *copy = fd >= 0 ? strdup(path) : NULL;
    if (!copy) {
        mm_status status = fail_errno(path, "cannot be written");
        if (fd >= 0) close(fd);
        return status;
    }
    *file_out = (mm_atomic_file){.path = copy, .fd = fd};
    return MM_OK;
}

/* Follows links to the file that they lead to, which need not exist. So links stay, and that file is replaced, or
 * made. */
static mm_status resolve(const char *path, char **resolved_out) {
    enum { LINKS_MOST = 40 }; /* as many as the kernel follows (path_resolution(7)) */
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return mm_fail(MM_ERR_IO, "%s: cannot be written: not a regular file", path);
    char *file = realpath(path, NULL);
    if (!file && errno == ENOENT) file = strdup(path);
    if (!file) return fail_errno(path, "cannot be written");
    mm_status status = MM_OK;
    bool more = true;
    for (int i = 0; i < LINKS_MOST && more && status == MM_OK; i++) status = follow(&file, &more);
    if (status != MM_OK) {
        free(file);
        return status;
    }
    *resolved_out = file;
    return MM_OK;
}

/* Whether the open file still has this name: another process may have given it its final name, or removed it. False for
 * a file with several names (hard links): somebody else may have put it there so that we overwrite another file. */
static bool is_still(int fd, const char *temp_path) {
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(temp_path, &named) == 0 && S_ISREG(opened.st_mode) &&
           opened.st_nlink == 1 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* Removes a temporary file that a killed process left: its writer holds a lock, which ends with the process. The file
 * is not reused, because its mode may differ from that of a new one. */
static bool remove_left(const char *temp_path) {
    int fd = open(temp_path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false; /* a folder, a link, a file of somebody else */
    bool removed = flock(fd, LOCK_EX | LOCK_NB) == 0 && is_still(fd, temp_path) && unlink(temp_path) == 0;
    close(fd);
    return removed;
}

/* Creates a file of this name, and locks it. -1: another process has it (errno is EEXIST), or it cannot be created. */
static int claim(const char *temp_path) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(temp_path, flags, 0666);
    if (fd < 0 && errno == EEXIST) {
        fd = remove_left(temp_path) ? open(temp_path, flags, 0666) : -1;
        if (fd < 0) errno = EEXIST;
    }
    if (fd < 0) return -1;
    /* Errors other than EWOULDBLOCK mean that the file system has no locks; on such a file system, the files of killed
     * processes stay. */
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (locked && is_still(fd, temp_path)) return fd; /* no other process removed it before it was locked */
    close(fd);
    errno = EEXIST;
    return -1;
}

/* Uses the same names in all processes, to find files of killed ones. mkstemp would also make the file private. */
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

mm_status mm_atomic_file_create(const char *path, mm_atomic_file *file_out) {
    char *resolved = NULL, *temp_path = NULL;
    if (!path[0]) return mm_fail(MM_ERR_INVALID, "no file name given to write to");
    if (mm_atomic_file_is_stream(path)) return open_stream(path, file_out);
    MM_TRY(resolve(path, &resolved));
    int fd = open_beside(resolved, &temp_path);
    if (fd < 0) {
        mm_status status = fail_errno(path, "cannot be written");
        free(resolved);
        return status;
    }
    *file_out = (mm_atomic_file){.path = resolved, .temp_path = temp_path, .fd = fd};
    return MM_OK;
}

mm_status mm_atomic_file_check(const char *path) {
    mm_atomic_file file;
    const int fd = descriptor_of(path);
    if (fd >= 0 ? fcntl(fd, F_GETFL) < 0 : mm_atomic_file_is_stream(path) && access(path, W_OK) != 0)
        return fail_errno(path, "cannot be written");
    if (mm_atomic_file_is_stream(path)) return MM_OK;
    MM_TRY(mm_atomic_file_create(path, &file));
    mm_atomic_file_abandon(&file);
    return MM_OK;
}

mm_status mm_atomic_file_write(mm_atomic_file *file, const void *bytes, int64_t n_bytes) {
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

/* A rename is safe on disk only once the folder has been synced. Some file systems cannot sync folders; the file is
 * whole either way. */
static void sync_folder_of(char *path) {
    int fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

mm_status mm_atomic_file_commit(mm_atomic_file *file) {
    if (!file->temp_path) {
        mm_atomic_file_abandon(file);
        return MM_OK;
    }
    int failed = fsync(file->fd) != 0;
    if (!failed) failed = rename(file->temp_path, file->path) != 0;
    if (failed) {
        mm_status status = fail_errno(file->path, "writing failed");
        mm_atomic_file_abandon(file);
        return status;
    }
    close(file->fd);
    sync_folder_of(file->path);
    free(file->temp_path);
    free(file->path);
    return MM_OK;
}

void mm_atomic_file_abandon(mm_atomic_file *file) {
    close(file->fd);
    if (file->temp_path) unlink(file->temp_path);
    free(file->temp_path);
    free(file->path);
}

static mm_status commit_if(mm_status status, mm_atomic_file *file) {
    if (status == MM_OK) return mm_atomic_file_commit(file);
    mm_atomic_file_abandon(file);
    return status;
}

mm_status mm_atomic_file_save(const char *path, const void *bytes, size_t n_bytes) {
    mm_atomic_file file;
    MM_TRY(mm_atomic_file_create(path, &file));
    return commit_if(mm_atomic_file_write(&file, bytes, (int64_t)n_bytes), &file);
}

int mm_stream_errno(FILE *stream) {
    errno = 0;
    if (fflush(stream) != 0 && errno != 0) return errno;
    return write(fileno(stream), "\n", 1) < 0 ? errno : EIO;
}

static mm_status print_to(const mm_atomic_file *file, mm_file_writer writer, const void *ctx) {
    int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0); /* file->fd stays open, with its lock, until commit */
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (!stream) {
        mm_status status = fail_errno(file->path, "writing failed");
        if (fd >= 0) close(fd);
        return status;
    }
    mm_status status = writer(ctx, stream);
    if (status == MM_OK) fflush(stream);
    if (ferror(stream)) {
        errno = mm_stream_errno(stream);
        status = fail_errno(file->path, "writing failed");
    }
    if (fclose(stream) != 0 && status == MM_OK) status = fail_errno(file->path, "writing failed");
    return status;
}

mm_status mm_atomic_file_print(const char *path, mm_file_writer writer, const void *ctx) {
    mm_atomic_file file;
    MM_TRY(mm_atomic_file_create(path, &file));
    return commit_if(print_to(&file, writer, ctx), &file);
}
