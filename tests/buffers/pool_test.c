/* SPDX-License-Identifier: MIT */

#include <string.h>
#include <sys/mman.h>

#include "buffers/pool.h"
#include "tests/buffers/untouchable.h"
#include "tests/core/test_case.h"

enum { BYTES = 20 << 20 };

/* Each test runs with memory that the CPU reaches, and with memory that it does not. */
typedef struct fixture {
    mm_device *device;
    mm_pool *pool;
    uint8_t *window; /* the pool's bytes */
} fixture;

static fixture fixture_open(bool reachable) {
    fixture f;
    if (reachable) {
        assert_int_equal(mm_device_create("host", NULL, &f.device), MM_OK);
    } else {
        f.device = untouchable_create();
    }
    assert_int_equal(mm_pool_create(f.device, MM_MEMORY_DEVICE, BYTES, &f.pool), MM_OK);
    f.window = reachable ? mm_pool_base(f.pool) : untouchable_window(f.device, mm_pool_base(f.pool));
    return f;
}

static void fixture_close(fixture *f) {
    mm_pool_destroy(f->pool);
    mm_device_destroy(f->device);
}

static int64_t count(const fixture *f, int64_t offset, int64_t bytes) {
    int64_t touched = -1;
    assert_int_equal(mm_pool_pattern_count(f->pool, offset, bytes, &touched), MM_OK);
    return touched;
}

TEST_CASE(an_empty_pool_has_no_base) {
    mm_device *device;
    mm_pool *pool;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_pool_create(device, MM_MEMORY_PINNED, 0, &pool), MM_OK);
    assert_null(mm_pool_base(pool));
    assert_int_equal(mm_pool_bytes(pool), 0);
    assert_ptr_equal(mm_pool_device(pool), device);
    assert_int_equal(mm_pool_pattern_extend(pool, 0), MM_OK);
    mm_pool_destroy(pool);
    mm_pool_destroy(NULL);
    assert_int_equal(mm_pool_create(device, MM_MEMORY_PINNED, -1, &pool), MM_ERR_INVALID);
    mm_device_destroy(device);
}

TEST_CASE(a_pool_reserves_exactly_its_bytes_and_gives_them_back) {
    mm_device *device;
    mm_pool *pool;
    mm_memory_info info;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_pool_create(device, MM_MEMORY_DEVICE, 12345, &pool), MM_OK);
    mm_device_memory_info(device, &info);
    assert_int_equal(info.reserved_bytes, 12345);
    mm_pool_destroy(pool);
    mm_device_memory_info(device, &info);
    assert_int_equal(info.reserved_bytes, 0);
    mm_device_destroy(device);
}

TEST_CASE(too_large_a_pool_is_no_memory) {
    mm_device *device;
    mm_pool *pool = NULL;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_pool_create(device, MM_MEMORY_DEVICE, INT64_C(1) << 60, &pool), MM_ERR_NOMEM);
    assert_null(pool);
    mm_device_destroy(device);
}

static void extend(const fixture *f, int64_t bytes) { assert_int_equal(mm_pool_pattern_extend(f->pool, bytes), MM_OK); }

static void what_is_written_is_counted_by_words(bool reachable) {
    fixture f = fixture_open(reachable);
    extend(&f, BYTES);
    assert_int_equal(count(&f, 0, BYTES), 0);
    f.window[0] ^= 1;
    assert_int_equal(count(&f, 0, BYTES), 4);
    memset(f.window + 4096, 0, 10000);
    f.window[BYTES - 1] ^= 0x80;
    assert_int_equal(count(&f, 0, BYTES), 4 + 10000 + 4);
    assert_int_equal(count(&f, 4096, 10000), 10000);
    assert_int_equal(count(&f, 4, 4092), 0);
    assert_int_equal(count(&f, 0, 8000) + count(&f, 8000, BYTES - 8000), count(&f, 0, BYTES));
    extend(&f, BYTES);
    assert_int_equal(count(&f, 0, BYTES), 4 + 10000 + 4); /* extend does not fill again what is within the pattern */
    assert_int_equal(count(&f, 4097, 5), 5);
    assert_int_equal(count(&f, 4090, 9), 3);
    fixture_close(&f);
}

TEST_CASE(written_words_are_counted) { what_is_written_is_counted_by_words(true); }

TEST_CASE(written_words_are_counted_where_the_cpu_cannot_look) { what_is_written_is_counted_by_words(false); }

