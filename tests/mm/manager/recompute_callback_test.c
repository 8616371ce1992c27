/* SPDX-License-Identifier: MIT */
/* The recompute callback: what it sees, and which calls it may not make. */
#include <stdio.h>
#include <string.h>

#include "mm/mm.h"
#include "tests/core/expect.h"
#include "tests/suite/device_fault.h"

enum { BUDGET = 1 << 20 };
enum { DATA, CONV, RELU, LAST, LAYERS };
enum { IN, H, R, Y, DR, DH, TENSORS };

typedef enum deed { NOTHING, CALL_ALL, ABORT, FAIL } deed;

typedef struct loop {
    mm_graph *graph;
    mm_manager *manager;
    mm_layer layers[LAYERS];
    deed deed;
    int calls, step; /* step: mm_current_step within the callback */
} loop;

/* What the messages of refused calls say in one state of the manager; NULL: the calls are legal, and not tried. */
typedef struct refusals {
    const char *change;                      /* calls that belong between iterations */
    const char *step_begin, *step_end, *end; /* calls for the last layer's backward step, and that end the iteration */
} refusals;

static void expect_refused(mm_status status, const char *words) {
    if (status != MM_ERR_ORDER || !strstr(mm_last_error(), words))
        fail_msg("status %d, '%s' does not say '%s'", (int)status, mm_last_error(), words);
}

static void expect_all_refused(loop *l, const refusals *r) {
    mm_manager *m = l->manager;
    if (r->change) {
        expect_refused(mm_iteration_begin(m, l->graph), r->change);
        expect_refused(mm_record_begin(m, l->graph), r->change);
        expect_refused(mm_iteration_replay(m, l->graph), r->change);
        expect_refused(mm_manager_sync(m), r->change);
        expect_refused(mm_recompute_set(m, l->graph, NULL, NULL), r->change);
        expect_refused(mm_budget_set(m, BUDGET), r->change);
    }
    if (r->step_begin) expect_refused(mm_layer_begin(m, l->layers[LAST], MM_BACKWARD, NULL), r->step_begin);
    if (r->step_end) expect_refused(mm_layer_end(m, l->layers[LAST], MM_BACKWARD), r->step_end);
    if (r->end) {
        expect_refused(mm_iteration_end(m), r->end);
        expect_refused(mm_iteration_end_async(m), r->end);
        expect_refused(mm_record_end(m), r->end);
    }
}

#define END_FIRST  "an iteration of g is under way; end or abort it first"
#define HAS_FAILED "a recomputation of g has failed; abort the iteration"
static const refusals idle = {NULL, "no iteration", "no iteration", "no iteration"};
static const refusals between = {END_FIRST, NULL, "last backward of g is next", "last backward of g has not been run"};
static const refusals in_step = {END_FIRST, "last backward of g is under way", NULL,
                                 "last backward of g has not ended"};
static const refusals run_again = {END_FIRST, "last backward of g is under way", "last backward of g is under way",
                                   "last backward of g has not ended"};
static const refusals stuck = {END_FIRST, HAS_FAILED, HAS_FAILED, HAS_FAILED};

static mm_status again(void *ctx, mm_manager *m, mm_layer layer, mm_stream *stream) {
    loop *l = ctx;
    (void)layer, (void)stream;
    l->calls++;
    l->step = mm_current_step(m);
    if (l->deed == CALL_ALL) expect_all_refused(l, &run_again);
    if (l->deed == ABORT) mm_iteration_abort(m);
    return l->deed == FAIL ? MM_ERR_DEVICE : MM_OK;
}

