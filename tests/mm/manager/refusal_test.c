/* SPDX-License-Identifier: MIT */
/* A refusal as data says what its text says. It does not depend on the order of calls, and names the graph whose
 * persistent tensors count. A budget that follows the graphs, and MM_SAVE_GRAPH. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/manager/prepare.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 11, LAYERS = 24, CHANNELS = 8, STATE_BYTES = 2000, STATE_ALIGNED = 2048, PINNED = 1 << 20 };

static mm_manager *manager_of(int64_t device_bytes, int64_t pinned_bytes, const char *policy) {
    return rig_manager(&(mm_options){.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .policy = policy});
}

/* A graph of one step with a persistent tensor of STATE_BYTES. */
static mm_graph *state_graph(const char *name) {
    const mm_tensor_desc desc = {.name = "own state",
                                 .kind = MM_STATE,
                                 .ownership = MM_PERSISTENT,
                                 .dtype = MM_U8,
                                 .rank = 1,
                                 .dims = {STATE_BYTES}};
    mm_graph *graph;
    mm_tensor state;
    mm_layer layer;
    expect_ok(mm_graph_create(name, &graph));
    expect_ok(mm_graph_add_tensor(graph, &desc, &state));
    expect_ok(mm_graph_add_layer(graph, "count", MM_LAYER_OTHER, &layer));
    expect_ok(mm_graph_add_step(graph, layer, MM_FORWARD, &(mm_use){state, MM_MODIFY, MM_FORM_VALUE}, 1, 0));
    expect_ok(mm_graph_freeze(graph));
    return graph;
}

static mm_status run_again(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    (void)ctx, (void)manager, (void)layer, (void)stream;
    return MM_OK;
}

/* Checks that the message has the text, which is formatted from the data. */
static void says(const mm_refusal *r, const char *format, ...) MM_PRINTF(2, 3);
static void says(const mm_refusal *r, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!strstr(r->message, text)) fail_msg("'%s' does not say '%s'", r->message, text);
}

/* Checks that the data say what the message says. */
static mm_refusal expect_same(const mm_manager *m) {
    mm_refusal r;
    assert_true(mm_refusal_get(m, &r));
    assert_string_equal(r.message, mm_last_error());
    says(&r, "%s on %s needs at least %lld bytes", r.policy, r.graph, (long long)r.needed_bytes);
    says(&r, "held by %s", r.held_by);
    says(&r, "the budget is %lld bytes", (long long)r.device_bytes);
    if (r.other_bytes > 0) says(&r, "%lld bytes", (long long)r.other_bytes);
    if (r.other_bytes > 0) says(&r, "of persistent tensors of %s", r.other_graph[0] ? r.other_graph : "no graph");
    assert_int_equal(strstr(r.message, "what it needs includes") != NULL, r.other_bytes > 0);
    if (r.advised.kind == MM_ADVICE_FITS) says(&r, "; policy %s", r.advised.policy);
    if (r.advised.kind == MM_ADVICE_PINNED && r.recomputing.kind != MM_ADVICE_FITS)
        says(&r, "with %lld bytes", (long long)r.advised.pinned_bytes);
    if (r.recomputing.kind == MM_ADVICE_FITS) says(&r, "%s", r.recomputing.policy);
    assert_int_equal(strstr(r.message, "(needs mm_recompute_set)") != NULL, r.recomputing.kind != MM_ADVICE_NONE);
    int64_t held = 0;
    for (int k = 0; k < MM_HELD_KINDS; k++) held += r.held[k];
    assert_true(held > 0 && held <= r.needed_bytes);
    return r;
}

