/* SPDX-License-Identifier: MIT */
/* CUDA's ops agree with the host's: copies, masks, choices and maxima bit for bit, sums within a tolerance relative to
 * the tensor's largest number. Sizes leave rests: channels that are no multiple of four, single images, single pixels,
 * rows for several partial sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/nets/op_rig.h"

typedef struct pair {
    op_rig host, cuda;
} pair;

static const int64_t SIZES[][4] = {
    {1, 1, 1, 1},  {1, 3, 5, 3},  {2, 4, 4, 4},   {3, 7, 6, 5},
    {1, 9, 8, 16}, {2, 5, 5, 33}, {2, 3, 3, 130}, {3, 17, 13, 16},
};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0] };

static void start_inputs(pair *p, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4],
                         const int64_t *channels, int n_inputs, bool training) {
    op_rig_use("cuda");
    op_rig_init_inputs(&p->cuda, kind, attrs, x, channels, n_inputs, training, training);
    op_rig_use("host");
    op_rig_init_inputs(&p->host, kind, attrs, x, channels, n_inputs, training, training);
}

static void start(pair *p, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], bool training) {
    start_inputs(p, kind, attrs, x, (const int64_t[]){x[3], x[3]}, kind == NETS_ADD || kind == NETS_MUL ? 2 : 1,
                 training);
}

static void finish(pair *p) {
    op_rig_fini(&p->cuda);
    op_rig_fini(&p->host);
}

static void run(pair *p, mm_phase phase) {
    op_rig_run(&p->host, phase);
    op_rig_run(&p->cuda, phase);
}

static void give(pair *p, nets_role role, const void *bytes, size_t n) {
    memcpy(p->host.args.at[role], bytes, n);
    memcpy(p->cuda.args.at[role], bytes, n);
}

static void check_exact(const pair *p, nets_role role) {
    assert_memory_equal(p->host.args.at[role], p->cuda.args.at[role], (size_t)p->host.bytes[role]);
}

static void check_near(const pair *p, nets_role role, double tolerance) {
    const float *host = op_rig_floats(&p->host, role), *cuda = op_rig_floats(&p->cuda, role);
    double largest = 1e-3;
    if (!host) return;
    for (int64_t i = 0; i < op_rig_elems(&p->host, role); i++) largest = fmax(largest, fabs((double)host[i]));
    for (int64_t i = 0; i < op_rig_elems(&p->host, role); i++) {
        const double there = cuda[op_rig_place(&p->cuda, role, i)];
        if (!(fabs((double)host[i] - there) <= tolerance * largest))
            fail_msg("%s of %lldx%lldx%lldx%lld: role %d element %lld: %.9g, on the host %.9g, the largest %g",
                     nets_op_name(p->host.desc.kind), (long long)p->host.desc.x[0].dims[0],
                     (long long)p->host.desc.x[0].dims[1], (long long)p->host.desc.x[0].dims[2],
                     (long long)p->host.desc.x[0].dims[3], (int)role, (long long)i, there, (double)host[i], largest);
    }
}

/* ---------------------------------------------------------------- exactly */

static void check_exact_op(nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4]) {
    pair p;
    start(&p, kind, attrs, x, true);
    give(&p, NETS_RNG, (const uint32_t[NETS_RNG_WORDS]){0xfedcba98, 7, 0xffffffff, 0},
         NETS_RNG_WORDS * sizeof(uint32_t));
    p.host.args.layer = p.cuda.args.layer = 11;
    run(&p, MM_FORWARD);
    check_exact(&p, NETS_Y);
    for (int earlier = 0; earlier < 2; earlier++) {
        if (earlier) p.host.args.at[NETS_EARLIER] = p.host.args.at[NETS_X];
        if (earlier) p.cuda.args.at[NETS_EARLIER] = p.cuda.args.at[NETS_X];
        run(&p, MM_BACKWARD);
        check_exact(&p, NETS_DX);
        if (p.host.desc.n_inputs > 1) check_exact(&p, NETS_DX2);
    }
    finish(&p);
}

