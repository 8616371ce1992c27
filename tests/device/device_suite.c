/* SPDX-License-Identifier: MIT */
#include "tests/device/device_suite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "mm/device/contract/clock.h"
#include "mm/device/contract/device.h"
#include "tests/core/random.h"
#include "tests/device/device_dag.h"

enum { BLOCK_BYTES = 1 << 21, GUARD_BYTES = 64 };

/* A device, two streams, an event, and a block of each kind of memory. */
typedef struct suite {
    mm_device *device;
    mm_stream *stream, *other;
    mm_event *event;
    unsigned char *block;  /* device memory: only work on a stream touches it */
    unsigned char *pinned; /* host memory */
} suite;

static void *reserve(mm_device *device, mm_memory_kind kind, int64_t bytes) {
    void *memory = NULL;
    assert_int_equal(mm_device_reserve(device, kind, bytes, &memory), MM_OK);
    assert_non_null(memory);
    return memory;
}

static int suite_setup(void **state) {
    const char *name = *state;
    suite *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_int_equal(mm_device_create(name, &(mm_device_config){.timed = true}, &s->device), MM_OK);
    assert_int_equal(mm_stream_create(s->device, "suite", 0, &s->stream), MM_OK);
    assert_int_equal(mm_stream_create(s->device, "suite-other", -1, &s->other), MM_OK);
    assert_int_equal(mm_event_create(s->device, &s->event), MM_OK);
    s->block = reserve(s->device, MM_MEMORY_DEVICE, BLOCK_BYTES);
    s->pinned = reserve(s->device, MM_MEMORY_PINNED, BLOCK_BYTES);
    *state = s;
    return 0;
}

static int suite_teardown(void **state) {
    suite *s = *state;
    mm_memory_info info;
    assert_int_equal(mm_stream_sync(s->stream), MM_OK);
    assert_int_equal(mm_stream_sync(s->other), MM_OK);
    mm_device_release(s->device, MM_MEMORY_DEVICE, s->block, BLOCK_BYTES);
    mm_device_release(s->device, MM_MEMORY_PINNED, s->pinned, BLOCK_BYTES);
    mm_event_destroy(s->event);
    mm_stream_destroy(s->stream);
    mm_stream_destroy(s->other);
    mm_device_memory_info(s->device, &info);
    assert_int_equal(info.reserved_bytes, 0);
    mm_device_destroy(s->device);
    free(s);
    return 0;
}

static int64_t reserved_bytes(suite *s) {
    mm_memory_info info;
    mm_device_memory_info(s->device, &info);
    return info.reserved_bytes;
}

static void fill(suite *s, void *dst, uint8_t byte, int64_t bytes) {
    assert_int_equal(mm_fill_async(s->stream, dst, byte, bytes), MM_OK);
}

static void copy(suite *s, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    assert_int_equal(mm_copy_async(s->stream, dst, src, bytes, kind), MM_OK);
}

static void sync(suite *s) { assert_int_equal(mm_stream_sync(s->stream), MM_OK); }

static uint64_t checksum(suite *s, const void *src, int64_t bytes) {
    uint64_t sum = 0;
    assert_int_equal(mm_checksum_async(s->stream, src, bytes, &sum), MM_OK);
    sync(s);
    return sum;
}

static void put_random(unsigned char *bytes, int64_t n, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) bytes[i] = (unsigned char)random_next(&seed);
}

static void assert_all(const unsigned char *bytes, unsigned char expected, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (bytes[i] != expected) fail_msg("byte %lld is %d, not %d", (long long)i, bytes[i], expected);
}

/* ---------------------------------------------------------------- memory */

static void reserve_is_accounted_to_the_byte_and_given_back(void **state) {
    static const int64_t sizes[] = {1, 4095, 4096, 4097, (1 << 20) + 3};
    enum { N = sizeof sizes / sizeof sizes[0] };
    suite *s = *state;
    int64_t before = reserved_bytes(s), sum = 0;
    void *memory[N];
    for (int i = 0; i < N; i++) {
        memory[i] = reserve(s->device, MM_MEMORY_DEVICE, sizes[i]);
        assert_int_equal((uintptr_t)memory[i] % 4096, 0);
        sum += sizes[i];
        assert_int_equal(reserved_bytes(s) - before, sum);
    }
    for (int i = 0; i < N; i++) {
        int at = (i + 2) % N;
        mm_device_release(s->device, MM_MEMORY_DEVICE, memory[at], sizes[at]);
        sum -= sizes[at];
        assert_int_equal(reserved_bytes(s) - before, sum);
    }
}

