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

mm_status mm_file_replace(const char *what, const char *path, mm_file_writer writer, const void *ctx) {
    char *target = realpath(path, NULL); /* NULL: there is no file yet */
    mm_status status = replace(what, path, target ? target : path, writer, ctx);
    free(target);
    return status;
}
