/* SPDX-License-Identifier: MIT */
/* Activations where numbers are special or signs are given; ReLU and residual sum, which are exact, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

/* 3 * 5 * 7 * 9 = 945 elements: not a multiple of 32, so the mask's last word is partial. */
static const int64_t X[4] = {3, 5, 7, 9};

static void relu_forward_keeps_the_positive(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_RELU, NULL, X, true, true);
    op_rig_floats(&rig, NETS_X)[3] = NAN;
    op_rig_run(&rig, MM_FORWARD);
    for (int64_t i = 0; i < op_rig_elems(&rig, NETS_Y); i++) {
        float x = op_rig_floats(&rig, NETS_X)[i], y = op_rig_floats(&rig, NETS_Y)[i];
        assert_true(i == 3 ? isnan(y) : y == (x > 0 ? x : 0));
    }
    op_rig_fini(&rig);
}

static void relu_backward_lets_through_where_the_output_is_positive(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_RELU, NULL, X, true, true);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    for (int64_t i = 0; i < op_rig_elems(&rig, NETS_DX); i++)
        assert_true(op_rig_floats(&rig, NETS_DX)[i] ==
                    (op_rig_floats(&rig, NETS_X)[i] > 0 ? op_rig_floats(&rig, NETS_DY)[i] : 0));
    op_rig_fini(&rig);
}

static void check_by_mask(nets_op_kind kind) {
    op_rig rig;
    op_rig_init(&rig, kind, NULL, X, true, true);
    int64_t n = op_rig_elems(&rig, NETS_DX);
    float *by_value = malloc((size_t)n * sizeof *by_value);
    assert_non_null(by_value);
    for (int with_earlier = 0; with_earlier < 2; with_earlier++) {
        if (with_earlier) rig.args.at[NETS_EARLIER] = rig.args.at[NETS_X];
        op_rig_run(&rig, MM_FORWARD);
        op_rig_run(&rig, MM_BACKWARD);
        memcpy(by_value, rig.storage[NETS_DX], (size_t)n * sizeof *by_value);
        uint32_t *mask = op_rig_mask(&rig, rig.storage[NETS_Y], n);
        rig.args.at[NETS_Y] = mask;
        rig.args.sign_roles = NETS_ROLE_BIT(NETS_Y);
        memset(rig.storage[NETS_DX], 0xff, (size_t)n * sizeof *by_value);
        op_rig_run(&rig, MM_BACKWARD);
        assert_memory_equal(by_value, rig.storage[NETS_DX], (size_t)n * sizeof *by_value);
        rig.args.at[NETS_Y] = rig.storage[NETS_Y];
        rig.args.sign_roles = 0;
    }
    free(by_value);
    op_rig_fini(&rig);
}

static void gradients_by_mask_equal_those_by_value(void **state) {
    (void)state;
    check_by_mask(NETS_RELU);
    check_by_mask(NETS_LEAKY_RELU);
}

/* Far from 0, values are finite and slopes are those of the asymptotes; NaN stays NaN. */
static void activations_of_extreme_numbers_are_finite(void **state) {
    static const float xs[] = {NAN, -1e4f, -100, 100, 1e4f};
    static const float slopes[][2] = {[NETS_LEAKY_RELU] = {0.01f, 1},
                                      [NETS_RELU6] = {0, 0},
                                      [NETS_SIGMOID] = {0, 0},
                                      [NETS_HARD_SIGMOID] = {0, 0},
                                      [NETS_SILU] = {0, 1},
                                      [NETS_HARD_SWISH] = {0, 1},
                                      [NETS_GELU] = {0, 1}};
    (void)state;
    for (nets_op_kind kind = NETS_LEAKY_RELU; kind <= NETS_GELU; kind++)
        for (int by_tanh = 0; by_tanh <= (kind == NETS_GELU); by_tanh++) {
            op_rig rig;
            op_rig_init(&rig, kind, &(nets_attrs){.tanh = by_tanh}, X, true, true);
            memcpy(rig.args.at[NETS_X], xs, sizeof xs);
            op_rig_run(&rig, MM_FORWARD);
            op_rig_run(&rig, MM_BACKWARD);
            assert_true(isnan(op_rig_floats(&rig, NETS_Y)[0]));
            for (int i = 1; i < 5; i++) {
                const float dy = op_rig_floats(&rig, NETS_DY)[i], dx = op_rig_floats(&rig, NETS_DX)[i];
                assert_true(isfinite(op_rig_floats(&rig, NETS_Y)[i]));
                assert_true(fabsf(dx - dy * slopes[kind][xs[i] > 0]) < 1e-6f);
            }
            op_rig_fini(&rig);
        }
}

