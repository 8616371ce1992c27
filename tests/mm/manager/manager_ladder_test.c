/* SPDX-License-Identifier: MIT */
/* Memory is short: the device gives less than was asked for, the budget becomes smaller than the policy needs, or
 * memory runs out in an iteration. A policy that needs less stands in, is reported once, and gives way again; results
 * stay the same bit for bit. */
#include <stdio.h>
#include <string.h>

#include "mm/core/plan/plan.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"
#include "tests/suite/device_fault.h"

enum { LAYERS = 20, CHANNELS = 8, PINNED = 1 << 24 };

typedef struct fixture {
    mm_graph *graph;
    rig r;
    plain expected;
    mm_manager *m;
    mm_options options;
    int64_t most, least; /* what liveness needs, and the least that a substitute needs */
    int warnings, errors;
    char warning[512]; /* the last */
    int events;
    char stands_in[256];
    int64_t there_is;
} fixture;

static void take_message(void *ctx, mm_log_level level, const char *message) {
    fixture *f = ctx;
    f->errors += level == MM_LOG_ERROR;
    if (level != MM_LOG_WARNING) return;
    f->warnings++;
    snprintf(f->warning, sizeof f->warning, "%s", message);
}

static void take_event(void *ctx, const mm_event_info *event) {
    fixture *f = ctx;
    if (event->kind != MM_EVENT_LADDER) return;
    f->events++;
    f->there_is = event->bytes;
    snprintf(f->stands_in, sizeof f->stands_in, "%s", event->name);
}

/* Takes the first random graph with which swapping saves at least a fifth of the memory. */
static void begin(fixture *f) {
    *f = (fixture){0};
    uint64_t seed = 1;
    for (;; seed++) {
        f->graph = rig_random_graph(seed, LAYERS, CHANNELS);
        f->most = rig_minimum(f->graph, "liveness");
        f->least = rig_needs(f->graph, "swap", 0, PINNED).device_bytes;
        if (f->least < f->most * 8 / 10) break;
        mm_graph_destroy(f->graph);
        assert_true(seed < 100);
    }
    rig_init(&f->r, f->graph, seed);
    plain_init(&f->expected, f->graph, seed);
    f->options = (mm_options){.device_bytes = f->most,
                              .pinned_bytes = PINNED,
                              .self_check = true,
                              .log = {.fn = take_message, .ctx = f, .level = MM_LOG_WARNING},
                              .event_fn = take_event,
                              .event_ctx = f};
}

static void begin_with_manager(fixture *f) {
    begin(f);
    f->m = rig_manager(&f->options);
    assert_int_equal(rig_bind(&f->r, f->m), MM_OK);
}

static void end(fixture *f) {
    mm_manager_destroy(f->m);
    rig_fini(&f->r);
    plain_fini(&f->expected);
    mm_graph_destroy(f->graph);
}

/* Runs an iteration here and in plain memory; the results must be equal. */
static void iterate(fixture *f) {
    if (rig_iteration(&f->r, f->m, RIG_STREAM) != MM_OK) fail_msg("%s", mm_last_error());
    plain_steps(&f->expected, 0, mm_graph_steps(f->graph));
    assert_true(rig_digest(&f->r, f->m) == plain_digest(&f->expected));
}

static int64_t ladder_steps(fixture *f) {
    mm_stats stats;
    mm_stats_get(f->m, &stats);
    return stats.ladder_steps;
}

static void expect_told(const fixture *f, int times, const char *words) {
    assert_int_equal(f->warnings, times);
    if (!strstr(f->warning, words)) fail_msg("'%s' does not say '%s'", f->warning, words);
}

/* ---------------------------------------------------------------- a device that gives less */

