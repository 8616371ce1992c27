/* SPDX-License-Identifier: MIT */
#include "mm/core/system_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool mm_system_file_read(const char *path, char *text_out, size_t capacity) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && length < capacity - 1) {
        do n = read(fd, text_out + length, capacity - 1 - length);
        while (n < 0 && errno == EINTR);
        if (n > 0) length += (size_t)n;
    }
    if (fd >= 0) close(fd);
    text_out[length] = '\0';
    return n >= 0;
}

const char *mm_system_file_after(const char *text, const char *key) {
    const size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0) return line + length;
    }
    return NULL;
}

long long mm_system_file_number(const char *text, const char *key) {
    const char *at = mm_system_file_after(text, key);
    char *end = NULL;
    const long long number = at ? strtoll(at, &end, 10) : -1;
    return end == at ? -1 : number;
}
