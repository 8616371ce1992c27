/* SPDX-License-Identifier: MIT */
#include "nets/zoo/layers.h"

#include <stdarg.h>
#include <stdio.h>

zoo_name zoo_namef(const char *format, ...) {
    zoo_name name;
    va_list args;
    va_start(args, format);
    vsnprintf(name.text, sizeof name.text, format, args);
    va_end(args);
    return name;
}

int zoo_data(const zoo *z, int64_t channels) {
    return nets_add_data(z->net, z->height, z->width, channels, z->classes);
}

int zoo_layer(const zoo *z, const char *name, nets_op_kind op, nets_attrs attrs, int input) {
    attrs.out_channels = (attrs.out_channels + z->thin - 1) / z->thin;
    return nets_add1(z->net, name, op, &attrs, input);
}

static nets_attrs window_attrs(zoo_window window) {
    return (nets_attrs){.kernel = {window.kernel, window.kernel},
                        .stride = {window.stride, window.stride},
                        .pad = {window.pad, window.pad}};
}

int zoo_conv(const zoo *z, const char *name, int64_t channels, zoo_window window, int input) {
    nets_attrs attrs = window_attrs(window);
    attrs.out_channels = channels;
    attrs.bias = true;
    return zoo_layer(z, name, NETS_CONV, attrs, input);
}

int zoo_conv_bare(const zoo *z, const char *name, int64_t channels, zoo_window window, int input) {
    nets_attrs attrs = window_attrs(window);
    attrs.out_channels = channels;
    return zoo_layer(z, name, NETS_CONV, attrs, input);
}

int zoo_batch_norm(const zoo *z, const char *name, int input) {
    return nets_add1(z->net, name, NETS_BATCH_NORM, NULL, input);
}

int zoo_relu(const zoo *z, const char *name, int input) { return nets_add1(z->net, name, NETS_RELU, NULL, input); }

int zoo_max_pool(const zoo *z, const char *name, zoo_window window, int input) {
    const nets_attrs attrs = window_attrs(window);
    return nets_add1(z->net, name, NETS_MAX_POOL, &attrs, input);
}

int zoo_max_pool_ceil(const zoo *z, const char *name, zoo_window window, int input) {
    nets_attrs attrs = window_attrs(window);
    attrs.ceil_mode = true;
    return nets_add1(z->net, name, NETS_MAX_POOL, &attrs, input);
}

int zoo_global_pool(const zoo *z, const char *name, int input) {
    return nets_add1(z->net, name, NETS_GLOBAL_AVG_POOL, NULL, input);
}

int zoo_dropout(const zoo *z, const char *name, float p, int input) {
    return nets_add1(z->net, name, NETS_DROPOUT, &(nets_attrs){.p = p}, input);
}

int zoo_linear(const zoo *z, const char *name, int64_t features, int input) {
    return zoo_layer(z, name, NETS_LINEAR, (nets_attrs){.out_channels = features, .bias = true}, input);
}

int zoo_add(const zoo *z, const char *name, int a, int b) {
    return nets_add(z->net, name, NETS_ADD, NULL, (const int[]){a, b}, 2);
}

int zoo_concat(const zoo *z, const char *name, const int *inputs, int n_inputs) {
    return nets_add(z->net, name, NETS_CONCAT, NULL, inputs, n_inputs);
}

int zoo_crop(const zoo *z, const char *name, int input, int like) {
    if (like < 0) return -1; /* the net has failed before */
    const int64_t *shape = nets_net_layer(z->net, like)->shape.dims;
    const nets_attrs attrs = {.out_size = {shape[0], shape[1]}, .center = true};
    return nets_add1(z->net, name, NETS_CROP, &attrs, input);
}

void zoo_loss(const zoo *z, int input) { nets_add1(z->net, "loss", NETS_LOSS, NULL, input); }

void zoo_classify(const zoo *z, const char *name, int input) {
    zoo_loss(z, nets_add1(z->net, name, NETS_LINEAR, &(nets_attrs){.out_channels = z->classes, .bias = true}, input));
}
