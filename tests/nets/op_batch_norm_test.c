/* SPDX-License-Identifier: MIT */
/* Batch norm against its formulas (in double): evaluation mode, running statistics, given statistics. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/contract/op_batch_norm.h"
#include "tests/nets/op_rig.h"

static const int64_t X[4] = {4, 3, 5, 24};
enum { CHANNELS = 24, COUNT = 4 * 3 * 5 };
static const double EPS = 1e-5;

static void start(op_rig *rig, bool training, bool wants_dx) {
    op_rig_init(rig, NETS_BATCH_NORM, NULL, X, training, wants_dx);
    for (int c = 0; c < CHANNELS; c++) {
        op_rig_floats(rig, NETS_MEAN)[c] = 0.01f * (float)c;
        op_rig_floats(rig, NETS_VAR)[c] = 1.0f + 0.1f * (float)c;
        op_rig_floats(rig, NETS_X)[c] += (float)c; /* an outlier, so that channels differ */
    }
}

static void statistics(const op_rig *rig, int c, double *mean_out, double *var_out) {
    const float *x = op_rig_floats(rig, NETS_X);
    double mean = 0, var = 0;
    for (int i = 0; i < COUNT; i++) mean += x[i * CHANNELS + c];
    mean /= COUNT;
    for (int i = 0; i < COUNT; i++) var += (x[i * CHANNELS + c] - mean) * (x[i * CHANNELS + c] - mean);
    *mean_out = mean;
    *var_out = var / COUNT;
}

static void check_normalised(const op_rig *rig, int c, double mean, double var) {
    const float *x = op_rig_floats(rig, NETS_X), *y = op_rig_floats(rig, NETS_Y);
    double scale = op_rig_floats(rig, NETS_W)[c], shift = op_rig_floats(rig, NETS_B)[c];
    for (int i = 0; i < COUNT; i++)
        assert_true(fabs(y[i * CHANNELS + c] - ((x[i * CHANNELS + c] - mean) / sqrt(var + EPS) * scale + shift)) <
                    1e-4);
}

static void training_normalises_with_the_batch_and_saves_its_statistics(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, true, true);
    op_rig_run(&rig, MM_FORWARD);
    for (int c = 0; c < CHANNELS; c++) {
        double mean, var;
        statistics(&rig, c, &mean, &var);
        assert_true(fabs(op_rig_floats(&rig, NETS_SAVED_MEAN)[c] - mean) < 1e-5);
        assert_true(fabs(op_rig_floats(&rig, NETS_SAVED_VAR)[c] - var) < 1e-4 * (1 + var));
        check_normalised(&rig, c, mean, var);
    }
    op_rig_fini(&rig);
}

static void training_moves_running_statistics_by_a_tenth_of_the_unbiased_ones(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, true, true);
    op_rig_run(&rig, MM_FORWARD);
    for (int c = 0; c < CHANNELS; c++) {
        double mean, var;
        statistics(&rig, c, &mean, &var);
        double unbiased = var * COUNT / (COUNT - 1);
        assert_true(fabs(op_rig_floats(&rig, NETS_MEAN)[c] - (0.9 * 0.01 * c + 0.1 * mean)) < 1e-5);
        assert_true(fabs(op_rig_floats(&rig, NETS_VAR)[c] - (0.9 * (1 + 0.1 * c) + 0.1 * unbiased)) < 1e-4 * (1 + var));
    }
    op_rig_fini(&rig);
}

