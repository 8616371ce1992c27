/* SPDX-License-Identifier: MIT */
#include "tests/core/test_case.h"

enum { MOST = 256 }; /* more than any program has */

static struct CMUnitTest cases[MOST];
static size_t n;

void test_case_add(const char *name, CMUnitTestFunction run) {
    if (n < MOST) cases[n] = (struct CMUnitTest){name, run, NULL, NULL, NULL};
    n++;
}

int main(void) {
    if (n > MOST) {
        print_error("more than %d cases: raise MOST in tests/core/test_case.c\n", MOST);
        return 1;
    }
    struct CMUnitTest(*all)[n] = (struct CMUnitTest(*)[n]) & cases; /* the macro counts the elements by the type */
    return cmocka_run_group_tests(*all, NULL, NULL);
}
