/* SPDX-License-Identifier: MIT */
/* Several graphs and changing policies in one manager: persistent tensors keep their places and values, a refused
 * change changes nothing, and events report what happened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/account/account.h"
#include "mm/manager/facts_measured.h"
#include "mm/manager/figures.h"
#include "mm/manager/prepare.h"
#include "mm/planning/planning.h"
#include "tests/core/comma_locale.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 21, LAYERS = 10, BUDGET = 1 << 20 };

static void assert_says(const char *word) {
    if (!strstr(mm_last_error(), word)) fail_msg("'%s' does not say '%s'", mm_last_error(), word);
}

/* Addresses of the graph's persistent tensors, in order of their indices. The caller frees them. */
static void **addresses(const mm_graph *graph, mm_manager *m) {
    void **all = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *all);
    assert_non_null(all);
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_PERSISTENT)
            all[t] = mm_persistent_data(m, mm_graph_tensor(graph, t)->name, NULL);
    return all;
}

static void assert_same_addresses(const mm_graph *graph, mm_manager *m, void **before) {
    void **now = addresses(graph, m);
    assert_memory_equal(now, before, (size_t)mm_graph_tensors(graph) * sizeof *now);
    free(now);
}

/* ---------------------------------------------------------------- specs */

TEST_CASE(numbers_in_specs_have_a_point_in_programs_whose_locale_has_a_comma) {
    static const char *const specs[] = {"rules:*=compress(eb:abs=0.5),when=always", "freelunch:ratio=2.5,when=always",
                                        "comet:sigma=0.02,when=always"};
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        mm_stats stats[2];
        for (int comma = 0; comma < 2; comma++) {
            mm_options options = {.device_bytes = BUDGET, .pinned_bytes = BUDGET, .policy = specs[i]};
            if (comma) comma_locale_enter();
            mm_manager *m = rig_manager(&options);
            expect_ok(mm_manager_prepare(m, graph));
            if (comma) comma_locale_leave();
            mm_stats_get(m, &stats[comma]);
            mm_manager_destroy(m);
        }
        assert_int_equal(stats[0].predicted_peak_bytes, stats[1].predicted_peak_bytes);
    }
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- switching */

TEST_CASE(a_switch_keeps_persistents_in_place_and_the_results_right) {
    static const char *const order[] = {
        "liveness",
        "freelunch:codec=raw,eligible=all,when=always",
        "liveness",
        "naive",
        "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always",
        "freelunch:codec=raw,depth=4,when=always",
        "liveness",
    };
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6);
    mm_options options = {.device_bytes = BUDGET, .self_check = true, .measure_touched = true};
    mm_manager *m = rig_manager(&options);
    plain expected;
    rig r;
    rig_init(&r, graph, SEED);
    plain_init(&expected, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    void **places = addresses(graph, m);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        uint64_t before = rig_digest(&r, m);
        assert_int_equal(mm_policy_set(m, order[i]), MM_OK);
        assert_same_addresses(graph, m, places);
        assert_int_equal(rig_digest(&r, m), before);
        assert_int_equal(rig_iteration(&r, m, (rig_mode)(i % RIG_MODES)), MM_OK);
        plain_steps(&expected, 0, mm_graph_steps(graph));
        if (rig_digest(&r, m) != plain_digest(&expected)) fail_msg("other results after %s, policy %zu", order[i], i);
    }
    mm_touched touched;
    mm_stats stats;
    mm_stats_get(m, &stats);
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes <= stats.predicted_peak_bytes);
    free(places);
    plain_fini(&expected);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

