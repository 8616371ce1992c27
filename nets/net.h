/* SPDX-License-Identifier: MIT */
/* A network as data: layers in order of execution, each with its operation, attributes and inputs. A net does not say
 * on which device, with which batch size or how it is computed; nets/lower/lower.h turns it into graphs.
 *
 * A net's shapes are those of one sample, such as an image of {height, width, channels}. With a batch, its size is the
 * outermost dimension: images are NHWC. Names are torchvision's ("layer1.0.conv1", "layer1.0.conv1.weight"), and
 * weights have torchvision's dims and order. */
#ifndef NETS_NET_H
#define NETS_NET_H

#include "mm/core/status.h"

enum { NETS_MAX_INPUTS = 8, NETS_MAX_PARAMS = 6, NETS_NAME_CAPACITY = 96, NETS_PARAM_NAME_CAPACITY = 128 };

/* Every operation except the data, as OP(FIRST, second): NETS_<FIRST> is its number, nets_info_<second> its description
 * (nets/ops), and nets_host_op_<second> and nets_cuda_op_<second> are its implementations on the devices. */
/* clang-format off */
#define NETS_OPS(OP)                     \
    OP(CONV, conv)                       \
    OP(CONV_TRANSPOSE, conv_transpose)   \
    OP(BATCH_NORM, batch_norm)           \
    OP(GROUP_NORM, group_norm)           \
    OP(LRN, lrn)                         \
    OP(RELU, relu)                       \
    OP(LEAKY_RELU, leaky_relu)           \
    OP(RELU6, relu6)                     \
    OP(SIGMOID, sigmoid)                 \
    OP(HARD_SIGMOID, hard_sigmoid)       \
    OP(SILU, silu)                       \
    OP(HARD_SWISH, hard_swish)           \
    OP(GELU, gelu)                       \
    OP(SCALE, scale)                     \
    OP(MAX_POOL, max_pool)               \
    OP(AVG_POOL, avg_pool)               \
    OP(GLOBAL_AVG_POOL, global_avg_pool) \
    OP(LINEAR, linear)                   \
    OP(ADD, add)                         \
    OP(MUL, mul)                         \
    OP(CONCAT, concat)                   \
    OP(CROP, crop)                       \
    OP(UPSAMPLE, upsample)               \
    OP(DROPOUT, dropout)                 \
    OP(LOSS, loss)                       \
    OP(EMBEDDING, embedding)             \
    OP(POSITION, position)               \
    OP(CLASS_TOKEN, class_token)         \
    OP(LAYER_NORM, layer_norm)           \
    OP(RMS_NORM, rms_norm)               \
    OP(PROJECT, project)                 \
    OP(ROTARY, rotary)                   \
    OP(ATTENTION, attention)             \
    OP(TOKEN_LOSS, token_loss)
/* clang-format on */

typedef enum nets_op_kind {
    NETS_DATA, /* the batch: images and labels */
#define NETS_OP_KIND(NAME, name) NETS_##NAME,
    NETS_OPS(NETS_OP_KIND)
#undef NETS_OP_KIND
        NETS_OP_KINDS
} nets_op_kind;

/* "conv", "batch_norm", ... */
const char *nets_op_name(nets_op_kind op);

/* Dimensions, outermost first; those beyond the rank are 0. */
typedef struct nets_shape {
    int rank;
    int64_t dims[MM_RANK_MAX];
} nets_shape;

/* An operation's attributes. Zero means not given: nets_add fills in the default, if there is one. Defaults and ranges
 * are in the operations' descriptions (net_ops.h); `mm nets --ops` prints them. Pairs are {height, width}. */
