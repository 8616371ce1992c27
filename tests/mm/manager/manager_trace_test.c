/* SPDX-License-Identifier: MIT */
/* Traces of a manager are valid. An iteration is in a trace whole or not at all, and not if it ran before the start or
 * after the stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/core/trace_check.h"
#include "tests/mm/manager/manager_rig.h"

enum { LAYERS = 10, CHANNELS = 4, TRACE_BYTES = 1 << 20 };

static const char *const POLICIES[] = {"liveness", "freelunch:codec=raw,eligible=all,when=always", "swap:when=always",
                                       "cdma:codec=raw,when=always", "recompute:when=always"};
enum { N_POLICIES = sizeof POLICIES / sizeof *POLICIES };

typedef struct fixture {
    mm_graph *graph;
    rig rig;
    mm_manager *m;
} fixture;

static void start(fixture *f, uint64_t seed, mm_options options) {
    f->graph = rig_random_graph(seed, LAYERS, CHANNELS);
    rig_init(&f->rig, f->graph, seed);
    options.device_bytes = options.pinned_bytes = 16 << 20;
    f->m = rig_manager(&options);
    assert_int_equal(rig_bind(&f->rig, f->m), MM_OK);
}

static void finish(fixture *f) {
    mm_manager_destroy(f->m);
    rig_fini(&f->rig);
    mm_graph_destroy(f->graph);
}

static void checked(trace_checked *c, const char *what) {
    if (!trace_check("trace.json", NULL, c)) fail_msg("%s", what);
    assert_int_equal(unlink("trace.json"), 0);
}

/* Some iterations are waited for and some run ahead, under each policy and each way to compute and issue steps. */
static void each_iteration_is_in_the_trace_whole(void **state) {
    (void)state;
    static trace_checked c;
    int flows = 0;
    for (int i = 0; i < N_POLICIES; i++)
        for (rig_mode mode = RIG_INLINE; mode < RIG_MODES; mode++) {
            fixture f;
            int64_t dropped = -1;
            start(&f, (uint64_t)i,
                  (mm_options){.policy = POLICIES[i], .issue = mode == RIG_MIXED, .trace_bytes = TRACE_BYTES});
            assert_int_equal(rig_iteration(&f.rig, f.m, mode), MM_OK);
            assert_int_equal(mm_trace_start(f.m, POLICIES[i]), MM_OK);
            for (int k = 0; k < 3; k++) assert_int_equal(rig_iteration(&f.rig, f.m, mode), MM_OK);
            for (int k = 0; k < 2; k++) assert_int_equal(rig_iteration_ahead(&f.rig, f.m, mode), MM_OK);
            assert_int_equal(mm_trace_stop(f.m, "trace.json", &dropped), MM_OK);
            assert_int_equal(rig_iteration(&f.rig, f.m, mode), MM_OK);
            checked(&c, POLICIES[i]);
            assert_int_equal(dropped, 0);
            assert_int_equal(c.dropped, 0);
            assert_string_equal(c.process[0].name, POLICIES[i]);
            assert_int_equal(c.process[0].iterations, 5);
            flows += c.process[0].flows;
            finish(&f);
        }
    assert_true(flows > 0);
}

/* A loop that never waits: some iterations in flight are dropped from the trace; the others are in it whole. */
static void iterations_on_their_way_are_whole_or_dropped(void **state) {
    (void)state;
    static trace_checked c;
    fixture f;
    enum { ITERATIONS = 20 };
    int64_t dropped = -1;
    start(&f, 1,
          (mm_options){.policy = POLICIES[1],
                       .trace_bytes = TRACE_BYTES,
                       .issue = MM_ISSUE_INLINE,
                       .delay_seed = 1,
                       .delay_max_ns = 100000});
    assert_int_equal(mm_trace_start(f.m, "ahead"), MM_OK);
    for (int i = 0; i < ITERATIONS; i++) assert_int_equal(rig_iteration_ahead(&f.rig, f.m, RIG_STREAM), MM_OK);
    assert_int_equal(mm_trace_stop(f.m, "trace.json", &dropped), MM_OK);
    checked(&c, "ahead");
    assert_int_equal(c.dropped, dropped);
    assert_true(c.process[0].iterations >= 4);
    const int slices = c.process[0].slices - c.process[0].waits - c.process[0].iterations;
    assert_int_equal((slices + dropped) * c.process[0].iterations, (int64_t)slices * ITERATIONS);
    finish(&f);
}

static void changes_of_policy_and_aborted_iterations_are_no_obstacle(void **state) {
    (void)state;
    static trace_checked c;
    fixture f;
    start(&f, 2, (mm_options){.policy = POLICIES[1], .trace_bytes = TRACE_BYTES});
    enum { SET = N_POLICIES - 1 }; /* the policies that do not recompute */
    assert_int_equal(mm_trace_start(f.m, "changes"), MM_OK);
    for (int i = 0; i < SET; i++) {
        assert_int_equal(mm_policy_set(f.m, POLICIES[i]), MM_OK);
        assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
        assert_int_equal(rig_steps(&f.rig, f.m, RIG_STREAM, 0, 3), MM_OK);
        mm_iteration_abort(f.m);
        assert_int_equal(rig_iteration(&f.rig, f.m, RIG_STREAM), MM_OK);
        assert_int_equal(rig_iteration_ahead(&f.rig, f.m, RIG_STREAM), MM_OK);
    }
    assert_int_equal(mm_trace_stop(f.m, "trace.json", NULL), MM_OK);
    checked(&c, "changes");
    assert_int_equal(c.process[0].iterations, 2 * SET);
    assert_int_equal(c.dropped, 0);
    finish(&f);
}

