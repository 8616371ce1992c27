/* SPDX-License-Identifier: MIT */
#include "mm/core/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mm_text_mark_cut(char *text, size_t capacity, int length) {
    if (length >= (int)capacity) memcpy(text + capacity - sizeof "...", "...", sizeof "...");
}

char *mm_text_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (!text) return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

const char *mm_brief(const char *text, char buffer[MM_BRIEF_CAPACITY]) {
    mm_text_mark_cut(buffer, MM_BRIEF_CAPACITY, snprintf(buffer, MM_BRIEF_CAPACITY, "%s", text));
    return buffer;
}

/* On a mismatch the latest * matches one character more. */
bool mm_text_matches(const char *pattern, size_t length, const char *name) {
    const char *end = pattern + length, *star = NULL, *from = NULL;
    while (*name) {
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            from = name;
        } else if (pattern < end && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else
            return false;
    }
    while (pattern < end && *pattern == '*') pattern++;
    return pattern == end;
}
