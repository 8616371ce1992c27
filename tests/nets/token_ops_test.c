/* SPDX-License-Identifier: MIT */
/* Operations of transformers, and activations, on each device that has them, against PyTorch's in float64.
 * references/tokens.py recorded some elements. Outputs and gradients differ by at most 1e-5 of the largest; with bf16
 * maps, by a unit in the last place plus a bound on sums. And tests of single operations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/bf16.h"
#include "nets/io/safetensors.h"
#include "nets/net_ops.h"
#include "tests/core/deep.h"
#include "tests/nets/op_rig.h"

static const char REFERENCES[] = "tests/nets/references/tokens.safetensors";
static const double TOLERANCE = 1e-5;

/* In [-1, 1]; same formula as the script's. */
static float number(int64_t seed, int64_t i) { return (float)((i * 7919 + seed * 104729) % 2003 - 1001) / 1001; }

static void fill(op_rig *rig, nets_role role, int64_t seed, float factor, float shift) {
    float *values = op_rig_floats(rig, role);
    for (int64_t i = 0; values && i < op_rig_elems(rig, role); i++) values[i] = factor * number(seed, i) + shift;
}

typedef struct op_case {
    const char *name;
    nets_op_kind kind;
    nets_attrs attrs;
    int64_t x[4];
    float factor, shift; /* applied to x */
} op_case;

static const op_case CASES[] = {
    {"embedding", NETS_EMBEDDING, {.vocabulary = 11, .out_channels = 20}, {2, 1, 15, 1}, 1, 0},
    {"position", NETS_POSITION, {0}, {3, 1, 17, 20}, 1, 0},
    {"layer_norm", NETS_LAYER_NORM, {0}, {2, 1, 75, 20}, 3, 1},
    {"gelu_tanh", NETS_GELU, {.tanh = true}, {2, 1, 65, 20}, 4, 0},
    {"gelu_erf", NETS_GELU, {0}, {2, 1, 65, 20}, 4, 0},
    {"project", NETS_PROJECT, {.out_channels = 40, .bias = true}, {2, 1, 75, 24}, 1, 0},
    {"attention_of_one_block", NETS_ATTENTION, {.heads = 3}, {2, 1, 33, 72}, 2, 0},
    {"attention_of_blocks", NETS_ATTENTION, {.heads = 2}, {1, 1, 300, 48}, 2, 0},
    {"attention_of_64_channels", NETS_ATTENTION, {.heads = 1}, {1, 1, 70, 192}, 1, 0},
    {"token_loss", NETS_TOKEN_LOSS, {.out_channels = 37}, {2, 1, 75, 16}, 1, 0},
    {"token_loss_of_chunks", NETS_TOKEN_LOSS, {.out_channels = 19}, {3, 1, 700, 8}, 1, 0},
    {"rms_norm", NETS_RMS_NORM, {0}, {2, 1, 75, 20}, 3, 1},
    {"class_token", NETS_CLASS_TOKEN, {0}, {3, 4, 4, 20}, 1, 0},
    {"leaky_relu", NETS_LEAKY_RELU, {.slope = 0.1f}, {2, 1, 65, 20}, 8, 0},
    {"relu6", NETS_RELU6, {0}, {2, 1, 65, 20}, 8, 0},
    {"sigmoid", NETS_SIGMOID, {0}, {2, 1, 65, 20}, 8, 0},
    {"silu", NETS_SILU, {0}, {2, 1, 65, 20}, 8, 0},
    {"hard_swish", NETS_HARD_SWISH, {0}, {2, 1, 65, 20}, 8, 0},
    {"project_by_output", NETS_PROJECT, {.out_channels = 40, .bias = true, .by_output = true}, {2, 1, 75, 24}, 1, 0},
    {"full_attention_of_one_block", NETS_ATTENTION, {.heads = 3, .full = true}, {2, 1, 33, 72}, 2, 0},
    {"full_attention_of_blocks", NETS_ATTENTION, {.heads = 2, .full = true}, {1, 1, 300, 48}, 2, 0},
    {"full_attention_of_64_channels", NETS_ATTENTION, {.heads = 1, .full = true}, {1, 1, 70, 192}, 1, 0},
    {"grouped_attention", NETS_ATTENTION, {.heads = 6, .kv_heads = 2}, {2, 1, 33, 80}, 2, 0},
    {"grouped_attention_of_blocks", NETS_ATTENTION, {.heads = 4, .kv_heads = 1}, {1, 1, 300, 144}, 2, 0},
    {"full_grouped_attention", NETS_ATTENTION, {.heads = 4, .kv_heads = 2, .full = true}, {2, 1, 70, 128}, 2, 0},
    {"rotary", NETS_ROTARY, {.heads = 3, .kv_heads = 1}, {2, 1, 75, 60}, 1, 0},
    {"rotary_of_a_large_base", NETS_ROTARY, {.heads = 2, .base = 500000}, {1, 1, 600, 96}, 1, 0},
};

