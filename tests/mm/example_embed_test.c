/* SPDX-License-Identifier: MIT */
/* Runs the example that embeds mm, as a user would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/core/test_case.h"
#include "tests/core/trace_check.h"

/* Runs the example. output: what it prints, errors included. Returns its exit status. */
static int run(const char *arguments, char *output, size_t capacity) {
    char command[256];
    snprintf(command, sizeof command, "tools/example_embed %s 2>&1", arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, capacity - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

typedef struct outcome {
    long long budget, peak;
    char first[32], last[32]; /* the loss as printed: nine digits identify a float */
} outcome;

static outcome train(const char *arguments) {
    char output[1024];
    outcome o;
    if (run(arguments, output, sizeof output) != 0) fail_msg("%s: %s", arguments, output);
    if (sscanf(output, "budget %lld, predicted peak %lld, loss %31s -> %31s", &o.budget, &o.peak, o.first, o.last) != 4)
        fail_msg("%s: '%s'", arguments, output);
    return o;
}

TEST_CASE(every_lossless_policy_trains_to_the_same_loss) {
    static const char *const policies[] = {"liveness", "naive", "freelunch:eligible=all,codec=raw,when=always",
                                           "freelunch:eligible=all,codec=raw,workspace=naive,when=always 1000000"};
    outcome expected = train("");
    assert_true(atof(expected.last) < atof(expected.first) / 2);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        outcome o = train(policies[i]);
        assert_string_equal(o.first, expected.first);
        assert_string_equal(o.last, expected.last);
        assert_true(o.peak <= o.budget);
    }
}

TEST_CASE(a_trace_has_all_iterations_and_changes_nothing) {
    static trace_checked c;
    char path[] = "/tmp/example_embed.XXXXXX", arguments[128];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    snprintf(arguments, sizeof arguments, "liveness 400000 2 %s", path);
    const outcome traced = train(arguments), plain = train("liveness 400000 2");
    assert_string_equal(traced.last, plain.last);
    assert_true(trace_check(path, NULL, &c));
    assert_int_equal(c.process[0].iterations, 120); /* 60 batches, of two sub-batches each */
    assert_int_equal(c.dropped, 0);
    assert_int_equal(unlink(path), 0);
    char output[1024];
    assert_int_equal(run("liveness 400000 1 /nowhere/trace", output, sizeof output), 1);
    assert_non_null(strstr(output, "MM_ERR_IO: /nowhere/trace: cannot be written"));
}

/* Sub-batches' gradients are added up in the order of the whole batch, so not even rounding differs. */
TEST_CASE(sub_batches_train_to_the_same_loss_in_less) {
    const outcome whole = train("liveness"), halves = train("liveness 400000 2");
    const char *const arguments[] = {"naive 400000 2", "liveness 400000 4",
                                     "freelunch:eligible=all,codec=raw,when=always 400000 2"};
    assert_string_equal(halves.first, whole.first);
    assert_string_equal(halves.last, whole.last);
    assert_true(halves.peak < whole.peak);
    for (int i = 0; i < 3; i++) assert_string_equal(train(arguments[i]).last, whole.last);
    char output[1024];
    assert_int_equal(run("liveness 400000 3", output, sizeof output), 1);
    assert_non_null(strstr(output, "must be 1, 2 or 4"));
}

TEST_CASE(a_lossy_policy_gives_relu_exact_signs_and_trains) {
    outcome o = train("freelunch:eligible=all,rate=8,when=always"), exact = train("liveness");
    assert_string_not_equal(o.last, exact.last);
    assert_true(atof(o.last) < atof(o.first) / 2);
}

TEST_CASE(the_least_budget_trains_and_a_byte_less_is_refused) {
    char arguments[64], output[1024];
    const outcome o = train("liveness 0");
    snprintf(arguments, sizeof arguments, "liveness %lld", o.budget);
    assert_string_equal(train(arguments).last, o.last);
    snprintf(arguments, sizeof arguments, "liveness %lld", o.budget - 1);
    assert_int_equal(run(arguments, output, sizeof output), 1);
    assert_non_null(strstr(output, "needs at least"));
    assert_int_equal(strlen(output), strcspn(output, "\n") + 1); /* one line */
}

TEST_CASE(without_a_budget_it_takes_what_the_graphs_need) {
    const outcome least = train("liveness 0"), given = train("liveness");
    assert_int_equal(least.peak, least.budget);
    assert_true(least.budget <= given.peak); /* where memory is short, codes lend bytes that are idle */
    assert_string_equal(least.last, given.last);
    assert_true(train("naive 0").budget > least.budget);
}

TEST_CASE(what_makes_no_sense_is_refused_in_one_line) {
    static const char *const wrong[] = {"hope", "naive 1000", "naive -1", "freelunch:rate=99"};
    static const char *const says[] = {"naive, liveness, freelunch", "needs at least", "device_bytes", "99"};
    for (int i = 0; i < 4; i++) {
        char output[1024];
        assert_int_equal(run(wrong[i], output, sizeof output), 1);
        if (!strstr(output, says[i])) fail_msg("%s: '%s' does not say '%s'", wrong[i], output, says[i]);
        assert_int_equal(strlen(output), strcspn(output, "\n") + 1);
    }
}
