/* SPDX-License-Identifier: MIT */
/* Every operation, over a table of cases. Outputs match the definition, in training and evaluation; gradients match
 * central differences; an earlier contribution is added to the input's gradient. Bits do not depend on where tensors
 * lie, or on whether outputs are written over inputs where that is allowed. Gradients by parameters do not depend on
 * whether the input's gradient is wanted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "nets/net_ops.h"
#include "tests/nets/op_formula.h"

/* ---------------------------------------------------------------- inputs that are not just random */

/* Distinct values, further apart than a difference's step, in a scrambled order. */
static void fill_distinct(op_rig *rig) {
    float *x = op_rig_floats(rig, NETS_X);
    const int64_t n = op_rig_elems(rig, NETS_X);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 389 % n - n / 2) * 0.01f; /* a prime that does not divide n */
}

/* From -10.5 to 10.5, none within a difference's step of 0, 3 or 6, where some activations bend. */
static void fill_unbent(op_rig *rig) {
    float *x = op_rig_floats(rig, NETS_X);
    const int64_t n = op_rig_elems(rig, NETS_X);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 389 % n - n / 2) * 21 / (float)n + 0.01f;
}

static void fill_norm(op_rig *rig) {
    for (int c = 0; c < nets_shape_channels(&rig->desc.y); c++) {
        op_rig_floats(rig, NETS_MEAN)[c] = 0.01f * (float)c;
        op_rig_floats(rig, NETS_VAR)[c] = 1.0f + 0.1f * (float)c;
        op_rig_floats(rig, NETS_X)[c] += (float)c; /* an outlier, so that channels differ */
    }
}

/* Channels with other means. */
static void fill_uneven(op_rig *rig) {
    const int64_t channels = nets_shape_channels(&rig->desc.x[0]);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_X); i++)
        op_rig_floats(rig, NETS_X)[i] += 0.3f * (float)(i % channels);
}

static void fill_dropout(op_rig *rig) {
    memcpy(rig->args.at[NETS_RNG], (const uint32_t[4]){12345, 678, 9, 0}, 16);
    rig->args.layer = 4;
}

static void fill_labels(op_rig *rig) {
    int32_t *labels = rig->args.at[NETS_LABELS];
    const int64_t classes = nets_shape_channels(&rig->desc.x[0]);
    for (int64_t i = 0; i < nets_shape_rows(&rig->desc.x[0]); i++) labels[i] = (int32_t)(3 * i % classes);
}

/* ---------------------------------------------------------------- operations */

typedef enum op_check {
    ADDS_EARLIER_INPLACE = 1, /* EARLIER may be at DX's address; an op is created either with EARLIER or without */
    FORWARD_INPLACE = 2,      /* in training */
    EVALUATION_INPLACE = 4,
    BACKWARD_INPLACE = 8,
    OF_INPUT = EVALUATION_INPLACE | BACKWARD_INPLACE, /* activations whose gradient is a function of the input */
    OF_OUTPUT = OF_INPUT | FORWARD_INPLACE,           /* or of the output */
} op_check;

/* For ops linear in each argument, differences are exact but for rounding. For others the step is small enough that
 * curvature stays below the tolerance. A batch norm sums over all outputs and so rounds more. */
