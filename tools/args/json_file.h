/* SPDX-License-Identifier: MIT */
/* Writes JSON to a file, atomically; to a pipe or a device in place; or to standard output ("-", "/dev/stdout"). */
#ifndef TOOLS_ARGS_JSON_FILE_H
#define TOOLS_ARGS_JSON_FILE_H

#include <jansson.h>

#include <stdbool.h>
#include <stdio.h>

#include "mm/core/status.h"

/* Whether the path is standard output, "-" or "/dev/stdout". path may be NULL. */
bool json_file_is_output(const char *path);
/* Whether what is written cannot be replaced later: standard output, a pipe, a device. path may be NULL. */
bool json_file_is_stream(const char *path);

/* Where a command whose JSON goes to `path` (NULL: nowhere) prints its other output: stderr if JSON goes to stdout. */
FILE *json_file_beside(const char *path);

/* Writes the JSON, and releases the caller's reference. MM_ERR_NOMEM if json is NULL; MM_ERR_IO names the path. */
MM_CHECKED mm_status json_file_save(const char *path, json_t *json);

#endif
