/* SPDX-License-Identifier: MIT */
/* Softmax cross-entropy against its formula; its gradient against differences of the loss. The step is 0.02; the loss
 * is a float near 2, so differences are accurate to 1e-5; the tolerance is 2e-3 of the largest gradient, near 0.2. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

enum { BATCH = 5, CLASSES = 7 };
static const int64_t X[4] = {BATCH, 1, 1, CLASSES};
static const int32_t LABELS[BATCH] = {6, 0, 3, 3, 1};

static void start(op_rig *rig, bool training) {
    op_rig_init(rig, NETS_LOSS, NULL, X, training, training);
    memcpy(rig->args.at[NETS_LABELS], LABELS, sizeof LABELS);
    if (!training) rig->args.at[NETS_Y] = NULL;
}

static double expected_loss(const op_rig *rig) {
    double loss = 0;
    for (int i = 0; i < BATCH; i++) {
        const float *row = op_rig_floats(rig, NETS_X) + i * CLASSES;
        double sum = 0;
        for (int k = 0; k < CLASSES; k++) sum += exp((double)row[k]);
        loss -= log(exp((double)row[LABELS[i]]) / sum);
    }
    return loss / BATCH;
}

static void loss_is_the_mean_cross_entropy(void **state) {
    (void)state;
    for (int training = 0; training < 2; training++) {
        op_rig rig;
        start(&rig, training);
        op_rig_run(&rig, MM_FORWARD);
        assert_true(fabs(*op_rig_floats(&rig, NETS_LOSS_VALUE) - expected_loss(&rig)) < 1e-6);
        op_rig_fini(&rig);
    }
}

static void correct_counts_labels_of_the_highest_score(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, false);
    for (int i = 0; i < BATCH; i++) {
        op_rig_floats(&rig, NETS_X)[i * CLASSES + 3] = 5;
        op_rig_floats(&rig, NETS_X)[i * CLASSES + LABELS[i]] = i == 0 ? 9 : 5;
    }
    /* Image 0: its label wins. Images 2 and 3: label 3. Images 1 and 4 tie; the first wins: labels 0 and 1. */
    op_rig_run(&rig, MM_FORWARD);
    assert_int_equal(*(int32_t *)rig.args.at[NETS_CORRECT], 5);
    op_rig_floats(&rig, NETS_X)[4 * CLASSES] = 5;
    op_rig_run(&rig, MM_FORWARD);
    assert_int_equal(*(int32_t *)rig.args.at[NETS_CORRECT], 4);
    op_rig_fini(&rig);
}

static void huge_scores_do_not_overflow(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, true);
    for (int e = 0; e < BATCH * CLASSES; e++) op_rig_floats(&rig, NETS_X)[e] = e % CLASSES == 2 ? 3e4f : -3e4f;
    op_rig_run(&rig, MM_FORWARD);
    assert_true(fabsf(*op_rig_floats(&rig, NETS_LOSS_VALUE) - 6e4f) < 1);
    assert_true(op_rig_floats(&rig, NETS_Y)[2] == 1);
    op_rig_fini(&rig);
}

static void gradient_matches_differences_also_in_place(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, true);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    for (int e = 0; e < BATCH * CLASSES; e++) {
        float *x = op_rig_floats(&rig, NETS_X) + e, value = *x;
        *x = value + 0.02f;
        op_rig_run(&rig, MM_FORWARD);
        double up = *op_rig_floats(&rig, NETS_LOSS_VALUE);
        *x = value - 0.02f;
        op_rig_run(&rig, MM_FORWARD);
        double down = *op_rig_floats(&rig, NETS_LOSS_VALUE);
        *x = value;
        assert_true(fabs((up - down) / 0.04 - op_rig_floats(&rig, NETS_DX)[e]) < 4e-4);
    }
    op_rig_run(&rig, MM_FORWARD);
    rig.args.at[NETS_DX] = rig.args.at[NETS_Y];
    op_rig_run(&rig, MM_BACKWARD);
    assert_memory_equal(rig.storage[NETS_DX], rig.storage[NETS_Y], (size_t)rig.bytes[NETS_DX]);
    op_rig_fini(&rig);
}

/* Runs a forward with a bad label. On the host the stream fails; on a GPU the outputs name the image. */
static void check_refused(op_rig *rig, int label, const char *words) {
    assert_int_equal(nets_op_enqueue(rig->op, MM_FORWARD, &rig->args, rig->stream), MM_OK);
    mm_status status = mm_stream_sync(rig->stream);
    if (strcmp(op_rig_device(), "host") == 0) {
        assert_int_equal(status, MM_ERR_INVALID);
        assert_non_null(strstr(mm_last_error(), words));
        return;
    }
    assert_int_equal(status, MM_OK);
    assert_int_equal(*(int32_t *)rig->args.at[NETS_CORRECT], -1 - label);
    assert_true(isnan(*op_rig_floats(rig, NETS_LOSS_VALUE)));
    op_rig_run(rig, MM_BACKWARD);
    for (int k = 0; k < CLASSES; k++) assert_true(op_rig_floats(rig, NETS_DX)[label * CLASSES + k] == 0);
    assert_true(op_rig_floats(rig, NETS_DX)[0] != 0);
}

static void label_out_of_range_is_refused(void **state) {
    (void)state;
    op_rig rig;
    start(&rig, true);
    ((int32_t *)rig.args.at[NETS_LABELS])[2] = CLASSES;
    ((int32_t *)rig.args.at[NETS_LABELS])[4] = -7; /* the first bad label is reported */
    check_refused(&rig, 2, "label 7 of image 2");
    op_rig_fini(&rig);
}

/* Labels of pixels count like labels of images: only the number of rows matters. */
static void pixels_of_a_map_count_as_images_do(void **state) {
    (void)state;
    op_rig images, maps;
    start(&images, true);
    op_rig_init(&maps, NETS_LOSS, NULL, (const int64_t[4]){1, BATCH, 1, CLASSES}, true, true);
    memcpy(maps.args.at[NETS_LABELS], LABELS, sizeof LABELS);
    const nets_role outputs[] = {NETS_Y, NETS_DX, NETS_LOSS_VALUE, NETS_CORRECT};
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        op_rig_run(&images, phase);
        op_rig_run(&maps, phase);
    }
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
        assert_memory_equal(images.args.at[outputs[i]], maps.args.at[outputs[i]], (size_t)images.bytes[outputs[i]]);
    ((int32_t *)maps.args.at[NETS_LABELS])[2] = -1;
    check_refused(&maps, 2, "label -1 of image 0");
    op_rig_fini(&images);
    op_rig_fini(&maps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_is_the_mean_cross_entropy), cmocka_unit_test(correct_counts_labels_of_the_highest_score),
        cmocka_unit_test(huge_scores_do_not_overflow),    cmocka_unit_test(gradient_matches_differences_also_in_place),
        cmocka_unit_test(label_out_of_range_is_refused),  cmocka_unit_test(pixels_of_a_map_count_as_images_do),
    };
    OP_RIG_RUN(tests);
}