static void relu_add_mul_and_dropout_agree_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        check_exact_op(NETS_RELU, NULL, SIZES[i]);
        check_exact_op(NETS_ADD, NULL, SIZES[i]);
        check_exact_op(NETS_MUL, NULL, SIZES[i]);
        check_exact_op(NETS_DROPOUT, &(nets_attrs){.p = 0.4f}, SIZES[i]);
        check_exact_op(NETS_DROPOUT, &(nets_attrs){.p = 0.4f, .by_sample = true}, SIZES[i]);
    }
}

static void crop_and_nearest_upsampling_agree_bit_for_bit(void **state) {
    (void)state;
    check_exact_op(NETS_CROP, &(nets_attrs){.out_size = {3, 2}, .offset = {1, 1}}, (const int64_t[4]){2, 5, 4, 7});
    check_exact_op(NETS_CROP, &(nets_attrs){.out_size = {4, 4}, .center = true}, (const int64_t[4]){1, 9, 6, 8});
    check_exact_op(NETS_UPSAMPLE, &(nets_attrs){.scale = {1, 1}}, SIZES[3]);
}

static void check_concat(const int64_t *channels, int n) {
    pair p;
    const int64_t x[4] = {2, 3, 5, channels[0]};
    start_inputs(&p, NETS_CONCAT, NULL, x, channels, n, true);
    run(&p, MM_FORWARD);
    check_exact(&p, NETS_Y);
    p.host.args.at[NETS_EARLIER] = p.host.args.at[NETS_X];
    p.cuda.args.at[NETS_EARLIER] = p.cuda.args.at[NETS_X];
    run(&p, MM_BACKWARD);
    for (int i = 0; i < n; i++) check_exact(&p, (nets_role)(NETS_DX + i));
    finish(&p);
}

static void concat_agrees_bit_for_bit(void **state) {
    (void)state;
    check_concat((const int64_t[]){5, 1, 16, 3}, 4);
    check_concat((const int64_t[]){8, 64, 36}, 3);
    check_concat((const int64_t[]){4, 6}, 2); /* vectors of four that start off a multiple of four */
}

static const nets_attrs POOLS[] = {
    {.kernel = {2, 2}, .stride = {2, 2}},
    {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}},
    {.kernel = {3, 2}, .stride = {1, 2}, .ceil_mode = true},
};

/* Inputs have three values, so that most windows have ties. */
static void max_pool_agrees_bit_for_bit_also_where_maxima_tie(void **state) {
    (void)state;
    for (int i = 2; i < N_SIZES; i++)
        for (int a = 0; a < 3; a++) {
            pair p;
            start(&p, NETS_MAX_POOL, &POOLS[a], SIZES[i], true);
            for (int64_t e = 0; e < op_rig_elems(&p.host, NETS_X); e++)
                op_rig_floats(&p.host, NETS_X)[e] = op_rig_floats(&p.cuda, NETS_X)[e] =
                    rintf(1.4f * op_rig_floats(&p.host, NETS_X)[e]);
            run(&p, MM_FORWARD);
            check_exact(&p, NETS_Y);
            check_exact(&p, NETS_INDEX);
            run(&p, MM_BACKWARD);
            check_near(&p, NETS_DX, 1e-6);
            finish(&p);
        }
}

/* ---------------------------------------------------------------- nearly */

static void check_pair(pair *p, double tolerance) {
    static const nets_role FORWARD[] = {NETS_Y, NETS_SAVED_MEAN, NETS_SAVED_VAR, NETS_MEAN, NETS_VAR};
    static const nets_role BACKWARD[] = {NETS_DX, NETS_DX2, NETS_DW, NETS_DB};
    run(p, MM_FORWARD);
    for (size_t i = 0; i < sizeof FORWARD / sizeof FORWARD[0]; i++) check_near(p, FORWARD[i], tolerance);
    run(p, MM_BACKWARD);
    for (size_t i = 0; i < sizeof BACKWARD / sizeof BACKWARD[0]; i++) check_near(p, BACKWARD[i], tolerance);
    op_rig_give_earlier(&p->host, p->host.args.at[NETS_X]);
    op_rig_give_earlier(&p->cuda, p->cuda.args.at[NETS_X]);
    run(p, MM_BACKWARD);
    check_near(p, NETS_DX, tolerance);
}

