/* SPDX-License-Identifier: MIT */
/* Adapters and frozen layers: their options, the networks that they make, and the graphs of these. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/adapt.h"
#include "nets/init.h"
#include "nets/lower/lower.h"
#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"

static const char LLAMA[] = "llama-15m,layers=2,width=32,heads=4,kv_heads=2,hidden=48,context=8,vocabulary=40";
static const char GPT[] = "gpt,layers=1,width=32,heads=2,context=8,vocabulary=40";

static nets_net *build(const char *name) {
    nets_net *net;
    expect_ok(nets_zoo_build(name, &net));
    return net;
}

static nets_net *with_adapters(const char *name, const char *options) {
    nets_net *net = build(name);
    nets_lora lora;
    expect_ok(nets_lora_parse(options, &lora));
    expect_ok(nets_lora_add(&lora, &net));
    return net;
}

static int find_layer(const nets_net *net, const char *name) {
    for (int i = 0; i < nets_net_layers(net); i++)
        if (strcmp(nets_net_layer(net, i)->name, name) == 0) return i;
    return -1;
}

static void refuses(mm_status status, const char *says) {
    assert_int_equal(status, MM_ERR_INVALID);
    if (!strstr(mm_last_error(), says) || strchr(mm_last_error(), '\n')) fail_msg("%s", mm_last_error());
}

/* ---------------------------------------------------------------- options */

TEST_CASE(options_have_defaults_and_layers_with_commas) {
    nets_lora lora;
    expect_ok(nets_lora_parse("rank=8", &lora));
    assert_true(lora.rank == 8 && lora.alpha == 8);
    assert_string_equal(lora.layers, "attention");
    expect_ok(nets_lora_parse("layers=q_proj,v_proj,rank=4,alpha=2.5", &lora));
    assert_true(lora.rank == 4 && lora.alpha == 2.5);
    assert_string_equal(lora.layers, "q_proj,v_proj");
}

TEST_CASE(wrong_options_are_refused) {
    static const char *const wrong[][2] = {
        {"rank=0", "rank=0: must be"},          {"rank=-1", "rank=-1: must be"},
        {"rank=1.5", "whole number"},           {"rank=x", "rank=x: must be"},
        {"alpha=2", "rank=R is missing"},       {"", "rank=R is missing"},
        {"rank=2,alpha=0", "alpha=0: must be"}, {"rank=2,layer=mlp", "did you mean layers?"},
        {"rank=2,layers=", "'layers='"},        {"rank=2,mlp", "'mlp'"}};
    nets_lora lora;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refuses(nets_lora_parse(wrong[i][0], &lora), wrong[i][1]);
}

static void refuses_adapters(const char *name, const char *options, const char *says) {
    nets_net *net = build(name);
    const int layers = nets_net_layers(net);
    nets_lora lora;
    expect_ok(nets_lora_parse(options, &lora));
    refuses(nets_lora_add(&lora, &net), says);
    assert_int_equal(nets_net_layers(net), layers); /* as it was */
    nets_net_destroy(net);
}

TEST_CASE(adapters_that_do_not_fit_are_refused) {
    refuses_adapters(LLAMA, "rank=33", "rank=33 is larger than layer layers.0.self_attn.q_proj, which has 32 inputs");
    refuses_adapters(LLAMA, "rank=17", "layer layers.0.self_attn.k_proj, which has 32 inputs and 16 outputs");
    refuses_adapters(LLAMA, "rank=2,layers=q_proj,k_prj", "k_prj (did you mean k_proj?); it has q_proj, k_proj,");
    refuses_adapters(LLAMA, "rank=2,layers=lm_head", "is called lm_head");
    refuses_adapters("resnet8", "rank=2", "is called attention; it has fc");
    refuses_adapters("squeezenet1_0", "rank=2,layers=all", "has no linear layer");
}

/* ---------------------------------------------------------------- networks */

/* How many adapters there are. */
static int count(const nets_net *net) {
    int n = 0;
    for (int p = 0; p < nets_net_params(net); p++) n += nets_param_trains(nets_net_param(net, p));
    assert_int_equal(n % 2, 0);
    return n / 2;
}

