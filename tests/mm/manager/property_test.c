/* SPDX-License-Identifier: MIT */
/* Random graphs x policies x budgets x ways to run them, with random delays of the side streams and the self-check.
 * Under a lossless policy the persistent tensors end bit for bit as without a manager; under a lossy one they are the
 * same however the graph is run; no byte is touched that was not predicted. */
#include <stdio.h>

#include "tests/core/deep.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { ITERATIONS = 2, DELAY_NS = 50000 };

/* One way to run a graph. */
typedef struct trial {
    const char *policy;
    int64_t spare_bytes; /* if device_bytes is 0, the budget is the policy's minimum plus this */
    int64_t device_bytes, pinned_bytes;
    rig_mode mode;
    mm_issue issue;
    bool ahead;    /* iterations end without a drain, and so without the self-check */
    uint64_t seed; /* of the graph and the delays */
} trial;

static void print_policy(char *spec, size_t capacity, uint64_t *random, const char *codec) {
    snprintf(spec, capacity, "freelunch:codec=%s,eligible=%s,depth=%d,buffers=%s,workspace=%s,when=%s,codes=%s", codec,
             random_chance(random, 60) ? "all" : "conv", 1 + random_below(random, 4),
             random_chance(random, 60) ? "persistent" : "naive", random_chance(random, 60) ? "sliding" : "naive",
             random_chance(random, 80) ? "always" : "needed", random_chance(random, 60) ? "auto" : "beside");
}

static trial random_trial(const char *policy, uint64_t seed, uint64_t *random) {
    return (trial){.policy = policy,
                   .spare_bytes = random_chance(random, 50) ? 0 : random_below(random, 100000),
                   .mode = (rig_mode)random_below(random, RIG_MODES),
                   .issue = random_chance(random, 60) ? MM_ISSUE_THREAD : MM_ISSUE_INLINE,
                   .ahead = random_chance(random, 40),
                   .seed = seed};
}

/* Prints all that is needed to repeat the trial. */
static void fail_trial(const trial *t, const char *what) {
    static const char *const modes[] = {"inline", "stream", "mixed"};
    fail_msg("seed %llu, policy %s, budget minimum + %lld (or %lld, and %lld pinned), computed %s, issue %s%s: %s",
             (unsigned long long)t->seed, t->policy, (long long)t->spare_bytes, (long long)t->device_bytes,
             (long long)t->pinned_bytes, modes[t->mode], t->issue == MM_ISSUE_THREAD ? "thread" : "inline",
             t->ahead ? ", ahead" : "", what);
}

static void check_touched(const trial *t, mm_manager *m, int64_t budget) {
    mm_touched touched;
    mm_stats stats;
    char text[128];
    mm_stats_get(m, &stats);
    if (mm_touched_get(m, &touched) != MM_OK) fail_trial(t, mm_last_error());
    snprintf(text, sizeof text, "touched %lld (stray %lld), predicted %lld, budget %lld",
             (long long)touched.total_bytes, (long long)touched.stray_bytes, (long long)stats.predicted_peak_bytes,
             (long long)budget);
    if (touched.stray_bytes != 0 || touched.total_bytes > stats.predicted_peak_bytes ||
        stats.predicted_peak_bytes > budget)
        fail_trial(t, text);
}

static void check_link(const trial *t, mm_manager *m, const rig_need *need) {
    mm_stats stats;
    char text[160];
    mm_stats_get(m, &stats);
    stats.out_bytes -= stats.spilled_bytes; /* spills cannot be predicted */
    stats.in_bytes -= stats.spilled_bytes;
    if (stats.out_bytes == ITERATIONS * need->out_bytes && stats.in_bytes == ITERATIONS * need->in_bytes) return;
    snprintf(text, sizeof text,
             "%lld bytes went out and %lld came in; in each of %d iterations it should be %lld and %lld",
             (long long)stats.out_bytes, (long long)stats.in_bytes, ITERATIONS, (long long)need->out_bytes,
             (long long)need->in_bytes);
    fail_trial(t, text);
}