enum { N_CASES = sizeof CASES / sizeof CASES[0] };

static bool is_host(void) { return strcmp(op_rig_device(), "host") == 0; }

static bool has(nets_op_kind kind) {
    nets_backend *backend;
    assert_int_equal(nets_backend_open(op_rig_device(), NULL, &backend), MM_OK);
    const bool is_there = backend->ops->impls[kind]->create != NULL;
    nets_backend_close(backend);
    return is_there;
}

static void open_case(op_rig *rig, const op_case *c) {
    op_rig_init(rig, c->kind, &c->attrs, c->x, true, c->kind != NETS_EMBEDDING);
    fill(rig, NETS_X, 1, c->factor, c->shift);
    fill(rig, NETS_W, 2, 1, 0);
    fill(rig, NETS_B, 3, 1, 0);
    fill(rig, NETS_DY, 4, 1, 0);
    float *x = op_rig_floats(rig, NETS_X);
    int32_t *labels = rig->args.at[NETS_LABELS];
    for (int64_t i = 0; i < c->x[0] * c->x[2]; i++) {
        if (c->kind == NETS_EMBEDDING) x[i] = (float)(5 * i % c->attrs.vocabulary);
        if (c->kind == NETS_TOKEN_LOSS) labels[i] = (int32_t)(3 * i % c->attrs.out_channels);
    }
}

/* ---------------------------------------------------------------- references */

static bool is_half(const op_rig *rig, nets_role role) {
    const bool map = role == NETS_X || role == NETS_DX ||
                     ((role == NETS_Y || role == NETS_DY) && !nets_op_info_of(rig->desc.kind)->f32_output);
    return rig->desc.maps == MM_BF16 && map && !(role == NETS_X && rig->desc.f32_inputs);
}

