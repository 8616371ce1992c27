/* SPDX-License-Identifier: MIT */
/* A disk as the stash's third place: what pinned memory has no room for goes there and comes back, under plans, without
 * them, and where an iteration leaves its plan; and a disk that fails is named, and loses nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mm/stash/stash.h"
#include "tests/buffers/disk_fault.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/rig_device.h"
#include "tests/mm/stash/stash_rig.h"

enum { KIB = 1 << 10, LAYERS = 12, MAP = 12 * KIB, DISK = 1 << 20 };

static const char *directory(void) {
    const char *given = getenv("TEST_TMPDIR");
    return given ? given : "/tmp";
}

static mm_stash *create(const char *policy, bool unplanned) {
    return stash_create((mm_stash_options){.device_bytes = 4 * MAP,
                                           .pinned_bytes = 2 * MAP,
                                           .policy = policy,
                                           .unplanned = unplanned,
                                           .disk = directory(),
                                           .disk_bytes = DISK});
}

static void expect_named(mm_status status) { stash_expect_refused(status, MM_ERR_IO, "disk /"); }

/* How an iteration leaves its plan, while maps and codes are on the disk. */
typedef enum deviation { AS_BEFORE, OTHER_PUTS, OTHER_GETS } deviation;

static mm_status get(stash_rig *r, stash_item *item) {
    const mm_status status = stash_rig_get(r, item);
    if (status == MM_OK) stash_rig_give_back(r, item);
    return status;
}

/* Puts all maps, and gets them back, the last one first; or, if it deviates, otherwise. A put or a get that
 * the disk fails is repeated; what cannot be got again is lost, and dropped. Returns how many calls failed. */
static int iterate_as(stash_rig *r, bool signs, deviation how) {
    stash_item items[LAYERS];
    int failed = 0;
    mm_status status;
    for (int i = 0; i < LAYERS; i++) {
        mm_stash_tensor like = stash_tensor_f32("Conv", MAP / 4 - i % 3); /* also sizes that are no whole block */
        like.flags = signs ? MM_STASH_SIGNS : 0;
        if (how == OTHER_PUTS && i >= LAYERS / 3) like.dims[0] -= 64; /* while some maps are on the disk */
        for (; (status = stash_rig_put(r, &like, &items[i])) != MM_OK; failed++) expect_named(status);
    }
    for (int i = LAYERS; i-- > 0;) {
        stash_item *item = &items[how == OTHER_GETS && i < 6 ? 5 - i : i];
        item->back = signs ? STASH_SIGNS_ALONE : STASH_BITS;
        for (int tries = 0; tries < 2 && (status = get(r, item)) != MM_OK; tries++, failed++) expect_named(status);
        stash_rig_drop(r, item);
    }
    assert_int_equal(stash_stats_of(r->stash).entries, 0);
    return failed;
}

static int iterate(stash_rig *r) { return iterate_as(r, false, AS_BEFORE); }

/* ---------------------------------------------------------------- what goes there */

/* The plan of the iteration that ended last stores maps, or (coded) codes. */
static void expect_stored(mm_stash *s, bool coded) {
    mm_stash_line line;
    mm_stash_segment segment;
    int stored = 0, in_memory = 0;
    for (int i = 0; mm_stash_report(s, i, &line); i++) {
        stored += line.fate == MM_STASH_FATE_STORED;
        if (line.fate == MM_STASH_FATE_STORED) assert_int_equal(line.codec[0] != '\0', coded);
    }
    for (int i = 0; mm_stash_plan_segment(s, i, &segment); i++) {
        in_memory += segment.pinned;
    }
    assert_true(stored > 0 && in_memory >= stored); /* each goes through pinned memory */
    const mm_plan *plan = s->learner.last->plan.planned.plan;
    int all = 0, listed = 0;
    for (int i = 0; i < plan->n_segments; i++) all += plan->segments[i].memory != MM_MEM_DISK;
    while (mm_stash_plan_segment(s, listed, &segment)) listed++;
    assert_int_equal(listed, all);
}