TEST_CASE(a_refused_switch_leaves_the_old_policy_at_work) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6);
    int64_t budget = rig_minimum(graph, "liveness");
    assert_true(budget < rig_minimum(graph, "naive"));
    mm_options options = {.device_bytes = budget, .policy = "liveness"};
    mm_manager *m = rig_manager(&options);
    plain expected;
    rig r;
    rig_init(&r, graph, SEED);
    plain_init(&expected, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    void **places = addresses(graph, m);
    assert_int_equal(mm_policy_set(m, "naive"), MM_ERR_INFEASIBLE);
    assert_says("naive");
    assert_int_equal(mm_policy_set(m, "hope"), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_policy_set(m, "freelunch:codec=gzip"), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_policy_set(m, "freelunch:codec=mask"), MM_ERR_INVALID);
    assert_int_equal(mm_policy_set(m, "freelunch:codec=raw,eligible=all,k=1,when=always"), MM_ERR_INFEASIBLE);
    assert_int_equal(mm_policy_set(m, NULL), MM_ERR_INVALID);
    assert_same_addresses(graph, m, places);
    assert_int_equal(rig_iteration(&r, m, RIG_INLINE), MM_OK);
    plain_steps(&expected, 0, mm_graph_steps(graph));
    assert_int_equal(rig_digest(&r, m), plain_digest(&expected));
    free(places);
    plain_fini(&expected);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* A policy that is set before a graph is prepared is not planned yet: only its codecs can be checked. */
TEST_CASE(before_a_graph_is_prepared_a_codec_that_cannot_be_had_is_refused) {
    mm_options options = {.device_bytes = BUDGET, .policy = "liveness"};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_policy_set(m, "freelunch:codec=gzip"), MM_ERR_NOT_FOUND);
    assert_says("gzip");
    assert_int_equal(mm_policy_set(m, "rules:*=compress(zfp:rate=-1)"), MM_ERR_INVALID);
    assert_string_equal(mm_policy_now(m), "liveness");
    assert_int_equal(mm_policy_set(m, "freelunch:codec=raw"), MM_OK);
    assert_string_equal(mm_policy_now(m), "freelunch:codec=raw");
    mm_manager_destroy(m);
}

/* ---------------------------------------------------------------- several graphs */

/* A graph of one layer, which modifies two persistent tensors: "shared", which all small graphs have, and `own`. */
static mm_graph *small_graph(const char *own, int64_t elems) {
    mm_graph *graph;
    mm_tensor shared, mine;
    mm_layer layer;
    mm_tensor_desc sd = {.name = "shared", .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {100}};
    mm_tensor_desc od = {.name = own, .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {elems}};
    assert_int_equal(mm_graph_create(own, &graph), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &sd, &shared), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &od, &mine), MM_OK);
    assert_int_equal(mm_graph_add_layer(graph, "layer", MM_LAYER_OTHER, &layer), MM_OK);
    mm_use uses[] = {{shared, MM_MODIFY, MM_FORM_VALUE}, {mine, MM_MODIFY, MM_FORM_VALUE}};
    assert_int_equal(mm_graph_add_step(graph, layer, MM_FORWARD, uses, 2, 64), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    return graph;
}

TEST_CASE(a_second_graph_adds_persistents_above_those_that_stay) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6), *small = small_graph("mine", 1000);
    mm_options options = {.device_bytes = BUDGET, .policy = "liveness", .measure_touched = true};
    mm_manager *m = rig_manager(&options);
    plain expected;
    rig r, rs;
    rig_init(&r, graph, SEED);
    rig_init(&rs, small, SEED);
    plain_init(&expected, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    void **places = addresses(graph, m);
    uint64_t before = rig_digest(&r, m);
    mm_stats first, second;
    mm_stats_get(m, &first);

    assert_int_equal(mm_manager_prepare(m, small), MM_OK);
    mm_stats_get(m, &second);
    assert_int_equal(second.persistent_bytes, first.persistent_bytes + 512 + 4096);
    assert_same_addresses(graph, m, places);
    assert_int_equal(rig_digest(&r, m), before);
    /* The new tensors are zero, though the first graph's plan had used their bytes. */
    size_t bytes;
    char mine[4000];
    assert_non_null(mm_persistent_data(m, "mine", &bytes));
    assert_int_equal(bytes, sizeof mine);
    assert_int_equal(mm_persistent_get(m, "mine", 0, mine, sizeof mine), MM_OK);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(mine[i], 0);

    assert_int_equal(rig_iteration(&rs, m, RIG_STREAM), MM_OK);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    plain_steps(&expected, 0, mm_graph_steps(graph));
    plain_steps(&expected, 0, mm_graph_steps(graph));
    assert_int_equal(rig_digest(&r, m), plain_digest(&expected));
    mm_touched touched;
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0);
    free(places);
    plain_fini(&expected);
    rig_fini(&r);
    rig_fini(&rs);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
    mm_graph_destroy(small);
}

