/* SPDX-License-Identifier: MIT */
/* Ops with bf16 maps write what the f32 op gives for the same elements, rounded once. Attention, and bf16 units of
 * hardware, may sum in another order. Other tests compare the f32 ops with their definitions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/contract/op_batch_norm.h"
#include "nets/host/onednn.h"
#include "nets/net_ops.h"
#include "tests/nets/op_rig.h"

/* Rounds to bf16, to nearest, ties to even, by arithmetic. */
static uint16_t nearest(float value) {
    const int exponent = value == 0 ? -126 : ilogb((double)value) < -126 ? -126 : ilogb((double)value);
    const float rounded = (float)ldexp(nearbyint(ldexp((double)value, 7 - exponent)), exponent - 7);
    uint32_t bits;
    assert_true(isfinite(value));
    memcpy(&bits, &rounded, sizeof bits);
    assert_int_equal(bits & 0xffff, 0);
    return (uint16_t)(bits >> 16);
}

static float widened(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool is_map(const op_rig *rig, int r) {
    const nets_op_info *info = nets_op_info_of(rig->desc.kind);
    if (r == NETS_Y || r == NETS_DY) return !info->f32_output;
    return (r >= NETS_X && r <= NETS_X_LAST) || (r >= NETS_DX && r <= NETS_DX_LAST) ||
           (r >= NETS_EARLIER && r <= NETS_EARLIER_LAST);
}

static void round_role(const op_rig *rig, int r) {
    float *values = rig->args.at[r];
    for (int64_t i = 0; i < rig->bytes[r] / 4; i++) values[i] = widened(nearest(values[i]));
}

/* The rig's f32 op, and the same op with bf16 maps and arguments of its own. */
typedef struct pair {
    op_rig *rig;
    nets_op *op;
    nets_op_args args;
    int64_t workspace_bytes;
    bool batch;     /* the input is the batch, in f32; it is rounded where a weight multiplies it */
    bool rounds_dw; /* cuDNN gives the gradient by the weights in bf16, except for products */
} pair;

static void give(pair *p, int r) {
    const int64_t bytes = p->rig->bytes[r];
    p->args.at[r] = op_rig_alloc(p->rig, bytes);
    if (!is_map(p->rig, r) || (p->batch && r == NETS_X)) {
        memcpy(p->args.at[r], p->rig->args.at[r], (size_t)bytes);
        return;
    }
    for (int64_t i = 0; i < bytes / 4; i++)
        ((uint16_t *)p->args.at[r])[i] = nearest(((const float *)p->rig->args.at[r])[i]);
}

/* Gives the op the weight's bf16 copy in place of the weight. */
static void give_copy(pair *p, nets_op_desc *desc) {
    const float *weight = p->rig->args.at[NETS_W];
    desc->factor_elems = p->rig->bytes[NETS_W] / 4;
    round_role(p->rig, NETS_W);
    p->args.at[NETS_W] = NULL;
    p->args.at[NETS_W16] = op_rig_alloc(p->rig, 2 * desc->factor_elems);
    for (int64_t i = 0; i < desc->factor_elems; i++) ((uint16_t *)p->args.at[NETS_W16])[i] = nearest(weight[i]);
}

/* Makes the bf16 op. Both ops get elements that bf16 can represent. */
static void pair_init(pair *p, op_rig *rig, bool earlier, bool batch) {
    const nets_param_spec *weight = nets_param_spec_of(rig->desc.kind, 0);
    const bool is_cuda = strcmp(rig->backend->ops->name, "cuda") == 0;
    nets_op_desc desc;
    *p = (pair){.rig = rig, .batch = batch};
    if (earlier) {
        op_rig_give_earlier(rig, op_rig_alloc(rig, rig->bytes[NETS_DX]));
        op_rig_fill(rig, NETS_EARLIER, 77);
    }
    for (int r = 0; r < NETS_ROLES; r++) {
        if (!rig->args.at[r] || r == NETS_WORKSPACE) continue;
        const bool output = r == NETS_Y || (r >= NETS_DX && r <= NETS_DX_LAST), is_batch = batch && r == NETS_X;
        if (is_batch) give(p, r);
        if (is_map(rig, r) && !output && (!is_batch || (weight && weight->factor))) round_role(rig, r);
        if (is_map(rig, r) && output) memset(rig->args.at[r], 0, (size_t)rig->bytes[r]);
        if (!is_batch) give(p, r);
    }
    desc = rig->desc;
    desc.maps = MM_BF16;
    desc.f32_inputs = batch;
    if (weight && weight->factor) give_copy(p, &desc);
    if (desc.kind == NETS_PROJECT && desc.attrs.bias && !desc.attrs.by_output && is_cuda)
        round_role(rig, NETS_B); /* cuBLASLt has it in bf16 */
    if (nets_op_create(rig->backend, &desc, &p->op) != MM_OK) fail_msg("%s", mm_last_error());
    const bool is_conv = desc.kind == NETS_CONV || desc.kind == NETS_CONV_TRANSPOSE;
    const bool of_pixels = desc.kind == NETS_PROJECT || nets_shape_rows(&desc.x[0]) == desc.x[0].dims[0];
    const bool is_product =
        (desc.kind == NETS_PROJECT || desc.kind == NETS_LINEAR) && (!earlier || (is_cuda && of_pixels));
    const bool is_activation = desc.kind >= NETS_LEAKY_RELU && desc.kind <= NETS_SCALE;
    const bool is_of_tokens = desc.kind == NETS_POSITION || desc.kind == NETS_LAYER_NORM || is_activation;
    const bool native =
        is_cuda ? (is_conv && !desc.attrs.bias) || is_product || (is_of_tokens && !batch) || desc.kind == NETS_EMBEDDING
                : !batch && ((nets_dnn_has_bf16() && (is_product || desc.kind == NETS_ATTENTION)) || is_activation ||
                             desc.kind == NETS_LAYER_NORM || desc.kind == NETS_RMS_NORM || desc.kind == NETS_ADD);
    if (native) assert_ptr_equal(p->op->impl, rig->op->impl);
    p->rounds_dw = native && is_cuda && is_conv && desc.attrs.kernel[0] * desc.attrs.stride[0] > 1;
    for (int phase = MM_FORWARD; phase <= (desc.training ? MM_BACKWARD : MM_FORWARD); phase++) {
        const int64_t bytes = nets_op_workspace_bytes(p->op, (mm_phase)phase);
        if (bytes > p->workspace_bytes) p->workspace_bytes = bytes;
    }
    p->args.at[NETS_WORKSPACE] = op_rig_alloc(rig, p->workspace_bytes + 64);
    p->args.workspace_bytes = p->workspace_bytes;
}

/* Bound on the error of sums, relative to the largest; 0: exact. The host's bf16 units sum in another order. They and a
 * GPU's tensor cores multiply attention's probabilities in bf16 (see token_ops_test). */
static double bound_of(const pair *p) {
    const nets_param_spec *weight = nets_param_spec_of(p->rig->desc.kind, 0);
    const bool host = strcmp(p->rig->backend->ops->name, "host") == 0;
    if (p->rig->desc.kind == NETS_ATTENTION) return host && !nets_dnn_has_bf16() ? 0 : ldexp(1, -7);
    return weight && weight->factor && host && !getenv("ONEDNN_MAX_CPU_ISA") ? 1e-5 : 0;
}

/* Expects the bf16 op's elements of a role to be the f32 op's, but for half of bf16's last bit (in maps) plus
 * bound_of. */
static void expect_near(const pair *p, int r) {
    const float *want = p->rig->args.at[r];
    const int64_t n = want ? p->rig->bytes[r] / 4 : 0;
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double value = (double)want[i], half_bit = value == 0 ? 0 : ldexp(1, ilogb(value) - 8);
        const double got = is_map(p->rig, r) ? (double)widened(((const uint16_t *)p->args.at[r])[i])
                                             : (double)((const float *)p->args.at[r])[i];
        if (!(fabs(got - value) <= bound_of(p) * most + (is_map(p->rig, r) ? half_bit : 0)))
            fail_msg("%s: role %d, element %lld is %g, not %g", nets_op_name(p->rig->desc.kind), r, (long long)i, got,
                     value);
    }
}

