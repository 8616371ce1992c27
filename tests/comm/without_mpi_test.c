/* SPDX-License-Identifier: MIT */
/* A build without MPI and CUDA knows both backends by name, and says that it does not have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "nets/comm/comm.h"

static void both_backends_are_refused_by_name(void **state) {
    (void)state;
    comm *m;
    assert_int_equal(comm_open(&(comm_config){.backend = "mpi"}, &m), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "this build has no communicator mpi"));
    assert_int_equal(comm_open(&(comm_config){.backend = "nccl"}, &m), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "this build has no communicator nccl"));
    assert_int_equal(comm_probe(&(comm_config){.backend = "nccl"}, 2), MM_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_backends_are_refused_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
