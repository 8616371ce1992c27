/* SPDX-License-Identifier: MIT */
/* Entries come back from a stash unchanged, in any order, on any thread, and within the budget. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/rig_device.h"
#include "tests/mm/stash/stash_rig.h"

enum { KIB = 1 << 10, THREADS = 2, ITEMS = 24, OPERATIONS = 50000 /* per thread */ };

/* ---------------------------------------------------------------- random operations */

typedef struct actor {
    pthread_t thread;
    mm_stash *stash;
    int seed;
} actor;

static void act(stash_rig *r, stash_item *items) {
    stash_item *item = &items[random_below(&r->random, ITEMS)];
    const mm_stash_tensor like = stash_tensor_f32("Random", 1 + random_below(&r->random, STASH_RIG_MOST / 8));
    if (!item->entry)
        stash_expect_ok(stash_rig_put(r, &like, item));
    else if (item->held > 0)
        stash_rig_give_back(r, item);
    else if (random_chance(&r->random, 60))
        stash_expect_ok(stash_rig_get(r, item));
    else
        stash_rig_drop(r, item);
}

/* Returns entries that were got until at most two are still to be returned. */
static void settle_held(stash_rig *r, stash_item *items) {
    int held = 0;
    for (int i = 0; i < ITEMS; i++)
        if (items[i].held > 0 && ++held > 2) stash_rig_give_back(r, &items[i]);
}

static void *run_actor(void *arg) {
    const actor *a = arg;
    stash_rig r;
    stash_item items[ITEMS] = {0};
    stash_rig_init(&r, a->stash, (uint64_t)a->seed);
    for (int i = 0; i < OPERATIONS; i++) {
        act(&r, items);
        settle_held(&r, items);
    }
    for (int i = 0; i < ITEMS; i++) {
        if (!items[i].entry) continue;
        /* An entry that was got and not yet returned can be dropped: it is gone once it is returned. */
        const bool held = items[i].held > 0;
        const stash_item dropped = items[i];
        stash_rig_drop(&r, &items[i]);
        if (held) mm_stash_release(r.stash, dropped.entry, r.handles[0]);
    }
    stash_rig_fini(&r);
    return NULL;
}

