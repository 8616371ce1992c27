/* SPDX-License-Identifier: MIT */
/* Reads small files of the system, such as those of /proc, without allocating: where memory is short, what they say
 * must not become "not known". */
#ifndef MM_CORE_SYSTEM_FILE_H
#define MM_CORE_SYSTEM_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the first capacity - 1 bytes, and ends them with a zero. False: there is no such file, or it cannot be read. */
bool mm_system_file_read(const char *path, char *text_out, size_t capacity);

/* What follows `key` where a line begins with it; NULL: no line does. */
const char *mm_system_file_after(const char *text, const char *key);

/* The number behind `key` at the beginning of a line; -1: there is none. */
long long mm_system_file_number(const char *text, const char *key);

#endif