static void what_finds_no_room_is_counted(void **state) {
    (void)state;
    static trace_checked c;
    fixture f;
    int64_t dropped = -1;
    start(&f, 1, (mm_options){.trace_bytes = 4096});
    assert_int_equal(mm_trace_start(f.m, "small"), MM_OK);
    for (int i = 0; i < 30; i++) assert_int_equal(rig_iteration(&f.rig, f.m, RIG_STREAM), MM_OK);
    assert_int_equal(mm_trace_stop(f.m, "trace.json", &dropped), MM_OK);
    checked(&c, "small");
    assert_int_equal(dropped, c.dropped);
    assert_true(dropped > 0 && c.process[0].iterations > 0 && c.process[0].iterations < 30);
    finish(&f);
}

static void nothing_is_replayed_meanwhile(void **state) {
    (void)state;
    fixture f;
    start(&f, 1, (mm_options){.issue = MM_ISSUE_INLINE, .trace_bytes = TRACE_BYTES});
    assert_int_equal(rig_iteration(&f.rig, f.m, RIG_STREAM), MM_OK);
    const mm_replay_state_id before = mm_replay_state(f.m, f.graph);
    assert_int_equal(mm_trace_start(f.m, "replays"), MM_OK);
    assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_NO);
    assert_int_equal(rig_iteration(&f.rig, f.m, RIG_STREAM), MM_OK);
    assert_int_equal(mm_trace_stop(f.m, "trace.json", NULL), MM_OK);
    assert_int_equal(mm_replay_state(f.m, f.graph), before);
    assert_int_equal(unlink("trace.json"), 0);
    finish(&f);
}

#define REFUSED(status, word, call)                                                                                    \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        if (!strstr(mm_last_error(), word)) fail_msg("no '%s' in: %s", word, mm_last_error());                         \
    } while (0)

static void calls_out_of_order_are_refused_and_a_file_is_whole_or_not_there(void **state) {
    (void)state;
    fixture f;
    mm_manager *none;
    mm_options options = {.device_bytes = 1 << 20, .trace_bytes = -1};
    REFUSED(MM_ERR_INVALID, "trace_bytes is -1", mm_manager_create(&options, &none));
    start(&f, 1, (mm_options){.trace_bytes = TRACE_BYTES});
    REFUSED(MM_ERR_INVALID, "mm_trace_start", mm_trace_start(NULL, "x"));
    REFUSED(MM_ERR_INVALID, "name", mm_trace_start(f.m, NULL));
    REFUSED(MM_ERR_ORDER, "no trace is under way", mm_trace_stop(f.m, "trace.json", NULL));
    assert_int_equal(mm_trace_start(f.m, "x"), MM_OK);
    REFUSED(MM_ERR_ORDER, "a trace is under way", mm_trace_start(f.m, "x"));
    REFUSED(MM_ERR_INVALID, "path", mm_trace_stop(f.m, NULL, NULL));
    assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
    REFUSED(MM_ERR_ORDER, "mm_trace_stop", mm_trace_stop(f.m, "trace.json", NULL));
    mm_iteration_abort(f.m);
    REFUSED(MM_ERR_IO, "nowhere/trace.json", mm_trace_stop(f.m, "nowhere/trace.json", NULL));
    REFUSED(MM_ERR_ORDER, "no trace is under way", mm_trace_stop(f.m, "trace.json", NULL));
    assert_int_equal(mm_trace_start(f.m, "x"), MM_OK); /* the manager is destroyed during a trace */
    assert_int_equal(rig_iteration(&f.rig, f.m, RIG_STREAM), MM_OK);
    finish(&f);
    if (rig_device_used()->cpu_reaches_memory) return;
    start(&f, 1, (mm_options){0});
    REFUSED(MM_ERR_UNSUPPORTED, "trace_bytes", mm_trace_start(f.m, "x"));
    finish(&f);
}

int main(void) {
    char folder[] = "/tmp/manager_trace_test.XXXXXX";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_iteration_is_in_the_trace_whole),
        cmocka_unit_test(iterations_on_their_way_are_whole_or_dropped),
        cmocka_unit_test(changes_of_policy_and_aborted_iterations_are_no_obstacle),
        cmocka_unit_test(what_finds_no_room_is_counted),
        cmocka_unit_test(nothing_is_replayed_meanwhile),
        cmocka_unit_test(calls_out_of_order_are_refused_and_a_file_is_whole_or_not_there),
    };
    if (!mkdtemp(folder) || chdir(folder) != 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(folder) == 0 ? failed : 1;
}
