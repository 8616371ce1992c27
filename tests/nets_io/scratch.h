/* SPDX-License-Identifier: MIT */
/* Shared by the tests of this folder: a temporary folder, and a count of files left in it. */
#ifndef TESTS_NETS_IO_SCRATCH_H
#define TESTS_NETS_IO_SCRATCH_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* State of a case with a folder of its own: `file` is a path in it. */
typedef struct scratch_folder {
    char path[PATH_MAX], file[PATH_MAX];
} scratch_folder;

int scratch_setup(void **state);
int scratch_teardown(void **state);

/* Creates an empty folder. */
void scratch_create(char path_out[static PATH_MAX]);
/* Removes a folder with all its content. */
void scratch_remove(const char *path);

/* Writes "dir/name"; returns path_out. */
const char *scratch_join(const char *dir, const char *name, char path_out[static PATH_MAX]);
void scratch_write(const char *path, const void *bytes, size_t n_bytes);
/* The file's bytes. The caller frees them. */
uint8_t *scratch_read(const char *path, size_t *n_bytes_out);
/* Creates a sparse file of `n_bytes` zeros, which takes no room on the disk. */
void scratch_write_sparse(const char *path, int64_t n_bytes);
/* Number of names in a folder. */
int scratch_count(const char *dir);

#endif