static float element(const op_rig *rig, nets_role role, int64_t i) {
    if (!is_half(rig, role)) return op_rig_floats(rig, role)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)rig->args.at[role])[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bf16: a unit in the last place of `value`. On CUDA, projections also round their bias (at most 1) to bf16. */
static double last_place(const op_rig *rig, nets_role role, double value) {
    const bool rounds_bias = is_half(rig, role) && role == NETS_Y && rig->desc.kind == NETS_PROJECT && !is_host();
    return (is_half(rig, role) && value != 0 ? ldexp(1, ilogb(value) - 7) : 0) + (rounds_bias ? ldexp(1, -9) : 0);
}

/* Bound on the error of sums, relative to the largest element. For attention in bf16 it is chosen, not derived.
 *
 * With bf16 maps, operations may round intermediate results to bf16 before multiplying them, with an error of at most
 * 2^-9: the loss its scores' gradients; attention its probabilities and scores' gradients (and its backward reads its
 * rounded output); a sigmoid's gradient dy y (1 - y), from its rounded output, is off by 2^-9 of dy, which here is at
 * most 2^-5 of the largest gradient recorded. A sum is then off by at most 2^-9 of the sum of its terms' magnitudes.
 * Here that sum is up to 1.6 times the largest element for the loss, so its bound always holds. For attention's
 * gradients it is up to 8.8 times, which would give 2^-5.8. Errors cancel: measured is 0.0034 (2^-8.2), on the host
 * 0.0064 (2^-7.3), and 2^-7 is chosen. */
static double tolerance(const op_rig *rig) {
    if (rig->desc.maps == MM_BF16 && rig->desc.kind == NETS_TOKEN_LOSS) return ldexp(1, -8);
    if (rig->desc.maps == MM_BF16 && rig->desc.kind == NETS_ATTENTION) return ldexp(1, -7);
    if (rig->desc.maps == MM_BF16 && rig->desc.kind == NETS_SIGMOID) return ldexp(1, -5);
    return TOLERANCE;
}

static void check(const nets_safetensors_file *file, const op_rig *rig, const op_case *c, const char *what,
                  nets_role role) {
    const bool bf16 = rig->desc.maps == MM_BF16;
    const int64_t most = bf16 ? 251 : 997;
    char name[64];
    snprintf(name, sizeof name, "%s%s.%s", bf16 ? "bf16." : "", c->name, what);
    const nets_safetensors_tensor *recorded = nets_safetensors_find(file, name);
    if (!recorded) return; /* the script records only roles that exist */
    const int64_t n = op_rig_elems(rig, role), step = n / most > 1 ? n / most : 1;
    double largest = 0, deviation = 0;
    assert_int_equal(recorded->dims[0], (n + step - 1) / step);
    for (int64_t i = 0; i < recorded->dims[0]; i++) {
        float expected;
        memcpy(&expected, (const char *)recorded->data + (size_t)i * sizeof expected, sizeof expected);
        const double want = (double)expected, got = (double)element(rig, role, i * step);
        largest = fmax(largest, fabs(want));
        if (isnan(got)) fail_msg("%s: element %lld is not a number", name, (long long)(i * step));
        deviation = fmax(deviation, fabs(got - want) - last_place(rig, role, want));
    }
    if (getenv("MM_TEST_VERBOSE")) print_message("%-32s %.2e\n", name, deviation / largest);
    if (!(largest > 0 && deviation <= tolerance(rig) * largest))
        fail_msg("%s deviates by %g of %g", name, deviation, largest);
}

static void round_elements(const float *from, int64_t n, uint16_t *to) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        to[i] = nets_bf16_of(bits);
    }
}

/* Makes the rig's op and maps bf16. On CUDA all of these ops are native in bf16. */
static void halve(op_rig *rig) {
    static const nets_role roles[] = {NETS_X, NETS_DY};
    const nets_param_spec *weight = nets_param_spec_of(rig->desc.kind, 0);
    const nets_op_impl *native = rig->op->impl;
    nets_op_destroy(rig->op);
    rig->desc.maps = MM_BF16;
    rig->desc.f32_inputs = rig->desc.kind == NETS_EMBEDDING;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (rig->args.at[roles[i]] && is_half(rig, roles[i]))
            round_elements(rig->args.at[roles[i]], op_rig_elems(rig, roles[i]), rig->args.at[roles[i]]);
    if (weight && weight->factor) {
        rig->desc.factor_elems = op_rig_elems(rig, NETS_W);
        rig->args.at[NETS_W16] = op_rig_alloc(rig, 2 * rig->desc.factor_elems);
        round_elements(rig->args.at[NETS_W], rig->desc.factor_elems, rig->args.at[NETS_W16]);
        rig->args.at[NETS_W] = NULL;
    }
    assert_int_equal(nets_op_create(rig->backend, &rig->desc, &rig->op), MM_OK);
    if (strcmp(rig->backend->ops->name, "cuda") == 0) assert_ptr_equal(rig->op->impl, native);
    rig->args.workspace_bytes = 0;
    for (int p = MM_FORWARD; p <= MM_BACKWARD; p++) {
        const int64_t bytes = nets_op_workspace_bytes(rig->op, (mm_phase)p);
        if (bytes > rig->args.workspace_bytes) rig->args.workspace_bytes = bytes;
    }
    rig->bytes[NETS_WORKSPACE] = rig->args.workspace_bytes + 64;
    rig->args.at[NETS_WORKSPACE] = op_rig_alloc(rig, rig->bytes[NETS_WORKSPACE]);
}

