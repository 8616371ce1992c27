/* What tests expect of every call that can fail. */
#ifndef TESTS_CORE_EXPECT_H
#define TESTS_CORE_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mm/mm.h"

/* Fails the test, saying what went wrong. A macro, so that it is told of the caller's line. */
#define expect_ok(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != MM_OK) fail_msg("%s", mm_last_error());                                                          \
    } while (0)

#endif