TEST_CASE(a_device_that_gives_less_is_made_do_with) {
    fixture f;
    begin(&f);
    device_fault_give(MM_MEMORY_DEVICE, (f.most + f.least) / 2);
    f.m = rig_manager(&f.options);
    device_fault_give(MM_MEMORY_DEVICE, 0);
    int64_t given = mm_manager_device_bytes(f.m), all = (f.most + f.least) / 2;
    assert_true(given <= all - all / 10 && given > all - all / 8 - f.most / 16);
    expect_told(&f, 1, "device host has less than the ");
    assert_int_equal(ladder_steps(&f), 1);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    expect_told(&f, 2, "instead of liveness");
    assert_int_equal(ladder_steps(&f), 2);
    assert_int_equal(f.events, 2);
    assert_string_equal(f.stands_in, mm_policy_now(f.m));
    assert_string_not_equal(mm_policy_now(f.m), "liveness");
    for (int i = 0; i < 3; i++) iterate(&f);
    assert_int_equal(f.warnings, 2);
    assert_int_equal(mm_budget_set(f.m, given + 1), MM_ERR_INVALID);
    end(&f);
}

TEST_CASE(a_device_that_gives_all_is_not_warned_of) {
    fixture f;
    begin_with_manager(&f);
    iterate(&f);
    assert_int_equal(f.warnings + f.events + ladder_steps(&f), 0);
    assert_string_equal(mm_policy_now(f.m), "liveness");
    end(&f);
}

TEST_CASE(without_a_ladder_less_is_an_error) {
    fixture f;
    begin(&f);
    f.options.no_ladder = true;
    device_fault_give(MM_MEMORY_DEVICE, f.most - 1);
    assert_int_equal(mm_manager_create(&f.options, &f.m), MM_ERR_NOMEM);
    device_fault_give(MM_MEMORY_DEVICE, 0);
    device_fault_give(MM_MEMORY_PINNED, 1);
    assert_int_equal(mm_manager_create(&f.options, &f.m), MM_ERR_NOMEM);
    device_fault_give(MM_MEMORY_PINNED, 0);
    assert_int_equal(f.warnings, 0);
    f.m = NULL;
    end(&f);
}

TEST_CASE(a_device_that_gives_next_to_nothing_is_an_error) {
    char asked[32];
    fixture f;
    begin(&f);
    device_fault_give(MM_MEMORY_DEVICE, f.most / 40);
    assert_int_equal(mm_manager_create(&f.options, &f.m), MM_ERR_NOMEM);
    device_fault_give(MM_MEMORY_DEVICE, 0);
    snprintf(asked, sizeof asked, "%lld", (long long)f.most);
    assert_non_null(strstr(mm_last_error(), asked));
    assert_int_equal(f.warnings, 0);
    f.m = NULL;
    end(&f);
}

TEST_CASE(less_pinned_memory_is_made_do_with) {
    fixture f;
    begin(&f);
    rig_need need = rig_needs(f.graph, "swap-async:when=always", INT64_MAX, INT64_MAX);
    f.options.policy = "swap-async:when=always";
    f.options.pinned_bytes = need.pinned_bytes;
    f.options.device_bytes = f.most + need.device_bytes;
    device_fault_give(MM_MEMORY_PINNED, need.pinned_bytes - 1);
    f.m = rig_manager(&f.options);
    device_fault_give(MM_MEMORY_PINNED, 0);
    expect_told(&f, 1, "of pinned memory asked for");
    assert_true(f.there_is <= need.pinned_bytes / 2); /* the manager leaves half to the system */
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    expect_told(&f, 2, "instead of swap-async:when=always");
    iterate(&f);
    end(&f);
}

TEST_CASE(a_policy_that_fits_what_was_given_is_not_replaced) {
    fixture f;
    begin(&f);
    f.options.policy = "swap:when=needed";
    device_fault_give(MM_MEMORY_DEVICE, (f.most + f.least) / 2);
    f.m = rig_manager(&f.options);
    device_fault_give(MM_MEMORY_DEVICE, 0);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    iterate(&f);
    assert_int_equal(f.warnings, 1);
    assert_string_equal(mm_policy_now(f.m), "swap:when=needed");
    end(&f);
}

