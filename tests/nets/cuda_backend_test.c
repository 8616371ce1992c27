/* SPDX-License-Identifier: MIT */
/* The CUDA backend on the emulation, apart from its results: how products are rounded, which calls enqueuing makes, and
 * that captured work reads the learning rate and iteration from device memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/cuda/device_cuda.h"
#include "nets/contract/op_batch_norm.h"
#include "tests/nets/cuda_rig.h"

/* ---------------------------------------------------------------- precision */

static void check_precision(nets_op_kind kind, const nets_attrs *attrs) {
    op_rig rig;
    op_rig_init(&rig, kind, attrs, (const int64_t[4]){2, 5, 5, 12}, true, true);
    const nets_role outputs[] = {NETS_Y, NETS_DX, NETS_DW};
    float *exact[3];
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    for (int i = 0; i < 3; i++) {
        exact[i] = malloc((size_t)rig.bytes[outputs[i]]);
        assert_non_null(exact[i]);
        memcpy(exact[i], rig.args.at[outputs[i]], (size_t)rig.bytes[outputs[i]]);
    }
    op_rig_reopen(&rig, &(nets_backend_config){.precision = NETS_TF32, .workspace_limit_bytes = 1 << 20});
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    for (int i = 0; i < 3; i++) {
        double apart = 0, largest = 0;
        for (int64_t e = 0; e < op_rig_elems(&rig, outputs[i]); e++) {
            apart = fmax(apart, fabs((double)op_rig_floats(&rig, outputs[i])[e] - exact[i][e]));
            largest = fmax(largest, fabs((double)exact[i][e]));
        }
        assert_true(apart > 1e-6 * largest && apart < 2e-3 * largest);
        free(exact[i]);
    }
    op_rig_fini(&rig);
}

static void tf32_rounds_the_factors_of_each_product_and_fp32_none(void **state) {
    (void)state;
    check_precision(NETS_CONV, &(nets_attrs){.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}});
    check_precision(NETS_CONV_TRANSPOSE, &(nets_attrs){.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}});
    check_precision(NETS_CONV, &(nets_attrs){.out_channels = 8, .kernel = {1, 1}});
    check_precision(NETS_LINEAR, &(nets_attrs){.out_channels = 8});
}

/* ---------------------------------------------------------------- enqueuing */

typedef struct counts {
    long of[128];
} counts;

static counts count(void) {
    counts c = {{0}};
    for (size_t i = 0; cuda_emulation_name(i); i++) {
        assert_true(i < sizeof c.of / sizeof c.of[0]);
        c.of[i] = cuda_emulation_calls_here(cuda_emulation_name(i));
    }
    return c;
}

/* Allows only launches, copies, products, cuDNN's calls that pass pointers, error checks, and the choice of the GPU. */
static void check_calls(const counts *before) {
    counts after = count();
    for (size_t i = 0; cuda_emulation_name(i); i++) {
        const char *name = cuda_emulation_name(i);
        if (after.of[i] != before->of[i] && strcmp(name, "cudaGetLastError") != 0 &&
            strcmp(name, "kernel_launch") != 0 && strcmp(name, "cudaMemcpyAsync") != 0 &&
            strcmp(name, "cublasLtMatmul") != 0 && strncmp(name, "cudnnBackend", 12) != 0 &&
            strncmp(name, "cuCtx", 5) != 0)
            fail_msg("%s was called", name);
    }
}

static void enqueuing_calls_nothing_that_allocates_or_waits(void **state) {
    (void)state;
    static const struct {
        nets_op_kind kind;
        nets_attrs attrs;
    } ops[] = {
        {NETS_CONV, {.out_channels = 8, .kernel = {3, 3}, .bias = true}},
        {NETS_CONV, {.out_channels = 8, .kernel = {1, 1}, .bias = true}},
        {NETS_CONV_TRANSPOSE, {.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}, .bias = true}},
        {NETS_BATCH_NORM, {.eps = 0}},
        {NETS_LRN, {.size = 5}},
        {NETS_RELU, {.eps = 0}},
        {NETS_MAX_POOL, {.kernel = {2, 2}}},
        {NETS_AVG_POOL, {.kernel = {2, 2}}},
        {NETS_GLOBAL_AVG_POOL, {.eps = 0}},
        {NETS_LINEAR, {.out_channels = 8, .bias = true}},
        {NETS_ADD, {.eps = 0}},
        {NETS_CROP, {.out_size = {2, 2}}},
        {NETS_UPSAMPLE, {.scale = {2, 2}, .bilinear = true}},
        {NETS_DROPOUT, {.p = 0.5f}},
        {NETS_LOSS, {.eps = 0}},
    };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        op_rig rig;
        op_rig_init(&rig, ops[i].kind, &ops[i].attrs, (const int64_t[4]){2, 6, 6, 8}, true, true);
        op_rig_give_earlier(&rig, rig.args.at[NETS_X]);
        counts before = count();
        for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++)
            assert_int_equal(nets_op_enqueue(rig.op, phase, &rig.args, rig.stream), MM_OK);
        check_calls(&before);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        op_rig_fini(&rig);
    }
}