/* Readers of codes need exact signs of them. */
TEST_CASE(a_plan_stores_what_pinned_memory_has_no_room_for) {
    static const char *const policies[] = {"swap-async", "rules:*=swap,depth=1,when=always",
                                           "rules:*=compress-swap(group:bits=8),when=always",
                                           "rules:*=compress-swap(raw),when=always"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        const bool coded = p >= 2;
        mm_stash *s = create(policies[p], false);
        stash_rig r;
        stash_rig_init(&r, s, 31 + p);
        iterate_as(&r, coded, AS_BEFORE); /* unplanned */
        const mm_stash_stats first = stash_stats_of(s);
        assert_true(first.store_bytes > 0 && first.load_bytes == first.store_bytes);
        stash_expect_ok(mm_stash_wait_planned(s));
        iterate_as(&r, coded, AS_BEFORE);
        assert_int_equal(stash_stats_of(s).planned, 1);
        expect_stored(s, coded);
        iterate_as(&r, coded, p % 2 ? OTHER_PUTS : OTHER_GETS);
        assert_int_equal(stash_stats_of(s).off_plan, 1);
        iterate_as(&r, coded, AS_BEFORE);
        const mm_stash_stats stats = stash_stats_of(s);
        assert_true(stats.store_bytes > first.store_bytes && stats.load_bytes > first.load_bytes);
        if (!coded) assert_int_equal(stats.host_bytes, 0); /* codes are decoded to ordinary memory off plan */
        assert_true(stats.peak_bytes <= 4 * MAP);
        stash_rig_fini(&r);
        mm_stash_destroy(s);
    }
}