static void expect_role(const pair *p, int r) {
    const float *want = p->rig->args.at[r];
    if (r == NETS_DW && p->rounds_dw) round_role(p->rig, r);
    if (bound_of(p) > 0) {
        expect_near(p, r);
        return;
    }
    for (int64_t i = 0; want && is_map(p->rig, r) && i < p->rig->bytes[r] / 4; i++)
        if (((const uint16_t *)p->args.at[r])[i] != nearest(want[i]))
            fail_msg("%s: role %d, element %lld is %04x, not %04x", nets_op_name(p->rig->desc.kind), r, (long long)i,
                     ((const uint16_t *)p->args.at[r])[i], nearest(want[i]));
    if (want && !is_map(p->rig, r) && memcmp(p->args.at[r], want, (size_t)p->rig->bytes[r]) != 0)
        fail_msg("%s: role %d differs", nets_op_name(p->rig->desc.kind), r);
}

static void run(pair *p, mm_phase phase) {
    static const nets_role written[] = {NETS_Y, NETS_LOSS_VALUE, NETS_CORRECT, NETS_MEAN, NETS_VAR};
    uint8_t *workspace = p->args.at[NETS_WORKSPACE];
    op_rig_run(p->rig, phase);
    memset(workspace, 0xff, (size_t)p->workspace_bytes + 64);
    assert_int_equal(nets_op_enqueue(p->op, phase, &p->args, p->rig->stream), MM_OK);
    if (mm_stream_sync(p->rig->stream) != MM_OK) fail_msg("%s", mm_last_error());
    for (int i = 0; i < 64; i++) assert_int_equal(workspace[p->workspace_bytes + i], 0xff);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) expect_role(p, written[i]);
    for (int i = 0; i < NETS_MAX_SAVED; i++) expect_role(p, NETS_SAVED + i);
    for (int i = 0; phase == MM_BACKWARD && i < NETS_MAX_INPUTS; i++) expect_role(p, NETS_DX + i);
    for (int i = 0; phase == MM_BACKWARD && i < NETS_MAX_PARAMS; i++) expect_role(p, NETS_DPARAM + i);
}

