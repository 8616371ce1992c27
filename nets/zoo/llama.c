/* SPDX-License-Identifier: MIT */
/* Llama: Touvron et al. 2023, "LLaMA"; Dubey et al. 2024, "The Llama 3 Herd of Models". RMS norms, rotary embeddings,
 * grouped queries, SwiGLU; no biases. Layers and parameters have the names of transformers' files, without "model."
 * (embed_tokens, layers.0.self_attn.q_proj, ...). Positions are not scaled, as Llama 3.1 and later do beyond 8192
 * tokens (rope_scaling). */
#include "nets/zoo/layers.h"

static const float DEVIATION = 0.02f, EPS = 1e-5f;

static int project(const zoo *z, const char *name, int64_t channels, int input) {
    const nets_attrs attrs = {.out_channels = channels, .by_output = true, .deviation = DEVIATION};
    return nets_add1(z->net, name, NETS_PROJECT, &attrs, input);
}

static int norm(const zoo *z, const char *name, int input) {
    return nets_add1(z->net, name, NETS_RMS_NORM, &(nets_attrs){.eps = EPS}, input);
}

static int attend(const zoo *z, const char *block, int64_t base, int x) {
    const int64_t kv_width = z->tokens_width / z->heads * z->kv_heads;
    const nets_attrs heads = {.heads = z->heads, .kv_heads = z->kv_heads};
    nets_attrs turned = heads;
    turned.base = (float)base;
    int y = norm(z, zoo_namef("%s.input_layernorm", block).text, x);
    const int parts[] = {project(z, zoo_namef("%s.self_attn.q_proj", block).text, z->tokens_width, y),
                         project(z, zoo_namef("%s.self_attn.k_proj", block).text, kv_width, y),
                         project(z, zoo_namef("%s.self_attn.v_proj", block).text, kv_width, y)};
    y = zoo_concat(z, zoo_namef("%s.self_attn.qkv", block).text, parts, 3);
    y = nets_add1(z->net, zoo_namef("%s.self_attn.rotary", block).text, NETS_ROTARY, &turned, y);
    y = nets_add1(z->net, zoo_namef("%s.self_attn", block).text, NETS_ATTENTION, &heads, y);
    y = project(z, zoo_namef("%s.self_attn.o_proj", block).text, z->tokens_width, y);
    return zoo_add(z, zoo_namef("%s.self_attn.add", block).text, x, y);
}

static int compute(const zoo *z, const char *block, int x) {
    const int y = norm(z, zoo_namef("%s.post_attention_layernorm", block).text, x);
    int gate = project(z, zoo_namef("%s.mlp.gate_proj", block).text, z->hidden, y);
    gate = nets_add1(z->net, zoo_namef("%s.mlp.act", block).text, NETS_SILU, NULL, gate);
    const int both[] = {gate, project(z, zoo_namef("%s.mlp.up_proj", block).text, z->hidden, y)};
    int down = nets_add(z->net, zoo_namef("%s.mlp.mul", block).text, NETS_MUL, NULL, both, 2);
    down = project(z, zoo_namef("%s.mlp.down_proj", block).text, z->tokens_width, down);
    return zoo_add(z, zoo_namef("%s.mlp.add", block).text, x, down);
}

void zoo_build_llama(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    const int64_t base = numbers[7];
    const bool tied = numbers[8];
    int x = nets_add_data(z->net, 1, z->context, 1, z->vocabulary);
    x = nets_add1(z->net, "embed_tokens", NETS_EMBEDDING,
                  &(nets_attrs){.vocabulary = z->vocabulary, .out_channels = z->tokens_width, .deviation = DEVIATION},
                  x);
    for (int64_t i = 0; i < z->layers; i++) {
        const zoo_name block = zoo_namef("layers.%lld", (long long)i);
        x = compute(z, block.text, attend(z, block.text, base, x));
    }
    const nets_attrs scores = {.out_channels = z->vocabulary, .tied = tied, .deviation = tied ? 0 : DEVIATION};
    nets_add1(z->net, "lm_head", NETS_TOKEN_LOSS, &scores, norm(z, "norm", x));
}
