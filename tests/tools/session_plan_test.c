/* SPDX-License-Identifier: MIT */
/* What a session reports: the plan it announces is the one that runs, and host memory is counted by session. */
#include <stdlib.h>
#include <string.h>

#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tools/train/session.h"

/* Counts how often the first policy is planned for a budget. */
static struct {
    int64_t budget_bytes;
    int plans;
} counted;

typedef mm_status policy_plan(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                              const mm_limits *limits, mm_plan **plan_out);
policy_plan __real_mm_policy_plan, __wrap_mm_policy_plan;

mm_status __wrap_mm_policy_plan(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                                const mm_limits *limits, mm_plan **plan_out) {
    counted.plans += limits->device_bytes == counted.budget_bytes;
    return __real_mm_policy_plan(policy, graph, facts, limits, plan_out);
}

static session_config config_of(const nets_net *net, int64_t batch, const target *target, const char *policy) {
    session_config config = {.net = net,
                             .data = "synthetic:samples=24",
                             .batch = batch,
                             .target = *target,
                             .seed = 3,
                             .pinned_bytes = PINNED_OPEN};
    config.policies.text[config.policies.n++] = policy;
    return config;
}

/* threads 0: all cores. */
static target host_of(int64_t threads) {
    target t = TARGET_DEFAULTS;
    t.threads = threads;
    expect_ok(target_init(&t));
    return t;
}

static target host(void) { return host_of(0); }

static row run_config(const session_config *config, int64_t iterations) {
    const session_run run = {.iterations = iterations, .schedule = {.rate = 0.001f, .factor = 1}, .quiet = true};
    session s;
    row r = {0};
    expect_ok(session_init(&s, config));
    expect_ok(session_train(&s, &run, &r));
    session_fini(&s);
    return r;
}

/* ---------------------------------------------------------------- one plan */

static need need_of(const nets_net *net, int64_t batch, const target *target, const char *policy) {
    const need_case c = {.net = net,
                         .batch = batch,
                         .mode = NETS_TRAIN,
                         .target = target,
                         .policy = policy,
                         .pinned = {.bytes = INT64_MAX}};
    need n;
    expect_ok(need_init(&n, &c));
    return n;
}

/* Compares the plan made without a budget with the plan made in the bytes that it needs and, if `runs`, with a run in
 * that budget. */
static void compare(const nets_net *net, int64_t batch, const target *target, const char *policy, bool runs) {
    need own = need_of(net, batch, target, policy);
    const mm_plan told = *need_most(&own)->planned.plan; /* only its figures are used later */
    expect_ok(need_within(&own, 0, told.peak_bytes, told.pinned_bytes, 0));
    const mm_plan *again = need_most(&own)->planned.plan;
    if (again->stash_bytes != told.stash_bytes || again->peak_bytes != told.peak_bytes ||
        again->pinned_bytes != told.pinned_bytes || again->n_nodes != told.n_nodes)
        fail_msg("%s, batch %lld, %s: stash %lld told, %lld in just that budget; pinned %lld and %lld",
                 nets_net_name(net), (long long)batch, policy, (long long)told.stash_bytes,
                 (long long)again->stash_bytes, (long long)told.pinned_bytes, (long long)again->pinned_bytes);
    if (runs) {
        session_config config = config_of(net, batch, target, policy);
        row r = run_config(&config, 1);
        assert_int_equal(r.stash_bytes, told.stash_bytes);
        assert_int_equal(r.pinned_bytes, told.pinned_bytes);
        assert_int_equal(r.predicted_peak_bytes, told.peak_bytes);
        assert_int_equal(r.minimum_bytes, told.peak_bytes);
    }
    need_fini(&own);
}