/* ---------------------------------------------------------------- the budget */

TEST_CASE(a_smaller_budget_is_met_by_a_stand_in_until_it_grows_again) {
    fixture f;
    begin_with_manager(&f);
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, f.least), MM_OK);
    expect_told(&f, 1, "memory is short: the budget is set");
    assert_string_not_equal(mm_policy_now(f.m), "liveness");
    assert_string_equal(mm_policy_now(f.m), f.stands_in);
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, f.most), MM_OK);
    expect_told(&f, 2, "liveness fits again");
    assert_string_equal(mm_policy_now(f.m), "liveness");
    iterate(&f);
    assert_int_equal(ladder_steps(&f), 1);
    assert_int_equal(f.events, 1);
    end(&f);
}

TEST_CASE(every_budget_down_to_the_least_gives_the_same_results) {
    enum { BUDGETS = 24 };
    fixture f;
    begin_with_manager(&f);
    for (int i = 0; i < BUDGETS; i++) {
        int share = i * 7 % BUDGETS; /* up and down */
        assert_int_equal(mm_budget_set(f.m, f.least + (f.most - f.least) * share / (BUDGETS - 1)), MM_OK);
        iterate(&f);
    }
    assert_true(ladder_steps(&f) >= 2);
    end(&f);
}

TEST_CASE(below_all_that_may_stand_in_the_least_is_named_and_nothing_changes) {
    fixture f;
    begin_with_manager(&f);
    assert_int_equal(mm_budget_set(f.m, f.least / 2), MM_ERR_INFEASIBLE);
    const char *found = strstr(mm_last_error(), " needs least: ");
    assert_non_null(found);
    assert_non_null(strstr(mm_last_error(), "liveness on "));
    long long least;
    assert_int_equal(sscanf(found, " needs least: %lld bytes", &least), 1);
    assert_int_equal(mm_manager_device_bytes(f.m), f.most);
    assert_string_equal(mm_policy_now(f.m), "liveness");
    assert_int_equal(f.warnings, 0);
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, least - 1), MM_ERR_INFEASIBLE);
    assert_int_equal(mm_budget_set(f.m, least), MM_OK);
    iterate(&f);
    end(&f);
}

TEST_CASE(without_a_ladder_a_budget_below_the_policys_need_is_refused) {
    fixture f;
    begin(&f);
    f.options.no_ladder = true;
    f.m = rig_manager(&f.options);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    assert_int_equal(mm_budget_set(f.m, f.most - 1), MM_ERR_INFEASIBLE);
    iterate(&f);
    end(&f);
}

TEST_CASE(a_policy_that_is_set_while_memory_is_short_is_run_once_it_fits) {
    fixture f;
    begin_with_manager(&f);
    assert_int_equal(mm_budget_set(f.m, f.least), MM_OK);
    assert_int_equal(mm_policy_set(f.m, "vdnn-conv:when=always"), MM_OK);
    expect_told(&f, 2, "instead of vdnn-conv:when=always");
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, f.most), MM_OK);
    assert_string_equal(mm_policy_now(f.m), "vdnn-conv:when=always");
    iterate(&f);
    end(&f);
}

TEST_CASE(a_graph_that_is_added_while_memory_is_short_finds_a_place) {
    fixture f;
    begin(&f);
    mm_graph *small = rig_random_graph(1000, 4, 2);
    rig other;
    rig_init(&other, small, 3);
    f.options.device_bytes = f.most + rig_minimum(small, "liveness");
    f.m = rig_manager(&f.options);
    assert_int_equal(mm_manager_prepare(f.m, small), MM_OK);
    assert_int_equal(mm_budget_set(f.m, f.most - (f.most - f.least) / 2), MM_OK);
    assert_int_equal(f.warnings, 0);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    expect_told(&f, 1, "is added");
    iterate(&f);
    assert_int_equal(rig_bind(&other, f.m), MM_OK);
    assert_int_equal(rig_iteration(&other, f.m, RIG_STREAM), MM_OK);
    rig_fini(&other);
    end(&f);
    mm_graph_destroy(small);
}

