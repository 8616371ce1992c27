#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "buffers/pool.h"
#include "tests/buffers/untouchable.h"

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

static void an_empty_pool_has_no_base(void **state) {
    (void)state;
    mm_device *device;
    mm_pool *pool;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_pool_create(device, MM_MEMORY_PINNED, 0, &pool), MM_OK);
    assert_null(mm_pool_base(pool));
    assert_int_equal(mm_pool_bytes(pool), 0);
    assert_ptr_equal(mm_pool_device(pool), device);
    assert_int_equal(mm_pool_pattern_fill(pool, 0, 0), MM_OK);
    mm_pool_destroy(pool);
    mm_pool_destroy(NULL);
    assert_int_equal(mm_pool_create(device, MM_MEMORY_PINNED, -1, &pool), MM_ERR_INVALID);
    mm_device_destroy(device);
}

static void a_pool_reserves_exactly_its_bytes_and_gives_them_back(void **state) {
    (void)state;
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

static void too_large_a_pool_is_no_memory(void **state) {
    (void)state;
    mm_device *device;
    mm_pool *pool = NULL;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_pool_create(device, MM_MEMORY_DEVICE, INT64_C(1) << 60, &pool), MM_ERR_NOMEM);
    assert_null(pool);
    mm_device_destroy(device);
}

static void what_is_written_is_counted_by_words(bool reachable) {
    fixture f = fixture_open(reachable);
    assert_int_equal(mm_pool_pattern_fill(f.pool, 0, BYTES), MM_OK);
    assert_int_equal(count(&f, 0, BYTES), 0);
    f.window[0] ^= 1;
    assert_int_equal(count(&f, 0, BYTES), 4);
    memset(f.window + 4096, 0, 10000);
    f.window[BYTES - 1] ^= 0x80;
    assert_int_equal(count(&f, 0, BYTES), 4 + 10000 + 4);
    assert_int_equal(count(&f, 4096, 10000), 10000);
    assert_int_equal(count(&f, 4, 4092), 0);
    assert_int_equal(count(&f, 0, 8000) + count(&f, 8000, BYTES - 8000), count(&f, 0, BYTES));
    assert_int_equal(mm_pool_pattern_fill(f.pool, 4096, BYTES - 4096), MM_OK);
    assert_int_equal(count(&f, 0, BYTES), 4);
    fixture_close(&f);
}

static void written_words_are_counted(void **state) {
    (void)state;
    what_is_written_is_counted_by_words(true);
}

static void written_words_are_counted_where_the_cpu_cannot_look(void **state) {
    (void)state;
    what_is_written_is_counted_by_words(false);
}

static void ranges_that_begin_within_a_word(bool reachable) {
    fixture f = fixture_open(reachable);
    assert_int_equal(mm_pool_pattern_fill(f.pool, 0, BYTES), MM_OK);
    memset(f.window + 1001, 0, 5000);
    assert_int_equal(mm_pool_pattern_fill(f.pool, 1001, 5000), MM_OK);
    assert_int_equal(count(&f, 0, BYTES), 0);
    memset(f.window + 1001, 0, 5000);
    assert_int_equal(count(&f, 1001, 5000), 5000);
    assert_int_equal(count(&f, 1003, 4), 4);
    assert_int_equal(count(&f, 0, BYTES), 5004); /* 1000 up to 6004 */
    fixture_close(&f);
}

static void odd_ranges_keep_the_words_in_place(void **state) {
    (void)state;
    ranges_that_begin_within_a_word(true);
    ranges_that_begin_within_a_word(false);
}

static void ranges_outside_of_the_pool_are_refused(void **state) {
    (void)state;
    fixture f = fixture_open(true);
    int64_t touched = -1;
    assert_int_equal(mm_pool_pattern_fill(f.pool, 1, BYTES), MM_ERR_INVALID);
    assert_int_equal(mm_pool_pattern_fill(f.pool, -4, 4), MM_ERR_INVALID);
    assert_int_equal(mm_pool_pattern_count(f.pool, BYTES + 1, 0, &touched), MM_ERR_INVALID);
    assert_int_equal(mm_pool_pattern_count(f.pool, 0, -1, &touched), MM_ERR_INVALID);
    assert_int_equal(touched, -1);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_pool_has_no_base),
        cmocka_unit_test(a_pool_reserves_exactly_its_bytes_and_gives_them_back),
        cmocka_unit_test(too_large_a_pool_is_no_memory),
        cmocka_unit_test(written_words_are_counted),
        cmocka_unit_test(written_words_are_counted_where_the_cpu_cannot_look),
        cmocka_unit_test(odd_ranges_keep_the_words_in_place),
        cmocka_unit_test(ranges_outside_of_the_pool_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
