/* SPDX-License-Identifier: MIT */
/* The loss of tokens of bf16 maps, on the emulation: with more workspace it gathers the gradients of several chunks,
 * and computes Y and DW of them at once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/core/deep.h"
#include "tests/nets/algorithms_rig.h"

/* Chunks have 2048 rows at most. GATHERED_BYTES: of the gradients of two chunks, of 16 classes. */
enum { SAMPLES = 4, TOKENS = 1040, ROWS = SAMPLES * TOKENS, IN = 8, MOST_CLASSES = 16, GATHERED_BYTES = 4096 * 2 * 16 };

typedef struct computed {
    nets_workspaces sizes;
    uint16_t y[ROWS * IN];
    float dw[MOST_CLASSES * IN], loss;
    int32_t correct;
    long products;
} computed;

/* In [-1, 1), exact in bf16. */
static float number(int64_t seed, int64_t i) { return (float)((i * 7919 + seed * 104729) % 256 - 128) / 128; }

static void *halves(op_rig *rig, int64_t n, int64_t seed) {
    uint16_t *to = op_rig_alloc(rig, 2 * n);
    for (int64_t i = 0; i < n; i++) to[i] = cuda_emulation_bf16(number(seed, i));
    return to;
}

static nets_op_desc desc_of(int classes) {
    return (nets_op_desc){.kind = NETS_TOKEN_LOSS,
                          .attrs = {.out_channels = classes},
                          .x = {{3, {SAMPLES, TOKENS, IN}}},
                          .y = {3, {SAMPLES, TOKENS, IN}},
                          .n_inputs = 1,
                          .training = true,
                          .wants_dx = true,
                          .maps = MM_BF16,
                          .factor_elems = (int64_t)classes * IN};
}

/* Computes it in the i-th of its sizes of workspace; -1: in the last. */
static void compute(const algorithms_rig *f, int classes, int i, computed *c) {
    const nets_op_desc desc = desc_of(classes);
    nets_op_args args = {.workspace_bytes = 0};
    op_rig rig;
    nets_op *op;
    op_rig_open(&rig, &f->config);
    if (nets_op_create(rig.backend, &desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    c->sizes = nets_op_workspaces(op, MM_FORWARD);
    args.workspace_bytes = c->sizes.bytes[i < 0 ? c->sizes.n - 1 : i];
    args.at[NETS_X] = halves(&rig, ROWS * IN, 1);
    args.at[NETS_W16] = halves(&rig, (int64_t)classes * IN, 2);
    args.at[NETS_Y] = op_rig_alloc(&rig, sizeof c->y);
    args.at[NETS_DW] = op_rig_alloc(&rig, sizeof c->dw);
    args.at[NETS_LOSS_VALUE] = op_rig_alloc(&rig, sizeof c->loss);
    args.at[NETS_CORRECT] = op_rig_alloc(&rig, sizeof c->correct);
    args.at[NETS_WORKSPACE] = op_rig_alloc(&rig, args.workspace_bytes);
    int32_t *labels = args.at[NETS_LABELS] = op_rig_alloc(&rig, ROWS * (int64_t)sizeof *labels);
    for (int r = 0; r < ROWS; r++) labels[r] = r * 5 % classes;
    c->products = -cuda_emulation_blas_executed();
    if (nets_op_enqueue(op, MM_FORWARD, &args, rig.stream) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    c->products += cuda_emulation_blas_executed();
    memcpy(c->y, args.at[NETS_Y], sizeof c->y);
    memcpy(c->dw, args.at[NETS_DW], sizeof c->dw);
    memcpy(&c->loss, args.at[NETS_LOSS_VALUE], sizeof c->loss);
    memcpy(&c->correct, args.at[NETS_CORRECT], sizeof c->correct);
    nets_op_destroy(op);
    op_rig_fini(&rig);
}

static int setup(void **state) {
    if (algorithms_setup(state) != 0) return -1;
    algorithms_rig *f = *state;
    f->config.precision = NETS_BF16;
    return 0;
}

/* 12 classes are divided, into 8 and 4. limit_bytes: of gradients that are gathered. groups: that they make. */
static void check_gathered(algorithms_rig *f, int classes, int64_t limit_bytes, int groups) {
    static computed chunked, gathered;
    const int parts = classes % 8 ? 2 : 1;
    f->config.workspace_limit_bytes = limit_bytes;
    compute(f, classes, -1, &chunked);
    compute(f, classes, 0, &gathered);
    assert_true(gathered.sizes.n > 1);
    assert_int_equal(chunked.products, 3 * 3 * parts);
    assert_int_equal(gathered.products, (3 + 2 * groups) * parts);
    assert_memory_equal(gathered.y, chunked.y, sizeof chunked.y);
    assert_true(gathered.loss == chunked.loss && gathered.loss > 0);
    assert_int_equal(gathered.correct, chunked.correct);
    for (int i = 0; i < classes * IN; i++) assert_true(fabsf(gathered.dw[i] - chunked.dw[i]) < 1e-6f);
    assert_true(fabsf(chunked.dw[0]) > 1e-4f);
}

static void gathered_gradients_give_what_chunks_give(void **state) {
    check_gathered(*state, 12, GATHERED_BYTES, 2);
    if (test_depth(0, 1)) check_gathered(*state, 16, 1 << 20, 1);
}

/* With less than what a chunk more takes, or if bits may not depend on the workspace, there are chunks alone. */
static void where_gradients_are_not_gathered_there_is_one_way(void **state) {
    algorithms_rig *f = *state;
    const nets_op_desc desc = desc_of(16);
    const int64_t gathered = algorithms_workspace(f, &desc, MM_FORWARD);
    f->config.workspace_limit_bytes = GATHERED_BYTES / 2;
    const int64_t chunked = algorithms_workspace(f, &desc, MM_FORWARD);
    assert_true(gathered - chunked >= ROWS * 2 * 16);
    f->config.workspace_limit_bytes = 1 << 20;
    f->config.deterministic = true;
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), chunked);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, algorithms_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(gathered_gradients_give_what_chunks_give),
        CASE(where_gradients_are_not_gathered_there_is_one_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
