/* SPDX-License-Identifier: MIT */

#include <string.h>

#include "mm/mm.h"
#include "tests/buffers/layout_patterns.h"
#include "tests/core/test_case.h"

enum { ALIGN = 256 };

TEST_CASE(codes_follow_one_another_in_order_of_rank) {
    mm_interval codes[] = {{.bytes = 300}, {.bytes = 256}, {.bytes = 0}, {.bytes = 1}};
    const int32_t rank[] = {7, 3, 3, 5};
    int64_t height = -1;
    assert_int_equal(mm_layout_sliding(codes, rank, 4, ALIGN, &height), MM_OK);
    assert_int_equal(codes[1].offset, 0);
    assert_int_equal(codes[2].offset, 256);
    assert_int_equal(codes[3].offset, 256);
    assert_int_equal(codes[0].offset, 512);
    assert_int_equal(height, 1024);
}

TEST_CASE(sliding_refuses_bad_sizes) {
    mm_interval code = {.bytes = -1};
    const int32_t rank = 0;
    int64_t height = -1;
    assert_int_equal(mm_layout_sliding(&code, &rank, 1, ALIGN, &height), MM_ERR_INVALID);
    code.bytes = 1;
    assert_int_equal(mm_layout_sliding(&code, &rank, 1, 0, &height), MM_ERR_INVALID);
    assert_int_equal(height, -1);
}

/* Each map is encoded while the next layer computes, so it lives until the next map but one is made. */
TEST_CASE(a_linear_network_needs_three_buffers) {
    enum { N = 20 };
    mm_interval items[N];
    int32_t buffer[N];
    int k;
    int64_t height;
    for (int i = 0; i < N; i++) items[i] = (mm_interval){.bytes = 1000 - i, .first = i, .last = i + 2};
    assert_int_equal(mm_layout_buffers(items, N, 0, ALIGN, buffer, &k, &height), MM_OK);
    assert_int_equal(k, 3);
    assert_int_equal(height, 3 * 1024);
}

TEST_CASE(too_few_buffers_are_refused_with_the_number_needed) {
    mm_interval items[] = {{.bytes = 1, .first = 0, .last = 2}, {.bytes = 1, .first = 2, .last = 2}};
    int32_t buffer[2];
    int k = -1;
    int64_t height = -1;
    assert_int_equal(mm_layout_buffers(items, 2, 1, ALIGN, buffer, &k, &height), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "2 maps are alive together"));
    assert_int_equal(k, -1);
    assert_int_equal(mm_layout_buffers(items, 2, 5, ALIGN, buffer, &k, &height), MM_OK);
    assert_int_equal(k, 5);
    assert_int_equal(height, 512);
}

TEST_CASE(bad_items_are_refused) {
    mm_interval reversed = {.bytes = 1, .first = 1, .last = 0};
    int32_t buffer;
    int k = -1;
    int64_t height = -1;
    assert_int_equal(mm_layout_buffers(&reversed, 1, 0, ALIGN, &buffer, &k, &height), MM_ERR_INVALID);
    reversed.last = 1;
    assert_int_equal(mm_layout_buffers(&reversed, 1, -1, ALIGN, &buffer, &k, &height), MM_ERR_INVALID);
}

TEST_CASE(an_item_takes_the_closest_fit_or_the_smallest_enlargement) {
    mm_interval items[] = {
        {.bytes = 100, .first = 0, .last = 0}, {.bytes = 50, .first = 0, .last = 0},
        {.bytes = 10, .first = 0, .last = 0},  {.bytes = 40, .first = 1, .last = 1},
        {.bytes = 120, .first = 1, .last = 1},
    };
    int32_t buffer[5];
    int k;
    int64_t height;
    assert_int_equal(mm_layout_buffers(items, 5, 0, 1, buffer, &k, &height), MM_OK);
    assert_int_equal(k, 3);
    assert_int_equal(buffer[3], buffer[1]); /* of the buffers that hold 40, 50 is the smallest */
    assert_int_equal(buffer[4], buffer[0]); /* 100 needs the least growth to hold 120 */
    assert_int_equal(height, 120 + 50 + 10);
}

TEST_CASE(no_items_need_no_buffer) {
    int k = -1;
    int64_t height = -1;
    assert_int_equal(mm_layout_buffers(NULL, 0, 0, ALIGN, NULL, &k, &height), MM_OK);
    assert_int_equal(k, 0);
    assert_int_equal(height, 0);
}

TEST_CASE(training_lifetimes_pass_one_at_a_time) {
    enum { DEPTH = 60, CAPACITY = 2000 };
    for (const pattern *p = training_patterns; p->name; p++) {
        pattern_items items = {.random = 3};
        int32_t buffer[CAPACITY];
        int64_t buffer_bytes[CAPACITY] = {0}, sum = 0, height;
        int k, alive_most = 0;
        p->make(&items, DEPTH);
        assert_true(items.n <= CAPACITY);
        assert_int_equal(mm_layout_buffers(items.items, items.n, 0, ALIGN, buffer, &k, &height), MM_OK);
        for (size_t i = 0; i < items.n; i++) {
            const mm_interval *a = &items.items[i];
            int alive = 0;
            for (size_t j = 0; j < items.n; j++) {
                const mm_interval *b = &items.items[j];
                bool together = a->first <= b->last && b->first <= a->last;
                alive += b->first <= a->first && a->first <= b->last;
                if (i != j && together) assert_int_not_equal(buffer[i], buffer[j]);
                if (buffer[i] == buffer[j]) assert_int_equal(a->offset, b->offset);
            }
            if (alive > alive_most) alive_most = alive;
            assert_in_range(buffer[i], 0, k - 1);
            int64_t bytes = (a->bytes + ALIGN - 1) / ALIGN * ALIGN;
            if (bytes > buffer_bytes[buffer[i]]) buffer_bytes[buffer[i]] = bytes;
        }
        for (int b = 0; b < k; b++) sum += buffer_bytes[b];
        assert_int_equal(k, alive_most);
        assert_int_equal(height, sum);
        pattern_fini(&items);
    }
}
