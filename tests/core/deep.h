/* SPDX-License-Identifier: MIT */
/* How much a test does: as few cases as show a fault of each class, or, with MM_TEST_DEEP in the environment
 * (bazel test --config=deep, tools/test --deep), all of them. */
#ifndef TESTS_CORE_DEEP_H
#define TESTS_CORE_DEEP_H

#include <stdbool.h>
#include <stdlib.h>

static inline int test_depth(int usual, int deep) { return getenv("MM_TEST_DEEP") ? deep : usual; }

/* Whether a sanitizer looks on, and the test is not deep. Under one a test takes two to ten times as long; what it
 * finds depends on the code that runs, not on how often it runs. */
static inline bool test_is_sanitized(void) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return test_depth(1, 0);
#else
    return false;
#endif
}

/* Whether each access of a kernel is checked (kernel_check_test), which takes ten times as long, and not deep. */
static inline bool test_is_slow(void) { return getenv("MM_KERNEL_CHECK") && test_depth(1, 0); }

#endif
