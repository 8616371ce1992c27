/* SPDX-License-Identifier: MIT */
/* Concatenation copies: outputs and gradients are compared exactly. Gradients also match central differences (of a
 * linear function: exact but for rounding; tolerance 1e-3). A crop: where it begins, and gradients added in place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

enum { INPUTS = 4 };
static const int64_t CHANNELS[INPUTS] = {5, 1, 16, 3}, X[4] = {2, 3, 4, 5};

static void start_concat(op_rig *rig) { op_rig_init_inputs(rig, NETS_CONCAT, NULL, X, CHANNELS, INPUTS, true, true); }

/* Returns the input from which output element e comes; at_out: its element. */
static int source_of(const op_rig *rig, int64_t e, int64_t *at_out) {
    int64_t c = e % rig->desc.y.dims[3], pixel = e / rig->desc.y.dims[3];
    int input = 0;
    for (; c >= nets_shape_channels(&rig->desc.x[input]); input++) c -= nets_shape_channels(&rig->desc.x[input]);
    *at_out = pixel * nets_shape_channels(&rig->desc.x[input]) + c;
    return input;
}

static float earlier_at(int input, int64_t at) { return (float)(at % 13 - 6 + input); }

/* Checks gradients by all inputs but those in the bits of `absent`. Inputs in `summed` have an earlier contribution;
 * with `inplace` the gradient is written over it. */
static void check_concat_backward(op_rig *rig, unsigned absent, unsigned summed, bool inplace) {
    float *earlier[INPUTS] = {NULL};
    for (int i = 0; i < INPUTS; i++) {
        int64_t n = op_rig_elems(rig, (nets_role)(NETS_DX + i));
        rig->args.at[NETS_DX + i] = absent >> i & 1 ? NULL : rig->storage[NETS_DX + i];
        memset(rig->storage[NETS_DX + i], 0xff, (size_t)n * 4);
        rig->args.at[NETS_EARLIER + i] = NULL;
        if (!(summed >> i & 1)) continue;
        earlier[i] = inplace ? rig->storage[NETS_DX + i] : op_rig_alloc(rig, 4 * n);
        for (int64_t k = 0; k < n; k++) earlier[i][k] = earlier_at(i, k);
        rig->args.at[NETS_EARLIER + i] = earlier[i];
    }
    op_rig_run(rig, MM_BACKWARD);
    for (int64_t e = 0; e < op_rig_elems(rig, NETS_Y); e++) {
        int64_t at;
        int input = source_of(rig, e, &at);
        if (absent >> input & 1) continue;
        float expected = op_rig_floats(rig, NETS_DY)[e];
        if (summed >> input & 1) expected += earlier_at(input, at);
        assert_true(op_rig_floats(rig, (nets_role)(NETS_DX + input))[at] == expected);
    }
}

static void concat_puts_channels_side_by_side(void **state) {
    (void)state;
    op_rig rig;
    start_concat(&rig);
    assert_int_equal(rig.desc.y.dims[3], 25);
    op_rig_run(&rig, MM_FORWARD);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
        int64_t at;
        int input = source_of(&rig, e, &at);
        assert_true(op_rig_floats(&rig, NETS_Y)[e] == op_rig_floats(&rig, (nets_role)(NETS_X + input))[at]);
    }
    op_rig_fini(&rig);
}

static void concat_gradients_are_slices(void **state) {
    (void)state;
    op_rig rig;
    start_concat(&rig);
    check_concat_backward(&rig, 0, 0, false);
    for (int i = 0; i < INPUTS; i++)
        op_rig_check_gradient(&rig, (nets_role)(NETS_X + i), (nets_role)(NETS_DX + i), 0.25f, 1e-3);
    op_rig_fini(&rig);
}

static void concat_leaves_out_gradients_that_nobody_wants(void **state) {
    (void)state;
    op_rig rig;
    start_concat(&rig);
    check_concat_backward(&rig, 1, 0, false);
    check_concat_backward(&rig, 0xa, 4, false);
    op_rig_fini(&rig);
}

static void concat_adds_earlier_contributions_in_place_or_not(void **state) {
    (void)state;
    op_rig rig;
    start_concat(&rig);
    check_concat_backward(&rig, 0, 5, false);
    check_concat_backward(&rig, 0, 5, true);
    check_concat_backward(&rig, 2, 0xd, true);
    op_rig_fini(&rig);
}

