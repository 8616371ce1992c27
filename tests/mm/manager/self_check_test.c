/* SPDX-License-Identifier: MIT */
/* self_check finds each lie of a loop, with the step, the tensor and what to declare; and nothing in a loop that tells
 * the truth. */
#include <string.h>

#include "tests/mm/manager/lies.h"

static const char *const policies[] = {
    "liveness",
    "naive",
    "swap-async:when=always",
    "recompute:mode=sqrt,when=always",
    "recompute-swap:when=always",
    "gist:lossless",
    "freelunch:codec=raw,eligible=all,when=always",
    "vdnn-all:when=always",
};
enum { POLICIES = sizeof policies / sizeof *policies, ITERATIONS = 3 };

/* Of steps that are computed once, and of those that are computed again. */
static const lie lies[] = {
    {"drop backward", "drop.out", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}, NULL},
    {"norm backward", "d.skip", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}, NULL},
    {"last forward", "w", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}, "MM_MODIFY"},
    {"data forward", "images", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}, NULL},
    {"drop forward", "drop.out", DEED_LEAVES_1, false, {"byte 4000 of 12000", "write every byte"}, NULL},
    {"last backward", "d.sum", DEED_LEAVES, false, {"byte 8000 of 12000", "write every byte"}, NULL},
    {"half forward", "half.out", DEED_LEAVES_1, false, {"byte 2000 of 6000", "write every byte"}, NULL},
    {"drop forward", "drop.mask", DEED_LEAVES, false, {"byte 2000 of 3000", "write every byte"}, NULL},
    {"norm forward", "norm.saved", DEED_LEAVES, false, {"byte 8000 of 12000", "write every byte"}, NULL},
    {"drop backward", "d.norm", DEED_SKIPS, false, {"byte 0 of 12000", "write every byte"}, NULL},
    {"last backward", "dw", DEED_SKIPS, false, {"byte 0 of 12000", "write every byte"}, NULL},
    {"norm backward", "d.x", DEED_ADDS, false, {"or adds to what was there", "declare MM_MODIFY"}, NULL},
    {"drop backward",
     "norm.out",
     DEED_ASKS,
     false,
     {"does not use tensor", "it uses drop.mask, drop.out, d.drop"},
     NULL},
    {"sum backward", "d.skip", DEED_CHANGES, false, {"other bits", "mm_graph_allow_alias"}, NULL},
};

static const lie lies_again[] = {
    {"norm forward",
     "running",
     DEED_CHANGES,
     true,
     {"computed again", "persistent", "not repeatable"},
     "not repeatable"},
    {"drop forward", "images", DEED_CHANGES, true, {"computed again", "external", "not repeatable"}, NULL},
    {"drop forward", "w", DEED_CHANGES, true, {"computed again", "persistent", "not repeatable"}, "not repeatable"},
    {"drop forward", "drop.out", DEED_CHANGES, true, {"computed again", "than the first time", "not repeatable"}, NULL},
    {"norm forward",
     "norm.saved",
     DEED_CHANGES,
     true,
     {"computed again", "which it is given", "mm_tensor_given"},
     NULL},
    {"norm forward", "x", DEED_CHANGES, true, {"computed again", "which it declares MM_READ"}, NULL},
    {"norm forward", "norm.out", DEED_SKIPS, true, {"computed again", "byte 0", "write every byte"}, NULL},
    {"drop forward", "d.sum", DEED_ASKS, true, {"does not use tensor", "norm.out, drop.mask, drop.out"}, NULL},
};

static void expect_found(const lie *told, const char *policy, lies_mode mode) {
    lies_loop *l = lies_create(policy, mode, told);
    const mm_status status = lies_iterate(l);
    if (lies_told(l) == 0) fail_msg("%s: %s, %s was not told", policy, told->step, told->tensor);
    if (status != MM_ERR_INVALID)
        fail_msg("%s, mode %d: %s, %s is not found: %s", policy, (int)mode, told->step, told->tensor,
                 status == MM_OK ? "no failure" : mm_last_error());
    const bool faulted = told->closed && strstr(mm_last_error(), told->closed);
    const char *words[] = {told->step, told->tensor, faulted ? NULL : told->says[0], faulted ? NULL : told->says[1],
                           faulted ? NULL : told->says[2]};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i] && !strstr(mm_last_error(), words[i]))
            fail_msg("%s: '%s' does not say '%s'", policy, mm_last_error(), words[i]);
    lies_destroy(l);
}

TEST_CASE(each_lie_of_a_step_is_found_under_every_policy) {
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        for (int p = 0; p < POLICIES; p++)
            for (lies_mode mode = 0; mode < LIES_MODES; mode++) expect_found(&lies[i], policies[p], mode);
}

TEST_CASE(each_lie_of_a_recomputation_is_found) {
    for (size_t i = 0; i < sizeof lies_again / sizeof *lies_again; i++)
        for (lies_mode mode = 0; mode < LIES_MODES; mode++)
            expect_found(&lies_again[i], "rules:*=recompute,when=always", mode);
}

/* Only the host can close memory, and only while the caller computes. */
static const lie faults[] = {
    {.step = "last backward", .tensor = "x", .deed = DEED_REMEMBERS, .closed = "declare the use"},
    {.step = "half forward", .tensor = "x", .deed = DEED_REMEMBERS, .closed = "declare the use"},
    {.step = "half forward", .tensor = "loss", .deed = DEED_CHANGES, .closed = "declare MM_MODIFY or MM_WRITE"},
    {.step = "drop backward", .tensor = "w", .deed = DEED_CHANGES, .closed = "declare MM_MODIFY or MM_WRITE"},
};

TEST_CASE(memory_that_a_step_does_not_use_is_closed_while_it_runs) {
    if (!rig_device_used()->cpu_reaches_memory) skip();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        expect_found(&faults[i], "liveness", LIES_INLINE);
        expect_found(&faults[i], "naive", LIES_INLINE);
    }
}

/* A stale result: on the host it faults, on other devices it is NaN. */
TEST_CASE(managed_tensors_cannot_be_read_after_their_iteration) {
    lies_loop *l = lies_create("liveness", LIES_INLINE, NULL);
    float value;
    expect_ok(lies_iterate(l));
    const float *middle = lies_place(l, "d.x") + 1500;
    if (rig_device_used()->cpu_reaches_memory) {
        assert_int_equal(lies_read(middle, &value), MM_ERR_INVALID);
        if (!strstr(mm_last_error(), "between iterations, after one of lies, the program reads or writes tensor d.x, "
                                     "which ended with the iteration; declare it MM_PERSISTENT"))
            fail_msg("%s", mm_last_error());
    }
    expect_ok(lies_iterate(l));
    expect_ok(lies_iterate(l));
    lies_destroy(l);
}

TEST_CASE(a_loop_that_tells_the_truth_has_no_finding) {
    uint64_t digest = 0;
    for (int p = 0; p < POLICIES; p++)
        for (lies_mode mode = 0; mode < LIES_MODES; mode++) {
            lies_loop *l = lies_create(policies[p], mode, NULL);
            for (int i = 0; i < ITERATIONS; i++)
                if (lies_iterate(l) != MM_OK) fail_msg("%s, mode %d: %s", policies[p], (int)mode, mm_last_error());
            if (p + (int)mode == 0) digest = lies_digest(l);
            if (lies_digest(l) != digest) fail_msg("%s, mode %d: other results", policies[p], (int)mode);
            lies_destroy(l);
        }
}