/* A batch norm's passes over memory are its only launches: the first pass also joins its partial sums. */
static void fused_layers_take_no_launches_of_their_own(void **state) {
    (void)state;
    static const struct {
        nets_op_kind kind;
        int inputs;
        long launches[2];
    } ops[] = {{NETS_BATCH_NORM, 1, {2, 2}}, {NETS_BATCH_NORM, 2, {2, 2}}, {NETS_RELU, 1, {1, 1}}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        op_rig rig;
        op_rig_init_fused(&rig, ops[i].kind, NULL, (const int64_t[4]){2, 6, 6, 8}, ops[i].inputs, true, true);
        for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
            counts before = count();
            const long launches = cuda_emulation_calls_here("kernel_launch");
            assert_int_equal(nets_op_enqueue(rig.op, phase, &rig.args, rig.stream), MM_OK);
            assert_int_equal(cuda_emulation_calls_here("kernel_launch") - launches, ops[i].launches[phase]);
            check_calls(&before);
        }
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        op_rig_fini(&rig);
    }
}

static void a_batch_norm_that_is_given_its_statistics_is_one_launch(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init_fused(&rig, NETS_BATCH_NORM, NULL, (const int64_t[4]){2, 6, 6, 8}, 2, true, true);
    rig.args.given_roles = NETS_STATISTICS_BITS;
    const long launches = cuda_emulation_calls_here("kernel_launch");
    assert_int_equal(nets_op_enqueue(rig.op, MM_FORWARD, &rig.args, rig.stream), MM_OK);
    assert_int_equal(cuda_emulation_calls_here("kernel_launch") - launches, 1);
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    op_rig_fini(&rig);
}

static void what_libraries_get_no_memory_for_is_no_failure_of_the_device(void **state) {
    (void)state;
    static const nets_op_kind kinds[] = {NETS_CONV, NETS_LINEAR};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        op_rig rig;
        op_rig_init(&rig, kinds[i], &(nets_attrs){.out_channels = 8, .kernel = {1, 1}}, (const int64_t[4]){2, 6, 6, 8},
                    true, true);
        long launches = cuda_emulation_calls("kernel_launch");
        op_rig_run(&rig, MM_FORWARD);
        launches = cuda_emulation_calls("kernel_launch") - launches;
        int out_of_memory = 0;
        for (long nth = 1; nth <= launches; nth++) { /* a launch of a kernel of ours, or of the library */
            cuda_emulation_fail("kernel_launch", nth, cudaErrorMemoryAllocation);
            out_of_memory += nets_op_enqueue(rig.op, MM_FORWARD, &rig.args, rig.stream) == MM_ERR_NOMEM;
            assert_true(cuda_emulation_failed());
            assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        }
        assert_int_equal(out_of_memory, launches);
        op_rig_fini(&rig);
    }
}

/* ---------------------------------------------------------------- captured work */

typedef struct captured {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
} captured;

static captured end_capture(cudaStream_t stream) {
    captured c;
    assert_int_equal(cudaStreamEndCapture(stream, &c.graph), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&c.exec, c.graph, 0), cudaSuccess);
    return c;
}

static void replay(const captured *c, op_rig *rig) {
    assert_int_equal(cudaGraphLaunch(c->exec, mm_cuda_stream(rig->stream)), cudaSuccess);
    assert_int_equal(mm_stream_sync(rig->stream), MM_OK);
}

static void destroy_captured(captured *c) {
    assert_int_equal(cudaGraphExecDestroy(c->exec), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(c->graph), cudaSuccess);
}

