/* Iterations submitted ahead of the device: the same bits as one by one, a failure told where it is collected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/exec.h"
#include "nets/zoo/zoo.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 4, ITERATIONS = 6, BATCHES = 3 };
static const nets_sgd SGD = {.momentum = 0.9f, .weight_decay = 1e-4f};

static const char *const POLICIES[] = {
    "naive",
    "liveness",
    "recompute",
    "swap-async",
    "hybrid:rate=8",
    "freelunch:rate=8",
    "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive",
};
enum { POLICIES_N = sizeof POLICIES / sizeof *POLICIES };

typedef struct fixture {
    nets_net *net;
    mm_manager *manager;
    nets_exec *exec;
    float *images[BATCHES];
    int32_t *labels[BATCHES];
} fixture;

static void expect_ok(mm_status status) {
    if (status != MM_OK) fail_msg("%s", mm_last_error());
}

static void start(fixture *f, const char *policy, mm_issue issue, uint64_t delay_seed) {
    const mm_options options = {.device_bytes = 64 << 20,
                                .pinned_bytes = 64 << 20,
                                .policy = policy,
                                .issue = issue,
                                .delay_seed = delay_seed,
                                .delay_max_ns = 100000};
    *f = (fixture){0};
    expect_ok(nets_zoo_build("tiny", &f->net));
    expect_ok(mm_manager_create(&options, &f->manager));
    expect_ok(nets_exec_create(f->net, BATCH, NETS_TRAIN, f->manager, "host", &SGD, &f->exec));
    expect_ok(nets_exec_init(f->exec, 5));
    for (int b = 0; b < BATCHES; b++) ref_batch(f->net, BATCH, (uint64_t)b + 1, &f->images[b], &f->labels[b]);
}

static void finish(fixture *f) {
    nets_exec_destroy(f->exec);
    mm_manager_destroy(f->manager);
    nets_net_destroy(f->net);
    for (int b = 0; b < BATCHES; b++) {
        free(f->images[b]);
        free(f->labels[b]);
    }
}

static float rate_of(int iteration) { return 0.1f / (float)(1 + iteration); }

/* The batch is overwritten at once, as a reader would. */
static void submit(fixture *f, int iteration) {
    const nets_lowered *lowered = nets_exec_lowered(f->exec);
    const int64_t *shape = nets_net_layer(f->net, 0)->shape;
    size_t images = (size_t)(lowered->batch * shape[0] * shape[1] * shape[2]) * sizeof(float);
    float *copy = malloc(images);
    int32_t labels[BATCH];
    assert_non_null(copy);
    memcpy(copy, f->images[iteration % BATCHES], images);
    memcpy(labels, f->labels[iteration % BATCHES], sizeof labels);
    expect_ok(nets_exec_submit(f->exec, copy, labels, BATCH, rate_of(iteration)));
    memset(copy, 0xff, images);
    memset(labels, 0xff, sizeof labels);
    free(copy);
}

static float *weights_of(const fixture *f, size_t *bytes_out) {
    size_t n = 0, at = 0;
    for (int p = 0; p < nets_net_params(f->net); p++) n += (size_t)nets_net_param(f->net, p)->elems;
    float *weights = malloc(n * sizeof *weights);
    assert_non_null(weights);
    for (int p = 0; p < nets_net_params(f->net); p++) {
        expect_ok(nets_exec_param_get(f->exec, p, NETS_VALUE, weights + at));
        at += (size_t)nets_net_param(f->net, p)->elems;
    }
    *bytes_out = n * sizeof *weights;
    return weights;
}

/* What an iteration that failed half-way must not have changed. */
static void expect_same_learned(fixture *a, fixture *b) {
    for (int p = 0; p < nets_net_params(a->net); p++) {
        const nets_param *param = nets_net_param(a->net, p);
        if (!param->learned) continue;
        size_t bytes = (size_t)param->elems * sizeof(float);
        float *mine = malloc(bytes), *others = malloc(bytes);
        assert_true(mine && others);
        expect_ok(nets_exec_param_get(a->exec, p, NETS_VALUE, mine));
        expect_ok(nets_exec_param_get(b->exec, p, NETS_VALUE, others));
        assert_memory_equal(mine, others, bytes);
        free(mine);
        free(others);
    }
}

/* Losses and final weights, one by one. */
static float *train_blocking(const char *policy, nets_result *results, size_t *bytes_out) {
    fixture f;
    start(&f, policy, MM_ISSUE_THREAD, 0);
    for (int i = 0; i < ITERATIONS; i++)
        expect_ok(
            nets_exec_iteration(f.exec, f.images[i % BATCHES], f.labels[i % BATCHES], BATCH, rate_of(i), &results[i]));
    float *weights = weights_of(&f, bytes_out);
    finish(&f);
    return weights;
}

static void submitted_ahead(const char *policy, mm_issue issue) {
    nets_result expected[ITERATIONS], results[ITERATIONS];
    size_t bytes;
    fixture f;
    float *expected_weights = train_blocking(policy, expected, &bytes);
    memset(results, 0, sizeof results);
    start(&f, policy, issue, 17);
    int collected = 0;
    for (int i = 0; i < ITERATIONS; i++) {
        if (nets_exec_outstanding(f.exec) == NETS_AHEAD) expect_ok(nets_exec_collect(f.exec, &results[collected++]));
        submit(&f, i);
    }
    while (nets_exec_outstanding(f.exec) > 0) expect_ok(nets_exec_collect(f.exec, &results[collected++]));
    float *weights = weights_of(&f, &bytes);
    assert_int_equal(collected, ITERATIONS);
    for (int i = 0; i < ITERATIONS; i++)
        if (results[i].loss != expected[i].loss || results[i].correct != expected[i].correct)
            fail_msg("%s: another result in iteration %d: loss %.9g, not %.9g", policy, i, (double)results[i].loss,
                     (double)expected[i].loss);
    if (memcmp(weights, expected_weights, bytes) != 0) fail_msg("%s: other weights", policy);
    free(weights);
    free(expected_weights);
    finish(&f);
}

