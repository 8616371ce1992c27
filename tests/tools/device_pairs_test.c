/* SPDX-License-Identifier: MIT */
/* How much two kinds of work slow each other: computed from when both end, and measured on the host device. */
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tools/measure/device_pairs.h"

TEST_CASE(slowdowns_follow_from_ends_) {
    static const struct {
        int64_t alone_ns[2], end_ns[2];
        int permille[2];
    } cases[] = {
        {{1000, 1000}, {1000, 1000}, {0, 0}},
        {{1000, 1000}, {2000, 2000}, {1000, 1000}}, /* each runs at half its speed */
        {{1000, 2000}, {1500, 2500}, {500, 500}},   /* 1500 together do 1000 of each; the second's rest is alone */
        {{2000, 1000}, {2500, 1500}, {500, 500}},   /* the same, the other way round */
        {{1000, 1000}, {1000, 2000}, {0, MM_CONTENTION_MOST}}, /* the second waits for all of the first */
        {{1000, 1000}, {900, 1000}, {0, 0}},                   /* faster than alone, by chance */
        {{1000, 1000}, {50000, 50000}, {MM_CONTENTION_MOST, MM_CONTENTION_MOST}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int permille[2];
        device_pairs_slowdowns(cases[i].alone_ns, cases[i].end_ns, permille);
        if (permille[0] != cases[i].permille[0] || permille[1] != cases[i].permille[1])
            fail_msg("case %zu: %d and %d permille", i, permille[0], permille[1]);
    }
}

static void expect_pairs(const device_pairs *pairs, bool codec) {
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++) {
            const bool of_codec =
                of == MM_WORK_ENCODE || of == MM_WORK_DECODE || beside == MM_WORK_ENCODE || beside == MM_WORK_DECODE;
            const int permille = pairs->permille[of][beside];
            if (!mm_work_can_run_beside(of, beside) || (of_codec && !codec)) {
                if (permille != DEVICE_PAIRS_UNKNOWN) fail_msg("%s beside %s", mm_work_name(of), mm_work_name(beside));
            } else if (permille < 0 || permille > MM_CONTENTION_MOST) {
                fail_msg("%s beside %s: %d permille", mm_work_name(of), mm_work_name(beside), permille);
            }
        }
}

TEST_CASE(pairs_are_measured_with_and_without_a_codec_) {
    mm_device *device;
    nets_backend *backend;
    mm_codec *codec, *mask;
    device_pairs pairs;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(nets_backend_open("host", &(nets_backend_config){.threads = 1}, &backend), MM_OK);
    assert_int_equal(mm_codec_create("zfp:rate=4", "host", &codec), MM_OK);
    assert_int_equal(mm_codec_create("mask", "host", &mask), MM_OK);
    assert_true(device_pairs_takes(codec));
    assert_false(device_pairs_takes(mask)); /* a mask decodes to no values */
    if (device_pairs_measure(device, backend, codec, 2, &pairs) != MM_OK) fail_msg("%s", mm_last_error());
    expect_pairs(&pairs, true);
    if (device_pairs_measure(device, backend, NULL, 1, &pairs) != MM_OK) fail_msg("%s", mm_last_error());
    expect_pairs(&pairs, false);
    mm_codec_destroy(mask);
    mm_codec_destroy(codec);
    nets_backend_close(backend);
    mm_device_destroy(device);
}