/* The given mean 3 and variance 4 are not the batch's: this shows that they are read, and not computed again. */
static void statistics_that_are_given_are_read_and_left_alone(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, true, true);
    op_rig_run(&rig, MM_FORWARD);
    int64_t n = op_rig_elems(&rig, NETS_Y), channels = op_rig_elems(&rig, NETS_SAVED_MEAN);
    float *first = malloc((size_t)n * sizeof *first);
    assert_non_null(first);
    memcpy(first, op_rig_floats(&rig, NETS_Y), (size_t)n * sizeof *first);
    rig.args.at[NETS_MEAN] = rig.args.at[NETS_VAR] = NULL;
    rig.args.given_roles = NETS_STATISTICS_BITS;
    op_rig_run(&rig, MM_FORWARD);
    assert_memory_equal(op_rig_floats(&rig, NETS_Y), first, (size_t)n * sizeof *first);
    free(first);
    for (int64_t c = 0; c < channels; c++) {
        op_rig_floats(&rig, NETS_SAVED_MEAN)[c] = 3;
        op_rig_floats(&rig, NETS_SAVED_VAR)[c] = 4;
    }
    op_rig_run(&rig, MM_FORWARD);
    for (int c = 0; c < (int)channels; c++) {
        assert_true(op_rig_floats(&rig, NETS_SAVED_MEAN)[c] == 3 && op_rig_floats(&rig, NETS_SAVED_VAR)[c] == 4);
        check_normalised(&rig, c, 3, 4);
    }
    op_rig_fini(&rig);
}

static void evaluation_normalises_with_the_running_statistics_and_keeps_them(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, false, false);
    op_rig_run(&rig, MM_FORWARD);
    for (int c = 0; c < CHANNELS; c++) {
        assert_true(op_rig_floats(&rig, NETS_MEAN)[c] == 0.01f * (float)c);
        assert_true(op_rig_floats(&rig, NETS_VAR)[c] == 1.0f + 0.1f * (float)c);
        check_normalised(&rig, c, 0.01 * c, 1 + 0.1 * c);
    }
    op_rig_fini(&rig);
}

/* The mean is a thousand deviations: a difference of sums of squares would have no correct digit. There are enough rows
 * for several partial sums. */
static void variance_of_values_far_from_zero(void **state) {
    (void)state;
    const int64_t many[4] = {7, 31, 13, 5};
    op_rig rig;
    op_rig_init(&rig, NETS_BATCH_NORM, NULL, many, true, true);
    int64_t rows = 7 * 31 * 13;
    float *x = op_rig_floats(&rig, NETS_X);
    for (int64_t i = 0; i < 5 * rows; i++) x[i] = 500.0f + x[i];
    op_rig_run(&rig, MM_FORWARD);
    for (int c = 0; c < 5; c++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < rows; i++) mean += (double)x[5 * i + c] / (double)rows;
        for (int64_t i = 0; i < rows; i++) var += (x[5 * i + c] - mean) * (x[5 * i + c] - mean) / (double)rows;
        assert_true(fabs(op_rig_floats(&rig, NETS_SAVED_MEAN)[c] - mean) < 2e-3);
        assert_true(fabs(op_rig_floats(&rig, NETS_SAVED_VAR)[c] - var) < 1e-3 * var);
    }
    op_rig_fini(&rig);
}

/* A channel with one NaN becomes NaN as a whole, so that one sees that a training diverges. */
static void what_is_not_a_number_makes_its_channel_none(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, true, true);
    op_rig_floats(&rig, NETS_X)[7 * CHANNELS + 2] = NAN;
    op_rig_run(&rig, MM_FORWARD);
    for (int c = 0; c < CHANNELS; c++) {
        assert_int_equal(isnan(op_rig_floats(&rig, NETS_SAVED_MEAN)[c]), c == 2);
        assert_int_equal(isnan(op_rig_floats(&rig, NETS_SAVED_VAR)[c]), c == 2);
        assert_int_equal(isnan(op_rig_floats(&rig, NETS_VAR)[c]), c == 2);
        assert_int_equal(isnan(op_rig_floats(&rig, NETS_Y)[c]), c == 2);
    }
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_normalises_with_the_batch_and_saves_its_statistics),
        cmocka_unit_test(training_moves_running_statistics_by_a_tenth_of_the_unbiased_ones),
        cmocka_unit_test(statistics_that_are_given_are_read_and_left_alone),
        cmocka_unit_test(evaluation_normalises_with_the_running_statistics_and_keeps_them),
        cmocka_unit_test(variance_of_values_far_from_zero),
        cmocka_unit_test(what_is_not_a_number_makes_its_channel_none),
    };
    OP_RIG_RUN(tests);
}
