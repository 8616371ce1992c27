/* SPDX-License-Identifier: MIT */
/* CUDA's calls in the training loop, counted by the emulation: none synchronises a stream or the device, allocates or
 * frees; how many an iteration has; and what happens if one fails. */
#include <stdlib.h>
#include <string.h>

#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/cuda_emulation/control.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 2, WARM_UP = 3, ITERATIONS = 2 };

typedef struct loop {
    suite_net s;
    mm_manager *manager;
    nets_exec *exec;
} loop;

/* net NULL: the smallest network. */
static void start(loop *l, const char *net, const char *policy, mm_issue issue) {
    const mm_options options = {
        .device = "cuda", .device_bytes = 48 << 20, .pinned_bytes = 16 << 20, .policy = policy, .issue = issue};
    cuda_emulation_reset();
    if (net)
        suite_net_init(&l->s, "cuda", net, BATCH);
    else
        suite_net_init_dropped(&l->s, "cuda", BATCH);
    expect_ok(mm_manager_create(&options, &l->manager));
    expect_ok(nets_exec_create(l->s.net, BATCH, NETS_TRAIN, l->manager, "cuda", &SUITE_SGD, &l->exec));
    expect_ok(nets_exec_stage(l->exec));
    expect_ok(nets_exec_init(l->exec, SUITE_SEED));
}

static void finish(loop *l) {
    nets_exec_destroy(l->exec);
    mm_manager_destroy(l->manager);
    suite_net_fini(&l->s);
}

/* Runs n iterations as a training loop does: one runs while the next is enqueued. */
static void iterate(loop *l, int n) {
    nets_result result;
    for (int i = 0; i < n; i++) {
        if (nets_exec_outstanding(l->exec) == NETS_AHEAD) expect_ok(nets_exec_collect(l->exec, &result));
        expect_ok(nets_exec_submit(l->exec, l->s.images, l->s.labels, BATCH, SUITE_RATE));
    }
}

static const char *const POLICIES[] = {"liveness",
                                       "recompute:when=always",
                                       "swap-async:when=always",
                                       "freelunch:rate=8,when=always",
                                       "hybrid:rate=8,when=always",
                                       "rules:*=compress(zvc:reserve=1),when=always",
                                       "rules:*=compress-swap(zvc),when=always"};
enum { POLICIES_N = sizeof POLICIES / sizeof *POLICIES };

/* The loop waits only for the event of the iteration NETS_AHEAD before, to collect its result. */
TEST_CASE(nothing_of_the_loop_synchronises_allocates_or_frees) {
    for (int p = 0; p < POLICIES_N; p++)
        for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
            loop l;
            start(&l, NULL, POLICIES[p], (mm_issue)issue);
            iterate(&l, WARM_UP);
            long before = cuda_emulation_dear_calls(), waited = cuda_emulation_calls("cudaEventSynchronize");
            iterate(&l, ITERATIONS);
            if (cuda_emulation_dear_calls() != before)
                fail_msg("%s, issue %d: %ld calls that synchronise, allocate or free in %d iterations", POLICIES[p],
                         issue, cuda_emulation_dear_calls() - before, ITERATIONS);
            assert_int_equal(cuda_emulation_calls("cudaEventSynchronize") - waited, ITERATIONS);
            finish(&l);
        }
}

/* The calls: save statistics; copy batch, labels and rate to the buffer, between two events; copy them from the buffer;
 * ask whether others capture the stream, launch the graph; copy loss and correct, record their event; wait for an
 * earlier event. The launch of a kernel, which adds the images' fourth channel, is checked with a call of its own. */
TEST_CASE(a_recorded_iteration_takes_eighteen_calls_however_many_layers) {
    enum { CALLS = 18 };
    static const char *const policies[] = {"hybrid:rate=8,when=always", "rules:*=compress(zvc:reserve=20),when=always"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        long calls[2];
        for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
            loop l;
            start(&l, "resnet18@32,classes=5,thin=32", policies[p], (mm_issue)issue);
            iterate(&l, WARM_UP);
            long before = cuda_emulation_calls_here(NULL);
            iterate(&l, ITERATIONS);
            calls[issue] = (cuda_emulation_calls_here(NULL) - before) / ITERATIONS;
            print_message("%s: %ld calls of the training thread an iteration, %.2f a layer, %s\n", policies[p],
                          calls[issue], (double)calls[issue] / nets_net_layers(l.s.net),
                          issue == MM_ISSUE_INLINE ? "recorded" : "step by step");
            finish(&l);
        }
        assert_int_equal(calls[MM_ISSUE_INLINE], CALLS);
        assert_true(calls[MM_ISSUE_THREAD] > 10 * CALLS);
    }
}

/* ---------------------------------------------------------------- calls that fail */

enum { TRAINED = 4 };

/* Submits TRAINED iterations ahead and collects their losses. After a failure, collects those that still run. */
static mm_status train(loop *l, float losses[TRAINED]) {
    nets_result result;
    int collected = 0;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && collected < TRAINED; i++) {
        if (i < TRAINED) status = nets_exec_submit(l->exec, l->s.images, l->s.labels, BATCH, SUITE_RATE);
        if (status != MM_OK || (i == 0 && TRAINED > 1)) continue;
        status = nets_exec_collect(l->exec, &result);
        if (status == MM_OK) losses[collected++] = result.loss;
    }
    while (status != MM_OK && nets_exec_outstanding(l->exec) > 0) {
        mm_status ended = nets_exec_collect(l->exec, &result);
        (void)ended; /* the failure was reported; what these iterations return does not count */
    }
    return status;
}

