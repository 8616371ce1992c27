/* SPDX-License-Identifier: MIT */
/* Memory, copies and launches fail under a stash of one thread, one fault in the life of each stash: no byte of an
 * entry is lost, and nothing is left behind. */
#include <stdlib.h>
#include <string.h>

#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/rig_device.h"
#include "tests/mm/stash/stash_rig.h"
#include "tests/suite/device_fault.h"

enum { KIB = 1 << 10, LAYERS = 6, MAP = 8 * KIB };

/* Returns n: every n-th call of the device is made to fail, each in a stash of its own; each policy begins at another
 * call. n is odd, so that every other fault is one of memory. */
static int every_call(void) { return test_is_sanitized() ? 5 : test_depth(3, 1); }

/* Returns n: every n-th allocation is made to fail. Policies allocate differently, so some allocations fail under no
 * policy. On emulated CUDA, which is slow, n is larger. */
static int every_allocation(void) {
    const int every = test_is_sanitized() ? 15 : test_depth(9, 1);
    return rig_device_used()->cpu_reaches_memory ? every : 5 * every;
}

static const char *const POLICIES[] = {
    "rules:*=swap,depth=1,when=always",
    "freelunch:codec=zvc,eligible=all,when=always",
    "swap-async",
};
enum { POLICIES_N = sizeof POLICIES / sizeof *POLICIES };

/* Lets faults happen only inside calls of the stash. inside: such a call begins; else it has ended. */
static void guard(bool inside) {
    device_fault_pause(!inside);
    alloc_fault_pause(!inside);
}

/* A failure of a call, where it is one of memory. */
static void expect_clear(mm_status status) {
    if (alloc_fault_happened() && status != MM_ERR_NOMEM) fail_msg("%s: %s", mm_status_name(status), mm_last_error());
}

/* Puts layer i's tensor. A put that fails is repeated, and must then succeed. */
static void put(stash_rig *r, int i, stash_item *item) {
    mm_stash_tensor like = stash_tensor_f32(i % 2 ? "ReluBackward0" : "ConvolutionBackward0", MAP / 4);
    if (i == 3) like.dims[0] /= 2;
    const mm_status status = stash_rig_put(r, &like, item);
    if (status == MM_OK) return;
    expect_clear(status);
    stash_expect_ok(stash_rig_put(r, &like, item));
}

static void get(stash_rig *r, stash_item *item) {
    const mm_status status = stash_rig_get(r, item);
    if (status == MM_OK) return;
    expect_clear(status);
    stash_expect_ok(stash_rig_get(r, item));
}

static void iterate(stash_rig *r, bool deviates) {
    stash_item items[LAYERS];
    for (int i = 0; i < LAYERS; i++) put(r, i, &items[i]);
    for (int i = LAYERS; i-- > 0;) {
        const int at = deviates && i < 4 ? 3 - i : i;
        get(r, &items[at]);
        stash_rig_give_back(r, &items[at]);
        stash_rig_drop(r, &items[at]);
    }
    mm_stash_stats stats;
    mm_stash_stats_get(r->stash, &stats);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(stats.kept_bytes, 0);
}

static mm_status create(const char *policy, mm_stash **stash_out) {
    const mm_stash_options options = {.device = rig_device_used()->name,
                                      .device_bytes = 4 * MAP + 2 * MAP * (strstr(policy, "zvc") != NULL),
                                      .pinned_bytes = (LAYERS + 1) * MAP,
                                      .policy = policy};
    return mm_stash_create(&options, stash_out);
}

static void settle(mm_stash *s) {
    mm_status settled = mm_stash_wait_planned(s);
    (void)settled; /* may fail: a deferred error, or planning has failed */
}

/* Runs the life of one stash: it learns an order, follows its plan, and leaves it. Returns false if the stash could not
 * be created. */