TEST_CASE(a_second_graph_that_does_not_fit_changes_nothing) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6), *small = small_graph("mine", 1000);
    mm_options options = {.device_bytes = rig_minimum(graph, "liveness") + 4095, .policy = "liveness"};
    mm_manager *m = rig_manager(&options);
    rig r;
    plain expected;
    rig_init(&r, graph, SEED);
    plain_init(&expected, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(mm_manager_prepare(m, small), MM_ERR_INFEASIBLE);
    assert_says("needs at least");
    assert_null(mm_persistent_data(m, "mine", NULL));
    assert_int_equal(mm_manager_forget(m, small), MM_ERR_NOT_FOUND);
    assert_int_equal(rig_iteration(&r, m, RIG_INLINE), MM_OK);
    plain_steps(&expected, 0, mm_graph_steps(graph));
    assert_int_equal(rig_digest(&r, m), plain_digest(&expected));
    plain_fini(&expected);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
    mm_graph_destroy(small);
}

TEST_CASE(a_persistent_tensor_of_another_size_is_refused) {
    mm_graph *one = small_graph("mine", 1000), *two = small_graph("mine", 999);
    mm_options options = {.device_bytes = BUDGET};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_manager_prepare(m, one), MM_OK);
    assert_int_equal(mm_manager_prepare(m, two), MM_ERR_INVALID);
    assert_says("mine");
    assert_says("3996");
    assert_says("4000");
    assert_int_equal(mm_manager_prepare(m, one), MM_OK); /* does nothing */
    mm_manager_destroy(m);
    mm_graph_destroy(one);
    mm_graph_destroy(two);
}

static void expect_last(mm_manager *m, float expected) {
    float last;
    assert_int_equal(mm_persistent_get(m, "mine", 999 * sizeof last, &last, sizeof last), MM_OK);
    assert_true(last == expected);
}

TEST_CASE(a_forgotten_graph_may_be_destroyed_and_its_persistents_stay) {
    mm_graph *one = small_graph("mine", 1000), *two = small_graph("yours", 1000);
    mm_options options = {.device_bytes = BUDGET};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_manager_prepare(m, one), MM_OK);
    assert_int_equal(mm_manager_prepare(m, two), MM_OK);
    const void *mine = mm_persistent_data(m, "mine", NULL);
    const float last = 42;
    assert_int_equal(mm_persistent_set(m, "mine", 999 * sizeof last, &last, sizeof last), MM_OK);
    assert_int_equal(mm_manager_forget(m, one), MM_OK);
    assert_int_equal(mm_manager_forget(m, one), MM_ERR_NOT_FOUND);
    mm_graph_destroy(one);
    assert_int_equal(mm_policy_set(m, "naive"), MM_OK); /* plans the graph that is left */
    rig r;
    rig_init(&r, two, SEED);
    assert_int_equal(rig_iteration(&r, m, RIG_INLINE), MM_OK);
    assert_ptr_equal(mm_persistent_data(m, "mine", NULL), mine);
    expect_last(m, 42);
    mm_graph *again = small_graph("mine", 1000);
    assert_int_equal(mm_manager_prepare(m, again), MM_OK);
    assert_ptr_equal(mm_persistent_data(m, "mine", NULL), mine);
    expect_last(m, 42);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(two);
    mm_graph_destroy(again);
}

TEST_CASE(a_graph_that_is_not_frozen_is_refused) {
    mm_graph *graph;
    mm_options options = {.device_bytes = BUDGET};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_graph_create("open", &graph), MM_OK);
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_ORDER);
    assert_says("mm_graph_freeze");
    assert_int_equal(mm_iteration_begin(m, graph), MM_ERR_ORDER);
    assert_int_equal(mm_manager_prepare(m, NULL), MM_ERR_ORDER);
    mm_graph_destroy(graph);
    mm_manager_destroy(m);
}

/* ---------------------------------------------------------------- events and log */

typedef struct journal {
    char text[1024];
} journal;

