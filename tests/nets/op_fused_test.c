/* SPDX-License-Identifier: MIT */
/* Fused ops give the bits of the single layers' ops, one after another, in every form that a plan may give their
 * tensors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "nets/contract/op_batch_norm.h"
#include "tests/nets/op_rig.h"

/* Sizes with rests of vectors, of a mask's words and of stripes of rows, and with whole words; the last two have rows
 * for several partial sums. */
static const int64_t SIZES[][4] = {{1, 1, 1, 1},  {3, 5, 7, 9},    {2, 9, 8, 24},  {1, 3, 3, 132},
                                   {3, 7, 5, 96}, {4, 33, 31, 12}, {2, 33, 31, 32}};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0] };

static void move(const op_rig *from, nets_role out, op_rig *to, nets_role in) {
    assert_int_equal(from->bytes[out], to->bytes[in]);
    memcpy(to->args.at[in], from->args.at[out], (size_t)from->bytes[out]);
}

static void check_same(const op_rig *a, nets_role of, const void *b, const char *what) {
    assert_int_equal(!a->args.at[of], !b);
    if (b && memcmp(a->args.at[of], b, (size_t)a->bytes[of]) != 0)
        fail_msg("%s of %lldx%lldx%lldx%lld: other bits", what, (long long)a->desc.x[0].dims[0],
                 (long long)a->desc.x[0].dims[1], (long long)a->desc.x[0].dims[2], (long long)a->desc.x[0].dims[3]);
}

static void give_y(op_rig *rig, bool by_mask) {
    rig->args.sign_roles = by_mask ? NETS_ROLE_BIT(NETS_Y) : 0;
    rig->args.at[NETS_Y] =
        by_mask ? op_rig_mask(rig, rig->storage[NETS_Y], op_rig_elems(rig, NETS_Y)) : rig->storage[NETS_Y];
}

/* Fills an earlier contribution, with the same numbers for the same role. */
static void give_earlier(op_rig *rig, nets_role role, bool given) {
    float *earlier = op_rig_alloc(rig, rig->bytes[NETS_X]);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_X); i++) earlier[i] = (float)((i + role) % 17 - 8) / 3;
    rig->args.at[role] = given ? earlier : NULL;
}

/* ---------------------------------------------------------------- batch norm, sum, ReLU */

typedef struct layers {
    op_rig norm, sum, relu;
    bool residual;
} layers;

/* Makes one element of the addend NaN: ReLU passes NaN on, and lets no gradient through there. */
static void spoil(op_rig *rig) { op_rig_floats(rig, NETS_X2)[op_rig_elems(rig, NETS_X2) / 2] = NAN; }

static void start_layers(layers *l, const int64_t x[4], bool residual, bool training) {
    l->residual = residual;
    op_rig_init(&l->norm, NETS_BATCH_NORM, NULL, x, training, training);
    op_rig_init(&l->sum, NETS_ADD, NULL, x, training, training);
    op_rig_init(&l->relu, NETS_RELU, NULL, x, training, training);
    spoil(&l->sum);
}

static void start_fused(op_rig *fused, const int64_t x[4], bool residual, bool training, bool wants_dx) {
    op_rig_init_fused(fused, NETS_BATCH_NORM, NULL, x, residual ? 2 : 1, training, wants_dx);
    if (residual) spoil(fused);
}

static void end_layers(layers *l) {
    op_rig_fini(&l->norm);
    op_rig_fini(&l->sum);
    op_rig_fini(&l->relu);
}

static void run_layers_forward(layers *l) {
    op_rig_run(&l->norm, MM_FORWARD);
    if (l->residual) {
        move(&l->norm, NETS_Y, &l->sum, NETS_X);
        op_rig_run(&l->sum, MM_FORWARD);
    }
    move(l->residual ? &l->sum : &l->norm, NETS_Y, &l->relu, NETS_X);
    op_rig_run(&l->relu, MM_FORWARD);
}

