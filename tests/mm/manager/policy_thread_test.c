/* SPDX-License-Identifier: MIT */
/* auto that is set while iterations run: they go on while a thread plans, bits stay, and what changes meanwhile
 * counts. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mm/manager/manager.h"
#include "mm/manager/prepare.h"
#include "tests/core/alloc_fault.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 21, LAYERS = 10, PINNED = 1 << 20, MANY = 200000 };

typedef struct loop {
    mm_graph *graph;
    mm_manager *m;
    plain expected;
    rig r;
    int iterations, policies; /* how many events told that a policy was set */
    char last[256];           /* the last message of a warning or an error */
} loop;

static void note(void *ctx, const mm_event_info *event) { ((loop *)ctx)->policies += event->kind == MM_EVENT_POLICY; }

static void keep_message(void *ctx, mm_log_level level, const char *message) {
    loop *l = ctx;
    if (level <= MM_LOG_WARNING) snprintf(l->last, sizeof l->last, "%s", message);
}

static void iterate(loop *l) {
    expect_ok(rig_iteration(&l->r, l->m, (rig_mode)(l->iterations++ % RIG_MODES)));
    plain_steps(&l->expected, 0, mm_graph_steps(l->graph));
}

static void begin(loop *l, int64_t budget, const char *policy) {
    *l = (loop){.graph = rig_random_graph(SEED, LAYERS, 8)};
    const mm_options options = {.device_bytes = budget ? budget : rig_minimum(l->graph, "liveness"),
                                .pinned_bytes = PINNED,
                                .policy = policy,
                                .no_ladder = true,
                                .event_fn = note,
                                .event_ctx = l,
                                .log = {keep_message, l}};
    l->m = rig_manager(&options);
    rig_init(&l->r, l->graph, SEED);
    plain_init(&l->expected, l->graph, SEED);
    expect_ok(rig_bind(&l->r, l->m));
    iterate(l);
}

static void finish(loop *l) {
    if (rig_digest(&l->r, l->m) != plain_digest(&l->expected))
        fail_msg("other bits after %d iterations", l->iterations);
    plain_fini(&l->expected);
    rig_fini(&l->r);
    mm_manager_destroy(l->m);
    mm_graph_destroy(l->graph);
}

/* Iterates until the policy is in force. */
static void iterate_until(loop *l, const char *policy) {
    for (int i = 0; i < MANY && strcmp(mm_policy_now(l->m), policy) != 0; i++) iterate(l);
    assert_string_equal(mm_policy_now(l->m), policy);
}

TEST_CASE(iterations_go_on_until_the_plans_are_ready) {
    loop l;
    begin(&l, 0, "liveness");
    expect_ok(mm_policy_set(l.m, "auto"));
    assert_string_equal(mm_policy_now(l.m), "liveness");
    assert_int_equal(l.policies, 0);
    iterate_until(&l, "auto");
    assert_int_equal(l.policies, 1);
    iterate(&l);
    expect_ok(mm_policy_wait(l.m)); /* there is nothing to wait for */
    assert_int_equal(l.policies, 1);
    finish(&l);
}

TEST_CASE(a_wait_switches_at_once) {
    loop l;
    begin(&l, 0, "liveness");
    expect_ok(mm_policy_set(l.m, "auto"));
    expect_ok(mm_policy_wait(l.m));
    assert_string_equal(mm_policy_now(l.m), "auto");
    iterate(&l);
    finish(&l);
}

TEST_CASE(before_the_first_iteration_and_for_other_policies_it_is_set_at_once) {
    loop l;
    begin(&l, 0, "liveness");
    expect_ok(mm_policy_set(l.m, "swap-async"));
    assert_string_equal(mm_policy_now(l.m), "swap-async");
    finish(&l);
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 8);
    const mm_options options = {.device_bytes = rig_minimum(graph, "liveness"), .pinned_bytes = PINNED};
    mm_manager *m = rig_manager(&options);
    expect_ok(mm_manager_prepare(m, graph));
    expect_ok(mm_policy_set(m, "auto"));
    assert_string_equal(mm_policy_now(m), "auto");
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

