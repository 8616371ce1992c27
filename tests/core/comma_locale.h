/* SPDX-License-Identifier: MIT */
/* A locale of the test's own, whose decimal point is a comma: machines need not have one. */
#ifndef TESTS_CORE_COMMA_LOCALE_H
#define TESTS_CORE_COMMA_LOCALE_H

#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/core/test_case.h"

/* The program's numbers get a comma. */
static inline void comma_locale_enter(void) {
    /* glibc's file of LC_NUMERIC: its magic number, six values and where they begin; then the values. */
    const uint32_t head[] = {0x20031114, 6, 32, 34, 36, 40, 44, 48};
    static const char values[] = ",\0.\0\x7f\0\0\0,\0\0\0.\0\0\0UTF-8";
    char folder[] = "/tmp/mm_comma.XXXXXX", path[64], file_path[96];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/comma", folder);
    snprintf(file_path, sizeof file_path, "%s/LC_NUMERIC", path);
    assert_int_equal(mkdir(path, 0700), 0);
    FILE *file = fopen(file_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, sizeof head, 1, file) + fwrite(values, sizeof values, 1, file), 2);
    assert_int_equal(fclose(file), 0);
    setenv("LOCPATH", folder, 1);
    const char *set = setlocale(LC_NUMERIC, "comma");
    unsetenv("LOCPATH");
    unlink(file_path), rmdir(path), rmdir(folder);
    assert_non_null(set);
    char text[8];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
}

static inline void comma_locale_leave(void) { assert_non_null(setlocale(LC_NUMERIC, "C")); }

#endif
