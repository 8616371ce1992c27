/* SPDX-License-Identifier: MIT */

#include <string.h>

#include "buffers/layout/ranges.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"

static mm_ranges make(int64_t begin, int64_t end) {
    mm_ranges ranges;
    assert_int_equal(mm_ranges_init(&ranges, begin, end), MM_OK);
    return ranges;
}

TEST_CASE(an_empty_range_gives_nothing) {
    mm_ranges ranges = make(10, 10);
    assert_int_equal(mm_ranges_take(&ranges, 1, 1, MM_FIT_LOWEST), -1);
    mm_ranges_fini(&ranges);
}

TEST_CASE(spans_given_back_coalesce_on_both_sides) {
    mm_ranges ranges = make(0, 30);
    for (int64_t i = 0; i < 3; i++) assert_int_equal(mm_ranges_take(&ranges, 10, 1, MM_FIT_LOWEST), 10 * i);
    assert_int_equal(ranges.n, 0);
    mm_ranges_give(&ranges, 0, 10);
    mm_ranges_give(&ranges, 20, 10);
    assert_int_equal(ranges.n, 2);
    mm_ranges_give(&ranges, 10, 10);
    assert_int_equal(ranges.n, 1);
    assert_int_equal(mm_ranges_take(&ranges, 30, 1, MM_FIT_LOWEST), 0);
    mm_ranges_fini(&ranges);
}

TEST_CASE(each_fit_takes_its_span) {
    const struct {
        mm_fit fit;
        int64_t offset;
    } cases[] = {{MM_FIT_LOWEST, 0}, {MM_FIT_EXACT_LOWEST, 100}, {MM_FIT_CLOSEST, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_ranges ranges = make(0, 1000);
        assert_int_equal(mm_ranges_take(&ranges, 1000, 1, MM_FIT_LOWEST), 0);
        mm_ranges_give(&ranges, 0, 50);
        mm_ranges_give(&ranges, 100, 20);
        mm_ranges_give(&ranges, 200, 30);
        assert_int_equal(mm_ranges_take(&ranges, 20, 1, cases[i].fit), cases[i].offset);
        mm_ranges_fini(&ranges);
    }
    mm_ranges ranges = make(0, 50);
    assert_int_equal(mm_ranges_take(&ranges, 20, 1, MM_FIT_EXACT_LOWEST), 0); /* none fits exactly */
    mm_ranges_fini(&ranges);
}

TEST_CASE(alignment_leaves_the_rest_free) {
    mm_ranges ranges = make(10, 200);
    assert_int_equal(mm_ranges_take(&ranges, 10, 64, MM_FIT_LOWEST), 64);
    assert_int_equal(ranges.n, 2);
    assert_int_equal(mm_ranges_take(&ranges, 54, 1, MM_FIT_EXACT_LOWEST), 10);
    assert_int_equal(mm_ranges_take(&ranges, 200, 64, MM_FIT_LOWEST), -1);
    assert_int_equal(mm_ranges_take(&ranges, 73, 64, MM_FIT_LOWEST), -1);
    assert_int_equal(mm_ranges_take(&ranges, 72, 64, MM_FIT_LOWEST), 128);
    mm_ranges_fini(&ranges);
}

/* Compares the ranges with an array that has an entry for each byte. */
TEST_CASE(random_takes_and_gives_match_a_byte_map) {
    enum { BYTES = 500, PIECES = 64 };
    uint64_t random = 1;
    for (int round = 0; round < 200; round++) {
        char taken[BYTES] = {0};
        int64_t offset[PIECES], bytes[PIECES];
        int n = 0;
        mm_ranges ranges = make(0, BYTES);
        assert_int_equal(mm_ranges_reserve(&ranges, PIECES + 1), MM_OK);
        for (int op = 0; op < 300; op++) {
            if (n < PIECES && random_below(&random, 2)) {
                int64_t align = 1 << random_below(&random, 4);
                bytes[n] = 1 + random_below(&random, 40);
                offset[n] = mm_ranges_take(&ranges, bytes[n], align, (mm_fit)random_below(&random, 3));
                if (offset[n] < 0) continue;
                assert_int_equal(offset[n] % align, 0);
                assert_true(offset[n] + bytes[n] <= BYTES);
                for (int64_t i = 0; i < bytes[n]; i++) assert_false(taken[offset[n] + i]);
                memset(taken + offset[n], 1, (size_t)bytes[n]);
                n++;
            } else if (n > 0) {
                int i = random_below(&random, n);
                mm_ranges_give(&ranges, offset[i], bytes[i]);
                memset(taken + offset[i], 0, (size_t)bytes[i]);
                n--;
                offset[i] = offset[n];
                bytes[i] = bytes[n];
            }
        }
        while (n-- > 0) mm_ranges_give(&ranges, offset[n], bytes[n]);
        assert_int_equal(ranges.n, 1);
        assert_int_equal(ranges.free[0].begin, 0);
        assert_int_equal(ranges.free[0].end, BYTES);
        mm_ranges_fini(&ranges);
    }
}