TEST_CASE(random_operations_of_two_threads_give_every_byte_back) {
    enum { BUDGET = 96 * KIB };
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = BUDGET, .pinned_bytes = 16 * KIB, .unplanned = true});
    actor actors[THREADS];
    for (int i = 0; i < THREADS; i++) {
        actors[i] = (actor){.stash = s, .seed = i + 1};
        assert_int_equal(pthread_create(&actors[i].thread, NULL, run_actor, &actors[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(actors[i].thread, NULL);
    const mm_stash_stats stats = stash_stats_of(s);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(stats.kept_bytes, 0);
    assert_true(stats.peak_bytes <= BUDGET);
    assert_true(stats.out_bytes > 0 && stats.in_bytes > 0);
    assert_true(stats.host_bytes > 0); /* entries that did not fit into pinned memory */
    assert_true(stats.puts > OPERATIONS / 10 && stats.gets > OPERATIONS / 10);
    mm_stash_destroy(s);
}

/* ---------------------------------------------------------------- calls */

TEST_CASE(what_is_put_first_leaves_first_and_comes_back) {
    enum { N = 6, BYTES = 16 * KIB };
    mm_stash *s =
        stash_create((mm_stash_options){.device_bytes = 2 * BYTES, .pinned_bytes = N * BYTES, .unplanned = true});
    stash_rig r;
    stash_item items[N];
    const mm_stash_tensor like = stash_tensor_f32("Conv", BYTES / 4);
    stash_rig_init(&r, s, 7);
    for (int i = 0; i < N; i++) stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
    assert_int_equal(stash_stats_of(s).entries, N);
    assert_int_equal(stash_stats_of(s).out_bytes, (N - 2) * BYTES);
    for (int i = N; i-- > 0;) {
        stash_expect_ok(stash_rig_get(&r, &items[i]));
        stash_expect_ok(stash_rig_get(&r, &items[i]));
        stash_rig_give_back(&r, &items[i]);
        stash_rig_give_back(&r, &items[i]);
        stash_rig_drop(&r, &items[i]);
    }
    const mm_stash_stats stats = stash_stats_of(s);
    assert_int_equal(stats.peak_bytes, 2 * BYTES);
    assert_int_equal(stats.in_bytes, (N - 2) * BYTES);
    assert_int_equal(stats.iterations, 1);
    assert_int_equal(stats.gets, 2 * N);
    assert_int_equal(stats.host_bytes, 0);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(held_entries_stay_and_one_too_many_is_refused_with_numbers) {
    enum { BYTES = 16 * KIB };
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 2 * BYTES, .unplanned = true});
    stash_rig r;
    stash_item items[3];
    const mm_stash_tensor like = stash_tensor_f32("Conv", BYTES / 4);
    stash_rig_init(&r, s, 8);
    for (int i = 0; i < 3; i++) stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
    for (int i = 0; i < 2; i++) stash_expect_ok(stash_rig_get(&r, &items[i]));
    stash_expect_refused(stash_rig_get(&r, &items[2]), MM_ERR_INFEASIBLE, "32768 bytes (32KiB) are held");
    mm_stash_refusal refusal;
    assert_true(mm_stash_refusal_get(s, &refusal));
    assert_int_equal(refusal.needed_bytes, 3 * BYTES);
    assert_int_equal(refusal.device_bytes, 2 * BYTES);
    assert_int_equal(refusal.tensor_bytes, BYTES);
    assert_int_equal(refusal.tensor, 2);
    assert_string_equal(refusal.producer, "Conv");
    assert_string_equal(refusal.policy, "");
    mm_stash_tensor large = stash_tensor_f32("Large", 2 * BYTES / 4 + 1);
    mm_stash_entry none;
    mm_stash_answer answer;
    large.data = r.tensor[0];
    stash_expect_refused(mm_stash_put(s, &large, NULL, &none, &answer), MM_ERR_INFEASIBLE, "of Large needs");
    assert_true(mm_stash_refusal_get(s, &refusal));
    assert_int_equal(refusal.needed_bytes, 2 * BYTES + MM_ALIGN);
    assert_int_equal(refusal.tensor_bytes, 2 * BYTES + 4);
    assert_int_equal(refusal.tensor, 3);
    assert_string_equal(refusal.producer, "Large");
    stash_rig_give_back(&r, &items[0]);
    stash_expect_ok(stash_rig_get(&r, &items[2]));
    for (int i = 1; i < 3; i++) stash_rig_give_back(&r, &items[i]);
    for (int i = 0; i < 3; i++) stash_rig_drop(&r, &items[i]);
    assert_int_equal(stash_stats_of(s).entries, 0);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(keep_always_counts_moves_nothing_and_refuses_what_exceeds_the_budget) {
    enum { BYTES = 16 * KIB };
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 2 * BYTES, .modes = MM_STASH_KEEP_ALWAYS});
    stash_rig r;
    stash_item items[3];
    const mm_stash_tensor like = stash_tensor_f32("layers.0 ReluBackward0", BYTES / 4);
    stash_rig_init(&r, s, 10);
    for (int round = 0; round < 3; round++) {
        mm_stash_refusal refusal;
        mm_stash_line line;
        for (int i = 0; i < 2; i++) stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
        assert_int_equal(stash_stats_of(s).kept_bytes, 2 * BYTES);
        stash_expect_refused(stash_rig_put(&r, &like, &items[2]), MM_ERR_INFEASIBLE,
                             "of layers.0 ReluBackward0: 32768 bytes (32KiB) are kept");
        assert_true(mm_stash_refusal_get(s, &refusal));
        assert_int_equal(refusal.needed_bytes, 3 * BYTES);
        assert_int_equal(refusal.tensor, 2);
        for (int i = 1; i >= 0; i--) {
            stash_expect_ok(stash_rig_get(&r, &items[i]));
            stash_rig_give_back(&r, &items[i]);
            stash_rig_drop(&r, &items[i]);
        }
        assert_int_equal(stash_stats_of(s).entries, 0);
        assert_int_equal(stash_stats_of(s).kept_bytes, 0);
        stash_expect_ok(mm_stash_wait_planned(s));
        assert_true(mm_stash_report(s, 1, &line));
        assert_int_equal(line.fate, MM_STASH_FATE_KEPT);
        assert_string_equal(line.producer, "layers.0 ReluBackward0");
        assert_false(mm_stash_report(s, 2, &line));
    }
    const mm_stash_stats stats = stash_stats_of(s);
    assert_int_equal(stats.iterations, 3);
    assert_int_equal(stats.planned + stats.off_plan, 0);
    assert_int_equal(stats.moved_bytes + stats.out_bytes, 0);
    assert_int_equal(stats.peak_bytes, 2 * BYTES);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(wrong_calls_are_refused_and_change_nothing) {
    static float elems[64];
    mm_stash *s;
    mm_stash_entry entry = 0;
    mm_stash_answer answer;
    void *data;
    stash_expect_refused(mm_stash_create(&(mm_stash_options){0}, &s), MM_ERR_INVALID, "device_bytes is 0");
    stash_expect_refused(mm_stash_create(&(mm_stash_options){.device_bytes = 1, .pinned_bytes = -1}, &s),
                         MM_ERR_INVALID, "pinned_bytes is -1");
    stash_expect_refused(mm_stash_create(&(mm_stash_options){.device_bytes = INT64_MAX}, &s), MM_ERR_NOMEM,
                         "the budget is");
    for (uint64_t modes = 3; modes < 9; modes += modes == 3 ? 4 : 1)
        stash_expect_refused(mm_stash_create(&(mm_stash_options){.device_bytes = 1, .modes = modes}, &s),
                             MM_ERR_INVALID, "one at a time");
    s = stash_create((mm_stash_options){.device_bytes = 64 * KIB});
    struct {
        mm_stash_tensor tensor;
        mm_status status;
        const char *text;
    } cases[] = {
        {{.data = NULL, .rank = 1, .dims = {1}}, MM_ERR_INVALID, "data"},
        {{.data = elems, .rank = 9}, MM_ERR_INVALID, "rank is 9"},
        {{.data = elems, .rank = 1, .dims = {0}, .producer = "Relu"}, MM_ERR_INVALID, "Relu: a dimension is 0"},
        {{.data = elems, .rank = 2, .dims = {INT64_MAX, 2}}, MM_ERR_INVALID, "too much"},
        {{.data = elems, .rank = 2, .dims = {4, 4}, .strides = {8, 1}}, MM_ERR_INVALID, "a stride is 8"},
        {{.data = elems, .rank = 2, .dims = {4, 4}, .strides = {0, 1}}, MM_ERR_INVALID, "gap"},
        {{.data = elems, .rank = 1, .dims = {4}, .flags = 4}, MM_ERR_INVALID, "flags is 4"},
        {{.data = elems, .rank = 1, .dims = {4}, .dtype = MM_DTYPES}, MM_ERR_INVALID, "dtype"},
        {{.data = elems, .rank = 1, .dims = {1 << 20}, .producer = "Big"}, MM_ERR_INFEASIBLE, "of Big needs 4194304"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        stash_expect_refused(mm_stash_put(s, &cases[i].tensor, NULL, &entry, &answer), cases[i].status, cases[i].text);
    assert_int_equal(entry, 0);
    stash_expect_refused(mm_stash_get(s, 12345, NULL, &data), MM_ERR_NOT_FOUND, "no entry 12345");
    mm_stash_release(s, 12345, NULL);
    mm_stash_drop(s, 12345);
    assert_int_equal(stash_stats_of(s).puts, 0);
    mm_stash_destroy(s);
    mm_stash_destroy(NULL);
}

TEST_CASE(dense_tensors_of_any_order_and_a_dropped_number_stay_apart) {
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 64 * KIB});
    stash_rig r;
    stash_item items[4], before;
    const mm_stash_tensor likes[] = {
        {.dtype = MM_BF16, .rank = 4, .dims = {2, 3, 4, 5}, .strides = {60, 1, 15, 3}, .producer = "channels last"},
        {.dtype = MM_F16, .rank = 3, .dims = {7, 1, 9}, .strides = {1, 99, 7}},
        {.dtype = MM_U8, .rank = 0},
        {.dtype = MM_I32, .rank = 2, .dims = {6, 6}, .flags = MM_STASH_EXACT},
    };
    stash_rig_init(&r, s, 9);
    for (int i = 0; i < 4; i++) stash_expect_ok(stash_rig_put(&r, &likes[i], &items[i]));
    for (int i = 0; i < 4; i++) {
        stash_expect_ok(stash_rig_get(&r, &items[i]));
        stash_rig_give_back(&r, &items[i]);
        stash_rig_give_back(&r, &items[i]); /* once too often: ignored */
    }
    before = items[0];
    stash_rig_drop(&r, &items[0]);
    stash_expect_ok(stash_rig_put(&r, &likes[1], &items[0]));
    void *data;
    stash_expect_refused(mm_stash_get(s, before.entry, r.handles[0], &data), MM_ERR_NOT_FOUND, "there is no entry");
    mm_stash_drop(s, before.entry);
    stash_expect_ok(stash_rig_get(&r, &items[0]));
    stash_rig_give_back(&r, &items[0]);
    for (int i = 0; i < 4; i++) stash_rig_drop(&r, &items[i]);
    assert_int_equal(stash_stats_of(s).entries, 0);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(entries_that_are_left_are_freed_and_told) {
    int warnings = 0;
    mm_stash *s = stash_create((mm_stash_options){
        .device_bytes = 4 * KIB, .unplanned = true, .log = {stash_count_warnings, &warnings, MM_LOG_WARNING}});
    stash_rig r;
    stash_item items[3];
    const mm_stash_tensor like = stash_tensor_f32("Left", KIB / 2);
    stash_rig_init(&r, s, 10);
    for (int i = 0; i < 3; i++) stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
    stash_expect_ok(stash_rig_get(&r, &items[0]));
    stash_rig_fini(&r);
    mm_stash_destroy(s);
    assert_int_equal(warnings, 1);
}

/* As in torch.cuda.graph: tasks of the captured stream are collected, and run later, any number of times. */
TEST_CASE(a_stream_that_is_being_captured_is_refused_by_name_and_nothing_changes) {
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 64 * KIB, .unplanned = true});
    stash_rig r;
    stash_item item, other;
    const mm_stash_tensor like = stash_tensor_f32("Captured", KIB / 2);
    stash_rig_init(&r, s, 11);
    if (r.streams[0]) { /* the host has no captures */
        const mm_stash_tensor here = {.data = r.tensor[0], .dtype = MM_F32, .rank = 1, .dims = {KIB / 2}};
        mm_stash_entry entry = 0;
        mm_stash_answer answer;
        mm_replay *replay;
        void *data, *held;
        stash_expect_ok(stash_rig_put(&r, &like, &item));
        stash_expect_ok(mm_stash_get(s, item.entry, r.handles[1], &held));
        stash_expect_ok(mm_capture_begin(r.streams[0]));
        stash_expect_refused(mm_stash_put(s, &here, r.handles[0], &entry, &answer), MM_ERR_ORDER, "is being captured");
        stash_expect_refused(mm_stash_get(s, item.entry, r.handles[0], &data), MM_ERR_ORDER, "is being captured");
        mm_stash_release(s, item.entry, r.handles[0]); /* it cannot fail: the next call tells */
        stash_expect_ok(mm_capture_end(r.streams[0], &replay));
        mm_replay_destroy(replay);
        assert_int_equal(entry, 0);
        assert_int_equal(stash_stats_of(s).entries, 1);
        stash_expect_refused(mm_stash_get(s, item.entry, r.handles[0], &data), MM_ERR_ORDER, "mm_stash_release");
        stash_expect_ok(stash_rig_put(&r, &like, &other));
        stash_expect_ok(stash_rig_get(&r, &item));
        stash_rig_give_back(&r, &item);
        stash_rig_drop(&r, &item);
        stash_rig_drop(&r, &other);
    }
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}