static void pinned_memory_is_not_counted_as_device_memory(void **state) {
    suite *s = *state;
    int64_t before = reserved_bytes(s);
    unsigned char *memory = reserve(s->device, MM_MEMORY_PINNED, 100001);
    assert_int_equal((uintptr_t)memory % 4096, 0);
    assert_int_equal(reserved_bytes(s), before);
    memset(memory, 7, 100001); /* the CPU can write it */
    assert_all(memory, 7, 100001);
    mm_device_release(s->device, MM_MEMORY_PINNED, memory, 100001);
    assert_int_equal(reserved_bytes(s), before);
}

/* Trimmed memory stays reserved, and can be used once it is restored; the memory around it keeps its content. */
static void restored_memory_can_be_used_again(void **state) {
    suite *s = *state;
    enum { PART = BLOCK_BYTES / 4 };
    int64_t before = reserved_bytes(s);
    uint8_t *block = s->block;
    assert_int_equal(mm_fill_async(s->stream, block, 0x5a, BLOCK_BYTES), MM_OK);
    sync(s);
    mm_device_trim(s->device, block + PART, BLOCK_BYTES - 2 * PART);
    mm_device_trim(s->device, block, 0);
    assert_int_equal(reserved_bytes(s), before);
    assert_int_equal(mm_device_restore(s->device, block, BLOCK_BYTES), MM_OK);
    assert_int_equal(reserved_bytes(s), before);
    copy(s, s->pinned, block, PART, MM_COPY_OUT);
    sync(s);
    assert_all(s->pinned, 0x5a, PART);
    copy(s, s->pinned, block + BLOCK_BYTES - PART, PART, MM_COPY_OUT);
    sync(s);
    assert_all(s->pinned, 0x5a, PART);
    assert_int_equal(mm_fill_async(s->stream, block, 0xa5, BLOCK_BYTES), MM_OK);
    copy(s, s->pinned, block, BLOCK_BYTES, MM_COPY_OUT);
    sync(s);
    assert_all(s->pinned, 0xa5, BLOCK_BYTES);
}

/* Restored memory is zero, even where the trim gave no page or chunk back. */
static void restored_memory_is_zero(void **state) {
    suite *s = *state;
    static const int64_t places[][2] = {{1, 30}, {5000, 100}, {4097, 70001}, {BLOCK_BYTES / 2, BLOCK_BYTES / 2}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int64_t begin = places[i][0], bytes = places[i][1], end = begin + bytes;
        uint8_t *block = s->block;
        assert_int_equal(mm_fill_async(s->stream, block, 0x5a, BLOCK_BYTES), MM_OK);
        sync(s);
        mm_device_trim(s->device, block + begin, bytes);
        assert_int_equal(mm_device_restore(s->device, block, BLOCK_BYTES), MM_OK);
        copy(s, s->pinned, block, BLOCK_BYTES, MM_COPY_OUT);
        sync(s);
        assert_all(s->pinned, 0x5a, begin);
        assert_all(s->pinned + begin, 0, bytes);
        assert_all(s->pinned + end, 0x5a, BLOCK_BYTES - end);
    }
}

/* Addresses may be reserved without memory; what is restored can be used. */
static void memory_reserved_as_if_trimmed_can_be_restored_in_parts(void **state) {
    suite *s = *state;
    const int64_t before = reserved_bytes(s), range = INT64_C(16) * BLOCK_BYTES;
    void *memory = NULL;
    assert_int_equal(mm_device_reserve_trimmed(s->device, 0, &memory), MM_ERR_INVALID);
    assert_int_equal(mm_device_reserve_trimmed(s->device, range, &memory), MM_OK);
    assert_int_equal((uintptr_t)memory % 4096, 0);
    assert_int_equal(reserved_bytes(s), before + range);
    for (int64_t there = BLOCK_BYTES; there <= 2 * BLOCK_BYTES; there += BLOCK_BYTES) {
        uint8_t *part = (uint8_t *)memory + there - BLOCK_BYTES;
        assert_int_equal(mm_device_restore(s->device, memory, there), MM_OK);
        memset(s->pinned, 0xff, BLOCK_BYTES);
        copy(s, s->pinned, part, BLOCK_BYTES, MM_COPY_OUT);
        sync(s);
        assert_all(s->pinned, 0, BLOCK_BYTES);
        assert_int_equal(mm_fill_async(s->stream, part, 0x5a, BLOCK_BYTES), MM_OK);
    }
    copy(s, s->pinned, memory, BLOCK_BYTES, MM_COPY_OUT);
    sync(s);
    assert_all(s->pinned, 0x5a, BLOCK_BYTES);
    mm_device_release(s->device, MM_MEMORY_DEVICE, memory, range);
    assert_int_equal(reserved_bytes(s), before);
}