static void note(journal *j, const char *format, ...) {
    va_list arguments;
    size_t used = strlen(j->text);
    va_start(arguments, format);
    vsnprintf(j->text + used, sizeof j->text - used, format, arguments);
    va_end(arguments);
}

static void on_event(void *ctx, const mm_event_info *event) {
    static const char *const names[] = {"plan", "policy", "begin", "end", "abort", "wait"};
    if (event->kind == MM_EVENT_WAIT) return; /* waits depend on timing */
    note(ctx, "%s %s\n", names[event->kind], event->name);
    assert_int_equal(event->bytes > 0, event->kind == MM_EVENT_PLAN || event->kind == MM_EVENT_ITERATION_BEGIN);
    assert_int_equal(event->ns > 0, event->kind == MM_EVENT_ITERATION_END || event->kind == MM_EVENT_ABORT);
}

static void on_log(void *ctx, mm_log_level level, const char *message) {
    note(ctx, "log %d %s\n", (int)level, strstr(message, "liveness") ? "policy" : message);
}

TEST_CASE(events_and_log_tell_what_happened_in_order) {
    journal j = {""};
    mm_graph *one = small_graph("one", 1000), *two = small_graph("two", 1000);
    mm_options options = {.device_bytes = BUDGET,
                          .event_fn = on_event,
                          .event_ctx = &j,
                          .log = {.fn = on_log, .ctx = &j, .level = MM_LOG_INFO}};
    mm_manager *m = rig_manager(&options);
    rig r;
    rig_init(&r, one, SEED);
    assert_int_equal(rig_iteration(&r, m, RIG_INLINE), MM_OK);
    assert_int_equal(mm_manager_prepare(m, two), MM_OK);
    assert_int_equal(mm_policy_set(m, "naive"), MM_OK);
    assert_int_equal(mm_policy_set(m, "hope"), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_iteration_begin(m, one), MM_OK);
    mm_iteration_abort(m);
    mm_manager_destroy(m);
    assert_string_equal(j.text, "log 2 policy\n"
                                "plan one\nbegin one\nend one\n"
                                "plan one\nplan two\n"
                                "plan one\nplan two\npolicy naive\n"
                                "begin one\nabort one\n");
    rig_fini(&r);
    mm_graph_destroy(one);
    mm_graph_destroy(two);
}

TEST_CASE(lists_name_all_there_is) {
    static const char *(*const lists[])(size_t, const char **) = {mm_policy_list, mm_codec_list, mm_device_list};
    static const char *const expected[] = {"naive liveness freelunch ", "raw mask zfp ", "host "};
    for (int l = 0; l < 3; l++) {
        char names[256] = "";
        const char *name, *summary;
        size_t i = 0;
        for (; (name = lists[l](i, &summary)); i++) {
            assert_true(strlen(summary) > 0);
            assert_ptr_equal(lists[l](i, NULL), name);
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", name);
        }
        assert_null(lists[l](i + 1, &summary));
        if (strncmp(names, expected[l], strlen(expected[l])) != 0) fail_msg("'%s'", names);
    }
}

/* ---------------------------------------------------------------- facts */

typedef struct told {
    int warnings;
    char last[512];
} told;

static void note_warning(void *ctx, mm_log_level level, const char *message) {
    told *t = ctx;
    if (level != MM_LOG_WARNING) return;
    t->warnings++;
    snprintf(t->last, sizeof t->last, "%s", message);
}

/* Facts in which the graph's variant v takes step_ns + v. */
static mm_facts *facts_of(const mm_graph *graph, int64_t step_ns) {
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(graph, 0, &facts), MM_OK);
    for (int v = 0; v < facts->variant_first[facts->n_steps]; v++) facts->variants[v].ns = step_ns + v;
    facts->out_bytes_per_s = facts->in_bytes_per_s = 12345;
    mm_facts *by_name = rig_facts(graph, facts);
    mm_graph_facts_destroy(facts);
    return by_name;
}

