/* SPDX-License-Identifier: MIT */
/* Managers on an emulated CUDA device that other programs use too. A budget above its free memory is refused with both
 * numbers. If the device gives less than it says it has, the manager works with what it gave. */
#include <string.h>

#include "mm/mm.h"
#include "tests/core/test_case.h"
#include "tests/cuda_emulation/control.h"

enum { MIB = 1 << 20, TOTAL = 1024 * MIB, OTHERS = 700 * MIB, FREE = TOTAL - OTHERS };

typedef struct told {
    int warnings, steps;
} told;

static void count_warning(void *ctx, mm_log_level level, const char *message) {
    told *t = ctx;
    (void)message;
    t->warnings += level == MM_LOG_WARNING;
}

static void count_step(void *ctx, const mm_event_info *event) {
    told *t = ctx;
    t->steps += event->kind == MM_EVENT_LADDER;
}

static mm_status create(int64_t bytes, told *t, mm_manager **m) {
    const mm_options options = {.device = "cuda",
                                .device_bytes = bytes,
                                .log = {.fn = count_warning, .ctx = t, .level = MM_LOG_WARNING},
                                .event_fn = count_step,
                                .event_ctx = t};
    return mm_manager_create(&options, m);
}

static void begin(void) {
    cuda_emulation_reset();
    cuda_emulation_set_memory(TOTAL, OTHERS);
}

static void end(mm_manager *m) {
    mm_manager_destroy(m);
    cuda_emulation_alive alive = cuda_emulation_alive_get();
    assert_int_equal(alive.device_bytes + alive.pinned_bytes, 0);
    cuda_emulation_set_memory((size_t)4 << 30, 64 * MIB);
}

static void expect_says(const char *words) {
    if (!strstr(mm_last_error(), words)) fail_msg("'%s' does not say '%s'", mm_last_error(), words);
}

TEST_CASE(a_budget_above_free_memory_is_refused_with_both_numbers) {
    told t = {0};
    mm_manager *m = NULL;
    begin();
    assert_int_equal(create(FREE + 16 * MIB, &t, &m), MM_ERR_NOMEM);
    expect_says("340MiB of device memory asked, ");
    expect_says(" of the GPU's 1GiB are free; use a smaller budget, or end what else uses the GPU");
    assert_null(m);
    assert_int_equal(t.warnings + t.steps, 0);
    end(m);
}

TEST_CASE(memory_that_is_free_and_not_given_is_made_do_with) {
    told t = {0};
    mm_manager *m = NULL;
    begin();
    cuda_emulation_keep_back(FREE / 8 * 5);
    if (create(FREE / 2, &t, &m) != MM_OK) fail_msg("%s", mm_last_error());
    cuda_emulation_keep_back(0);
    assert_true(mm_manager_device_bytes(m) < FREE / 2 && mm_manager_device_bytes(m) > FREE / 4);
    assert_int_equal(t.warnings, 1);
    assert_int_equal(t.steps, 1);
    end(m);
}

TEST_CASE(a_budget_that_others_have_meanwhile_is_refused_until_they_go) {
    enum { MOST = 256 * MIB, LEAST = 64 * MIB };
    told t = {0};
    mm_manager *m = NULL;
    begin();
    if (create(MOST, &t, &m) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_budget_set(m, LEAST), MM_OK);
    cuda_emulation_set_memory(TOTAL, OTHERS + 128 * MIB);
    assert_int_equal(mm_budget_set(m, MOST), MM_ERR_NOMEM);
    expect_says("cannot raise the budget to 256MiB: cuda: 192MiB of device memory asked, ");
    expect_says(" of the GPU's 1GiB are free");
    assert_int_equal(mm_manager_device_bytes(m), LEAST);
    assert_int_equal(mm_budget_set(m, 2 * LEAST), MM_OK);
    cuda_emulation_set_memory(TOTAL, OTHERS);
    assert_int_equal(mm_budget_set(m, MOST), MM_OK);
    assert_int_equal(t.warnings + t.steps, 0);
    end(m);
}

TEST_CASE(a_budget_that_the_gpu_gives_in_part_leaves_no_part_of_it_taken) {
    enum { MOST = 64 * MIB, LEAST = 16 * MIB };
    told t = {0};
    mm_manager *m = NULL;
    begin();
    if (create(MOST, &t, &m) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_budget_set(m, LEAST), MM_OK);
    size_t taken = cuda_emulation_alive_get().device_bytes;
    cuda_emulation_fail("cuMemCreate", 3, cudaErrorMemoryAllocation);
    assert_int_equal(mm_budget_set(m, MOST), MM_ERR_NOMEM);
    cuda_emulation_fail("cuMemCreate", 0, cudaSuccess);
    assert_int_equal(cuda_emulation_alive_get().device_bytes, taken);
    assert_int_equal(mm_budget_set(m, MOST), MM_OK);
    assert_true(cuda_emulation_alive_get().device_bytes > taken);
    end(m);
}
