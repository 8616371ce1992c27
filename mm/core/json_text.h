/* SPDX-License-Identifier: MIT */
/* Reads JSON of strangers in bounded memory, and prints JSON, where memory may run out: jansson 2.14 alone crashes
 * then, or leaves out characters and keys. */
#ifndef MM_CORE_JSON_TEXT_H
#define MM_CORE_JSON_TEXT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "mm/core/status.h"

/* The most memory that the values of one file may take. Chosen: a trace of some hundred thousand slices takes as much,
 * and any other file of mm's far less. */
#define MM_JSON_MOST_BYTES (INT64_C(1) << 30)

/* Reads a file, or a pipe, of JSON. flags: jansson's, for decoding. what: for messages, such as "facts file ".
 * MM_ERR_IO if it cannot be read; MM_ERR_FORMAT if it is no JSON (the message has the line), or its values would take
 * more than MM_JSON_MOST_BYTES; MM_ERR_NOMEM. The caller releases *root_out. */
MM_CHECKED mm_status mm_json_read(const char *what, const char *path, size_t flags, json_t **root_out);

/* The same of an open file, whose name is `path`. The caller closes it. */
MM_CHECKED mm_status mm_json_read_stream(const char *what, const char *path, FILE *file, size_t flags,
                                         json_t **root_out);

/* Parses a text of n bytes, and sets no message: *error_out has jansson's. Statuses as above. */
MM_CHECKED mm_status mm_json_parse(const char *text, size_t n, size_t flags, json_t **root_out,
                                   json_error_t *error_out);

/* Prints a value; flags: jansson's, for encoding. The caller frees the text. NULL: out of memory, or a text is not
 * UTF-8. */
char *mm_json_print(const json_t *json, size_t flags);

#endif
