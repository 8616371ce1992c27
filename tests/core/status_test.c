/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <string.h>

#include "mm/core/log.h"
#include "mm/core/number.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "tests/core/comma_locale.h"
#include "tests/core/test_case.h"

TEST_CASE(fail_keeps_the_message_and_gives_the_status) {
    assert_int_equal(mm_fail(MM_ERR_IO, "file %s, %d bytes", "a", 5), MM_ERR_IO);
    assert_string_equal(mm_last_error(), "file a, 5 bytes");
}

TEST_CASE(fail_may_quote_the_last_message) {
    (void)mm_fail(MM_ERR_IO, "inner");
    (void)mm_fail(MM_ERR_IO, "outer of %s", mm_last_error());
    assert_string_equal(mm_last_error(), "outer of inner");
}

TEST_CASE(fail_in_puts_a_prefix_before_the_message) {
    (void)mm_fail(MM_ERR_NOMEM, "no room");
    assert_int_equal(mm_fail_in(MM_ERR_NOMEM, "graph %s", "g"), MM_ERR_NOMEM);
    assert_string_equal(mm_last_error(), "graph g: no room");
}

/* Whether the message has all the room there is, and begins and ends so. */
static void expect_cut(const char *begin, const char *end) {
    const char *message = mm_last_error();
    assert_int_equal(strlen(message), MM_MESSAGE_CAPACITY - 1);
    assert_memory_equal(message, begin, strlen(begin));
    assert_string_equal(message + strlen(message) - strlen(end), end);
}

TEST_CASE(long_messages_are_cut_where_dots_say_so_and_keep_the_reason) {
    char text[2 * MM_MESSAGE_CAPACITY];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)mm_fail(MM_ERR_IO, "%s", text);
    expect_cut("xxx", "x...");
    (void)mm_fail_in(MM_ERR_IO, "prefix");
    expect_cut("prefix: xxx", "x...");
    (void)mm_fail_in(MM_ERR_IO, "%s", text);
    expect_cut("xxx", "x...");
    (void)mm_fail(MM_ERR_IO, "the reason");
    (void)mm_fail_in(MM_ERR_IO, "%s", text);
    expect_cut("xxx", "x...: the reason");
}

static mm_status tries(mm_status status, bool *passed) {
    MM_TRY(status);
    *passed = true;
    return MM_OK;
}

TEST_CASE(try_forwards_failures_only) {
    bool passed = false;
    assert_int_equal(tries(MM_ERR_DEVICE, &passed), MM_ERR_DEVICE);
    assert_false(passed);
    assert_int_equal(tries(MM_OK, &passed), MM_OK);
    assert_true(passed);
}

static void *fail_elsewhere(void *unused) {
    (void)mm_fail(MM_ERR_IO, "theirs");
    return unused;
}