/* ---------------------------------------------------------------- in the middle of an iteration */

TEST_CASE(memory_that_runs_out_in_an_iteration_makes_a_smaller_plan_for_the_next) {
    fixture f;
    begin_with_manager(&f);
    iterate(&f);
    uint64_t before = rig_digest(&f.r, f.m);
    device_fault_set(DEVICE_FAULT_MEMORY_TASK, 1);
    assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_ERR_NOMEM);
    assert_non_null(strstr(mm_last_error(), device_fault_message));
    device_fault_set(DEVICE_FAULT_NONE, 0);
    expect_told(&f, 1, device_fault_message);
    assert_true(f.there_is < f.most - f.most / 32); /* the next plan is clearly smaller */
    assert_true(rig_digest(&f.r, f.m) == before);
    assert_string_not_equal(mm_policy_now(f.m), "liveness");
    iterate(&f);
    assert_int_equal(ladder_steps(&f), 1);
    assert_int_equal(mm_manager_device_bytes(f.m), f.most);
    /* Other programs have freed memory. */
    assert_int_equal(mm_budget_set(f.m, f.most), MM_OK);
    assert_string_equal(mm_policy_now(f.m), "liveness");
    iterate(&f);
    end(&f);
}

/* After memory ran out and a budget was refused, the manager still assumes that the device cannot give what it could
 * not. */
TEST_CASE(after_a_refused_budget_memory_that_ran_out_is_still_short) {
    fixture f;
    begin_with_manager(&f);
    device_fault_set(DEVICE_FAULT_MEMORY_TASK, 1);
    assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_ERR_NOMEM);
    device_fault_set(DEVICE_FAULT_NONE, 0);
    expect_told(&f, 1, device_fault_message);
    int64_t there_was = f.there_is;
    assert_int_equal(mm_budget_set(f.m, f.least / 2), MM_ERR_INFEASIBLE);
    assert_int_equal(mm_policy_set(f.m, "vdnn-all:when=needed"), MM_OK);
    assert_int_equal(mm_policy_set(f.m, "liveness"), MM_OK);
    assert_string_not_equal(mm_policy_now(f.m), "liveness");
    assert_int_equal(f.there_is, there_was);
    iterate(&f);
    end(&f);
}

TEST_CASE(memory_that_runs_out_again_and_again_ends_at_the_smallest_plan) {
    fixture f;
    begin_with_manager(&f);
    int64_t steps = -1;
    for (int i = 0; ladder_steps(&f) != steps; i++) {
        assert_true(i < 200);
        steps = ladder_steps(&f);
        device_fault_set(DEVICE_FAULT_MEMORY_TASK, 1);
        assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_ERR_NOMEM);
        device_fault_set(DEVICE_FAULT_NONE, 0);
        iterate(&f);
    }
    assert_true(steps > 1);
    assert_int_equal(f.warnings, steps);
    end(&f);
}

/* Issues on this thread, so that a fault always hits the same call. */
static void begin_inline(fixture *f) {
    begin(f);
    f->options.issue = MM_ISSUE_INLINE;
    f->m = rig_manager(&f->options);
    assert_int_equal(rig_bind(&f->r, f->m), MM_OK);
}

TEST_CASE(memory_that_runs_out_while_a_step_begins_is_found_at_the_abort) {
    fixture f;
    begin_inline(&f);
    iterate(&f);
    assert_int_equal(mm_policy_set(f.m, "swap-async:when=always"), MM_OK);
    device_fault_set(DEVICE_FAULT_MEMORY_CALL, 18);
    assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_ERR_NOMEM);
    device_fault_set(DEVICE_FAULT_NONE, 0);
    expect_told(&f, 1, device_fault_message);
    assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
    mm_iteration_abort(f.m); /* the caller gives up for a reason of its own */
    assert_int_equal(f.warnings + f.errors, 1);
    end(&f);
}