static void results_and_weights_are_those_of_blocking_iterations(void **state) {
    (void)state;
    for (int p = 0; p < POLICIES_N; p++) {
        submitted_ahead(POLICIES[p], MM_ISSUE_THREAD);
        submitted_ahead(POLICIES[p], MM_ISSUE_INLINE);
    }
}

static void more_than_the_ring_holds_is_refused_and_so_is_collecting_nothing(void **state) {
    (void)state;
    fixture f;
    nets_result result;
    start(&f, "liveness", MM_ISSUE_THREAD, 0);
    assert_int_equal(nets_exec_collect(f.exec, &result), MM_ERR_ORDER);
    for (int i = 0; i < NETS_AHEAD; i++) submit(&f, i);
    assert_int_equal(nets_exec_submit(f.exec, f.images[0], f.labels[0], BATCH, 0), MM_ERR_ORDER);
    assert_int_equal(nets_exec_iteration(f.exec, f.images[0], f.labels[0], BATCH, 0, &result), MM_ERR_ORDER);
    for (int i = 0; i < NETS_AHEAD; i++) expect_ok(nets_exec_collect(f.exec, &result));
    expect_ok(nets_exec_iteration(f.exec, f.images[0], f.labels[0], BATCH, 0, &result));
    finish(&f);
}

static void a_failure_is_told_when_collected_and_voids_what_is_behind_it(void **state) {
    (void)state;
    fixture f;
    nets_result result;
    start(&f, "swap-async", MM_ISSUE_THREAD, 0);
    f.labels[1][2] = 1000;
    submit(&f, 0);
    submit(&f, 1);
    expect_ok(nets_exec_collect(f.exec, &result));
    submit(&f, 2);
    assert_int_equal(nets_exec_collect(f.exec, &result), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "label 1000"));
    assert_int_equal(nets_exec_outstanding(f.exec), 0);
    fixture one;
    start(&one, "liveness", MM_ISSUE_THREAD, 0);
    submit(&one, 0);
    expect_ok(nets_exec_collect(one.exec, &result));
    expect_same_learned(&f, &one);
    finish(&one);
    f.labels[1][2] = 0;
    submit(&f, 1);
    expect_ok(nets_exec_collect(f.exec, &result));
    finish(&f);
}

static void a_policy_is_switched_with_iterations_under_way(void **state) {
    (void)state;
    nets_result expected[ITERATIONS], result;
    size_t bytes;
    fixture f;
    float *expected_weights = train_blocking("liveness", expected, &bytes);
    start(&f, "liveness", MM_ISSUE_THREAD, 23);
    static const char *const others[] = {"swap-async", "recompute", "naive", "freelunch:codec=raw,eligible=all"};
    for (int i = 0; i < ITERATIONS; i++) {
        submit(&f, i);
        expect_ok(mm_policy_set(f.manager, others[i % 4]));
        if (nets_exec_outstanding(f.exec) < NETS_AHEAD) continue;
        expect_ok(nets_exec_collect(f.exec, &result));
        assert_true(result.loss == expected[i - 1].loss);
    }
    float *weights = weights_of(&f, &bytes);
    assert_memory_equal(weights, expected_weights, bytes);
    free(weights);
    free(expected_weights);
    finish(&f);
}

static void an_executor_is_destroyed_with_iterations_under_way(void **state) {
    (void)state;
    for (int p = 0; p < POLICIES_N; p++) {
        fixture f;
        start(&f, POLICIES[p], MM_ISSUE_THREAD, 29);
        submit(&f, 0);
        submit(&f, 1);
        finish(&f);
    }
}

static void parts_that_are_not_there_are_not_found(void **state) {
    (void)state;
    fixture f;
    nets_exec *eval;
    float value[4096];
    start(&f, "liveness", MM_ISSUE_THREAD, 0);
    expect_ok(nets_exec_create(f.net, BATCH, NETS_EVAL, f.manager, "host", NULL, &eval));
    assert_int_equal(nets_exec_param_get(eval, 0, NETS_MOMENTUM, value), MM_ERR_NOT_FOUND);
    assert_int_equal(nets_exec_param_set(eval, 0, NETS_GRADIENT, value), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_persistent_get(f.manager, "nothing", 0, value, 4), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_persistent_get(f.manager, "loss", 0, value, 5), MM_ERR_INVALID);
    assert_int_equal(mm_persistent_set(f.manager, "loss", 4, value, 1), MM_ERR_INVALID);
    assert_int_equal(mm_persistent_set(f.manager, "loss", -1, value, 1), MM_ERR_INVALID);
    expect_ok(mm_persistent_set(f.manager, "loss", 4, value, 0));
    nets_exec_destroy(eval);
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_and_weights_are_those_of_blocking_iterations),
        cmocka_unit_test(more_than_the_ring_holds_is_refused_and_so_is_collecting_nothing),
        cmocka_unit_test(a_failure_is_told_when_collected_and_voids_what_is_behind_it),
        cmocka_unit_test(a_policy_is_switched_with_iterations_under_way),
        cmocka_unit_test(an_executor_is_destroyed_with_iterations_under_way),
        cmocka_unit_test(parts_that_are_not_there_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