static void a_pattern_grows_from_any_byte(bool reachable) {
    static const int64_t ends[] = {0, 1, 1001, 1003, 6004, 5000, (8 << 20) + 7, BYTES - 3, BYTES};
    fixture f = fixture_open(reachable);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        extend(&f, ends[i]);
        assert_int_equal(count(&f, 0, BYTES), 0);
        assert_int_equal(count(&f, 1001, 5000), 0);
    }
    memset(f.window + 1001, 0, 5000);
    assert_int_equal(count(&f, 0, BYTES), 5004); /* whole words: from 1000 to 6004 */
    fixture_close(&f);
}

TEST_CASE(patterns_grow_from_any_byte) {
    a_pattern_grows_from_any_byte(true);
    a_pattern_grows_from_any_byte(false);
}

static int pages_in_memory(const fixture *f, int64_t offset) {
    enum { PAGES = BYTES / 4096 };
    static unsigned char in[PAGES];
    int n = 0;
    assert_int_equal(mincore(f->window + offset, (size_t)(BYTES - offset), in), 0);
    for (int i = 0; i < PAGES - offset / 4096; i++) n += in[i] & 1;
    return n;
}

/* A pool of 20 MiB whose pattern ends after 4 MiB. The rest is counted without taking memory for it; large pages, which
 * would reach into the rest, are switched off. */
static void what_is_beyond_the_pattern_is_counted_and_left_alone(bool reachable) {
    enum { FILLED = 4 << 20, FAR = BYTES - 5000 };
    fixture f = fixture_open(reachable);
    if (reachable) assert_int_equal(madvise(f.window, BYTES, MADV_NOHUGEPAGE), 0);
    extend(&f, FILLED);
    assert_int_equal(count(&f, 0, FILLED), 0);
    int copies = reachable ? 0 : untouchable_copies_out(f.device);
    assert_int_equal(count(&f, FILLED - 100, BYTES - FILLED + 100), 0);
    if (reachable) assert_int_equal(pages_in_memory(&f, FILLED), 0);
    /* Only the 100 bytes of the pattern are copied. */
    if (!reachable) assert_int_equal(untouchable_copies_out(f.device), copies + 1);
    memset(f.window + FAR, 7, 100);
    f.window[FILLED + 5] = 1;
    memset(f.window + FILLED - 8, 0, 12);
    assert_int_equal(count(&f, 0, BYTES), 100 + 4 + 8);
    assert_int_equal(count(&f, FAR + 10, 1000), 90);
    assert_int_equal(count(&f, FILLED - 8, 14), 8 + 2);
    if (reachable) assert_true(pages_in_memory(&f, FILLED) <= 3);
    fixture_close(&f);
}

TEST_CASE(beyond_the_pattern_bytes_are_counted_and_cost_nothing) {
    what_is_beyond_the_pattern_is_counted_and_left_alone(true);
    what_is_beyond_the_pattern_is_counted_and_left_alone(false);
}

TEST_CASE(what_was_trimmed_has_no_pattern_any_more) {
    enum { KEPT = 5000 };
    fixture f = fixture_open(true);
    extend(&f, BYTES);
    memset(f.window + KEPT - 4, 7, 100);
    mm_pool_trim(f.pool, KEPT);
    assert_int_equal(mm_pool_restore(f.pool, BYTES), MM_OK);
    assert_int_equal(count(&f, 0, BYTES), 4);
    extend(&f, BYTES);
    assert_int_equal(count(&f, 0, BYTES), 4);
    f.window[BYTES - 1] = 0;
    assert_int_equal(count(&f, 0, BYTES), 8);
    fixture_close(&f);
}

TEST_CASE(ranges_outside_of_the_pool_are_refused) {
    fixture f = fixture_open(true);
    int64_t touched = -1;
    assert_int_equal(mm_pool_pattern_extend(f.pool, BYTES + 1), MM_ERR_INVALID);
    assert_int_equal(mm_pool_pattern_extend(f.pool, -4), MM_ERR_INVALID);
    assert_int_equal(mm_pool_pattern_count(f.pool, BYTES + 1, 0, &touched), MM_ERR_INVALID);
    assert_int_equal(mm_pool_pattern_count(f.pool, 0, -1, &touched), MM_ERR_INVALID);
    assert_int_equal(touched, -1);
    fixture_close(&f);
}