TEST_CASE(plans_are_made_by_the_facts_that_the_manager_was_given) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6), *other = rig_random_graph(SEED + 1, LAYERS, 4);
    mm_facts *facts = facts_of(graph, 1000);
    told t = {0};
    mm_options options = {.device_bytes = BUDGET,
                          .measure_times = true,
                          .facts = facts,
                          .log = {.fn = note_warning, .ctx = &t, .level = MM_LOG_WARNING}};
    mm_manager *m = rig_manager(&options);
    mm_measured measured;
    assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
    assert_int_equal(t.warnings, 0);
    static const char *const policies[] = {"liveness", "freelunch:codec=raw,eligible=all"};
    for (int i = 0; i < 2; i++) { /* every plan is made with the facts, not only the first */
        assert_int_equal(mm_policy_set(m, policies[i]), MM_OK);
        assert_int_equal(mm_measured_get(m, graph, &measured), MM_OK);
        for (int v = 0; v < measured.facts->variant_first[measured.facts->n_steps]; v++)
            assert_int_equal(measured.facts->variants[v].ns, 1000 + v);
        assert_int_equal(measured.facts->out_bytes_per_s, 12345);
    }
    mm_manager_destroy(m);
    m = rig_manager(&options);
    assert_int_equal(mm_manager_prepare(m, other), MM_OK); /* there are no facts for it: reported once */
    assert_int_equal(t.warnings, 1);
    if (!strstr(t.last, "is planned without measured times: facts file") || !strstr(t.last, "is for another graph"))
        fail_msg("%s", t.last);
    assert_int_equal(mm_policy_set(m, "liveness"), MM_OK);
    assert_int_equal(t.warnings, 1);
    assert_int_equal(mm_measured_get(m, other, &measured), MM_OK);
    for (int v = 0; v < measured.facts->variant_first[measured.facts->n_steps]; v++)
        assert_int_equal(measured.facts->variants[v].ns, 0);
    mm_manager_destroy(m);
    mm_facts_destroy(facts);
    mm_graph_destroy(graph);
    mm_graph_destroy(other);
}

/* The warning of missing times comes once, however many substitutes are planned. */
TEST_CASE(a_graph_without_measured_times_is_told_once_where_memory_is_short) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6), *other = rig_random_graph(SEED + 1, LAYERS, 4);
    mm_facts *facts = facts_of(graph, 1000);
    told t = {0};
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = BUDGET,
                                              .pinned_bytes = BUDGET,
                                              .facts = facts,
                                              .log = {.fn = note_warning, .ctx = &t, .level = MM_LOG_WARNING}});
    assert_int_equal(mm_budget_set(m, rig_needs(other, "swap", 0, BUDGET).device_bytes), MM_OK);
    assert_int_equal(mm_manager_prepare(m, other), MM_OK);
    assert_string_not_equal(mm_policy_now(m), "liveness");
    assert_int_equal(t.warnings, 2); /* the missing times, and the step down the ladder */
    mm_manager_destroy(m);
    mm_facts_destroy(facts);
    mm_graph_destroy(graph);
    mm_graph_destroy(other);
}