static void add_forward_sums_also_in_place_of_either_addend(void **state) {
    (void)state;
    for (int place = 0; place < 3; place++) {
        op_rig rig, fresh;
        op_rig_init(&rig, NETS_ADD, NULL, X, true, true);
        op_rig_init(&fresh, NETS_ADD, NULL, X, true, true);
        if (place == 1) rig.args.at[NETS_Y] = rig.args.at[NETS_X];
        if (place == 2) rig.args.at[NETS_Y] = rig.args.at[NETS_X2];
        op_rig_run(&rig, MM_FORWARD);
        for (int64_t i = 0; i < op_rig_elems(&fresh, NETS_Y); i++)
            assert_true(op_rig_floats(&rig, NETS_Y)[i] ==
                        op_rig_floats(&fresh, NETS_X)[i] + op_rig_floats(&fresh, NETS_X2)[i]);
        op_rig_fini(&rig);
        op_rig_fini(&fresh);
    }
}

static void add_backward_copies_unless_storage_is_shared(void **state) {
    (void)state;
    op_rig rig;
    op_rig_init(&rig, NETS_ADD, NULL, X, true, true);
    rig.args.at[NETS_DX2] = rig.args.at[NETS_DY];
    op_rig_run(&rig, MM_BACKWARD);
    op_rig fresh;
    op_rig_init(&fresh, NETS_ADD, NULL, X, true, true);
    assert_memory_equal(rig.storage[NETS_DX], fresh.storage[NETS_DY], (size_t)rig.bytes[NETS_DX]);
    assert_memory_equal(rig.storage[NETS_DY], fresh.storage[NETS_DY], (size_t)rig.bytes[NETS_DY]);
    op_rig_fini(&rig);
    op_rig_fini(&fresh);
}

static void add_backward_adds_earlier_contributions_also_in_their_place(void **state) {
    (void)state;
    op_rig rig, fresh;
    op_rig_init(&rig, NETS_ADD, NULL, X, true, true);
    op_rig_init(&fresh, NETS_ADD, NULL, X, true, true);
    rig.args.at[NETS_EARLIER] = rig.args.at[NETS_X];
    rig.args.at[NETS_EARLIER2] = rig.args.at[NETS_DX2] = rig.args.at[NETS_X2];
    op_rig_run(&rig, MM_BACKWARD);
    for (int64_t i = 0; i < op_rig_elems(&fresh, NETS_DX); i++) {
        float dy = op_rig_floats(&fresh, NETS_DY)[i];
        assert_true(op_rig_floats(&rig, NETS_DX)[i] == dy + op_rig_floats(&fresh, NETS_X)[i]);
        assert_true(op_rig_floats(&rig, NETS_DX2)[i] == dy + op_rig_floats(&fresh, NETS_X2)[i]);
    }
    op_rig_fini(&rig);
    op_rig_fini(&fresh);
}

/* Gradients with respect to both inputs are added to earlier ones; where both are one map, dx is the second's earlier
 * gradient (op.h). */
static void mul_backward_adds_earlier_contributions_also_of_one_map_twice(void **state) {
    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        op_rig rig, fresh;
        op_rig_init(&rig, NETS_MUL, NULL, X, true, true);
        op_rig_init(&fresh, NETS_MUL, NULL, X, true, true);
        rig.args.at[NETS_EARLIER] = fresh.storage[NETS_DX]; /* NaN until it is filled */
        op_rig_fill(&fresh, NETS_DX, 50);
        rig.args.at[NETS_EARLIER2] = op_rig_alloc(&rig, rig.bytes[NETS_DX]);
        if (twice) {
            rig.args.at[NETS_X2] = rig.args.at[NETS_X];
            rig.args.at[NETS_DX2] = rig.args.at[NETS_EARLIER2] = rig.args.at[NETS_DX];
        }
        op_rig_run(&rig, MM_BACKWARD);
        for (int64_t i = 0; i < op_rig_elems(&rig, NETS_DX); i++) {
            const double x = (double)op_rig_floats(&rig, NETS_X)[i], x2 = (double)op_rig_floats(&rig, NETS_X2)[i],
                         dy = (double)op_rig_floats(&rig, NETS_DY)[i],
                         earlier = (double)op_rig_floats(&fresh, NETS_DX)[i];
            const double dx = dy * x2 + earlier + (twice ? dy * x : 0);
            assert_true(fabs((double)op_rig_floats(&rig, NETS_DX)[i] - dx) < 1e-6);
            if (!twice) assert_true(fabs((double)op_rig_floats(&rig, NETS_DX2)[i] - dy * x) < 1e-6);
        }
        op_rig_fini(&rig);
        op_rig_fini(&fresh);
    }
}