static const struct operation {
    double (*formula)(const op_rig *rig, int64_t e); /* NULL: tested elsewhere */
    void (*fill)(op_rig *rig);
    double tolerance; /* of the output */
    float step;       /* of differences; 0: tested elsewhere */
    double deviation; /* largest error of gradients, relative to the largest one */
    unsigned checks;
} OPERATIONS[NETS_OP_KINDS] = {
    [NETS_CONV] = {op_formula_conv, NULL, 1e-4, 0.25f, 1e-3, ADDS_EARLIER_INPLACE},
    [NETS_CONV_TRANSPOSE] = {op_formula_conv_transpose, NULL, 1e-4, 0.25f, 1e-3, ADDS_EARLIER_INPLACE},
    [NETS_LINEAR] = {op_formula_linear, NULL, 1e-4, 0.25f, 1e-3, 0},
    [NETS_LRN] = {op_formula_lrn, NULL, 1e-6, 0.01f, 1e-3, EVALUATION_INPLACE | BACKWARD_INPLACE},
    [NETS_MAX_POOL] = {op_formula_max_pool, fill_distinct, 0, 0.004f, 1e-3, 0},
    [NETS_AVG_POOL] = {op_formula_avg_pool, NULL, 1e-5, 0.25f, 1e-3, 0},
    [NETS_GLOBAL_AVG_POOL] = {op_formula_avg_pool, NULL, 1e-5, 0.25f, 1e-3, 0},
    [NETS_UPSAMPLE] = {op_formula_upsample, NULL, 1e-5, 0.25f, 1e-3, 0},
    [NETS_CROP] = {op_formula_crop, NULL, 0, 0.25f, 1e-3, 0},
    [NETS_ADD] = {op_formula_add, NULL, 1e-6, 0.25f, 1e-3, FORWARD_INPLACE},
    [NETS_MUL] = {op_formula_mul, NULL, 1e-6, 0.25f, 1e-3, EVALUATION_INPLACE | BACKWARD_INPLACE},
    [NETS_GROUP_NORM] = {op_formula_group_norm, fill_uneven, 2e-5, 0.01f, 1e-2, EVALUATION_INPLACE | BACKWARD_INPLACE},
    [NETS_RMS_NORM] = {op_formula_rms_norm, NULL, 1e-5, 0.01f, 1e-2, EVALUATION_INPLACE | BACKWARD_INPLACE},
    [NETS_RELU] = {op_formula_relu, NULL, 0, 0, 0, FORWARD_INPLACE | EVALUATION_INPLACE | BACKWARD_INPLACE},
    [NETS_LEAKY_RELU] = {op_formula_leaky_relu, fill_unbent, 1e-6, 0.004f, 1e-3, OF_OUTPUT},
    [NETS_RELU6] = {op_formula_relu6, fill_unbent, 0, 0.004f, 1e-3, OF_OUTPUT},
    [NETS_SIGMOID] = {op_formula_sigmoid, fill_unbent, 1e-6, 0.01f, 1e-3, OF_OUTPUT},
    [NETS_HARD_SIGMOID] = {op_formula_hard_sigmoid, fill_unbent, 1e-6, 0.004f, 1e-3, OF_OUTPUT},
    [NETS_SILU] = {op_formula_silu, fill_unbent, 3e-6, 0.01f, 1e-3, OF_INPUT},
    [NETS_HARD_SWISH] = {op_formula_hard_swish, fill_unbent, 3e-6, 0.004f, 1e-3, OF_INPUT},
    [NETS_GELU] = {op_formula_gelu, fill_unbent, 3e-6, 0.01f, 1e-3, OF_INPUT},
    [NETS_SCALE] = {op_formula_scale, NULL, 1e-6, 0.25f, 1e-3, OF_OUTPUT},
    [NETS_DROPOUT] = {NULL, fill_dropout, 0, 0.25f, 1e-3, FORWARD_INPLACE | BACKWARD_INPLACE},
    [NETS_BATCH_NORM] = {NULL, fill_norm, 0, 0.01f, 1e-2, EVALUATION_INPLACE | BACKWARD_INPLACE},
    [NETS_LOSS] = {NULL, fill_labels, 0, 0, 0, FORWARD_INPLACE},
};

typedef struct op_case {
    const char *name;
    nets_op_kind kind;
    nets_attrs attrs;
    int64_t x[4];
    int64_t x2[4];      /* the second input, if it is not as the first */
    int64_t y[2];       /* height and width of the output; 0: not checked */
    bool sums_by_image; /* for batch 1 with an earlier contribution, the host's library sums in another order */
    bool of_host;       /* large, and tells nothing about other devices */
} op_case;

static const struct operation *operation_of(const op_case *c) { return &OPERATIONS[c->kind]; }

static void start(op_rig *rig, const op_case *c, bool training, bool wants_dx) {
    if (c->x2[0])
        op_rig_init_two(rig, c->kind, &c->attrs, c->x, c->x2, training, wants_dx);
    else
        op_rig_init(rig, c->kind, &c->attrs, c->x, training, wants_dx);
    if (operation_of(c)->fill) operation_of(c)->fill(rig);
}

/* ---------------------------------------------------------------- checks */

/* The index stored for output e: 4 bits if windows have at most 16 elements and channels are a multiple of 4. */
static int kept_index(const op_rig *rig, int64_t e) {
    const uint8_t *index = rig->args.at[NETS_INDEX];
    const nets_attrs *a = &rig->desc.attrs;
    const bool halves = a->kernel[0] * a->kernel[1] <= 16 && rig->desc.y.dims[3] % 4 == 0;
    assert_int_equal(rig->bytes[NETS_INDEX], op_rig_elems(rig, NETS_Y) / (halves ? 2 : 1));
    return halves ? index[e / 2] >> e % 2 * 4 & 15 : index[e];
}