static void run_layers_backward(layers *l) {
    op_rig_run(&l->relu, MM_BACKWARD);
    if (l->residual) {
        move(&l->relu, NETS_DX, &l->sum, NETS_DY);
        op_rig_run(&l->sum, MM_BACKWARD);
    }
    move(l->residual ? &l->sum : &l->relu, NETS_DX, &l->norm, NETS_DY);
    op_rig_run(&l->norm, MM_BACKWARD);
}

static void check_forward(const layers *l, const op_rig *fused, const void *y) {
    static const nets_role OF_NORM[] = {NETS_SAVED_MEAN, NETS_SAVED_VAR, NETS_MEAN, NETS_VAR};
    check_same(&l->relu, NETS_Y, y, "y");
    for (size_t i = 0; i < sizeof OF_NORM / sizeof OF_NORM[0]; i++)
        check_same(&l->norm, OF_NORM[i], fused->args.at[OF_NORM[i]], "statistics");
}

static void batch_norm_forward_is_the_layers(void **state) {
    (void)state;
    for (int i = 0; i < 4 * N_SIZES; i++) {
        const bool residual = i & 1, training = i & 2;
        layers l;
        op_rig fused;
        start_layers(&l, SIZES[i / 4], residual, training);
        start_fused(&fused, SIZES[i / 4], residual, training, training);
        for (int c = 0; c < SIZES[i / 4][3]; c++)
            op_rig_floats(&l.norm, NETS_VAR)[c] = op_rig_floats(&fused, NETS_VAR)[c] = 1 + 0.1f * (float)c;
        run_layers_forward(&l);
        op_rig_run(&fused, MM_FORWARD);
        check_forward(&l, &fused, fused.args.at[NETS_Y]);
        end_layers(&l);
        op_rig_fini(&fused);
    }
}

static void batch_norm_forward_in_place_gives_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++)
        for (int training = 0; training < 2; training++) {
            op_rig fused;
            start_fused(&fused, SIZES[i], true, training, training);
            op_rig_check_inplace(&fused, MM_FORWARD, NETS_X2, NETS_Y);
            op_rig_fill(&fused, NETS_X2, 2);
            if (!training) op_rig_check_inplace(&fused, MM_FORWARD, NETS_X, NETS_Y);
            op_rig_fini(&fused);
        }
}

/* Which gradients are wanted, and which arguments are given. */
typedef struct variant {
    bool by_mask, earlier, earlier2, dx2, dx, in_place, exact;
} variant;

/* Says that x and the statistics are exact. The op then need not read y, so here y of large maps without a sum is
 * overwritten. With a sum, x alone does not determine y's signs. */
static void give_exact(op_rig *fused, bool residual) {
    enum { LARGE = 1 << 15 };
    fused->args.exact_roles = NETS_ROLE_BIT(NETS_X) | NETS_STATISTICS_BITS;
    if (!residual && op_rig_elems(fused, NETS_X) >= LARGE)
        memset(fused->args.at[NETS_Y], 0xff, (size_t)fused->bytes[NETS_Y] / 32);
}

/* DX2 is written over its earlier contribution, or else over y. */
static void give_dx2_inplace(op_rig *fused, variant v) {
    if (v.earlier2)
        fused->args.at[NETS_DX2] = fused->args.at[NETS_EARLIER2];
    else if (!v.by_mask)
        fused->args.at[NETS_DX2] = fused->args.at[NETS_Y];
}