typedef struct nets_attrs {
    int64_t out_channels; /* conv, conv_transpose, linear, embedding, project, token_loss */
    int64_t kernel[2];    /* conv, conv_transpose, pools */
    int64_t stride[2];    /* conv, conv_transpose, pools; the pools' default is the kernel */
    /* conv, pools: rows and columns added on each side of the input, zeros in all but max_pool, which skips them;
     * conv_transpose: rows and columns cut off each side of the output */
    int64_t pad[2];
    int64_t output_pad[2]; /* conv_transpose: rows and columns added below and on the right; less than the stride */
    int64_t dilation[2];   /* conv, conv_transpose: distance between the kernel's elements */
    int64_t groups;        /* conv, conv_transpose, group_norm: groups of channels, each computed by itself */
    bool bias;             /* conv, conv_transpose, linear, project; also a ReLU to which fusion gave one (fuse.h) */
    /* pools: the last window may end beyond the padded image, if it begins before the padding at the end */
    bool ceil_mode;
    /* avg_pool: divides by the number of elements inside the image; torch's default is the kernel's */
    bool exclude_pad;
    int64_t size;         /* lrn: channels of a window, odd */
    float alpha, beta, k; /* lrn: y = x / (k + alpha / size * sum of x^2)^beta */
    int64_t scale[2];     /* upsample: the factor */
    bool bilinear;        /* upsample: else nearest */
    int64_t out_size[2];  /* crop: height and width of the part that is kept */
    int64_t offset[2];    /* crop: rows and columns cut off at the top and on the left */
    bool center;          /* crop: the offset is half of what is cut off, rounded down */
    float eps;            /* batch_norm, group_norm, layer_norm, rms_norm */
    float momentum;       /* batch_norm: running = (1 - momentum) running + momentum new */
    float p;              /* dropout: the rate of zeros */
    bool by_sample;       /* dropout: drops whole samples, not single elements */
    int64_t vocabulary;   /* embedding: how many tokens there are */
    int64_t heads;        /* rotary, attention: into how many parts, attended separately, the queries are divided */
    int64_t kv_heads;     /* rotary, attention: heads of keys and values, each for heads / kv_heads of queries; 0:
                             as many as of queries (nets_kv_heads) */
    float base;           /* rotary: pair i of a head's `size` channels turns by place / base^(2 i / size) */
    bool full;            /* attention: each token attends to all, not only to those up to itself */
    bool by_output;       /* project: the weight is [out_channels, channels] */
    float slope;          /* leaky_relu: the factor of negative numbers; scale: of all */
    bool tanh;            /* gelu: uses the tanh approximation */
    bool tied;            /* token_loss: its weight is that of the embedding */
    /* embedding, position, class_token, project, token_loss: standard deviation of the initial weights */
    float deviation;
    bool zero; /* project: initial weights are zero */
} nets_attrs;

/* Heads of keys, and of values, in a rotary or attention layer. */
static inline int64_t nets_kv_heads(const nets_attrs *attrs) {
    return attrs->kv_heads ? attrs->kv_heads : attrs->heads;
}

typedef struct nets_layer {
    char name[NETS_NAME_CAPACITY];
    nets_op_kind op;
    int inputs[NETS_MAX_INPUTS]; /* indices of earlier layers */
    int n_inputs;
    nets_attrs attrs; /* defaults filled in */
    /* The shape of its output for one sample, at most MM_RANK_MAX - 1 dims; for images {height, width, channels}. */
    nets_shape shape;
    int first_param; /* its parameters are the net's [first_param, first_param + n_params) */
    int n_params;
    int tied_param; /* the embedding's weight, which it uses as its own (attrs.tied); -1: none */
} nets_layer;

/* A tensor of a layer that outlives iterations: learned, or running statistics. */
typedef struct nets_param {
    char name[NETS_PARAM_NAME_CAPACITY]; /* "layer1.0.conv1.weight" */
    int layer;
    int place; /* index in its operation's list (net_ops.h) */
    /* a later layer reads it, too (nets_attrs.tied); that layer writes its gradient, this one adds to it */
    bool shared;
    bool learned, decayed; /* as nets_param_spec */
    bool frozen;           /* learned before: training reads it only (nets_freeze) */
    int rank;
    int64_t dims[MM_RANK_MAX]; /* unused ones are 1 */
    int64_t elems;
    const float *given; /* its initial values, as of a file that has weights; NULL: those of init.h */
} nets_param;

typedef struct nets_net nets_net;

/* Building. The net keeps the first failure: later adds do nothing and return -1, and nets_net_finish reports it. So a
 * builder needs no checks in between. */
MM_CHECKED mm_status nets_net_create(const char *name, nets_net **net_out);
void nets_net_destroy(nets_net *net);

/* Adds the data, layer 0: f32 samples of any shape, or images; labels are below `classes`. Call exactly one of the two,
 * before any other layer is added. */
int nets_add_samples(nets_net *net, const nets_shape *shape, int64_t classes);
int nets_add_data(nets_net *net, int64_t height, int64_t width, int64_t channels, int64_t classes);