/* The layer relu's forward step is recomputed for the backward step of the layer after it. */
static int set_up(void **state) {
    static loop l;
    static const char *const layers[] = {"data", "conv", "relu", "last"}, *const tensors[] = {"in", "h",  "r",
                                                                                              "y",  "dr", "dh"};
    static const mm_layer_kind kinds[] = {MM_LAYER_DATA, MM_LAYER_CONV, MM_LAYER_RELU, MM_LAYER_CONV};
    mm_tensor t[TENSORS];
    l = (loop){.step = -2};
    expect_ok(mm_graph_create("g", &l.graph));
    for (int i = 0; i < TENSORS; i++) {
        mm_tensor_kind kind = i == IN ? MM_INPUT : i < DR ? MM_FEATURE_MAP : MM_GRADIENT_MAP;
        mm_tensor_desc desc = {.name = tensors[i], .kind = kind, .dtype = MM_F32, .rank = 1, .dims = {1024}};
        expect_ok(mm_graph_add_tensor(l.graph, &desc, &t[i]));
    }
    for (int i = 0; i < LAYERS; i++) expect_ok(mm_graph_add_layer(l.graph, layers[i], kinds[i], &l.layers[i]));
    const struct {
        int layer, n;
        mm_phase phase;
        mm_use uses[3];
    } steps[] = {
        {DATA, 1, MM_FORWARD, {{t[IN], MM_WRITE, 0}}},
        {CONV, 2, MM_FORWARD, {{t[IN], MM_READ, 0}, {t[H], MM_WRITE, 0}}},
        {RELU, 2, MM_FORWARD, {{t[H], MM_READ, 0}, {t[R], MM_WRITE, 0}}},
        {LAST, 2, MM_FORWARD, {{t[R], MM_READ, 0}, {t[Y], MM_WRITE, 0}}},
        {LAST, 3, MM_BACKWARD, {{t[R], MM_READ, 0}, {t[Y], MM_READ, 0}, {t[DR], MM_WRITE, 0}}},
        {CONV, 3, MM_BACKWARD, {{t[H], MM_READ, 0}, {t[DR], MM_READ, 0}, {t[DH], MM_WRITE, 0}}},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        expect_ok(
            mm_graph_add_step(l.graph, l.layers[steps[i].layer], steps[i].phase, steps[i].uses, (size_t)steps[i].n, 0));
    expect_ok(mm_graph_freeze(l.graph));
    mm_options options = {.device_bytes = BUDGET, .policy = "recompute:when=always"};
    expect_ok(mm_manager_create(&options, &l.manager));
    expect_ok(mm_recompute_set(l.manager, l.graph, again, &l));
    *state = &l;
    return 0;
}

static int tear_down(void **state) {
    loop *l = *state;
    mm_manager_destroy(l->manager);
    mm_graph_destroy(l->graph);
    return 0;
}

static mm_status step(loop *l, int layer, mm_phase phase) {
    mm_status status = mm_layer_begin(l->manager, l->layers[layer], phase, NULL);
    return status == MM_OK ? mm_layer_end(l->manager, l->layers[layer], phase) : status;
}

static void go_forward(loop *l) {
    expect_ok(mm_iteration_begin(l->manager, l->graph));
    for (int i = 0; i < LAYERS; i++) expect_ok(step(l, i, MM_FORWARD));
}

static void run_iteration(loop *l) {
    go_forward(l);
    expect_ok(step(l, LAST, MM_BACKWARD));
    expect_ok(step(l, CONV, MM_BACKWARD));
    expect_ok(mm_iteration_end(l->manager));
}

static void current_step_is_the_one_that_runs_again(void **state) {
    loop *l = *state;
    run_iteration(l);
    assert_int_equal(l->calls, 1);
    assert_int_equal(l->step, RELU);
}

static void each_state_refuses_what_it_does_not_have_and_changes_nothing(void **state) {
    loop *l = *state;
    l->deed = CALL_ALL;
    expect_all_refused(l, &idle);
    go_forward(l);
    expect_all_refused(l, &between);
    expect_ok(mm_layer_begin(l->manager, l->layers[LAST], MM_BACKWARD, NULL));
    expect_all_refused(l, &in_step);
    expect_ok(mm_layer_end(l->manager, l->layers[LAST], MM_BACKWARD));
    expect_ok(step(l, CONV, MM_BACKWARD));
    expect_ok(mm_iteration_end(l->manager));
    expect_all_refused(l, &idle);
    assert_int_equal(l->calls, 1);
}

static void abort_within_the_callback_ends_the_iteration(void **state) {
    loop *l = *state;
    l->deed = ABORT;
    go_forward(l);
    assert_int_equal(step(l, LAST, MM_BACKWARD), MM_ERR_ORDER);
    l->deed = NOTHING;
    run_iteration(l);
}

static void after_a_failed_callback_only_an_abort_helps(void **state) {
    loop *l = *state;
    l->deed = FAIL;
    go_forward(l);
    assert_int_equal(step(l, LAST, MM_BACKWARD), MM_ERR_DEVICE);
    l->deed = NOTHING;
    expect_all_refused(l, &stuck);
    assert_int_equal(l->calls, 1);
    mm_iteration_abort(l->manager);
    run_iteration(l);
}

/* The recomputation waits for a map whose prefetch fails: nothing is tried a second time. */
static void after_a_recomputation_that_could_not_begin_only_an_abort_helps(void **state) {
    loop *l = *state;
    bool found = false;
    mm_manager_destroy(l->manager);
    mm_options options = {.device_bytes = BUDGET,
                          .pinned_bytes = BUDGET,
                          .issue = MM_ISSUE_INLINE,
                          .policy = "rules:rules=relu=recompute;*=swap,when=always"};
    expect_ok(mm_manager_create(&options, &l->manager));
    expect_ok(mm_recompute_set(l->manager, l->graph, again, l));
    run_iteration(l);
    for (int nth = 1; nth < 20; nth++) {
        l->calls = 0;
        device_fault_set(DEVICE_FAULT_TASK, nth);
        expect_ok(mm_iteration_begin(l->manager, l->graph));
        mm_status forward = MM_OK;
        for (int i = 0; i < LAYERS && forward == MM_OK; i++) forward = step(l, i, MM_FORWARD);
        mm_status begun = forward == MM_OK ? step(l, LAST, MM_BACKWARD) : MM_OK;
        device_fault_set(DEVICE_FAULT_NONE, 0);
        if (begun != MM_OK && l->calls == 0) {
            assert_int_equal(step(l, LAST, MM_BACKWARD), MM_ERR_ORDER);
            assert_int_equal(l->calls, 0);
            found = true;
        }
        mm_iteration_abort(l->manager);
    }
    assert_true(found);
    run_iteration(l);
}

/* mm_tensor_given knows the first 64 uses of a step only. This step has 128. */
enum { USES = 128, LAST_GIVEN = 63 };

typedef struct many {
    mm_tensor used[USES];
    int calls, given[USES];
} many;

static mm_status note_given(void *ctx, mm_manager *m, mm_layer layer, mm_stream *stream) {
    many *s = ctx;
    (void)layer, (void)stream;
    s->calls++;
    for (int u = 0; u < USES; u++) s->given[u] = mm_tensor_given(m, s->used[u]);
    return MM_OK;
}

static mm_tensor add_tensor(mm_graph *graph, const char *name, mm_tensor_kind kind) {
    mm_tensor tensor;
    mm_ownership ownership = kind == MM_STATE ? MM_PERSISTENT : MM_MANAGED;
    mm_tensor_desc desc = {
        .name = name, .kind = kind, .ownership = ownership, .dtype = MM_F32, .rank = 1, .dims = {1024}};
    expect_ok(mm_graph_add_tensor(graph, &desc, &tensor));
    return tensor;
}

/* in -> norm -> last. In norm, `saved` is use 63, and the map is the last use. */
static mm_graph *graph_of_many_uses(many *s) {
    mm_graph *graph;
    mm_layer data, norm, last;
    mm_use uses[USES];
    expect_ok(mm_graph_create("many", &graph));
    mm_tensor in = add_tensor(graph, "in", MM_INPUT), saved = add_tensor(graph, "saved", MM_SAVED);
    mm_tensor map = add_tensor(graph, "map", MM_FEATURE_MAP), y = add_tensor(graph, "y", MM_FEATURE_MAP);
    mm_tensor d_map = add_tensor(graph, "d_map", MM_GRADIENT_MAP), d_in = add_tensor(graph, "d_in", MM_GRADIENT_MAP);
    for (int u = 0; u < USES; u++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", u);
        bool other = u == 0 || u == LAST_GIVEN || u == USES - 1;
        s->used[u] = other ? u == 0 ? in : u == LAST_GIVEN ? saved : map : add_tensor(graph, name, MM_STATE);
        uses[u] = (mm_use){s->used[u], u > 0 && other ? MM_WRITE : MM_READ, MM_FORM_VALUE};
    }
    expect_ok(mm_graph_add_layer(graph, "data", MM_LAYER_DATA, &data));
    expect_ok(mm_graph_add_layer(graph, "norm", MM_LAYER_BATCH_NORM, &norm));
    expect_ok(mm_graph_add_layer(graph, "last", MM_LAYER_CONV, &last));
    expect_ok(mm_graph_add_step(graph, data, MM_FORWARD, &(mm_use){in, MM_WRITE, 0}, 1, 0));
    expect_ok(mm_graph_add_step(graph, norm, MM_FORWARD, uses, USES, 0));
    expect_ok(mm_graph_allow_given(graph, saved));
    expect_ok(mm_graph_add_step(graph, last, MM_FORWARD, (mm_use[]){{map, MM_READ, 0}, {y, MM_WRITE, 0}}, 2, 0));
    expect_ok(mm_graph_add_step(graph, last, MM_BACKWARD,
                                (mm_use[]){{map, MM_READ, 0}, {y, MM_READ, 0}, {d_map, MM_WRITE, 0}}, 3, 0));
    expect_ok(mm_graph_add_step(
        graph, norm, MM_BACKWARD,
        (mm_use[]){{in, MM_READ, 0}, {saved, MM_READ, 0}, {d_map, MM_READ, 0}, {d_in, MM_WRITE, 0}}, 4, 0));
    expect_ok(mm_graph_freeze(graph));
    return graph;
}

static void no_use_beyond_those_that_count_is_given(void **state) {
    (void)state;
    many s = {.calls = 0};
    mm_graph *graph = graph_of_many_uses(&s);
    mm_manager *m;
    mm_options options = {.device_bytes = BUDGET, .policy = "recompute:when=always"};
    expect_ok(mm_manager_create(&options, &m));
    expect_ok(mm_recompute_set(m, graph, note_given, &s));
    expect_ok(mm_iteration_begin(m, graph));
    for (mm_layer layer = 0; layer < 3; layer++) {
        expect_ok(mm_layer_begin(m, layer, MM_FORWARD, NULL));
        expect_ok(mm_layer_end(m, layer, MM_FORWARD));
    }
    for (mm_layer layer = 2; layer > 0; layer--) {
        expect_ok(mm_layer_begin(m, layer, MM_BACKWARD, NULL));
        expect_ok(mm_layer_end(m, layer, MM_BACKWARD));
    }
    expect_ok(mm_iteration_end(m));
    assert_int_equal(s.calls, 1);
    for (int u = 0; u < USES; u++) assert_int_equal(s.given[u], u == LAST_GIVEN);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* Persistent tensors are zeroed when they get their places, before any plan has run. */
static void touched_bytes_of_a_graph_prepared_and_not_run_are_not_stray(void **state) {
    (void)state;
    mm_graph *graph;
    mm_manager *manager;
    mm_tensor w;
    mm_layer layer;
    mm_touched touched;
    expect_ok(mm_graph_create("p", &graph));
    mm_tensor_desc desc = {
        .name = "w", .kind = MM_STATE, .ownership = MM_PERSISTENT, .dtype = MM_F32, .rank = 1, .dims = {1000}};
    expect_ok(mm_graph_add_tensor(graph, &desc, &w));
    expect_ok(mm_graph_add_layer(graph, "l", MM_LAYER_OTHER, &layer));
    expect_ok(mm_graph_add_step(graph, layer, MM_FORWARD, &(mm_use){w, MM_READ, MM_FORM_VALUE}, 1, 0));
    expect_ok(mm_graph_freeze(graph));
    mm_options options = {.device_bytes = BUDGET, .measure_touched = true};
    expect_ok(mm_manager_create(&options, &manager));
    expect_ok(mm_manager_prepare(manager, graph));
    expect_ok(mm_touched_get(manager, &touched));
    assert_true(touched.total_bytes >= 4000);
    assert_int_equal(touched.persistent_bytes, touched.total_bytes);
    assert_int_equal(touched.stray_bytes, 0);
    mm_manager_destroy(manager);
    mm_graph_destroy(graph);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(current_step_is_the_one_that_runs_again),
        CASE(each_state_refuses_what_it_does_not_have_and_changes_nothing),
        CASE(abort_within_the_callback_ends_the_iteration),
        CASE(after_a_failed_callback_only_an_abort_helps),
        CASE(after_a_recomputation_that_could_not_begin_only_an_abort_helps),
        cmocka_unit_test(no_use_beyond_those_that_count_is_given),
        cmocka_unit_test(touched_bytes_of_a_graph_prepared_and_not_run_are_not_stray),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