TEST_CASE(layers_are_chosen_by_their_place_or_by_name) {
    static const struct {
        const char *net, *layers;
        int adapters;
    } known[] = {{LLAMA, "attention", 8},
                 {LLAMA, "mlp", 6},
                 {LLAMA, "all", 14},
                 {LLAMA, "attention,mlp", 14},
                 {LLAMA, "q_proj", 2},
                 {LLAMA, "*_proj", 14},
                 {LLAMA, "layers.1.*", 7},
                 {LLAMA, "?_proj,self_attn.q_proj", 8},
                 {GPT, "attention", 2},
                 {GPT, "mlp", 2},
                 {GPT, "c_attn,c_fc", 2},
                 {"vit_b_16@32,classes=5,thin=32", "attention", 24},
                 {"resnet8", "fc", 1},
                 {"vit_b_16@32,classes=5,thin=32", "all", 48},
                 {"vgg11@32,thin=16", "mlp", 2}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char options[64];
        snprintf(options, sizeof options, "rank=2,layers=%s", known[i].layers);
        nets_net *net = with_adapters(known[i].net, options);
        if (count(net) != known[i].adapters) fail_msg("%s, %s: %d", known[i].net, known[i].layers, count(net));
        nets_net_destroy(net);
    }
}

TEST_CASE(an_adapter_is_of_ordinary_layers_with_the_names_of_peft) {
    nets_net *net = with_adapters(LLAMA, "rank=4,alpha=12,layers=k_proj");
    const int k = find_layer(net, "layers.1.self_attn.k_proj"),
              sum = find_layer(net, "layers.1.self_attn.k_proj.lora_add");
    const int a = nets_net_find_param(net, "layers.1.self_attn.k_proj.lora_A.weight"),
              b = nets_net_find_param(net, "layers.1.self_attn.k_proj.lora_B.weight");
    assert_true(k >= 0 && a >= 0 && b >= 0 && sum == k + 4);
    assert_true(nets_net_param(net, a)->dims[0] == 4 && nets_net_param(net, a)->dims[1] == 32);
    assert_true(nets_net_param(net, b)->dims[0] == 16 && nets_net_param(net, b)->dims[1] == 4);
    const nets_layer *scale = nets_net_layer(net, k + 2), *add = nets_net_layer(net, sum);
    assert_true(scale->op == NETS_SCALE && scale->attrs.slope == 3);
    assert_true(add->op == NETS_ADD && add->inputs[0] == k && add->inputs[1] == k + 3);
    assert_int_equal(nets_net_layer(net, k + 1)->inputs[0], nets_net_layer(net, k)->inputs[0]);
    const int qkv = find_layer(net, "layers.1.self_attn.qkv");
    assert_int_equal(nets_net_layer(net, qkv)->inputs[1], sum);
    for (int p = 0; p < nets_net_params(net); p++) {
        const nets_param *param = nets_net_param(net, p);
        assert_int_equal(param->frozen, strstr(param->name, "lora_") == NULL);
    }
    nets_net_destroy(net);
    net = with_adapters(LLAMA, "rank=4,layers=k_proj"); /* a scale of 1 is no layer */
    assert_int_equal(find_layer(net, "layers.1.self_attn.k_proj.lora_scale"), -1);
    nets_net_destroy(net);
    net = with_adapters("vit_b_16@32,classes=5,thin=32", "rank=2");
    const char *name = "encoder.layers.encoder_layer_0.self_attention.in_proj.lora_A.weight";
    assert_true(nets_net_find_param(net, name) >= 0); /* the weight is called in_proj_weight */
    nets_net_destroy(net);
}

