/* SPDX-License-Identifier: MIT */
#include "tests/device/made_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

void made_file(const char *root, const char *path, const char *text) {
    char at[512];
    snprintf(at, sizeof at, "%s%s", root, path);
    for (char *slash = at + strlen(root); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(at, 0700);
        *slash = '/';
    }
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}
