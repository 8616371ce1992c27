/* SPDX-License-Identifier: MIT */
/* Checks the table of devices, and runs the suite on every device of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/contract/device.h"
#include "tests/device/device_suite.h"

static void the_table_has_the_host_and_names_are_unique(void **state) {
    (void)state;
    bool host = false;
    for (size_t i = 0; mm_device_table(i) != NULL; i++) {
        const mm_device_ops *ops = mm_device_table(i);
        assert_true(strlen(ops->name) > 0 && strlen(ops->summary) > 0);
        host = host || strcmp(ops->name, "host") == 0;
        for (size_t j = 0; j < i; j++) assert_string_not_equal(ops->name, mm_device_table(j)->name);
    }
    assert_true(host);
}

static void the_table_ends_and_stays_ended(void **state) {
    (void)state;
    size_t n = 0;
    while (mm_device_table(n) != NULL) n++;
    assert_null(mm_device_table(n + 1));
    assert_null(mm_device_table((size_t)-1));
}

static void an_unknown_device_is_not_found_and_the_message_lists_those_there_are(void **state) {
    (void)state;
    mm_device *device = NULL;
    assert_int_equal(mm_device_create("abacus", NULL, &device), MM_ERR_NOT_FOUND);
    assert_null(device);
    assert_non_null(strstr(mm_last_error(), "abacus"));
    for (size_t i = 0; mm_device_table(i) != NULL; i++)
        assert_non_null(strstr(mm_last_error(), mm_device_table(i)->name));
}

static void a_negative_config_is_invalid(void **state) {
    (void)state;
    const mm_device_config configs[] = {
        {.link_out_bytes_per_s = -1}, {.link_in_bytes_per_s = -1}, {.alloc_cost_ns = -1}, {.delay_max_ns = -1}};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        mm_device *device = NULL;
        assert_int_equal(mm_device_create("host", &configs[i], &device), MM_ERR_INVALID);
        assert_null(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_the_host_and_names_are_unique),
        cmocka_unit_test(the_table_ends_and_stays_ended),
        cmocka_unit_test(an_unknown_device_is_not_found_and_the_message_lists_those_there_are),
        cmocka_unit_test(a_negative_config_is_invalid),
    };
    int failed = cmocka_run_group_tests_name("table", tests, NULL, NULL);
    for (size_t i = 0; mm_device_table(i) != NULL; i++) failed += device_suite_run(mm_device_table(i)->name);
    return failed == 0 ? 0 : 1;
}
