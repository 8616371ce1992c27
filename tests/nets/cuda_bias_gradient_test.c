/* SPDX-License-Identifier: MIT */
/* Gradients of biases of bf16 maps, on the emulation: the product that gives the weights' gradient gives the bias's,
 * too, where cuBLASLt can do so, rightly, and in less time than a kernel of ours. "Kept" is cached in the algorithms
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nets/algorithms_rig.h"

enum { ROWS = 48, IN = 8, OUT = 16 };

typedef struct computed {
    float bias[OUT], weight[IN * OUT];
    long products, launches; /* of a backward; launches: of all kernels, products included */
    long trials;             /* products that ran when the op was created */
} computed;

/* In [-1, 1), exact in bf16; sums of ROWS of them are exact in f32. */
static float number(int64_t seed, int64_t i) { return (float)((i * 7919 + seed * 104729) % 256 - 128) / 128; }

static void *map(op_rig *rig, mm_dtype type, int64_t n, int64_t seed) {
    void *to = op_rig_alloc(rig, n * (type == MM_BF16 ? 2 : 4));
    for (int64_t i = 0; i < n; i++)
        if (type == MM_BF16)
            ((uint16_t *)to)[i] = cuda_emulation_bf16(number(seed, i));
        else
            ((float *)to)[i] = number(seed, i);
    return to;
}