static void check_all(bool bf16) {
    nets_safetensors_file *file;
    if (nets_safetensors_open(REFERENCES, &file) != MM_OK) fail_msg("%s", mm_last_error());
    for (size_t i = 0; i < N_CASES; i++) {
        op_rig rig;
        if (!has(CASES[i].kind)) continue;
        open_case(&rig, &CASES[i]);
        if (bf16) halve(&rig);
        op_rig_run(&rig, MM_FORWARD);
        op_rig_run(&rig, MM_BACKWARD);
        check(file, &rig, &CASES[i], "y", NETS_Y);
        check(file, &rig, &CASES[i], "loss", NETS_LOSS_VALUE);
        check(file, &rig, &CASES[i], "dx", NETS_DX);
        check(file, &rig, &CASES[i], "dw", NETS_DW);
        check(file, &rig, &CASES[i], "db", NETS_DB);
        op_rig_fini(&rig);
    }
    nets_safetensors_close(file);
}

static void outputs_and_gradients_are_those_of_float64(void **state) {
    (void)state;
    check_all(false);
}

static void of_bf16_maps_they_are_those_of_the_same_inputs_in_float64(void **state) {
    (void)state;
    check_all(true);
}

/* The sum of n products, whose factors lie `a_step` and `b_step` apart. */
static double sum_of(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i * a_step] * (double)b[i * b_step];
    return sum;
}

static void expect_matrix(const op_rig *rig, nets_role role, int64_t rows, int64_t columns, const float *a,
                          int64_t a_row, int64_t a_step, const float *b, int64_t b_column, int64_t b_step, int64_t n) {
    const float *bias = role == NETS_Y ? op_rig_floats(rig, NETS_B) : NULL, *got = op_rig_floats(rig, role);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const double sum = sum_of(a + r * a_row, a_step, b + c * b_column, b_step, n);
            assert_true(fabs((double)got[r * columns + c] - sum - (bias ? (double)bias[c] : 0)) <= 1e-5 * (double)n);
        }
}

/* Matrices that the host cuts along both sides; their last pieces are smaller. */
static void products_in_pieces_of_rows_and_columns_are_those_of_float64(void **state) {
    enum { ROWS = 150, IN = 203, OUT = 230 };
    const op_case c = {"project", NETS_PROJECT, {.out_channels = OUT, .bias = true}, {2, 1, ROWS / 2, IN}, 1, 0};
    op_rig rig;
    (void)state;
    open_case(&rig, &c);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    const float *x = op_rig_floats(&rig, NETS_X), *w = op_rig_floats(&rig, NETS_W), *dy = op_rig_floats(&rig, NETS_DY);
    expect_matrix(&rig, NETS_Y, ROWS, OUT, x, IN, 1, w, 1, OUT, IN);
    expect_matrix(&rig, NETS_DX, ROWS, IN, dy, OUT, 1, w, OUT, 1, OUT);
    expect_matrix(&rig, NETS_DW, IN, OUT, x, 1, IN, dy, 1, OUT, ROWS);
    op_rig_fini(&rig);
}

/* ---------------------------------------------------------------- the contract of ops */

static void bits_do_not_depend_on_places_and_earlier_gradients_are_added(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CASES; i += test_is_sanitized() ? 2 : 1) {
        op_rig rig;
        if (!has(CASES[i].kind)) continue;
        open_case(&rig, &CASES[i]);
        op_rig_check_places(&rig);
        if (CASES[i].kind != NETS_EMBEDDING) op_rig_check_earlier(&rig);
        op_rig_fini(&rig);
    }
}

static void outputs_may_lie_over_inputs(void **state) {
    static const nets_op_kind backward[] = {NETS_LAYER_NORM, NETS_GELU, NETS_POSITION};
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        op_rig rig;
        bool over = false;
        for (size_t k = 0; k < sizeof backward / sizeof *backward; k++) over |= CASES[i].kind == backward[k];
        if (!over) continue;
        open_case(&rig, &CASES[i]);
        op_rig_run(&rig, MM_FORWARD);
        op_rig_check_inplace(&rig, MM_BACKWARD, NETS_DY, NETS_DX);
        op_rig_fini(&rig);
        open_case(&rig, &CASES[i]);
        op_rig_check_inplace(&rig, MM_FORWARD, NETS_X, NETS_Y);
        op_rig_fini(&rig);
    }
}

