/* SPDX-License-Identifier: MIT */
/* The executor runs layers again: running statistics see each batch once, dropout drops the same elements, and a loop
 * that cannot run a layer again gets an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/status.h"
#include "mm/planning/planning.h"
#include "tests/suite/suite_rig.h"

enum { ITERATIONS = 4, BATCH = 4 };

static int setup(void **state) {
    suite_net *s = malloc(sizeof *s);
    assert_non_null(s);
    suite_net_init_dropped(s, "host", BATCH);
    *state = s;
    return 0;
}

static int setup_unfused(void **state) {
    setup(state);
    ((suite_net *)*state)->no_fuse = true;
    return 0;
}

/* The kind of the layer that computes a batch norm or a ReLU. */
static mm_layer_kind kind_of(const suite_net *s, mm_layer_kind unfused) {
    return s->no_fuse ? unfused : MM_LAYER_BATCH_NORM_RELU;
}

static int teardown(void **state) {
    suite_net_fini(*state);
    free(*state);
    return 0;
}

static void start(suite_run *r, const suite_net *s, const char *policy) {
    suite_run_init(
        r, s, &(mm_options){.device_bytes = 16 << 20, .pinned_bytes = 16 << 20, .policy = policy, .self_check = true});
}

static void expect_same(const suite_net *s, const char *policy, mm_layer_kind kind) {
    size_t n, again;
    if (suite_needs(s, policy, 0).recomputed_kind[kind] == 0)
        fail_msg("%s, %s: no %s is recomputed", nets_net_name(s->net), policy, mm_layer_kind_name(kind));
    float *expected = suite_expected(s, "liveness", ITERATIONS, &n);
    float *found = suite_expected(s, policy, ITERATIONS, &again);
    assert_int_equal(again, n);
    assert_memory_equal(found, expected, n * sizeof *found);
    free(expected);
    free(found);
}

static void running_statistics_see_each_batch_once(void **state) {
    const suite_net *s = *state;
    suite_run plain, again;
    start(&plain, s, "liveness");
    start(&again, s, "recompute:when=always");
    assert_true(suite_needs(s, "recompute:when=always", 0).recomputed_kind[kind_of(s, MM_LAYER_BATCH_NORM)] > 0);
    int compared = 0;
    for (int p = 0; p < nets_net_params(s->net); p++) {
        const nets_param *param = nets_net_param(s->net, p);
        if (param->learned) continue; /* a running statistic */
        size_t bytes = (size_t)param->elems * sizeof(float);
        float *initial = malloc(bytes);
        assert_non_null(initial);
        memcpy(initial, nets_exec_param(plain.exec, p, NETS_VALUE), bytes);
        suite_iterate(&plain);
        suite_iterate(&again);
        assert_memory_not_equal(nets_exec_param(plain.exec, p, NETS_VALUE), initial, bytes);
        assert_memory_equal(nets_exec_param(again.exec, p, NETS_VALUE), nets_exec_param(plain.exec, p, NETS_VALUE),
                            bytes);
        free(initial);
        compared++;
    }
    assert_int_equal(compared, 4);
    suite_run_fini(&again);
    suite_run_fini(&plain);
}

static void batch_norm_is_run_again_with_the_same_bits(void **state) {
    expect_same(*state, "rules:bn=recompute;relu=recompute,when=always", kind_of(*state, MM_LAYER_BATCH_NORM));
}

/* A batch norm that runs again writes its map only: it is given the statistics of the first run. */
static void a_batch_norm_that_runs_again_is_given_its_statistics(void **state) {
    suite_run r;
    int again = 0, given = 0;
    start(&r, *state, "recompute:when=always");
    const mm_graph *graph = nets_exec_lowered(r.exec)->graph;
    mm_planned planned;
    mm_policy policy;
    assert_int_equal(mm_policy_parse("recompute:when=always", &policy), MM_OK);
    assert_int_equal(mm_planned_init(&planned, &policy, graph, "host"), MM_OK);
    const mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(graph)};
    assert_int_equal(mm_planned_make(&planned, &policy, graph, &limits), MM_OK);
    mm_policy_fini(&policy);
    for (int i = 0; i < planned.plan->n_nodes; i++) {
        const mm_node *n = &planned.plan->nodes[i];
        if (n->kind != MM_NODE_RECOMPUTE) continue;
        const mm_step_info *step = mm_graph_step(graph, n->step);
        again += mm_graph_layer(graph, step->layer)->kind == kind_of(*state, MM_LAYER_BATCH_NORM);
        for (int u = 0; u < step->n_uses; u++) {
            if (step->uses[u].access != MM_WRITE) continue;
            bool statistic = mm_graph_tensor(graph, step->uses[u].tensor)->kind == MM_SAVED &&
                             mm_graph_tensor(graph, step->uses[u].tensor)->rank == 1;
            assert_int_equal(u < MM_GIVEN_USES && n->given >> u & 1, statistic);
            given += statistic;
        }
    }
    assert_true(again > 0);
    assert_int_equal(given, 2 * again);
    mm_planned_fini(&planned);
    suite_run_fini(&r);
}