static void check_op(nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], double tolerance) {
    pair p;
    start(&p, kind, attrs, x, true);
    check_pair(&p, tolerance);
    finish(&p);
}

static void check_scaled(const int64_t x[4]) {
    const int64_t x2[4] = {x[0], 1, 1, x[3]};
    pair p;
    op_rig_use("cuda");
    op_rig_init_two(&p.cuda, NETS_MUL, NULL, x, x2, true, true);
    op_rig_use("host");
    op_rig_init_two(&p.host, NETS_MUL, NULL, x, x2, true, true);
    check_pair(&p, 1e-6);
    finish(&p);
}

static void products_of_maps_and_numbers_of_their_channels_agree(void **state) {
    (void)state;
    for (int i = 1; i < N_SIZES; i++) check_scaled(SIZES[i]);
    check_scaled((const int64_t[4]){2, 33, 31, 72});
}

static void group_norm_agrees(void **state) {
    static const int64_t GROUPS[N_SIZES] = {1, 3, 2, 5, 1, 11, 13, 4};
    (void)state;
    for (int i = 1; i < N_SIZES; i++) check_op(NETS_GROUP_NORM, &(nets_attrs){.groups = GROUPS[i]}, SIZES[i], 1e-5);
    check_op(NETS_GROUP_NORM, &(nets_attrs){.groups = 3}, (const int64_t[4]){2, 33, 31, 120}, 1e-5);
}

static void batch_norm_agrees(void **state) {
    (void)state;
    for (int i = 1; i < N_SIZES; i++) check_op(NETS_BATCH_NORM, NULL, SIZES[i], 1e-5);
    check_op(NETS_BATCH_NORM, &(nets_attrs){.eps = 0.01f, .momentum = 0.5f}, (const int64_t[4]){5, 33, 31, 12}, 1e-5);
}

/* Gives CUDA's backward the outputs of the host's forward, because an output near zero may have another sign on
 * CUDA. */
static void share_forward(pair *p) {
    const nets_role shared[] = {NETS_Y, NETS_SAVED_MEAN, NETS_SAVED_VAR};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        if (p->host.bytes[shared[i]]) give(p, shared[i], p->host.args.at[shared[i]], (size_t)p->host.bytes[shared[i]]);
}

static void check_fused(nets_op_kind kind, const int64_t x[4], int n_inputs) {
    static const nets_role FORWARD[] = {NETS_Y, NETS_SAVED_MEAN, NETS_SAVED_VAR, NETS_MEAN, NETS_VAR};
    static const nets_role BACKWARD[] = {NETS_DX, NETS_DX2, NETS_DW, NETS_DB};
    pair p;
    op_rig_use("cuda");
    op_rig_init_fused(&p.cuda, kind, NULL, x, n_inputs, true, true);
    op_rig_use("host");
    op_rig_init_fused(&p.host, kind, NULL, x, n_inputs, true, true);
    run(&p, MM_FORWARD);
    for (size_t i = 0; i < sizeof FORWARD / sizeof FORWARD[0]; i++) check_near(&p, FORWARD[i], 1e-5);
    share_forward(&p);
    for (int earlier = 0; earlier < 2; earlier++) {
        for (int i = 0; i < n_inputs && earlier; i++) {
            p.host.args.at[NETS_EARLIER + i] = p.host.args.at[NETS_X + i];
            p.cuda.args.at[NETS_EARLIER + i] = p.cuda.args.at[NETS_X + i];
        }
        run(&p, MM_BACKWARD);
        for (size_t i = 0; i < sizeof BACKWARD / sizeof BACKWARD[0]; i++) check_near(&p, BACKWARD[i], 1e-5);
    }
    finish(&p);
}