static void attention_does_not_see_what_comes_later(void **state) {
    const op_case *c = &CASES[7];
    op_rig rig;
    (void)state;
    if (!has(c->kind)) skip();
    open_case(&rig, c);
    op_rig_run(&rig, MM_FORWARD);
    const int64_t row = rig.desc.y.dims[3], from = 200;
    float *before = malloc((size_t)(from * row) * sizeof *before);
    assert_non_null(before);
    memcpy(before, rig.args.at[NETS_Y], (size_t)(from * row) * sizeof *before);
    for (int64_t e = from * 3 * row; e < op_rig_elems(&rig, NETS_X); e++) op_rig_floats(&rig, NETS_X)[e] += 1;
    op_rig_run(&rig, MM_FORWARD);
    assert_memory_equal(rig.args.at[NETS_Y], before, (size_t)(from * row) * sizeof *before);
    free(before);
    op_rig_fini(&rig);
}

/* The workspace is for blocks of scores, not for the square of the context. */
static void attention_needs_no_memory_for_all_scores(void **state) {
    const int64_t x[4] = {1, 1, 4096, 24};
    op_rig rig;
    (void)state;
    if (!has(NETS_ATTENTION)) skip();
    op_rig_init(&rig, NETS_ATTENTION, &(nets_attrs){.heads = 1}, x, true, true);
    assert_true(nets_op_workspace_bytes(rig.op, MM_BACKWARD) < 4096 * 4096);
    op_rig_fini(&rig);
}

static void expect_failure(op_rig *rig, mm_phase phase, const char *message) {
    assert_int_equal(nets_op_enqueue(rig->op, phase, &rig->args, rig->stream), MM_OK);
    assert_int_equal(mm_stream_sync(rig->stream), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), message);
}

/* On a GPU the stream does not fail: the bad token's row is NaN, and the others are as usual. */
static void check_no_row(op_rig *rig, int64_t row) {
    const int64_t channels = rig->desc.y.dims[3];
    op_rig_run(rig, MM_FORWARD);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_Y); i++)
        assert_int_equal(isnan(op_rig_floats(rig, NETS_Y)[i]) != 0, i / channels == row);
    op_rig_run(rig, MM_BACKWARD);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_DW); i++) assert_true(isfinite(op_rig_floats(rig, NETS_DW)[i]));
}

static void a_token_beyond_the_vocabulary_is_refused(void **state) {
    static const float bad[] = {11, -1, 2.5f, NAN};
    static const char *const told[] = {"11", "-1", "2.5", "nan"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        op_rig rig;
        char message[128];
        open_case(&rig, &CASES[0]);
        op_rig_floats(&rig, NETS_X)[16] = bad[i];
        snprintf(message, sizeof message, "token %s at place 1 of sample 1 is not in the vocabulary of 11", told[i]);
        if (is_host())
            expect_failure(&rig, MM_FORWARD, message);
        else
            check_no_row(&rig, 16);
        op_rig_fini(&rig);
    }
}

static void a_label_beyond_the_classes_is_refused(void **state) {
    op_rig rig;
    (void)state;
    if (!is_host()) skip();
    open_case(&rig, &CASES[9]);
    ((int32_t *)rig.args.at[NETS_LABELS])[80] = 37;
    expect_failure(&rig, MM_FORWARD, "label 37 of sample 1 is not one of 37 classes");
    op_rig_fini(&rig);
}

/* With tied weights, the loss writes the gradient and the embedding adds to it. */
static void an_embedding_of_shared_weights_adds_its_gradient(void **state) {
    op_rig alone, shared;
    (void)state;
    open_case(&alone, &CASES[0]);
    op_rig_run(&alone, MM_BACKWARD);
    open_case(&shared, &CASES[0]);
    nets_op_destroy(shared.op);
    shared.desc.shared = true;
    assert_int_equal(nets_op_create(shared.backend, &shared.desc, &shared.op), MM_OK);
    float *dw = op_rig_floats(&shared, NETS_DW);
    for (int64_t i = 0; i < op_rig_elems(&shared, NETS_DW); i++) dw[i] = 0;
    dw[7] = 3;
    op_rig_run(&shared, MM_BACKWARD);
    const float *without = op_rig_floats(&alone, NETS_DW);
    for (int64_t i = 0; i < op_rig_elems(&shared, NETS_DW); i++)
        if (i != 7) assert_true(dw[i] == without[i]);
    assert_true(fabsf(dw[7] - without[7] - 3) < 1e-6f);
    op_rig_fini(&alone);
    op_rig_fini(&shared);
}

