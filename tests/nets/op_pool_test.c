/* Pools against plain loops; gradients against central differences, which are exact but for rounding (1e-3). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

static const int64_t X[4] = {2, 7, 6, 16};
static const nets_attrs OVERLAPPING = {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};

/* Distinct values, further apart than a difference's step, in a scrambled order. */
static void fill_distinct(op_rig *rig) {
    float *x = op_rig_floats(rig, NETS_X);
    int64_t n = op_rig_elems(rig, NETS_X);
    for (int64_t i = 0; i < n; i++) {
        int64_t place = i * 389 % n - n / 2; /* 389 is a prime that does not divide n */
        x[i] = (float)place * 0.01f;
    }
}

/* One window: its maximum and where, its sum, its elements inside the image. */
typedef struct window {
    float max;
    int index, inside;
    double sum;
} window;

static window look(const op_rig *rig, int64_t e) {
    const int64_t *xd = rig->desc.x[0].dims, *yd = rig->desc.y.dims;
    const nets_attrs *a = &rig->desc.attrs;
    int64_t c = e % yd[3], ox = e / yd[3] % yd[2], oy = e / (yd[3] * yd[2]) % yd[1], n = e / (yd[3] * yd[2] * yd[1]);
    window w = {.max = -INFINITY};
    for (int64_t ky = 0; ky < a->kernel[0]; ky++)
        for (int64_t kx = 0; kx < a->kernel[1]; kx++) {
            int64_t iy = oy * a->stride[0] + ky - a->pad[0], ix = ox * a->stride[1] + kx - a->pad[1];
            if (iy < 0 || iy >= xd[1] || ix < 0 || ix >= xd[2]) continue;
            float value = op_rig_floats(rig, NETS_X)[((n * xd[1] + iy) * xd[2] + ix) * xd[3] + c];
            w.inside++;
            w.sum += value;
            if (value > w.max) {
                w.max = value;
                w.index = (int)(ky * a->kernel[1] + kx);
            }
        }
    return w;
}

static void max_pool_gives_the_maximum_and_its_place_in_the_window(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_MAX_POOL, &OVERLAPPING, X, true, true);
    fill_distinct(&rig);
    op_rig_run(&rig, MM_FORWARD);
    const uint8_t *index = rig.args.at[NETS_INDEX];
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
        window w = look(&rig, e);
        assert_true(op_rig_floats(&rig, NETS_Y)[e] == w.max);
        assert_int_equal(index[e], w.index);
    }
    op_rig_fini(&rig);
}

static void max_pool_in_evaluation_needs_no_index(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_MAX_POOL, &OVERLAPPING, X, false, false);
    fill_distinct(&rig);
    assert_null(rig.args.at[NETS_INDEX]);
    op_rig_run(&rig, MM_FORWARD);
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++)
        assert_true(op_rig_floats(&rig, NETS_Y)[e] == look(&rig, e).max);
    op_rig_fini(&rig);
}

/* Else a run that has diverged would look as if it had not. */
static void max_pool_keeps_what_is_not_a_number(void **state) {
    (void)state;
    for (int training = 0; training < 2; training++) {
        op_rig rig;
        op_rig_init(&rig, NETS_MAX_POOL, &OVERLAPPING, X, training, training);
        fill_distinct(&rig);
        float *x = op_rig_floats(&rig, NETS_X);
        for (int64_t i = 0; i < op_rig_elems(&rig, NETS_X); i += 61) x[i] = NAN;
        op_rig_run(&rig, MM_FORWARD);
        for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
            window w = look(&rig, e);
            float y = op_rig_floats(&rig, NETS_Y)[e];
            assert_true(isnan(w.sum) ? isnan(y) : y == w.max);
        }
        op_rig_fini(&rig);
    }
}

static void max_pool_gradient_matches_differences(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_MAX_POOL, &OVERLAPPING, X, true, true);
    fill_distinct(&rig);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.004f, 1e-3);
    op_rig_fini(&rig);
}

static void check_average(nets_op_kind kind, const nets_attrs *attrs) {
    op_rig rig;
    op_rig_init(&rig, kind, attrs, X, true, true);
    op_rig_run(&rig, MM_FORWARD);
    int64_t area = rig.desc.attrs.kernel[0] * rig.desc.attrs.kernel[1];
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
        window w = look(&rig, e);
        double by = rig.desc.attrs.exclude_pad ? w.inside : (double)area;
        assert_true(fabs(op_rig_floats(&rig, NETS_Y)[e] - w.sum / by) < 1e-5);
    }
    op_rig_run(&rig, MM_BACKWARD);
    op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.25f, 1e-3);
    op_rig_fini(&rig);
}

