/* SPDX-License-Identifier: MIT */
/* Assertion for calls that return a status. */
#ifndef TESTS_CORE_EXPECT_H
#define TESTS_CORE_EXPECT_H

#include "mm/mm.h"
#include "tests/core/test_case.h"

/* Fails the test with mm_last_error unless the call returns MM_OK. A macro, so that the caller's line is reported. */
#define expect_ok(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != MM_OK) fail_msg("%s", mm_last_error());                                                          \
    } while (0)

#endif
