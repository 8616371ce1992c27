/* SPDX-License-Identifier: MIT */
#include "nets/lower/fuse.h"

#include "nets/net_ops.h"

typedef struct fusion {
    const nets_net *net;
    const int *consumers;
    nets_fused *fused;
} fusion;

/* Whether a layer between `after` and `before` reads the output of `read`. Consumers of one output add their gradients
 * in the net's order, so none of them may be moved past another. */
static bool is_read_between(const nets_net *net, int read, int after, int before) {
    for (int i = after + 1; i < before; i++)
        for (int k = 0; k < nets_net_layer(net, i)->n_inputs; k++)
            if (nets_net_layer(net, i)->inputs[k] == read) return true;
    return false;
}

/* Whether `norm` is a batch norm with one consumer that can be computed in the ReLU's position. */
static bool can_take(const fusion *f, int norm, int relu) {
    const nets_layer *layer = nets_net_layer(f->net, norm);
    return layer->op == NETS_BATCH_NORM && f->consumers[norm] == 1 &&
           !is_read_between(f->net, layer->inputs[0], norm, relu);
}

/* The layer that computes `layer`'s output in evaluation, where a dropout's output is its input. */
static int origin(const fusion *f, int layer) {
    while (nets_op_lowering_of(nets_net_layer(f->net, layer)->op, false)->identity_in_eval)
        layer = nets_net_layer(f->net, layer)->inputs[0];
    return layer;
}

/* Whether a batch norm's input and its addend are one tensor, in training or only in evaluation. Then so are their
 * gradients, which the fused backward cannot add up: it reads the one while it writes the other. */
static bool adds_own_input(const fusion *f, int norm, int addend) {
    return origin(f, addend) == origin(f, nets_net_layer(f->net, norm)->inputs[0]);
}

static void take(const fusion *f, int norm, int addend, int relu) {
    f->fused[relu].norm = norm;
    f->fused[relu].addend = addend;
    f->fused[norm].within = relu;
}

/* Fuses the sum with one of its inputs that is a batch norm. It tries the input that is computed later first: when this
 * one is computed, the other input is ready. */
static void take_sum(const fusion *f, int sum, int relu) {
    const int *inputs = nets_net_layer(f->net, sum)->inputs;
    int later = inputs[1] > inputs[0];
    for (int i = 0; i < 2; i++) {
        int norm = inputs[i == 0 ? later : !later], addend = inputs[i == 0 ? !later : later];
        if (!can_take(f, norm, relu) || adds_own_input(f, norm, addend) || is_read_between(f->net, addend, sum, relu))
            continue;
        take(f, norm, addend, relu);
        f->fused[sum].within = relu;
        return;
    }
}

static void take_bias(const fusion *f, int layer, int relu) {
    f->fused[relu].biased = layer;
    f->fused[layer].no_bias = true;
}

static void fuse_relu(const fusion *f, int relu) {
    int input = nets_net_layer(f->net, relu)->inputs[0];
    const nets_layer *layer = nets_net_layer(f->net, input);
    if (f->consumers[input] != 1) return;
    if (layer->op == NETS_BATCH_NORM && can_take(f, input, relu)) take(f, input, -1, relu);
    if (layer->op == NETS_ADD) take_sum(f, input, relu);
    if ((layer->op == NETS_CONV || layer->op == NETS_LINEAR) && layer->attrs.bias) take_bias(f, input, relu);
}

/* Whether the product's first input is a SiLU of an earlier map that can be computed in the product's position. */
static bool can_gate(const fusion *f, int product) {
    const nets_layer *layer = nets_net_layer(f->net, product);
    const int gate = layer->inputs[0], x = nets_net_layer(f->net, gate)->inputs[0];
    return nets_net_layer(f->net, gate)->op == NETS_SILU && f->consumers[gate] == 1 &&
           nets_net_layer(f->net, x)->op != NETS_DATA && x != layer->inputs[1] &&
           nets_shape_equal(&nets_net_layer(f->net, layer->inputs[1])->shape, &layer->shape) &&
           !is_read_between(f->net, x, gate, product);
}

static void fuse_product(const fusion *f, int product) {
    if (!can_gate(f, product)) return;
    f->fused[product].gate = nets_net_layer(f->net, product)->inputs[0];
    f->fused[f->fused[product].gate].within = product;
}

void nets_fuse_none(const nets_net *net, nets_fused *fused_out) {
    for (int i = 0; i < nets_net_layers(net); i++)
        fused_out[i] = (nets_fused){.within = i, .norm = -1, .addend = -1, .biased = -1, .gate = -1};
}

void nets_fuse(const nets_net *net, int *consumers, nets_fused *fused_out) {
    const fusion f = {.net = net, .consumers = consumers, .fused = fused_out};
    int n = nets_net_layers(net);
    nets_fuse_none(net, fused_out);
    for (int i = 0; i < n; i++) consumers[i] = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < nets_net_layer(net, i)->n_inputs; k++) consumers[nets_net_layer(net, i)->inputs[k]]++;
    for (int i = 0; i < n; i++) {
        if (nets_net_layer(net, i)->op == NETS_RELU) fuse_relu(&f, i);
        if (nets_net_layer(net, i)->op == NETS_MUL) fuse_product(&f, i);
    }
}