/* The backward pass again, which gets the signs of y in place of y. */
static void run_by_mask(pair *p) {
    void *const y = p->args.at[NETS_Y];
    p->args.sign_roles = NETS_ROLE_BIT(NETS_Y);
    p->args.at[NETS_Y] = op_rig_mask(p->rig, p->rig->args.at[NETS_Y], op_rig_elems(p->rig, NETS_Y));
    assert_int_equal(nets_op_enqueue(p->op, MM_BACKWARD, &p->args, p->rig->stream), MM_OK);
    if (mm_stream_sync(p->rig->stream) != MM_OK) fail_msg("%s", mm_last_error());
    p->args.sign_roles = 0;
    p->args.at[NETS_Y] = y;
    for (int i = 0; i < NETS_MAX_INPUTS; i++) expect_role(p, NETS_DX + i);
    for (int i = 0; i < NETS_MAX_PARAMS; i++) expect_role(p, NETS_DPARAM + i);
}

static void check(op_rig *rig, bool earlier, bool batch) {
    pair p;
    pair_init(&p, rig, earlier, batch);
    run(&p, MM_FORWARD);
    if (rig->desc.training) {
        if (is_map(rig, NETS_Y)) round_role(rig, NETS_Y); /* the backward may read it */
        run(&p, MM_BACKWARD);
        if (rig->desc.kind == NETS_RELU || rig->desc.relu) run_by_mask(&p);
        if (rig->desc.kind == NETS_BATCH_NORM && rig->desc.relu) { /* given exact inputs, it recomputes y's signs */
            p.args.exact_roles = NETS_ROLE_BIT(NETS_X) | NETS_STATISTICS_BITS;
            run(&p, MM_BACKWARD);
        }
    }
    nets_op_destroy(p.op);
    op_rig_fini(rig);
}

