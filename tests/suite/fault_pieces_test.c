/* SPDX-License-Identifier: MIT */
/* The device fails while codes are copied in pieces, at each call of an iteration in turn: the call fails, its task
 * fails, or the task takes long. The iteration reports the failure, nothing is lost, and later iterations are right. */
#include <string.h>

#include "tests/core/test_case.h"
#include "tests/pipeline/dispatch_rig.h"
#include "tests/suite/device_fault.h"

enum { LAYERS = 8, IMAGES = 16 };

static void check_iterations(rig *r, uint64_t seed) {
    rig_refill(r, seed);
    for (int i = 0; i < 2; i++)
        if (rig_iteration(r, i, NULL) != MM_OK) fail_msg("without a fault: %s", mm_last_error());
    assert_true(rig_digest(r) == rig_expected(r, seed, 2));
}

/* Gives the fault to each call of an iteration in turn. Returns the number of calls. */
static int check_faults(uint64_t seed, device_fault fault, mm_issue issue, bool on_stream) {
    rig r;
    rig_options options = {.seed = seed,
                           .layers = LAYERS,
                           .policy = "cdma:codec=raw,when=always",
                           .images = IMAGES,
                           .piece_bytes = 1,
                           .issue = issue};
    rig_init(&r, &options);
    check_iterations(&r, seed);
    int calls = 0;
    for (;; calls++) {
        rig_refill(&r, seed);
        device_fault_set(fault, calls + 1);
        mm_status status = rig_iteration(&r, on_stream, NULL);
        bool happened = device_fault_happened();
        device_fault_set(DEVICE_FAULT_NONE, 0);
        if (!happened) {
            assert_int_equal(status, MM_OK);
            break;
        }
        assert_int_equal(status, fault == DEVICE_FAULT_DELAY ? MM_OK : MM_ERR_DEVICE);
        if (status == MM_OK)
            assert_true(rig_digest(&r) == rig_expected(&r, seed, 1));
        else
            assert_non_null(strstr(mm_last_error(), device_fault_message));
    }
    check_iterations(&r, seed);
    rig_fini(&r);
    return calls;
}

TEST_CASE(a_device_that_fails_at_any_call_is_told_and_recovered_from) {
    assert_true(check_faults(4, DEVICE_FAULT_CALL, MM_ISSUE_THREAD, true) > 100);
    assert_true(check_faults(4, DEVICE_FAULT_CALL, MM_ISSUE_INLINE, false) > 100);
    assert_true(check_faults(4, DEVICE_FAULT_TASK, MM_ISSUE_THREAD, false) > 50);
    assert_true(check_faults(4, DEVICE_FAULT_TASK, MM_ISSUE_INLINE, true) > 50);
    assert_true(check_faults(4, DEVICE_FAULT_DELAY, MM_ISSUE_THREAD, true) > 50);
}
