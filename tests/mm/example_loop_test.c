/* SPDX-License-Identifier: MIT */
/* Runs the example of a loop that is learned, as a user would, beside the program that it was made from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/core/test_case.h"

enum { MOST_LINES = 45, TEXT = 4096 };

/* Runs a command. output: what it prints, errors included. Returns its exit status. */
static int run(const char *command, char *output) {
    char all[256];
    snprintf(all, sizeof all, "%s 2>&1", command);
    FILE *pipe = popen(all, "r");
    assert_non_null(pipe);
    output[fread(output, 1, TEXT - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Trains, and returns what the program prints: losses, and a checksum of the weights. */
static char *train(const char *arguments) {
    static char output[TEXT];
    char command[128];
    snprintf(command, sizeof command, "tools/example_loop_%s", arguments);
    if (run(command, output) != 0 || !strstr(output, "weights ")) fail_msg("%s: %s", command, output);
    return output;
}

TEST_CASE(every_lossless_policy_gives_the_weights_of_the_plain_program) {
    static const char *const arguments[] = {
        "naive",
        "liveness 3300000",
        "recompute",
        "recompute:mode=sqrt 1100000",
        "swap-async 3250000",
        "recompute-swap 1100000",
        "auto 1000000",
        "gist:lossless",
        "vdnn-all",
        "modnn",
    };
    char plain[TEXT], command[64];
    strcpy(plain, train("plain 4"));
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        snprintf(command, sizeof command, "embedded 4 %s", arguments[i]);
        const char *embedded = train(command);
        if (strcmp(embedded, plain) != 0) fail_msg("%s: '%s' instead of '%s'", command, embedded, plain);
    }
}

TEST_CASE(the_loop_learns_what_the_text_repeats) {
    double first = 0, last = 0;
    assert_int_equal(sscanf(train("plain 40"), "step 1: loss %lf step 40: loss %lf", &first, &last), 2);
    assert_true(last < first / 1.5);
}

TEST_CASE(a_budget_that_is_too_small_is_refused_in_one_line) {
    char output[TEXT];
    assert_int_equal(run("tools/example_loop_embedded 4 liveness 1000000", output), 1);
    assert_non_null(strstr(output, "liveness on key 0 needs at least"));
    assert_int_equal(strlen(output), strcspn(output, "\n") + 1);
}

TEST_CASE(embedding_changes_few_lines) {
    char output[TEXT];
    int lines = 0;
    if (run("command -v diff", output) != 0) skip();
    const char *files = "tools/examples/02-loop-learned/plain.c tools/examples/02-loop-learned/embedded.c";
    char command[160];
    snprintf(command, sizeof command, "diff %s", files);
    assert_int_equal(run(command, output), 1);
    for (const char *line = output; line && *line; line = strchr(line, '\n'), line += line != NULL)
        lines += *line == '<' || *line == '>';
    assert_true(lines > 10);
    if (lines > MOST_LINES) fail_msg("%d lines: %s", lines, output);
}
