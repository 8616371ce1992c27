/* SPDX-License-Identifier: MIT */
/* mm_budget_set: smaller, larger again, or refused; nothing moves and nothing is lost. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { LAYERS = 20, CHANNELS = 8, LARGE = 64, PINNED = 1 << 24 };

typedef struct fixture {
    uint64_t seed;
    mm_graph *graph;
    rig r;
    plain expected;
    mm_manager *m;
    int64_t most, least; /* what liveness needs, and the least that the policy needs */
} fixture;

/* Takes the first random graph with which the policy saves at least a tenth of the memory. */
static void begin_with(fixture *f, int channels, mm_options options) {
    static const char policy[] = "swap:when=needed";
    for (f->seed = 1;; f->seed++) {
        f->graph = rig_random_graph(f->seed, LAYERS, channels);
        f->most = rig_minimum(f->graph, "liveness");
        f->least = rig_needs(f->graph, policy, 0, PINNED).device_bytes;
        if (f->least < f->most * 9 / 10) break;
        mm_graph_destroy(f->graph);
        assert_true(f->seed < 100);
    }
    options.device_bytes = f->most;
    options.pinned_bytes = PINNED;
    options.policy = policy;
    f->m = rig_manager(&options);
    rig_init(&f->r, f->graph, f->seed);
    plain_init(&f->expected, f->graph, f->seed);
    assert_int_equal(rig_bind(&f->r, f->m), MM_OK);
}

static void begin(fixture *f) { begin_with(f, CHANNELS, (mm_options){.self_check = true}); }

static void end(fixture *f) {
    mm_manager_destroy(f->m);
    rig_fini(&f->r);
    plain_fini(&f->expected);
    mm_graph_destroy(f->graph);
}

/* Runs an iteration here and in plain memory; the results must be equal. */
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

TEST_CASE(a_smaller_budget_makes_maps_leave_and_a_larger_one_lets_them_stay) {
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

TEST_CASE(every_budget_between_gives_the_same_results) {
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

TEST_CASE(a_budget_that_is_too_small_changes_nothing) {
    fixture f;
    begin(&f);
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, 1), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "needs at least"));
    const char *told = strstr(mm_last_error(), "auto:resident=all needs least: "); /* auto is tried last */
    assert_non_null(told);
    const int64_t least = strtoll(strstr(told, ": ") + 1, NULL, 10);
    assert_int_equal(mm_budget_set(f.m, least - 1), MM_ERR_INFEASIBLE);
    assert_int_equal(mm_manager_device_bytes(f.m), f.most);
    iterate(&f);
    assert_int_equal(mm_budget_set(f.m, least), MM_OK);
    assert_string_equal(mm_policy_now(f.m), "auto:resident=all");
    iterate(&f);
    end(&f);
}

TEST_CASE(budgets_out_of_range_are_refused) {
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

/* Number of the arena's whole pages in [begin, end) that are in memory. */
static int resident_pages(fixture *f, int64_t begin, int64_t end) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = UINTPTR_MAX;
    for (int t = 0; t < mm_graph_tensors(f->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(f->graph, t);
        if (tensor->ownership != MM_PERSISTENT) continue;
        uintptr_t place = (uintptr_t)mm_persistent_data(f->m, tensor->name, NULL);
        if (place < base) base = place;
    }
    uintptr_t first = (base + (uintptr_t)begin + page - 1) / page * page, last = (base + (uintptr_t)end) / page * page;
    assert_true(first < last);
    size_t pages = (last - first) / page;
    unsigned char *in = malloc(pages);
    assert_non_null(in);
    assert_int_equal(mincore((void *)first, last - first, in), 0);
    int n = 0;
    for (size_t i = 0; i < pages; i++) n += in[i] & 1;
    free(in);
    return n;
}

static mm_touched touched(fixture *f) {
    mm_touched bytes;
    if (mm_touched_get(f->m, &bytes) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(bytes.stray_bytes, 0);
    return bytes;
}

static void what_a_smaller_budget_gives_back_leaves_memory(bool measure_touched) {
    fixture f;
    if (!rig_device_used()->cpu_reaches_memory) skip(); /* the arena is not among the process's pages */
    begin_with(&f, LARGE, (mm_options){.measure_touched = measure_touched});
    iterate(&f);
    assert_true(resident_pages(&f, f.least, f.most) > 0);
    assert_int_equal(mm_budget_set(f.m, f.least), MM_OK);
    assert_int_equal(resident_pages(&f, f.least, f.most), 0);
    iterate(&f);
    assert_int_equal(resident_pages(&f, f.least, f.most), 0);
    end(&f);
}

TEST_CASE(what_is_given_back_leaves_memory) { what_a_smaller_budget_gives_back_leaves_memory(false); }

TEST_CASE(what_is_given_back_leaves_memory_where_touched_bytes_are_counted) {
    what_a_smaller_budget_gives_back_leaves_memory(true);
}

TEST_CASE(bytes_touched_before_they_were_given_back_count) {
    fixture f;
    begin_with(&f, LARGE, (mm_options){.measure_touched = true});
    iterate(&f);
    mm_touched before = touched(&f);
    assert_true(before.total_bytes > f.least);
    assert_int_equal(mm_budget_set(f.m, f.least), MM_OK);
    assert_int_equal(touched(&f).total_bytes, before.total_bytes);
    assert_int_equal(mm_budget_set(f.m, (f.least + f.most) / 2), MM_OK);
    assert_int_equal(mm_budget_set(f.m, f.most), MM_OK);
    mm_touched after = touched(&f);
    assert_int_equal(after.total_bytes, before.total_bytes);
    assert_int_equal(after.persistent_bytes, before.persistent_bytes);
    iterate(&f);
    assert_int_equal(touched(&f).total_bytes, before.total_bytes); /* the same bytes */
    end(&f);
}

TEST_CASE(persistent_tensors_stay_under_a_budget_below_them) {
    fixture f;
    begin_with(&f, LARGE, (mm_options){0});
    iterate(&f);
    uint64_t digest = rig_digest(&f.r, f.m);
    assert_int_equal(mm_manager_forget(f.m, f.graph), MM_OK);
    assert_int_equal(mm_budget_set(f.m, 1), MM_OK);
    assert_true(rig_digest(&f.r, f.m) == digest);
    end(&f);
}