/* A projection's backward. by_output: its weights are a linear layer's, [out][in]. */
static computed backward(const algorithms_rig *f, bool by_output, mm_dtype maps) {
    const nets_op_desc desc = {.kind = NETS_PROJECT,
                               .attrs = {.out_channels = OUT, .bias = true, .by_output = by_output},
                               .x = {{3, {1, ROWS, IN}}},
                               .y = {3, {1, ROWS, OUT}},
                               .n_inputs = 1,
                               .training = true,
                               .wants_dx = true,
                               .maps = maps,
                               .factor_elems = IN * OUT};
    nets_op_args args = {.workspace_bytes = 0};
    computed c = {.trials = -cuda_emulation_blas_executed()};
    op_rig rig;
    nets_op *op;
    op_rig_open(&rig, &f->config);
    if (nets_op_create(rig.backend, &desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    c.trials += cuda_emulation_blas_executed();
    args.workspace_bytes = nets_op_workspace_bytes(op, MM_BACKWARD);
    args.at[NETS_X] = map(&rig, maps, ROWS * IN, 1);
    args.at[maps == MM_BF16 ? NETS_W16 : NETS_W] = map(&rig, maps, IN * OUT, 2);
    args.at[NETS_DY] = map(&rig, maps, ROWS * OUT, 3);
    args.at[NETS_DX] = map(&rig, maps, ROWS * IN, 4);
    args.at[NETS_DW] = map(&rig, MM_F32, IN * OUT, 5);
    args.at[NETS_DB] = map(&rig, MM_F32, OUT, 6);
    args.at[NETS_WORKSPACE] = op_rig_alloc(&rig, args.workspace_bytes);
    c.products = -cuda_emulation_blas_executed();
    c.launches = -cuda_emulation_calls("kernel_launch");
    if (nets_op_enqueue(op, MM_BACKWARD, &args, rig.stream) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    c.products += cuda_emulation_blas_executed();
    c.launches += cuda_emulation_calls("kernel_launch");
    memcpy(c.bias, args.at[NETS_DB], sizeof c.bias);
    memcpy(c.weight, args.at[NETS_DW], sizeof c.weight);
    nets_op_destroy(op);
    op_rig_fini(&rig);
    return c;
}

static void check_sums(const computed *c) {
    for (int64_t o = 0; o < OUT; o++) {
        float sum = 0;
        for (int64_t r = 0; r < ROWS; r++) sum += number(3, r * OUT + o);
        assert_true(c->bias[o] == sum);
    }
}

static int setup(void **state) {
    if (algorithms_setup(state) != 0) return -1;
    algorithms_rig *f = *state;
    f->config.precision = NETS_BF16;
    return 0;
}

static void the_weights_product_gives_the_biass_gradient(void **state) {
    algorithms_rig *f = *state;
    for (int deterministic = 0; deterministic <= 1; deterministic++)
        for (int by_output = 0; by_output <= 1; by_output++) {
            f->config.deterministic = deterministic;
            const computed c = backward(f, by_output, MM_BF16);
            assert_int_equal(c.products, 2);
            assert_int_equal(c.launches, deterministic ? 3 : 2); /* a choice by times is none of its bits */
            check_sums(&c);
        }
    assert_int_equal(f->warnings, 0);
}

static void of_f32_maps_a_kernel_sums_it_up(void **state) {
    algorithms_rig *f = *state;
    for (int by_output = 0; by_output <= 1; by_output++) {
        const computed c = backward(f, by_output, MM_F32);
        assert_int_equal(c.launches, 3);
        check_sums(&c);
    }
}

/* The products differ in their algorithms only, whose bits are equal here. */
static void sums_that_are_wrong_unsteady_slow_or_missing_are_a_kernels(void **state) {
    static const char *const WHY[] = {[SUMS_WRONG] = " instead of ",
                                      [SUMS_UNSTEADY] = "other bits when computed again",
                                      [SUMS_SLOW] = "ms with them",
                                      [SUMS_MISSING] = "gives no bias's gradient here"};
    algorithms_rig *f = *state;
    f->config.log.level = MM_LOG_DEBUG;
    for (int by_output = 0; by_output <= 1; by_output++) {
        cuda_emulation_blas_factor_sums(SUMS_RIGHT);
        const computed right = backward(f, by_output, MM_BF16);
        for (int how = SUMS_WRONG; how <= SUMS_MISSING; how++) {
            f->looked_for = WHY[how];
            f->found = 0;
            cuda_emulation_blas_factor_sums((cuda_emulation_factor_sums)how);
            const computed c = backward(f, by_output, MM_BF16);
            assert_int_equal(f->found, 1);
            assert_int_equal(c.products, 2);
            assert_int_equal(c.launches, 3);
            check_sums(&c);
            assert_memory_equal(c.weight, right.weight, sizeof c.weight);
        }
    }
}

static void the_decision_is_kept(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    for (int how = SUMS_RIGHT; how <= SUMS_SLOW; how += SUMS_SLOW) {
        cuda_emulation_blas_factor_sums((cuda_emulation_factor_sums)how);
        const computed first = backward(f, false, MM_BF16);
        assert_true(first.trials > 0);
        cuda_emulation_blas_factor_sums(how == SUMS_RIGHT ? SUMS_SLOW : SUMS_RIGHT); /* a new one would differ */
        const computed again = backward(f, false, MM_BF16);
        assert_int_equal(again.trials, 0);
        assert_int_equal(again.launches, first.launches);
        unlink(f->path);
    }
}

/* Without memory to time in, nobody has compared the sums. */
static void what_cannot_be_tried_is_not_taken(void **state) {
    algorithms_rig *f = *state;
    const int64_t calls = cuda_emulation_calls("cudaMalloc");
    (void)backward(f, false, MM_BF16);
    const int64_t all = cuda_emulation_calls("cudaMalloc") - calls;
    for (int64_t nth = 1; nth <= all; nth++) {
        cuda_emulation_fail("cudaMalloc", nth, cudaErrorMemoryAllocation);
        const nets_op_desc desc = {.kind = NETS_PROJECT,
                                   .attrs = {.out_channels = OUT, .bias = true},
                                   .x = {{3, {1, ROWS, IN}}},
                                   .y = {3, {1, ROWS, OUT}},
                                   .n_inputs = 1,
                                   .training = true,
                                   .wants_dx = true,
                                   .maps = MM_BF16,
                                   .factor_elems = IN * OUT};
        nets_backend *backend;
        nets_op *op;
        if (nets_backend_open("cuda", &f->config, &backend) == MM_OK) {
            if (nets_op_create(backend, &desc, &op) == MM_OK) nets_op_destroy(op);
            nets_backend_close(backend);
        }
        cuda_emulation_fail("cudaMalloc", 0, cudaSuccess);
    }
    assert_int_equal(cuda_emulation_alive_get().device_bytes, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, algorithms_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_weights_product_gives_the_biass_gradient),
        CASE(of_f32_maps_a_kernel_sums_it_up),
        CASE(sums_that_are_wrong_unsteady_slow_or_missing_are_a_kernels),
        CASE(the_decision_is_kept),
        CASE(what_cannot_be_tried_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
