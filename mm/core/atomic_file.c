#include "mm/core/atomic_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mm_status failed(const char *what, const char *path) {
    return mm_fail(MM_ERR_IO, "%s: writing %s: %s", what, path, strerror(errno));
}

static mm_status fill(const char *what, const char *path, FILE *file, mm_file_writer writer, const void *ctx) {
    MM_TRY(writer(ctx, file));
    if (ferror(file) || fflush(file) != 0 || fchmod(fileno(file), 0644) != 0 || fsync(fileno(file)) != 0)
        return failed(what, path);
    return MM_OK;
}

static mm_status write_temporary(const char *what, const char *path, int fd, mm_file_writer writer, const void *ctx) {
    FILE *file = fdopen(fd, "w");
    if (!file) {
        close(fd);
        return failed(what, path);
    }
    mm_status status = fill(what, path, file, writer, ctx);
    if (fclose(file) != 0 && status == MM_OK) status = failed(what, path);
    return status;
}

/* what: for messages; named: the path by which the caller knows the file `path`. */
static mm_status replace(const char *what, const char *named, const char *path, mm_file_writer writer,
                         const void *ctx) {
    size_t capacity = strlen(path) + sizeof ".XXXXXX";
    char *temporary = malloc(capacity);
    if (!temporary) return mm_fail(MM_ERR_NOMEM, "out of memory for writing %s", named);
    snprintf(temporary, capacity, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    mm_status status;
    if (fd < 0) {
        status = mm_fail(MM_ERR_IO, "%s: no file can be made beside %s: %s", what, named, strerror(errno));
    } else {
        status = write_temporary(what, temporary, fd, writer, ctx);
        if (status == MM_OK && rename(temporary, path) != 0)
            status = mm_fail(MM_ERR_IO, "%s: %s cannot be replaced: %s", what, named, strerror(errno));
        if (status != MM_OK) unlink(temporary);
    }
    free(temporary);
    return status;
}

/* Where a link leads that leads to no file yet: its target, from the link's own folder. NULL: it is no link, or out of
 * memory. The caller frees it. */
static char *follow(const char *path) {
    enum { TARGET_MOST = 4096 };
    char target[TARGET_MOST];
    const ssize_t n = readlink(path, target, sizeof target);
    const char *slash = strrchr(path, '/');
    const size_t folder = n > 0 && target[0] != '/' && slash ? (size_t)(slash + 1 - path) : 0;
    if (n <= 0 || n == TARGET_MOST) return NULL;
    char *leads_to = malloc(folder + (size_t)n + 1);
    if (!leads_to) return NULL;
    memcpy(leads_to, path, folder);
    memcpy(leads_to + folder, target, (size_t)n);
    leads_to[folder + (size_t)n] = '\0';
    return leads_to;
}

/* The file behind a path and its links, which need not be there yet. The caller frees it. */
static mm_status find_target(const char *what, const char *path, char **target_out) {
    enum { LINKS_MOST = 40 }; /* as many as the kernel follows (path_resolution(7)) */
    char *file = realpath(path, NULL);
    if (!file) file = strdup(path);
    for (int i = 0; file; i++) {
        char *next = follow(file);
        if (!next) break;
        free(file);
        file = next;
        if (i < LINKS_MOST) continue;
        free(file);
        return mm_fail(MM_ERR_IO, "%s: writing %s: %s", what, path, strerror(ELOOP));
    }
    if (!file) return mm_fail(MM_ERR_NOMEM, "out of memory for writing %s", path);
    *target_out = file;
    return MM_OK;
}

mm_status mm_file_replace(const char *what, const char *path, mm_file_writer writer, const void *ctx) {
    char *target;
    MM_TRY(find_target(what, path, &target));
    mm_status status = replace(what, path, target, writer, ctx);
    free(target);
    return status;
}