static const struct {
    nets_op_kind kind;
    nets_attrs attrs;
    int64_t x[4];
} CASES[] = {
    {NETS_CONV, {.out_channels = 24, .kernel = {3, 3}, .pad = {1, 1}, .bias = true}, {3, 6, 5, 16}},
    {NETS_CONV, {.out_channels = 7, .kernel = {5, 3}, .stride = {2, 1}, .pad = {2, 0}, .bias = true}, {2, 9, 7, 3}},
    {NETS_CONV, {.out_channels = 16, .kernel = {3, 3}, .pad = {1, 1}, .groups = 16}, {3, 6, 5, 16}},
    {NETS_CONV, {.out_channels = 7, .kernel = {5, 3}, .stride = {2, 1}, .pad = {2, 0}}, {2, 9, 7, 3}},
    {NETS_CONV, {.out_channels = 24, .kernel = {1, 1}}, {3, 6, 5, 16}},
    {NETS_CONV, {.out_channels = 24, .kernel = {1, 1}, .stride = {2, 2}}, {3, 6, 5, 16}},
    {NETS_CONV_TRANSPOSE, {.out_channels = 5, .kernel = {3, 2}, .stride = {2, 2}}, {2, 4, 3, 16}},
    {NETS_CONV_TRANSPOSE, {.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}, .bias = true}, {2, 4, 3, 16}},
    {NETS_LINEAR, {.out_channels = 10, .bias = true}, {3, 4, 2, 16}},
    {NETS_LINEAR, {.out_channels = 10}, {5, 1, 1, 64}},
    {NETS_LINEAR, {.out_channels = 16, .bias = true}, {5, 1, 1, 64}}, /* the bias is loaded 16 bytes at a time */
    {NETS_LRN, {.size = 5, .alpha = 2, .beta = 0.75f, .k = 2}, {2, 3, 2, 11}},
    {NETS_RELU, {0}, {2, 7, 5, 13}},
    {NETS_MAX_POOL, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, {2, 7, 6, 16}},
    {NETS_AVG_POOL, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, {2, 7, 6, 16}},
    {NETS_MAX_POOL, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, {2, 7, 6, 13}},
    {NETS_AVG_POOL, {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, {2, 7, 6, 13}},
    {NETS_MAX_POOL, {.kernel = {3, 2}, .stride = {1, 2}}, {2, 7, 6, 12}}, /* indices of 4 bits */
    {NETS_MAX_POOL, {.kernel = {5, 5}, .stride = {2, 2}}, {2, 7, 6, 24}}, /* indices of 8 bits */
    {NETS_GLOBAL_AVG_POOL, {0}, {2, 7, 6, 16}},
    {NETS_CROP, {.out_size = {3, 2}, .offset = {1, 1}}, {2, 5, 4, 24}},
    {NETS_CROP, {.out_size = {3, 2}, .offset = {1, 1}}, {2, 5, 4, 13}},
    {NETS_UPSAMPLE, {.scale = {2, 3}}, {2, 3, 4, 16}},
    {NETS_UPSAMPLE, {.scale = {2, 2}, .bilinear = true}, {2, 3, 4, 5}},
    {NETS_ADD, {0}, {2, 5, 3, 9}},
    {NETS_ADD, {0}, {3, 33, 21, 8}}, /* several thread blocks */
    {NETS_MUL, {0}, {2, 5, 3, 9}},
    {NETS_GROUP_NORM, {.groups = 3}, {2, 21, 17, 9}},
    {NETS_GROUP_NORM, {.groups = 4}, {2, 21, 17, 24}},
    {NETS_RMS_NORM, {0}, {2, 7, 1, 24}},
    {NETS_RMS_NORM, {0}, {2, 40, 1, 520}},
    {NETS_RMS_NORM, {0}, {2, 9, 1, 304}},
    {NETS_RMS_NORM, {0}, {2, 9, 1, 800}},
    {NETS_RMS_NORM, {0}, {2, 9, 1, 1040}},
    {NETS_BATCH_NORM, {0}, {4, 5, 5, 13}},
    {NETS_BATCH_NORM, {0}, {3, 7, 9, 40}}, /* eight channels a thread */
    {NETS_DROPOUT, {.p = 0.3f}, {2, 5, 5, 13}},
    {NETS_POSITION, {0}, {3, 1, 17, 20}},
    {NETS_POSITION, {0}, {2, 1, 90, 24}},
    {NETS_LAYER_NORM, {0}, {2, 7, 1, 24}},
    {NETS_LAYER_NORM, {0}, {2, 7, 1, 20}},
    {NETS_LAYER_NORM, {0}, {2, 40, 1, 520}}, /* several vectors a lane, several partial sums */
    {NETS_LAYER_NORM, {0}, {2, 9, 1, 304}},
    {NETS_LAYER_NORM, {0}, {2, 9, 1, 800}},
    {NETS_LAYER_NORM, {0}, {2, 9, 1, 1040}}, /* too many for registers */
    {NETS_LEAKY_RELU, {0}, {2, 7, 5, 13}},
    {NETS_RELU6, {0}, {2, 7, 5, 13}},
    {NETS_SIGMOID, {0}, {3, 33, 21, 5}},
    {NETS_HARD_SIGMOID, {0}, {2, 7, 5, 13}},
    {NETS_SILU, {0}, {2, 7, 5, 13}},
    {NETS_HARD_SWISH, {0}, {2, 7, 5, 13}},
    {NETS_SCALE, {.slope = 2.5f}, {2, 7, 1, 24}},
    {NETS_GELU, {0}, {2, 7, 1, 24}},
    {NETS_GELU, {.tanh = true}, {3, 33, 21, 5}},
    {NETS_PROJECT, {.out_channels = 12, .bias = true}, {2, 7, 1, 24}},
    {NETS_PROJECT, {.out_channels = 16, .bias = true}, {2, 7, 1, 24}},
    {NETS_PROJECT, {.out_channels = 12}, {2, 7, 1, 24}},
    {NETS_PROJECT, {.out_channels = 16, .bias = true, .by_output = true}, {2, 7, 1, 24}},
    {NETS_CLASS_TOKEN, {0}, {3, 4, 4, 20}},
    {NETS_CLASS_TOKEN, {0}, {2, 4, 5, 24}},
    {NETS_ATTENTION, {.heads = 2, .full = true}, {2, 1, 70, 48}},
    {NETS_ATTENTION, {.heads = 1, .full = true}, {1, 1, 70, 192}},
    {NETS_ATTENTION, {.heads = 2}, {2, 1, 70, 48}},
    {NETS_ATTENTION, {.heads = 4, .kv_heads = 2}, {2, 1, 70, 64}},
    {NETS_ROTARY, {.heads = 2, .kv_heads = 1}, {2, 1, 70, 64}},
    {NETS_ATTENTION, {.heads = 1}, {1, 1, 20, 18}}, /* without tensor cores: 6, 38 and 70 channels */
    {NETS_ATTENTION, {.heads = 1}, {1, 1, 20, 114}},
    {NETS_ATTENTION, {.heads = 1}, {1, 1, 20, 210}},
    {NETS_ATTENTION, {.heads = 1}, {1, 1, 20, 96}}, /* tensor cores: tiles of 32, 64 and 128 channels */
    {NETS_ATTENTION, {.heads = 1}, {1, 1, 70, 192}},
    {NETS_ATTENTION, {.heads = 1}, {1, 1, 20, 336}}, /* 112 of 128 */
};

