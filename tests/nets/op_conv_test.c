/* Convolution, plain, grouped and dilated: against plain loops, and gradients against central differences. A
 * convolution is linear in each of its arguments, so differences are exact but for rounding: tolerance 1e-3 of the
 * largest gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

static const nets_attrs CONV3 = {.out_channels = 24, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .bias = true};
static const nets_attrs GROUPED = {.out_channels = 32, .kernel = {3, 3}, .pad = {1, 1}, .groups = 2, .bias = true};
static const int64_t X_SMALL[4] = {3, 6, 5, 16};

static void check_all_gradients(op_rig *rig) {
    op_rig_run(rig, MM_FORWARD);
    op_rig_run(rig, MM_BACKWARD);
    if (rig->desc.wants_dx) op_rig_check_gradient(rig, NETS_X, NETS_DX, 0.25f, 1e-3);
    op_rig_check_gradient(rig, NETS_W, NETS_DW, 0.25f, 1e-3);
    if (rig->bytes[NETS_B]) op_rig_check_gradient(rig, NETS_B, NETS_DB, 0.25f, 1e-3);
}

static void check_conv_gradients(const nets_attrs *attrs, const int64_t x[4], bool wants_dx) {
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, attrs, x, true, wants_dx);
    check_all_gradients(&rig);
    op_rig_fini(&rig);
}

static void conv_3x3_gradients_match_differences(void **state) {
    (void)state;
    check_conv_gradients(&CONV3, X_SMALL, true);
}

static void conv_strided_1x1_gradients_match_differences(void **state) {
    (void)state;
    check_conv_gradients(&(nets_attrs){.out_channels = 32, .kernel = {1, 1}, .stride = {2, 2}},
                         (const int64_t[4]){2, 8, 8, 16}, true);
}

static void conv_of_three_channels_and_odd_sizes_gradients_match_differences(void **state) {
    (void)state;
    check_conv_gradients(
        &(nets_attrs){.out_channels = 7, .kernel = {5, 3}, .stride = {2, 1}, .pad = {2, 0}, .bias = true},
        (const int64_t[4]){2, 9, 7, 3}, true);
}

static void conv_without_input_gradient_computes_the_same_weight_gradient(void **state) {
    (void)state;
    op_rig with, without;
    op_rig_init(&with, NETS_CONV, &CONV3, X_SMALL, true, true);
    op_rig_init(&without, NETS_CONV, &CONV3, X_SMALL, true, false);
    op_rig_run(&with, MM_BACKWARD);
    op_rig_run(&without, MM_BACKWARD);
    assert_memory_equal(with.storage[NETS_DW], without.storage[NETS_DW], (size_t)with.bytes[NETS_DW]);
    op_rig_fini(&with);
    op_rig_fini(&without);
}

/* The definition, for NHWC images and OIHW weights. */
static float conv_at(const op_rig *rig, int64_t n, int64_t oy, int64_t ox, int64_t o) {
    const nets_attrs *a = &rig->desc.attrs;
    const int64_t *x = rig->desc.x[0].dims, in_group = x[3] / a->groups, group = o / (rig->desc.y.dims[3] / a->groups);
    const float *in = op_rig_floats(rig, NETS_X), *w = op_rig_floats(rig, NETS_W);
    double sum = rig->bytes[NETS_B] ? op_rig_floats(rig, NETS_B)[o] : 0;
    for (int64_t c = 0; c < in_group; c++)
        for (int64_t ky = 0; ky < a->kernel[0]; ky++)
            for (int64_t kx = 0; kx < a->kernel[1]; kx++) {
                int64_t iy = oy * a->stride[0] + ky * a->dilation[0] - a->pad[0];
                int64_t ix = ox * a->stride[1] + kx * a->dilation[1] - a->pad[1];
                if (iy < 0 || iy >= x[1] || ix < 0 || ix >= x[2]) continue;
                sum += (double)in[((n * x[1] + iy) * x[2] + ix) * x[3] + group * in_group + c] *
                       w[((o * in_group + c) * a->kernel[0] + ky) * a->kernel[1] + kx];
            }
    return (float)sum;
}

static void check_definition(const op_rig *rig) {
    const int64_t *y = rig->desc.y.dims;
    const float *out = op_rig_floats(rig, NETS_Y);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_Y); i++) {
        int64_t o = i % y[3], ox = i / y[3] % y[2], oy = i / (y[3] * y[2]) % y[1], n = i / (y[3] * y[2] * y[1]);
        assert_true(fabsf(out[i] - conv_at(rig, n, oy, ox, o)) < 1e-4f);
    }
}

static void conv_forward_equals_its_definition(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, false, false);
    op_rig_run(&rig, MM_FORWARD);
    check_definition(&rig);
    op_rig_fini(&rig);
}

static void check_conv(const nets_attrs *attrs, const int64_t x[4]) {
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, attrs, x, true, true);
    op_rig_run(&rig, MM_FORWARD);
    check_definition(&rig);
    check_all_gradients(&rig);
    op_rig_fini(&rig);
}

static void groups_see_their_own_channels_only(void **state) {
    (void)state;
    check_conv(&GROUPED, X_SMALL);
    check_conv(&(nets_attrs){.out_channels = 32, .kernel = {3, 3}, .groups = 2, .bias = true},
               (const int64_t[4]){2, 5, 5, 64});
}

