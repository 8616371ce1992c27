/* SPDX-License-Identifier: MIT */
/* Memory runs out in the life of a loop: each allocation fails once. The loop says MM_ERR_NOMEM, can go on, and trains
 * to the same weights. Under the address sanitizer, nothing is lost. */
#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/mm/loop/loop_toy.h"

enum { ITERATIONS = 2, ARENA = 1 << 20, OWN = 600 };

static void expect_no_memory(mm_status status, int nth) {
    if (status != MM_ERR_NOMEM || !alloc_fault_happened())
        fail_msg("allocation %d fails: %s: %s", nth, mm_status_name(status), mm_last_error());
}

static void iterate(toy *t, int64_t key, int nth) {
    mm_status status = toy_iterate(t, key);
    if (status == MM_OK) return;
    expect_no_memory(status, nth);
    expect_ok(toy_iterate(t, key));
}

static void create(toy *t, mm_manager *m, mm_loop_record record, int nth) {
    const mm_loop_options options = {.record = record};
    toy_init(t, NULL, NULL);
    const mm_status status = mm_loop_create(m, &options, &t->loop);
    if (status != MM_OK) {
        expect_no_memory(status, nth);
        expect_ok(mm_loop_create(m, &options, &t->loop));
    }
    t->again = true;
}

/* Returns false once there is no nth allocation. */
static bool live(int nth, mm_loop_record record, uint64_t wanted) {
    static toy t;
    mm_manager *m;
    const mm_options options = {
        .device_bytes = ARENA, .pinned_bytes = ARENA, .policy = "recompute-swap:when=always", .issue = MM_ISSUE_INLINE};
    expect_ok(mm_manager_create(&options, &m));
    alloc_fault_set(nth);
    create(&t, m, record, nth);
    iterate(&t, TOY_TRAIN, nth);
    iterate(&t, TOY_EVALUATE, nth);
    const mm_status forgotten = mm_loop_forget(t.loop, TOY_EVALUATE);
    for (int i = 1; i < ITERATIONS; i++) iterate(&t, TOY_TRAIN, nth);
    const bool happened = alloc_fault_happened();
    alloc_fault_set(0);
    expect_ok(forgotten);
    if (toy_digest(&t) != wanted) fail_msg("allocation %d fails: other weights", nth);
    toy_fini(&t);
    mm_manager_destroy(m);
    return happened;
}

TEST_CASE(one_allocation_that_fails_in_a_loops_life_is_said_and_the_loop_goes_on) {
    const uint64_t wanted = toy_reference(ITERATIONS);
    /* Those of recording, in each mode every second one; then some of those of planning, which other tests cover. */
    const int stride = test_is_sanitized() ? test_depth(331, 7) : test_depth(67, 1);
    for (mm_loop_record record = MM_LOOP_RECORD_ONLY; record <= MM_LOOP_RECORD_RUN; record++) {
        int nth = 1 + (int)record;
        while (live(nth, record, wanted)) nth += nth < OWN ? 2 : stride;
        assert_true(nth > OWN);
    }
}
