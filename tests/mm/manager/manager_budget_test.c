/* SPDX-License-Identifier: MIT */
/* The least budget works, and one byte less is refused before anything runs; no byte is touched that was not predicted;
 * statistics are right; some options are refused by mm_manager_create. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/size.h"
#include "mm/device/contract/device.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 11, LAYERS = 12 };

static const char *const policies[] = {
    "naive",
    "liveness",
    "freelunch:codec=raw,eligible=all,when=always",
    "freelunch:rate=8,eligible=all,when=always",
    "freelunch:rate=8,eligible=all,buffers=naive,workspace=naive,when=always",
};
enum { POLICIES = sizeof policies / sizeof *policies };

static void assert_says(const char *word) {
    if (!strstr(mm_last_error(), word)) fail_msg("'%s' does not say '%s'", mm_last_error(), word);
}

/* ---------------------------------------------------------------- least budget */

TEST_CASE(one_byte_under_the_minimum_is_refused_naming_it_and_the_layer) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    for (int p = 0; p < POLICIES; p++) {
        char need[64];
        int64_t minimum = rig_needs(graph, policies[p], 0, INT64_MAX).device_bytes;
        snprintf(need, sizeof need, "needs at least %lld bytes", (long long)minimum);
        mm_options options = {.device_bytes = minimum - 1, .policy = policies[p]};
        mm_manager *m = rig_manager(&options);
        assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
        assert_says(need);
        assert_says(", held by ");
        bool named = false;
        for (int s = 0; s < mm_graph_steps(graph); s++) {
            char step[256];
            named |= strstr(mm_last_error(), mm_graph_step_name(graph, s, step, sizeof step)) != NULL;
        }
        assert_true(named);
        assert_int_equal(mm_iteration_begin(m, graph), MM_ERR_INFEASIBLE);
        assert_null(mm_persistent_data(m, "loss", NULL)); /* nothing changed */
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(the_minimum_runs_and_touches_no_more_than_predicted) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    for (int p = 0; p < POLICIES; p++) {
        mm_options options = {
            .device_bytes = rig_minimum(graph, policies[p]), .policy = policies[p], .measure_touched = true};
        mm_manager *m = rig_manager(&options);
        mm_touched touched;
        mm_stats stats;
        rig r;
        rig_init(&r, graph, SEED);
        assert_int_equal(rig_bind(&r, m), MM_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
        mm_stats_get(m, &stats);
        assert_int_equal(mm_touched_get(m, &touched), MM_OK);
        assert_int_equal(stats.iterations, 3);
        assert_int_equal(stats.predicted_peak_bytes, options.device_bytes);
        assert_int_equal(touched.stray_bytes, 0);
        assert_int_equal(touched.persistent_bytes, stats.persistent_bytes);
        assert_true(touched.total_bytes <= stats.predicted_peak_bytes);
        assert_true(touched.total_bytes > stats.persistent_bytes);
        assert_int_equal(mm_manager_device_bytes(m), options.device_bytes);
        rig_fini(&r);
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(one_byte_of_pinned_memory_too_few_is_refused_naming_it) {
    static const char *const swapping[] = {"swap:when=always",     "swap-async:when=always",
                                           "vdnn-all:when=always", "vdnn-conv:when=always",
                                           "cdma:when=always",     "hybrid:rate=8,when=always"};
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    for (size_t p = 0; p < sizeof swapping / sizeof *swapping; p++) {
        char need[96];
        rig_need n = rig_needs(graph, swapping[p], INT64_MAX, INT64_MAX);
        assert_true(n.pinned_bytes > 0 && n.out_bytes > 0 && n.in_bytes > 0);
        mm_options options = {
            .device_bytes = n.device_bytes, .pinned_bytes = n.pinned_bytes - 1, .policy = swapping[p]};
        snprintf(need, sizeof need, "needs %s of pinned memory; its limit is %lld", MM_SIZE_TEXT(n.pinned_bytes),
                 (long long)options.pinned_bytes);
        mm_manager *m = rig_manager(&options);
        assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
        assert_says(need);
        assert_says(swapping[p]);
        assert_int_equal(mm_iteration_begin(m, graph), MM_ERR_INFEASIBLE);
        assert_null(mm_persistent_data(m, "loss", NULL)); /* nothing changed */
        mm_manager_destroy(m);
        options.pinned_bytes++;
        m = rig_manager(&options);
        assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

/* A graph of one step, which reads the external tensor "x" and modifies the persistent tensor "sum". */
static mm_graph *external_graph(int64_t elems) {
    mm_graph *graph;
    mm_tensor x, sum;
    mm_layer layer;
    mm_tensor_desc xd = {.name = "x", .kind = MM_INPUT, .ownership = MM_EXTERNAL, .rank = 1, .dims = {elems}};
    mm_tensor_desc sd = {.name = "sum", .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {64}};
    assert_int_equal(mm_graph_create("external", &graph), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &xd, &x), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &sd, &sum), MM_OK);
    assert_int_equal(mm_graph_add_layer(graph, "sum", MM_LAYER_OTHER, &layer), MM_OK);
    mm_use uses[] = {{x, MM_READ, MM_FORM_VALUE}, {sum, MM_MODIFY, MM_FORM_VALUE}};
    assert_int_equal(mm_graph_add_step(graph, layer, MM_FORWARD, uses, 2, 0), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    return graph;
}

TEST_CASE(external_tensors_count_in_the_budget) {
    mm_graph *graph = external_graph(1000);
    assert_int_equal(rig_minimum(graph, "naive"), 256 + 4000);
    mm_options options = {.device_bytes = 256 + 3999, .policy = "naive"};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    assert_says("4256");
    mm_manager_destroy(m);
    options.device_bytes++;
    m = rig_manager(&options);
    assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- figures */

TEST_CASE(statistics_count_what_ran) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    mm_options options = {
        .device_bytes = 1 << 22, .policy = "freelunch:codec=raw,eligible=all,when=always", .pinned_bytes = 1};
    mm_manager *m = rig_manager(&options);
    mm_stats one, two;
    rig r;
    rig_init(&r, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    mm_stats_get(m, &one);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    mm_stats_get(m, &two);
    assert_true(one.encodes > 0);
    assert_true(one.decodes > 0 && one.decodes <= one.encodes);
    assert_true(one.stash_bytes > 0 && one.stash_bytes < one.predicted_peak_bytes);
    bool timed = rig_device_used()->cpu_reaches_memory; /* the host always measures times */
    assert_true((one.compute_busy_ns > 0) == timed && (one.codec_busy_ns > 0) == timed);
    assert_true(one.coded_bytes > 0 && one.coded_bytes < one.encoded_bytes); /* raw codes, and some masks */
    assert_int_equal(two.iterations, 2);
    assert_int_equal(two.encodes, 2 * one.encodes);
    assert_int_equal(two.decodes, 2 * one.decodes);
    assert_int_equal(two.encoded_bytes, 2 * one.encoded_bytes);
    assert_int_equal(two.unplanned_allocs, 0);
    assert_int_equal(two.predicted_peak_bytes, one.predicted_peak_bytes);
    assert_int_equal(mm_policy_set(m, "freelunch:codec=raw,eligible=all,buffers=naive,when=always"), MM_OK);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    mm_stats_get(m, &two);
    assert_true(two.unplanned_allocs > 0);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

TEST_CASE(touched_bytes_need_the_pattern_from_the_start) {
    mm_touched touched;
    mm_options options = {.device_bytes = 4096};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_touched_get(m, &touched), MM_ERR_ORDER);
    assert_says("measure_touched");
    mm_manager_destroy(m);
    options.measure_touched = true;
    m = rig_manager(&options);
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.total_bytes, 0);
    assert_int_equal(touched.persistent_bytes, 0);
    assert_int_equal(touched.stray_bytes, 0);
    mm_manager_destroy(m);
}

TEST_CASE(bytes_written_outside_of_every_segment_are_stray) {
    mm_graph *graph = external_graph(10);
    mm_touched touched;
    mm_options options = {.device_bytes = 65536, .measure_touched = true};
    mm_manager *m = rig_manager(&options);
    rig r;
    rig_init(&r, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(rig_iteration(&r, m, RIG_INLINE), MM_OK);
    char *sum = mm_persistent_data(m, "sum", NULL);
    assert_int_equal(mm_fill_async(mm_compute_stream(m), sum + 8192, 1, 64), MM_OK);
    assert_int_equal(mm_stream_sync(mm_compute_stream(m)), MM_OK);
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 64);
    assert_int_equal(touched.total_bytes, 256 + 64);
    assert_int_equal(mm_budget_set(m, 4096), MM_OK); /* the bytes are released, but count as touched */
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 64);
    assert_int_equal(touched.total_bytes, 256 + 64);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

static int64_t resident_bytes(void) {
    long long pages = 0, ignored;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld", &ignored, &pages), 2);
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* Three plans, each of which takes more memory than the last; then the budget is made smaller, and as large as before.
 * Bytes of the budget that no plan takes are never touched, and a write to them is counted as stray. */
TEST_CASE(what_plans_do_not_take_of_a_budget_costs_nothing_and_is_watched) {
    enum { BUDGET = 96 << 20, FAR = 90 << 20, COST = 48 << 20 };
    static const char *const growing[] = {"freelunch:rate=8,eligible=all,when=always", "liveness", "naive"};
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    mm_touched touched;
    mm_options options = {.device_bytes = BUDGET, .policy = growing[0], .measure_touched = true};
    int64_t before = resident_bytes();
    mm_manager *m = rig_manager(&options);
    rig r;
    rig_init(&r, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    for (int p = 0; p < 5; p++) {
        if (p < 3) assert_int_equal(mm_policy_set(m, growing[p]), MM_OK);
        if (p == 3) assert_int_equal(mm_budget_set(m, rig_minimum(graph, "naive") + 1000), MM_OK);
        if (p == 4) assert_int_equal(mm_budget_set(m, BUDGET), MM_OK);
        assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
        assert_int_equal(mm_touched_get(m, &touched), MM_OK);
        assert_int_equal(touched.stray_bytes, 0);
        assert_true(touched.total_bytes <= rig_minimum(graph, "naive"));
    }
    if (rig_device_used()->cpu_reaches_memory) assert_true(resident_bytes() - before < COST);
    const char *first = NULL; /* where the arena begins */
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const char *place = mm_persistent_data(m, mm_graph_tensor(graph, t)->name, NULL);
        if (place && (!first || place < first)) first = place;
    }
    assert_int_equal(mm_fill_async(mm_compute_stream(m), (char *)(uintptr_t)first + FAR, 1, 64), MM_OK);
    assert_int_equal(mm_stream_sync(mm_compute_stream(m)), MM_OK);
    int64_t expected = touched.total_bytes + 64;
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 64);
    assert_int_equal(touched.total_bytes, expected);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- options with which no manager is made */

static mm_status create(const mm_options *options) {
    mm_manager *m = NULL;
    mm_status status = mm_manager_create(options, &m);
    if (status == MM_OK)
        mm_manager_destroy(m);
    else
        assert_null(m);
    return status;
}

static void count_event(void *ctx, const mm_event_info *event) {
    (void)event;
    ++*(int *)ctx;
}

/* A caller whose mm.h has fewer members, and one whose mm.h has more. */
TEST_CASE(options_of_another_headers_size_are_taken_as_far_as_they_are_known) {
    struct {
        mm_options known;
        int64_t newer[2];
    } options = {.known = {.device_bytes = 65536, .event_fn = count_event}};
    int events = 0;
    mm_manager *m = NULL;
    options.known.event_ctx = &events;
    const size_t older = offsetof(mm_options, event_fn);
    if (mm_manager_create_sized(&options.known, older, &m) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_policy_set(m, "naive"), MM_OK);
    assert_int_equal(events, 0); /* the older mm.h has no event_fn */
    mm_manager_destroy(m);

    m = NULL;
    if (mm_manager_create_sized(&options.known, sizeof options, &m) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_policy_set(m, "naive"), MM_OK);
    assert_int_equal(events, 1);
    mm_manager_destroy(m);

    m = NULL;
    options.newer[1] = 1;
    assert_int_equal(mm_manager_create_sized(&options.known, sizeof options, &m), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "they are of a newer mm.h"));
    assert_null(m);
    if (mm_manager_create_sized(&options.known, 0, &m) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_manager_device_bytes(m), 0); /* no member, so a budget that follows the graphs */
    mm_manager_destroy(m);
}

TEST_CASE(a_persistent_tensor_that_no_graph_declares_moves_the_plans_up) {
    enum { BYTES = 1000, TAKEN = 1024 };
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    int64_t minimum = rig_minimum(graph, "liveness");
    mm_options options = {.device_bytes = minimum + TAKEN, .policy = "liveness", .measure_touched = true};
    mm_manager *m = rig_manager(&options);
    rig r;
    mm_stats stats;
    mm_touched touched;
    size_t bytes;
    uint64_t expected;
    rig_init(&r, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(mm_persistent_add(m, "mine", TAKEN + 1), MM_ERR_INFEASIBLE);
    assert_null(mm_persistent_data(m, "mine", NULL));
    assert_int_equal(mm_persistent_add(m, "mine", 0), MM_ERR_INVALID);
    assert_int_equal(mm_persistent_add(m, "mine", -1), MM_ERR_INVALID);
    assert_int_equal(mm_persistent_add(m, NULL, BYTES), MM_ERR_INVALID);
    assert_says("needs a name");
    assert_int_equal(mm_persistent_add(m, "mine", BYTES), MM_OK);
    assert_int_equal(mm_persistent_add(m, "mine", 1), MM_ERR_INVALID);
    assert_says("is there already");
    char mine[BYTES], zeros[BYTES] = "";
    assert_non_null(mm_persistent_data(m, "mine", &bytes));
    assert_int_equal(bytes, BYTES);
    assert_int_equal(mm_persistent_get(m, "mine", 0, mine, BYTES), MM_OK);
    assert_memory_equal(mine, zeros, BYTES);
    memset(mine, 7, BYTES);
    assert_int_equal(mm_persistent_set(m, "mine", 0, mine, BYTES), MM_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    memset(mine, 0, BYTES);
    assert_int_equal(mm_persistent_get(m, "mine", 0, mine, BYTES), MM_OK);
    for (int i = 0; i < BYTES; i++) assert_int_equal(mine[i], 7);
    expected = random_graph_reference(graph, SEED, 2);
    assert_true(rig_digest(&r, m) == expected);
    mm_stats_get(m, &stats);
    assert_int_equal(stats.predicted_peak_bytes, minimum + TAKEN);
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes <= minimum + TAKEN);
    mm_manager_destroy(m);
    rig_fini(&r);
    mm_graph_destroy(graph);
}

TEST_CASE(bytes_of_a_persistent_tensor_are_those_within_it) {
    enum { BYTES = 1000 };
    static const struct {
        int64_t offset, bytes;
        mm_status status;
    } cases[] = {
        {0, BYTES, MM_OK},
        {BYTES - 1, 1, MM_OK},
        {BYTES, 0, MM_OK},
        {0, BYTES + 1, MM_ERR_INVALID},
        {BYTES - 1, 2, MM_ERR_INVALID},
        {BYTES, 1, MM_ERR_INVALID},
        {BYTES + 1, 0, MM_ERR_INVALID},
        {-1, 1, MM_ERR_INVALID},
        {0, -1, MM_ERR_INVALID},
        {1, INT64_MAX, MM_ERR_INVALID},
        {INT64_MAX, 1, MM_ERR_INVALID},
    };
    char before[BYTES + 2], bytes[BYTES + 2];
    mm_touched touched;
    mm_options options = {.device_bytes = 65536, .measure_touched = true};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_persistent_add(m, "mine", BYTES), MM_OK);
    for (int i = 0; i < BYTES + 2; i++) before[i] = (char)(i % 100 + 1);
    assert_int_equal(mm_persistent_set(m, "mine", 0, before, BYTES), MM_OK);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        memset(bytes, 0, sizeof bytes);
        assert_int_equal(mm_persistent_get(m, "mine", cases[c].offset, bytes, cases[c].bytes), cases[c].status);
        size_t given = cases[c].status == MM_OK ? (size_t)cases[c].bytes : 0;
        assert_memory_equal(bytes, before + (given ? cases[c].offset : 0), given);
        assert_int_equal(bytes[given], 0);
        const char *from = before + (given ? cases[c].offset : 0);
        assert_int_equal(mm_persistent_set(m, "mine", cases[c].offset, from, cases[c].bytes), cases[c].status);
    }
    assert_int_equal(mm_persistent_remove(m, "mine"), MM_OK);
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0); /* the bytes belonged to a tensor when they were touched */
    assert_true(touched.total_bytes >= BYTES);
    mm_manager_destroy(m);
}

TEST_CASE(what_a_graph_that_was_refused_declares_can_be_given_back) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    const mm_tensor_info *tensor = NULL;
    for (int t = 0; t < mm_graph_tensors(graph) && !tensor; t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_PERSISTENT) tensor = mm_graph_tensor(graph, t);
    assert_non_null(tensor);
    mm_options options = {.device_bytes = rig_minimum(graph, "liveness") - 1, .policy = "liveness"};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(mm_persistent_add(m, tensor->name, tensor->bytes), MM_OK);
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    assert_int_equal(mm_persistent_remove(m, tensor->name), MM_OK);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

TEST_CASE(what_no_graph_declares_can_be_given_back) {
    enum { BYTES = 1024 };
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    int64_t minimum = rig_minimum(graph, "liveness");
    mm_options options = {.device_bytes = minimum + 2 * BYTES, .policy = "liveness", .measure_touched = true};
    mm_manager *m = rig_manager(&options);
    rig r;
    mm_stats stats;
    mm_touched touched;
    uint64_t expected;
    char zeros[BYTES] = "", bytes[BYTES];
    rig_init(&r, graph, SEED);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    mm_stats_get(m, &stats);
    int64_t before = stats.persistent_bytes;
    assert_int_equal(mm_persistent_remove(m, "first"), MM_ERR_NOT_FOUND);
    assert_int_equal(mm_persistent_remove(m, NULL), MM_ERR_NOT_FOUND);
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_PERSISTENT)
            assert_int_equal(mm_persistent_remove(m, mm_graph_tensor(graph, t)->name), MM_ERR_INVALID);
    assert_int_equal(mm_persistent_add(m, "first", BYTES), MM_OK);
    assert_int_equal(mm_persistent_add(m, "second", BYTES), MM_OK);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    assert_int_equal(mm_persistent_remove(m, "first"), MM_ERR_ORDER);
    assert_says("second was added after first");
    assert_int_equal(mm_persistent_remove(m, "second"), MM_OK);
    assert_int_equal(mm_persistent_remove(m, "first"), MM_OK);
    assert_null(mm_persistent_data(m, "first", NULL));
    mm_stats_get(m, &stats);
    assert_int_equal(stats.persistent_bytes, before);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    assert_int_equal(mm_persistent_add(m, "first", BYTES), MM_OK); /* at bytes that a plan has written to since */
    assert_int_equal(mm_persistent_get(m, "first", 0, bytes, BYTES), MM_OK);
    assert_memory_equal(bytes, zeros, BYTES);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    expected = random_graph_reference(graph, SEED, 3);
    assert_true(rig_digest(&r, m) == expected);
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

TEST_CASE(a_budget_beyond_the_machine_is_refused_with_the_sizes) {
    mm_options options = {.device_bytes = INT64_C(1) << 60};
    assert_int_equal(create(&options), MM_ERR_NOMEM);
    assert_says("1152921504606846976");
    options.device_bytes = INT64_MAX;
    assert_int_equal(create(&options), MM_ERR_NOMEM);
    options = (mm_options){.device_bytes = 4096, .pinned_bytes = INT64_C(1) << 60};
    assert_int_equal(create(&options), MM_ERR_NOMEM);
    assert_says("pinned");
}

TEST_CASE(senseless_options_are_refused) {
    assert_int_equal(create(NULL), MM_ERR_INVALID);
    assert_int_equal(create(&(mm_options){.device_bytes = -1}), MM_ERR_INVALID);
    assert_says("device_bytes");
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .pinned_bytes = -1}), MM_ERR_INVALID);
    assert_says("pinned_bytes");
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .delay_max_ns = -1}), MM_ERR_INVALID);
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .alloc_cost_ns = -1}), MM_ERR_INVALID);
}