static void check_backward(layers *l, op_rig *fused, variant v) {
    give_earlier(&l->norm, NETS_EARLIER, v.earlier);
    if (l->residual) give_earlier(&l->sum, NETS_EARLIER2, v.earlier2);
    run_layers_backward(l);
    op_rig_fill(fused, NETS_DY, 5);
    give_y(fused, v.by_mask);
    give_earlier(fused, NETS_EARLIER, v.earlier);
    give_earlier(fused, NETS_EARLIER2, v.earlier2 && l->residual);
    if (v.dx) fused->args.at[NETS_DX] = fused->storage[v.in_place ? NETS_DY : NETS_DX];
    fused->args.at[NETS_DX2] = v.dx2 && l->residual ? fused->storage[NETS_DX2] : NULL;
    if (v.in_place && fused->args.at[NETS_DX2]) give_dx2_inplace(fused, v);
    if (v.exact) give_exact(fused, l->residual);
    op_rig_run(fused, MM_BACKWARD);
    check_same(&l->norm, NETS_DW, fused->args.at[NETS_DW], "the gradient by the scale");
    check_same(&l->norm, NETS_DB, fused->args.at[NETS_DB], "the gradient by the shift");
    if (v.dx) check_same(&l->norm, NETS_DX, fused->args.at[NETS_DX], "the gradient by x");
    if (fused->args.at[NETS_DX2]) check_same(&l->sum, NETS_DX2, fused->args.at[NETS_DX2], "the gradient by x2");
    if (!v.in_place) check_same(&l->relu, NETS_DY, fused->args.at[NETS_DY], "what was only to be read");
}

static void check_variants(const int64_t x[4], bool residual, int every) {
    for (int i = 0; i < 128; i += every) {
        const variant v = {i & 1, i & 2, i & 4, i & 8, i & 16, i & 32, i & 64};
        layers l;
        op_rig fused;
        if (!residual && (v.earlier2 || v.dx2)) continue;
        start_layers(&l, x, residual, true);
        start_fused(&fused, x, residual, true, v.dx);
        run_layers_forward(&l);
        op_rig_run(&fused, MM_FORWARD);
        check_backward(&l, &fused, v);
        end_layers(&l);
        op_rig_fini(&fused);
    }
}

static void batch_norm_backward_is_the_layers_whatever_is_given_and_wanted(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        check_variants(SIZES[i], false, i == 2 ? 1 : 5);
        check_variants(SIZES[i], true, i == 2 ? 1 : 5);
    }
}

/* Before the backward x is negated, so that gating by x would let other elements through than gating by y. */
static void y_is_asked_unless_x_and_its_statistics_are_what_they_were(void **state) {
    (void)state;
    static const uint64_t EXACT[] = {0, NETS_STATISTICS_BITS, NETS_ROLE_BIT(NETS_X),
                                     NETS_ROLE_BIT(NETS_X) | NETS_ROLE_BIT(NETS_SAVED_MEAN),
                                     NETS_ROLE_BIT(NETS_X) | NETS_ROLE_BIT(NETS_SAVED_VAR)};
    for (size_t i = 0; i < 2 * sizeof EXACT / sizeof EXACT[0]; i++) {
        layers l;
        op_rig fused;
        start_layers(&l, SIZES[5], false, true);
        start_fused(&fused, SIZES[5], false, true, true);
        run_layers_forward(&l);
        run_layers_backward(&l);
        op_rig_run(&fused, MM_FORWARD);
        give_y(&fused, i % 2);
        fused.args.exact_roles = EXACT[i / 2];
        for (int64_t e = 0; e < op_rig_elems(&fused, NETS_X); e++) op_rig_floats(&fused, NETS_X)[e] *= -1;
        op_rig_run(&fused, MM_BACKWARD);
        check_same(&l.norm, NETS_DB, fused.args.at[NETS_DB], "the gradient by the shift");
        end_layers(&l);
        op_rig_fini(&fused);
    }
}

/* ---------------------------------------------------------------- bias, ReLU */

/* `bias`: a convolution that only adds its bias. */
static void start_bias(op_rig *bias, op_rig *relu, op_rig *fused, const int64_t x[4]) {
    op_rig_init(bias, NETS_CONV, &(nets_attrs){.out_channels = x[3], .kernel = {1, 1}, .groups = x[3], .bias = true}, x,
                true, true);
    for (int c = 0; c < x[3]; c++) op_rig_floats(bias, NETS_W)[c] = 1;
    op_rig_init(relu, NETS_RELU, NULL, x, true, true);
    op_rig_init_fused(fused, NETS_RELU, NULL, x, 1, true, true);
}