/* ---------------------------------------------------------------- descriptions */

static int add_tokens(nets_net *net) {
    return nets_add1(net, "wte", NETS_EMBEDDING, &(nets_attrs){.vocabulary = 11, .out_channels = 12},
                     nets_add_data(net, 1, 5, 1, 11));
}

static void wrong_networks_are_refused(void **state) {
    nets_net *net;
    (void)state;
    assert_int_equal(nets_net_create("t", &net), MM_OK);
    assert_int_equal(nets_add1(net, "attn", NETS_ATTENTION, &(nets_attrs){.heads = 5}, add_tokens(net)), -1);
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(),
                           "\"heads\" must be from 1 to 16777216, with twice kv_heads dividing the channels, not 5"));
    nets_net_destroy(net);
    assert_int_equal(nets_net_create("t", &net), MM_OK);
    nets_add1(net, "loss", NETS_TOKEN_LOSS, &(nets_attrs){.out_channels = 7, .tied = true}, add_tokens(net));
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "layer loss: tied to wte.weight, which is 11x12, must be 7x12");
    nets_net_destroy(net);
    assert_int_equal(nets_net_create("t", &net), MM_OK);
    nets_add1(net, "loss", NETS_TOKEN_LOSS, &(nets_attrs){.out_channels = 7, .tied = true},
              nets_add_data(net, 1, 5, 1, 7));
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "layer loss: \"tied\", but there is no embedding before it");
    nets_net_destroy(net);
    assert_int_equal(nets_net_create("t", &net), MM_OK);
    nets_add1(net, "wte", NETS_EMBEDDING, &(nets_attrs){.vocabulary = 7, .out_channels = 3},
              nets_add_data(net, 2, 5, 3, 7));
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "layer wte: its input is 2x5x3, must have one channel, the tokens' numbers");
    nets_net_destroy(net);
}

/* However large the weight is. Each chunk has a multiple of 16 rows, which does not exceed the limit. */
static void the_hosts_token_loss_has_24_mib_of_scores_at_a_time(void **state) {
    const nets_attrs attrs = {.out_channels = 40000};
    const int64_t limit = 24 << 20, scratch = 128 << 10;
    op_rig rig;
    (void)state;
    if (!is_host()) skip();
    op_rig_init(&rig, NETS_TOKEN_LOSS, &attrs, (const int64_t[]){1, 1, 471, 168}, true, true);
    const int64_t bytes = nets_op_workspace_bytes(rig.op, MM_FORWARD);
    if (bytes > limit + scratch) fail_msg("%lld bytes", (long long)bytes);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_and_gradients_are_those_of_float64),
        cmocka_unit_test(of_bf16_maps_they_are_those_of_the_same_inputs_in_float64),
        cmocka_unit_test(products_in_pieces_of_rows_and_columns_are_those_of_float64),
        cmocka_unit_test(bits_do_not_depend_on_places_and_earlier_gradients_are_added),
        cmocka_unit_test(outputs_may_lie_over_inputs),
        cmocka_unit_test(attention_does_not_see_what_comes_later),
        cmocka_unit_test(attention_needs_no_memory_for_all_scores),
        cmocka_unit_test(the_hosts_token_loss_has_24_mib_of_scores_at_a_time),
        cmocka_unit_test(a_token_beyond_the_vocabulary_is_refused),
        cmocka_unit_test(a_label_beyond_the_classes_is_refused),
        cmocka_unit_test(an_embedding_of_shared_weights_adds_its_gradient),
        cmocka_unit_test(wrong_networks_are_refused),
    };
    OP_RIG_RUN(tests);
}