static void expect_training(loop *l, const float expected[TRAINED], const char *after) {
    float losses[TRAINED];
    expect_ok(nets_exec_init(l->exec, SUITE_SEED));
    expect_ok(train(l, losses));
    if (memcmp(losses, expected, sizeof losses) != 0) fail_msg("other losses after %s has failed", after);
}

/* If recording fails, the loop runs without a recording; any other failure is reported once. Afterwards the executor
 * trains as before. */
TEST_CASE(a_call_that_fails_is_told_once_and_training_goes_on) {
    static const char *const names[] = {"cudaMemcpyAsync",      "cudaEventRecord",      "cudaStreamWaitEvent",
                                        "kernel_launch",        "cudaGraphLaunch",      "cudaStreamBeginCapture",
                                        "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaEventSynchronize"};
    static const long nths[] = {1, 9, 60};
    float expected[TRAINED], losses[TRAINED];
    loop l;
    int told = 0, passed = 0;
    start(&l, NULL, "swap-async:when=always", MM_ISSUE_INLINE);
    expect_ok(train(&l, expected));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t n = 0; n < sizeof nths / sizeof *nths; n++) {
            expect_ok(
                mm_policy_set(l.manager, n % 2 ? "liveness" : "swap-async:when=always")); /* drops the recording */
            expect_ok(nets_exec_init(l.exec, SUITE_SEED));
            cuda_emulation_fail(names[i], nths[n], cudaErrorInvalidValue);
            mm_status status = train(&l, losses);
            bool happened = cuda_emulation_failed();
            cuda_emulation_fail(names[i], 0, cudaSuccess);
            if (status == MM_OK && memcmp(losses, expected, sizeof losses) != 0)
                fail_msg("other losses: the failure of %s, call %ld, went unnoticed", names[i], nths[n]);
            if (status != MM_OK && !happened) fail_msg("%s", mm_last_error());
            told += status != MM_OK;
            passed += status == MM_OK && happened;
            expect_training(&l, expected, names[i]);
        }
    assert_true(told > 6);
    assert_true(passed >= 3); /* failures of recording */
    finish(&l);
}

/* ---------------------------------------------------------------- memory that runs out */

/* Values and momenta of all parameters after two blocking iterations. In the second, the nth call of `fail` fails. */
static float *weights_after(const char *fail, long nth, int64_t *steps_out, size_t *n_out) {
    loop l;
    nets_result result;
    mm_stats stats;
    start(&l, NULL, "swap-async:when=always", MM_ISSUE_THREAD);
    expect_ok(nets_exec_iteration(l.exec, l.s.images, l.s.labels, BATCH, SUITE_RATE, &result));
    if (fail) cuda_emulation_fail(fail, nth, cudaErrorMemoryAllocation);
    long asked = cuda_emulation_calls("cudaMemGetInfo");
    mm_status status = nets_exec_iteration(l.exec, l.s.images, l.s.labels, BATCH, SUITE_RATE, &result);
    if (fail && !cuda_emulation_failed()) *n_out = 0;
    if (!fail) assert_int_equal(cuda_emulation_calls("cudaMemGetInfo"), asked);
    cuda_emulation_fail("kernel_launch", 0, cudaSuccess);
    mm_stats_get(l.manager, &stats);
    *steps_out += stats.ladder_steps;
    int64_t updates;
    expect_ok(nets_exec_updates(l.exec, &updates));
    if (!fail) expect_ok(status);
    if (updates == 1) /* no smaller plan stood in, so the caller runs the iteration again */
        expect_ok(nets_exec_iteration(l.exec, l.s.images, l.s.labels, BATCH, SUITE_RATE, &result));
    float *weights = NULL;
    size_t n = 0;
    static const nets_part parts[] = {NETS_VALUE, NETS_STATE};
    for (int part = 0; part < 2; part++)
        for (int p = 0; p < nets_net_params(l.s.net); p++) {
            size_t elems = (size_t)nets_net_param(l.s.net, p)->elems;
            if (part == 1 && !nets_net_param(l.s.net, p)->learned) continue;
            weights = realloc(weights, (n + elems) * sizeof *weights);
            assert_non_null(weights);
            expect_ok(nets_exec_param_get(l.exec, p, parts[part], weights + n));
            n += elems;
        }
    if (*n_out) *n_out = n;
    finish(&l);
    return weights;
}

/* Memory runs out at each call in turn: weights and statistics end as in a run without a failure. The running
 * statistics are restored too, though the forward pass had changed them. */
TEST_CASE(memory_that_runs_out_at_any_call_leaves_what_an_undisturbed_iteration_does) {
    static const char *const names[] = {"kernel_launch", "cudaMemcpyAsync", "cudaEventRecord"};
    int64_t steps = 0;
    size_t n = 1;
    float *expected = weights_after(NULL, 0, &steps, &n);
    assert_int_equal(steps, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (long nth = 1;; nth += nth) {
            size_t found = 1;
            float *weights = weights_after(names[i], nth, &steps, &found);
            if (found > 0 && (found != n || memcmp(weights, expected, n * sizeof *weights) != 0))
                fail_msg("other weights or statistics after %s, call %ld, ran out of memory", names[i], nth);
            free(weights);
            if (found == 0) break;
        }
    assert_true(steps >= 3);
    free(expected);
}