TEST_CASE(the_data_of_a_refusal_are_those_of_its_text) {
    int fits = 0, functions = 0, pinned = 0;
    for (uint64_t seed = 1; seed <= (test_is_sanitized() ? 2 : 3); seed++) {
        mm_graph *graph = rig_random_graph(seed, LAYERS, CHANNELS);
        const int64_t liveness = rig_minimum(graph, "liveness");
        const int first = test_depth(4 + (int)seed % 3, 4); /* each seed a third of the budgets */
        for (int part = first; part < 16; part += test_depth(3, 1)) {
            const int64_t host = part % 2 ? PINNED : 512;
            mm_manager *m = manager_of(liveness * part / 16, host, "liveness");
            mm_refusal r;
            assert_false(mm_refusal_get(m, &r));
            assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
            r = expect_same(m);
            assert_int_equal(r.needed_bytes, liveness);
            assert_int_equal(r.device_bytes, liveness * part / 16);
            assert_int_equal(r.pinned_bytes, host);
            assert_int_equal(r.other_bytes, 0);
            fits += r.advised.kind == MM_ADVICE_FITS;
            pinned += r.advised.kind == MM_ADVICE_PINNED;
            functions += r.recomputing.kind == MM_ADVICE_FITS;
            mm_manager_destroy(m);
        }
        mm_graph_destroy(graph);
    }
    assert_true(fits > 0 && functions > 0 && pinned > 0);
    assert_false(mm_refusal_get(NULL, NULL));
}

/* ---------------------------------------------------------------- the order of calls */

/* Two graphs, prepared before their functions are set, in a budget in which the first must recompute only beside the
 * second. */
TEST_CASE(graphs_may_all_be_prepared_before_the_functions_are_set) {
    int recomputed = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        mm_graph *graphs[] = {rig_random_graph(seed, LAYERS, CHANNELS), state_graph("evaluation")};
        const int64_t budget = rig_minimum(graphs[0], "liveness") + 256;
        mm_manager *m = manager_of(budget, 0, "auto:effort=0");
        expect_ok(mm_manager_prepare(m, graphs[0]));
        mm_status status = mm_manager_prepare(m, graphs[1]);
        if (status == MM_OK) {
            const mm_plan *plan = mm_plan_now(m, graphs[0]);
            for (int i = 0; i < plan->n_nodes; i++) recomputed += plan->nodes[i].kind == MM_NODE_RECOMPUTE;
            expect_ok(mm_recompute_set(m, graphs[0], run_again, NULL));
        }
        mm_manager_destroy(m);
        mm_manager *first = manager_of(budget, 0, "auto:effort=0");
        expect_ok(mm_recompute_set(first, graphs[0], run_again, NULL));
        assert_int_equal(mm_manager_prepare(first, graphs[1]), status);
        mm_manager_destroy(first);
        for (int i = 0; i < 2; i++) mm_graph_destroy(graphs[i]);
    }
    assert_true(recomputed > 0);
}

/* ---------------------------------------------------------------- several graphs */

TEST_CASE(the_graph_whose_persistent_tensors_count_is_named_and_the_need_is_that_of_all) {
    mm_graph *training = rig_random_graph(SEED, LAYERS, CHANNELS), *evaluation = state_graph("evaluation");
    const int64_t alone = rig_minimum(training, "liveness");
    mm_manager *m = manager_of(alone, 0, "liveness");
    expect_ok(mm_manager_prepare(m, training));
    assert_int_equal(mm_manager_prepare(m, evaluation), MM_ERR_INFEASIBLE);
    mm_refusal r = expect_same(m);
    assert_string_equal(r.graph, mm_graph_name(training));
    assert_string_equal(r.other_graph, "evaluation");
    assert_int_equal(r.other_bytes, STATE_ALIGNED);
    assert_int_equal(r.needed_bytes, alone + r.other_bytes);
    mm_manager_destroy(m);
    m = manager_of(r.needed_bytes, 0, "liveness");
    expect_ok(mm_manager_prepare(m, training));
    expect_ok(mm_manager_prepare(m, evaluation));
    mm_manager_destroy(m);

    m = manager_of(alone + 4096, 0, "liveness");
    expect_ok(mm_manager_prepare(m, training));
    assert_int_equal(mm_persistent_add(m, "added", 8192), MM_ERR_INFEASIBLE);
    assert_true(mm_refusal_get(m, &r));
    assert_string_equal(r.message, mm_last_error());
    assert_int_equal(r.needed_bytes, alone + 8192);
    assert_int_equal(r.other_bytes, 8192);
    assert_string_equal(r.other_graph, "");
    assert_int_equal(mm_persistent_add(m, "added", alone + 8192), MM_ERR_INFEASIBLE);
    assert_true(mm_refusal_get(m, &r));
    assert_string_equal(r.message, mm_last_error());
    assert_string_equal(r.graph, "");
    mm_manager_destroy(m);
    mm_graph_destroy(training);
    mm_graph_destroy(evaluation);
}