static void mul_refuses_other_shapes(void **state) {
    nets_net *net;
    (void)state;
    assert_int_equal(nets_net_create("t", &net), MM_OK);
    const int data = nets_add_data(net, 4, 6, 3, 2);
    const int half = nets_add1(net, "half", NETS_MAX_POOL, &(nets_attrs){.kernel = {2, 2}}, data);
    assert_int_equal(nets_add(net, "times", NETS_MUL, NULL, (const int[]){data, half}, 2), -1);
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "layer times: cannot multiply 4x6x3 by 2x3x3; the second input must have the "
                                         "first's shape, or one number for each of its channels");
    nets_net_destroy(net);
}

/* An operation, or a dtype of maps, that the device lacks is refused, and never computed as another one. */
static void what_a_device_lacks_is_refused_by_name(void **state) {
    (void)state;
    op_rig rig;
    nets_op *op;
    char expected[128];
    op_rig_init(&rig, NETS_RELU, NULL, X, true, true);
    assert_int_equal(nets_op_create(rig.backend, &(nets_op_desc){.kind = NETS_DATA}, &op), MM_ERR_UNSUPPORTED);
    snprintf(expected, sizeof expected, "device %s has no operation data", rig.backend->ops->name);
    assert_string_equal(mm_last_error(), expected);
    for (nets_op_kind kind = NETS_DATA + 1; kind < NETS_OP_KINDS; kind++) {
        const uint32_t maps = rig.backend->ops->impls[kind]->maps;
        if (!maps) { /* the device lacks the operation */
            assert_false(strcmp(rig.backend->ops->name, "host") == 0);
            snprintf(expected, sizeof expected, "device %s has no operation %s", rig.backend->ops->name,
                     nets_op_name(kind));
            assert_int_equal(nets_op_create(rig.backend, &(nets_op_desc){.kind = kind}, &op), MM_ERR_UNSUPPORTED);
            assert_string_equal(mm_last_error(), expected);
            continue;
        }
        assert_true(maps & NETS_DTYPE_BIT(MM_F32));
        for (mm_dtype dtype = 0; dtype < MM_DTYPES; dtype++) {
            nets_op_desc desc = rig.desc;
            if (maps & NETS_DTYPE_BIT(dtype) || (dtype == MM_BF16 && rig.backend->ops->convert)) continue;
            desc.kind = kind;
            desc.maps = dtype;
            assert_int_equal(nets_op_create(rig.backend, &desc, &op), MM_ERR_UNSUPPORTED);
            snprintf(expected, sizeof expected, "device %s has no operation %s for %s maps, only for f32",
                     rig.backend->ops->name, nets_op_name(kind), mm_dtype_name(dtype));
            assert_memory_equal(mm_last_error(), expected, strlen(expected));
        }
    }
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_forward_keeps_the_positive),
        cmocka_unit_test(relu_backward_lets_through_where_the_output_is_positive),
        cmocka_unit_test(gradients_by_mask_equal_those_by_value),
        cmocka_unit_test(activations_of_extreme_numbers_are_finite),
        cmocka_unit_test(add_forward_sums_also_in_place_of_either_addend),
        cmocka_unit_test(add_backward_copies_unless_storage_is_shared),
        cmocka_unit_test(add_backward_adds_earlier_contributions_also_in_their_place),
        cmocka_unit_test(mul_backward_adds_earlier_contributions_also_of_one_map_twice),
        cmocka_unit_test(mul_refuses_other_shapes),
        cmocka_unit_test(what_a_device_lacks_is_refused_by_name),
    };
    OP_RIG_RUN(tests);
}