static void reserved_memory_is_zero(void **state) {
    suite *s = *state;
    memset(s->pinned, 0xff, BLOCK_BYTES);
    copy(s, s->pinned, s->block, BLOCK_BYTES, MM_COPY_OUT);
    sync(s);
    assert_all(s->pinned, 0, BLOCK_BYTES);
}

static void reserve_more_than_there_is_is_out_of_memory_and_changes_nothing(void **state) {
    suite *s = *state;
    mm_memory_info before, after;
    mm_device_memory_info(s->device, &before);
    assert_true(before.free_bytes > 0 && before.free_bytes <= before.total_bytes);
    const int64_t sizes[] = {before.total_bytes + 1, INT64_C(1) << 50, INT64_MAX};
    for (int i = 0; i < 3; i++) {
        void *memory = s;
        assert_int_equal(mm_device_reserve(s->device, MM_MEMORY_DEVICE, sizes[i], &memory), MM_ERR_NOMEM);
        assert_ptr_equal(memory, s);
        assert_true(strlen(mm_last_error()) > 0);
        mm_device_memory_info(s->device, &after);
        assert_int_equal(after.reserved_bytes, before.reserved_bytes);
    }
}

static void reserve_of_nothing_or_of_no_kind_is_invalid(void **state) {
    suite *s = *state;
    void *memory = s;
    assert_int_equal(mm_device_reserve(s->device, MM_MEMORY_DEVICE, 0, &memory), MM_ERR_INVALID);
    assert_int_equal(mm_device_reserve(s->device, MM_MEMORY_DEVICE, -1, &memory), MM_ERR_INVALID);
    assert_int_equal(mm_device_reserve(s->device, (mm_memory_kind)7, 1, &memory), MM_ERR_INVALID);
    assert_ptr_equal(memory, s);
}

static void two_devices_keep_separate_accounts(void **state) {
    suite *s = *state;
    mm_device *second;
    mm_memory_info info;
    assert_int_equal(mm_device_create(s->device->ops->name, NULL, &second), MM_OK);
    int64_t before = reserved_bytes(s);
    void *memory = reserve(second, MM_MEMORY_DEVICE, 12345);
    assert_int_equal(reserved_bytes(s), before);
    mm_device_memory_info(second, &info);
    assert_int_equal(info.reserved_bytes, 12345);
    mm_device_release(second, MM_MEMORY_DEVICE, memory, 12345);
    mm_device_destroy(second);
}

/* ---------------------------------------------------------------- work */

static void copies_of_odd_sizes_keep_every_byte_and_touch_no_other(void **state) {
    static const int64_t sizes[] = {0, 1, 3, 4, 7, 31, 32, 33, 255, 4097, 65537, (1 << 20) - 5};
    suite *s = *state;
    unsigned char *here = s->pinned + (1 << 20), *first = s->block + 3, *second = s->block + (1 << 20) + 5;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t bytes = sizes[i], wide = bytes + 2 * GUARD_BYTES < 1 << 20 ? bytes + 2 * GUARD_BYTES : bytes;
        int64_t guard = (wide - bytes) / 2;
        put_random(s->pinned, bytes, (uint64_t)i + 1);
        memset(here, 0, (size_t)wide);
        fill(s, second, 0xa5, wide);
        copy(s, first, s->pinned, bytes, MM_COPY_IN);
        copy(s, second + guard, first, bytes, MM_COPY_DEVICE);
        copy(s, here, second, wide, MM_COPY_OUT);
        copy(s, first, here, wide, MM_COPY_ANY);
        copy(s, second, first, wide, MM_COPY_ANY);
        copy(s, here, second, wide, MM_COPY_ANY);
        sync(s);
        assert_all(here, 0xa5, guard);
        assert_memory_equal(here + guard, s->pinned, (size_t)bytes);
        assert_all(here + guard + bytes, 0xa5, guard);
    }
}

