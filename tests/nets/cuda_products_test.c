/* SPDX-License-Identifier: MIT */
/* Convolutions that are matrix products, and linear layers, on the emulation: cuBLAS's algorithms compete with cuDNN's
 * and compute the same. "Kept" is cached in the algorithms file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nets/cuda/libraries/gemm.h"
#include "tests/nets/algorithms_rig.h"

static const nets_op_desc POINTWISE = {
    .kind = NETS_CONV,
    .attrs = {.out_channels = 16, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1},
    .x = {{4, {8, 12, 12, 8}}},
    .y = {4, {8, 12, 12, 16}},
    .n_inputs = 1,
    .training = true,
    .wants_dx = true,
};
static const nets_conv_shape FORWARD = {.direction = NETS_CONV_FORWARD,
                                        .x = {8, 12, 12, 8},
                                        .y = {8, 12, 12, 16},
                                        .kernel = {1, 1},
                                        .stride = {1, 1},
                                        .dilation = {1, 1},
                                        .groups = 1};
/* Workspace of cuDNN's fast algorithm in plain float32. */
enum { ALGORITHM_BYTES = 4 * (8 * 144 * 8 + 8 * 144 * 16 + 128) + CUDA_EMULATION_FMA_BYTES };

static void check_workspaces(algorithms_rig *f, nets_precision precision, bool deterministic, int64_t output,
                             int64_t gradients) {
    f->config.precision = precision;
    f->config.deterministic = deterministic;
    assert_int_equal(algorithms_workspace(f, &POINTWISE, MM_FORWARD), output);
    assert_int_equal(algorithms_workspace(f, &POINTWISE, MM_BACKWARD), gradients);
}

/* ---------------------------------------------------------------- choosing */

static void the_fastest_product_that_is_allowed_is_taken(void **state) {
    algorithms_rig *f = *state;
    check_workspaces(f, NETS_FP32, false, PRODUCT_SPLIT_BYTES, PRODUCT_INPLACE_BYTES);
    check_workspaces(f, NETS_FP32, true, PRODUCT_SPLIT_BYTES, PRODUCT_SPLIT_BYTES);
    check_workspaces(f, NETS_TF32, false, PRODUCT_TENSOR_CORE_BYTES, PRODUCT_TENSOR_CORE_BYTES);
    check_workspaces(f, NETS_TF32, true, PRODUCT_TENSOR_CORE_BYTES, PRODUCT_TENSOR_CORE_BYTES);
    f->config.workspace_limit_bytes = PRODUCT_SPLIT_BYTES - 1;
    check_workspaces(f, NETS_FP32, true, 0, 0);
    assert_int_equal(f->warnings, 0);
}

/* The algorithms that cuBLAS proposes for a direction: one bit for each. */
static unsigned proposed(const nets_conv_shape *shape, nets_direction direction, nets_conv_bf16 bf16,
                         bool deterministic) {
    const nets_backend_config config = {.precision = bf16 ? NETS_BF16 : NETS_FP32};
    nets_conv_shape s = *shape;
    nets_conv_choice choices[PRODUCTS];
    nets_backend *backend;
    nets_gemm product;
    unsigned bits = 0;
    int n;
    s.direction = (int)direction;
    s.bf16 = (int)bf16;
    assert_int_equal(nets_backend_open("cuda", &config, &backend), MM_OK);
    assert_int_equal(nets_gemm_init(&product, (nets_cuda_backend *)backend, &s), MM_OK);
    assert_int_equal(nets_gemm_propose(&product, 1 << 20, deterministic, PRODUCTS, choices, &n), MM_OK);
    for (int i = 0; i < n; i++) bits |= 1u << choices[i].algorithm;
    nets_backend_close(backend);
    return bits;
}

