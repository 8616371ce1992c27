/* SPDX-License-Identifier: MIT */
/* A file that appears under its name only when it is complete. The library and the command mm write every file in this
 * way, except logs, which are read while they grow.
 *
 * While it is being written, its name is PATH.N.tmp, and its writer holds a lock on it. Several processes or threads
 * may write one PATH at the same time: each has an N of its own, and the last commit wins. A killed writer leaves its
 * file without a lock; the next writer of PATH removes it. A link at PATH stays: the file that it leads to is replaced,
 * or made. The file has the mode of a new one, 0666 less the umask.
 *
 * A pipe or a character device cannot be replaced. It is written in place, and so is a descriptor of the process:
 * /dev/stdout, /dev/stderr, /dev/fd/N. Nothing is written to it before mm_atomic_file_write. */
#ifndef MM_CORE_ATOMIC_FILE_H
#define MM_CORE_ATOMIC_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "mm/core/status.h"

typedef struct mm_atomic_file {
    char *path;      /* the final name, with links resolved */
    char *temp_path; /* in the same folder; NULL: `path` is written in place */
    int fd;
} mm_atomic_file;

/* Whether `path` is written in place. */
bool mm_atomic_file_is_stream(const char *path);

/* Creates an empty temporary file for `path`; opening a pipe waits for its reader. The caller calls commit or abandon.
 * MM_ERR_IO: the folder is missing or cannot be written, or `path` is a folder or something else that is no file.
 * MM_ERR_INVALID: `path` is "". */
MM_CHECKED mm_status mm_atomic_file_create(const char *path, mm_atomic_file *file_out);

/* Checks whether create would succeed, and leaves nothing behind. Does not open a pipe, whose reader would see its end.
 * Errors of create. */
MM_CHECKED mm_status mm_atomic_file_check(const char *path);

MM_CHECKED mm_status mm_atomic_file_write(mm_atomic_file *file, const void *bytes, int64_t n_bytes);

/* Flushes the file to disk and gives it its final name. On failure it is removed, as by abandon. */
MM_CHECKED mm_status mm_atomic_file_commit(mm_atomic_file *file);

/* Removes the temporary file. */
void mm_atomic_file_abandon(mm_atomic_file *file);

/* Creates, writes and commits a file whose contents are in memory. */
MM_CHECKED mm_status mm_atomic_file_save(const char *path, const void *bytes, size_t n_bytes);

/* Writes the contents. It need not check the stream for errors: the caller does. */
typedef mm_status (*mm_file_writer)(const void *ctx, FILE *stream);

/* Creates, writes and commits a file whose contents `writer` prints. Also returns the errors of `writer`. */
MM_CHECKED mm_status mm_atomic_file_print(const char *path, mm_file_writer writer, const void *ctx);

/* Why a write to the stream failed (ferror), as a value of errno. The C library does not keep it when it drops what was
 * buffered, so this writes one more byte to find out. EIO: that byte could be written. */
int mm_stream_errno(FILE *stream);

#endif