static void fills_of_odd_sizes_set_every_byte_and_touch_no_other(void **state) {
    static const int64_t sizes[] = {0, 1, 2, 5, 17, 63, 129, 4099, 70001};
    suite *s = *state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t bytes = sizes[i], wide = bytes + 2 * GUARD_BYTES;
        fill(s, s->block, 0x11, wide);
        fill(s, s->block + GUARD_BYTES, 0xee, bytes);
        copy(s, s->pinned, s->block, wide, MM_COPY_OUT);
        sync(s);
        assert_all(s->pinned, 0x11, GUARD_BYTES);
        assert_all(s->pinned + GUARD_BYTES, 0xee, bytes);
        assert_all(s->pinned + GUARD_BYTES + bytes, 0x11, GUARD_BYTES);
    }
}

static void checksum_of_equal_bytes_is_equal_wherever_they_lie(void **state) {
    suite *s = *state;
    for (int64_t bytes = 0; bytes < 100; bytes++) {
        put_random(s->pinned, bytes, 99);
        copy(s, s->block, s->pinned, bytes, MM_COPY_IN);
        copy(s, s->block + 4096 + bytes % 17, s->pinned, bytes, MM_COPY_IN);
        assert_int_equal(checksum(s, s->block, bytes), checksum(s, s->block + 4096 + bytes % 17, bytes));
    }
}