/* Leaves the op only the tensors that a lowered graph gives its backward. */
static void leave_only_gradients(op_rig *rig) {
    for (int r = 0; r < NETS_ROLES; r++)
        if (r != NETS_DY && r != NETS_WORKSPACE && (r < NETS_DX || r > NETS_DX_LAST)) rig->args.at[r] = NULL;
}

static void as_many_inputs_as_there_may_be_each_with_an_earlier_contribution(void **state) {
    (void)state;
    int64_t channels[NETS_MAX_INPUTS];
    for (int i = 0; i < NETS_MAX_INPUTS; i++) channels[i] = i == 0 ? X[3] : i;
    op_rig rig;
    op_rig_init_inputs(&rig, NETS_CONCAT, NULL, X, channels, NETS_MAX_INPUTS, true, true);
    op_rig_run(&rig, MM_FORWARD);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
        int64_t at;
        int input = source_of(&rig, e, &at);
        assert_true(op_rig_floats(&rig, NETS_Y)[e] == op_rig_floats(&rig, (nets_role)(NETS_X + input))[at]);
    }
    leave_only_gradients(&rig);
    for (int i = 0; i < NETS_MAX_INPUTS; i++) rig.args.at[NETS_EARLIER + i] = rig.storage[NETS_X + i];
    op_rig_run(&rig, MM_BACKWARD);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
        int64_t at;
        int input = source_of(&rig, e, &at);
        float expected = op_rig_floats(&rig, NETS_DY)[e] + op_rig_floats(&rig, (nets_role)(NETS_EARLIER + input))[at];
        assert_true(op_rig_floats(&rig, (nets_role)(NETS_DX + input))[at] == expected);
    }
    op_rig_fini(&rig);
}

/* ---------------------------------------------------------------- crop */

static const int64_t IMAGE[4] = {2, 7, 6, 3};

/* Index in the crop of an element of the image; -1: cut off. */
static int64_t place_in_crop(const op_rig *rig, int64_t e) {
    const int64_t *x = rig->desc.x[0].dims, *y = rig->desc.y.dims, *offset = rig->desc.attrs.offset;
    int64_t c = e % x[3], column = e / x[3] % x[2] - offset[1], row = e / (x[3] * x[2]) % x[1] - offset[0];
    if (row < 0 || row >= y[1] || column < 0 || column >= y[2]) return -1;
    return ((e / (x[3] * x[2] * x[1]) * y[1] + row) * y[2] + column) * y[3] + c;
}

static void crop_of_the_middle(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CROP, &(nets_attrs){.out_size = {4, 3}, .center = true}, IMAGE, true, true);
    assert_int_equal(rig.desc.attrs.offset[0], 1); /* 3 are cut off: half of that, rounded down */
    assert_int_equal(rig.desc.attrs.offset[1], 1);
    op_rig_fini(&rig);
}

static void crop_adds_the_earlier_contribution_in_place(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CROP, &(nets_attrs){.out_size = {3, 2}, .offset = {1, 2}}, IMAGE, true, true);
    float *dx = op_rig_floats(&rig, NETS_DX);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_X); e++) dx[e] = earlier_at(0, e);
    rig.args.at[NETS_EARLIER] = dx;
    op_rig_run(&rig, MM_BACKWARD);
    rig.args.at[NETS_EARLIER] = NULL;
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_X); e++) {
        int64_t at = place_in_crop(&rig, e);
        float gradient = at < 0 ? 0 : op_rig_floats(&rig, NETS_DY)[at];
        assert_true(dx[e] == gradient + earlier_at(0, e));
    }
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concat_puts_channels_side_by_side),
        cmocka_unit_test(concat_gradients_are_slices),
        cmocka_unit_test(concat_leaves_out_gradients_that_nobody_wants),
        cmocka_unit_test(concat_adds_earlier_contributions_in_place_or_not),
        cmocka_unit_test(as_many_inputs_as_there_may_be_each_with_an_earlier_contribution),
        cmocka_unit_test(crop_of_the_middle),
        cmocka_unit_test(crop_adds_the_earlier_contribution_in_place),
    };
    OP_RIG_RUN(tests);
}
