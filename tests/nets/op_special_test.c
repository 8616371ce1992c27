/* SPDX-License-Identifier: MIT */
/* Tests for single operations; op_suite_test.c has those for all. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_formula.h"

/* AlexNet's first linear layer has 151 MB of weights. Only the activations, a few megabytes, are reordered. */
static void workspace_of_a_linear_layer_is_of_the_size_of_the_activations_not_of_the_weights(void **state) {
    (void)state;
    nets_backend *backend;
    nets_op *op;
    const nets_op_desc fc6 = {.kind = NETS_LINEAR,
                              .attrs = {.out_channels = 4096, .bias = true},
                              .x = {{4, {128, 6, 6, 256}}},
                              .y = {4, {128, 1, 1, 4096}},
                              .n_inputs = 1,
                              .training = true,
                              .wants_dx = true};
    /* cuBLAS wants a workspace for speed. */
    int64_t own = strcmp(op_rig_device(), "host") == 0 ? 4 << 20 : 32 << 20;
    assert_int_equal(nets_backend_open(op_rig_device(), NULL, &backend), MM_OK);
    assert_int_equal(nets_op_create(backend, &fc6, &op), MM_OK);
    int64_t activations = INT64_C(4) * 128 * 6 * 6 * 256;
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        assert_true(nets_op_workspace_bytes(op, phase) >= activations);
        assert_true(nets_op_workspace_bytes(op, phase) <= activations + own);
    }
    nets_op_destroy(op);
    nets_backend_close(backend);
}

static void lrn_constants_that_are_left_out_are_those_of_torch(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_LRN, &(nets_attrs){.size = 5}, (const int64_t[4]){2, 3, 2, 11}, true, true);
    assert_true(rig.desc.attrs.alpha == 1e-4f && rig.desc.attrs.beta == 0.75f && rig.desc.attrs.k == 1);
    op_rig_fini(&rig);
}

/* On a GPU, a thread block takes several groups of pixels, one after the other. */
static void lrn_of_pixels_of_a_second_round_gives_the_bits_of_the_first(void **state) {
    (void)state;
    enum { PIXELS = 130 * 128, CHANNELS = 32, SAME = 64 * CHANNELS, LAST = PIXELS * CHANNELS - SAME };
    op_rig rig;
    op_rig_init(&rig, NETS_LRN, &(nets_attrs){.size = 5, .alpha = 2, .beta = 0.75f, .k = 2},
                (const int64_t[4]){1, 130, 128, CHANNELS}, true, true);
    float *x = op_rig_floats(&rig, NETS_X), *y = op_rig_floats(&rig, NETS_Y);
    float *dx = op_rig_floats(&rig, NETS_DX), *dy = op_rig_floats(&rig, NETS_DY);
    memcpy(x + LAST, x, SAME * sizeof *x);
    memcpy(dy + LAST, dy, SAME * sizeof *dy);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    assert_memory_equal(y + LAST, y, SAME * sizeof *y);
    assert_memory_equal(dx + LAST, dx, SAME * sizeof *dx);
    op_rig_fini(&rig);
}

/* The maximum of a window with a NaN is NaN: else a diverged run would look sound. */
static void max_pool_keeps_what_is_not_a_number(void **state) {
    (void)state;
    const nets_attrs overlapping = {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
    for (int training = 0; training < 2; training++) {
        op_rig rig;
        op_rig_init(&rig, NETS_MAX_POOL, &overlapping, (const int64_t[4]){2, 7, 6, 16}, training, training);
        for (int64_t i = 0; i < op_rig_elems(&rig, NETS_X); i += 61) op_rig_floats(&rig, NETS_X)[i] = NAN;
        op_rig_run(&rig, MM_FORWARD);
        for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
            const double y = op_rig_floats(&rig, NETS_Y)[e], expected = op_formula_max_pool(&rig, e);
            assert_true(isnan(expected) ? isnan(y) : y == expected);
        }
        op_rig_fini(&rig);
    }
}

/* Whatever the number of threads. */
static void workspace_of_a_small_max_pool_is_that_of_its_one_piece(void **state) {
    const nets_attrs halving = {.kernel = {2, 2}, .stride = {2, 2}};
    const nets_backend_config one = {.threads = 1}, many = {.threads = 16};
    op_rig rig;
    (void)state;
    if (strcmp(op_rig_device(), "host") != 0) skip();
    op_rig_init(&rig, NETS_MAX_POOL, &halving, (const int64_t[4]){1, 8, 8, 16}, true, true);
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        op_rig_reopen(&rig, &one);
        const int64_t bytes = nets_op_workspace_bytes(rig.op, phase);
        op_rig_reopen(&rig, &many);
        assert_true(bytes > 0);
        assert_int_equal(nets_op_workspace_bytes(rig.op, phase), bytes);
    }
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) op_rig_run(&rig, phase);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workspace_of_a_linear_layer_is_of_the_size_of_the_activations_not_of_the_weights),
        cmocka_unit_test(lrn_constants_that_are_left_out_are_those_of_torch),
        cmocka_unit_test(lrn_of_pixels_of_a_second_round_gives_the_bits_of_the_first),
        cmocka_unit_test(workspace_of_a_small_max_pool_is_that_of_its_one_piece),
        cmocka_unit_test(max_pool_keeps_what_is_not_a_number),
    };
    OP_RIG_RUN(tests);
}