/* Rounding partial sums to bf16, or adding them in bf16, would give another result than rounding once. */
static void sums_of_bf16_results_are_not_split_in_bf16(void **state) {
    const unsigned inplace = 1u << PRODUCT_INPLACE, rounding = 1u << PRODUCT_ROUNDING, split = 1u << PRODUCT_SPLIT;
    (void)state;
    for (int deterministic = 0; deterministic <= 1; deterministic++) {
        for (int d = NETS_CONV_FORWARD; d <= NETS_CONV_BY_INPUT; d++) {
            const unsigned bits = proposed(&FORWARD, (nets_direction)d, NETS_CONV_BF16, deterministic);
            assert_int_equal(bits & (inplace | rounding | split), split);
        }
        const unsigned of_f32 = inplace | rounding | split, expected = deterministic ? rounding | split : of_f32;
        assert_int_equal(proposed(&FORWARD, NETS_CONV_BY_WEIGHTS, NETS_CONV_BF16, deterministic) & of_f32, expected);
        assert_int_equal(proposed(&FORWARD, NETS_CONV_FORWARD, NETS_CONV_BF16_TO_F32, deterministic) & of_f32,
                         expected);
        assert_int_equal(proposed(&FORWARD, NETS_CONV_FORWARD, (nets_conv_bf16)0, deterministic) & of_f32, expected);
    }
}

static void an_algorithm_or_engine_that_is_faster_is_taken(void **state) {
    algorithms_rig *f = *state;
    nets_op_desc desc = POINTWISE;
    desc.training = desc.wants_dx = false;
    cuda_emulation_blas_slow_products(100);
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), ALGORITHM_BYTES);
    cuda_emulation_dnn_slow_engines(0.1);
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), ENGINE_PLAIN_BYTES);
}