static void groups_of_odd_sizes(void **state) {
    (void)state;
    check_conv(&(nets_attrs){.out_channels = 15, .kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 0}, .groups = 3},
               (const int64_t[4]){2, 6, 7, 9});
}

static void a_group_for_each_channel(void **state) {
    (void)state;
    check_conv(&(nets_attrs){.out_channels = 16, .kernel = {3, 3}, .pad = {1, 1}, .groups = 16, .bias = true}, X_SMALL);
    check_conv(&(nets_attrs){.out_channels = 14, .kernel = {3, 3}, .stride = {2, 2}, .groups = 7},
               (const int64_t[4]){2, 7, 7, 7});
}

static void dilated_kernels_step_over_elements(void **state) {
    (void)state;
    check_conv(&(nets_attrs){.out_channels = 16, .kernel = {3, 3}, .pad = {2, 4}, .dilation = {2, 4}, .bias = true},
               (const int64_t[4]){2, 9, 10, 16});
    check_conv(&(nets_attrs){.out_channels = 6, .kernel = {2, 3}, .stride = {2, 1}, .dilation = {3, 1}},
               (const int64_t[4]){3, 8, 6, 5});
}

static void dilated_groups(void **state) {
    (void)state;
    check_conv(&(nets_attrs){.out_channels = 32, .kernel = {3, 3}, .pad = {2, 2}, .dilation = {2, 2}, .groups = 2},
               (const int64_t[4]){2, 7, 7, 32});
}

/* Inception-v4's. */
static void kernels_and_padding_of_one_row_or_column(void **state) {
    (void)state;
    check_conv(&(nets_attrs){.out_channels = 24, .kernel = {1, 7}, .pad = {0, 3}}, X_SMALL);
    check_conv(&(nets_attrs){.out_channels = 24, .kernel = {7, 1}, .pad = {3, 0}, .bias = true}, X_SMALL);
}

static const nets_attrs PIXELS = {.out_channels = 24, .kernel = {1, 1}, .bias = true};

/* Which are products of matrices. */
static void windows_of_one_pixel(void **state) {
    (void)state;
    check_conv(&PIXELS, X_SMALL);
    check_conv(&(nets_attrs){.out_channels = 7, .kernel = {1, 1}}, (const int64_t[4]){2, 9, 7, 3});
    check_conv(&(nets_attrs){.out_channels = 1, .kernel = {1, 1}}, (const int64_t[4]){1, 1, 1, 1});
    check_conv(&(nets_attrs){.out_channels = 6, .kernel = {1, 1}, .groups = 3}, (const int64_t[4]){2, 4, 3, 9});
    check_conv(&(nets_attrs){.out_channels = 6, .kernel = {1, 1}, .pad = {1, 1}}, (const int64_t[4]){2, 4, 3, 9});
}

static void earlier_contribution_is_added_to_the_input_gradient(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
    op_rig_init(&rig, NETS_CONV, &PIXELS, X_SMALL, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
}

static void earlier_contribution_is_added_in_its_place_with_the_same_bits(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, true, true);
    op_rig_check_earlier_inplace(&rig);
    op_rig_fini(&rig);
    op_rig_init(&rig, NETS_CONV, &PIXELS, X_SMALL, true, true);
    op_rig_check_earlier_inplace(&rig);
    op_rig_fini(&rig);
}

static void an_op_is_made_for_an_earlier_contribution_or_for_none(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, true, true);
    op_rig_check_made_for_earlier(&rig);
    op_rig_fini(&rig);
}

static void bits_do_not_depend_on_where_tensors_lie(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, true, true);
    op_rig_check_places(&rig);
    op_rig_fini(&rig);
    op_rig_init(&rig, NETS_CONV, &GROUPED, X_SMALL, true, true);
    op_rig_check_places(&rig);
    op_rig_fini(&rig);
    op_rig_init(&rig, NETS_CONV, &PIXELS, X_SMALL, true, true);
    op_rig_check_places(&rig);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_forward_equals_its_definition),
        cmocka_unit_test(conv_3x3_gradients_match_differences),
        cmocka_unit_test(conv_strided_1x1_gradients_match_differences),
        cmocka_unit_test(conv_of_three_channels_and_odd_sizes_gradients_match_differences),
        cmocka_unit_test(conv_without_input_gradient_computes_the_same_weight_gradient),
        cmocka_unit_test(groups_see_their_own_channels_only),
        cmocka_unit_test(groups_of_odd_sizes),
        cmocka_unit_test(a_group_for_each_channel),
        cmocka_unit_test(dilated_kernels_step_over_elements),
        cmocka_unit_test(dilated_groups),
        cmocka_unit_test(kernels_and_padding_of_one_row_or_column),
        cmocka_unit_test(windows_of_one_pixel),
        cmocka_unit_test(earlier_contribution_is_added_to_the_input_gradient),
        cmocka_unit_test(earlier_contribution_is_added_in_its_place_with_the_same_bits),
        cmocka_unit_test(an_op_is_made_for_an_earlier_contribution_or_for_none),
        cmocka_unit_test(bits_do_not_depend_on_where_tensors_lie),
    };
    OP_RIG_RUN(tests);
}
