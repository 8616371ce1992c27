/* SPDX-License-Identifier: MIT */
/* GPT-2: Radford et al. 2019, "Language models are unsupervised multitask learners". Layers and parameters have the
 * names of the published files (wte, wpe, h.0.ln_1, h.0.attn.c_attn, ...). Initial weights of residual projections are
 * divided by the root of the number of these. */
#include <math.h>

#include "nets/zoo/layers.h"

static const double DEVIATION = 0.02;

/* A projection; with `residual`, what the block adds to its input. */
static int project(const zoo *z, const char *name, int64_t channels, bool residual, int input) {
    const double deviation = residual ? DEVIATION / sqrt(2.0 * (double)z->layers) : DEVIATION;
    const nets_attrs attrs = {.out_channels = channels, .bias = true, .deviation = (float)deviation};
    return nets_add1(z->net, name, NETS_PROJECT, &attrs, input);
}

static int drop(const zoo *z, const char *name, int input) {
    return z->dropout > 0 ? zoo_dropout(z, name, (float)z->dropout, input) : input;
}

static int norm(const zoo *z, const char *name, int input) {
    return nets_add1(z->net, name, NETS_LAYER_NORM, NULL, input);
}

static int attend(const zoo *z, const char *block, int x) {
    int y = norm(z, zoo_namef("%s.ln_1", block).text, x);
    y = project(z, zoo_namef("%s.attn.c_attn", block).text, 3 * z->tokens_width, false, y);
    y = nets_add1(z->net, zoo_namef("%s.attn", block).text, NETS_ATTENTION, &(nets_attrs){.heads = z->heads}, y);
    y = project(z, zoo_namef("%s.attn.c_proj", block).text, z->tokens_width, true, y);
    y = drop(z, zoo_namef("%s.attn.resid_dropout", block).text, y);
    return zoo_add(z, zoo_namef("%s.attn.add", block).text, x, y);
}

static int compute(const zoo *z, const char *block, int x) {
    int y = norm(z, zoo_namef("%s.ln_2", block).text, x);
    y = project(z, zoo_namef("%s.mlp.c_fc", block).text, 4 * z->tokens_width, false, y);
    y = nets_add1(z->net, zoo_namef("%s.mlp.act", block).text, NETS_GELU, &(nets_attrs){.tanh = true}, y);
    y = project(z, zoo_namef("%s.mlp.c_proj", block).text, z->tokens_width, true, y);
    y = drop(z, zoo_namef("%s.mlp.dropout", block).text, y);
    return zoo_add(z, zoo_namef("%s.mlp.add", block).text, x, y);
}

void zoo_build_gpt(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    int x = nets_add_data(z->net, 1, z->context, 1, z->vocabulary);
    x = nets_add1(z->net, "wte", NETS_EMBEDDING,
                  &(nets_attrs){.vocabulary = z->vocabulary, .out_channels = z->tokens_width}, x);
    x = drop(z, "drop", nets_add1(z->net, "wpe", NETS_POSITION, NULL, x));
    for (int64_t i = 0; i < z->layers; i++) {
        const zoo_name block = zoo_namef("h.%lld", (long long)i);
        x = compute(z, block.text, attend(z, block.text, x));
    }
    nets_add1(z->net, "loss", NETS_TOKEN_LOSS, &(nets_attrs){.out_channels = z->vocabulary, .tied = true},
              norm(z, "ln_f", x));
}