/* Whatever else fails before the abort, the log says why memory ran out, and the caller keeps its own last error. */
TEST_CASE(why_memory_ran_out_is_kept_until_the_abort) {
    fixture f;
    begin_inline(&f);
    iterate(&f);
    assert_int_equal(mm_policy_set(f.m, "swap-async:when=always"), MM_OK);
    assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
    device_fault_set(DEVICE_FAULT_MEMORY_CALL, 18);
    assert_int_equal(rig_steps(&f.r, f.m, RIG_STREAM, 0, mm_graph_steps(f.graph)), MM_ERR_NOMEM);
    device_fault_set(DEVICE_FAULT_NONE, 0);
    assert_int_equal(mm_policy_set(f.m, "naive"), MM_ERR_ORDER);
    mm_iteration_abort(f.m);
    expect_told(&f, 1, device_fault_message);
    assert_non_null(strstr(mm_last_error(), "mm_policy_set: an iteration"));
    end(&f);
}

/* Several iterations run, and it is not known which ran out of memory: the plan of the largest one becomes smaller, but
 * no smaller than necessary. */
TEST_CASE(memory_that_runs_out_in_one_of_several_iterations_ahead_is_the_largest_ones) {
    fixture f;
    rig other;
    begin(&f);
    mm_graph *small = rig_random_graph(1000, 4, 2);
    rig_init(&other, small, 3);
    f.options.self_check = false; /* the self-check would wait for each iteration */
    f.options.device_bytes = f.most + rig_minimum(small, "liveness");
    f.m = rig_manager(&f.options);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    assert_int_equal(rig_bind(&other, f.m), MM_OK);
    assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_OK);
    device_fault_set(DEVICE_FAULT_MEMORY_TASK, 1);
    mm_status status = rig_iteration_ahead(&f.r, f.m, RIG_STREAM);
    if (status == MM_OK) status = rig_iteration_ahead(&other, f.m, RIG_STREAM);
    assert_int_equal(mm_iteration_end(f.m), MM_ERR_ORDER); /* changes nothing */
    if (status == MM_OK) status = mm_manager_sync(f.m);
    assert_int_equal(status, MM_ERR_NOMEM);
    device_fault_set(DEVICE_FAULT_NONE, 0);
    assert_int_equal(f.events, 1);
    assert_true(f.there_is > f.most / 2 && f.there_is < f.options.device_bytes);
    rig_fini(&other);
    end(&f);
    mm_graph_destroy(small);
}

/* An iteration in flight runs out of memory after the next one has begun, which is aborted. */
TEST_CASE(memory_that_runs_out_ahead_of_an_iteration_that_is_given_up_steps_down) {
    fixture f;
    begin(&f);
    f.options.self_check = false; /* the self-check would wait for each iteration */
    f.options.issue = MM_ISSUE_INLINE;
    f.m = rig_manager(&f.options);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_OK);
    device_fault_set(DEVICE_FAULT_MEMORY_TASK, 1);
    assert_int_equal(rig_iteration_ahead(&f.r, f.m, RIG_STREAM), MM_OK);
    assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
    mm_iteration_abort(f.m);
    assert_int_equal(f.events, 0);
    assert_int_equal(mm_manager_sync(f.m), MM_ERR_NOMEM);
    device_fault_set(DEVICE_FAULT_NONE, 0);
    assert_int_equal(f.events, 1);
    assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_OK);
    end(&f);
}