TEST_CASE(random_operations_give_every_byte_back_through_the_disk) {
    enum { ITEMS = 24, OPERATIONS = 4000, SPACE = 40 * KIB };
    stash_item items[ITEMS] = {0};
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 48 * KIB,
                                                  .pinned_bytes = 16 * KIB,
                                                  .unplanned = true,
                                                  .disk = directory(),
                                                  .disk_bytes = SPACE});
    stash_rig r;
    stash_rig_init(&r, s, 5);
    for (int i = 0; i < OPERATIONS; i++) {
        stash_item *item = &items[random_below(&r.random, ITEMS)];
        const mm_stash_tensor like = stash_tensor_f32("Random", 1 + random_below(&r.random, STASH_RIG_MOST / 8));
        if (!item->entry) {
            stash_expect_ok(stash_rig_put(&r, &like, item));
        } else if (random_chance(&r.random, 60)) {
            stash_expect_ok(stash_rig_get(&r, item));
            stash_rig_give_back(&r, item);
        } else {
            stash_rig_drop(&r, item);
        }
    }
    for (int i = 0; i < ITEMS; i++)
        if (items[i].entry) stash_rig_drop(&r, &items[i]);
    const mm_stash_stats stats = stash_stats_of(s);
    assert_true(stats.store_bytes > 0 && stats.load_bytes > 0);
    assert_true(stats.host_bytes > 0); /* the disk was full now and then */
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* What an iteration leaves makes room for the plan of the next one, also on the disk. */
TEST_CASE(an_entry_that_is_left_on_the_disk_comes_back_after_a_planned_iteration) {
    stash_item left[LAYERS];
    mm_stash *s = create("swap-async", false);
    stash_rig r;
    stash_rig_init(&r, s, 77);
    iterate(&r);
    stash_expect_ok(mm_stash_wait_planned(s));
    const mm_stash_tensor other = stash_tensor_f32("Other", MAP / 4); /* no plan begins with it */
    for (int i = 0; i < LAYERS; i++) stash_expect_ok(stash_rig_put(&r, &other, &left[i]));
    mm_stash_iteration_end(s);
    stash_item items[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        const mm_stash_tensor like = stash_tensor_f32("Conv", MAP / 4 - i % 3);
        stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
    }
    for (int i = LAYERS; i-- > 0;) {
        stash_expect_ok(stash_rig_get(&r, &items[i]));
        stash_rig_give_back(&r, &items[i]);
        stash_rig_drop(&r, &items[i]);
    }
    for (int i = 0; i < LAYERS; i++) {
        stash_expect_ok(stash_rig_get(&r, &left[i]));
        stash_rig_give_back(&r, &left[i]);
        stash_rig_drop(&r, &left[i]);
    }
    assert_int_equal(stash_stats_of(s).off_plan, 1); /* it followed its plan until what was left was got */
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* ---------------------------------------------------------------- a disk that fails */

/* Each access fails once, in a stash of its own. Without a plan the call that meets it fails, and nothing is lost. With
 * one the iteration leaves its plan; what a store had not yet written may be lost. The next iteration is whole. */
static void expect_named_and_whole(bool planned) {
    int refused = 0;
    for (int nth = 0;; nth++) {
        mm_stash *s = create("swap-async", !planned);
        stash_rig r;
        stash_rig_init(&r, s, 100 + (uint64_t)nth);
        if (planned) iterate(&r);
        if (planned) stash_expect_ok(mm_stash_wait_planned(s));
        disk_fault_set(s->disk, DISK_FAULT_ONCE, nth, nth % 2 ? EIO : 0);
        const int failed = iterate(&r);
        const bool happened = disk_fault_end(s->disk);
        refused += failed > 0;
        if (!planned) assert_int_equal(failed, happened);
        if (planned) assert_int_equal(stash_stats_of(s).off_plan, happened);
        assert_int_equal(iterate(&r), 0);
        stash_rig_fini(&r);
        mm_stash_destroy(s);
        if (!happened) break;
    }
    assert_true(planned || refused > 3);
}

TEST_CASE(a_disk_that_fails_without_a_plan_is_named_and_nothing_is_lost) { expect_named_and_whole(false); }
TEST_CASE(a_disk_that_fails_under_a_plan_ends_this_iteration_alone) { expect_named_and_whole(true); }

/* A disk that stays full: puts fail by name; once there is room again, all goes on. */
TEST_CASE(a_full_disk_refuses_puts_until_there_is_room) {
    mm_stash *s = create("swap-async", true);
    stash_rig r;
    stash_item items[LAYERS];
    const mm_stash_tensor like = stash_tensor_f32("Conv", MAP / 4);
    int n = 0;
    stash_rig_init(&r, s, 9);
    disk_fault_set(s->disk, DISK_FAULT_WRITES, 0, ENOSPC);
    mm_status status;
    while ((status = stash_rig_put(&r, &like, &items[n])) == MM_OK) n++;
    stash_expect_refused(status, MM_ERR_IO, strerror(ENOSPC));
    assert_int_equal(n, 4 + 2); /* in the arena and in pinned memory */
    expect_named(stash_rig_put(&r, &like, &items[n]));
    assert_int_equal(stash_stats_of(s).entries, n);
    disk_fault_end(s->disk);
    while (n < LAYERS) stash_expect_ok(stash_rig_put(&r, &like, &items[n++]));
    while (n-- > 0) {
        stash_expect_ok(stash_rig_get(&r, &items[n]));
        stash_rig_give_back(&r, &items[n]);
        stash_rig_drop(&r, &items[n]);
    }
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* ---------------------------------------------------------------- options */

TEST_CASE(a_disk_needs_a_directory_and_a_limit) {
    mm_stash *s;
    mm_stash_options options = {.device = rig_device_used()->name, .device_bytes = MAP, .disk = directory()};
    stash_expect_refused(mm_stash_create(&options, &s), MM_ERR_INVALID, "a directory and a limit");
    options.disk_bytes = -1;
    stash_expect_refused(mm_stash_create(&options, &s), MM_ERR_INVALID, "a directory and a limit");
    options.disk_bytes = DISK;
    options.disk_bytes_per_s = -1;
    stash_expect_refused(mm_stash_create(&options, &s), MM_ERR_INVALID, "below 0");
    options.disk_bytes_per_s = 0;
    options.disk = NULL;
    stash_expect_refused(mm_stash_create(&options, &s), MM_ERR_INVALID, "a directory and a limit");
    options.disk = "/nowhere/at/all";
    stash_expect_refused(mm_stash_create(&options, &s), MM_ERR_INVALID, "disk /nowhere/at/all");
}
