/* SPDX-License-Identifier: MIT */
#include "tests/core/alloc_fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int left;
static atomic_bool armed;
static _Thread_local bool is_paused;

void alloc_fault_set(int nth) {
    atomic_store(&left, nth);
    atomic_store(&armed, nth > 0);
}

void alloc_fault_pause(bool paused) { is_paused = paused; }

bool alloc_fault_happened(void) { return atomic_load(&armed) && atomic_load(&left) <= 0; }

int alloc_fault_left(void) { return atomic_load(&left); }

static bool fails(void) {
    if (!atomic_load(&armed) || is_paused || atomic_fetch_sub(&left, 1) != 1) return false;
    errno = ENOMEM;
    return true;
}

#define WRAP(type, name, params, args)                                                                                 \
    type *__real_##name params;                                                                                        \
    type *__wrap_##name params;                                                                                        \
    type *__wrap_##name params { return fails() ? NULL : __real_##name args; }

WRAP(void, malloc, (size_t bytes), (bytes))
WRAP(void, calloc, (size_t n, size_t bytes), (n, bytes))
WRAP(void, realloc, (void *memory, size_t bytes), (memory, bytes))
WRAP(void, aligned_alloc, (size_t align, size_t bytes), (align, bytes))
WRAP(char, strdup, (const char *text), (text))
WRAP(char, strndup, (const char *text, size_t n), (text, n))
WRAP(FILE, fopen, (const char *path, const char *mode), (path, mode))
WRAP(FILE, fdopen, (int fd, const char *mode), (fd, mode))
WRAP(FILE, open_memstream, (char **bytes, size_t *n_bytes), (bytes, n_bytes))

char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved) {
    return !resolved && fails() ? NULL : __real_realpath(path, resolved);
}

int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_asprintf(char **text, const char *format, ...) {
    va_list arguments;
    if (fails()) return -1;
    va_start(arguments, format);
    const int n = vasprintf(text, format, arguments);
    va_end(arguments);
    return n;
}
