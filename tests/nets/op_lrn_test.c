/* Local response normalisation: against its formula in double, and gradients against central differences (step 0.01, so
 * that the curvature's part stays below the tolerance, 1e-3 of the largest gradient; alpha is large enough that the
 * normalisation, and so each term of its gradient, shows). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

static const nets_attrs STRONG = {.size = 5, .alpha = 2, .beta = 0.75f, .k = 2};
static const int64_t X[4] = {2, 3, 2, 11};

static double lrn_at(const op_rig *rig, int64_t e) {
    const nets_attrs *a = &rig->desc.attrs;
    const float *x = op_rig_floats(rig, NETS_X);
    int64_t channels = rig->desc.x[0].dims[3], c = e % channels, pixel = e - c;
    double sum = 0;
    for (int64_t j = c - a->size / 2; j <= c + a->size / 2; j++)
        if (j >= 0 && j < channels) sum += (double)x[pixel + j] * x[pixel + j];
    return x[e] / pow(a->k + (double)a->alpha / (double)a->size * sum, a->beta);
}

static void check(const nets_attrs *attrs, const int64_t x[4]) {
    op_rig rig;
    op_rig_init(&rig, NETS_LRN, attrs, x, true, true);
    op_rig_run(&rig, MM_FORWARD);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++)
        assert_true(fabs(op_rig_floats(&rig, NETS_Y)[e] - lrn_at(&rig, e)) < 1e-6);
    op_rig_run(&rig, MM_BACKWARD);
    op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.01f, 1e-3);
    op_rig_fini(&rig);
}

static void lrn_equals_its_formula_and_gradients(void **state) {
    (void)state;
    check(&STRONG, X);
    check(&(nets_attrs){.size = 5, .alpha = 1e-4f, .beta = 0.75f, .k = 2}, (const int64_t[4]){2, 2, 2, 96});
}

static void other_powers(void **state) {
    (void)state;
    check(&(nets_attrs){.size = 3, .alpha = 1, .beta = 0.5f, .k = 1}, X);
    check(&(nets_attrs){.size = 7, .alpha = 3, .beta = 1.5f, .k = 0.5f}, X);
}

static void windows_of_one_and_of_more_than_all_channels(void **state) {
    (void)state;
    check(&(nets_attrs){.size = 1, .alpha = 1}, X);
    check(&(nets_attrs){.size = 21, .alpha = 4}, X);
    check(&(nets_attrs){.size = 101, .alpha = 20}, X);
    check(&(nets_attrs){.size = 5, .alpha = 1}, (const int64_t[4]){3, 2, 2, 1});
}

static void left_out_constants_are_those_of_torch(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_LRN, &(nets_attrs){.size = 5}, X, true, true);
    assert_true(rig.desc.attrs.alpha == 1e-4f && rig.desc.attrs.beta == 0.75f && rig.desc.attrs.k == 1);
    op_rig_fini(&rig);
}

static void bits_are_the_same_in_place(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_LRN, &STRONG, X, true, true);
    op_rig_check_inplace(&rig, MM_BACKWARD, NETS_DY, NETS_DX);
    op_rig_fini(&rig);
    op_rig_init(&rig, NETS_LRN, &STRONG, X, false, false);
    op_rig_check_inplace(&rig, MM_FORWARD, NETS_X, NETS_Y);
    op_rig_fini(&rig);
}

/* On a GPU, blocks take more pixels than one after the other. */
static void pixels_of_a_second_round_give_the_bits_of_the_first(void **state) {
    (void)state;
    enum { PIXELS = 130 * 128, CHANNELS = 32, SAME = 64 * CHANNELS, LAST = PIXELS * CHANNELS - SAME };
    op_rig rig;
    op_rig_init(&rig, NETS_LRN, &STRONG, (const int64_t[4]){1, 130, 128, CHANNELS}, true, true);
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

static void earlier_contribution_is_added_to_the_input_gradient(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_LRN, &STRONG, X, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lrn_equals_its_formula_and_gradients),
        cmocka_unit_test(other_powers),
        cmocka_unit_test(windows_of_one_and_of_more_than_all_channels),
        cmocka_unit_test(left_out_constants_are_those_of_torch),
        cmocka_unit_test(bits_are_the_same_in_place),
        cmocka_unit_test(pixels_of_a_second_round_give_the_bits_of_the_first),
        cmocka_unit_test(earlier_contribution_is_added_to_the_input_gradient),
    };
    OP_RIG_RUN(tests);
}