TEST_CASE(another_policy_takes_its_place) {
    loop l;
    begin(&l, 0, "liveness");
    expect_ok(mm_policy_set(l.m, "auto"));
    expect_ok(mm_policy_set(l.m, "swap-async"));
    assert_string_equal(mm_policy_now(l.m), "swap-async");
    for (int i = 0; i < 20; i++) iterate(&l);
    assert_string_equal(mm_policy_now(l.m), "swap-async");
    expect_ok(mm_policy_set(l.m, "auto"));
    expect_ok(mm_policy_set(l.m, "auto:effort=0"));
    iterate_until(&l, "auto:effort=0");
    assert_int_equal(l.policies, 2);
    finish(&l);
}

/* Each change has the thread stop, and plan again with the next iteration. */
TEST_CASE(what_changes_meanwhile_counts) {
    loop l;
    begin(&l, 4 << 20, "liveness");
    expect_ok(mm_policy_set(l.m, "auto"));
    expect_ok(mm_persistent_add(l.m, "more", 1 << 10));
    iterate(&l);
    expect_ok(mm_persistent_remove(l.m, "more"));
    iterate(&l);
    expect_ok(mm_recompute_set(l.m, l.graph, rig_again, &l.r));
    iterate(&l);
    const int64_t budget = rig_minimum(l.graph, "liveness") + (2 << 10);
    expect_ok(mm_budget_set(l.m, budget));
    iterate_until(&l, "auto");
    assert_true(mm_plan_now(l.m, l.graph)->peak_bytes <= budget);
    finish(&l);
}

TEST_CASE(a_graph_that_comes_meanwhile_is_planned_too) {
    loop l;
    begin(&l, 4 << 20, "liveness");
    mm_graph *other = rig_random_graph(SEED, LAYERS, 8); /* has the same weights */
    expect_ok(mm_policy_set(l.m, "auto"));
    expect_ok(mm_manager_prepare(l.m, other));
    assert_string_equal(mm_policy_now(l.m), "liveness");
    iterate_until(&l, "auto");
    assert_string_equal(mm_plan_now(l.m, other)->policy, "auto");
    expect_ok(mm_policy_set(l.m, "auto:effort=0"));
    expect_ok(mm_manager_forget(l.m, other));
    iterate_until(&l, "auto:effort=0");
    mm_graph_destroy(other);
    finish(&l);
}

/* The thread's first allocation fails. */
TEST_CASE(a_policy_that_cannot_be_planned_is_told_and_the_one_before_stays) {
    loop l;
    begin(&l, 0, "liveness");
    alloc_fault_pause(true);
    alloc_fault_set(1);
    expect_ok(mm_policy_set(l.m, "auto"));
    while (!alloc_fault_happened()) usleep(100);
    alloc_fault_set(0);
    for (int i = 0; i < MANY && !l.last[0]; i++) iterate(&l);
    alloc_fault_pause(false);
    assert_non_null(strstr(l.last, "policy liveness stays"));
    assert_string_equal(mm_policy_now(l.m), "liveness");
    assert_int_equal(l.policies, 0);
    assert_int_equal(mm_policy_wait(l.m), MM_ERR_NOMEM);
    expect_ok(mm_policy_wait(l.m)); /* it is returned once */
    expect_ok(mm_policy_set(l.m, "auto"));
    iterate_until(&l, "auto");
    finish(&l);
}

TEST_CASE(a_manager_may_be_destroyed_while_it_plans) {
    for (int i = 0; i < 5; i++) {
        loop l;
        begin(&l, 0, "liveness");
        expect_ok(mm_policy_set(l.m, "auto"));
        if (i % 2) iterate(&l);
        finish(&l);
    }
}