static void check_output(const op_case *c, const op_rig *rig) {
    if (c->y[0]) assert_int_equal(rig->desc.y.dims[1], c->y[0]);
    if (c->y[1]) assert_int_equal(rig->desc.y.dims[2], c->y[1]);
    for (int64_t e = 0; operation_of(c)->formula && e < op_rig_elems(rig, NETS_Y); e++) {
        const double y = op_rig_floats(rig, NETS_Y)[e], expected = operation_of(c)->formula(rig, e);
        if (!(fabs(y - expected) <= operation_of(c)->tolerance))
            fail_msg("element %lld is %g, by its definition %g", (long long)e, y, expected);
        if (c->kind == NETS_MAX_POOL && rig->args.at[NETS_INDEX])
            assert_int_equal(kept_index(rig, e), op_formula_max_index(rig, e));
    }
}

static void check_outputs(const op_case *c) {
    for (int training = 0; training < 2; training++) {
        op_rig rig;
        start(&rig, c, training, training);
        if (c->kind == NETS_MAX_POOL) assert_int_equal(rig.args.at[NETS_INDEX] != NULL, training);
        op_rig_run(&rig, MM_FORWARD);
        check_output(c, &rig);
        op_rig_fini(&rig);
    }
}

static void check_gradients(const op_case *c) {
    const struct operation *o = operation_of(c);
    op_rig rig;
    if (o->step == 0) return;
    start(&rig, c, true, true);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    for (int i = 0; i < rig.desc.n_inputs; i++)
        op_rig_check_gradient(&rig, (nets_role)(NETS_X + i), (nets_role)(NETS_DX + i), o->step, o->deviation);
    for (int i = 0; i < NETS_MAX_PARAMS; i++)
        if (rig.storage[NETS_DPARAM + i])
            op_rig_check_gradient(&rig, (nets_role)(NETS_PARAM + i), (nets_role)(NETS_DPARAM + i), o->step,
                                  o->deviation);
    op_rig_fini(&rig);
}

static void check_fresh(const op_case *c, void (*check)(op_rig *rig)) {
    op_rig rig;
    start(&rig, c, true, true);
    check(&rig);
    op_rig_fini(&rig);
}

static void check_same(const op_rig *a, const void *b, nets_role role) {
    if (b && memcmp(a->args.at[role], b, (size_t)a->bytes[role]) != 0) fail_msg("role %d has other bits", (int)role);
}

static void check_inplace(const op_case *c, bool training, mm_phase phase, nets_role input, nets_role output) {
    op_rig apart, together;
    start(&apart, c, training, training);
    start(&together, c, training, training);
    together.args.at[output] = together.args.at[input];
    for (mm_phase p = MM_FORWARD; p <= phase; p++) {
        op_rig_run(&apart, p);
        op_rig_run(&together, p);
    }
    check_same(&apart, together.args.at[output], output);
    if (phase == MM_BACKWARD) check_same(&apart, together.storage[NETS_DX2], NETS_DX2);
    for (int i = 0; phase == MM_BACKWARD && i < NETS_MAX_PARAMS; i++)
        check_same(&apart, together.storage[NETS_DPARAM + i], (nets_role)(NETS_DPARAM + i));
    op_rig_fini(&apart);
    op_rig_fini(&together);
}

static void check_without_dx(const op_case *c) {
    op_rig with, without;
    start(&with, c, true, true);
    start(&without, c, true, false);
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD && with.storage[NETS_DPARAM]; phase++) {
        op_rig_run(&with, phase);
        op_rig_run(&without, phase);
    }
    for (int i = 0; i < NETS_MAX_PARAMS; i++)
        check_same(&with, without.storage[NETS_DPARAM + i], (nets_role)(NETS_DPARAM + i));
    op_rig_fill(&with, NETS_DY, 5); /* DY as it was at first: a backward only reads DY */
    check_same(&with, without.storage[NETS_DY], NETS_DY);
    op_rig_fini(&with);
    op_rig_fini(&without);
}

/* With frozen parameters the backward reads neither X nor where their gradients would be, and gives the same DX. */
static void check_frozen(const op_case *c) {
    op_rig trained, frozen;
    if (!nets_op_info_of(c->kind)->skips_frozen) return;
    start(&trained, c, true, true);
    start(&frozen, c, true, true);
    op_rig_freeze(&frozen);
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        op_rig_run(&trained, phase);
        op_rig_run(&frozen, phase);
        frozen.args.at[NETS_X] = NULL;
    }
    check_same(&trained, frozen.args.at[NETS_DX], NETS_DX);
    op_rig_fini(&trained);
    op_rig_fini(&frozen);
}

