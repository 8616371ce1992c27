/* SPDX-License-Identifier: MIT */
/* The budget of a stash changes between iterations: pinned memory, figures and learned orders stay, no byte is lost,
 * and each iteration is inside the budget of its time. */
#include "mm/core/plan/plan.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/rig_device.h"
#include "tests/mm/stash/stash_rig.h"

enum { KIB = 1 << 10, LAYERS = 10, MAP = 16 * KIB, SMALL = 4 * MAP, LARGE = 2 * LAYERS * MAP, PINNED = 13 * MAP };

static int pinned_reservations; /* of a stash's pinned memory */

mm_status __real_mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
mm_status __wrap_mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
mm_status __wrap_mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    pinned_reservations += kind == MM_MEMORY_PINNED && bytes == PINNED;
    return __real_mm_device_reserve(device, kind, bytes, memory_out);
}

static mm_stash *create(const char *policy, int64_t bytes, int64_t most) {
    return stash_create(
        (mm_stash_options){.device_bytes = bytes, .device_most_bytes = most, .pinned_bytes = PINNED, .policy = policy});
}

static void forward(stash_rig *r, stash_item *items) {
    for (int i = 0; i < LAYERS; i++) {
        const mm_stash_tensor like = stash_tensor_f32("ConvolutionBackward0", MAP / 4 - i);
        stash_expect_ok(stash_rig_put(r, &like, &items[i]));
    }
}

static void backward(stash_rig *r, stash_item *items) {
    for (int i = LAYERS; i-- > 0;) {
        stash_expect_ok(stash_rig_get(r, &items[i]));
        stash_rig_give_back(r, &items[i]);
        stash_rig_drop(r, &items[i]);
    }
}

/* Returns how many entries the caller kept. */
static int iterate(stash_rig *r) {
    stash_item items[LAYERS];
    int kept = 0;
    forward(r, items);
    for (int i = 0; i < LAYERS; i++) kept += items[i].kept != NULL;
    backward(r, items);
    return kept;
}

TEST_CASE(a_new_budget_keeps_pinned_memory_figures_and_orders) {
    pinned_reservations = 0;
    mm_stash *s = create("swap-async", SMALL, LARGE);
    stash_rig r;
    mm_stash_line line;
    stash_rig_init(&r, s, 61);
    iterate(&r);
    stash_expect_ok(mm_stash_wait_planned(s));
    assert_true(iterate(&r) < LAYERS);
    assert_int_equal(stash_stats_of(s).planned, 1);
    stash_expect_ok(mm_stash_budget_set(s, LARGE));
    assert_true(mm_stash_report(s, 0, &line) && line.fate == MM_STASH_FATE_UNPLANNED); /* its plan is gone */
    stash_expect_ok(mm_stash_wait_planned(s));
    assert_int_equal(iterate(&r), LAYERS); /* planned, without another iteration that learns */
    assert_int_equal(stash_stats_of(s).planned, 2);
    stash_expect_ok(mm_stash_budget_set(s, SMALL));
    assert_true(stash_stats_of(s).arena_bytes <= SMALL);
    stash_expect_ok(mm_stash_wait_planned(s));
    assert_true(iterate(&r) < LAYERS);
    const mm_stash_stats stats = stash_stats_of(s);
    assert_int_equal(stats.planned, 3);
    assert_int_equal(stats.plans, 3);
    assert_int_equal(stats.iterations, 4);
    assert_int_equal(stats.puts, 4 * LAYERS);
    assert_int_equal(stats.off_plan, 0);
    assert_true(stats.predicted_bytes <= SMALL);
    assert_int_equal(pinned_reservations, 1);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(an_unplanned_iteration_stays_inside_a_smaller_budget) {
    mm_stash *s = create("swap-async", LARGE, LARGE);
    stash_rig r;
    stash_rig_init(&r, s, 62);
    stash_expect_ok(mm_stash_budget_set(s, SMALL));
    iterate(&r);
    assert_true(stash_stats_of(s).peak_bytes <= SMALL);
    assert_true(stash_stats_of(s).out_bytes > 0);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(an_order_that_did_not_fit_is_planned_in_a_larger_budget) {
    mm_stash *s = create("liveness", SMALL, LARGE);
    stash_rig r;
    stash_rig_init(&r, s, 63);
    iterate(&r);
    stash_expect_refused(mm_stash_wait_planned(s), MM_ERR_INFEASIBLE, "liveness on stash needs at least");
    stash_expect_ok(mm_stash_budget_set(s, LARGE));
    stash_expect_ok(mm_stash_wait_planned(s));
    assert_int_equal(iterate(&r), LAYERS);
    assert_int_equal(stash_stats_of(s).planned, 1);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* Planning is under way, or done, or has not begun. */
TEST_CASE(budgets_that_change_at_random_lose_nothing) {
    mm_stash *s = create("swap-async", SMALL, LARGE);
    stash_rig r;
    int64_t budget = SMALL;
    stash_rig_init(&r, s, 64);
    for (int i = 0; i < 40; i++) {
        stash_item items[LAYERS];
        forward(&r, items);
        const mm_stash_stats stats = stash_stats_of(s);
        assert_true(stats.kept_bytes <= budget);
        assert_true(stats.arena_bytes <= budget - stats.kept_bytes);
        backward(&r, items);
        if (random_chance(&r.random, 30)) stash_expect_ok(mm_stash_wait_planned(s));
        if (random_chance(&r.random, 50)) continue;
        budget = SMALL + random_below(&r.random, (LARGE - SMALL) / MM_ALIGN) * MM_ALIGN;
        stash_expect_ok(mm_stash_budget_set(s, budget));
    }
    assert_int_equal(stash_stats_of(s).iterations, 40);
    assert_true(stash_stats_of(s).planned > 0);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(wrong_budgets_are_refused_and_change_nothing) {
    mm_stash *s, *none;
    const mm_stash_options less = {
        .device = rig_device_used()->name, .device_bytes = SMALL, .device_most_bytes = SMALL - 1};
    stash_expect_refused(mm_stash_create(&less, &none), MM_ERR_INVALID, "device_most_bytes is 65535, less than");
    s = create("swap-async", SMALL, 0);
    stash_rig r;
    stash_item items[LAYERS];
    stash_rig_init(&r, s, 65);
    stash_expect_refused(mm_stash_budget_set(s, 0), MM_ERR_INVALID, "device_bytes is 0");
    stash_expect_refused(mm_stash_budget_set(s, SMALL + 1), MM_ERR_INVALID, "from 1 to 65536");
    stash_expect_refused(mm_stash_budget_set(NULL, SMALL), MM_ERR_INVALID, "stash");
    iterate(&r);
    stash_expect_ok(mm_stash_wait_planned(s));
    forward(&r, items);
    stash_expect_refused(mm_stash_budget_set(s, SMALL), MM_ERR_ORDER, "there are 10 entries");
    backward(&r, items);
    assert_int_equal(stash_stats_of(s).planned, 1);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}