/* The larger graph's iteration was waited for or aborted, so the one that runs out of memory is the small graph's. */
static void check_small_one_runs_out(bool give_up) {
    fixture f;
    rig other;
    begin(&f);
    mm_graph *small = rig_random_graph(1000, 4, 2);
    rig_init(&other, small, 3);
    f.options.device_bytes = f.most + rig_minimum(small, "liveness");
    f.m = rig_manager(&f.options);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    assert_int_equal(rig_bind(&other, f.m), MM_OK);
    assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
    assert_int_equal(rig_steps(&f.r, f.m, RIG_STREAM, 0, mm_graph_steps(f.graph)), MM_OK);
    if (give_up)
        mm_iteration_abort(f.m);
    else
        assert_int_equal(mm_iteration_end(f.m), MM_OK);
    device_fault_set(DEVICE_FAULT_MEMORY_TASK, 1);
    assert_int_equal(rig_iteration(&other, f.m, RIG_STREAM), MM_ERR_NOMEM);
    device_fault_set(DEVICE_FAULT_NONE, 0);
    assert_int_equal(f.errors, 1); /* reported: the larger graph does not fit into less than the small one takes */
    assert_int_equal(f.events, 0);
    assert_string_equal(mm_policy_now(f.m), "liveness");
    assert_int_equal(mm_policy_set(f.m, "liveness"), MM_OK); /* the assumed limit of memory is as before */
    assert_string_equal(mm_policy_now(f.m), "liveness");
    rig_fini(&other);
    end(&f);
    mm_graph_destroy(small);
}

TEST_CASE(memory_that_runs_out_in_a_small_iteration_is_not_a_larger_ones_that_has_ended) {
    check_small_one_runs_out(false);
    check_small_one_runs_out(true);
}

/* Naive buffers allocate each map. When an allocation fails, the same policy with planned memory stands in. */
TEST_CASE(an_unplanned_allocation_that_fails_is_not_asked_for_again) {
    static const char naive[] = "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always";
    for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
        fixture f;
        begin(&f);
        f.options.policy = naive;
        f.options.issue = issue;
        f.options.device_bytes = rig_minimum(f.graph, naive);
        f.m = rig_manager(&f.options);
        assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
        iterate(&f);
        uint64_t before = rig_digest(&f.r, f.m);
        device_fault_heaps(true);
        assert_int_equal(rig_iteration(&f.r, f.m, RIG_STREAM), MM_ERR_NOMEM);
        assert_true(rig_digest(&f.r, f.m) == before);
        expect_told(&f, 1, "planned memory");
        iterate(&f);
        device_fault_heaps(false);
        assert_int_equal(mm_budget_set(f.m, f.options.device_bytes), MM_OK);
        assert_string_equal(mm_policy_now(f.m), naive);
        iterate(&f);
        end(&f);
    }
}

/* ---------------------------------------------------------------- who recomputes, and workspaces */

/* in (external) -> conv -> bn -> loss, and back; conv takes a workspace of 4096 bytes, or of 256. */
static mm_graph *workspace_graph(void) {
    mm_graph *graph;
    mm_tensor sum;
    mm_layer layer;
    mm_tensor_desc sd = {.name = "sum", .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {64}};
    assert_int_equal(mm_graph_create("workspaces", &graph), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &sd, &sum), MM_OK);
    assert_int_equal(mm_graph_add_layer(graph, "sum", MM_LAYER_OTHER, &layer), MM_OK);
    assert_int_equal(mm_graph_allow_workspace(graph, 1), MM_ERR_ORDER);
    assert_int_equal(mm_graph_add_step(graph, layer, MM_FORWARD, &(mm_use){sum, MM_MODIFY, MM_FORM_VALUE}, 1, 4096),
                     MM_OK);
    assert_int_equal(mm_graph_allow_workspace(graph, 4096), MM_ERR_INVALID);
    assert_int_equal(mm_graph_allow_workspace(graph, 1024), MM_OK);
    assert_int_equal(mm_graph_allow_workspace(graph, 0), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    return graph;
}

static size_t workspace_of(mm_manager *m, const mm_graph *graph) {
    assert_int_equal(mm_iteration_begin(m, graph), MM_OK);
    assert_int_equal(mm_workspace_bytes(m), 0);
    assert_int_equal(mm_layer_begin(m, 0, MM_FORWARD, NULL), MM_OK);
    size_t bytes = mm_workspace_bytes(m);
    assert_int_equal(mm_workspace_data(m) != NULL, bytes > 0);
    assert_int_equal(mm_layer_end(m, 0, MM_FORWARD), MM_OK);
    assert_int_equal(mm_iteration_end(m), MM_OK);
    return bytes;
}

