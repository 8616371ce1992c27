/* SPDX-License-Identifier: MIT */
/* Vision transformers, Dosovitskiy et al. 2021, as torchvision's: a convolution makes tokens of patches; a class token
 * goes through the encoder with them, and the scores are of it alone. Layers and parameters have torchvision's names.
 * */
#include <math.h>

#include "nets/zoo/layers.h"

static const float EPS = 1e-6f;

/* torch's Linear of each token. Deviation: that of Glorot's uniform numbers. */
static int project(const zoo *z, const char *name, int64_t channels, int64_t width, int input) {
    const double deviation = sqrt(2.0 / (double)(channels + width));
    const nets_attrs attrs = {.out_channels = channels, .bias = true, .by_output = true, .deviation = (float)deviation};
    return nets_add1(z->net, name, NETS_PROJECT, &attrs, input);
}

static int norm(const zoo *z, const char *name, int input) {
    return nets_add1(z->net, name, NETS_LAYER_NORM, &(nets_attrs){.eps = EPS}, input);
}

/* torch's MultiheadAttention. */
static int attend(const zoo *z, const char *name, int64_t width, int64_t heads, int input) {
    const zoo_name in = zoo_namef("%s.in_proj", name), weight = zoo_namef("%s.in_proj_weight", name),
                   bias = zoo_namef("%s.in_proj_bias", name);
    int x = project(z, in.text, 3 * width, width, input);
    nets_name_params(z->net, (const char *const[]){weight.text, bias.text}, 2);
    x = nets_add1(z->net, name, NETS_ATTENTION, &(nets_attrs){.heads = heads, .full = true}, x);
    return project(z, zoo_namef("%s.out_proj", name).text, width, width, x);
}

static int layer(const zoo *z, const char *name, int64_t width, int64_t heads, int input) {
    int x = norm(z, zoo_namef("%s.ln_1", name).text, input);
    x = attend(z, zoo_namef("%s.self_attention", name).text, width, heads, x);
    const int sum = zoo_add(z, zoo_namef("%s.add_1", name).text, x, input);
    x = norm(z, zoo_namef("%s.ln_2", name).text, sum);
    x = project(z, zoo_namef("%s.mlp.0", name).text, 4 * width, width, x);
    x = nets_add1(z->net, zoo_namef("%s.mlp.1", name).text, NETS_GELU, NULL, x);
    x = project(z, zoo_namef("%s.mlp.3", name).text, width, 4 * width, x);
    return zoo_add(z, zoo_namef("%s.add_2", name).text, x, sum);
}

/* The last norm is of each token by itself, so that it is computed for the class token alone. */
void zoo_build_vit(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    const int64_t layers = numbers[0], heads = numbers[2], patch = numbers[3];
    const int64_t width = (numbers[1] + z->thin - 1) / z->thin;
    const nets_attrs patches = {
        .out_channels = width, .kernel = {patch, patch}, .stride = {patch, patch}, .bias = true};
    int x = nets_add1(z->net, "conv_proj", NETS_CONV, &patches, zoo_data(z, 3));
    x = nets_add1(z->net, "encoder.tokens", NETS_CLASS_TOKEN, NULL, x);
    nets_name_params(z->net, (const char *const[]){"class_token", "encoder.pos_embedding"}, 2);
    for (int64_t i = 0; i < layers; i++)
        x = layer(z, zoo_namef("encoder.layers.encoder_layer_%lld", (long long)i).text, width, heads, x);
    x = nets_add1(z->net, "encoder.class_token", NETS_CROP, &(nets_attrs){.out_size = {1, 1}}, x);
    zoo_classify(z, "heads.head", norm(z, "encoder.ln", x));
}