static void fused_layers_agree(void **state) {
    (void)state;
    for (int i = 1; i < N_SIZES; i++) {
        check_fused(NETS_BATCH_NORM, SIZES[i], 1);
        check_fused(NETS_BATCH_NORM, SIZES[i], 2);
        check_fused(NETS_RELU, SIZES[i], 1);
    }
    check_fused(NETS_BATCH_NORM, (const int64_t[4]){5, 33, 31, 12}, 2);
    check_fused(NETS_RELU, (const int64_t[4]){5, 33, 31, 12}, 1);
}

static void average_pools_agree(void **state) {
    (void)state;
    for (int i = 2; i < N_SIZES; i++) {
        for (int a = 0; a < 2; a++) check_op(NETS_AVG_POOL, &POOLS[a], SIZES[i], 1e-6);
        check_op(NETS_GLOBAL_AVG_POOL, NULL, SIZES[i], 1e-6);
    }
    const nets_attrs inside = {
        .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = true, .exclude_pad = true};
    check_op(NETS_AVG_POOL, &inside, SIZES[3], 1e-6);
}

static void upsampling_agrees(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        check_op(NETS_UPSAMPLE, &(nets_attrs){.scale = {2, 3}}, SIZES[i], 1e-6);
        check_op(NETS_UPSAMPLE, &(nets_attrs){.scale = {2, 2}, .bilinear = true}, SIZES[i], 1e-6);
        check_op(NETS_UPSAMPLE, &(nets_attrs){.scale = {3, 1}, .bilinear = true}, SIZES[i], 1e-6);
    }
}

static void lrn_agrees(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) check_op(NETS_LRN, &(nets_attrs){.size = 5, .alpha = 2, .k = 2}, SIZES[i], 1e-5);
    check_op(NETS_LRN, &(nets_attrs){.size = 3, .alpha = 1, .beta = 0.6f}, (const int64_t[4]){1, 2, 2, 300}, 1e-5);
}

static void linear_agrees(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        check_op(NETS_LINEAR, &(nets_attrs){.out_channels = 10, .bias = true}, SIZES[i], 1e-5);
        check_op(NETS_LINEAR, &(nets_attrs){.out_channels = 7}, SIZES[i], 1e-5);
    }
}

static void activations_agree(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        check_exact_op(NETS_LEAKY_RELU, &(nets_attrs){.slope = 0.1f}, SIZES[i]);
        check_exact_op(NETS_RELU6, NULL, SIZES[i]);
        for (nets_op_kind kind = NETS_SIGMOID; kind <= NETS_GELU; kind++) check_op(kind, NULL, SIZES[i], 1e-6);
        check_op(NETS_GELU, &(nets_attrs){.tanh = true}, SIZES[i], 2e-6);
    }
}

static void layer_norm_rms_norm_and_positions_agree(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        if (SIZES[i][3] > 1) check_op(NETS_LAYER_NORM, NULL, SIZES[i], 1e-5);
        if (SIZES[i][3] > 1) check_op(NETS_RMS_NORM, NULL, SIZES[i], 1e-5);
        check_op(NETS_POSITION, NULL, SIZES[i], 1e-6);
        check_op(NETS_CLASS_TOKEN, NULL, SIZES[i], 1e-6);
    }
    check_op(NETS_LAYER_NORM, &(nets_attrs){.eps = 0.01f}, (const int64_t[4]){3, 1, 300, 260}, 1e-5);
    for (int channels = 200; channels <= 1032; channels += 208) /* one to five vectors a lane */
        for (int rms = 0; rms < 2; rms++)
            check_op(rms ? NETS_RMS_NORM : NETS_LAYER_NORM, NULL, (const int64_t[4]){2, 1, 70, channels}, 1e-5);
}

