/* SPDX-License-Identifier: MIT */
/* Iterations submitted ahead of the device: same bits as one by one; a failure is reported when it is collected. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/nets/tiny_run.h"

enum { ITERATIONS = 6 };

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

static mm_options options_of(const char *policy, mm_issue issue, uint64_t delay_seed) {
    return (mm_options){.device_bytes = 64 << 20,
                        .pinned_bytes = 64 << 20,
                        .policy = policy,
                        .issue = issue,
                        .delay_seed = delay_seed,
                        .delay_max_ns = 100000};
}

static void start(tiny_run *f, const char *policy, mm_issue issue, uint64_t delay_seed) {
    const mm_options options = options_of(policy, issue, delay_seed);
    tiny_run_init(f, &options);
}

static float rate_of(int iteration) { return 0.1f / (float)(1 + iteration); }

/* Overwrites the batch right after submitting it, as a reader would. */
static void submit(tiny_run *f, int iteration) {
    const nets_lowered *lowered = nets_exec_lowered(f->exec);
    const int64_t *shape = nets_net_layer(f->net, 0)->shape.dims;
    size_t images = (size_t)(lowered->batch * shape[0] * shape[1] * shape[2]) * sizeof(float);
    float *copy = malloc(images);
    int32_t labels[TINY_BATCH];
    assert_non_null(copy);
    memcpy(copy, f->images[iteration % TINY_BATCHES], images);
    memcpy(labels, f->labels[iteration % TINY_BATCHES], sizeof labels);
    expect_ok(nets_exec_submit(f->exec, copy, labels, TINY_BATCH, rate_of(iteration)));
    memset(copy, 0xff, images);
    memset(labels, 0xff, sizeof labels);
    free(copy);
}

