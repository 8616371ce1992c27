/* SPDX-License-Identifier: MIT */
/* Writes JSON to a file, atomically; to a pipe or a device in place; or to standard output ("-", "/dev/stdout"). */
#ifndef TOOLS_ARGS_JSON_FILE_H
#define TOOLS_ARGS_JSON_FILE_H

#include <jansson.h>

#include <stdbool.h>
#include <stdio.h>

#include "mm/core/status.h"

/* From now on json_file_save fails if jansson lacked memory for any value, which it then leaves out. Call it before any
 * other function of jansson. */
void json_file_watch(void);

/* Whether the path is standard output, "-" or "/dev/stdout". path may be NULL. */
bool json_file_is_output(const char *path);
/* Whether what is written cannot be replaced later: standard output, a pipe, a device. path may be NULL. */
bool json_file_is_stream(const char *path);

/* Where a command whose JSON goes to `path` (NULL: nowhere) prints its other output: stderr if JSON goes to stdout. */
FILE *json_file_beside(const char *path);

/* Writes the JSON, and releases the caller's reference. MM_ERR_NOMEM if json is NULL, or lacks a value;
 * MM_ERR_IO names the path. */
MM_CHECKED mm_status json_file_save(const char *path, json_t *json);

#endif