TEST_CASE(smaller_workspaces_are_the_first_step) {
    fixture f = {0};
    mm_graph *graph = workspace_graph();
    mm_options options = {.device_bytes = 256 + 4096, .log = {take_message, &f, MM_LOG_WARNING}};
    mm_manager *m = rig_manager(&options);
    assert_int_equal(workspace_of(m, graph), 4096);
    assert_int_equal(mm_budget_set(m, 256 + 4095), MM_OK);
    expect_told(&f, 1, "smaller workspaces");
    assert_string_equal(mm_policy_now(m), "liveness");
    assert_int_equal(workspace_of(m, graph), 0);
    assert_int_equal(mm_budget_set(m, 256 + 4096), MM_OK);
    expect_told(&f, 2, "fits again");
    assert_int_equal(workspace_of(m, graph), 4096);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

TEST_CASE(what_recomputes_stands_in_only_where_somebody_does) {
    fixture f;
    begin(&f);
    f.options.pinned_bytes = 0; /* so masks save only a little; auto's plan for a smaller budget recomputes */
    f.m = rig_manager(&f.options);
    assert_int_equal(rig_bind(&f.r, f.m), MM_OK);
    const int64_t masks = rig_needs(f.graph, "rules:*=mask", 0, 0).device_bytes;
    assert_true(masks < f.most);
    assert_int_equal(mm_budget_set(f.m, masks), MM_OK);
    assert_string_equal(mm_policy_now(f.m), "rules:*=mask");
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, masks - 1), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "of all its substitutes, rules:*=mask needs least"));
    assert_int_equal(mm_manager_device_bytes(f.m), masks);
    iterate(&f);
    end(&f);
}

/* Never called: these plans are not run. */
static mm_status run_again(void *ctx, mm_manager *m, mm_layer layer, mm_stream *stream) {
    (void)ctx, (void)m, (void)layer, (void)stream;
    return MM_OK;
}

/* In a budget where recomputing cheap layers and swapping the rest is not enough, segments are recomputed. */
TEST_CASE(segments_are_recomputed_before_the_computation_waits) {
    static const char stronger[] = "recompute-swap:depth=1", waits[] = "swap";
    static const char *const weaker[] = {"rules:*=swap,depth=1", "rules:*=recompute,depth=1",
                                         "rules:*=recompute;*=swap,depth=1"};
    int taken = 0;
    for (uint64_t seed = 1; seed <= 40 && taken < 3; seed++) {
        fixture f = {0};
        mm_graph *graph = rig_random_graph(seed, LAYERS, CHANNELS);
        int64_t needed = rig_needs(graph, stronger, 0, PINNED).device_bytes;
        bool needs_less = rig_needs(graph, waits, 0, PINNED).device_bytes <= needed;
        for (size_t i = 0; i < sizeof weaker / sizeof *weaker; i++)
            needs_less &= needed < rig_needs(graph, weaker[i], 0, PINNED).device_bytes;
        mm_options options = {.device_bytes = rig_minimum(graph, "liveness"),
                              .pinned_bytes = PINNED,
                              .log = {take_message, &f, MM_LOG_WARNING}};
        mm_manager *m = rig_manager(&options);
        assert_int_equal(mm_recompute_set(m, graph, run_again, NULL), MM_OK);
        if (needs_less) {
            if (mm_budget_set(m, needed) != MM_OK) fail_msg("seed %d: %s", (int)seed, mm_last_error());
            expect_told(&f, 1, "recomputing segments and swapping");
            assert_string_equal(mm_policy_now(m), stronger);
            taken++;
        }
        mm_manager_destroy(m);
        mm_graph_destroy(graph);
    }
    assert_int_equal(taken, 3);
}