TEST_CASE(each_thread_has_its_own_message) {
    pthread_t thread;
    (void)mm_fail(MM_ERR_IO, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(mm_last_error(), "mine");
}

TEST_CASE(a_kept_failure_is_told_again_whatever_failed_since) {
    mm_failure kept, none;
    mm_failure_save(&kept, mm_fail(MM_ERR_IO, "the first"));
    mm_failure_save(&none, MM_OK);
    (void)mm_fail(MM_ERR_DEVICE, "the second");
    assert_int_equal(mm_failure_restore(&none), MM_OK);
    assert_string_equal(mm_last_error(), "the second");
    assert_int_equal(mm_failure_restore(&kept), MM_ERR_IO);
    assert_string_equal(mm_last_error(), "the first");
}

TEST_CASE(every_status_has_a_name_of_its_own) {
    for (int a = MM_OK; a <= MM_ERR_UNSUPPORTED; a++) {
        assert_memory_equal(mm_status_name(a), "MM_", 3);
        for (int b = MM_OK; b < a; b++) assert_string_not_equal(mm_status_name(a), mm_status_name(b));
    }
    assert_string_equal(mm_status_name((mm_status)1000), "unknown status");
}

TEST_CASE(sizes_are_told_in_bytes_and_in_a_unit) {
    assert_string_equal(MM_SIZE_TEXT(1023), "1023 bytes");
    assert_string_equal(MM_SIZE_TEXT(1024), "1024 bytes (1KiB)");
    assert_string_equal(MM_SIZE_TEXT(61349376), "61349376 bytes (58.5MiB)");
    assert_string_equal(MM_SIZE_TEXT(INT64_MAX), "9223372036854775807 bytes (8388608TiB)");
}

typedef struct sink {
    int messages;
    mm_log_level level;
    char last[64];
} sink;

static void take_message(void *ctx, mm_log_level level, const char *message) {
    sink *s = ctx;
    s->messages++;
    s->level = level;
    strncpy(s->last, message, sizeof s->last - 1);
}

TEST_CASE(log_drops_what_is_above_its_level) {
    sink s = {0};
    mm_log log = {.fn = take_message, .ctx = &s, .level = MM_LOG_WARNING}, silent = {0};
    mm_log_send(&log, MM_LOG_INFO, "no");
    assert_int_equal(s.messages, 0);
    mm_log_send(&log, MM_LOG_WARNING, "%d of %d", 1, 2);
    mm_log_send(&log, MM_LOG_ERROR, "worse");
    assert_int_equal(s.messages, 2);
    assert_int_equal(s.level, MM_LOG_ERROR);
    assert_string_equal(s.last, "worse");
    mm_log_send(&silent, MM_LOG_ERROR, "nobody hears");
    mm_log_send(NULL, MM_LOG_ERROR, "nobody hears");
}

TEST_CASE(sizes_are_written_for_people) {
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0B"},
        {17, "17B"},
        {1023, "1023B"},
        {1024, "1KiB"},
        {1536, "1.50KiB"},
        {640 * 1024, "640KiB"},
        {INT64_C(12884901888), "12GiB"},
        {INT64_C(13421772800), "12.5GiB"},
        {INT64_C(1) << 40, "1TiB"},
        {(INT64_C(1) << 30) - 1, "1024MiB"},
    };
    char buffer[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(mm_size_format(cases[i].bytes, buffer, sizeof buffer), cases[i].text);
}

TEST_CASE(sizes_are_read_in_every_unit) {
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"17B", 17},
        {"64k", 65536},
        {"64K", 65536},
        {"1KiB", 1024},
        {"300MiB", INT64_C(314572800)},
        {"12GiB", INT64_C(12884901888)},
        {"2g", INT64_C(2147483648)},
        {"1.5GB", INT64_C(1500000000)},
        {"1TB", INT64_C(1000000000000)},
        {"1t", INT64_C(1) << 40},
        {"9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        if (mm_size_parse(cases[i].text, &bytes) != MM_OK || bytes != cases[i].bytes)
            fail_msg("%s: %lld", cases[i].text, (long long)bytes);
    }
}

TEST_CASE(numbers_have_a_point_in_every_locale) {
    char text[MM_NUMBER_CAPACITY], *end;
    int64_t bytes = 0;
    comma_locale_enter();
    assert_true(mm_number_parse("0.5x", &end) == 0.5);
    assert_string_equal(end, "x");
    (void)mm_number_parse("0,5", &end);
    assert_string_equal(end, ",5");
    assert_string_equal(mm_number_format(0.5, text), "0.5");
    assert_int_equal(mm_size_parse("1.5KiB", &bytes), MM_OK);
    assert_int_equal(bytes, 1536);
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* the program's own numbers are left as they are */
    comma_locale_leave();
}

TEST_CASE(numbers_are_as_short_as_they_can_be_to_be_read_back) {
    char text[MM_NUMBER_CAPACITY];
    assert_string_equal(mm_number_format(10, text), "10");
    assert_string_equal(mm_number_format(1.0 / 3, text), "0.3333333333333333");
    assert_string_equal(mm_number_format_float(0.1f, text), "0.1");
    assert_string_equal(mm_number_format_float(1.0f / 3, text), "0.33333334");
}

TEST_CASE(what_is_no_size_is_refused) {
    static const char *const texts[] = {"", "-1", "GiB", "1XB", "1GiBs", "1e30", "9223372036854775808", " 1", "nan"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t bytes = 5;
        if (mm_size_parse(texts[i], &bytes) != MM_ERR_INVALID) fail_msg("'%s' gave %lld", texts[i], (long long)bytes);
        assert_int_equal(bytes, 5);
    }
    int64_t bytes;
    assert_int_equal(mm_size_parse(NULL, &bytes), MM_ERR_INVALID);
}

TEST_CASE(what_is_written_exactly_is_read_back) {
    char buffer[32];
    for (int64_t unit = 1; unit <= INT64_C(1) << 40; unit *= 1024)
        for (int64_t n = 1; n < 1024; n += 37) {
            int64_t bytes;
            assert_int_equal(mm_size_parse(mm_size_format(n * unit, buffer, sizeof buffer), &bytes), MM_OK);
            assert_int_equal(bytes, n * unit);
        }
}