static float *weights_of(const tiny_run *f, size_t *bytes_out) {
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

/* Expects `part` of the parameters to be equal in both runs: of the learned ones; unless learned_only, values of the
 * others, too. */
static void expect_same(tiny_run *a, tiny_run *b, nets_part part, bool learned_only) {
    for (int p = 0; p < nets_net_params(a->net); p++) {
        const nets_param *param = nets_net_param(a->net, p);
        if (!param->learned && (learned_only || part != NETS_VALUE)) continue;
        size_t bytes = (size_t)param->elems * sizeof(float);
        float *mine = malloc(bytes), *others = malloc(bytes);
        assert_true(mine && others);
        expect_ok(nets_exec_param_get(a->exec, p, part, mine));
        expect_ok(nets_exec_param_get(b->exec, p, part, others));
        assert_memory_equal(mine, others, bytes);
        free(mine);
        free(others);
    }
}

/* Runs the iterations one by one. results: their results; returns the weights after the last one, which the caller
 * frees. */
static float *train_blocking(const char *policy, nets_result *results, size_t *bytes_out) {
    tiny_run f;
    start(&f, policy, MM_ISSUE_THREAD, 0);
    for (int i = 0; i < ITERATIONS; i++)
        expect_ok(nets_exec_iteration(f.exec, f.images[i % TINY_BATCHES], f.labels[i % TINY_BATCHES], TINY_BATCH,
                                      rate_of(i), &results[i]));
    float *weights = weights_of(&f, bytes_out);
    tiny_run_fini(&f);
    return weights;
}

static void submitted_ahead(const char *policy, mm_issue issue) {
    nets_result expected[ITERATIONS], results[ITERATIONS];
    size_t bytes;
    tiny_run f;
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
    tiny_run_fini(&f);
}

TEST_CASE(results_and_weights_are_those_of_blocking_iterations) {
    for (int p = 0; p < POLICIES_N; p++) {
        submitted_ahead(POLICIES[p], MM_ISSUE_THREAD);
        submitted_ahead(POLICIES[p], MM_ISSUE_INLINE);
    }
}

TEST_CASE(more_than_the_ring_holds_is_refused_and_so_is_collecting_nothing) {
    tiny_run f;
    nets_result result;
    start(&f, "liveness", MM_ISSUE_THREAD, 0);
    assert_int_equal(nets_exec_collect(f.exec, &result), MM_ERR_ORDER);
    for (int i = 0; i < NETS_AHEAD; i++) submit(&f, i);
    assert_int_equal(nets_exec_submit(f.exec, f.images[0], f.labels[0], TINY_BATCH, 0), MM_ERR_ORDER);
    assert_int_equal(nets_exec_iteration(f.exec, f.images[0], f.labels[0], TINY_BATCH, 0, &result), MM_ERR_ORDER);
    for (int i = 0; i < NETS_AHEAD; i++) expect_ok(nets_exec_collect(f.exec, &result));
    expect_ok(nets_exec_iteration(f.exec, f.images[0], f.labels[0], TINY_BATCH, 0, &result));
    tiny_run_fini(&f);
}

TEST_CASE(a_failure_is_told_when_collected_and_voids_what_is_behind_it) {
    tiny_run f;
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
    tiny_run one;
    start(&one, "liveness", MM_ISSUE_THREAD, 0);
    submit(&one, 0);
    expect_ok(nets_exec_collect(one.exec, &result));
    expect_same(&f, &one, NETS_VALUE, true);
    tiny_run_fini(&one);
    f.labels[1][2] = 0;
    submit(&f, 1);
    expect_ok(nets_exec_collect(f.exec, &result));
    tiny_run_fini(&f);
}

/* Like `start`, but the update count lies before all other persistent tensors, since another graph declared it
 * first. */
static mm_graph *start_with_count_first(tiny_run *f, const char *policy, uint64_t delay_seed) {
    const mm_options options = options_of(policy, MM_ISSUE_THREAD, delay_seed);
    const mm_tensor_desc rng = {"rng", MM_STATE, MM_PERSISTENT, MM_I32, 1, {NETS_RNG_WORDS}};
    mm_manager *m;
    mm_graph *first;
    mm_tensor tensor;
    mm_layer layer;
    expect_ok(mm_manager_create(&options, &m));
    expect_ok(mm_graph_create("first", &first));
    expect_ok(mm_graph_add_tensor(first, &rng, &tensor));
    expect_ok(mm_graph_add_layer(first, "reader", MM_LAYER_OTHER, &layer));
    expect_ok(mm_graph_add_step(first, layer, MM_FORWARD, &(mm_use){tensor, MM_READ, MM_FORM_VALUE}, 1, 0));
    expect_ok(mm_graph_freeze(first));
    expect_ok(mm_manager_prepare(m, first));
    tiny_run_init_under(f, m);
    return first;
}

/* Iteration 1 has a loss that is not finite. Iteration 2, whose batch is sound, was submitted before that was known. */
TEST_CASE(an_iteration_whose_loss_is_not_finite_changes_nothing) {
    static const float VALUES[] = {NAN, INFINITY};
    for (int v = 0; v < 2; v++) {
        tiny_run f, good;
        nets_result result;
        int64_t updates;
        mm_graph *first = NULL;
        if (v == 0)
            start(&f, "swap-async", MM_ISSUE_THREAD, 31);
        else
            first = start_with_count_first(&f, "swap-async", 31);
        start(&good, "liveness", MM_ISSUE_THREAD, 0);
        float kept = f.images[1][7];
        f.images[1][7] = VALUES[v];
        for (int i = 0; i < 3; i++) {
            submit(&f, i);
            if (nets_exec_outstanding(f.exec) < NETS_AHEAD) continue;
            expect_ok(nets_exec_collect(f.exec, &result));
            assert_int_equal(isfinite(result.loss) != 0, i == 1);
            assert_int_equal(result.halted != 0, i == 2);
        }
        assert_int_equal(nets_exec_outstanding(f.exec), 0);
        expect_ok(nets_exec_updates(f.exec, &updates));
        assert_int_equal(updates, 1);
        submit(&good, 0);
        expect_ok(nets_exec_collect(good.exec, &result));
        expect_same(&f, &good, NETS_VALUE, false);
        expect_same(&f, &good, NETS_STATE, false);
        /* Training continues from the state before the failed iteration. */
        f.images[1][7] = kept;
        submit(&f, 1);
        submit(&good, 1);
        expect_ok(nets_exec_collect(f.exec, &result));
        expect_ok(nets_exec_collect(good.exec, &result));
        expect_same(&f, &good, NETS_VALUE, false);
        tiny_run_fini(&good);
        tiny_run_fini(&f);
        mm_graph_destroy(first);
    }
}

TEST_CASE(a_policy_is_switched_with_iterations_under_way) {
    nets_result expected[ITERATIONS], result;
    size_t bytes;
    tiny_run f;
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
    tiny_run_fini(&f);
}

TEST_CASE(an_executor_is_destroyed_with_iterations_under_way) {
    for (int p = 0; p < POLICIES_N; p++) {
        tiny_run f;
        start(&f, POLICIES[p], MM_ISSUE_THREAD, 29);
        submit(&f, 0);
        submit(&f, 1);
        tiny_run_fini(&f);
    }
}

TEST_CASE(parts_that_are_not_there_are_not_found) {
    tiny_run f;
    nets_exec *eval;
    float value[4096];
    start(&f, "liveness", MM_ISSUE_THREAD, 0);
    expect_ok(nets_exec_create(f.net, TINY_BATCH, NETS_EVAL, f.manager, "host", NULL, &eval));
    assert_int_equal(nets_exec_param_get(eval, 0, NETS_STATE, value), MM_ERR_NOT_FOUND);
    assert_int_equal(nets_exec_param_set(eval, 0, NETS_GRADIENT, value), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_persistent_get(f.manager, "nothing", 0, value, 4), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_persistent_get(f.manager, "loss", 0, value, 5), MM_ERR_INVALID);
    assert_int_equal(mm_persistent_set(f.manager, "loss", 4, value, 1), MM_ERR_INVALID);
    assert_int_equal(mm_persistent_set(f.manager, "loss", -1, value, 1), MM_ERR_INVALID);
    expect_ok(mm_persistent_set(f.manager, "loss", 4, value, 0));
    nets_exec_destroy(eval);
    tiny_run_fini(&f);
}
