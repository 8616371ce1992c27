/* SPDX-License-Identifier: MIT */
/* MM_STASH_REFUSE_LATER: what finds no room lies outside the budget, and the iteration is refused once it has ended,
 * with a budget in which the same order runs, unplanned and planned. */
#include <string.h>

#include "mm/core/plan/plan.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/rig_device.h"
#include "tests/mm/stash/stash_rig.h"

enum { KIB = 1 << 10, MAP = 4 * KIB, MOST = 12 };

static bool is_short; /* the device has no memory for pieces outside the budget */

mm_status __real_mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
mm_status __wrap_mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
mm_status __wrap_mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    if (is_short && kind == MM_MEMORY_DEVICE) return mm_fail(MM_ERR_NOMEM, "the test's device is full");
    return __real_mm_device_reserve(device, kind, bytes, memory_out);
}

static mm_stash *create(const char *policy, int64_t bytes, uint64_t modes) {
    return stash_create(
        (mm_stash_options){.device_bytes = bytes, .pinned_bytes = 2 * MOST * MAP, .policy = policy, .modes = modes});
}

static int64_t needed_by(mm_stash *s) {
    mm_stash_refusal refusal;
    assert_true(mm_stash_refusal_get(s, &refusal));
    return refusal.needed_bytes;
}

/* An iteration that the seed determines: up to four entries are held at a time. turns: puts come between gets, too. */
static void iterate(stash_rig *r, uint64_t seed, bool turns) {
    stash_item items[MOST];
    const int n = 4 + random_below(&seed, MOST - 4);
    int puts = 0, held[MOST], n_held = 0;
    bool open[MOST] = {false};
    for (int left = n; left > 0;) {
        if (puts < n && (!turns || puts < 2 || random_chance(&seed, 60))) {
            const mm_stash_tensor like = stash_tensor_f32("ExpBackward0", 64 + random_below(&seed, MAP / 4 - 64));
            stash_expect_ok(stash_rig_put(r, &like, &items[puts]));
            open[puts++] = true;
            continue;
        }
        const int first = puts < n; /* the first entry stays until all are put, so that the iteration does not end */
        const int i = first + random_below(&seed, puts - first);
        if (!open[i]) continue;
        stash_expect_ok(stash_rig_get(r, &items[i]));
        held[n_held++] = i;
        open[i] = false;
        while (n_held > 0 && (n_held == 4 || random_chance(&seed, 50) || left - n_held == 0)) {
            const int last = held[--n_held];
            stash_rig_give_back(r, &items[last]);
            stash_rig_drop(r, &items[last]);
            left--;
        }
    }
}

/* The minimum is of the iteration's order alone, so without MM_STASH_REFUSE_LATER no call fails there. */
static int64_t expect_minimum_runs(const char *policy, int64_t bytes, uint64_t seed, bool turns) {
    stash_rig r;
    mm_stash *s = create(policy, bytes, MM_STASH_REFUSE_LATER);
    stash_rig_init(&r, s, seed);
    iterate(&r, seed, turns);
    const bool beyond = stash_stats_of(s).beyond_bytes > 0;
    const mm_status status = mm_stash_wait_planned(s);
    const int64_t needed = status == MM_OK ? bytes : needed_by(s);
    if (beyond) assert_int_equal(status, MM_ERR_INFEASIBLE);
    if (status != MM_OK) assert_true(needed > bytes && strstr(mm_last_error(), "bytes"));
    assert_int_equal(stash_stats_of(s).beyond_bytes, 0);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
    s = create(policy, needed, 0);
    stash_rig_init(&r, s, seed);
    for (int i = 0; i < 3; i++) {
        iterate(&r, seed, turns);
        stash_expect_ok(mm_stash_wait_planned(s));
    }
    assert_true(stash_stats_of(s).peak_bytes <= needed);
    if (!turns) assert_int_equal(stash_stats_of(s).planned, 2);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
    return needed;
}

TEST_CASE(the_minimum_of_random_orders_runs) {
    static const char *const policies[] = {"swap-async", "liveness", "freelunch:codec=zvc,eligible=all,when=always"};
    int refused = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        const int64_t bytes = (1 + (int64_t)seed % 5) * 2 * KIB;
        refused += expect_minimum_runs(policies[seed % 3], bytes, seed, seed % 4 == 0) > bytes;
    }
    assert_true(refused > 10);
}

