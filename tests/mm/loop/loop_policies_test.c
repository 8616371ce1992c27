/* SPDX-License-Identifier: MIT */
/* Every lossless policy gives the weights that the program has on plain memory, in budgets from roomy to tight. */
#include <string.h>

#include "tests/core/expect.h"
#include "tests/mm/loop/loop_toy.h"

enum { ITERATIONS = 4, ROOMY = 1 << 20, PINNED = 1 << 20, MAP_BYTES = TOY_ELEMS * 4 };

static mm_manager *manager(const char *policy, int64_t device_bytes) {
    const mm_options options = {.device_bytes = device_bytes,
                                .pinned_bytes = PINNED,
                                .policy = policy,
                                .delay_seed = 3,
                                .delay_max_ns = 20000,
                                .self_check = true};
    mm_manager *m;
    if (mm_manager_create(&options, &m) != MM_OK) fail_msg("%s: %s", policy, mm_last_error());
    return m;
}

static int64_t peak(mm_manager *m) {
    mm_stats stats;
    mm_stats_get(m, &stats);
    return stats.predicted_peak_bytes;
}

/* Trains; returns the plan's peak. */
static int64_t train(const char *policy, int64_t device_bytes, bool again, mm_loop_record record) {
    static toy t;
    mm_manager *m = manager(policy, device_bytes);
    toy_init(&t, m, &(mm_loop_options){.record = record});
    t.again = again;
    for (int i = 0; i < ITERATIONS; i++)
        if (toy_iterate(&t, TOY_TRAIN) != MM_OK) fail_msg("%s: %s", policy, mm_last_error());
    if (toy_digest(&t) != toy_reference(ITERATIONS)) fail_msg("%s, functions %d: other weights", policy, again);
    const int64_t bytes = peak(m);
    toy_fini(&t);
    mm_manager_destroy(m);
    return bytes;
}

TEST_CASE(every_lossless_policy_gives_the_weights_of_plain_memory) {
    static const char *const policies[] = {
        "naive",
        "liveness",
        "swap",
        "swap-async",
        "swap-async:when=always",
        "gist:lossless",
        "vdnn-all",
        "recompute",
        "recompute:mode=sqrt",
        "recompute:mode=nested",
        "recompute-swap",
        "modnn",
        "auto:effort=0",
        "freelunch:codec=raw,eligible=all,when=always",
    };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (int again = 0; again < 2; again++)
            train(policies[i], ROOMY, again, again ? MM_LOOP_RECORD_RUN : MM_LOOP_RECORD_ONLY);
}

/* The toy holds two maps for each block from the forward to the backward pass. */
TEST_CASE(policies_train_in_less_than_liveness_needs) {
    const int64_t whole = train("liveness", ROOMY, true, MM_LOOP_RECORD_ONLY);
    assert_true(whole > 2 * TOY_BLOCKS * MAP_BYTES);
    assert_true(train("recompute:mode=sqrt", whole * 3 / 4, true, MM_LOOP_RECORD_ONLY) <= whole * 3 / 4);
    assert_true(train("swap-async", whole / 2, false, MM_LOOP_RECORD_ONLY) <= whole / 2);
    assert_true(train("recompute-swap", whole / 2, true, MM_LOOP_RECORD_ONLY) <= whole / 2);
}

TEST_CASE(blocks_with_a_function_are_computed_again_and_others_are_not) {
    static toy t;
    for (int again = 0; again < 2; again++) {
        mm_manager *m = manager("recompute:mode=sqrt,when=always", ROOMY);
        toy_init(&t, m, NULL);
        t.again = again;
        for (int i = 0; i < ITERATIONS; i++) expect_ok(toy_iterate(&t, TOY_TRAIN));
        assert_int_equal(toy_digest(&t), toy_reference(ITERATIONS));
        if (again)
            assert_true(t.runs > ITERATIONS * TOY_BLOCKS);
        else
            assert_int_equal(t.runs, ITERATIONS * TOY_BLOCKS);
        toy_fini(&t);
        mm_manager_destroy(m);
    }
}

TEST_CASE(policies_switch_between_iterations_of_two_keys) {
    static const char *const policies[] = {"recompute:mode=sqrt,when=always", "swap-async:when=always", "naive",
                                           "recompute-swap:when=always", "liveness"};
    enum { N = sizeof policies / sizeof *policies };
    static toy t;
    mm_manager *m = manager("liveness", ROOMY);
    toy_init(&t, m, NULL);
    t.again = true;
    for (int i = 0; i < 2 * N; i++) {
        expect_ok(mm_policy_set(m, policies[i % N]));
        expect_ok(toy_iterate(&t, TOY_TRAIN));
        if (i % 2) expect_ok(toy_iterate(&t, TOY_EVALUATE));
    }
    assert_int_equal(toy_digest(&t), toy_reference(2 * N));
    toy_fini(&t);
    mm_manager_destroy(m);
}

TEST_CASE(an_alias_saves_the_copy_and_a_copy_stands_in_where_the_policy_allows_none) {
    const int64_t naive = train("naive", ROOMY, false, MM_LOOP_RECORD_ONLY);
    assert_true(naive > train("liveness", ROOMY, false, MM_LOOP_RECORD_ONLY));
}

TEST_CASE(a_budget_that_is_too_small_is_refused_and_the_key_runs_once_it_fits) {
    static toy t;
    mm_manager *m = manager("liveness", train("liveness", ROOMY, false, MM_LOOP_RECORD_ONLY) / 2);
    bool again = true;
    toy_init(&t, m, NULL);
    expect_ok(toy_iterate(&t, TOY_EVALUATE));
    assert_int_equal(toy_iterate(&t, TOY_TRAIN), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "needs at least"));
    if (!strstr(mm_last_error(), "would fit")) fail_msg("%s", mm_last_error());
    expect_ok(toy_iterate(&t, TOY_EVALUATE));
    assert_int_equal(mm_loop_begin(t.loop, TOY_TRAIN), MM_ERR_INFEASIBLE);
    assert_int_equal(mm_loop_end(t.loop, &again), MM_ERR_INFEASIBLE);
    assert_true(again);
    expect_ok(mm_policy_set(m, "swap-async"));
    for (int i = 0; i < ITERATIONS; i++) expect_ok(toy_iterate(&t, TOY_TRAIN));
    assert_int_equal(toy_digest(&t), toy_reference(ITERATIONS));
    toy_fini(&t);
    mm_manager_destroy(m);
}