/* Appends a layer and returns its index. `inputs` are indices of earlier layers; `attrs` NULL: none given. -1 on
 * failure: a bad name or attribute, or an input that does not fit; the message names the layer. */
int nets_add(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, const int *inputs,
             int n_inputs);
/* nets_add with one input. */
int nets_add1(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, int input);

/* Names the parameters of the layer added last, in the order of its operation's list, in place of "<layer>.<name>".
 * Such a failure is kept, too. */
void nets_name_params(nets_net *net, const char *const *names, int n_names);

/* Gives a parameter its initial values, `elems` of them, in memory of malloc's, which the net frees. */
void nets_give_values(nets_net *net, int param, float *values);

/* Takes a parameter's given values away from the net; NULL: it has none. The caller frees them. */
float *nets_take_values(nets_net *net, int param);

/* Freezes a layer's learned parameters: training gives them no gradients and does not update them. A weight that two
 * layers share is frozen with either. The layer is as before in all else: a frozen batch norm still moves its running
 * statistics. */
void nets_freeze(nets_net *net, int layer);

/* The first failure so far. */
MM_CHECKED mm_status nets_net_status(const nets_net *net);

/* Checks the whole net: its last layer, and no other, is a loss with a score for each class; every other layer is used;
 * all names differ, of layers and of parameters. */
MM_CHECKED mm_status nets_net_finish(nets_net *net);

/* Reading a finished net; everything is borrowed from it. */
const char *nets_net_name(const nets_net *net);
int64_t nets_net_classes(const nets_net *net);
int nets_net_layers(const nets_net *net);
const nets_layer *nets_net_layer(const nets_net *net, int layer);
int nets_net_params(const nets_net *net);
const nets_param *nets_net_param(const nets_net *net, int param);
/* Whether training updates the parameter. */
static inline bool nets_param_trains(const nets_param *param) { return param->learned && !param->frozen; }
/* Whether the layer has learned parameters, its own or one that it shares, and they are frozen. */
bool nets_layer_is_frozen(const nets_net *net, const nets_layer *layer);
/* The parameter's index, or -1. */
int nets_net_find_param(const nets_net *net, const char *name);
/* Labels of one image: 1, or one for each pixel of the loss's input. */
int64_t nets_net_labels(const nets_net *net);
/* The number of tokens in a sample, if the net begins with an embedding; else 0. */
int64_t nets_net_tokens(const nets_net *net);
/* Makes a finished net of the same layers whose samples have this many tokens; learned positions (NETS_POSITION) are
 * then as many. Given values of parameters are not copied. MM_ERR_INVALID: the net has no context, because its samples
 * are not a row of tokens; or a layer cannot take so many. The caller destroys it. */
MM_CHECKED mm_status nets_net_with_tokens(const nets_net *net, int64_t tokens, nets_net **net_out);
/* Appends a copy of layer `index` of another net, with its parameters' names, and frozen as they are; given values are
 * not copied. `inputs`: the copy's. Failures are kept as those of nets_add, and returned. */
MM_CHECKED mm_status nets_copy_layer(const nets_net *net, int index, const int *inputs, nets_net *copy);
/* The number of elements of all learned parameters. */
int64_t nets_net_learned_elems(const nets_net *net);

/* The shape of a layer's output for a batch; for images {n, height, width, channels}. MM_ERR_INVALID: the batch is
 * below 1, or the output has more than 2^60 elements. */
MM_CHECKED mm_status nets_net_shape(const nets_net *net, int layer, int64_t batch, nets_shape *shape_out);

/* How many elements a shape has. */
static inline int64_t nets_shape_elems(const nets_shape *shape) {
    int64_t elems = 1;
    for (int d = 0; d < shape->rank; d++) elems *= shape->dims[d];
    return elems;
}
/* The last dimension, and the product of all others: an image batch's channels and pixels. */
static inline int64_t nets_shape_channels(const nets_shape *shape) { return shape->dims[shape->rank - 1]; }
static inline int64_t nets_shape_rows(const nets_shape *shape) {
    return nets_shape_elems(shape) / nets_shape_channels(shape);
}
bool nets_shape_equal(const nets_shape *a, const nets_shape *b);
/* "32x32x3". Returns text_out. */
enum { NETS_SHAPE_TEXT_CAPACITY = MM_RANK_MAX * 21 };
const char *nets_shape_text(const nets_shape *shape, char text_out[NETS_SHAPE_TEXT_CAPACITY]);

#endif