/* The plan that is announced is the one that runs. (Once it was a plan that ran in no budget.) */
TEST_CASE(what_is_told_of_a_policy_is_what_runs) {
    static const struct {
        const char *net;
        int64_t batch;
        bool runs;
    } nets[] = {
        {"tiny", 4, true},
        {"resnet20", 16, true},
        {"vgg11@32,classes=10,thin=8", 4, true},
        {"googlenet@64,classes=10,thin=8", 2, false},
        {"resnet50@64,classes=10,thin=8", 4, false},
    };
    target t = host();
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        nets_net *net;
        const char *policy, *summary;
        expect_ok(nets_zoo_build(nets[n].net, &net));
        /* Where weights leave, a little less than what is told may do, by another plan. */
        for (size_t p = 0; (policy = mm_policy_list(p, &summary)); p++) {
            if (strcmp(policy, "plan") == 0) continue; /* it needs a file */
            compare(net, nets[n].batch, &t, strcmp(policy, "auto") == 0 ? "auto:resident=all" : policy, nets[n].runs);
        }
        nets_net_destroy(net);
    }
    target_fini(&t);
}

/* In the least budget in which weights stay, auto pins memory for the fastest plan. The plan with the lowest peak moves
 * all maps that can be moved out; the fastest plan in the same budget need not. */
TEST_CASE(in_its_minimum_a_policy_pins_what_the_fastest_plan_takes) {
    enum { BATCH = 4 };
    static const char policy[] = "auto:resident=all";
    target t = TARGET_DEFAULTS;
    t.fuse = "on"; /* not auto, with which plans of the fused and the unfused graph would be compared */
    expect_ok(target_init(&t));
    nets_net *net;
    expect_ok(nets_zoo_build("nin-cifar", &net));
    need own = need_of(net, BATCH, &t, policy);
    const need_pass *pass = need_most(&own);
    session_config config = config_of(net, BATCH, &t, policy);
    config.budget_bytes = pass->minimum_bytes;
    const int64_t lowest = pass->planned.plan->pinned_bytes;
    expect_ok(need_within(&own, 0, pass->minimum_bytes, INT64_MAX, 0));
    counted.budget_bytes = pass->minimum_bytes;
    counted.plans = 0;
    const row r = run_config(&config, 1);
    assert_int_equal(counted.plans, 1); /* the manager takes over the plan by which pinned memory was sized */
    assert_true(pass->planned.plan->pinned_bytes < lowest);
    assert_int_equal(r.pinned_bytes, pass->planned.plan->pinned_bytes);
    assert_int_equal(r.predicted_peak_bytes, pass->planned.plan->peak_bytes);
    need_fini(&own);
    nets_net_destroy(net);
    target_fini(&t);
}

TEST_CASE(the_stash_is_that_of_whole_batches) {
    target t = host();
    nets_net *net;
    expect_ok(nets_zoo_build("tiny", &net));
    session_config config = config_of(net, 16, &t, "liveness");
    row even = run_config(&config, 1);
    config.whole_epochs = true;
    row odd = run_config(&config, 2); /* the second iteration has 8 images */
    assert_int_equal(odd.iterations, 2);
    assert_int_equal(odd.stash_bytes, even.stash_bytes);
    nets_net_destroy(net);
    target_fini(&t);
}

/* ---------------------------------------------------------------- the host's memory */

TEST_CASE(the_hosts_memory_is_counted_by_session) {
    target t = host();
    nets_net *net;
    expect_ok(nets_zoo_build("resnet20", &net));
    session_config large = config_of(net, 24, &t, "swap-async:when=always"), small = large;
    large.measure = small.measure = true;
    small.batch = 1;
    row first = run_config(&large, 1), second = run_config(&small, 1);
    assert_true(first.pinned_bytes > 16 << 20);
    assert_int_equal(first.host_planned_bytes, first.predicted_peak_bytes + first.pinned_bytes);
    assert_true(first.host_peak_bytes >= first.host_planned_bytes);
    assert_true(second.host_planned_bytes < first.host_planned_bytes / 4);
    if (second.host_peak_bytes > 0) assert_true(second.host_peak_bytes < first.host_peak_bytes);
    nets_net_destroy(net);
    target_fini(&t);
}

/* Of a large budget only what the plan uses is in memory. One thread: with several, the scratch memory that oneDNN
 * touches differs from run to run. */
