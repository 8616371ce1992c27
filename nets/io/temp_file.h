/* A file that appears under its name only when it is complete.
 *
 * Until then its name is PATH.N.tmp, and its writer holds a lock on it. Several processes or threads may write one PATH
 * at the same time: each has an N of its own, and the last commit wins. A killed writer leaves its file without the
 * lock; the next writer of PATH uses it again. */
#ifndef NETS_IO_TEMP_FILE_H
#define NETS_IO_TEMP_FILE_H

#include "mm/mm.h"

typedef struct nets_temp_file {
    char *path;      /* the final name, with links resolved */
    char *temp_path; /* in the same folder */
    int fd;
} nets_temp_file;

/* Creates an empty temporary file for `path` with a new file's mode, or empties one that was left over. The caller
 * calls commit or abandon. MM_ERR_IO: the folder is missing or cannot be written, or `path` is not a regular file. */
MM_CHECKED mm_status nets_temp_file_create(const char *path, nets_temp_file *file_out);

MM_CHECKED mm_status nets_temp_file_write(nets_temp_file *file, const void *bytes, int64_t n_bytes);

/* Flushes the file to disk and gives it its final name. On failure it is removed, as by abandon. */
MM_CHECKED mm_status nets_temp_file_commit(nets_temp_file *file);

/* Removes the temporary file. */
void nets_temp_file_abandon(nets_temp_file *file);

#endif