static void checksum_tells_each_flipped_bit_and_each_length(void **state) {
    enum { BYTES = 75 }; /* whole groups of words, single words and a tail */
    suite *s = *state;
    put_random(s->pinned, BYTES, 5);
    copy(s, s->block, s->pinned, BYTES, MM_COPY_IN);
    uint64_t whole = checksum(s, s->block, BYTES);
    for (int bit = 0; bit < BYTES * 8; bit++) {
        s->pinned[bit / 8] ^= (unsigned char)(1 << bit % 8);
        copy(s, s->block, s->pinned, BYTES, MM_COPY_IN);
        assert_int_not_equal(checksum(s, s->block, BYTES), whole);
        s->pinned[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    fill(s, s->block, 0, BYTES);
    for (int64_t bytes = 1; bytes < BYTES; bytes++)
        assert_int_not_equal(checksum(s, s->block, bytes), checksum(s, s->block, bytes - 1));
}

static void checksum_tells_words_that_changed_places(void **state) {
    enum { WORD = 8, WORDS = 40 };
    suite *s = *state;
    put_random(s->pinned, WORDS * WORD, 6);
    copy(s, s->block, s->pinned, WORDS * WORD, MM_COPY_IN);
    uint64_t whole = checksum(s, s->block, WORDS * WORD);
    for (int distance = 1; distance < 9; distance++)
        for (int i = 0; i + distance < WORDS; i++) {
            copy(s, s->block, s->pinned, WORDS * WORD, MM_COPY_IN);
            copy(s, s->block + i * WORD, s->pinned + (i + distance) * WORD, WORD, MM_COPY_IN);
            copy(s, s->block + (i + distance) * WORD, s->pinned + i * WORD, WORD, MM_COPY_IN);
            assert_int_not_equal(checksum(s, s->block, WORDS * WORD), whole);
        }
}

/* A plain multiplicative hash misses such pairs: the top bit of a word changes only the top bit of the hash. */
static void checksum_tells_pairs_of_flipped_top_bits(void **state) {
    enum { WORD = 8, WORDS = 12, BYTES = WORD * WORDS };
    suite *s = *state;
    put_random(s->pinned, BYTES, 7);
    copy(s, s->block, s->pinned, BYTES, MM_COPY_IN);
    uint64_t whole = checksum(s, s->block, BYTES);
    for (int i = 0; i < WORDS; i++)
        for (int j = i + 1; j < WORDS; j++) {
            int tops[] = {i * WORD + WORD - 1, j * WORD + WORD - 1};
            for (int k = 0; k < 2; k++) s->pinned[tops[k]] ^= 0x80;
            copy(s, s->block, s->pinned, BYTES, MM_COPY_IN);
            assert_int_not_equal(checksum(s, s->block, BYTES), whole);
            for (int k = 0; k < 2; k++) s->pinned[tops[k]] ^= 0x80;
        }
}

/* ---------------------------------------------------------------- marks */

/* An element that the step did not write is found by its first byte, and nothing else is: not a mark across two
 * elements, not bytes around the range, not a cut element at its end. */
static void the_first_element_that_has_the_mark_is_found(void **state) {
    enum { GUARD = 24, BYTES = 1000, WORD = 8 };
    static const int sizes[] = {2, 4, 8};
    static const uint64_t word = UINT64_C(0x7fc123457fc12345), halves = UINT64_C(0x7e017e017e017e01);
    suite *s = *state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int skew = 0; skew < 2; skew++) {
            const int size = sizes[k];
            const mm_mark mark = {size == 2 ? halves : word, size};
            unsigned char *at = s->block + GUARD + skew;
            uint64_t found = 0;
            fill(s, s->block, 0, GUARD + BYTES + GUARD);
            assert_int_equal(mm_mark_async(s->stream, at, BYTES + 5, mark.word), MM_OK);
            copy(s, s->pinned, s->block, GUARD + BYTES + GUARD, MM_COPY_OUT);
            sync(s);
            assert_all(s->pinned, 0, GUARD + skew);
            for (int i = 0; i < BYTES + 5; i++)
                assert_int_equal(s->pinned[GUARD + skew + i], (uint8_t)(mark.word >> (8 * (i % WORD))));
            assert_all(s->pinned + GUARD + skew + BYTES + 5, 0, GUARD - skew - 5);
            for (int hole = 0; hole < BYTES; hole += size * 31) {
                fill(s, at, 0, hole);
                assert_int_equal(mm_find_mark_async(s->stream, at, BYTES, &mark, &found), MM_OK);
                sync(s);
                assert_int_equal(found, hole);
            }
            fill(s, at, 0, BYTES);
            assert_int_equal(mm_mark_async(s->stream, at + size / 2, size, mark.word), MM_OK);
            assert_int_equal(mm_mark_async(s->stream, at - size, size, mark.word), MM_OK);
            assert_int_equal(mm_find_mark_async(s->stream, at, BYTES, &mark, &found), MM_OK);
            sync(s);
            /* halves of two bytes: a mark that is not cut at an element's edge is none */
            assert_int_equal(found, MM_MARK_NONE);
            assert_int_equal(mm_mark_async(s->stream, at, BYTES, mark.word), MM_OK);
            assert_int_equal(mm_find_mark_async(s->stream, at, size - 1, &mark, &found), MM_OK);
            sync(s);
            assert_int_equal(found, MM_MARK_NONE);
        }
    assert_int_equal(mm_find_mark_async(s->stream, s->block, 8, &(mm_mark){word, 3}, &(uint64_t){0}), MM_ERR_INVALID);
    assert_int_equal(mm_mark_async(s->stream, s->block, -1, word), MM_ERR_INVALID);
}

/* ---------------------------------------------------------------- sums */

/* Computes the sums of elements in the block's first half. The result goes to pinned memory, which the device reaches,
 * too. */
static mm_sums sums_of(suite *s, const float *elements, int64_t n) {
    mm_sums *sums = (mm_sums *)s->pinned;
    unsigned char *scratch = s->pinned + 4096, *source = s->pinned + 4096 + MM_SUMS_SCRATCH_BYTES;
    assert_true(n * 4 <= BLOCK_BYTES / 2);
    if (n > 0) memcpy(source, elements, (size_t)n * 4);
    copy(s, s->block, source, n * 4, MM_COPY_IN);
    assert_int_equal(mm_sums_async(s->stream, (const float *)s->block, n, scratch, sums), MM_OK);
    sync(s);
    return *sums;
}

/* Fills with random floats: a third are zeros, of both signs; the others go from denormals to 2^60. */
static void put_random_floats(float *elements, int64_t n, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        elements[i] = (float)ldexp((double)random_below(&seed, 1 << 24), random_below(&seed, 190) - 150);
        if (random_chance(&seed, 33)) elements[i] = 0;
        if (random_chance(&seed, 50)) elements[i] = -elements[i];
    }
}

static void assert_near(double value, long double expected) {
    if (fabsl(value - expected) > 1e-13L * expected) fail_msg("%.17g, not %.17Lg", value, expected);
}