/* A pass that adds to an earlier one's gradients gives their sum. */
static void check_passes(const op_case *c) {
    op_rig alone, adding;
    start(&alone, c, true, true);
    start(&adding, c, true, true);
    op_rig_give_passes(&adding);
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD && adding.op->adds; phase++) {
        op_rig_run(&alone, phase);
        for (int i = 0; i < NETS_MAX_PARAMS && phase == MM_BACKWARD; i++)
            op_rig_fill(&adding, (nets_role)(NETS_DPARAM + i), (uint32_t)i + 300);
        op_rig_run(&adding, phase);
    }
    for (int i = 0; i < NETS_MAX_PARAMS && adding.op->adds; i++) {
        const nets_role role = (nets_role)(NETS_DPARAM + i);
        const float *gradient = alone.args.at[role], *sum = adding.args.at[role];
        const int64_t n = gradient ? op_rig_elems(&alone, role) : 0;
        float *earlier = op_rig_alloc(&adding, adding.bytes[role] + 1);
        double largest = 1;
        if (n > 0) adding.args.at[role] = earlier;
        op_rig_fill(&adding, role, (uint32_t)i + 300);
        for (int64_t e = 0; e < n; e++) largest = fmax(largest, fabs((double)gradient[e]));
        for (int64_t e = 0; e < n; e++)
            if (!(fabs((double)sum[e] - gradient[e] - earlier[e]) <= 1e-5 * largest))
                fail_msg("role %d, element %lld is %g, not %g + %g", (int)role, (long long)e, (double)sum[e],
                         (double)earlier[e], (double)gradient[e]);
    }
    op_rig_fini(&alone);
    op_rig_fini(&adding);
}

static void check_case(void **state) {
    const op_case *c = *state;
    if (!op_rig_has(c->kind)) skip(); /* the device has no such operation */
    if (c->of_host && strcmp(op_rig_device(), "host") != 0) skip();
    const unsigned checks = operation_of(c)->checks;
    check_outputs(c);
    check_gradients(c);
    if (!c->sums_by_image) check_fresh(c, op_rig_check_earlier);
    check_fresh(c, op_rig_check_places);
    check_without_dx(c);
    check_frozen(c);
    check_passes(c);
    if (checks & ADDS_EARLIER_INPLACE) {
        check_fresh(c, op_rig_check_earlier_inplace);
        check_fresh(c, op_rig_check_made_for_earlier);
    }
    if (checks & FORWARD_INPLACE) check_inplace(c, true, MM_FORWARD, NETS_X, NETS_Y);
    if (checks & EVALUATION_INPLACE) check_inplace(c, false, MM_FORWARD, NETS_X, NETS_Y);
    if (checks & BACKWARD_INPLACE) check_inplace(c, true, MM_BACKWARD, NETS_DY, NETS_DX);
}

/* ---------------------------------------------------------------- cases */