static bool live(const char *policy, uint64_t seed) {
    mm_stash *s;
    stash_rig r;
    if (create(policy, &s) != MM_OK) return false;
    guard(false);
    stash_rig_init(&r, s, seed);
    r.guard = guard;
    for (int i = 0; i < 4; i++) {
        iterate(&r, i == 2);
        guard(true);
        settle(s);
        guard(false);
    }
    stash_rig_fini(&r);
    mm_stash_destroy(s);
    return true;
}

TEST_CASE(one_allocation_in_several_that_fails_loses_nothing) {
    const int every = every_allocation();
    for (int p = 0; p < POLICIES_N; p++) {
        int nth = 1 + p % every, refused = 0;
        for (;; nth += every) {
            guard(true);
            alloc_fault_set(nth);
            refused += !live(POLICIES[p], (uint64_t)nth);
            guard(true);
            const bool happened = alloc_fault_happened();
            alloc_fault_set(0);
            if (!happened) break;
        }
        assert_true(refused > 0); /* some faults hit mm_stash_create */
        assert_true(nth > 100);
    }
}

TEST_CASE(a_call_of_the_device_that_fails_loses_nothing) {
    const int every = every_call();
    for (int p = 0; p < POLICIES_N; p++) {
        int nth = 1 + p % every;
        for (;; nth += every) {
            guard(true);
            device_fault_set(nth % 2 ? DEVICE_FAULT_CALL : DEVICE_FAULT_MEMORY_CALL, nth);
            (void)live(POLICIES[p], (uint64_t)nth);
            guard(true);
            const bool happened = device_fault_happened();
            device_fault_set(DEVICE_FAULT_NONE, 0);
            if (!happened) break;
        }
        assert_true(nth > 20);
    }
}

/* Stands for memory that the program caches. full: the arena cannot grow. frees: a call of reclaim() empties the
 * cache. */
static struct {
    bool full, frees;
    int reclaimed;
} cache;

mm_status __real_mm_device_restore(mm_device *device, void *memory, int64_t bytes);
mm_status __wrap_mm_device_restore(mm_device *device, void *memory, int64_t bytes);
mm_status __wrap_mm_device_restore(mm_device *device, void *memory, int64_t bytes) {
    if (cache.full) return mm_fail(MM_ERR_NOMEM, "the program has cached it");
    return __real_mm_device_restore(device, memory, bytes);
}

static void reclaim(void *ctx) {
    assert_ptr_equal(ctx, &cache);
    cache.reclaimed++;
    if (cache.frees) cache.full = false;
}

TEST_CASE(an_arena_grows_once_the_program_has_freed_what_it_caches) {
    enum { MAPS = 3 };
    mm_stash *s = stash_create((mm_stash_options){
        .device_bytes = 2 * LAYERS * MAP, .policy = "liveness", .reclaim = reclaim, .reclaim_ctx = &cache});
    stash_rig r;
    stash_rig_init(&r, s, 71);
    iterate(&r, false);
    stash_expect_ok(mm_stash_wait_planned(s));
    iterate(&r, false); /* the caller keeps all entries, so the arena is smaller */
    const int64_t small = stash_stats_of(s).arena_bytes;
    assert_true(small < 2 * LAYERS * MAP);
    for (int frees = 0; frees < 2; frees++) {
        cache.full = true;
        cache.frees = frees;
        cache.reclaimed = 0;
        const mm_stash_tensor other = stash_tensor_f32("Other", MAP / 4 - frees); /* no plan begins with this tensor */
        stash_item items[MAPS];
        for (int i = 0; i < MAPS; i++) stash_expect_ok(stash_rig_put(&r, &other, &items[i]));
        assert_int_equal(cache.reclaimed, 1);
        assert_int_equal(stash_stats_of(s).arena_bytes, frees ? 2 * LAYERS * MAP : small);
        for (int i = 0; i < MAPS; i++) {
            stash_expect_ok(stash_rig_get(&r, &items[i]));
            stash_rig_give_back(&r, &items[i]);
            stash_rig_drop(&r, &items[i]);
        }
    }
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}