/* One captured graph runs three iterations; each has another learning rate and other dropped elements. */
static void captured_work_reads_learning_rate_and_iteration_when_it_runs(void **state) {
    (void)state;
    enum { N = 5000 };
    op_rig rig, plain;
    op_rig_init(&rig, NETS_DROPOUT, &(nets_attrs){.p = 0.5f}, (const int64_t[4]){1, 10, 10, 50}, true, true);
    op_rig_init(&plain, NETS_DROPOUT, &(nets_attrs){.p = 0.5f}, (const int64_t[4]){1, 10, 10, 50}, true, true);
    float *lr = op_rig_alloc(&rig, 4), *momentum = op_rig_alloc(&rig, 4 * N);
    float *weight = op_rig_alloc(&rig, 4 * N), expected = 0;
    const nets_update_param param = {
        .weight = weight, .state = {momentum}, .gradient = rig.args.at[NETS_X], .elems = N, .decayed = true};
    const nets_update_args args = {.params = &param, .n_params = 1, .lr = lr, .rng = rig.args.at[NETS_RNG]};
    cudaStream_t stream = mm_cuda_stream(rig.stream);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(nets_op_enqueue(rig.op, MM_FORWARD, &rig.args, rig.stream), MM_OK);
    assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
    captured c = end_capture(stream);
    for (int i = 0; i < 3; i++) {
        *lr = 0.25f * (float)(i + 1);
        replay(&c, &rig);
        ((uint32_t *)plain.args.at[NETS_RNG])[2] = (uint32_t)i;
        op_rig_run(&plain, MM_FORWARD);
        assert_memory_equal(rig.args.at[NETS_Y], plain.args.at[NETS_Y], 4 * N);
        expected -= 0.25f * (float)(i + 1) * op_rig_floats(&rig, NETS_X)[7];
        assert_true(fabsf(weight[7] - expected) < 1e-6f);
        memset(momentum, 0, 4 * N);
    }
    destroy_captured(&c);
    op_rig_fini(&rig);
    op_rig_fini(&plain);
}

static void check_captured(nets_op_kind kind, const nets_attrs *attrs) {
    op_rig rig, plain;
    const int64_t x[4] = {2, 6, 5, 8};
    op_rig_init(&rig, kind, attrs, x, true, true);
    op_rig_init(&plain, kind, attrs, x, true, true);
    cudaStream_t stream = mm_cuda_stream(rig.stream);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++)
        assert_int_equal(nets_op_enqueue(rig.op, phase, &rig.args, rig.stream), MM_OK);
    captured c = end_capture(stream);
    for (uint32_t i = 0; i < 2; i++) {
        op_rig_fill(&rig, NETS_X, 40 + i);
        op_rig_fill(&plain, NETS_X, 40 + i);
        replay(&c, &rig);
        for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) op_rig_run(&plain, phase);
        assert_memory_equal(rig.args.at[NETS_Y], plain.args.at[NETS_Y], (size_t)rig.bytes[NETS_Y]);
        assert_memory_equal(rig.args.at[NETS_DX], plain.args.at[NETS_DX], (size_t)rig.bytes[NETS_DX]);
        if (rig.bytes[NETS_W])
            assert_memory_equal(rig.args.at[NETS_DW], plain.args.at[NETS_DW], (size_t)rig.bytes[NETS_DW]);
    }
    destroy_captured(&c);
    op_rig_fini(&rig);
    op_rig_fini(&plain);
}

static void captured_library_calls_and_kernels_replay(void **state) {
    (void)state;
    check_captured(NETS_CONV, &(nets_attrs){.out_channels = 8, .kernel = {3, 3}, .bias = true});
    check_captured(NETS_LINEAR, &(nets_attrs){.out_channels = 8, .bias = true});
    check_captured(NETS_BATCH_NORM, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, cuda_rig_setup, cuda_rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(tf32_rounds_the_factors_of_each_product_and_fp32_none),
        CASE(enqueuing_calls_nothing_that_allocates_or_waits),
        CASE(fused_layers_take_no_launches_of_their_own),
        CASE(a_batch_norm_that_is_given_its_statistics_is_one_launch),
        CASE(what_libraries_get_no_memory_for_is_no_failure_of_the_device),
        CASE(captured_work_reads_learning_rate_and_iteration_when_it_runs),
        CASE(captured_library_calls_and_kernels_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