/* Of graphs that do not fit, the one that needs most is told, in whatever order they were prepared. */
TEST_CASE(a_policy_that_does_not_fit_several_graphs_is_told_with_what_all_need) {
    for (int order = 0; order < 2; order++) {
        mm_graph *graphs[] = {rig_random_graph(SEED, LAYERS, CHANNELS), graph_files_everything()};
        mm_requirement *naive;
        const mm_plan_limits limits = {.pinned_bytes = PINNED, .device = rig_device_used()->name};
        const mm_graph *both[] = {graphs[order], graphs[!order]};
        expect_ok(mm_requirement_get(both, 2, NULL, "liveness", &limits, &naive));
        mm_manager *m = manager_of(naive->least_bytes, PINNED, "liveness");
        mm_requirement_destroy(naive);
        for (int i = 0; i < 2; i++) expect_ok(mm_manager_prepare(m, both[i]));
        assert_int_equal(mm_policy_set(m, "naive"), MM_ERR_INFEASIBLE);
        const mm_refusal r = expect_same(m);
        expect_ok(mm_requirement_get(both, 2, NULL, "naive", &limits, &naive));
        assert_int_equal(r.needed_bytes, naive->least_bytes);
        assert_string_equal(r.graph, naive->graphs[naive->most].graph);
        mm_requirement_destroy(naive);
        mm_manager_destroy(m);
        for (int i = 0; i < 2; i++) mm_graph_destroy(graphs[i]);
    }
}

/* ---------------------------------------------------------------- a budget that follows the graphs */

static void log_line(void *ctx, mm_log_level level, const char *message) {
    (void)level;
    if (strstr(message, "what the graphs need")) snprintf(ctx, 256, "%s", message);
}

TEST_CASE(without_a_budget_a_manager_takes_what_its_graphs_need_and_says_so) {
    char line[256] = "", number[64];
    mm_graph *training = rig_random_graph(SEED, LAYERS, CHANNELS), *evaluation = state_graph("evaluation");
    const int64_t liveness = rig_minimum(training, "liveness"), naive = rig_minimum(training, "naive");
    mm_manager *m = rig_manager(&(mm_options){.log = {log_line, line, MM_LOG_INFO}, .measure_touched = true});
    rig r;
    rig_init(&r, training, SEED);
    assert_int_equal(mm_manager_device_bytes(m), 0);
    expect_ok(mm_manager_prepare(m, training));
    assert_int_equal(mm_manager_device_bytes(m), liveness);
    snprintf(number, sizeof number, "budget of %lld bytes", (long long)liveness);
    assert_non_null(strstr(line, number));
    expect_ok(rig_bind(&r, m));
    expect_ok(rig_iteration(&r, m, RIG_MIXED));
    assert_true(rig_digest(&r, m) == random_graph_reference(training, SEED, 1));
    expect_ok(mm_manager_prepare(m, evaluation)); /* the plans move up */
    assert_int_equal(mm_manager_device_bytes(m), liveness + STATE_ALIGNED);
    expect_ok(mm_persistent_add(m, "added", 1000));
    assert_int_equal(mm_manager_device_bytes(m), liveness + STATE_ALIGNED + 1024);
    expect_ok(mm_policy_set(m, "naive"));
    assert_int_equal(mm_manager_device_bytes(m), naive + STATE_ALIGNED + 1024);
    expect_ok(rig_bind(&r, m));
    expect_ok(rig_iteration(&r, m, RIG_MIXED));
    assert_true(rig_digest(&r, m) == random_graph_reference(training, SEED, 1));
    mm_touched touched;
    expect_ok(mm_touched_get(m, &touched));
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes <= mm_manager_device_bytes(m));

    expect_ok(mm_policy_set(m, "liveness"));
    expect_ok(mm_budget_set(m, liveness + STATE_ALIGNED + 1024)); /* from now on the budget stays */
    assert_int_equal(mm_persistent_add(m, "more", 1000), MM_ERR_INFEASIBLE);
    assert_int_equal(mm_manager_device_bytes(m), liveness + STATE_ALIGNED + 1024);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(training);
    mm_graph_destroy(evaluation);
}