static void relu_with_a_bias_is_both_in_every_form(void **state) {
    (void)state;
    for (int i = 0; i < 8 * N_SIZES; i++) {
        const bool by_mask = i & 1, in_place = i & 2, earlier = i & 4;
        op_rig bias, relu, fused;
        start_bias(&bias, &relu, &fused, SIZES[i / 8]);
        op_rig_run(&bias, MM_FORWARD);
        move(&bias, NETS_Y, &relu, NETS_X);
        op_rig_run(&relu, MM_FORWARD);
        if (in_place) fused.storage[NETS_Y] = fused.args.at[NETS_Y] = fused.args.at[NETS_X];
        op_rig_run(&fused, MM_FORWARD);
        check_same(&relu, NETS_Y, fused.args.at[NETS_Y], "y");

        op_rig_run(&relu, MM_BACKWARD);
        move(&relu, NETS_DX, &bias, NETS_DY);
        op_rig_run(&bias, MM_BACKWARD);
        give_earlier(&relu, NETS_EARLIER, earlier);
        op_rig_run(&relu, MM_BACKWARD);
        give_earlier(&fused, NETS_EARLIER, earlier);
        give_y(&fused, by_mask);
        if (in_place) fused.args.at[NETS_DX] = fused.args.at[NETS_DY];
        op_rig_run(&fused, MM_BACKWARD);
        check_same(&relu, NETS_DX, fused.args.at[NETS_DX], "the gradient by x");
        check_same(&bias, NETS_DB, fused.args.at[NETS_DB], "the gradient by the bias");
        op_rig_fini(&bias);
        op_rig_fini(&relu);
        op_rig_fini(&fused);
    }
}

/* ---------------------------------------------------------------- SiLU, product */

static void check_gated(const int64_t x[4], bool earlier, bool in_place) {
    op_rig silu, mul, fused;
    op_rig_init(&silu, NETS_SILU, NULL, x, true, true);
    op_rig_init(&mul, NETS_MUL, NULL, x, true, true);
    op_rig_init_fused(&fused, NETS_MUL, NULL, x, 2, true, true);
    move(&fused, NETS_X, &silu, NETS_X);
    move(&fused, NETS_X2, &mul, NETS_X2);
    move(&fused, NETS_DY, &mul, NETS_DY);
    op_rig_run(&silu, MM_FORWARD);
    move(&silu, NETS_Y, &mul, NETS_X);
    op_rig_run(&mul, MM_FORWARD);
    op_rig_run(&fused, MM_FORWARD);
    check_same(&mul, NETS_Y, fused.args.at[NETS_Y], "y");

    give_earlier(&mul, NETS_EARLIER2, earlier);
    give_earlier(&silu, NETS_EARLIER, earlier);
    give_earlier(&fused, NETS_EARLIER, earlier);
    give_earlier(&fused, NETS_EARLIER2, earlier);
    op_rig_run(&mul, MM_BACKWARD);
    move(&mul, NETS_DX, &silu, NETS_DY);
    op_rig_run(&silu, MM_BACKWARD);
    if (in_place) fused.args.at[NETS_DX] = fused.args.at[NETS_DY];
    op_rig_run(&fused, MM_BACKWARD);
    check_same(&silu, NETS_DX, fused.args.at[NETS_DX], "the gradient by x");
    check_same(&mul, NETS_DX2, fused.args.at[NETS_DX2], "the gradient by x2");
    op_rig_fini(&silu);
    op_rig_fini(&mul);
    op_rig_fini(&fused);
}

static void a_product_with_a_silu_is_both(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) check_gated(SIZES[i], i % 2, i / 2 % 2);
    check_gated(SIZES[1], true, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_forward_is_the_layers),
        cmocka_unit_test(batch_norm_forward_in_place_gives_the_same_bits),
        cmocka_unit_test(batch_norm_backward_is_the_layers_whatever_is_given_and_wanted),
        cmocka_unit_test(y_is_asked_unless_x_and_its_statistics_are_what_they_were),
        cmocka_unit_test(relu_with_a_bias_is_both_in_every_form),
        cmocka_unit_test(a_product_with_a_silu_is_both),
    };
    OP_RIG_RUN(tests);
}
