/* SPDX-License-Identifier: MIT */
/* Projections of bf16 tokens with a bias, on the emulation: cuBLASLt computes each as one product that adds the bias;
 * where it cannot, chunks of rows are computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nets/algorithms_rig.h"

typedef struct computed {
    uint16_t *y;
    long products, launches; /* launches: of all kernels, products included */
} computed;

/* In [-1, 1), exact in bf16. */
static float number(int64_t seed, int64_t i) { return (float)((i * 7919 + seed * 104729) % 256 - 128) / 128; }

static uint16_t half(float value) { return cuda_emulation_bf16(value); }

static uint16_t *halves(op_rig *rig, int64_t n, int64_t seed) {
    uint16_t *to = op_rig_alloc(rig, 2 * n);
    for (int64_t i = 0; i < n; i++) to[i] = half(number(seed, i));
    return to;
}

/* `fails`: which call of cublasLtMatmulDescSetAttribute fails while the op is created; 0: none. The caller frees y. */
static computed project(const algorithms_rig *f, int64_t rows, int in, int out, int fails) {
    const nets_op_desc desc = {.kind = NETS_PROJECT,
                               .attrs = {.out_channels = out, .bias = true},
                               .x = {{3, {1, rows, in}}},
                               .y = {3, {1, rows, out}},
                               .n_inputs = 1,
                               .maps = MM_BF16,
                               .factor_elems = (int64_t)in * out};
    nets_op_args args = {.workspace_bytes = 0};
    computed c = {.y = malloc((size_t)(2 * rows * out))};
    op_rig rig;
    nets_op *op;
    assert_non_null(c.y);
    op_rig_open(&rig, &f->config);
    if (fails) cuda_emulation_fail("cublasLtMatmulDescSetAttribute", fails, cudaErrorUnknown);
    if (nets_op_create(rig.backend, &desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    if (fails) assert_true(cuda_emulation_failed());
    args.workspace_bytes = nets_op_workspace_bytes(op, MM_FORWARD);
    args.at[NETS_X] = halves(&rig, rows * in, 1);
    args.at[NETS_W16] = halves(&rig, (int64_t)in * out, 2);
    args.at[NETS_Y] = op_rig_alloc(&rig, 2 * rows * out);
    args.at[NETS_WORKSPACE] = op_rig_alloc(&rig, args.workspace_bytes);
    float *bias = args.at[NETS_B] = op_rig_alloc(&rig, 4 * (int64_t)out);
    for (int i = 0; i < out; i++) bias[i] = number(3, i);
    c.products = -cuda_emulation_blas_executed();
    c.launches = -cuda_emulation_calls("kernel_launch");
    if (nets_op_enqueue(op, MM_FORWARD, &args, rig.stream) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    c.products += cuda_emulation_blas_executed();
    c.launches += cuda_emulation_calls("kernel_launch");
    memcpy(c.y, args.at[NETS_Y], (size_t)(2 * rows * out));
    nets_op_destroy(op);
    op_rig_fini(&rig);
    return c;
}

static int setup(void **state) {
    if (algorithms_setup(state) != 0) return -1;
    algorithms_rig *f = *state;
    f->config.precision = NETS_BF16;
    return 0;
}

/* In f32, the widest projection's sums would take over 16 MiB. */
static void the_projections_of_a_gpts_layer_are_one_product_each(void **state) {
    enum { ROWS = (1 << 17) + 32, WIDTH = 8 };
    static const int CHANNELS[][2] = {{WIDTH, 3 * WIDTH}, {WIDTH, WIDTH}, {WIDTH, 4 * WIDTH}, {4 * WIDTH, WIDTH}};
    const algorithms_rig *f = *state;
    for (size_t i = 0; i < sizeof CHANNELS / sizeof CHANNELS[0]; i++) {
        const computed c = project(f, ROWS, CHANNELS[i][0], CHANNELS[i][1], 0);
        free(c.y);
        assert_int_equal(c.products, 1);
        assert_int_equal(c.launches, 2); /* the product, and a kernel that rounds the bias */
    }
    assert_int_equal(f->warnings, 0);
}

/* fails: the call of cuBLASLt by which it cannot describe such a product. */
static void without_such_a_product_chunks_get_the_same_sums(void **state) {
    enum { ROWS = 18, IN = 2, OUT = (1 << 18) + 8 }; /* chunks of 16 and 2 rows */
    const algorithms_rig *f = *state;
    const computed whole = project(f, ROWS, IN, OUT, 0);
    assert_int_equal(whole.products, 1);
    for (int fails = 1; fails <= 2; fails++) {
        const computed c = project(f, ROWS, IN, OUT, fails);
        assert_int_equal(c.products, 2);
        assert_int_equal(c.launches, 4);
        assert_memory_equal(c.y, whole.y, 2 * (size_t)ROWS * OUT);
        free(c.y);
    }
    free(whole.y);
    assert_int_equal(f->warnings, 0);
}

static void a_product_with_a_bias_is_kept_as_such(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    free(project(f, 32, 8, 16, 1).y); /* this keeps a product without the bias, too */
    free(project(f, 32, 8, 16, 0).y);
    const long asked = cuda_emulation_calls("cublasLtMatmulAlgoGetHeuristic");
    const computed c = project(f, 32, 8, 16, 0);
    free(c.y);
    assert_int_equal(cuda_emulation_calls("cublasLtMatmulAlgoGetHeuristic"), asked);
    assert_int_equal(c.products, 1);
    assert_int_equal(c.launches, 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, algorithms_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_projections_of_a_gpts_layer_are_one_product_each),
        CASE(without_such_a_product_chunks_get_the_same_sums),
        CASE(a_product_with_a_bias_is_kept_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