/* Convolutions with kernels of several pixels, strides, padding or groups are no matrix products. */
static void what_is_no_product_is_not_given_to_cublas(void **state) {
    algorithms_rig *f = *state;
    nets_op_desc none[4];
    for (int i = 0; i < 4; i++) none[i] = POINTWISE;
    none[0].attrs.kernel[1] = 2;
    none[0].y.dims[2] = 11;
    none[1].attrs.stride[0] = 2;
    none[1].y.dims[1] = 6;
    none[2].attrs.pad[1] = 1;
    none[2].y.dims[2] = 14;
    none[3].attrs.groups = 2;
    long asked = cuda_emulation_calls("cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < 4; i++) algorithms_workspace(f, &none[i], MM_BACKWARD);
    assert_int_equal(cuda_emulation_calls("cublasLtMatmulAlgoGetHeuristic"), asked);
    algorithms_workspace(f, &POINTWISE, MM_BACKWARD);
    assert_true(cuda_emulation_calls("cublasLtMatmulAlgoGetHeuristic") > asked);
}

/* Nothing is timed: the emulated device is too small. */
static void matrices_of_more_than_2_to_the_31_elements_are_products(void **state) {
    algorithms_rig *f = *state;
    nets_op_desc huge = POINTWISE;
    huge.training = huge.wants_dx = false;
    huge.x[0].dims[0] = huge.y.dims[0] = INT64_C(1) << 21;
    f->config.log.level = MM_LOG_DEBUG;
    f->looked_for = "  product 0: taken";
    algorithms_workspace(f, &huge, MM_FORWARD);
    assert_int_equal(f->found, 1);
}

static void a_product_is_timed_once_and_then_known_also_without_a_device(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    check_workspaces(f, NETS_TF32, false, PRODUCT_TENSOR_CORE_BYTES, PRODUCT_TENSOR_CORE_BYTES);
    long executed = cuda_emulation_blas_executed(), timed = cuda_emulation_dnn_timed();
    check_workspaces(f, NETS_TF32, false, PRODUCT_TENSOR_CORE_BYTES, PRODUCT_TENSOR_CORE_BYTES);
    assert_int_equal(cuda_emulation_blas_executed(), executed);
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
    cuda_emulation_set_devices(0);
    check_workspaces(f, NETS_TF32, false, PRODUCT_TENSOR_CORE_BYTES, PRODUCT_TENSOR_CORE_BYTES);
    assert_int_equal(f->warnings, 0);
}

static void without_memory_to_time_in_cublass_guess_is_taken_and_not_kept(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    cuda_emulation_fail("cudaMalloc", 2, cudaErrorMemoryAllocation); /* the first call is the backend's own */
    assert_int_equal(algorithms_workspace(f, &POINTWISE, MM_FORWARD), 0);
    assert_true(cuda_emulation_failed());
    assert_int_equal(f->warnings, 1);
    check_workspaces(f, NETS_FP32, false, PRODUCT_SPLIT_BYTES, PRODUCT_INPLACE_BYTES);
}

static int messages_with(algorithms_rig *f, const char *text) {
    f->config.log.level = MM_LOG_DEBUG;
    f->looked_for = text;
    f->found = 0;
    algorithms_workspace(f, &POINTWISE, MM_FORWARD);
    return f->found;
}

static void the_log_says_what_was_tried_and_why_not(void **state) {
    algorithms_rig *f = *state;
    f->config.deterministic = true;
    static const char *const WHY[] = {"taken: 250000", "cuBLAS: a product's algorithm: ", "cuBLAS: a product: "};
    for (size_t i = 0; i < sizeof WHY / sizeof WHY[0]; i++) assert_true(messages_with(f, WHY[i]) > 0);
}

/* ---------------------------------------------------------------- what was kept */

/* cuBLAS's opaque description of an algorithm, as the emulation lays it out: attributes of 32 bits. */
static nets_conv_choice kept_product(int number, int64_t bytes, uint32_t tile, uint32_t splits, uint32_t scheme,
                                     uint32_t stages) {
    const uint32_t attributes[16] = {
        (uint32_t)number, tile, splits, scheme, 0, 0, stages, 0, number == PRODUCT_TENSOR_CORE ? 3 : 0};
    nets_conv_choice c = {.api = NETS_CONV_PRODUCT, .algorithm = number, .workspace_bytes = bytes, .n_knobs = 8};
    for (int i = 0; i < 8; i++) {
        c.knobs[i].type = i;
        memcpy(&c.knobs[i].value, &attributes[2 * i], sizeof c.knobs[i].value);
    }
    return c;
}

static void a_kept_product_that_no_longer_holds_is_made_anew(void **state) {
    algorithms_rig *f = *state;
    const nets_conv_choice gone[] = {
        kept_product(PRODUCTS, 0, 20, 1, 0, 0),                            /* no such algorithm */
        kept_product(PRODUCT_GONE, 0, 23, 1, 0, 0),                        /* not on this device */
        kept_product(PRODUCT_TENSOR_CORE, 5000, 18, 1, 0, 8),              /* not in this precision */
        kept_product(PRODUCT_PLAIN, 5000, 20, 4, 0, 0),                    /* no such configuration */
        {.api = NETS_CONV_PRODUCT, .workspace_bytes = 5000, .n_knobs = 7}, /* another library's number of words */
        kept_product(PRODUCT_SPLIT, PRODUCT_SPLIT_BYTES - 1, 20, 4, 2, 12),
    };
    f->config.algorithms_path = f->path;
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        algorithms_workspace(f, &POINTWISE, MM_FORWARD);
        algorithms_keep_instead(f, &FORWARD, &gone[i]);
        long timed = cuda_emulation_dnn_timed();
        assert_int_equal(algorithms_workspace(f, &POINTWISE, MM_FORWARD), PRODUCT_SPLIT_BYTES);
        assert_true(cuda_emulation_dnn_timed() > timed);
    }
    const nets_conv_choice holds = kept_product(PRODUCT_PLAIN, 0, 20, 1, 0, 0);
    algorithms_keep_instead(f, &FORWARD, &holds);
    long timed = cuda_emulation_dnn_timed();
    assert_int_equal(algorithms_workspace(f, &POINTWISE, MM_FORWARD), 0);
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
}

