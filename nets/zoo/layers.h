/* SPDX-License-Identifier: MIT */
/* The zoo's builders, and the functions that they add layers with. Internal to the zoo.
 *
 * A builder adds layers to an empty net. The net keeps failures (net.h), so nothing here returns a status. */
#ifndef NETS_ZOO_LAYERS_H
#define NETS_ZOO_LAYERS_H

#include "nets/net.h"

typedef struct zoo {
    nets_net *net;
    int64_t height, width, classes; /* of the input */
    int64_t thin;                   /* at least 1: divides channels */
    /* Of a network of tokens: `numbers`, in this order. The last two are Llama's. */
    int64_t layers, tokens_width, heads, context, vocabulary, kv_heads, hidden;
    double dropout;
} zoo;

enum { ZOO_NUMBERS = 10 };

/* `numbers`: the parameters of a family's member, ended by 0. */
typedef void zoo_builder(const zoo *z, const int numbers[ZOO_NUMBERS]);

zoo_builder zoo_build_alexnet;                 /* alexnet.c */
zoo_builder zoo_build_alexnet_2012;            /* */
zoo_builder zoo_build_densenet;                /* densenet.c: layers of each dense block */
zoo_builder zoo_build_fcn8s;                   /* fcn.c */
zoo_builder zoo_build_googlenet;               /* googlenet.c */
zoo_builder zoo_build_gpt;                     /* gpt.c: what zoo_option says */
zoo_builder zoo_build_inception_v4;            /* inception_v4.c: blocks A, B, C */
zoo_builder zoo_build_llama;                   /* llama.c: what zoo_option says; the base of rotary embeddings; tied */
zoo_builder zoo_build_mobilenet_v2;            /* mobile.c */
zoo_builder zoo_build_efficientnet_b0;         /* */
zoo_builder zoo_build_nin;                     /* nin.c */
zoo_builder zoo_build_nin_cifar;               /* */
zoo_builder zoo_build_overfeat;                /* overfeat.c */
zoo_builder zoo_build_resnet;                  /* resnet.c: basic blocks of each stage */
zoo_builder zoo_build_resnet_bottleneck;       /* bottlenecks of each stage */
zoo_builder zoo_build_resnet_cifar;            /* resnet_cifar.c: basic blocks a stage */
zoo_builder zoo_build_resnet_cifar_bottleneck; /* bottlenecks a stage */
zoo_builder zoo_build_squeezenet;              /* squeezenet.c */
zoo_builder zoo_build_tiny;                    /* tiny.c */
zoo_builder zoo_build_unet;                    /* unet.c */
zoo_builder zoo_build_vgg;                     /* vgg.c: convolutions of each group */
zoo_builder zoo_build_vit;                     /* vit.c: layers, width, heads, height and width of a patch */

/* A layer's name, returned by value: zoo_namef("%s.conv1", block).text. */
typedef struct zoo_name {
    char text[NETS_NAME_CAPACITY];
} zoo_name;

zoo_name zoo_namef(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A square window. */
typedef struct zoo_window {
    int64_t kernel, stride, pad; /* stride 0: 1 in convolutions, the kernel in pools */
} zoo_window;

/* Each adds a layer and returns it. */
int zoo_data(const zoo *z, int64_t channels);
int zoo_conv(const zoo *z, const char *name, int64_t channels, zoo_window window, int input);      /* with bias */
int zoo_conv_bare(const zoo *z, const char *name, int64_t channels, zoo_window window, int input); /* without */
int zoo_batch_norm(const zoo *z, const char *name, int input);
int zoo_relu(const zoo *z, const char *name, int input);
int zoo_max_pool(const zoo *z, const char *name, zoo_window window, int input);
int zoo_max_pool_ceil(const zoo *z, const char *name, zoo_window window, int input); /* Caffe's rounding */
int zoo_global_pool(const zoo *z, const char *name, int input);
int zoo_dropout(const zoo *z, const char *name, float p, int input);
int zoo_linear(const zoo *z, const char *name, int64_t features, int input);
int zoo_add(const zoo *z, const char *name, int a, int b);
int zoo_concat(const zoo *z, const char *name, const int *inputs, int n_inputs);
/* Crops the middle of `input` to the height and width of layer `like`. */
int zoo_crop(const zoo *z, const char *name, int input, int like);

/* Any layer; `thin` divides its channels. */
int zoo_layer(const zoo *z, const char *name, nets_op_kind op, nets_attrs attrs, int input);

/* A linear layer with an output for each class, and the loss. */
void zoo_classify(const zoo *z, const char *name, int input);
/* The loss. */
void zoo_loss(const zoo *z, int input);

/* Blocks of residual networks, as torchvision's BasicBlock and Bottleneck. `project`: the shortcut is a 1x1 convolution
 * with batch norm (downsample.0 and downsample.1). */
int zoo_basic_block(const zoo *z, const char *name, int64_t channels, int64_t stride, bool project, int input);
/* Its output has 4 * channels; the stride is its 3x3 convolution's. */
int zoo_bottleneck(const zoo *z, const char *name, int64_t channels, int64_t stride, bool project, int input);

#endif