static void refused(mm_status status, const char *call) {
    if (status != MM_ERR_INVALID || strncmp(mm_last_error(), call, strcspn(call, "(")) != 0)
        fail_msg("%s: status %d, '%s'", call, (int)status, mm_last_error());
}

#define REFUSED(call) refused(call, #call)

/* Every pointer argument of mm.h that may not be NULL. */
TEST_CASE(null_pointers_are_refused_by_the_call_that_was_given_them) {
    mm_graph *open, *graph = external_graph(10);
    mm_tensor tensor;
    mm_layer layer;
    mm_touched touched;
    char byte = 0;
    const mm_tensor_desc desc = {.name = "x", .ownership = MM_MANAGED, .rank = 1, .dims = {1}};
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = 65536, .measure_touched = true});
    assert_int_equal(mm_graph_create("open", &open), MM_OK);
    assert_int_equal(mm_graph_add_layer(open, "layer", MM_LAYER_OTHER, &layer), MM_OK);
    assert_int_equal(mm_manager_prepare(m, graph), MM_OK);

    REFUSED(mm_graph_create("g", NULL));
    REFUSED(mm_graph_add_tensor(NULL, &desc, &tensor));
    REFUSED(mm_graph_add_tensor(open, NULL, &tensor));
    REFUSED(mm_graph_add_tensor(open, &desc, NULL));
    REFUSED(mm_graph_add_layer(NULL, "l", MM_LAYER_OTHER, &layer));
    REFUSED(mm_graph_add_layer(open, "l", MM_LAYER_OTHER, NULL));
    REFUSED(mm_graph_set_properties(NULL, layer, &(mm_layer_properties){0}));
    REFUSED(mm_graph_set_properties(open, layer, NULL));
    REFUSED(mm_graph_set_weight(NULL, 0, 0));
    REFUSED(mm_graph_add_part(NULL, layer, "part"));
    REFUSED(mm_graph_add_step(NULL, layer, MM_FORWARD, NULL, 0, 0));
    REFUSED(mm_graph_add_step(open, layer, MM_FORWARD, NULL, 1, 0));
    REFUSED(mm_graph_allow_inplace(NULL, 0, 0));
    REFUSED(mm_graph_allow_alias(NULL, 0, 0));
    REFUSED(mm_graph_allow_given(NULL, 0));
    REFUSED(mm_graph_allow_workspace(NULL, 0));
    REFUSED(mm_graph_freeze(NULL));
    REFUSED(mm_graph_find_tensor(NULL, "x", &tensor));
    REFUSED(mm_graph_find_tensor(graph, NULL, &tensor));
    REFUSED(mm_graph_find_tensor(graph, "x", NULL));
    REFUSED(mm_manager_create(NULL, &m));
    REFUSED(mm_manager_create(&(mm_options){.device_bytes = 4096}, NULL));
    REFUSED(mm_manager_prepare(NULL, graph));
    REFUSED(mm_manager_forget(NULL, graph));
    REFUSED(mm_manager_sync(NULL));
    REFUSED(mm_policy_set(NULL, "liveness"));
    REFUSED(mm_budget_set(NULL, 4096));
    REFUSED(mm_external_set(NULL, graph, 0, &byte));
    REFUSED(mm_recompute_set(NULL, graph, NULL, NULL));
    REFUSED(mm_persistent_get(NULL, "sum", 0, &byte, 1));
    REFUSED(mm_persistent_get(m, NULL, 0, &byte, 1));
    REFUSED(mm_persistent_get(m, "sum", 0, NULL, 1));
    REFUSED(mm_persistent_set(NULL, "sum", 0, &byte, 1));
    REFUSED(mm_persistent_set(m, NULL, 0, &byte, 1));
    REFUSED(mm_persistent_set(m, "sum", 0, NULL, 1));
    REFUSED(mm_persistent_add(NULL, "mine", 1));
    REFUSED(mm_persistent_remove(NULL, "mine"));
    REFUSED(mm_iteration_begin(NULL, graph));
    REFUSED(mm_record_begin(NULL, graph));
    REFUSED(mm_iteration_replay(NULL, graph));
    REFUSED(mm_touched_get(NULL, &touched));
    REFUSED(mm_touched_get(m, NULL));

    assert_int_equal(mm_policy_set(m, NULL), MM_ERR_INVALID);
    assert_int_equal(mm_iteration_end(NULL), MM_ERR_ORDER); /* no iteration is under way */
    assert_int_equal(mm_layer_begin(NULL, 0, MM_FORWARD, NULL), MM_ERR_ORDER);
    assert_null(mm_persistent_data(m, NULL, NULL));
    assert_null(mm_persistent_data(NULL, "sum", NULL));
    assert_null(mm_policy_now(NULL));
    assert_null(mm_compute_stream(NULL));
    assert_int_equal(mm_manager_device_bytes(NULL), 0);
    assert_int_equal(mm_replay_state(NULL, graph), MM_REPLAY_NO);
    mm_stats_get(m, NULL);
    mm_stats_get(NULL, &(mm_stats){0});
    assert_non_null(mm_policy_list(0, NULL));
    assert_non_null(mm_codec_list(0, NULL));
    assert_non_null(mm_device_list(0, NULL));
    mm_manager_destroy(m);
    mm_graph_destroy(open);
    mm_graph_destroy(graph);
}

TEST_CASE(unknown_names_are_answered_with_those_there_are) {
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .device = "abacus"}), MM_ERR_NOT_FOUND);
    assert_says("abacus");
    assert_says("host");
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .policy = "hope"}), MM_ERR_NOT_FOUND);
    assert_says("hope");
    assert_says("naive, liveness, freelunch");
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .policy = "naive:speed=9"}), MM_ERR_INVALID);
    assert_says("speed");
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .policy = "freelunch:codec=gzip"}), MM_ERR_NOT_FOUND);
    assert_says("gzip");
    assert_says("zfp");
    assert_int_equal(create(&(mm_options){.device_bytes = 4096, .policy = "freelunch:rate=99"}), MM_ERR_INVALID);
    assert_says("99");
}