TEST_CASE(adapters_begin_as_nothing) {
    nets_net *net = with_adapters(LLAMA, "rank=8,layers=down_proj");
    float a[8 * 48], b[32 * 8];
    double sum2 = 0;
    nets_init_param(net, nets_net_find_param(net, "layers.0.mlp.down_proj.lora_A.weight"), 3, 0, 8 * 48, a);
    nets_init_param(net, nets_net_find_param(net, "layers.0.mlp.down_proj.lora_B.weight"), 3, 0, 32 * 8, b);
    for (int i = 0; i < 8 * 48; i++) sum2 += (double)a[i] * (double)a[i];
    for (int i = 0; i < 32 * 8; i++) assert_true(b[i] == 0);
    assert_true(fabs(sum2 / (8 * 48) * 3 * 48 - 1) < 0.3); /* the variance is 1 / (3 in) */
    nets_net_destroy(net);
}

TEST_CASE(given_values_stay_and_copies_are_frozen_alike) {
    nets_net *net = build(GPT), *longer;
    const int wpe = nets_net_find_param(net, "wpe.weight");
    float *values = calloc(8 * 32, sizeof *values), got[4];
    assert_non_null(values);
    values[2] = 7;
    nets_give_values(net, wpe, values);
    nets_lora lora;
    expect_ok(nets_lora_parse("rank=2,alpha=3", &lora));
    expect_ok(nets_lora_add(&lora, &net));
    nets_init_param(net, nets_net_find_param(net, "wpe.weight"), 1, 0, 4, got);
    assert_true(got[1] == 0 && got[2] == 7);
    expect_ok(nets_net_with_tokens(net, 16, &longer));
    for (int p = 0; p < nets_net_params(net); p++)
        assert_int_equal(nets_net_param(longer, p)->frozen, nets_net_param(net, p)->frozen);
    nets_net_destroy(longer);
    nets_net_destroy(net);
}

/* ---------------------------------------------------------------- freezing */

static int frozen_by(const char *name, const char *layers) {
    nets_net *net = build(name);
    int n = 0;
    expect_ok(nets_freeze_layers(net, layers));
    for (int p = 0; p < nets_net_params(net); p++) n += nets_net_param(net, p)->frozen;
    nets_net_destroy(net);
    return n;
}

TEST_CASE(layers_are_frozen_by_the_beginning_of_their_names) {
    assert_int_equal(frozen_by("resnet8", "conv1"), 1); /* not layer1.0.conv1 */
    assert_int_equal(frozen_by("resnet8", "layer1"), 6);
    assert_int_equal(frozen_by("resnet8", "layer?.0.conv*"), 6);
    assert_int_equal(frozen_by("resnet8", "*,!fc,!bn1"), frozen_by("resnet8", "conv1,layer1,layer2,layer3"));
    assert_int_equal(frozen_by(GPT, "loss"), 1); /* the embedding's weight, which it shares */
}

TEST_CASE(freezing_nothing_or_all_is_refused) {
    nets_net *net = build("resnet8");
    refuses(nets_freeze_layers(net, "conv1,layr1"), "layer with parameters of net resnet8 is called layr1");
    refuses(nets_freeze_layers(net, "relu1"), "is called relu1");
    refuses(nets_freeze_layers(net, "*"), "nothing is left to train");
    nets_net_destroy(net);
}

/* ---------------------------------------------------------------- graphs */

typedef struct lowered_net {
    nets_net *net;
    nets_backend *backend;
    nets_lowered *lowered;
} lowered_net;

static void lower(lowered_net *l, nets_net *net, nets_precision precision, nets_mode mode) {
    const nets_lowering how = {.mode = mode, .optimizer = NETS_ADAMW};
    l->net = net;
    expect_ok(nets_backend_open("host", &(nets_backend_config){.precision = precision}, &l->backend));
    expect_ok(nets_lower(net, l->backend, 2, &how, &l->lowered));
}

static void finish(lowered_net *l) {
    nets_lowered_destroy(l->lowered);
    nets_backend_close(l->backend);
    nets_net_destroy(l->net);
}

/* The layer's step of this phase; NULL: it has none. */
static const nets_step *step_of(const lowered_net *l, const char *layer, mm_phase phase) {
    for (int s = 0; s < l->lowered->n_steps; s++) {
        const nets_step *step = &l->lowered->steps[s];
        if (step->layer >= 0 && step->phase == phase && strcmp(nets_net_layer(l->net, step->layer)->name, layer) == 0)
            return step;
    }
    return NULL;
}