/* Returns the digest of the persistent tensors after ITERATIONS. */
static uint64_t run_trial(const trial *t, const mm_graph *graph) {
    rig r;
    rig_init(&r, graph, t->seed);
    int64_t budget = t->device_bytes ? t->device_bytes : rig_minimum(graph, t->policy) + t->spare_bytes;
    rig_need need = rig_needs(graph, t->policy, budget, t->pinned_bytes);
    mm_options options = {.device_bytes = budget,
                          .pinned_bytes = t->pinned_bytes,
                          .policy = t->policy,
                          .issue = t->issue,
                          .self_check = !t->ahead,
                          .verify_issued = t->ahead,
                          .measure_touched = true,
                          .delay_seed = t->seed + 1,
                          .delay_max_ns = DELAY_NS};
    mm_manager *m = rig_manager(&options);
    if (rig_bind(&r, m) != MM_OK) fail_trial(t, mm_last_error());
    for (int i = 0; i < ITERATIONS; i++)
        if ((t->ahead ? rig_iteration_ahead : rig_iteration)(&r, m, t->mode) != MM_OK) fail_trial(t, mm_last_error());
    if (mm_manager_sync(m) != MM_OK) fail_trial(t, mm_last_error());
    uint64_t digest = rig_digest(&r, m);
    check_touched(t, m, budget);
    check_link(t, m, &need);
    mm_manager_destroy(m);
    rig_fini(&r);
    return digest;
}

static void lossless_policies(uint64_t seed) {
    uint64_t random = seed, expected;
    mm_graph *graph = rig_random_graph(seed, 3 + random_below(&random, 20), 1 + random_below(&random, 8));
    expected = random_graph_reference(graph, seed, ITERATIONS);
    for (int i = 0; i < 6; i++) {
        char spec[128] = "";
        if (i >= 2) print_policy(spec, sizeof spec, &random, "raw");
        trial t = random_trial(i == 0 ? "naive" : i == 1 ? "liveness" : spec, seed, &random);
        if (run_trial(&t, graph) != expected) fail_trial(&t, "other results than without a manager");
    }
    mm_graph_destroy(graph);
}

