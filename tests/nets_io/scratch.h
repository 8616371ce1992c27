/* What these tests share: a folder to write in, and counting what a test leaves behind. */
#ifndef TESTS_NETS_IO_SCRATCH_H
#define TESTS_NETS_IO_SCRATCH_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* A new empty folder. */
void scratch_create(char path_out[static PATH_MAX]);
/* Removes it with all that is in it. */
void scratch_remove(const char *path);

/* "dir/name". Returns path_out. */
const char *scratch_join(const char *dir, const char *name, char path_out[static PATH_MAX]);
void scratch_write(const char *path, const void *bytes, size_t n_bytes);
/* The file's bytes, to be freed. */
uint8_t *scratch_read(const char *path, size_t *n_bytes_out);
/* A file that is `n_bytes` zeros without taking room on the disk. */
void scratch_write_sparse(const char *path, int64_t n_bytes);
/* How many names there are in a folder. */
int scratch_count(const char *dir);

#endif
