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
    {"drop backward", "drop.out", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}},
    {"norm backward", "d.skip", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}},
    {"last forward", "w", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}},
    {"data forward", "images", DEED_CHANGES, false, {"which it declares MM_READ", "declare MM_MODIFY"}},
    {"drop forward", "drop.out", DEED_LEAVES_1, false, {"byte 932 of 2800", "write every byte"}},
    {"last backward", "d.sum", DEED_LEAVES, false, {"byte 1864 of 2800", "write every byte"}},
    {"half forward", "half.out", DEED_LEAVES_1, false, {"byte 466 of 1400", "write every byte"}},
    {"drop forward", "drop.mask", DEED_LEAVES, false, {"byte 472 of 700", "write every byte"}},
    {"norm forward", "norm.saved", DEED_LEAVES, false, {"byte 1864 of 2800", "write every byte"}},
    {"drop backward", "d.norm", DEED_SKIPS, false, {"byte 0 of 2800", "write every byte"}},
    {"last backward", "dw", DEED_SKIPS, false, {"byte 0 of 2800", "write every byte"}},
    {"norm backward", "d.x", DEED_ADDS, false, {"or adds to what was there", "declare MM_MODIFY"}},
    {"drop backward", "norm.out", DEED_ASKS, false, {"does not use tensor", "it uses drop.mask, drop.out, d.drop"}},
    {"sum backward", "d.skip", DEED_CHANGES, false, {"other bits", "mm_graph_allow_alias"}},
};

static const lie lies_again[] = {
    {"norm forward", "running", DEED_CHANGES, true, {"computed again", "persistent", "not repeatable"}},
    {"drop forward", "images", DEED_CHANGES, true, {"computed again", "external", "not repeatable"}},
    {"drop forward", "w", DEED_CHANGES, true, {"computed again", "persistent", "not repeatable"}},
    {"drop forward", "drop.out", DEED_CHANGES, true, {"computed again", "than the first time", "not repeatable"}},
    {"norm forward", "norm.saved", DEED_CHANGES, true, {"computed again", "which it is given", "mm_tensor_given"}},
    {"norm forward", "x", DEED_CHANGES, true, {"computed again", "which it declares MM_READ"}},
    {"norm forward", "norm.out", DEED_SKIPS, true, {"computed again", "byte 0", "write every byte"}},
    {"drop forward", "d.sum", DEED_ASKS, true, {"does not use tensor", "norm.out, drop.mask, drop.out"}},
};

static void expect_found(const lie *told, const char *policy, lies_mode mode) {
    lies_loop *l = lies_create(policy, mode, told);
    const mm_status status = lies_iterate(l);
    if (lies_told(l) == 0) fail_msg("%s: %s, %s was not told", policy, told->step, told->tensor);
    if (status != MM_ERR_INVALID)
        fail_msg("%s, mode %d: %s, %s is not found: %s", policy, (int)mode, told->step, told->tensor,
                 status == MM_OK ? "no failure" : mm_last_error());
    const char *words[] = {told->step, told->tensor, told->says[0], told->says[1], told->says[2]};
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
