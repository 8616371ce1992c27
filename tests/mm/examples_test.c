/* SPDX-License-Identifier: MIT */
/* Runs the examples of tools/examples as a user would: each exits with 0, since it checks itself, and prints what its
 * README shows. The rows are in tools/bazel/examples.bzl. Digits behind a decimal point are not compared: losses depend
 * on the C library's functions. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/core/test_case.h"

enum { TEXT = 16384 };

/* Reads a stream to its end. */
static void read_all(FILE *from, char *text) {
    assert_non_null(from);
    text[fread(text, 1, TEXT - 1, from)] = '\0';
}

/* The block of a README that follows the command "./NAME". */
static char *find_output(char *readme, const char *name) {
    char command[128];
    snprintf(command, sizeof command, "\n./%s\n```\n", name);
    char *at = strstr(readme, command);
    char *begin = at ? strstr(at + strlen(command), "\n```\n") : NULL;
    char *end = begin ? strstr(begin + 5, "\n```\n") : NULL;
    if (!end) return NULL;
    end[1] = '\0';
    return begin + 5;
}

static const char *skip_fraction(const char *text) {
    if (*text == '.') do
            text++;
        while (isdigit((unsigned char)*text));
    return text;
}

static bool equals(const char *a, const char *b) {
    for (; *a == *b; a++, b++) {
        if (*a == '\0') return true;
        if (*a == '.') a = skip_fraction(a) - 1, b = skip_fraction(b) - 1;
    }
    return false;
}

static void run_example(const char *name, const char *readme_path) {
    static char readme[TEXT], output[TEXT], command[256];
    FILE *file = fopen(readme_path, "r");
    read_all(file, readme);
    fclose(file);
    const char *expected = find_output(readme, name);
    if (!expected) fail_msg("%s: no block with the output of ./%s", readme_path, name);
    snprintf(command, sizeof command, "tools/example_%s 2>&1", name);
    FILE *pipe = popen(command, "r");
    read_all(pipe, output);
    const int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s: status %d: %s", name, status, output);
    if (!equals(output, expected)) fail_msg("%s shows\n%sbut it is\n%s", readme_path, expected, output);
}

TEST_CASE(each_example_prints_what_its_readme_shows) {
    static char rows[TEXT];
    char *rest = rows;
    int ran = 0;
    assert_non_null(getenv("MM_EXAMPLES"));
    snprintf(rows, sizeof rows, "%s", getenv("MM_EXAMPLES"));
    for (char *row; (row = strsep(&rest, " ")) != NULL; ran++) {
        const char *name = strsep(&row, "=");
        run_example(name, row);
    }
    assert_true(ran > 0);
}

TEST_CASE(outputs_differ_by_more_than_the_last_digits_of_a_loss) {
    assert_true(equals("peak 12, loss 0.1234\n", "peak 12, loss 0.1299\n"));
    assert_true(equals("loss 0.5", "loss 0.51234"));
    assert_false(equals("peak 12, loss 0.1234\n", "peak 13, loss 0.1234\n"));
    assert_false(equals("loss 0.1234, weights equal\n", "loss 0.1234, weights DIFFER\n"));
    assert_false(equals("a line\n", "a line\nand another\n"));
}
