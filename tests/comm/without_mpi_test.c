/* SPDX-License-Identifier: MIT */
/* A build without MPI and CUDA knows both backends by name, and says that it does not have them. */
#include <string.h>

#include "nets/comm/comm.h"
#include "tests/core/test_case.h"

TEST_CASE(both_backends_are_refused_by_name) {
    comm *m;
    assert_int_equal(comm_open(&(comm_config){.backend = "mpi"}, &m), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "this build has no communicator mpi"));
    assert_int_equal(comm_open(&(comm_config){.backend = "nccl"}, &m), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "this build has no communicator nccl"));
    assert_int_equal(comm_probe(&(comm_config){.backend = "nccl"}, 2), MM_ERR_UNSUPPORTED);
}
