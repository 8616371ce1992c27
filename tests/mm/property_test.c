/* Random graphs x policies x budgets x ways to run them, executed with random delays of the side streams and the
 * self-check on: whatever a policy does without loss, the persistent tensors end as without any manager, bit for bit;
 * what is lossy gives the same however it is run; no byte is touched that was not predicted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/mm/manager_rig.h"

enum { ITERATIONS = 2, DELAY_NS = 50000 };

/* One way to run a graph. */
typedef struct trial {
    const char *policy;
    int64_t spare_bytes; /* of the budget, above the minimum */
    rig_mode mode;
    mm_issue issue;
    uint64_t seed; /* of graph and delays */
} trial;

static void print_policy(char *spec, size_t capacity, uint64_t *random, const char *codec) {
    snprintf(spec, capacity, "freelunch:codec=%s,eligible=%s,depth=%d,buffers=%s,workspace=%s", codec,
             random_chance(random, 60) ? "all" : "conv", 1 + random_below(random, 4),
             random_chance(random, 60) ? "persistent" : "naive", random_chance(random, 60) ? "sliding" : "naive");
}

static trial random_trial(const char *policy, uint64_t seed, uint64_t *random) {
    return (trial){.policy = policy,
                   .spare_bytes = random_chance(random, 50) ? 0 : random_below(random, 100000),
                   .mode = (rig_mode)random_below(random, RIG_MODES),
                   .issue = random_chance(random, 60) ? MM_ISSUE_THREAD : MM_ISSUE_INLINE,
                   .seed = seed};
}

/* The whole trial in words, for a failure that must be found again. */
static void fail_trial(const trial *t, const char *what) {
    static const char *const modes[] = {"inline", "stream", "mixed"};
    fail_msg("seed %llu, policy %s, %lld bytes to spare, computed %s, issue %s: %s", (unsigned long long)t->seed,
             t->policy, (long long)t->spare_bytes, modes[t->mode], t->issue == MM_ISSUE_THREAD ? "thread" : "inline",
             what);
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

/* The digest of all persistent tensors after ITERATIONS. */
static uint64_t run_trial(const trial *t, const mm_graph *graph) {
    rig r;
    rig_init(&r, graph, t->seed);
    int64_t budget = rig_minimum(graph, t->policy) + t->spare_bytes;
    mm_options options = {.device_bytes = budget,
                          .policy = t->policy,
                          .issue = t->issue,
                          .self_check = true,
                          .measure_touched = true,
                          .delay_seed = t->seed + 1,
                          .delay_max_ns = DELAY_NS};
    mm_manager *m = rig_manager(&options);
    if (rig_bind(&r, m) != MM_OK) fail_trial(t, mm_last_error());
    for (int i = 0; i < ITERATIONS; i++)
        if (rig_iteration(&r, m, t->mode) != MM_OK) fail_trial(t, mm_last_error());
    uint64_t digest = rig_digest(&r, m);
    check_touched(t, m, budget);
    mm_manager_destroy(m);
    rig_fini(&r);
    return digest;
}

static void lossless_policies(uint64_t seed) {
    uint64_t random = seed, expected;
    mm_graph *graph = rig_random_graph(seed, 3 + random_below(&random, 20), 1 + random_below(&random, 8));
    assert_int_equal(random_graph_reference(graph, seed, ITERATIONS, &expected), MM_OK);
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
    char spec[128];
    print_policy(spec, sizeof spec, &random, "zfp:rate=8");
    trial first = random_trial(spec, seed, &random);
    uint64_t expected = run_trial(&first, graph);
    for (int i = 0; i < 2; i++) {
        trial again = random_trial(spec, seed, &random);
        if (run_trial(&again, graph) != expected) fail_trial(&again, "other results than when it was run before");
    }
    mm_graph_destroy(graph);
}

static void results_of_lossless_policies_are_those_without_a_manager(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) lossless_policies(seed);
}

static void results_of_a_lossy_policy_do_not_depend_on_how_it_is_run(void **state) {
    (void)state;
    for (uint64_t seed = 1001; seed <= 1040; seed++) lossy_policies(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_of_lossless_policies_are_those_without_a_manager),
        cmocka_unit_test(results_of_a_lossy_policy_do_not_depend_on_how_it_is_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
