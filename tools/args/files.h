/* SPDX-License-Identifier: MIT */
/* Files that a command's options name. */
#ifndef TOOLS_ARGS_FILES_H
#define TOOLS_ARGS_FILES_H

#include <stdbool.h>

#include <limits.h>

#include "mm/core/status.h"

typedef enum file_use {
    FILE_READ,
    FILE_WRITTEN,
    FILE_KEPT, /* read if it exists, and written if possible */
} file_use;

typedef struct named_file {
    const char *option, *path; /* path NULL: not given */
    file_use use;
} named_file;

/* Whether both paths lead to the same file, which need not exist. */
bool files_are_same(const char *a, const char *b);

/* The path in "file:PATH" of --net; NULL for other networks. */
const char *files_net(const char *net);

/* The files of --data files:IMAGES,LABELS, or the one of text:FILE and tokens:FILE, as images; NULL: there is none. */
typedef struct data_files {
    char text[2 * PATH_MAX];
    const char *images, *labels; /* in it */
} data_files;
void files_data(const char *spec, data_files *files_out);

/* The same data, "files:...", "cifar10:...", "fashion-mnist:...", "text:..." or "tokens:...", by absolute paths with
 * links followed, which the caller frees; NULL for other data, and for files that are not there. MM_ERR_NOMEM. */
MM_CHECKED mm_status files_absolute(const char *spec, char **spec_out);

/* Before anything is done: MM_ERR_IO: one that is to be written cannot be. MM_ERR_INVALID: it is named twice, so that
 * what is written first, or was there to be read, would be lost; or it is "-", which only --json may be. */
MM_CHECKED mm_status files_check(const named_file *files, int n);

#endif