TEST_CASE(a_large_budget_takes_no_memory) {
    enum { BUDGET = 1 << 30, COST = 64 << 20 };
    target t = host_of(1);
    nets_net *net;
    expect_ok(nets_zoo_build("resnet20", &net));
    session_config config = config_of(net, 2, &t, "liveness");
    config.measure = true;
    row own = run_config(&config, 1);
    config.budget_bytes = BUDGET;
    row large = run_config(&config, 1);
    assert_int_equal(large.budget_bytes, BUDGET);
    assert_int_equal(large.peak_bytes, own.peak_bytes);
    assert_true(own.host_peak_bytes > 0);
    assert_true(large.host_peak_bytes < own.host_peak_bytes + COST);
    nets_net_destroy(net);
    target_fini(&t);
}

/* ---------------------------------------------------------------- stopped early */

TEST_CASE(a_session_that_is_stopped_plans_no_further) {
    const volatile sig_atomic_t stop = 1;
    target t = host();
    nets_net *net;
    session s;
    row r = {0};
    expect_ok(nets_zoo_build("tiny", &net));
    session_config config = config_of(net, 4, &t, "liveness");
    config.stop = &stop;
    mm_status begun = session_init(&s, &config);
    assert_int_equal(begun, MM_ERR_ORDER);
    assert_true(session_stopped_early(&s, begun));
    assert_false(session_stopped_early(&s, MM_ERR_INFEASIBLE));
    assert_null(s.manager);
    assert_null(s.needs);
    expect_ok(session_name_row(&s, &r));
    assert_string_equal(r.net, "tiny");
    assert_int_equal(r.iterations, 0);
    nets_net_destroy(net);
    target_fini(&t);
}

/* ---------------------------------------------------------------- plans made again while a session runs */

/* A mm_measured_learn: steps take hardly any time, and copies seconds; so a plan that moved maps runs steps again. */
static mm_status copies_are_slow(void *ctx, const mm_measured *measured, mm_graph_facts *facts) {
    int *calls = ctx;
    (*calls)++;
    assert_true(mm_execution_ns(measured->execution, 0) >= 0);
    for (int v = 0; v < facts->variant_first[facts->n_steps]; v++) facts->variants[v].ns = 1000;
    facts->out_bytes_per_s = facts->in_bytes_per_s = 1000000;
    facts->out_both_bytes_per_s = facts->in_both_bytes_per_s = 0;
    facts->contention_permille = facts->link_contention_permille = 0;
    return MM_OK;
}

/* Trains 4 iterations in a budget; plans again after two of them. Returns the digest of the weights. */
static uint64_t train_in_parts(const session_config *config, bool again_wanted) {
    session s;
    row r = {0};
    uint64_t digest;
    session_run run = {.iterations = 2, .schedule = {.rate = 0.001f, .factor = 1}, .quiet = true};
    expect_ok(session_init(&s, config));
    s.measured = -1; /* it does not plan again by itself */
    expect_ok(session_train(&s, &run, &r));
    if (again_wanted) {
        const mm_graph *graph = nets_exec_lowered(s.train)->graph;
        mm_again again;
        int calls = 0;
        expect_ok(mm_measured_plan_again(s.manager, &graph, 1, copies_are_slow, &calls, &again));
        assert_int_equal(calls, 2);
        if (again.refused) fail_msg("not planned again: %s", again.refused);
        assert_true(again.next_ns < again.now_ns);
    }
    run.iterations = 4;
    expect_ok(session_train(&s, &run, &r));
    assert_int_equal(r.replans, again_wanted);
    assert_true(r.peak_bytes <= config->budget_bytes);
    expect_ok(session_digest(&s, &digest));
    session_fini(&s);
    return digest;
}

TEST_CASE(plans_made_again_by_learned_times_give_the_same_bits) {
    static const host_rates run_rates = {.from = HOST_RATES_RUN};
    nets_net *net;
    target t = host();
    expect_ok(nets_zoo_build("resnet8", &net));
    session_config config = config_of(net, 8, &t, "auto:effort=0");
    config.budget_bytes = 4 << 20;
    config.measure = config.measure_times = true;
    const uint64_t whole = train_in_parts(&config, false);
    config.rates = &run_rates; /* reserves host memory for other plans */
    assert_true(train_in_parts(&config, true) == whole);
    nets_net_destroy(net);
    target_fini(&t);
}
