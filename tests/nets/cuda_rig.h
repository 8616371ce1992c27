/* SPDX-License-Identifier: MIT */
/* Setup and teardown of tests of the CUDA backend on the emulation. Include it after <cmocka.h>. */
#ifndef TESTS_NETS_CUDA_RIG_H
#define TESTS_NETS_CUDA_RIG_H

#include <cudnn.h>

#include "tests/cuda_emulation/control.h"
#include "tests/cuda_emulation/libraries.h"
#include "tests/nets/op_rig.h"

static inline int cuda_rig_setup(void **state) {
    (void)state;
    cuda_emulation_reset();
    op_rig_use("cuda");
    return 0;
}

static inline int cuda_rig_teardown(void **state) {
    (void)state;
    cuda_emulation_dnn_slow_engines(1);
    cuda_emulation_blas_slow_products(1);
    cuda_emulation_blas_factor_sums(SUMS_RIGHT);
    cuda_emulation_dnn_tensor_core_bytes(ENGINE_TENSOR_CORE_BYTES);
    cuda_emulation_dnn_version(CUDNN_VERSION);
    cuda_emulation_dnn_outputs(OUTPUTS_RIGHT);
    cuda_emulation_dnn_unordered(false);
    assert_int_equal(cuda_emulation_dnn_descriptors(), 0);
    cuda_emulation_reset();
    cuda_emulation_set_devices(1);
    return 0;
}

#endif
