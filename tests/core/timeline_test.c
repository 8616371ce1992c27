/* SPDX-License-Identifier: MIT */
/* Timelines, and the traces that are made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/core/time/simulate.h"
#include "mm/core/timeline/timeline.h"
#include "tests/core/expect.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/trace_check.h"

/* A random plan, lowered and simulated. */
typedef struct fixture {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_program program;
    mm_simulation sim;
} fixture;

static void fixture_init(uint64_t seed, fixture *f) {
    random_graph_options graph = {.seed = seed, .layers = 12, .max_channels = 4, .images = 12};
    random_plan_options plan = {.seed = seed,
                                .lossy = true,
                                .dynamic = seed % 2 == 0,
                                .measures = seed % 3 == 0,
                                .disk = seed % 3 == 1,
                                .pools = seed % 4 == 1};
    expect_ok(random_graph_create(&graph, &f->graph));
    expect_ok(random_facts_create(f->graph, seed, &f->facts));
    mm_limits limits = {.base_bytes = mm_plan_base(f->graph)};
    expect_ok(random_plan_create(f->graph, f->facts, &limits, &plan, &f->plan));
    f->facts->piece_bytes = seed % 2 ? MM_PIECE_BYTES : 1;
    expect_ok(mm_program_init(f->plan, f->facts, &f->program));
    expect_ok(mm_program_simulate(&f->program, f->facts, &f->sim));
}

static void fixture_fini(fixture *f) {
    mm_simulation_fini(&f->sim);
    mm_program_fini(&f->program);
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->graph);
}

/* What `mm plan --explain` tells of a plan's memory. */
static json_t *row_of(const mm_plan *plan) {
    mm_account account;
    json_t *timeline = json_object();
    expect_ok(mm_account_init(plan, &account));
    for (int k = 0; k < MM_ACCOUNT_KINDS; k++) {
        json_t *bytes = json_array();
        for (int i = 0; i < account.n_steps; i++) json_array_append_new(bytes, json_integer(account.steps[i].bytes[k]));
        json_object_set_new(timeline, mm_account_kind_name((mm_account_kind)k), bytes);
    }
    mm_account_fini(&account);
    return json_pack("[{so}]", "timeline", timeline);
}

/* Adds an iteration as simulated, so much later. */
static bool add(mm_timeline *t, int plan, const fixture *f, int64_t later_ns) {
    mm_period *spans = mm_timeline_add(t, plan, mm_timeline_begin(t), 0);
    for (int i = 0; spans && i < f->program.n; i++)
        spans[i] = (mm_period){f->sim.spans[i].start_ns + later_ns, f->sim.spans[i].end_ns + later_ns};
    return spans != NULL;
}

static void traces_of_all_plans_are_valid_and_add_up(void **state) {
    (void)state;
    static trace_checked checked;
    int flows = 0, waits = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
        fixture f;
        mm_timeline *t;
        int plan;
        fixture_init(seed, &f);
        json_t *row = row_of(f.plan);
        expect_ok(mm_timeline_create("a run", 0, &t));
        expect_ok(mm_timeline_set_source(t, "a machine", true));
        expect_ok(mm_timeline_add_plan(t, &f.program, &plan));
        for (int i = 0; i < 2; i++) assert_true(add(t, plan, &f, 5000 + i * (f.sim.iteration_ns + 100)));
        expect_ok(mm_timelines_write(&t, 1, "trace.json"));
        if (!trace_check("trace.json", row, &checked)) fail_msg("seed %d", (int)seed);
        const trace_process *p = &checked.process[0];
        assert_int_equal(checked.n, 1);
        assert_int_equal(checked.dropped, 0);
        assert_string_equal(p->name, "a run");
        assert_int_equal(p->iterations, 2);
        assert_int_equal(p->iterations_ns, 2 * f.sim.iteration_ns);
        for (int s = 0; s < MM_STREAM_COUNT; s++) assert_int_equal(p->busy_ns[s], 2 * f.sim.busy_ns[s]);
        flows += p->flows;
        waits += p->waits;
        mm_timeline_destroy(t);
        json_decref(row);
        fixture_fini(&f);
    }
    assert_true(flows > 0 && waits > 0);
    assert_int_equal(unlink("trace.json"), 0);
}