/* Heads that fill each size of tile or not; sizes that are no multiple of four; fewer and more rows than a tile. */
static void attention_agrees(void **state) {
    static const struct {
        int64_t heads, size, tokens;
    } CASES[] = {{1, 32, 130}, {2, 6, 70}, {3, 40, 70}, {1, 64, 64}, {2, 96, 50}, {1, 128, 33}, {1, 20, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int full = 0; full < 2; full++)
            check_op(NETS_ATTENTION, &(nets_attrs){.heads = CASES[i].heads, .full = full},
                     (const int64_t[4]){2, 1, CASES[i].tokens, 3 * CASES[i].heads * CASES[i].size}, 1e-5);
    for (int kv_heads = 1; kv_heads < 6; kv_heads += kv_heads) /* groups of four, two and one */
        check_op(NETS_ATTENTION, &(nets_attrs){.heads = 4, .kv_heads = kv_heads},
                 (const int64_t[4]){2, 1, 70, (4 + 2 * kv_heads) * 24}, 1e-5);
}

static void rotary_embeddings_agree(void **state) {
    static const int64_t SIZES[] = {2, 16, 20};
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        check_op(NETS_ROTARY, &(nets_attrs){.heads = 4, .kv_heads = 2}, (const int64_t[4]){2, 1, 70, 8 * SIZES[i]},
                 1e-6);
}

/* Some tokens are frequent, some absent. */
static void embeddings_agree(void **state) {
    static const int64_t CHANNELS[] = {1, 6, 132};
    (void)state;
    for (size_t i = 0; i < sizeof CHANNELS / sizeof *CHANNELS; i++) {
        pair p;
        start(&p, NETS_EMBEDDING, &(nets_attrs){.vocabulary = 40, .out_channels = CHANNELS[i]},
              (const int64_t[4]){3, 1, 300, 1}, true);
        for (int64_t e = 0; e < op_rig_elems(&p.host, NETS_X); e++)
            op_rig_floats(&p.host, NETS_X)[e] = op_rig_floats(&p.cuda, NETS_X)[e] = (float)(e * e % 7 * (e % 6));
        run(&p, MM_FORWARD);
        check_exact(&p, NETS_Y);
        run(&p, MM_BACKWARD);
        check_near(&p, NETS_DW, 1e-5);
        finish(&p);
    }
}

static const nets_attrs CONVS[] = {
    {.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}, .bias = true},
    {.out_channels = 5, .kernel = {1, 1}, .stride = {2, 2}},
    {.out_channels = 12, .kernel = {3, 2}, .stride = {2, 1}, .pad = {2, 1}, .dilation = {2, 1}, .bias = true},
};

static void convolutions_agree(void **state) {
    (void)state;
    for (int i = 2; i < N_SIZES; i++)
        for (size_t a = 0; a < sizeof CONVS / sizeof CONVS[0]; a++) {
            check_op(NETS_CONV, &CONVS[a], SIZES[i], 1e-5);
            check_op(NETS_CONV_TRANSPOSE, &CONVS[a], SIZES[i], 1e-5);
        }
    const nets_attrs grouped = {.out_channels = 32, .kernel = {3, 3}, .pad = {1, 1}, .groups = 4, .bias = true};
    const nets_attrs each = {.out_channels = 16, .kernel = {3, 3}, .pad = {1, 1}, .groups = 16};
    check_op(NETS_CONV, &grouped, SIZES[4], 1e-5);
    check_op(NETS_CONV, &each, SIZES[7], 1e-5);
    check_op(NETS_CONV_TRANSPOSE, &grouped, SIZES[4], 1e-5);
}

/* ResNet-20's convolutions, whose channels tensor cores can take. Libraries have other algorithms for them than for
 * small images. TF32 would be off by a few times 1e-4. */
static void convolutions_of_a_network_agree_in_fp32(void **state) {
    static const int64_t MAPS[][4] = {{32, 32, 32, 16}, {32, 16, 16, 32}, {32, 8, 8, 64}};
    (void)state;
    for (size_t i = 0; i < sizeof MAPS / sizeof MAPS[0]; i++) {
        const nets_attrs conv = {.out_channels = (int)MAPS[i][3], .kernel = {3, 3}, .pad = {1, 1}};
        check_op(NETS_CONV, &conv, MAPS[i], 3e-5);
    }
}