/* fits 0: the file holds one byte less than the algorithm takes, so algorithms are timed anew; 1: the right size, and
 * the stored choice is used. */
static void a_kept_product_that_takes_more_now_is_made_anew(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    f->config.deterministic = true;
    algorithms_workspace(f, &POINTWISE, MM_FORWARD);
    nets_conv_choice less = kept_product(PRODUCT_SPLIT, PRODUCT_SPLIT_BYTES - 1, 20, 4, 2, 12);
    for (int fits = 0; fits < 2; fits++) {
        less.workspace_bytes += fits;
        algorithms_keep_instead(f, &FORWARD, &less);
        long timed = cuda_emulation_dnn_timed();
        assert_int_equal(algorithms_workspace(f, &POINTWISE, MM_FORWARD), PRODUCT_SPLIT_BYTES);
        assert_true(fits ? cuda_emulation_dnn_timed() == timed : cuda_emulation_dnn_timed() > timed);
    }
}

static void a_product_kept_for_what_is_none_is_made_anew(void **state) {
    algorithms_rig *f = *state;
    nets_op_desc strided = POINTWISE;
    nets_conv_shape shape = FORWARD;
    strided.attrs.stride[0] = shape.stride[0] = 2;
    strided.y.dims[1] = shape.y[1] = 6;
    f->config.algorithms_path = f->path;
    const int64_t bytes = algorithms_workspace(f, &strided, MM_FORWARD);
    algorithms_keep_instead(f, &shape, &(nets_conv_choice){.api = NETS_CONV_PRODUCT, .algorithm = PRODUCT_PLAIN});
    long timed = cuda_emulation_dnn_timed();
    assert_int_equal(algorithms_workspace(f, &strided, MM_FORWARD), bytes);
    assert_true(cuda_emulation_dnn_timed() > timed);
}

/* ---------------------------------------------------------------- computing */

/* Computes the op by a cuDNN algorithm, then by each cuBLAS algorithm that does not round partial sums. The bits must
 * be equal, because all algorithms of the emulation add in the same order. */
static void check_sums(const nets_op_desc *desc, bool adds) {
    static const struct {
        double slow;
        bool deterministic;
        int64_t limit;
    } BY[] = {{100, true, 1 << 20}, {1, true, 1 << 20}, {1, false, 1 << 20}, {1, false, PRODUCT_INPLACE_BYTES - 1}};
    enum { WAYS = sizeof BY / sizeof BY[0] };
    static const nets_role outputs[] = {NETS_Y, NETS_DX, NETS_DW};
    op_rig rigs[WAYS];
    for (int way = 0; way < WAYS; way++) {
        const nets_backend_config config = {.workspace_limit_bytes = BY[way].limit,
                                            .deterministic = BY[way].deterministic};
        cuda_emulation_blas_slow_products(BY[way].slow);
        cuda_emulation_dnn_slow_engines(10);
        op_rig_init(&rigs[way], desc->kind, &desc->attrs, desc->x[0].dims, true, true);
        op_rig_reopen(&rigs[way], &config); /* its configuration has no file, so each rig times again */
        if (adds) op_rig_give_earlier(&rigs[way], rigs[way].args.at[NETS_X]);
        long executed = cuda_emulation_blas_executed();
        for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) op_rig_run(&rigs[way], phase);
        assert_true(way ? cuda_emulation_blas_executed() > executed : cuda_emulation_blas_executed() == executed);
        for (int i = 0; i < 3; i++)
            assert_memory_equal(rigs[0].args.at[outputs[i]], rigs[way].args.at[outputs[i]],
                                (size_t)rigs[0].bytes[outputs[i]]);
    }
    for (int way = 0; way < WAYS; way++) op_rig_fini(&rigs[way]);
}