static void average_pool_counts_the_padding(void **state) {
    (void)state;
    check_average(NETS_AVG_POOL, &OVERLAPPING);
}

static void average_pool_excluding_the_padding(void **state) {
    (void)state;
    nets_attrs attrs = OVERLAPPING;
    attrs.exclude_pad = true;
    check_average(NETS_AVG_POOL, &attrs);
}

static void global_average_pool(void **state) {
    (void)state;
    check_average(NETS_GLOBAL_AVG_POOL, NULL);
}

/* Height 7 and width 6 hold windows of 2 at 0, 3, (6): the last one has a row and no column of its own. */
static const int64_t X_CEIL[4] = {2, 7, 6, 5};

static void check_maxima(const nets_attrs *attrs, int64_t height, int64_t width) {
    op_rig rig;
    op_rig_init(&rig, NETS_MAX_POOL, attrs, X_CEIL, true, true);
    assert_int_equal(rig.desc.y.dims[1], height);
    assert_int_equal(rig.desc.y.dims[2], width);
    fill_distinct(&rig);
    op_rig_run(&rig, MM_FORWARD);
    const uint8_t *index = rig.args.at[NETS_INDEX];
    for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
        window w = look(&rig, e);
        assert_true(op_rig_floats(&rig, NETS_Y)[e] == w.max);
        assert_int_equal(index[e], w.index);
    }
    op_rig_run(&rig, MM_BACKWARD);
    op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.004f, 1e-3);
    op_rig_fini(&rig);
}

static void windows_in_ceil_mode_may_reach_beyond_the_image(void **state) {
    (void)state;
    check_maxima(&(nets_attrs){.kernel = {2, 2}, .stride = {3, 3}}, 2, 2);
    check_maxima(&(nets_attrs){.kernel = {2, 2}, .stride = {3, 3}, .ceil_mode = true}, 3, 2);
    check_maxima(&(nets_attrs){.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true}, 3, 3);
    check_maxima(&(nets_attrs){.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = true}, 4, 4);
    /* Of rows, a fifth window, and of columns a third, would begin in the padding behind: torch leaves it out. */
    check_maxima(&(nets_attrs){.kernel = {2, 2}, .stride = {2, 2}, .pad = {1, 0}, .ceil_mode = true}, 4, 3);
    check_maxima(&(nets_attrs){.kernel = {4, 4}, .stride = {4, 4}, .pad = {0, 2}, .ceil_mode = true}, 2, 2);
}

/* An average over what lies inside, where there is no padding, or where it is not counted. */
static void averages_in_ceil_mode_count_what_is_inside(void **state) {
    (void)state;
    const nets_attrs cases[] = {
        {.kernel = {2, 2}, .stride = {3, 3}, .ceil_mode = true},
        {.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true},
        {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = true, .exclude_pad = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_rig rig;
        op_rig_init(&rig, NETS_AVG_POOL, &cases[i], X_CEIL, true, true);
        op_rig_run(&rig, MM_FORWARD);
        for (int64_t e = 0; e < op_rig_elems(&rig, NETS_Y); e++) {
            window w = look(&rig, e);
            assert_true(fabs(op_rig_floats(&rig, NETS_Y)[e] - w.sum / w.inside) < 1e-5);
        }
        op_rig_run(&rig, MM_BACKWARD);
        op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.25f, 1e-3);
        op_rig_fini(&rig);
    }
}

static void earlier_contribution_is_added_to_the_input_gradient(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_MAX_POOL, &OVERLAPPING, X, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
    op_rig_init(&rig, NETS_GLOBAL_AVG_POOL, NULL, X, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_pool_gives_the_maximum_and_its_place_in_the_window),
        cmocka_unit_test(max_pool_in_evaluation_needs_no_index),
        cmocka_unit_test(max_pool_keeps_what_is_not_a_number),
        cmocka_unit_test(max_pool_gradient_matches_differences),
        cmocka_unit_test(average_pool_counts_the_padding),
        cmocka_unit_test(average_pool_excluding_the_padding),
        cmocka_unit_test(global_average_pool),
        cmocka_unit_test(windows_in_ceil_mode_may_reach_beyond_the_image),
        cmocka_unit_test(averages_in_ceil_mode_count_what_is_inside),
        cmocka_unit_test(earlier_contribution_is_added_to_the_input_gradient),
    };
    OP_RIG_RUN(tests);
}