static void sums_are_those_of_a_loop_in_long_double(void **state) {
    static const int64_t sizes[] = {0, 1, 3, 127, 128, 129, 1023, 1024, 1025, 5000, 131072, 200001};
    enum { MOST = 200001 };
    suite *s = *state;
    float *elements = malloc(MOST * sizeof *elements);
    assert_non_null(elements);
    put_random_floats(elements, MOST, 5);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const mm_sums sums = sums_of(s, elements, sizes[k]);
        long double sum_abs = 0, sum_squares = 0;
        double nonzero = 0, max_abs = 0;
        for (int64_t i = 0; i < sizes[k]; i++) {
            const long double value = fabsl((long double)elements[i]);
            sum_abs += value;
            sum_squares += value * value;
            nonzero += value > 0;
            if (value > max_abs) max_abs = (double)value;
        }
        assert_true(sums.nonzero == nonzero && sums.max_abs == max_abs);
        assert_near(sums.sum_abs, sum_abs);
        assert_near(sums.sum_squares, sum_squares);
    }
    free(elements);
}

static void sums_of_what_is_not_finite_say_so(void **state) {
    enum { N = 3000 };
    suite *s = *state;
    float elements[N];
    mm_sums sums;
    put_random_floats(elements, N, 6);
    const double nonzero = sums_of(s, elements, N).nonzero;
    for (int i = 0; i < 3; i++) { /* one zero becomes an infinity */
        const int at[] = {0, 1500, N - 1};
        const float old = elements[at[i]];
        elements[at[i]] = -INFINITY;
        sums = sums_of(s, elements, N);
        assert_true(sums.nonzero == nonzero + (old == 0));
        assert_true(sums.sum_abs == INFINITY && sums.sum_squares == INFINITY && sums.max_abs == INFINITY);
        elements[(at[i] + 700) % N] = NAN;
        sums = sums_of(s, elements, N);
        assert_true(isnan(sums.sum_abs) && isnan(sums.sum_squares) && isnan(sums.max_abs));
        put_random_floats(elements, N, 6);
    }
}

static void sums_of_elements_that_are_not_aligned_are_invalid(void **state) {
    suite *s = *state;
    const float *at = (const float *)s->block;
    mm_sums *sums = (mm_sums *)s->pinned;
    assert_int_equal(mm_sums_async(s->stream, at + 1, 1, s->pinned + 4096, sums), MM_ERR_INVALID);
    assert_int_equal(mm_sums_async(s->stream, at, -1, s->pinned + 4096, sums), MM_ERR_INVALID);
    assert_int_equal(mm_sums_async(s->stream, at, INT64_MAX / 2, s->pinned + 4096, sums), MM_ERR_INVALID);
    assert_int_equal(mm_sums_async(s->stream, NULL, 1, s->pinned + 4096, sums), MM_ERR_INVALID);
    sync(s); /* the stream has no failure */
}

static void work_on_no_bytes_is_done_without_memory(void **state) {
    suite *s = *state;
    uint64_t sum = 0, again = 1;
    copy(s, NULL, NULL, 0, MM_COPY_DEVICE);
    copy(s, NULL, NULL, 0, MM_COPY_OUT);
    copy(s, NULL, NULL, 0, MM_COPY_IN);
    fill(s, NULL, 1, 0);
    assert_int_equal(mm_checksum_async(s->stream, NULL, 0, &sum), MM_OK);
    assert_int_equal(mm_checksum_async(s->stream, s->block, 0, &again), MM_OK);
    sync(s);
    assert_int_equal(sum, again);
}

static void work_on_bad_ranges_or_of_no_kind_is_invalid(void **state) {
    suite *s = *state;
    uint64_t sum;
    void *p = s->block, *q = s->block + 4096;
    assert_int_equal(mm_copy_async(s->stream, p, q, -1, MM_COPY_DEVICE), MM_ERR_INVALID);
    assert_int_equal(mm_copy_async(s->stream, NULL, q, 1, MM_COPY_DEVICE), MM_ERR_INVALID);
    assert_int_equal(mm_copy_async(s->stream, p, NULL, 1, MM_COPY_DEVICE), MM_ERR_INVALID);
    assert_int_equal(mm_copy_async(s->stream, p, q, 1, (mm_copy_kind)9), MM_ERR_INVALID);
    assert_int_equal(mm_fill_async(s->stream, p, 0, -1), MM_ERR_INVALID);
    assert_int_equal(mm_fill_async(s->stream, NULL, 0, 1), MM_ERR_INVALID);
    assert_int_equal(mm_checksum_async(s->stream, p, -1, &sum), MM_ERR_INVALID);
    assert_int_equal(mm_checksum_async(s->stream, NULL, 1, &sum), MM_ERR_INVALID);
    sync(s); /* the stream has no failure */
}

