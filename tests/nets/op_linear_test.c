/* The fully connected layer: against plain loops, and gradients against central differences. It is linear in each of
 * its arguments, so differences are exact but for rounding: tolerance 1e-3 of the largest gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

enum { OUT = 10 };
static const nets_attrs LINEAR = {.out_channels = OUT, .bias = true};
static const int64_t PIXELS[4] = {5, 1, 1, 64}, MAPS[4] = {3, 4, 2, 16};

/* Features are counted channel by channel, images are stored pixel by pixel. */
static double linear_at(const op_rig *rig, int64_t n, int64_t o) {
    const int64_t *x = rig->desc.x[0].dims, pixels = x[1] * x[2], features = pixels * x[3];
    const float *in = op_rig_floats(rig, NETS_X), *w = op_rig_floats(rig, NETS_W);
    double sum = rig->bytes[NETS_B] ? op_rig_floats(rig, NETS_B)[o] : 0;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < x[3]; c++)
            sum += (double)in[n * features + p * x[3] + c] * w[o * features + c * pixels + p];
    return sum;
}

static void check_linear(const nets_attrs *attrs, const int64_t x[4]) {
    op_rig rig;
    op_rig_init(&rig, NETS_LINEAR, attrs, x, true, true);
    op_rig_run(&rig, MM_FORWARD);
    for (int64_t n = 0; n < x[0]; n++)
        for (int64_t o = 0; o < OUT; o++)
            assert_true(fabs(op_rig_floats(&rig, NETS_Y)[n * OUT + o] - linear_at(&rig, n, o)) < 1e-4);
    op_rig_run(&rig, MM_BACKWARD);
    op_rig_check_gradient(&rig, NETS_X, NETS_DX, 0.25f, 1e-3);
    op_rig_check_gradient(&rig, NETS_W, NETS_DW, 0.25f, 1e-3);
    if (rig.bytes[NETS_B]) op_rig_check_gradient(&rig, NETS_B, NETS_DB, 0.25f, 1e-3);
    op_rig_fini(&rig);
}

static void linear_of_pixels_equals_its_definition_and_gradients(void **state) {
    (void)state;
    check_linear(&LINEAR, PIXELS);
    check_linear(&(nets_attrs){.out_channels = OUT}, PIXELS);
}

static void linear_of_maps_flattens_in_torch_order(void **state) {
    (void)state;
    check_linear(&LINEAR, MAPS);
    check_linear(&LINEAR, (const int64_t[4]){2, 6, 6, 37}); /* not a multiple of any vector */
}

static void batch_of_one(void **state) {
    (void)state;
    check_linear(&LINEAR, (const int64_t[4]){1, 1, 1, 33});
    check_linear(&LINEAR, (const int64_t[4]){1, 3, 3, 8});
}

static void without_input_gradient_the_weight_gradient_is_the_same(void **state) {
    (void)state;
    op_rig with, without;
    op_rig_init(&with, NETS_LINEAR, &LINEAR, MAPS, true, true);
    op_rig_init(&without, NETS_LINEAR, &LINEAR, MAPS, true, false);
    op_rig_run(&with, MM_BACKWARD);
    op_rig_run(&without, MM_BACKWARD);
    assert_memory_equal(with.storage[NETS_DW], without.storage[NETS_DW], (size_t)with.bytes[NETS_DW]);
    assert_memory_equal(with.storage[NETS_DB], without.storage[NETS_DB], (size_t)with.bytes[NETS_DB]);
    op_rig_fini(&with);
    op_rig_fini(&without);
}

/* AlexNet's first: 151 MB of weights. A few megabytes of activations change their layout, the weights do not. */
static void workspace_is_of_the_size_of_the_activations_not_of_the_weights(void **state) {
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
    /* cuBLAS asks for scratch to be fast. */
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

static void earlier_contribution_is_added_to_the_input_gradient(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_LINEAR, &LINEAR, PIXELS, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
    op_rig_init(&rig, NETS_LINEAR, &LINEAR, MAPS, true, true);
    op_rig_check_earlier(&rig);
    op_rig_fini(&rig);
}

static void bits_do_not_depend_on_where_tensors_lie(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_LINEAR, &LINEAR, MAPS, true, true);
    op_rig_check_places(&rig);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_of_pixels_equals_its_definition_and_gradients),
        cmocka_unit_test(linear_of_maps_flattens_in_torch_order),
        cmocka_unit_test(batch_of_one),
        cmocka_unit_test(without_input_gradient_the_weight_gradient_is_the_same),
        cmocka_unit_test(workspace_is_of_the_size_of_the_activations_not_of_the_weights),
        cmocka_unit_test(earlier_contribution_is_added_to_the_input_gradient),
        cmocka_unit_test(bits_do_not_depend_on_where_tensors_lie),
    };
    OP_RIG_RUN(tests);
}
