/* SPDX-License-Identifier: MIT */
#include "tests/nets_io/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(int condition, const char *what) {
    if (condition) return;
    perror(what);
    abort();
}

void scratch_create(char path_out[static PATH_MAX]) {
    const char *parent = getenv("TEST_TMPDIR");
    int length = snprintf(path_out, PATH_MAX, "%s/nets_io.XXXXXX", parent ? parent : P_tmpdir);
    require(length < PATH_MAX && mkdtemp(path_out), path_out);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

void scratch_remove(const char *path) { require(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0, path); }

const char *scratch_join(const char *dir, const char *name, char path_out[static PATH_MAX]) {
    require(snprintf(path_out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX, dir);
    return path_out;
}

int scratch_setup(void **state) {
    scratch_folder *f = malloc(sizeof *f);
    if (!f) return -1;
    scratch_create(f->path);
    scratch_join(f->path, "file", f->file);
    *state = f;
    return 0;
}

int scratch_teardown(void **state) {
    scratch_folder *f = *state;
    scratch_remove(f->path);
    free(f);
    return 0;
}

void scratch_write(const char *path, const void *bytes, size_t n_bytes) {
    FILE *file = fopen(path, "wb");
    require(file != NULL, path);
    require(fwrite(bytes, 1, n_bytes, file) == n_bytes && fclose(file) == 0, path);
}

uint8_t *scratch_read(const char *path, size_t *n_bytes_out) {
    struct stat info;
    FILE *file = fopen(path, "rb");
    require(file && fstat(fileno(file), &info) == 0, path);
    uint8_t *bytes = malloc((size_t)info.st_size + 1);
    require(bytes && fread(bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size, path);
    fclose(file);
    *n_bytes_out = (size_t)info.st_size;
    return bytes;
}

void scratch_write_sparse(const char *path, int64_t n_bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    require(fd >= 0 && ftruncate(fd, n_bytes) == 0 && close(fd) == 0, path);
}

int scratch_count(const char *dir) {
    int count = 0;
    DIR *names = opendir(dir);
    require(names != NULL, dir);
    for (struct dirent *entry; (entry = readdir(names));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(names);
    return count;
}