static void products_compute_what_algorithms_compute(void **state) {
    (void)state;
    static const nets_op_desc CASES[] = {
        {.kind = NETS_CONV, .attrs = {.out_channels = 12, .kernel = {1, 1}, .bias = true}, .x = {{4, {2, 6, 4, 8}}}},
        {.kind = NETS_CONV, .attrs = {.out_channels = 5, .kernel = {1, 1}}, .x = {{4, {3, 7, 5, 3}}}},
        {.kind = NETS_CONV,
         .attrs = {.out_channels = 1, .kernel = {1, 1}, .dilation = {2, 3}},
         .x = {{4, {1, 1, 9, 1}}}},
        {.kind = NETS_CONV_TRANSPOSE, .attrs = {.out_channels = 7, .kernel = {1, 1}}, .x = {{4, {2, 3, 5, 6}}}},
        {.kind = NETS_LINEAR, .attrs = {.out_channels = 10, .bias = true}, .x = {{4, {3, 1, 1, 17}}}},
        {.kind = NETS_LINEAR, .attrs = {.out_channels = 4}, .x = {{4, {2, 3, 5, 6}}}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        for (int adds = 0; adds < 2; adds++) check_sums(&CASES[i], adds);
}

static nets_op_desc of_one_pixel(nets_op_kind kind) {
    nets_op_desc desc = POINTWISE;
    desc.kind = kind;
    desc.x[0].dims[1] = desc.x[0].dims[2] = desc.y.dims[1] = desc.y.dims[2] = 1;
    return desc;
}

static void layers_of_one_shape_are_timed_once(void **state) {
    algorithms_rig *f = *state;
    const nets_op_desc conv = of_one_pixel(NETS_CONV), linear = of_one_pixel(NETS_LINEAR);
    f->config.algorithms_path = f->path;
    algorithms_workspace(f, &conv, MM_BACKWARD);
    long timed = cuda_emulation_dnn_timed();
    assert_int_equal(algorithms_workspace(f, &linear, MM_BACKWARD), PRODUCT_INPLACE_BYTES);
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
}

/* Checks the workspace of an output that an engine computes, because cuBLAS proposes nothing. */
static void check_output_by_engine(const algorithms_rig *f, nets_op_kind kind, int64_t bytes) {
    nets_op_desc desc = of_one_pixel(kind);
    desc.training = desc.wants_dx = false;
    cuda_emulation_fail("cublasLtMatmulAlgoGetHeuristic", 1, cudaErrorMemoryAllocation);
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), bytes);
}

/* A linear layer may take 32 MiB; a convolution of its shape 256 MiB, on tensor cores more. The order in which the two
 * are chosen does not matter. */
static void a_linear_layer_keeps_to_its_own_limit(void **state) {
    static const int64_t TAKES[] = {33 << 20, NETS_WORKSPACE_LIMIT_BYTES + 256};
    algorithms_rig *f = *state;
    f->config = (nets_backend_config){.precision = NETS_TF32, .algorithms_path = f->path, .log = f->config.log};
    cuda_emulation_dnn_slow_engines(0.1);
    for (int i = 0; i < 2; i++)
        for (int first = 0; first < 2; first++) {
            cuda_emulation_dnn_tensor_core_bytes(TAKES[i]);
            if (first) check_output_by_engine(f, NETS_LINEAR, ENGINE_PLAIN_BYTES);
            check_output_by_engine(f, NETS_CONV, TAKES[i]);
            if (!first) check_output_by_engine(f, NETS_LINEAR, ENGINE_PLAIN_BYTES);
            unlink(f->path);
        }
    assert_int_equal(f->warnings, 0);
}

/* ---------------------------------------------------------------- failures */