static void tf32_convolutions_agree_as_they_are_rounded(void **state) {
    static const nets_attrs SHAPES[] = {
        {.out_channels = 64, .kernel = {1, 1}},
        {.out_channels = 64, .kernel = {1, 1}, .stride = {2, 2}},
        {.out_channels = 64, .kernel = {3, 3}, .pad = {1, 1}},
        {.out_channels = 64, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++)
        for (int transposed = 0; transposed < 2; transposed++) {
            pair p;
            start(&p, transposed ? NETS_CONV_TRANSPOSE : NETS_CONV, &SHAPES[i], (const int64_t[4]){4, 14, 14, 32},
                  true);
            op_rig_use("cuda");
            op_rig_reopen(&p.cuda, &(nets_backend_config){.precision = NETS_TF32, .workspace_limit_bytes = 64 << 20});
            check_pair(&p, 4e-3);
            finish(&p);
        }
}

/* ---------------------------------------------------------------- the loss */

static void check_loss(const int64_t x[4]) {
    pair p;
    int32_t labels[2000];
    start(&p, NETS_LOSS, NULL, x, true);
    int64_t n = x[0] * x[1] * x[2];
    assert_true(n <= 2000);
    for (int64_t i = 0; i < n; i++) labels[i] = (int32_t)(i * 7 % x[3]);
    give(&p, NETS_LABELS, labels, 4 * (size_t)n);
    /* Rounded scores tie. */
    for (int64_t e = 0; e < op_rig_elems(&p.host, NETS_X); e++)
        op_rig_floats(&p.host, NETS_X)[e] = op_rig_floats(&p.cuda, NETS_X)[e] =
            rintf(10 * op_rig_floats(&p.host, NETS_X)[e]) / 5;
    run(&p, MM_FORWARD);
    check_near(&p, NETS_LOSS_VALUE, 1e-6);
    check_near(&p, NETS_Y, 1e-6);
    assert_memory_equal(p.host.args.at[NETS_CORRECT], p.cuda.args.at[NETS_CORRECT], 4);
    run(&p, MM_BACKWARD);
    check_near(&p, NETS_DX, 1e-6);
    finish(&p);
}

static void loss_agrees_and_counts_the_same(void **state) {
    (void)state;
    check_loss((const int64_t[4]){1, 1, 1, 2});
    check_loss((const int64_t[4]){128, 1, 1, 10});
    check_loss((const int64_t[4]){3, 1, 1, 1000});
    check_loss((const int64_t[4]){2, 17, 23, 21});
    check_loss((const int64_t[4]){2, 31, 32, 33});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_add_mul_and_dropout_agree_bit_for_bit),
        cmocka_unit_test(crop_and_nearest_upsampling_agree_bit_for_bit),
        cmocka_unit_test(concat_agrees_bit_for_bit),
        cmocka_unit_test(max_pool_agrees_bit_for_bit_also_where_maxima_tie),
        cmocka_unit_test(products_of_maps_and_numbers_of_their_channels_agree),
        cmocka_unit_test(group_norm_agrees),
        cmocka_unit_test(batch_norm_agrees),
        cmocka_unit_test(fused_layers_agree),
        cmocka_unit_test(average_pools_agree),
        cmocka_unit_test(upsampling_agrees),
        cmocka_unit_test(lrn_agrees),
        cmocka_unit_test(linear_agrees),
        cmocka_unit_test(activations_agree),
        cmocka_unit_test(layer_norm_rms_norm_and_positions_agree),
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(rotary_embeddings_agree),
        cmocka_unit_test(embeddings_agree),
        cmocka_unit_test(convolutions_agree),
        cmocka_unit_test(convolutions_of_a_network_agree_in_fp32),
        cmocka_unit_test(tf32_convolutions_agree_as_they_are_rounded),
        cmocka_unit_test(loss_agrees_and_counts_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
