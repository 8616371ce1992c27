/* A file that appears under its name only when it is complete.
 *
 * Until then it is PATH.N.tmp, locked by its writer. Several processes, or several threads, may write one PATH at a time:
 * each has an N of its own, and PATH is what was committed last. A writer that is killed leaves its file, which is not
 * locked any more: the next writer of PATH takes it over. */
#ifndef NETS_IO_TEMP_FILE_H
#define NETS_IO_TEMP_FILE_H

#include "mm/mm.h"

typedef struct nets_temp_file {
    char *path;      /* the final one, links resolved */
    char *temp_path; /* beside it */
    int fd;
} nets_temp_file;

/* Makes an empty file beside `path`, with the mode that a new file has, or empties one that was left over. MM_ERR_IO: the folder is missing or cannot be
 * written, or `path` is something other than a regular file. Ends with commit or abandon. */
MM_CHECKED mm_status nets_temp_file_create(const char *path, nets_temp_file *file_out);

MM_CHECKED mm_status nets_temp_file_write(nets_temp_file *file, const void *bytes, int64_t n_bytes);

/* Brings it to disk and gives it its name. On failure it is gone, as after abandon. */
MM_CHECKED mm_status nets_temp_file_commit(nets_temp_file *file);

/* Removes it. */
void nets_temp_file_abandon(nets_temp_file *file);

#endif