/* Fails one call of cuBLAS at a time: an op then chooses among fewer products, or only among cuDNN's algorithms. */
static void where_cublas_fails_others_are_taken(void **state) {
    static const char *const CALLS[] = {"cublasLtMatmulAlgoGetHeuristic",
                                        "cublasLtMatmulAlgoConfigGetAttribute",
                                        "cublasLtMatmulDescInit",
                                        "cublasLtMatmulDescSetAttribute",
                                        "cublasLtMatrixLayoutInit",
                                        "cublasLtMatmulAlgoCheck",
                                        "cublasLtMatmul"};
    algorithms_rig *f = *state;
    nets_op_desc desc = POINTWISE;
    desc.training = desc.wants_dx = false;
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        long before = cuda_emulation_calls(CALLS[i]);
        algorithms_workspace(f, &desc, MM_FORWARD);
        long calls = cuda_emulation_calls(CALLS[i]) - before;
        assert_true(calls > 0);
        for (long nth = 1; nth <= calls; nth++) {
            cuda_emulation_fail(CALLS[i], nth, cudaErrorMemoryAllocation);
            int64_t bytes = algorithms_workspace(f, &desc, MM_FORWARD);
            assert_true(cuda_emulation_failed());
            assert_true(bytes == PRODUCT_SPLIT_BYTES || bytes == 0 || bytes == ALGORITHM_BYTES);
            assert_int_equal(cuda_emulation_alive_get().device_bytes, 0);
        }
    }
    cuda_emulation_fail(CALLS[0], 1, cudaErrorMemoryAllocation);
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), ALGORITHM_BYTES);
    assert_int_equal(f->warnings, 0);
}

static void an_algorithm_that_cannot_be_read_is_skipped(void **state) {
    algorithms_rig *f = *state;
    f->config.precision = NETS_TF32;
    cuda_emulation_blas_unreadable(PRODUCT_SPLIT);
    const int64_t bytes = algorithms_workspace(f, &POINTWISE, MM_FORWARD);
    cuda_emulation_blas_unreadable(-1);
    assert_int_equal(bytes, PRODUCT_TENSOR_CORE_BYTES);
}

static void a_launch_of_a_product_that_fails_is_reported(void **state) {
    static const char *const CALLS[] = {"cublasLtMatmul", "kernel_launch"};
    algorithms_rig *f = *state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &POINTWISE.attrs, POINTWISE.x[0].dims, true, true);
    op_rig_reopen(&rig, &f->config);
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        cuda_emulation_fail(CALLS[i], 1, cudaErrorMemoryAllocation);
        assert_int_equal(nets_op_enqueue(rig.op, MM_FORWARD, &rig.args, rig.stream), MM_ERR_NOMEM);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    }
    op_rig_run(&rig, MM_FORWARD);
    op_rig_fini(&rig);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, algorithms_setup, algorithms_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_fastest_product_that_is_allowed_is_taken),
        CASE(sums_of_bf16_results_are_not_split_in_bf16),
        CASE(an_algorithm_or_engine_that_is_faster_is_taken),
        CASE(what_is_no_product_is_not_given_to_cublas),
        CASE(matrices_of_more_than_2_to_the_31_elements_are_products),
        CASE(a_product_is_timed_once_and_then_known_also_without_a_device),
        CASE(without_memory_to_time_in_cublass_guess_is_taken_and_not_kept),
        CASE(the_log_says_what_was_tried_and_why_not),
        CASE(a_kept_product_that_no_longer_holds_is_made_anew),
        CASE(a_kept_product_that_takes_more_now_is_made_anew),
        CASE(a_product_kept_for_what_is_none_is_made_anew),
        CASE(products_compute_what_algorithms_compute),
        CASE(layers_of_one_shape_are_timed_once),
        CASE(a_linear_layer_keeps_to_its_own_limit),
        CASE(where_cublas_fails_others_are_taken),
        CASE(an_algorithm_that_cannot_be_read_is_skipped),
        CASE(a_launch_of_a_product_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
