/* SPDX-License-Identifier: MIT */
/* Cases of a test program. A file that defines them has no main: //tests/core:test_case runs them in the order in which
 * the file defines them.
 *
 *     TEST_CASE(an_empty_plan_needs_nothing) {
 *         assert_int_equal(mm_plan_base(...), 0);
 *     } */
#ifndef TESTS_CORE_TEST_CASE_H
#define TESTS_CORE_TEST_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Adds a case to those that main runs. */
void test_case_add(const char *name, CMUnitTestFunction run);

#define TEST_CASE(name)                                                                                                \
    static void name(void);                                                                                            \
    static void name##_run(void **state) {                                                                             \
        (void)state;                                                                                                   \
        name();                                                                                                        \
    }                                                                                                                  \
    __attribute__((constructor)) static void name##_add(void) { test_case_add(#name, name##_run); }                    \
    static void name(void)

#endif