static void an_op_of_bf16_maps_rounds_what_the_f32_op_gives(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int mode = 0; mode < 3; mode++) { /* training; evaluation; training on the batch, without its gradient */
            op_rig rig;
            if (mode == 1 && nets_op_lowering_of(CASES[i].kind, false)->identity_in_eval) continue;
            if (mode == 2 && !nets_param_spec_of(CASES[i].kind, 0)) continue; /* there is no backward */
            op_rig_init(&rig, CASES[i].kind, &CASES[i].attrs, CASES[i].x, mode != 1, mode == 0);
            check(&rig, false, mode == 2);
        }
}

static void a_map_times_numbers_of_its_channels_is_rounded_once(void **state) {
    (void)state;
    for (int channels = 13; channels <= 24; channels += 11)
        for (int earlier = 0; earlier < 2; earlier++) {
            op_rig rig;
            op_rig_init_two(&rig, NETS_MUL, NULL, (const int64_t[]){3, 21, 17, channels},
                            (const int64_t[]){3, 1, 1, channels}, true, true);
            check(&rig, earlier, false);
        }
}

static void an_embedding_of_bf16_maps_rounds_its_rows(void **state) {
    (void)state;
    for (int channels = 20; channels <= 24; channels += 4) {
        enum { TOKENS = 30, VOCABULARY = 11 };
        const nets_attrs attrs = {.vocabulary = VOCABULARY, .out_channels = channels};
        op_rig rig;
        op_rig_init(&rig, NETS_EMBEDDING, &attrs, (const int64_t[]){2, 1, TOKENS / 2, 1}, true, false);
        float *tokens = rig.args.at[NETS_X];
        for (int i = 0; i < TOKENS; i++) tokens[i] = (float)(5 * i % VOCABULARY);
        check(&rig, false, true);
    }
}