static mm_access access_of(const lowered_net *l, mm_tensor tensor, int s) {
    const mm_step_info *step = mm_graph_step(l->lowered->graph, s);
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) return step->uses[u].access;
    return MM_READ;
}

/* In each graph, frozen parameters are persistent tensors that no step writes, without gradients and states; with bf16
 * maps, weights of products and the embedding are held in bf16 alone. */
TEST_CASE(frozen_parameters_are_read_only) {
    for (int i = 0; i < 4; i++) {
        lowered_net l;
        lower(&l, with_adapters(LLAMA, "rank=2,alpha=3"), i / 2 ? NETS_BF16 : NETS_FP32,
              i % 2 ? NETS_EVAL : NETS_TRAIN);
        for (int p = 0; p < nets_net_params(l.net); p++) {
            const nets_param *param = nets_net_param(l.net, p);
            const nets_param_tensors *t = &l.lowered->params[p];
            const bool alone = i / 2 && param->frozen && param->rank == 2;
            assert_true((t->value < 0) == alone && (t->copy >= 0) == (i / 2 && param->rank == 2));
            assert_true((t->gradient >= 0) == (!param->frozen && i % 2 == 0));
            assert_true((t->state[1] >= 0) == (t->gradient >= 0));
            for (int s = 0; param->frozen && s < l.lowered->n_steps; s++)
                assert_int_equal(access_of(&l, alone ? t->copy : t->value, s), MM_READ);
        }
        finish(&l);
    }
}

/* Backward steps are there from the last layer down to the first adapters; frozen products read no input there. */
TEST_CASE(steps_and_reads_for_frozen_gradients_are_left_out) {
    static const char *const without[] = {"embed_tokens", "layers.0.input_layernorm", "layers.0.self_attn.q_proj",
                                          "layers.0.self_attn.v_proj"};
    static const char *const with[] = {"layers.0.self_attn.q_proj.lora_A", "layers.0.self_attn.o_proj",
                                       "layers.1.input_layernorm", "layers.1.self_attn.q_proj", "lm_head"};
    lowered_net l;
    lower(&l, with_adapters(LLAMA, "rank=2,alpha=3"), NETS_FP32, NETS_TRAIN);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) assert_null(step_of(&l, without[i], MM_BACKWARD));
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) assert_non_null(step_of(&l, with[i], MM_BACKWARD));
    const nets_step *frozen = step_of(&l, "layers.1.mlp.down_proj", MM_BACKWARD);
    assert_true(frozen->tensors[NETS_X] < 0 && frozen->tensors[NETS_DW] < 0 && frozen->tensors[NETS_DX] >= 0);
    const nets_step *first = step_of(&l, "layers.0.self_attn.q_proj.lora_A", MM_BACKWARD);
    assert_true(first->tensors[NETS_X] >= 0 && first->tensors[NETS_DW] >= 0 && first->tensors[NETS_DX] < 0);
    assert_true(step_of(&l, "lm_head", MM_FORWARD)->tensors[NETS_DW] < 0);
    const nets_step *norm = step_of(&l, "norm", MM_BACKWARD); /* computes its gradient in any case, to scratch */
    assert_true(norm->tensors[NETS_DW] < 0 && norm->addend[0] == 0 && norm->op_workspace_at >= 32 * 4);
    finish(&l);
}

TEST_CASE(a_net_of_which_all_is_frozen_is_not_lowered_for_training) {
    nets_net *net = build("resnet8");
    nets_backend *backend;
    nets_lowered *lowered;
    for (int i = 0; i < nets_net_layers(net); i++) nets_freeze(net, i);
    expect_ok(nets_backend_open("host", NULL, &backend));
    refuses(nets_lower(net, backend, 2, &(nets_lowering){.mode = NETS_TRAIN}, &lowered), "all are frozen");
    nets_backend_close(backend);
    nets_net_destroy(net);
}
