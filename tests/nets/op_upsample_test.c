/* Upsampling: against its definition, and gradients against central differences. It is linear, so differences are exact
 * but for rounding: tolerance 1e-3 of the largest gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

static const int64_t X[4] = {2, 3, 4, 5};

/* Where the middle of pixel `at` of an axis lies in the image before: torch's with align_corners=False, clamped to the
 * middles of the outermost pixels. */
static double position(int64_t at, int64_t scale, int64_t extent) {
    return fmin(fmax(((double)at + 0.5) / (double)scale - 0.5, 0), (double)extent - 1);
}

static double pixel_at(const op_rig *rig, int64_t n, int64_t iy, int64_t ix, int64_t c) {
    const int64_t *x = rig->desc.x[0].dims;
    return op_rig_floats(rig, NETS_X)[((n * x[1] + iy) * x[2] + ix) * x[3] + c];
}

static double upsampled_at(const op_rig *rig, int64_t e) {
    const nets_attrs *a = &rig->desc.attrs;
    const int64_t *x = rig->desc.x[0].dims, *y = rig->desc.y.dims;
    int64_t c = e % y[3], ox = e / y[3] % y[2], oy = e / (y[3] * y[2]) % y[1], n = e / (y[3] * y[2] * y[1]);
    if (!a->bilinear) return pixel_at(rig, n, oy / a->scale[0], ox / a->scale[1], c);
    double py = position(oy, a->scale[0], x[1]), px = position(ox, a->scale[1], x[2]);
    int64_t top = (int64_t)py, left = (int64_t)px, bottom = top + 1 < x[1] ? top + 1 : top,
            right = left + 1 < x[2] ? left + 1 : left;
    double v = py - (double)top, u = px - (double)left;
    return (1 - v) * ((1 - u) * pixel_at(rig, n, top, left, c) + u * pixel_at(rig, n, top, right, c)) +
           v * ((1 - u) * pixel_at(rig, n, bottom, left, c) + u * pixel_at(rig, n, bottom, right, c));
}

static void check(const nets_attrs *attrs, const int64_t x[4]) {
    op_rig rig;
    op_rig_init(&rig, NETS_UPSAMPLE, attrs, x, true, true);
    assert_int_equal(rig.desc.y.dims[1], x[1] * attrs->scale[0]);
    assert_int_equal(rig.desc.y.dims[2], x[2] * attrs->scale[1]);
    op_rig_run(&rig, MM_FORWARD);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++)
        assert_true(fabs(op_rig_floats(&rig, NETS_Y)[e] - upsampled_at(&rig, e)) < 1e-5);
    op_rig_run(&rig, MM_BACKWARD);
    op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.25f, 1e-3);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
}

static void nearest_repeats_pixels(void **state) {
    (void)state;
    check(&(nets_attrs){.scale = {2, 2}}, X);
    check(&(nets_attrs){.scale = {3, 1}}, X);
    check(&(nets_attrs){.scale = {7, 5}}, (const int64_t[4]){1, 5, 3, 16});
}

static void bilinear_interpolates_between_middles(void **state) {
    (void)state;
    check(&(nets_attrs){.scale = {2, 2}, .bilinear = true}, X);
    check(&(nets_attrs){.scale = {1, 3}, .bilinear = true}, X);
    check(&(nets_attrs){.scale = {8, 4}, .bilinear = true}, (const int64_t[4]){1, 5, 3, 16});
}

static void of_a_single_pixel(void **state) {
    (void)state;
    check(&(nets_attrs){.scale = {4, 4}}, (const int64_t[4]){2, 1, 1, 3});
    check(&(nets_attrs){.scale = {4, 4}, .bilinear = true}, (const int64_t[4]){2, 1, 1, 3});
}

static void bits_do_not_depend_on_where_tensors_lie(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_UPSAMPLE, &(nets_attrs){.scale = {2, 2}, .bilinear = true}, X, true, true);
    op_rig_check_places(&rig);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_repeats_pixels),
        cmocka_unit_test(bilinear_interpolates_between_middles),
        cmocka_unit_test(of_a_single_pixel),
        cmocka_unit_test(bits_do_not_depend_on_where_tensors_lie),
    };
    OP_RIG_RUN(tests);
}
