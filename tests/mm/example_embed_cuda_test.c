/* SPDX-License-Identifier: MIT */
/* Runs the examples that embed mm with CUDA kernels of their own, as a user would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "mm/device/contract/device.h"

typedef struct outcome {
    long long budget, peak, replayed, iterations;
    char first[32], last[32]; /* the loss as printed: nine digits identify a float */
} outcome;

static outcome train(const char *arguments) {
    char command[256], output[1024];
    outcome o;
    snprintf(command, sizeof command, "tools/example_embed_cuda %s 2>&1", arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s: %s", arguments, output);
    if (sscanf(output, "budget %lld, predicted peak %lld, loss %31s -> %31s\n%lld of %lld", &o.budget, &o.peak, o.first,
               o.last, &o.replayed, &o.iterations) != 6)
        fail_msg("%s: '%s'", arguments, output);
    return o;
}

static void every_lossless_policy_trains_to_the_same_loss_mostly_replayed(void **state) {
    (void)state;
    static const char *const policies[] = {"liveness", "swap:when=always",
                                           "freelunch:eligible=all,codec=raw,when=always"};
    outcome expected = train("");
    assert_true(atof(expected.last) < atof(expected.first) / 2);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        outcome o = train(policies[i]);
        assert_string_equal(o.first, expected.first);
        assert_string_equal(o.last, expected.last);
        assert_true(o.peak <= o.budget);
        assert_int_equal(o.replayed, o.iterations - 2); /* all but the first iteration of each of two policies */
    }
}

static void a_lossy_policy_gives_relu_exact_signs_and_trains(void **state) {
    (void)state;
    outcome o = train("freelunch:eligible=all,rate=8,when=always"), exact = train("liveness");
    assert_string_not_equal(o.last, exact.last);
    assert_true(atof(o.last) < atof(o.first) / 2);
}

/* The example compares the bits itself. */
static void a_stream_of_ones_own_gives_the_bits_of_the_program_without_mm(void **state) {
    (void)state;
    assert_int_equal(system("tools/example_own_stream"), 0);
}

static void skipped(void **state) {
    (void)state;
    skip();
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(every_lossless_policy_trains_to_the_same_loss_mostly_replayed),
        cmocka_unit_test(a_lossy_policy_gives_relu_exact_signs_and_trains),
        cmocka_unit_test(a_stream_of_ones_own_gives_the_bits_of_the_program_without_mm),
    };
    mm_device *device;
    mm_status status = mm_device_create("cuda", NULL, &device);
    if (status == MM_OK) mm_device_destroy(device);
    for (size_t i = 0; status == MM_ERR_NOT_FOUND && i < sizeof tests / sizeof *tests; i++)
        tests[i].test_func = skipped;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