static const op_case CASES[] = {
    {"conv_3x3", NETS_CONV, {.out_channels = 24, .kernel = {3, 3}, .pad = {1, 1}, .bias = true}, .x = {3, 6, 5, 16}},
    {"conv_1x1_strided", NETS_CONV, {.out_channels = 32, .kernel = {1, 1}, .stride = {2, 2}}, .x = {2, 8, 8, 16}},
    {"conv_of_three_channels_and_odd_sizes",
     NETS_CONV,
     {.out_channels = 7, .kernel = {5, 3}, .stride = {2, 1}, .pad = {2, 0}, .bias = true},
     .x = {2, 9, 7, 3}},
    {"conv_of_two_groups",
     NETS_CONV,
     {.out_channels = 32, .kernel = {3, 3}, .pad = {1, 1}, .groups = 2, .bias = true},
     .x = {3, 6, 5, 16}},
    {"conv_of_two_groups_of_many_channels",
     NETS_CONV,
     {.out_channels = 32, .kernel = {3, 3}, .groups = 2, .bias = true},
     .x = {2, 5, 5, 64}},
    {"conv_of_groups_of_odd_sizes",
     NETS_CONV,
     {.out_channels = 15, .kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 0}, .groups = 3},
     .x = {2, 6, 7, 9}},
    {"conv_of_a_group_for_each_channel",
     NETS_CONV,
     {.out_channels = 16, .kernel = {3, 3}, .pad = {1, 1}, .groups = 16, .bias = true},
     .x = {3, 6, 5, 16}},
    {"conv_depthwise_of_odd_sizes",
     NETS_CONV,
     {.out_channels = 37, .kernel = {5, 3}, .stride = {2, 3}, .pad = {2, 1}, .groups = 37},
     .x = {7, 9, 8, 37}},
    {"conv_depthwise_dilated_beyond_the_image",
     NETS_CONV,
     {.out_channels = 5, .kernel = {3, 5}, .pad = {4, 6}, .dilation = {4, 3}, .groups = 5, .bias = true},
     .x = {2, 3, 4, 5}},
    {"conv_depthwise_of_many_windows",
     NETS_CONV,
     {.out_channels = 70, .kernel = {3, 3}, .pad = {1, 1}, .groups = 70},
     .x = {2, 17, 19, 70}},
    {"conv_transpose_depthwise",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 20, .kernel = {4, 4}, .stride = {2, 2}, .pad = {1, 1}, .groups = 20, .bias = true},
     .x = {2, 4, 3, 20},
     .y = {8, 6}},
    {"conv_of_two_channels_for_each_group",
     NETS_CONV,
     {.out_channels = 14, .kernel = {3, 3}, .stride = {2, 2}, .groups = 7},
     .x = {2, 7, 7, 7}},
    {"conv_dilated",
     NETS_CONV,
     {.out_channels = 16, .kernel = {3, 3}, .pad = {2, 4}, .dilation = {2, 4}, .bias = true},
     .x = {2, 9, 10, 16}},
    {"conv_dilated_and_strided",
     NETS_CONV,
     {.out_channels = 6, .kernel = {2, 3}, .stride = {2, 1}, .dilation = {3, 1}},
     .x = {3, 8, 6, 5}},
    {"conv_of_dilated_groups",
     NETS_CONV,
     {.out_channels = 32, .kernel = {3, 3}, .pad = {2, 2}, .dilation = {2, 2}, .groups = 2},
     .x = {2, 7, 7, 32}},
    {"conv_of_one_row", NETS_CONV, {.out_channels = 24, .kernel = {1, 7}, .pad = {0, 3}}, .x = {3, 6, 5, 16}},
    {"conv_of_one_column",
     NETS_CONV,
     {.out_channels = 24, .kernel = {7, 1}, .pad = {3, 0}, .bias = true},
     .x = {3, 6, 5, 16}},
    {"conv_1x1", NETS_CONV, {.out_channels = 24, .kernel = {1, 1}, .bias = true}, .x = {3, 6, 5, 16}},
    {"conv_1x1_of_odd_sizes", NETS_CONV, {.out_channels = 7, .kernel = {1, 1}}, .x = {2, 9, 7, 3}},
    {"conv_1x1_of_one_pixel", NETS_CONV, {.out_channels = 1, .kernel = {1, 1}}, .x = {1, 1, 1, 1}},
    {"conv_1x1_of_groups", NETS_CONV, {.out_channels = 6, .kernel = {1, 1}, .groups = 3}, .x = {2, 4, 3, 9}},
    {"conv_1x1_padded",
     NETS_CONV,
     {.out_channels = 6, .kernel = {1, 1}, .pad = {1, 1}},
     .x = {2, 4, 3, 9},
     .sums_by_image = true},
    /* Whose weights the host reorders in several pieces, the last of which may have no whole blocks. */
    {"conv_of_many_weights",
     NETS_CONV,
     {.out_channels = 256, .kernel = {3, 3}, .pad = {1, 1}},
     .x = {2, 4, 4, 64},
     .of_host = true},
    {"conv_of_many_weights_and_less_than_a_block",
     NETS_CONV,
     {.out_channels = 200, .kernel = {3, 3}, .pad = {1, 1}, .bias = true},
     .x = {2, 4, 4, 64},
     .of_host = true},
    {"conv_of_many_weights_and_blocks_and_a_rest",
     NETS_CONV,
     {.out_channels = 121, .kernel = {3, 3}, .pad = {1, 1}},
     .x = {2, 4, 4, 72},
     .of_host = true},
    {"conv_1x1_of_many_weights",
     NETS_CONV,
     {.out_channels = 200, .kernel = {1, 1}},
     .x = {2, 3, 3, 264},
     .sums_by_image = true,
     .of_host = true},
    {"conv_of_groups_of_many_weights",
     NETS_CONV,
     {.out_channels = 256, .kernel = {3, 3}, .pad = {1, 1}, .groups = 4},
     .x = {2, 3, 3, 256},
     .of_host = true},
    {"conv_of_groups_of_many_weights_and_a_rest",
     NETS_CONV,
     {.out_channels = 300, .kernel = {3, 3}, .pad = {1, 1}, .groups = 15},
     .x = {2, 3, 3, 300},
     .of_host = true},
    {"conv_transpose_of_many_weights",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 64, .kernel = {3, 3}, .stride = {2, 2}},
     .x = {2, 3, 3, 200},
     .y = {7, 7},
     .of_host = true},
    {"conv_transpose_doubling",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}, .bias = true},
     .x = {2, 4, 3, 16},
     .y = {8, 6}},
    {"conv_transpose_overlapping",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 16, .kernel = {4, 4}, .stride = {2, 2}},
     .x = {2, 4, 3, 16},
     .y = {10, 8}},
    {"conv_transpose_padding_is_cut_off",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 5, .kernel = {4, 3}, .stride = {2, 1}, .pad = {1, 1}, .bias = true},
     .x = {2, 4, 3, 16},
     .y = {8, 3}},
    {"conv_transpose_output_padding_is_reached",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .output_pad = {1, 1}},
     .x = {2, 4, 3, 16},
     .y = {8, 6}},
    {"conv_transpose_output_padding_is_the_bias",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 6, .kernel = {1, 1}, .stride = {3, 3}, .output_pad = {2, 1}, .bias = true},
     .x = {2, 4, 3, 16},
     .y = {12, 8}},
    {"conv_transpose_of_groups",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 32, .kernel = {3, 3}, .stride = {2, 2}, .groups = 2, .bias = true},
     .x = {2, 4, 3, 16},
     .y = {9, 7}},
    {"conv_transpose_of_dilated_groups",
     NETS_CONV_TRANSPOSE,
     {.out_channels = 6, .kernel = {3, 2}, .dilation = {2, 3}, .groups = 2},
     .x = {2, 3, 4, 4},
     .y = {7, 7}},
    {"linear_of_pixels", NETS_LINEAR, {.out_channels = 10, .bias = true}, .x = {5, 1, 1, 64}},
    {"linear_without_bias", NETS_LINEAR, {.out_channels = 10}, .x = {5, 1, 1, 64}},
    {"linear_flattens_maps_in_torch_order", NETS_LINEAR, {.out_channels = 10, .bias = true}, .x = {3, 4, 2, 16}},
    {"linear_of_no_multiple_of_a_vector", NETS_LINEAR, {.out_channels = 10, .bias = true}, .x = {2, 6, 6, 37}},
    {"linear_of_one_image", NETS_LINEAR, {.out_channels = 10, .bias = true}, .x = {1, 1, 1, 33}},
    {"linear_of_one_map", NETS_LINEAR, {.out_channels = 10, .bias = true}, .x = {1, 3, 3, 8}},
    {"lrn", NETS_LRN, {.size = 5, .alpha = 2, .beta = 0.75f, .k = 2}, .x = {2, 3, 2, 11}},
    {"lrn_of_alexnet", NETS_LRN, {.size = 5, .alpha = 1e-4f, .beta = 0.75f, .k = 2}, .x = {2, 2, 2, 96}},
    {"lrn_to_the_power_of_a_half", NETS_LRN, {.size = 3, .alpha = 1, .beta = 0.5f, .k = 1}, .x = {2, 3, 2, 11}},
    {"lrn_to_another_power", NETS_LRN, {.size = 7, .alpha = 3, .beta = 1.5f, .k = 0.5f}, .x = {2, 3, 2, 11}},
    {"lrn_over_one_channel", NETS_LRN, {.size = 1, .alpha = 1}, .x = {2, 3, 2, 11}},
    {"lrn_over_most_channels", NETS_LRN, {.size = 21, .alpha = 4}, .x = {2, 3, 2, 11}},
    {"lrn_over_more_than_all_channels", NETS_LRN, {.size = 101, .alpha = 20}, .x = {2, 3, 2, 11}},
    {"lrn_of_one_channel", NETS_LRN, {.size = 5, .alpha = 1}, .x = {3, 2, 2, 1}},
    {"max_pool_overlapping", NETS_MAX_POOL, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, .x = {2, 7, 6, 16}},
    {"max_pool_of_16_elements", NETS_MAX_POOL, {.kernel = {4, 4}, .stride = {1, 2}, .pad = {2, 1}}, .x = {2, 7, 6, 4}},
    {"max_pool_of_17_elements", NETS_MAX_POOL, {.kernel = {1, 17}, .stride = {1, 1}, .pad = {0, 8}}, .x = {2, 3, 6, 8}},
    {"max_pool_with_gaps", NETS_MAX_POOL, {.kernel = {2, 2}, .stride = {3, 3}}, .x = {2, 7, 6, 5}, .y = {2, 2}},
    {"max_pool_ceil_with_gaps",
     NETS_MAX_POOL,
     {.kernel = {2, 2}, .stride = {3, 3}, .ceil_mode = true},
     .x = {2, 7, 6, 5},
     .y = {3, 2}},
    {"max_pool_ceil_overlapping",
     NETS_MAX_POOL,
     {.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true},
     .x = {2, 7, 6, 5},
     .y = {3, 3}},
    {"max_pool_ceil_padded",
     NETS_MAX_POOL,
     {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = true},
     .x = {2, 7, 6, 5},
     .y = {4, 4}},
    {"max_pool_ceil_no_window_in_the_padding",
     NETS_MAX_POOL,
     {.kernel = {2, 2}, .stride = {2, 2}, .pad = {1, 0}, .ceil_mode = true},
     .x = {2, 7, 6, 5},
     .y = {4, 3}},
    {"max_pool_ceil_no_column_in_the_padding",
     NETS_MAX_POOL,
     {.kernel = {4, 4}, .stride = {4, 4}, .pad = {0, 2}, .ceil_mode = true},
     .x = {2, 7, 6, 5},
     .y = {2, 2}},
    {"avg_pool_counts_the_padding",
     NETS_AVG_POOL,
     {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}},
     .x = {2, 7, 6, 16}},
    {"avg_pool_without_the_padding",
     NETS_AVG_POOL,
     {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .exclude_pad = true},
     .x = {2, 7, 6, 16}},
    {"avg_pool_ceil_with_gaps",
     NETS_AVG_POOL,
     {.kernel = {2, 2}, .stride = {3, 3}, .ceil_mode = true},
     .x = {2, 7, 6, 5}},
    {"avg_pool_ceil_overlapping",
     NETS_AVG_POOL,
     {.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true},
     .x = {2, 7, 6, 5}},
    {"avg_pool_ceil_without_the_padding",
     NETS_AVG_POOL,
     {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = true, .exclude_pad = true},
     .x = {2, 7, 6, 5}},
    {"global_avg_pool", NETS_GLOBAL_AVG_POOL, {0}, .x = {2, 7, 6, 16}},
    {"upsample_nearest", NETS_UPSAMPLE, {.scale = {2, 2}}, .x = {2, 3, 4, 5}, .y = {6, 8}},
    {"upsample_nearest_of_rows", NETS_UPSAMPLE, {.scale = {3, 1}}, .x = {2, 3, 4, 5}, .y = {9, 4}},
    {"upsample_nearest_by_much", NETS_UPSAMPLE, {.scale = {7, 5}}, .x = {1, 5, 3, 16}, .y = {35, 15}},
    {"upsample_bilinear", NETS_UPSAMPLE, {.scale = {2, 2}, .bilinear = true}, .x = {2, 3, 4, 5}, .y = {6, 8}},
    {"upsample_bilinear_of_columns",
     NETS_UPSAMPLE,
     {.scale = {1, 3}, .bilinear = true},
     .x = {2, 3, 4, 5},
     .y = {3, 12}},
    {"upsample_bilinear_by_much",
     NETS_UPSAMPLE,
     {.scale = {8, 4}, .bilinear = true},
     .x = {1, 5, 3, 16},
     .y = {40, 12}},
    {"upsample_nearest_of_one_pixel", NETS_UPSAMPLE, {.scale = {4, 4}}, .x = {2, 1, 1, 3}, .y = {4, 4}},
    {"upsample_bilinear_of_one_pixel",
     NETS_UPSAMPLE,
     {.scale = {4, 4}, .bilinear = true},
     .x = {2, 1, 1, 3},
     .y = {4, 4}},
    {"crop_at_an_offset", NETS_CROP, {.out_size = {3, 2}, .offset = {4, 1}}, .x = {2, 7, 6, 3}, .y = {3, 2}},
    {"crop_at_the_corner", NETS_CROP, {.out_size = {3, 2}}, .x = {2, 7, 6, 3}, .y = {3, 2}},
    {"crop_of_columns", NETS_CROP, {.out_size = {7, 2}, .offset = {0, 4}}, .x = {2, 7, 6, 3}, .y = {7, 2}},
    {"crop_of_the_middle", NETS_CROP, {.out_size = {4, 3}, .center = true}, .x = {2, 7, 6, 3}, .y = {4, 3}},
    {"crop_of_all", NETS_CROP, {.out_size = {7, 6}}, .x = {2, 7, 6, 3}, .y = {7, 6}},
    {"add", NETS_ADD, {0}, .x = {3, 5, 7, 9}},
    {"mul", NETS_MUL, {0}, .x = {3, 5, 7, 9}},
    {"mul_of_a_map_by_a_number_for_each_channel", NETS_MUL, {0}, .x = {3, 5, 7, 9}, .x2 = {3, 1, 1, 9}},
    {"mul_of_a_large_map_by_a_number_for_each_channel", NETS_MUL, {0}, .x = {2, 23, 29, 16}, .x2 = {2, 1, 1, 16}},
    {"mul_of_one_pixel", NETS_MUL, {0}, .x = {3, 1, 1, 20}},
    {"group_norm", NETS_GROUP_NORM, {.groups = 8}, .x = {3, 5, 4, 24}},
    {"group_norm_of_one_group", NETS_GROUP_NORM, {.groups = 1}, .x = {3, 5, 4, 6}},
    {"group_norm_of_a_group_for_each_channel", NETS_GROUP_NORM, {.groups = 9}, .x = {3, 5, 7, 9}},
    {"group_norm_of_large_maps", NETS_GROUP_NORM, {.groups = 2, .eps = 0.01f}, .x = {2, 23, 29, 8}},
    {"rms_norm", NETS_RMS_NORM, {0}, .x = {2, 1, 75, 20}},
    {"rms_norm_of_many_channels", NETS_RMS_NORM, {.eps = 0.01f}, .x = {2, 3, 5, 264}},
    {"relu", NETS_RELU, {0}, .x = {3, 5, 7, 9}},
    {"leaky_relu", NETS_LEAKY_RELU, {0}, .x = {2, 3, 5, 7}},
    {"scale", NETS_SCALE, {.slope = 2.5f}, .x = {2, 3, 5, 7}},
    {"leaky_relu_of_darknet", NETS_LEAKY_RELU, {.slope = 0.1f}, .x = {2, 3, 5, 7}},
    {"relu6", NETS_RELU6, {0}, .x = {2, 3, 5, 7}},
    {"sigmoid", NETS_SIGMOID, {0}, .x = {2, 3, 5, 7}},
    {"hard_sigmoid", NETS_HARD_SIGMOID, {0}, .x = {2, 3, 5, 7}},
    {"silu", NETS_SILU, {0}, .x = {2, 3, 5, 7}},
    {"hard_swish", NETS_HARD_SWISH, {0}, .x = {2, 3, 5, 7}},
    {"gelu", NETS_GELU, {0}, .x = {2, 3, 5, 7}},
    {"gelu_by_tanh", NETS_GELU, {.tanh = true}, .x = {2, 3, 5, 7}},
    {"dropout", NETS_DROPOUT, {.p = 0.3f}, .x = {3, 5, 7, 9}},
    {"dropout_of_samples", NETS_DROPOUT, {.p = 0.3f, .by_sample = true}, .x = {5, 3, 3, 7}},
    {"batch_norm", NETS_BATCH_NORM, {0}, .x = {4, 3, 5, 24}},
    {"loss", NETS_LOSS, {0}, .x = {5, 1, 1, 7}},
};
enum { N_CASES = sizeof CASES / sizeof *CASES };

