/* Transposed convolution: against its definition (every element of the input adds a weighted kernel to the output), and
 * gradients against central differences. It is linear in each of its arguments, so differences are exact but for
 * rounding: tolerance 1e-3 of the largest gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

/* U-Net's and FCN's; their dilated, grouped and odd relatives. */
static const nets_attrs DOUBLING = {.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}, .bias = true};
static const nets_attrs OVERLAPPING = {.out_channels = 16, .kernel = {4, 4}, .stride = {2, 2}};
static const int64_t X[4] = {2, 4, 3, 16};

/* torch's: weights [in, out / groups, kh, kw]. The caller frees it. */
static double *definition(const op_rig *rig) {
    const nets_attrs *a = &rig->desc.attrs;
    const int64_t *x = rig->desc.x[0].dims, *y = rig->desc.y.dims, in_group = x[3] / a->groups,
                  out_group = y[3] / a->groups;
    const float *in = op_rig_floats(rig, NETS_X), *w = op_rig_floats(rig, NETS_W);
    double *out = calloc((size_t)op_rig_elems(rig, NETS_Y), sizeof *out);
    assert_non_null(out);
    for (int64_t e = 0; e < op_rig_elems(rig, NETS_X); e++) {
        int64_t c = e % x[3], ix = e / x[3] % x[2], iy = e / (x[3] * x[2]) % x[1], n = e / (x[3] * x[2] * x[1]);
        for (int64_t o = 0; o < out_group; o++)
            for (int64_t ky = 0; ky < a->kernel[0]; ky++)
                for (int64_t kx = 0; kx < a->kernel[1]; kx++) {
                    int64_t oy = iy * a->stride[0] + ky * a->dilation[0] - a->pad[0];
                    int64_t ox = ix * a->stride[1] + kx * a->dilation[1] - a->pad[1];
                    if (oy < 0 || oy >= y[1] || ox < 0 || ox >= y[2]) continue;
                    out[((n * y[1] + oy) * y[2] + ox) * y[3] + c / in_group * out_group + o] +=
                        (double)in[e] * w[((c * out_group + o) * a->kernel[0] + ky) * a->kernel[1] + kx];
                }
    }
    if (rig->bytes[NETS_B])
        for (int64_t e = 0; e < op_rig_elems(rig, NETS_Y); e++) out[e] += op_rig_floats(rig, NETS_B)[e % y[3]];
    return out;
}

static void check(const nets_attrs *attrs, const int64_t x[4], int64_t height, int64_t width) {
    op_rig rig;
    op_rig_init(&rig, NETS_CONV_TRANSPOSE, attrs, x, true, true);
    assert_int_equal(rig.desc.y.dims[1], height);
    assert_int_equal(rig.desc.y.dims[2], width);
    op_rig_run(&rig, MM_FORWARD);
    double *expected = definition(&rig);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++)
        assert_true(fabs(op_rig_floats(&rig, NETS_Y)[e] - expected[e]) < 1e-4);
    free(expected);
    op_rig_run(&rig, MM_BACKWARD);
    op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.25f, 1e-3);
    op_rig_check_gradient(&rig, NETS_W, NETS_DW, 0.25f, 1e-3);
    if (rig.bytes[NETS_B]) op_rig_check_gradient(&rig, NETS_B, NETS_DB, 0.25f, 1e-3);
    op_rig_fini(&rig);
}

static void doubling_without_overlap(void **state) {
    (void)state;
    check(&DOUBLING, X, 8, 6);
}

static void overlapping_kernels_add_up(void **state) {
    (void)state;
    check(&OVERLAPPING, X, 10, 8);
}

static void padding_is_cut_off(void **state) {
    (void)state;
    check(&(nets_attrs){.out_channels = 5, .kernel = {4, 3}, .stride = {2, 1}, .pad = {1, 1}, .bias = true}, X, 8, 3);
}

