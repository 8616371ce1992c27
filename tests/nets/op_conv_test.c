/* Convolution and linear: against plain loops, and gradients against central differences. A convolution is linear in
 * each of its arguments, so differences are exact but for rounding: tolerance 1e-3 of the largest gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

static const nets_attrs CONV3 = {.out_channels = 24, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .bias = true};
static const int64_t X_SMALL[4] = {3, 6, 5, 16};

static void check_all_gradients(op_rig *rig) {
    op_rig_run(rig, MM_FORWARD);
    op_rig_run(rig, MM_BACKWARD);
    if (rig->desc.wants_dx) op_rig_check_gradient(rig, NETS_X, NETS_DX, 0.25f, 1e-3);
    op_rig_check_gradient(rig, NETS_W, NETS_DW, 0.25f, 1e-3);
    if (rig->b_elems) op_rig_check_gradient(rig, NETS_B, NETS_DB, 0.25f, 1e-3);
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
    const int64_t *x = rig->desc.x;
    const float *in = op_rig_floats(rig, NETS_X), *w = op_rig_floats(rig, NETS_W);
    double sum = rig->b_elems ? op_rig_floats(rig, NETS_B)[o] : 0;
    for (int64_t c = 0; c < x[3]; c++)
        for (int64_t ky = 0; ky < a->kernel[0]; ky++)
            for (int64_t kx = 0; kx < a->kernel[1]; kx++) {
                int64_t iy = oy * a->stride[0] + ky - a->pad[0], ix = ox * a->stride[1] + kx - a->pad[1];
                if (iy < 0 || iy >= x[1] || ix < 0 || ix >= x[2]) continue;
                sum += (double)in[((n * x[1] + iy) * x[2] + ix) * x[3] + c] *
                       w[((o * x[3] + c) * a->kernel[0] + ky) * a->kernel[1] + kx];
            }
    return (float)sum;
}

static void conv_forward_equals_its_definition(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, false, false);
    op_rig_run(&rig, MM_FORWARD);
    const int64_t *y = rig.desc.y;
    const float *out = op_rig_floats(&rig, NETS_Y);
    for (int64_t i = 0; i < op_rig_elems(&rig, NETS_Y); i++) {
        int64_t o = i % y[3], ox = i / y[3] % y[2], oy = i / (y[3] * y[2]) % y[1], n = i / (y[3] * y[2] * y[1]);
        assert_true(fabsf(out[i] - conv_at(&rig, n, oy, ox, o)) < 1e-4f);
    }
    op_rig_fini(&rig);
}

static void check_linear(const int64_t x[4]) {
    op_rig rig;
    op_rig_init(&rig, NETS_LINEAR, &(nets_attrs){.out_channels = 10, .bias = true}, x, true, true);
    op_rig_run(&rig, MM_FORWARD);
    const float *in = op_rig_floats(&rig, NETS_X), *w = op_rig_floats(&rig, NETS_W), *b = op_rig_floats(&rig, NETS_B);
    int64_t pixels = x[1] * x[2], features = pixels * x[3];
    for (int64_t n = 0; n < x[0]; n++)
        for (int64_t o = 0; o < 10; o++) {
            double sum = b[o];
            for (int64_t p = 0; p < pixels; p++)
                for (int64_t c = 0; c < x[3]; c++)
                    sum += (double)in[n * features + p * x[3] + c] * w[o * features + c * pixels + p];
            assert_true(fabs(op_rig_floats(&rig, NETS_Y)[n * 10 + o] - sum) < 1e-4);
        }
    check_all_gradients(&rig);
    op_rig_fini(&rig);
}

static void linear_of_pixels_equals_its_definition_and_gradients(void **state) {
    (void)state;
    check_linear((const int64_t[4]){5, 1, 1, 64});
}

static void linear_of_maps_flattens_in_torch_order(void **state) {
    (void)state;
    check_linear((const int64_t[4]){3, 4, 2, 16});
}

static void earlier_contribution_is_added_to_the_input_gradient(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
}

/* Moves a role's storage by `shift` bytes within a larger block, contents included. */
static void *move_role(op_rig *rig, nets_role role, size_t shift) {
    char *block = aligned_alloc(4096, 2 * 4096 + ((size_t)rig->bytes[role] + 4095) / 4096 * 4096);
    assert_non_null(block);
    memcpy(block + shift, rig->storage[role], (size_t)rig->bytes[role]);
    rig->args.at[role] = block + shift;
    return block;
}

static void bits_do_not_depend_on_where_tensors_lie(void **state) {
    (void)state;
    const nets_role moved[] = {NETS_X, NETS_W, NETS_B, NETS_Y, NETS_DY, NETS_DX, NETS_DW, NETS_DB, NETS_WORKSPACE};
    enum { MOVED = sizeof moved / sizeof moved[0] };
    op_rig rig;
    void *blocks[MOVED];
    op_rig_init(&rig, NETS_CONV, &CONV3, X_SMALL, true, true);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    for (size_t i = 0; i < MOVED; i++) blocks[i] = move_role(&rig, moved[i], 256 * (1 + i % 15));
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    for (size_t i = 3; i + 1 < MOVED; i++)
        assert_memory_equal(rig.storage[moved[i]], rig.args.at[moved[i]], (size_t)rig.bytes[moved[i]]);
    for (size_t i = 0; i < MOVED; i++) free(blocks[i]);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_forward_equals_its_definition),
        cmocka_unit_test(conv_3x3_gradients_match_differences),
        cmocka_unit_test(conv_strided_1x1_gradients_match_differences),
        cmocka_unit_test(conv_of_three_channels_and_odd_sizes_gradients_match_differences),
        cmocka_unit_test(conv_without_input_gradient_computes_the_same_weight_gradient),
        cmocka_unit_test(linear_of_pixels_equals_its_definition_and_gradients),
        cmocka_unit_test(linear_of_maps_flattens_in_torch_order),
        cmocka_unit_test(earlier_contribution_is_added_to_the_input_gradient),
        cmocka_unit_test(bits_do_not_depend_on_where_tensors_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