/* ---------------------------------------------------------------- order */

static void work_of_one_stream_is_done_in_order(void **state) {
    enum { ROUNDS = 200, BYTES = 5000 };
    suite *s = *state;
    for (int i = 0; i < ROUNDS; i++) {
        fill(s, s->block, (uint8_t)i, BYTES);
        copy(s, s->pinned + i * BYTES, s->block, BYTES, MM_COPY_OUT);
    }
    sync(s);
    for (int i = 0; i < ROUNDS; i++) assert_all(s->pinned + i * BYTES, (unsigned char)i, BYTES);
}

static void a_wait_orders_work_of_two_streams(void **state) {
    enum { ROUNDS = 500, BYTES = 3000 };
    suite *s = *state;
    mm_event *taken;
    assert_int_equal(mm_event_create(s->device, &taken), MM_OK);
    for (int i = 0; i < ROUNDS; i++) {
        if (i > 0) assert_int_equal(mm_stream_wait(s->stream, taken), MM_OK);
        fill(s, s->block, (uint8_t)i, BYTES);
        assert_int_equal(mm_event_record(s->event, s->stream), MM_OK);
        assert_int_equal(mm_stream_wait(s->other, s->event), MM_OK);
        assert_int_equal(mm_copy_async(s->other, s->pinned + i * BYTES, s->block, BYTES, MM_COPY_OUT), MM_OK);
        assert_int_equal(mm_event_record(taken, s->other), MM_OK);
    }
    assert_int_equal(mm_event_sync(taken), MM_OK);
    for (int i = 0; i < ROUNDS; i++) assert_all(s->pinned + i * BYTES, (unsigned char)i, BYTES);
    mm_event_destroy(taken);
}

static void random_work_on_many_streams_ends_as_if_done_in_turn(void **state) {
    suite *s = *state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        device_dag_run(s->device, &(device_dag_config){.seed = seed, .streams = 2 * (int)seed, .operations = 2000});
}

/* ---------------------------------------------------------------- events */

static void an_event_never_recorded_is_done(void **state) {
    suite *s = *state;
    assert_true(mm_event_done(s->event));
    assert_int_equal(mm_event_ns(s->event), 0);
    assert_int_equal(mm_event_sync(s->event), MM_OK);
}

static void an_event_is_done_after_sync_and_tells_when(void **state) {
    enum { SLACK_NS = 100000000 }; /* of two clocks compared only once, on a busy machine */
    suite *s = *state;
    int64_t last_ns = mm_now_ns() - SLACK_NS;
    for (int i = 0; i < 20; i++) {
        fill(s, s->block, 1, 100000);
        assert_int_equal(mm_event_record(s->event, i % 2 == 0 ? s->stream : s->other), MM_OK);
        assert_int_equal(mm_event_sync(s->event), MM_OK);
        assert_true(mm_event_done(s->event));
        int64_t ns = mm_event_ns(s->event);
        assert_true(ns >= last_ns && ns <= mm_now_ns() + SLACK_NS);
        last_ns = ns;
    }
}

static void streams_and_events_of_different_devices_do_not_mix(void **state) {
    suite *s = *state;
    mm_device *second;
    mm_event *event;
    assert_int_equal(mm_device_create(s->device->ops->name, NULL, &second), MM_OK);
    assert_int_equal(mm_event_create(second, &event), MM_OK);
    assert_int_equal(mm_event_record(event, s->stream), MM_ERR_INVALID);
    assert_int_equal(mm_stream_wait(s->stream, event), MM_ERR_INVALID);
    mm_event_destroy(event);
    mm_device_destroy(second);
}

/* ---------------------------------------------------------------- streams */

static void destroying_a_stream_drains_it(void **state) {
    enum { ROUNDS = 100, BYTES = 20000 };
    suite *s = *state;
    mm_stream *stream;
    assert_int_equal(mm_stream_create(s->device, "a name that is much too long", 0, &stream), MM_OK);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(mm_fill_async(stream, s->block, (uint8_t)i, BYTES), MM_OK);
        assert_int_equal(mm_copy_async(stream, s->pinned + i * BYTES, s->block, BYTES, MM_COPY_OUT), MM_OK);
    }
    mm_stream_destroy(stream);
    for (int i = 0; i < ROUNDS; i++) assert_all(s->pinned + i * BYTES, (unsigned char)i, BYTES);
}

