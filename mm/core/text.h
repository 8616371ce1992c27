/* SPDX-License-Identifier: MIT */
/* Texts for messages, of any length or cut. */
#ifndef MM_CORE_TEXT_H
#define MM_CORE_TEXT_H

#include "mm/mm.h"

/* Formats a text of any length. The caller frees it. NULL: out of memory. */
char *mm_text_format(const char *format, ...) MM_PRINTF(1, 2);

/* Copies a name for a message, cut and with "..." if it is long. Returns buffer. MM_BRIEF(text): the same in a buffer
 * of its own, which lives as long as the enclosing block. */
enum { MM_BRIEF_CAPACITY = 104 };
const char *mm_brief(const char *text, char buffer[MM_BRIEF_CAPACITY]);
#define MM_BRIEF(text) mm_brief(text, (char[MM_BRIEF_CAPACITY]){0})

/* Puts "..." at the end of the text if snprintf has cut it. length: snprintf's result. */
void mm_text_mark_cut(char *text, size_t capacity, int length);

/* Whether a pattern of that length matches the whole name: * stands for any text, ? for one character. */
bool mm_text_matches(const char *pattern, size_t length, const char *name);

#endif