TEST_CASE(what_finds_no_room_is_put_and_got_and_refused_once) {
    mm_stash *s = create("swap-async", 2 * MAP, MM_STASH_REFUSE_LATER);
    stash_rig r;
    stash_item items[4], next;
    const mm_stash_tensor like = stash_tensor_f32("Conv", MAP / 4), large = stash_tensor_f32("Large", MAP / 2 + 1);
    stash_rig_init(&r, s, 71);
    for (int i = 0; i < 3; i++) stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
    assert_int_equal(stash_stats_of(s).beyond_bytes, 0);
    stash_expect_ok(stash_rig_put(&r, &large, &items[3]));
    assert_int_equal(stash_stats_of(s).beyond_bytes, 2 * MAP + MM_ALIGN);
    for (int i = 4; i-- > 0;) stash_expect_ok(stash_rig_get(&r, &items[i]));
    assert_int_equal(stash_stats_of(s).beyond_bytes, 3 * MAP + MM_ALIGN);
    for (int i = 0; i < 4; i++) {
        stash_rig_give_back(&r, &items[i]);
        stash_rig_drop(&r, &items[i]);
    }
    stash_rig_check(&r);
    stash_expect_refused(stash_rig_put(&r, &like, &next), MM_ERR_INFEASIBLE, "in the budget of 8192 bytes (8KiB)");
    assert_int_equal(needed_by(s), 5 * MAP + MM_ALIGN);
    assert_int_equal(stash_stats_of(s).entries, 0);
    stash_expect_ok(stash_rig_put(&r, &like, &next));
    stash_rig_drop(&r, &next);
    stash_expect_ok(mm_stash_wait_planned(s));
    assert_true(stash_stats_of(s).peak_bytes <= 2 * MAP);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(without_memory_on_the_device_a_get_is_refused_at_once) {
    mm_stash *s = create("swap-async", 2 * MAP, MM_STASH_REFUSE_LATER);
    stash_rig r;
    stash_item items[3];
    const mm_stash_tensor like = stash_tensor_f32("Conv", MAP / 4);
    stash_rig_init(&r, s, 72);
    for (int i = 0; i < 3; i++) stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
    for (int i = 0; i < 2; i++) stash_expect_ok(stash_rig_get(&r, &items[i]));
    is_short = true;
    stash_expect_refused(stash_rig_get(&r, &items[2]), MM_ERR_INFEASIBLE, "12288 bytes (12KiB) would be enough");
    is_short = false;
    stash_expect_ok(stash_rig_get(&r, &items[2])); /* nothing is lost */
    for (int i = 0; i < 3; i++) {
        stash_rig_give_back(&r, &items[i]);
        stash_rig_drop(&r, &items[i]);
    }
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(what_callers_keep_is_refused_with_the_most_that_they_keep) {
    mm_stash *s = create("liveness", 2 * MAP, MM_STASH_KEEP_ALWAYS | MM_STASH_REFUSE_LATER);
    stash_rig r;
    stash_item items[5];
    const mm_stash_tensor like = stash_tensor_f32("Conv", MAP / 4);
    stash_rig_init(&r, s, 73);
    for (int i = 0; i < 5; i++) {
        stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
        if (i == 1) stash_rig_drop(&r, &items[0]);
    }
    for (int i = 1; i < 5; i++) stash_rig_drop(&r, &items[i]);
    stash_expect_refused(mm_stash_wait_planned(s), MM_ERR_INFEASIBLE, "16384 bytes (16KiB) would be enough");
    assert_int_equal(needed_by(s), 4 * MAP);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(a_held_entry_outside_the_budget_is_freed_with_the_stash) {
    mm_stash *s = create("swap-async", MAP, MM_STASH_REFUSE_LATER);
    stash_rig r;
    stash_item items[2];
    const mm_stash_tensor like = stash_tensor_f32("Conv", MAP / 4);
    stash_rig_init(&r, s, 74);
    for (int i = 0; i < 2; i++) stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
    for (int i = 0; i < 2; i++) stash_expect_ok(stash_rig_get(&r, &items[i]));
    stash_rig_check(&r);
    stash_rig_give_back(&r, &items[0]);
    mm_stash_destroy(s);
    r.stash = NULL;
    stash_rig_fini(&r);
}