static void stats_count_work_and_not_events(void **state) {
    suite *s = *state;
    mm_stream_stats before, after;
    mm_stream_stats_get(s->stream, &before);
    for (int i = 0; i < 10; i++) {
        fill(s, s->block, 0, 1000);
        copy(s, s->block + 1000, s->block, 1000, MM_COPY_DEVICE);
        assert_int_equal(mm_event_record(s->event, s->stream), MM_OK);
        assert_int_equal(mm_stream_wait(s->stream, s->event), MM_OK);
    }
    sync(s);
    mm_stream_stats_get(s->stream, &after);
    assert_int_equal(after.tasks - before.tasks, 20);
    assert_true(after.busy_ns >= before.busy_ns && after.wait_ns >= before.wait_ns);
}

static void resetting_a_stream_without_a_failure_changes_nothing(void **state) {
    suite *s = *state;
    fill(s, s->block, 3, 10);
    sync(s);
    mm_stream_reset(s->stream);
    copy(s, s->pinned, s->block, 10, MM_COPY_OUT);
    sync(s);
    assert_all(s->pinned, 3, 10);
}

static void destroying_nothing_is_legal(void **state) {
    suite *s = *state;
    mm_stream_destroy(NULL);
    mm_event_destroy(NULL);
    mm_device_destroy(NULL);
    mm_device_release(s->device, MM_MEMORY_DEVICE, NULL, 0);
}

static void skipped(void **state) {
    (void)state;
    skip();
}

/* Whether the device's hardware is there. */
static bool answers(const char *device_name) {
    mm_device *device;
    mm_status status = mm_device_create(device_name, NULL, &device);
    if (status == MM_ERR_NOT_FOUND) {
        print_message("%s\n", mm_last_error());
        return false;
    }
    assert_int_equal(status, MM_OK);
    mm_device_destroy(device);
    return true;
}

int device_suite_run(const char *device_name) {
#define CASE(name) cmocka_unit_test_prestate_setup_teardown(name, suite_setup, suite_teardown, (void *)device_name)
    struct CMUnitTest tests[] = {
        CASE(reserve_is_accounted_to_the_byte_and_given_back),
        CASE(pinned_memory_is_not_counted_as_device_memory),
        CASE(reserved_memory_is_zero),
        CASE(restored_memory_can_be_used_again),
        CASE(restored_memory_is_zero),
        CASE(memory_reserved_as_if_trimmed_can_be_restored_in_parts),
        CASE(reserve_more_than_there_is_is_out_of_memory_and_changes_nothing),
        CASE(reserve_of_nothing_or_of_no_kind_is_invalid),
        CASE(two_devices_keep_separate_accounts),
        CASE(copies_of_odd_sizes_keep_every_byte_and_touch_no_other),
        CASE(fills_of_odd_sizes_set_every_byte_and_touch_no_other),
        CASE(checksum_of_equal_bytes_is_equal_wherever_they_lie),
        CASE(checksum_tells_each_flipped_bit_and_each_length),
        CASE(checksum_tells_words_that_changed_places),
        CASE(checksum_tells_pairs_of_flipped_top_bits),
        CASE(the_first_element_that_has_the_mark_is_found),
        CASE(sums_are_those_of_a_loop_in_long_double),
        CASE(sums_of_what_is_not_finite_say_so),
        CASE(sums_of_elements_that_are_not_aligned_are_invalid),
        CASE(work_on_no_bytes_is_done_without_memory),
        CASE(work_on_bad_ranges_or_of_no_kind_is_invalid),
        CASE(work_of_one_stream_is_done_in_order),
        CASE(a_wait_orders_work_of_two_streams),
        CASE(random_work_on_many_streams_ends_as_if_done_in_turn),
        CASE(an_event_never_recorded_is_done),
        CASE(an_event_is_done_after_sync_and_tells_when),
        CASE(streams_and_events_of_different_devices_do_not_mix),
        CASE(destroying_a_stream_drains_it),
        CASE(stats_count_work_and_not_events),
        CASE(resetting_a_stream_without_a_failure_changes_nothing),
        CASE(destroying_nothing_is_legal),
    };
#undef CASE
    if (!answers(device_name))
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
            tests[i] = (struct CMUnitTest){.name = tests[i].name, .test_func = skipped};
    return cmocka_run_group_tests_name(device_name, tests, NULL, NULL);
}