static void output_padding_adds_rows_and_columns_that_kernels_may_reach(void **state) {
    (void)state;
    check(&(nets_attrs){.out_channels = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .output_pad = {1, 1}}, X,
          8, 6);
    /* Nothing reaches the last ones: they are the bias. */
    check(&(nets_attrs){.out_channels = 6, .kernel = {1, 1}, .stride = {3, 3}, .output_pad = {2, 1}, .bias = true}, X,
          12, 8);
}

static void groups_and_dilation(void **state) {
    (void)state;
    check(&(nets_attrs){.out_channels = 32, .kernel = {3, 3}, .stride = {2, 2}, .groups = 2, .bias = true}, X, 9, 7);
    check(&(nets_attrs){.out_channels = 6, .kernel = {3, 2}, .dilation = {2, 3}, .groups = 2},
          (const int64_t[4]){2, 3, 4, 4}, 7, 7);
}

static void evaluation_computes_the_same(void **state) {
    (void)state;
    op_rig train, eval;
    op_rig_init(&train, NETS_CONV_TRANSPOSE, &DOUBLING, X, true, true);
    op_rig_init(&eval, NETS_CONV_TRANSPOSE, &DOUBLING, X, false, false);
    op_rig_run(&train, MM_FORWARD);
    op_rig_run(&eval, MM_FORWARD);
    assert_memory_equal(train.storage[NETS_Y], eval.storage[NETS_Y], (size_t)train.bytes[NETS_Y]);
    op_rig_fini(&train);
    op_rig_fini(&eval);
}

static void without_input_gradient_the_weight_gradient_is_the_same(void **state) {
    (void)state;
    op_rig with, without;
    op_rig_init(&with, NETS_CONV_TRANSPOSE, &DOUBLING, X, true, true);
    op_rig_init(&without, NETS_CONV_TRANSPOSE, &DOUBLING, X, true, false);
    op_rig_run(&with, MM_BACKWARD);
    op_rig_run(&without, MM_BACKWARD);
    assert_memory_equal(with.storage[NETS_DW], without.storage[NETS_DW], (size_t)with.bytes[NETS_DW]);
    assert_memory_equal(with.storage[NETS_DB], without.storage[NETS_DB], (size_t)with.bytes[NETS_DB]);
    op_rig_fini(&with);
    op_rig_fini(&without);
}

static void earlier_contribution_is_added_to_the_input_gradient(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV_TRANSPOSE, &OVERLAPPING, X, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
}

static void earlier_contribution_is_added_in_its_place_with_the_same_bits(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV_TRANSPOSE, &OVERLAPPING, X, true, true);
    op_rig_check_earlier_inplace(&rig);
    op_rig_fini(&rig);
}

static void an_op_is_made_for_an_earlier_contribution_or_for_none(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV_TRANSPOSE, &OVERLAPPING, X, true, true);
    op_rig_check_made_for_earlier(&rig);
    op_rig_fini(&rig);
}

static void bits_do_not_depend_on_where_tensors_lie(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV_TRANSPOSE, &DOUBLING, X, true, true);
    op_rig_check_places(&rig);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubling_without_overlap),
        cmocka_unit_test(overlapping_kernels_add_up),
        cmocka_unit_test(padding_is_cut_off),
        cmocka_unit_test(output_padding_adds_rows_and_columns_that_kernels_may_reach),
        cmocka_unit_test(groups_and_dilation),
        cmocka_unit_test(evaluation_computes_the_same),
        cmocka_unit_test(without_input_gradient_the_weight_gradient_is_the_same),
        cmocka_unit_test(earlier_contribution_is_added_to_the_input_gradient),
        cmocka_unit_test(earlier_contribution_is_added_in_its_place_with_the_same_bits),
        cmocka_unit_test(an_op_is_made_for_an_earlier_contribution_or_for_none),
        cmocka_unit_test(bits_do_not_depend_on_where_tensors_lie),
    };
    OP_RIG_RUN(tests);
}
