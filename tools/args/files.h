/* SPDX-License-Identifier: MIT */
/* Checks the files that a command's options name, and resolves their paths. */
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

/* The path in "file:PATH" or "onnx:PATH" of --net; NULL for other networks. */
const char *files_net(const char *net);

/* The files of --data files:IMAGES,LABELS; that of text:FILE or tokens:FILE is in `images`. NULL: none. */
typedef struct data_files {
    char text[2 * PATH_MAX];
    const char *images, *labels; /* point into text */
} data_files;
void files_data(const char *spec, data_files *files_out);

/* Makes the paths in --data's value absolute (files:, cifar10:, fashion-mnist:, text:, tokens:), with links followed.
 * The caller frees the new value. NULL for other data, and for files that do not exist. MM_ERR_NOMEM. */
MM_CHECKED mm_status files_absolute(const char *spec, char **spec_out);

/* Checks a command's files before the command does anything. MM_ERR_IO: a file to be written is not writable.
 * MM_ERR_INVALID: a file to be written is also a file of another option, whose content would be lost; or a path is "-",
 * which only --json may be. */
MM_CHECKED mm_status files_check(const named_file *files, int n);

#endif
