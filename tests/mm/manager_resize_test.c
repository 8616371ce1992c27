/* mm_budget_set: smaller, larger again, or refused; nothing moves and nothing is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/mm/manager_rig.h"

enum { LAYERS = 20, CHANNELS = 8, PINNED = 1 << 24 };

typedef struct fixture {
    uint64_t seed;
    mm_graph *graph;
    rig r;
    plain expected;
    mm_manager *m;
    int64_t most, least; /* what the policy takes without and with need */
} fixture;

/* The first random graph on which the policy can save a good part. */
static void begin(fixture *f) {
    static const char policy[] = "swap:when=needed";
    for (f->seed = 1;; f->seed++) {
        f->graph = rig_random_graph(f->seed, LAYERS, CHANNELS);
        f->most = rig_minimum(f->graph, "liveness");
        f->least = rig_needs(f->graph, policy, 0, PINNED).device_bytes;
        if (f->least < f->most * 9 / 10) break;
        mm_graph_destroy(f->graph);
        assert_true(f->seed < 100);
    }
    mm_options options = {.device_bytes = f->most, .pinned_bytes = PINNED, .policy = policy, .self_check = true};
    f->m = rig_manager(&options);
    rig_init(&f->r, f->graph, f->seed);
    plain_init(&f->expected, f->graph, f->seed);
    assert_int_equal(rig_bind(&f->r, f->m), MM_OK);
}

static void end(fixture *f) {
    mm_manager_destroy(f->m);
    rig_fini(&f->r);
    plain_fini(&f->expected);
    mm_graph_destroy(f->graph);
}

/* An iteration, here and in plain memory, with equal results. */
static void iterate(fixture *f) {
    assert_int_equal(rig_iteration(&f->r, f->m, RIG_STREAM), MM_OK);
    plain_steps(&f->expected, 0, mm_graph_steps(f->graph));
    assert_true(rig_digest(&f->r, f->m) == plain_digest(&f->expected));
}

static int64_t moved_bytes(fixture *f) {
    mm_stats stats;
    mm_stats_get(f->m, &stats);
    return stats.out_bytes;
}

static void a_smaller_budget_makes_maps_leave_and_a_larger_one_lets_them_stay(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    iterate(&f);
    assert_int_equal(moved_bytes(&f), 0);
    assert_int_equal(mm_budget_set(f.m, f.least), MM_OK);
    assert_int_equal(mm_manager_device_bytes(f.m), f.least);
    iterate(&f);
    int64_t moved = moved_bytes(&f);
    assert_true(moved > 0);
    assert_int_equal(mm_budget_set(f.m, f.most), MM_OK);
    iterate(&f);
    assert_int_equal(moved_bytes(&f), moved);
    end(&f);
}

static void every_budget_between_gives_the_same_results(void **state) {
    (void)state;
    enum { BUDGETS = 16 };
    fixture f;
    begin(&f);
    for (int i = 0; i < BUDGETS; i++) {
        int share = i * 7 % BUDGETS; /* up and down */
        assert_int_equal(mm_budget_set(f.m, f.least + (f.most - f.least) * share / (BUDGETS - 1)), MM_OK);
        iterate(&f);
    }
    end(&f);
}

static void a_budget_that_is_too_small_changes_nothing(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, f.least - 1), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "needs at least"));
    assert_int_equal(mm_manager_device_bytes(f.m), f.most);
    iterate(&f);
    end(&f);
}

static void budgets_out_of_range_are_refused(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    assert_int_equal(mm_budget_set(f.m, 0), MM_ERR_INVALID);
    assert_int_equal(mm_budget_set(f.m, -1), MM_ERR_INVALID);
    assert_int_equal(mm_budget_set(f.m, f.most + 1), MM_ERR_INVALID);
    assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
    assert_int_equal(mm_budget_set(f.m, f.most), MM_ERR_ORDER);
    mm_iteration_abort(f.m);
    iterate(&f);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_smaller_budget_makes_maps_leave_and_a_larger_one_lets_them_stay),
        cmocka_unit_test(every_budget_between_gives_the_same_results),
        cmocka_unit_test(a_budget_that_is_too_small_changes_nothing),
        cmocka_unit_test(budgets_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
