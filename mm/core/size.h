/* SPDX-License-Identifier: MIT */
/* Sizes as texts, such as "12.5GiB". */
#ifndef MM_CORE_SIZE_H
#define MM_CORE_SIZE_H

#include "mm/mm.h"

/* Writes a size as "12.5GiB", "640KiB" or "17B". A size that can be written exactly in this form is read back exactly;
 * other sizes are rounded to three significant digits. Returns buffer. */
const char *mm_size_format(int64_t bytes, char *buffer, size_t capacity);

/* Writes a size for a message: "61349376 bytes (58.5MiB)", "17 bytes". Returns buffer. MM_SIZE_TEXT(bytes): the same
 * in a buffer of its own, which lives as long as the enclosing block. */
enum { MM_SIZE_TEXT_CAPACITY = 48 };
const char *mm_size_text(int64_t bytes, char buffer[MM_SIZE_TEXT_CAPACITY]);
#define MM_SIZE_TEXT(bytes) mm_size_text(bytes, (char[MM_SIZE_TEXT_CAPACITY]){0})

/* Reads a size such as "12GiB", "1.5GB", "300MiB", "4096", "64k". GiB and a bare G are powers of 1024, GB is one of
 * 1000. MM_ERR_INVALID: any other text, a negative number, overflow. */
MM_CHECKED mm_status mm_size_parse(const char *text, int64_t *bytes_out);

#endif
