/* SPDX-License-Identifier: MIT */
/* A build where there is neither MPI nor CUDA knows both engines by name, and says why it has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "nets/multi/multi.h"

static void both_engines_are_refused_by_name(void **state) {
    (void)state;
    multi *m;
    assert_null(multi_list(0, NULL));
    assert_int_equal(multi_open(&(multi_config){.engine = "mpi"}, &m), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "this build has no engine mpi"));
    assert_int_equal(multi_open(&(multi_config){.engine = "nccl"}, &m), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "this build has no engine nccl"));
    assert_int_equal(multi_probe(&(multi_config){.engine = "nccl"}, 2), MM_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_engines_are_refused_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