static void dropout_drops_the_same_again(void **state) {
    expect_same(*state, "rules:dropout=recompute,when=always", MM_LAYER_DROPOUT);
}

static void dropout_is_run_again_from_a_swapped_input(void **state) {
    expect_same(*state, "rules:dropout=recompute;*=swap,when=always", MM_LAYER_DROPOUT);
}

static void weights_are_those_of_liveness(void **state) {
    expect_same(*state, "recompute:when=always", kind_of(*state, MM_LAYER_RELU));
}

/* ---------------------------------------------------------------- the callback */

static mm_status iterate(suite_run *r) {
    nets_result result;
    return nets_exec_iteration(r->exec, r->s->images, r->s->labels, r->s->batch, SUITE_RATE, &result);
}

/* Checks that after a refusal the run goes on under another policy, with the same results as without the refusal. */
static void expect_usable(suite_run *r) {
    size_t n, found;
    if (mm_policy_set(r->manager, "liveness") != MM_OK) fail_msg("%s", mm_last_error());
    for (int i = 0; i < ITERATIONS; i++) suite_iterate(r);
    float *expected = suite_expected(r->s, "liveness", ITERATIONS, &n), *weights = suite_weights(r, &found);
    assert_int_equal(found, n);
    assert_memory_equal(weights, expected, n * sizeof *weights);
    free(expected);
    free(weights);
}

static void loop_without_a_callback_is_refused_and_usable_under_another_policy(void **state) {
    suite_run r;
    start(&r, *state, "recompute:when=always");
    const mm_graph *graph = nets_exec_lowered(r.exec)->graph;
    assert_int_equal(mm_recompute_set(r.manager, graph, NULL, NULL), MM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(iterate(&r), MM_ERR_UNSUPPORTED);
        assert_non_null(strstr(mm_last_error(), "mm_recompute_set"));
    }
    expect_usable(&r);
    suite_run_fini(&r);
}

typedef struct failing {
    int calls, fails_at;
    mm_layer layer;
} failing;

static mm_status fail_call(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    failing *f = ctx;
    (void)manager, (void)stream;
    f->layer = layer;
    return f->calls++ == f->fails_at ? mm_fail(MM_ERR_IO, "call %d fails", f->fails_at) : MM_OK;
}

static void failure_of_the_callback_is_told_to_the_step_that_needs_it(void **state) {
    suite_net *s = *state;
    int recomputed = suite_needs(s, "recompute:when=always", 0).recomputed;
    for (int at = 0; at < recomputed; at++) {
        failing f = {.fails_at = at};
        suite_run r;
        /* Without self_check, which would find that nothing is computed again. */
        suite_run_init(
            &r, s,
            &(mm_options){.device_bytes = 16 << 20, .pinned_bytes = 16 << 20, .policy = "recompute:when=always"});
        assert_int_equal(mm_recompute_set(r.manager, nets_exec_lowered(r.exec)->graph, fail_call, &f), MM_OK);
        assert_int_equal(iterate(&r), MM_ERR_IO);
        assert_non_null(strstr(mm_last_error(), "fails"));
        assert_int_equal(f.calls, at + 1);
        assert_int_equal(mm_policy_set(r.manager, "liveness"), MM_OK);
        suite_iterate(&r);
        suite_run_fini(&r);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define UNFUSED(name)                                                                                                  \
    { #name "_unfused", name, setup_unfused, teardown, NULL }
    const struct CMUnitTest tests[] = {
        TEST(running_statistics_see_each_batch_once),
        TEST(batch_norm_is_run_again_with_the_same_bits),
        TEST(a_batch_norm_that_runs_again_is_given_its_statistics),
        TEST(dropout_drops_the_same_again),
        TEST(dropout_is_run_again_from_a_swapped_input),
        TEST(weights_are_those_of_liveness),
        TEST(loop_without_a_callback_is_refused_and_usable_under_another_policy),
        TEST(failure_of_the_callback_is_told_to_the_step_that_needs_it),
        UNFUSED(running_statistics_see_each_batch_once),
        UNFUSED(batch_norm_is_run_again_with_the_same_bits),
        UNFUSED(weights_are_those_of_liveness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