/* They outlive their plans, and are processes side by side. */
static void several_runs_are_several_processes(void **state) {
    (void)state;
    static trace_checked checked;
    mm_timeline *t[3];
    for (int i = 0; i < 3; i++) {
        fixture f;
        char name[32];
        int plan;
        fixture_init((uint64_t)i, &f);
        snprintf(name, sizeof name, "run \"%d\"\n", i);
        expect_ok(mm_timeline_create(name, 0, &t[i]));
        expect_ok(mm_timeline_set_source(t[i], "a machine", true));
        for (int k = 0; k <= i; k++) {
            expect_ok(mm_timeline_add_plan(t[i], &f.program, &plan));
            assert_true(add(t[i], plan, &f, k * f.sim.iteration_ns));
        }
        fixture_fini(&f);
    }
    expect_ok(mm_timelines_write(t, 3, "trace.json"));
    assert_true(trace_check("trace.json", NULL, &checked));
    assert_int_equal(checked.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(checked.process[i].name, t[i]->name);
        assert_int_equal(checked.process[i].iterations, i + 1);
        mm_timeline_destroy(t[i]);
    }
    assert_int_equal(unlink("trace.json"), 0);
}

static void what_finds_no_room_or_has_no_time_is_dropped_and_counted(void **state) {
    (void)state;
    static trace_checked checked;
    fixture f;
    mm_timeline *t;
    int plan, kept = 0;
    fixture_init(1, &f);
    expect_ok(mm_timeline_create("a run", 3 * f.program.n * (int64_t)sizeof(mm_period), &t));
    expect_ok(mm_timeline_set_source(t, "a machine", true));
    expect_ok(mm_timeline_add_plan(t, &f.program, &plan));
    for (int i = 0; i < 5; i++) kept += add(t, plan, &f, i * f.sim.iteration_ns);
    assert_int_equal(kept, 2);
    assert_int_equal(mm_timeline_dropped(t), 3 * f.program.n);
    int last = f.program.at[MM_STREAM_COMPUTE][f.program.count[MM_STREAM_COMPUTE] - 1];
    t->spans[f.program.n + last] = (mm_period){0, -1};
    assert_int_equal(mm_timeline_dropped(t), 3 * f.program.n + 1);
    expect_ok(mm_timelines_write(&t, 1, "trace.json"));
    assert_true(trace_check("trace.json", NULL, &checked));
    assert_int_equal(checked.dropped, 3 * f.program.n + 1);
    assert_int_equal(checked.process[0].iterations, 2);
    assert_int_equal(checked.process[0].counters, 2 * mm_graph_steps(f.graph) - 1);
    mm_timeline_destroy(t);
    assert_int_equal(mm_timeline_create("a run", -1, &t), MM_ERR_INVALID);
    fixture_fini(&f);
    assert_int_equal(unlink("trace.json"), 0);
}

static void what_cannot_be_written_leaves_what_was_there(void **state) {
    (void)state;
    fixture f;
    mm_timeline *t;
    struct stat before, after;
    int plan;
    fixture_init(1, &f);
    expect_ok(mm_timeline_create("a run", 0, &t));
    expect_ok(mm_timeline_set_source(t, "a machine", true));
    expect_ok(mm_timelines_write(&t, 1, "trace.json"));
    assert_int_equal(stat("trace.json", &before), 0);
    free(t->name);
    t->name = strdup("\xff"); /* no UTF-8 */
    expect_ok(mm_timeline_add_plan(t, &f.program, &plan));
    assert_int_equal(mm_timelines_write(&t, 1, "trace.json"), MM_ERR_FORMAT);
    assert_int_equal(stat("trace.json", &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(mm_timelines_write(&t, 1, "nowhere/trace.json"), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), "nowhere/trace.json: cannot be written: No such file"));
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(mm_timelines_write(&t, 0, "folder"), MM_ERR_IO);
    assert_int_equal(rmdir("folder"), 0);
    mm_timeline_destroy(t);
    fixture_fini(&f);
    assert_int_equal(unlink("trace.json"), 0);
}

int main(void) {
    char folder[] = "/tmp/timeline_test.XXXXXX";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_of_all_plans_are_valid_and_add_up),
        cmocka_unit_test(several_runs_are_several_processes),
        cmocka_unit_test(what_finds_no_room_or_has_no_time_is_dropped_and_counted),
        cmocka_unit_test(what_cannot_be_written_leaves_what_was_there),
    };
    if (!mkdtemp(folder) || chdir(folder) != 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(folder) == 0 ? failed : 1;
}
