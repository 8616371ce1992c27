/* SPDX-License-Identifier: MIT */
/* Networks of inverted residuals, as torchvision's: a 1x1 convolution widens a map, a convolution of each channel by
 * itself (depthwise) follows, and a 1x1 convolution without activation narrows it again. MobileNetV2, Sandler et al.
 * 2018; EfficientNet-B0, Tan and Le 2019, which also weighs the channels by squeeze and excite, and in training drops
 * blocks of single samples (stochastic depth). */
#include "nets/zoo/layers.h"

typedef struct stage {
    int64_t widening, kernel, stride, channels; /* stride: the first block's */
    int blocks;
} stage;

static int64_t channels_of(const zoo *z, int layer) {
    return layer < 0 ? 1 : nets_shape_channels(&nets_net_layer(z->net, layer)->shape); /* < 0: the net has failed */
}

static zoo_window window_of(int64_t kernel, int64_t stride) { return (zoo_window){kernel, stride, kernel / 2}; }

/* A convolution of each channel by itself. */
static int depthwise(const zoo *z, const char *name, zoo_window window, int input) {
    const nets_attrs attrs = {.out_channels = channels_of(z, input),
                              .groups = channels_of(z, input),
                              .kernel = {window.kernel, window.kernel},
                              .stride = {window.stride, window.stride},
                              .pad = {window.pad, window.pad}};
    return nets_add1(z->net, name, NETS_CONV, &attrs, input);
}

/* torchvision's ConvNormActivation: NAME.0, .1, .2. Channels 0: depthwise. */
static int conv_norm_act(const zoo *z, const char *name, int64_t channels, zoo_window window, nets_op_kind activation,
                         int input) {
    const zoo_name conv = zoo_namef("%s.0", name);
    int x = channels ? zoo_conv_bare(z, conv.text, channels, window, input) : depthwise(z, conv.text, window, input);
    x = zoo_batch_norm(z, zoo_namef("%s.1", name).text, x);
    return nets_add1(z->net, zoo_namef("%s.2", name).text, activation, NULL, x);
}

/* The block's sum with its input, if both have one shape. */
static int close_block(const zoo *z, const char *name, int64_t stride, int64_t channels_before, float drop, int x,
                       int input) {
    const nets_attrs by_sample = {.p = drop, .by_sample = true};
    if (stride != 1 || channels_before != channels_of(z, x)) return x;
    if (drop > 0) x = nets_add1(z->net, zoo_namef("%s.stochastic_depth", name).text, NETS_DROPOUT, &by_sample, x);
    return zoo_add(z, zoo_namef("%s.add", name).text, x, input);
}

static void classify(const zoo *z, int x) {
    zoo_classify(z, "classifier.1", zoo_dropout(z, "classifier.0", 0.2f, zoo_global_pool(z, "avgpool", x)));
}

/* ---------------------------------------------------------------- MobileNetV2 */

static int mobile_block(const zoo *z, int index, const stage *s, int64_t stride, int input) {
    const int64_t before = channels_of(z, input);
    const zoo_name name = zoo_namef("features.%d", index);
    int layer = 0, x = input;
    if (s->widening > 1)
        x = conv_norm_act(z, zoo_namef("%s.conv.%d", name.text, layer++).text, s->widening * before * z->thin,
                          window_of(1, 1), NETS_RELU6, x);
    x = conv_norm_act(z, zoo_namef("%s.conv.%d", name.text, layer++).text, 0, window_of(3, stride), NETS_RELU6, x);
    x = zoo_conv_bare(z, zoo_namef("%s.conv.%d", name.text, layer++).text, s->channels, window_of(1, 1), x);
    x = zoo_batch_norm(z, zoo_namef("%s.conv.%d", name.text, layer).text, x);
    return close_block(z, name.text, stride, before, 0, x, input);
}

void zoo_build_mobilenet_v2(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    static const stage STAGES[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 3, 2, 32, 3}, {6, 3, 2, 64, 4},
                                   {6, 3, 1, 96, 3}, {6, 3, 2, 160, 3}, {6, 3, 1, 320, 1}};
    int index = 1, x = conv_norm_act(z, "features.0", 32, window_of(3, 2), NETS_RELU6, zoo_data(z, 3));
    (void)numbers;
    for (size_t s = 0; s < sizeof STAGES / sizeof *STAGES; s++)
        for (int i = 0; i < STAGES[s].blocks; i++)
            x = mobile_block(z, index++, &STAGES[s], i ? 1 : STAGES[s].stride, x);
    classify(z, conv_norm_act(z, "features.18", 1280, window_of(1, 1), NETS_RELU6, x));
}

/* ---------------------------------------------------------------- EfficientNet-B0 */

/* torchvision's SqueezeExcitation: each channel is multiplied by a number, from two 1x1 convolutions of the channels'
 * means. */
static int squeeze_excite(const zoo *z, const char *name, int64_t squeezed, int input) {
    nets_attrs conv = {.out_channels = squeezed, .kernel = {1, 1}, .bias = true};
    int x = zoo_global_pool(z, zoo_namef("%s.avgpool", name).text, input);
    x = nets_add1(z->net, zoo_namef("%s.fc1", name).text, NETS_CONV, &conv, x);
    x = nets_add1(z->net, zoo_namef("%s.activation", name).text, NETS_SILU, NULL, x);
    conv.out_channels = channels_of(z, input);
    x = nets_add1(z->net, zoo_namef("%s.fc2", name).text, NETS_CONV, &conv, x);
    x = nets_add1(z->net, zoo_namef("%s.scale_activation", name).text, NETS_SIGMOID, NULL, x);
    return nets_add(z->net, zoo_namef("%s.mul", name).text, NETS_MUL, NULL, (const int[]){input, x}, 2);
}

static int efficient_block(const zoo *z, const char *name, const stage *s, int64_t stride, float drop, int input) {
    const int64_t before = channels_of(z, input);
    int layer = 0, x = input;
    if (s->widening > 1)
        x = conv_norm_act(z, zoo_namef("%s.block.%d", name, layer++).text, s->widening * before * z->thin,
                          window_of(1, 1), NETS_SILU, x);
    x = conv_norm_act(z, zoo_namef("%s.block.%d", name, layer++).text, 0, window_of(s->kernel, stride), NETS_SILU, x);
    x = squeeze_excite(z, zoo_namef("%s.block.%d", name, layer++).text, before < 4 ? 1 : before / 4, x);
    x = zoo_conv_bare(z, zoo_namef("%s.block.%d.0", name, layer).text, s->channels, window_of(1, 1), x);
    x = zoo_batch_norm(z, zoo_namef("%s.block.%d.1", name, layer).text, x);
    return close_block(z, name, stride, before, drop, x, input);
}

void zoo_build_efficientnet_b0(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    static const stage STAGES[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                                   {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
    enum { BLOCKS = 16 };
    int block = 0, x = conv_norm_act(z, "features.0", 32, window_of(3, 2), NETS_SILU, zoo_data(z, 3));
    (void)numbers;
    for (int s = 0; s < (int)(sizeof STAGES / sizeof *STAGES); s++)
        for (int i = 0; i < STAGES[s].blocks; i++) {
            const float drop = 0.2f * (float)block++ / BLOCKS;
            x = efficient_block(z, zoo_namef("features.%d.%d", s + 1, i).text, &STAGES[s], i ? 1 : STAGES[s].stride,
                                drop, x);
        }
    classify(z, conv_norm_act(z, "features.8", 1280, window_of(1, 1), NETS_SILU, x));
}