TEST_CASE(what_a_manager_measured_is_saved_and_serves_another) {
    char path[4096];
    const char *root = getenv("TEST_TMPDIR");
    snprintf(path, sizeof path, "%s/facts-saved", root ? root : "/tmp");
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6);
    told t = {0};
    mm_options options = {.device_bytes = BUDGET,
                          .measure_times = true,
                          .policy = "freelunch:codec=raw,eligible=all,when=always",
                          .log = {.fn = note_warning, .ctx = &t, .level = MM_LOG_WARNING}};
    mm_manager *m = rig_manager(&options);
    rig r;
    rig_init(&r, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(mm_facts_save(m, graph, path), MM_ERR_ORDER);
    assert_says("no iteration of");
    for (int i = 0; i < 3; i++) assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    if (mm_facts_save(m, graph, path) != MM_OK) fail_msg("%s", mm_last_error());
    mm_measured measured;
    assert_int_equal(mm_measured_get(m, graph, &measured), MM_OK);
    int64_t step_ns = 0, code_ns = 0, saved_step_ns = 0, saved_code_ns = 0;
    for (int i = 0; i < measured.plan->n_nodes; i++) {
        mm_node_kind kind = measured.plan->nodes[i].kind;
        if (kind == MM_NODE_STEP) step_ns += mm_execution_ns(measured.execution, i);
        if (kind == MM_NODE_ENCODE) code_ns += mm_execution_ns(measured.execution, i);
    }
    mm_manager_destroy(m);

    mm_facts *facts;
    if (mm_facts_load(path, &facts) != MM_OK) fail_msg("%s", mm_last_error());
    unlink(path);
    options.facts = facts;
    m = rig_manager(&options);
    assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
    if (t.warnings) fail_msg("%s", t.last);
    assert_int_equal(mm_measured_get(m, graph, &measured), MM_OK);
    const mm_graph_facts *f = measured.facts;
    for (int v = 0; v < f->variant_first[f->n_steps]; v++) saved_step_ns += f->variants[v].ns;
    for (int i = 0; i < f->n_codecs * f->n_tensors; i++) saved_code_ns += f->codes[i].encode_ns;
    assert_true(step_ns > 0 && code_ns > 0);
    assert_int_equal(saved_step_ns, step_ns);
    assert_int_equal(saved_code_ns, code_ns);
    mm_manager_destroy(m);
    mm_facts_destroy(facts);

    options = (mm_options){.device_bytes = BUDGET};
    m = rig_manager(&options);
    assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
    assert_int_equal(mm_facts_save(m, graph, path), MM_ERR_ORDER); /* without measure_times */
    mm_manager_destroy(m);
    rig_fini(&r);
    mm_graph_destroy(graph);
}

/* Before an iteration has run, no code was made, so the facts keep the assumed sizes of variable codes. */
TEST_CASE(nothing_is_learned_of_bodies_without_an_iteration) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6);
    mm_manager *m = rig_manager(&(mm_options){
        .device_bytes = BUDGET, .measure_times = true, .policy = "rules:*=compress(zvc:reserve=100),when=always"});
    mm_measured measured;
    mm_copy_line copies[2] = {{0}};
    int bodies = 0;
    assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
    assert_int_equal(mm_measured_get(m, graph, &measured), MM_OK);
    mm_measured_operations(&measured, 1, (mm_graph_facts *)measured.facts, copies);
    for (int t = 0; t < measured.facts->n_tensors; t++) {
        const mm_code_facts *code = mm_facts_code(measured.facts, 0, t);
        assert_true(code->body_bound_bytes == 0 || code->body_typical_bytes > 0);
        bodies += code->body_bound_bytes > 0;
    }
    assert_true(bodies > 0);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* Facts have the sizes that codes took. A plan made with them reserves an eighth more, unless the codec's spec has a
 * reserve. */
TEST_CASE(what_bodies_of_codes_took_is_saved_and_planned_by) {
    enum { CODES = 64 };
    static const char *const policies[] = {"rules:*=compress(zvc),when=always",
                                           "rules:*=compress(zvc:reserve=30),when=always"};
    char path[256];
    const char *root = getenv("TEST_TMPDIR");
    snprintf(path, sizeof path, "%s/facts-of-bodies", root ? root : "/tmp");
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6);
    for (int p = 0; p < 2; p++) {
        mm_options options = {
            .device_bytes = BUDGET, .pinned_bytes = BUDGET, .measure_times = true, .policy = policies[p]};
        mm_code_size sizes[CODES];
        mm_facts *facts;
        mm_measured measured;
        int n;
        rig r;
        mm_manager *m = rig_manager(&options);
        rig_init(&r, graph, SEED);
        assert_int_equal(rig_bind(&r, m), MM_OK);
        for (int i = 0; i < 2; i++) assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
        assert_int_equal(mm_measured_get(m, graph, &measured), MM_OK);
        const int64_t reserve = mm_account_pools(measured.plan).reserve_bytes;
        if (mm_facts_save(m, graph, path) != MM_OK) fail_msg("%s", mm_last_error());
        assert_int_equal(mm_code_sizes(m, graph, sizes, CODES, &n), MM_OK);
        assert_true(n > 0 && n <= CODES);
        mm_manager_destroy(m);
        if (mm_facts_load(path, &facts) != MM_OK) fail_msg("%s", mm_last_error());
        unlink(path);
        options.facts = facts;
        m = rig_manager(&options);
        assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
        assert_int_equal(mm_measured_get(m, graph, &measured), MM_OK);
        int64_t reserved = 0;
        for (int i = 0; i < n; i++) {
            const mm_code_facts *code = mm_facts_code(measured.facts, 0, sizes[i].tensor);
            const int64_t more = sizes[i].body_bytes + sizes[i].body_bytes / 8 + 1;
            assert_int_equal(code->body_typical_bytes, sizes[i].body_bytes);
            if (p == 0)
                assert_int_equal(code->body_reserve_bytes,
                                 more < code->body_bound_bytes ? more : code->body_bound_bytes);
            reserved += mm_align(code->body_reserve_bytes);
        }
        assert_int_equal(mm_account_pools(measured.plan).reserve_bytes, reserved);
        assert_true((p == 1) == (reserved == reserve));
        mm_manager_destroy(m);
        mm_facts_destroy(facts);
        rig_fini(&r);
    }
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- ready-made plans */