/* Where operations are tested that this table does not suit: of several inputs, or of tokens. */
static const char *const ELSEWHERE[NETS_OP_KINDS] = {
    [NETS_CONCAT] = "op_slices_test",     [NETS_EMBEDDING] = "token_ops_test",   [NETS_POSITION] = "token_ops_test",
    [NETS_LAYER_NORM] = "token_ops_test", [NETS_PROJECT] = "token_ops_test",     [NETS_ATTENTION] = "token_ops_test",
    [NETS_TOKEN_LOSS] = "token_ops_test", [NETS_CLASS_TOKEN] = "token_ops_test", [NETS_ROTARY] = "token_ops_test",
};

static void each_operation_has_a_case(void **state) {
    (void)state;
    for (int kind = NETS_DATA + 1; kind < NETS_OP_KINDS; kind++) {
        bool has = ELSEWHERE[kind] != NULL;
        for (int i = 0; i < N_CASES && !has; i++) has = (int)CASES[i].kind == kind;
        if (!has)
            fail_msg("operation %s: add it to OPERATIONS and CASES of op_suite_test.c, or name its test in ELSEWHERE",
                     nets_op_name((nets_op_kind)kind));
    }
}

int main(void) {
    struct CMUnitTest tests[N_CASES + 1];
    tests[N_CASES] = (struct CMUnitTest)cmocka_unit_test(each_operation_has_a_case);
    for (int i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){CASES[i].name, check_case, NULL, NULL, (void *)(uintptr_t)&CASES[i]};
    OP_RIG_RUN(tests);
}