/* As where the weight is also that of a product, which has a copy in bf16. */
static void an_embedding_reads_its_weights_copy(void **state) {
    (void)state;
    for (int channels = 20; channels <= 24; channels += 4) {
        const nets_attrs attrs = {.vocabulary = 11, .out_channels = channels};
        nets_op_desc unused = {0};
        op_rig rig;
        pair p;
        op_rig_init(&rig, NETS_EMBEDDING, &attrs, (const int64_t[]){2, 1, 15, 1}, true, false);
        for (int i = 0; i < 30; i++) ((float *)rig.args.at[NETS_X])[i] = (float)(5 * i % 11);
        pair_init(&p, &rig, false, true);
        give_copy(&p, &unused);
        run(&p, MM_FORWARD);
        nets_op_destroy(p.op);
        op_rig_fini(&rig);
    }
}

static void earlier_gradients_are_added_before_the_sum_is_rounded(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        op_rig rig;
        op_rig_init(&rig, CASES[i].kind, &CASES[i].attrs, CASES[i].x, true, true);
        check(&rig, true, false);
    }
}

/* Whose weights the host reorders in several pieces. */
static void convolutions_of_many_weights_round_what_the_f32_op_gives(void **state) {
    static const struct {
        nets_attrs attrs;
        int64_t x[4];
    } MANY[] = {
        {{.out_channels = 256, .kernel = {3, 3}, .pad = {1, 1}}, {2, 4, 4, 64}},
        {{.out_channels = 200, .kernel = {3, 3}, .pad = {1, 1}}, {2, 4, 4, 64}},
        {{.out_channels = 121, .kernel = {3, 3}, .pad = {1, 1}}, {2, 4, 4, 72}},
        {{.out_channels = 256, .kernel = {3, 3}, .pad = {1, 1}, .groups = 4}, {2, 3, 3, 256}},
        {{.out_channels = 200, .kernel = {1, 1}}, {2, 3, 3, 264}},
    };
    (void)state;
    if (strcmp(op_rig_device(), "host") != 0) skip();
    for (size_t i = 0; i < sizeof MANY / sizeof *MANY; i++)
        for (int mode = 0; mode < 4; mode++) { /* training; beside an earlier gradient; of the batch; a later pass */
            op_rig rig;
            op_rig_init(&rig, NETS_CONV, &MANY[i].attrs, MANY[i].x, true, mode != 2);
            if (mode == 3) {
                op_rig_give_passes(&rig);
                op_rig_fill(&rig, NETS_DW, 78);
            }
            check(&rig, mode == 1, mode == 2);
        }
}