static mm_plan *plan_of(const mm_graph *graph, const char *spec, int64_t device_bytes) {
    mm_planned planned;
    mm_policy policy;
    const mm_limits limits = {.device_bytes = device_bytes, .pinned_bytes = BUDGET, .base_bytes = mm_plan_base(graph)};
    expect_ok(mm_policy_parse(spec, &policy));
    expect_ok(mm_planned_init(&planned, &policy, graph, rig_device_used()->name));
    expect_ok(mm_planned_make(&planned, &policy, graph, &limits));
    mm_plan *plan = mm_planned_release(&planned);
    assert_null(planned.plan);
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return plan;
}

/* Makes the plan wrong: all its segments lie at the same place. */
static void spoil(mm_plan *plan) {
    for (int i = 0; i < plan->n_segments; i++)
        if (mm_segment_has_life(&plan->segments[i])) plan->segments[i].offset = plan->base_bytes;
}

/* When the manager takes an offered plan, the graph it was made with has been destroyed. If the plan does not fit the
 * manager's graph, policy or budget, or is wrong, the manager makes one of its own. */
TEST_CASE(a_plan_that_is_offered_is_taken_where_it_serves) {
    static const struct {
        const char *policy; /* the policy with which the plan is made */
        int layers;
        int64_t device_bytes; /* the limit with which it is offered */
        bool spoilt, taken;
    } cases[] = {
        {"swap:when=always", LAYERS, BUDGET, false, true}, {"swap:when=always", LAYERS, BUDGET - 256, false, false},
        {"liveness", LAYERS, BUDGET, false, false},        {"swap:when=always", LAYERS + 1, BUDGET, false, false},
        {"swap:when=always", LAYERS, BUDGET, true, false},
    };
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_options options = {.device_bytes = BUDGET, .pinned_bytes = BUDGET, .policy = "swap:when=always"};
        mm_manager *m = rig_manager(&options);
        mm_graph *other = rig_random_graph(SEED, cases[i].layers, 6);
        mm_plan *plan = plan_of(other, cases[i].policy, BUDGET);
        const mm_node *nodes = plan->nodes; /* identifies the plan: no other can have this address while it exists */
        if (cases[i].spoilt) spoil(plan);
        expect_ok(mm_plan_offer(m, plan, cases[i].device_bytes));
        mm_graph_destroy(other);
        plain expected;
        rig r;
        rig_init(&r, graph, SEED);
        plain_init(&expected, graph, SEED);
        expect_ok(rig_bind(&r, m));
        if (!cases[i].spoilt && (mm_plan_now(m, graph)->nodes == nodes) != cases[i].taken)
            fail_msg("case %zu: the plan %s", i, cases[i].taken ? "is not taken" : "is taken");
        assert_ptr_equal(mm_plan_now(m, graph)->graph, graph);
        expect_ok(rig_iteration(&r, m, RIG_INLINE));
        plain_steps(&expected, 0, mm_graph_steps(graph));
        if (rig_digest(&r, m) != plain_digest(&expected)) fail_msg("case %zu: other results", i);
        plain_fini(&expected);
        rig_fini(&r);
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}
