/* SPDX-License-Identifier: MIT */

#include <jemalloc/jemalloc.h>

#include "buffers/layout/heap_size.h"
#include "tests/core/test_case.h"

TEST_CASE(classes_are_jemallocs_and_a_page) {
    for (int64_t bytes = 16384; bytes < INT64_C(1) << 40; bytes += 1 + bytes / 97) {
        for (int64_t near = bytes - 1; near <= bytes + 1; near++) {
            if (near < 16384) continue;
            assert_int_equal(mm_heap_class_bytes(near), (int64_t)je_nallocx((size_t)near, MALLOCX_ALIGN(256)) + 4096);
        }
    }
}

TEST_CASE(small_sizes_take_the_smallest_class) {
    assert_int_equal(mm_heap_class_bytes(0), 16384 + 4096);
    assert_int_equal(mm_heap_class_bytes(1), 16384 + 4096);
    assert_int_equal(mm_heap_class_bytes(16384), 16384 + 4096);
    assert_int_equal(mm_heap_class_bytes(16385), 20480 + 4096);
}

TEST_CASE(a_region_holds_what_is_alive_and_less_than_twice_that_and_a_page) {
    assert_int_equal(mm_heap_region_bytes(0, 0), 0);
    for (int64_t live = 16384; live < INT64_C(1) << 38; live = live * 3 / 2 + 1) {
        for (int64_t largest = 1; largest <= live; largest = largest * 3 + 7) {
            int64_t region = mm_heap_region_bytes(live, largest);
            assert_true(region >= live);
            assert_true(region <= 2 * (live + 4096));
            assert_int_equal(region % 4096, 0);
        }
    }
}