static void lossy_policies(uint64_t seed) {
    uint64_t random = seed;
    mm_graph *graph = rig_random_graph(seed, 3 + random_below(&random, 20), 1 + random_below(&random, 8));
    static const char *const codecs[] = {"zfp:rate=8", "dpr:fp10", "mx:fp6", "group:bits=4"};
    char spec[128];
    print_policy(spec, sizeof spec, &random, codecs[seed % (sizeof codecs / sizeof *codecs)]);
    trial first = random_trial(spec, seed, &random);
    uint64_t expected = run_trial(&first, graph);
    for (int i = 0; i < 2; i++) {
        trial again = random_trial(spec, seed, &random);
        if (run_trial(&again, graph) != expected) fail_trial(&again, "other results than when it was run before");
    }
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- swapping */

static const char *const swapping[] = {
    "swap:",
    "swap-async:depth=1,",
    "swap-async:",
    "vdnn-all:",
    "vdnn-conv:",
    "cdma:",
    "rules:*=compress-swap(raw),",
    "rules:relu=mask;*=swap,depth=3,",
    "rules:conv=compress(raw);bn=compress-swap(raw);linear-in=swap;add=keep;*=swap,",
    "rules:*=compress(zvc),",
    "rules:relu=compress(zvc:reserve=2);bn=swap;*=compress-swap(zvc),depth=4,",
};
enum { SWAPPING = sizeof swapping / sizeof *swapping };

/* A trial with a budget between the policy's least and what liveness needs, and exactly the pinned memory that the
 * policy's plan for this budget takes. */
static trial swapping_trial(const mm_graph *graph, const char *policy, uint64_t seed, uint64_t *random) {
    trial t = random_trial(policy, seed, random);
    int64_t least = rig_needs(graph, policy, 0, INT64_MAX).device_bytes;
    int64_t most = rig_minimum(graph, "liveness");
    t.device_bytes = least;
    if (most > least && random_chance(random, 60))
        t.device_bytes += (int64_t)(random_next(random) % (uint64_t)(most - least + 1));
    t.pinned_bytes = rig_needs(graph, policy, t.device_bytes, INT64_MAX).pinned_bytes;
    return t;
}

/* Checks that, with one byte of pinned memory less, the policy has another plan that fits, or is refused. */
static void check_less_pinned(const trial *t, const mm_graph *graph) {
    if (t->pinned_bytes == 0) return;
    mm_options options = {.device_bytes = t->device_bytes, .pinned_bytes = t->pinned_bytes - 1, .policy = t->policy};
    rig_need need = rig_needs(graph, t->policy, options.device_bytes, options.pinned_bytes);
    bool fits = need.device_bytes <= options.device_bytes && need.pinned_bytes <= options.pinned_bytes;
    mm_manager *m = rig_manager(&options);
    if (mm_manager_prepare(m, graph) != (fits ? MM_OK : MM_ERR_INFEASIBLE))
        fail_trial(t, "with a byte of pinned memory less: neither runs nor is refused as it should be");
    mm_manager_destroy(m);
}

static void swapping_policies(uint64_t seed) {
    uint64_t random = seed, expected;
    mm_graph *graph = rig_random_graph(seed, 3 + random_below(&random, 20), 1 + random_below(&random, 8));
    expected = random_graph_reference(graph, seed, ITERATIONS);
    for (int i = 0; i < 5; i++) {
        char spec[128];
        const char *when = random_chance(&random, 50) ? "needed" : "always";
        snprintf(spec, sizeof spec, "%swhen=%s", swapping[random_below(&random, SWAPPING)], when);
        trial t = swapping_trial(graph, spec, seed, &random);
        if (run_trial(&t, graph) != expected) fail_trial(&t, "other results than without a manager");
        check_less_pinned(&t, graph);
    }
    mm_graph_destroy(graph);
}

static void lossy_swapping_policies(uint64_t seed) {
    uint64_t random = seed;
    mm_graph *graph = rig_random_graph(seed, 3 + random_below(&random, 20), 1 + random_below(&random, 8));
    char spec[128];
    snprintf(spec, sizeof spec, "%s,when=%s", random_chance(&random, 60) ? "hybrid:rate=8" : "cdma:rate=8",
             random_chance(&random, 50) ? "needed" : "always");
    trial first = swapping_trial(graph, spec, seed, &random);
    uint64_t expected = run_trial(&first, graph);
    check_less_pinned(&first, graph);
    for (int i = 0; i < 2; i++) {
        trial again = random_trial(spec, seed, &random);
        again.device_bytes = first.device_bytes;
        again.pinned_bytes = first.pinned_bytes;
        if (run_trial(&again, graph) != expected) fail_trial(&again, "other results than when it was run before");
    }
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- weights and states in pinned memory */

static const char *const housing[] = {
    "liveness:resident=none",
    "liveness:resident=needed",
    "liveness:inplace=off,resident=needed",
    "swap-async:when=always,resident=none",
    "swap-async:resident=needed",
    "freelunch:codec=raw,eligible=all,when=always,resident=needed",
    "rules:relu=mask;*=swap,depth=3,resident=none",
};
enum { HOUSING = sizeof housing / sizeof *housing };

/* Whether all persistent tensors end as without a manager, and no more than the budget was touched, at budgets from the
 * policy's least to what liveness needs, while the homes move between iterations and some updates run on the host. */
static void housing_policies(uint64_t seed) {
    uint64_t random = seed, expected;
    mm_graph *graph = rig_hosting_graph(seed, 3 + random_below(&random, 20), 1 + random_below(&random, 8));
    expected = random_graph_reference(graph, seed, ITERATIONS);
    for (int i = 0; i < 4; i++) {
        trial t = swapping_trial(graph, housing[random_below(&random, HOUSING)], seed, &random);
        if (run_trial(&t, graph) != expected) fail_trial(&t, "other results than without a manager");
    }
    mm_graph_destroy(graph);
}

static void moving_homes(uint64_t seed) {
    enum { MOVES = 6 };
    uint64_t random = seed;
    mm_graph *graph = rig_hosting_graph(seed, 3 + random_below(&random, 20), 1 + random_below(&random, 8));
    const uint64_t expected = random_graph_reference(graph, seed, MOVES);
    const int64_t least = rig_needs(graph, "liveness:resident=none", 0, INT64_MAX).device_bytes;
    const int64_t most = rig_minimum(graph, "liveness");
    rig r;
    rig_init(&r, graph, seed);
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = most > least ? most : least,
                                              .pinned_bytes = 1 << 24,
                                              .policy = "liveness:resident=needed",
                                              .measure_touched = true});
    assert_int_equal(rig_bind(&r, m), MM_OK);
    for (int i = 0; i < MOVES; i++) {
        const int64_t budget = least + (most > least ? (int64_t)(random_next(&random) % (uint64_t)(most - least)) : 0);
        static const char *const policies[] = {"liveness:resident=needed", "swap-async:resident=needed",
                                               "liveness:resident=none"};
        if (mm_policy_set(m, policies[random_below(&random, 3)]) != MM_OK || mm_budget_set(m, budget) != MM_OK ||
            rig_iteration(&r, m, (rig_mode)random_below(&random, RIG_MODES)) != MM_OK)
            fail_msg("seed %llu, budget %lld: %s", (unsigned long long)seed, (long long)budget, mm_last_error());
    }
    if (rig_digest(&r, m) != expected)
        fail_msg("seed %llu: other results than without a manager", (unsigned long long)seed);
    mm_touched touched;
    assert_int_equal(mm_touched_get(m, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0);
    mm_manager_destroy(m);
    rig_fini(&r);
    mm_graph_destroy(graph);
}

static void when_needed_nothing_is_done_that_the_budget_does_not_force(uint64_t seed) {
    mm_graph *graph = rig_random_graph(seed, 3 + (int)(seed % 20), 1 + (int)(seed % 8));
    int64_t keeping = rig_minimum(graph, "liveness");
    for (int i = 0; i < SWAPPING; i++) {
        char spec[128];
        snprintf(spec, sizeof spec, "%swhen=needed", swapping[i]);
        rig_need idle = rig_needs(graph, spec, keeping, 0);
        assert_int_equal(idle.operations, 0);
        assert_int_equal(idle.device_bytes, keeping);
        rig_need least = rig_needs(graph, spec, 0, INT64_MAX);
        assert_true(least.device_bytes <= keeping);
        mm_options options = {
            .device_bytes = least.device_bytes - 1, .pinned_bytes = least.pinned_bytes, .policy = spec};
        mm_manager *m = rig_manager(&options);
        assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

/* Sanitizers and emulated CUDA are slow: fewer seeds. The deep tier runs more. */
static uint64_t seed_stride(void) {
    const bool on_host = rig_device_used()->cpu_reaches_memory;
#if defined __SANITIZE_THREAD__
    return (uint64_t)test_depth(10, on_host ? 2 : 4);
#elif defined __SANITIZE_ADDRESS__
    return (uint64_t)test_depth(on_host ? 5 : 10, on_host ? 2 : 4);
#else
    return (uint64_t)test_depth(on_host ? 5 : 10, on_host ? 1 : 4);
#endif
}

static void each_seed(uint64_t first, uint64_t last, void (*property)(uint64_t seed)) {
    const uint64_t stride = seed_stride();
    for (uint64_t seed = first; seed <= last; seed += stride) property(seed);
}

TEST_CASE(results_of_lossless_policies_are_those_without_a_manager) { each_seed(1, 60, lossless_policies); }

TEST_CASE(results_of_a_lossy_policy_do_not_depend_on_how_it_is_run) { each_seed(1001, 1040, lossy_policies); }

TEST_CASE(results_of_swapping_policies_are_those_without_a_manager) { each_seed(2001, 2050, swapping_policies); }

TEST_CASE(results_of_a_lossy_swapping_policy_do_not_depend_on_how_it_is_run) {
    each_seed(3001, 3025, lossy_swapping_policies);
}

TEST_CASE(results_with_homes_in_pinned_memory_are_those_without_a_manager) { each_seed(5001, 5050, housing_policies); }

TEST_CASE(homes_move_between_iterations_without_loss) { each_seed(6001, 6030, moving_homes); }

TEST_CASE(policies_that_act_when_needed_do_nothing_with_what_liveness_needs) {
    each_seed(4001, 4020, when_needed_nothing_is_done_that_the_budget_does_not_force);
}