TEST_CASE(a_graph_that_is_refused_leaves_the_budget_as_it_was) {
    mm_graph *training = rig_random_graph(SEED, LAYERS, CHANNELS), *shared = graph_files_everything();
    const int64_t liveness = rig_minimum(training, "liveness");
    mm_manager *m = rig_manager(&(mm_options){.policy = "liveness"});
    expect_ok(mm_manager_prepare(m, training));
    assert_int_equal(mm_manager_prepare(m, shared), MM_ERR_INFEASIBLE); /* its all-reduces need pinned memory */
    assert_int_equal(mm_manager_device_bytes(m), liveness);
    mm_manager_destroy(m);
    mm_graph_destroy(training);
    mm_graph_destroy(shared);
}

TEST_CASE(graphs_that_need_more_than_the_device_has_are_refused_with_both_numbers) {
    const mm_tensor_desc desc = {
        .name = "huge", .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {INT64_C(1) << 50}};
    mm_graph *graph;
    mm_tensor huge;
    mm_layer layer;
    mm_refusal r;
    expect_ok(mm_graph_create("huge", &graph));
    expect_ok(mm_graph_add_tensor(graph, &desc, &huge));
    expect_ok(mm_graph_add_layer(graph, "count", MM_LAYER_OTHER, &layer));
    expect_ok(mm_graph_add_step(graph, layer, MM_FORWARD, &(mm_use){huge, MM_MODIFY, MM_FORM_VALUE}, 1, 0));
    expect_ok(mm_graph_freeze(graph));
    mm_manager *m = rig_manager(&(mm_options){.policy = "liveness"});
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    assert_true(mm_refusal_get(m, &r));
    assert_string_equal(r.message, mm_last_error());
    assert_int_equal(r.needed_bytes, INT64_C(4) << 50);
    says(&r, "the graphs need %lld bytes", (long long)r.needed_bytes);
    assert_true(r.device_bytes > 0);
    says(&r, "%lld bytes", (long long)r.device_bytes);
    assert_int_equal(mm_manager_device_bytes(m), 0);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- MM_SAVE_GRAPH */

static void keep_warning(void *ctx, mm_log_level level, const char *message) {
    if (level == MM_LOG_WARNING) snprintf(ctx, 256, "%s", message);
}

TEST_CASE(a_manager_writes_its_graphs_where_the_environment_says) {
    char path[GRAPH_PATH], warning[256] = "";
    mm_graph *graphs[] = {rig_random_graph(SEED, LAYERS, CHANNELS), state_graph("evaluation")}, **read;
    size_t n;
    setenv("MM_SAVE_GRAPH", graph_files_path("saved.json", path), 1);
    mm_manager *m = manager_of(rig_minimum(graphs[0], "liveness"), 0, "liveness");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mm_manager_prepare(m, graphs[i]), i == 0 ? MM_OK : MM_ERR_INFEASIBLE);
        expect_ok(mm_graph_load(path, &read, &n));
        assert_int_equal(n, i + 1); /* the one that was refused, too */
        for (size_t g = 0; g < n; g++) graph_files_expect_same(read[g], graphs[g]);
        mm_graph_list_destroy(read, n);
    }
    mm_manager_destroy(m);
    unlink(path);
    setenv("MM_SAVE_GRAPH", "/nowhere/graphs.json", 1);
    m = rig_manager(&(mm_options){.log = {keep_warning, warning, MM_LOG_WARNING}});
    expect_ok(mm_manager_prepare(m, graphs[0]));
    assert_non_null(strstr(warning, "MM_SAVE_GRAPH: graphs are not saved: /nowhere/graphs.json"));
    setenv("MM_SAVE_GRAPH", "", 1);
    warning[0] = '\0';
    expect_ok(mm_manager_prepare(m, graphs[1]));
    assert_string_equal(warning, "");
    unsetenv("MM_SAVE_GRAPH");
    mm_manager_destroy(m);
    for (int i = 0; i < 2; i++) mm_graph_destroy(graphs[i]);
}