/* Where cuBLASLt adds no bias, the op takes chunks of 16 and 2 rows. */
static void a_wide_projection_with_a_bias_is_rounded_once(void **state) {
    const nets_attrs attrs = {.out_channels = (1 << 18) + 8, .bias = true};
    op_rig rig;
    (void)state;
    op_rig_init(&rig, NETS_PROJECT, &attrs, (const int64_t[]){2, 9, 1, 2}, false, false);
    check(&rig, false, false);
}

static void fused_batch_norms_are_rounded_once(void **state) {
    (void)state;
    for (int inputs = 1; inputs <= 2; inputs++)
        for (int channels = 13; channels <= 64; channels += 51) {
            op_rig rig;
            op_rig_init_fused(&rig, NETS_BATCH_NORM, NULL, (const int64_t[]){4, 5, 5, channels}, inputs, true, true);
            check(&rig, false, false);
        }
}

static void a_relu_with_a_bias_is_rounded_once(void **state) {
    (void)state;
    for (int channels = 13; channels <= 64; channels += 51) {
        op_rig rig;
        op_rig_init_fused(&rig, NETS_RELU, NULL, (const int64_t[]){4, 5, 5, channels}, 1, true, true);
        check(&rig, false, false);
    }
}

static void a_product_with_a_silu_is_rounded_once(void **state) {
    (void)state;
    for (int channels = 13; channels <= 64; channels += 51) {
        op_rig rig;
        op_rig_init_fused(&rig, NETS_MUL, NULL, (const int64_t[]){4, 5, 5, channels}, 2, true, true);
        check(&rig, false, false);
    }
}

static void the_losss_probabilities_are_f32(void **state) {
    (void)state;
    for (int classes = 10; classes <= 16; classes += 6) {
        op_rig rig;
        op_rig_init(&rig, NETS_LOSS, NULL, (const int64_t[]){6, 1, 1, classes}, true, true);
        for (int i = 0; i < 6; i++) ((int32_t *)rig.args.at[NETS_LABELS])[i] = 3 * i % 10;
        check(&rig, false, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_op_of_bf16_maps_rounds_what_the_f32_op_gives),
        cmocka_unit_test(a_map_times_numbers_of_its_channels_is_rounded_once),
        cmocka_unit_test(an_embedding_of_bf16_maps_rounds_its_rows),
        cmocka_unit_test(an_embedding_reads_its_weights_copy),
        cmocka_unit_test(earlier_gradients_are_added_before_the_sum_is_rounded),
        cmocka_unit_test(convolutions_of_many_weights_round_what_the_f32_op_gives),
        cmocka_unit_test(a_wide_projection_with_a_bias_is_rounded_once),
        cmocka_unit_test(fused_batch_norms_are_rounded_once),
        cmocka_unit_test(a_product_with_a_silu_is_rounded_once),
        cmocka_unit_test(a_relu_with_a_bias_is_rounded_once),
        cmocka_unit_test(the_losss_probabilities_are_f32),
    };
    OP_RIG_RUN(tests);
}
