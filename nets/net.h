/* A network as data: layers in order of execution, each with its operation, attributes and inputs. Nothing here knows
 * a device, a batch size or how anything is computed; nets/lower.h turns a net into graphs.
 *
 * Shapes are NHWC. A net holds shapes of one image {height, width, channels}; a batch is given when asked.
 * Names are torchvision's ("layer1.0.conv1", "layer1.0.conv1.weight"), weights have torchvision's dims and order. */
#ifndef NETS_NET_H
#define NETS_NET_H

#include "mm/core/status.h"

enum { NETS_MAX_INPUTS = 8, NETS_MAX_PARAMS = 4, NETS_NAME_CAPACITY = 96, NETS_PARAM_NAME_CAPACITY = 128 };

typedef enum nets_op_kind {
    NETS_DATA, /* the batch: images and labels */
    NETS_CONV,
    NETS_CONV_TRANSPOSE, /* the gradient of a convolution by its input, as torch's ConvTranspose2d */
    NETS_BATCH_NORM,
    NETS_LRN, /* local response normalisation across channels, as torch's LocalResponseNorm */
    NETS_RELU,
    NETS_MAX_POOL,
    NETS_AVG_POOL,
    NETS_GLOBAL_AVG_POOL,
    NETS_LINEAR,   /* of all the image's elements, flattened in torch's order (channel, height, width) */
    NETS_ADD,      /* residual sum of two inputs of one shape */
    NETS_CONCAT,   /* of 2 to NETS_MAX_INPUTS inputs, along the channels, in their order */
    NETS_CROP,     /* a rectangle of every channel */
    NETS_UPSAMPLE, /* by a whole factor, as torch's Upsample: nearest, or bilinear with align_corners=False */
    NETS_DROPOUT,
    NETS_LOSS, /* softmax cross-entropy against the labels at each pixel, mean over the batch and, of a map larger than
                  one, its pixels; the last layer */
    NETS_OP_KINDS
} nets_op_kind;

/* "conv", "batch_norm", ... */
const char *nets_op_name(nets_op_kind op);

/* What an operation is told. A member that is zero was not told: nets_add fills in the default, if it has one. Defaults
 * and ranges are net_attrs.c's; `mm nets --ops` prints them. Pairs are {height, width}. */
typedef struct nets_attrs {
    int64_t out_channels; /* conv, conv_transpose, linear */
    int64_t kernel[2];    /* conv, conv_transpose, pools */
    int64_t stride[2];    /* conv, conv_transpose, pools: by default the kernel's */
    int64_t pad[2]; /* conv, pools: zeros (max_pool: nothing) around the input, on both sides; conv_transpose: what
                              is cut off its output */
    int64_t output_pad[2]; /* conv_transpose: rows and columns more, below and on the right; less than the stride */
    int64_t dilation[2];   /* conv, conv_transpose: steps between the kernel's elements */
    int64_t groups;        /* conv, conv_transpose: of channels, each convolved for itself */
    bool bias;             /* conv, conv_transpose, linear; a ReLU's when lowering gave it one (fuse.h) */
    bool ceil_mode;   /* pools: a last window may reach beyond the image, if it begins in it or in the padding before */
    bool exclude_pad; /* avg_pool: divide by the elements inside the image only (torch divides by the kernel's) */
    int64_t size;     /* lrn: channels of a window, odd */
    float alpha, beta, k; /* lrn: y = x / (k + alpha / size * sum of x^2)^beta */
    int64_t scale[2];     /* upsample: the factor */
    bool bilinear;        /* upsample: else nearest */
    int64_t out_size[2];  /* crop: height and width of what is kept */
    int64_t offset[2];    /* crop: what is cut off at the top and left */
    bool center;          /* crop: the offset is half of what is cut off, rounded down */
    float eps;            /* batch_norm */
    float momentum;       /* batch_norm: running = (1 - momentum) running + momentum new */
    float p;              /* dropout: the rate of zeros */
} nets_attrs;

typedef struct nets_layer {
    char name[NETS_NAME_CAPACITY];
    nets_op_kind op;
    int inputs[NETS_MAX_INPUTS]; /* indices of earlier layers */
    int n_inputs;
    nets_attrs attrs; /* defaults filled in */
    int64_t shape[3]; /* of its output: height, width, channels */
    int first_param;  /* its parameters are [first_param, first_param + n_params) of the net's */
    int n_params;
} nets_layer;

/* What a parameter tensor is to its layer. */
typedef enum nets_param_role {
    NETS_PARAM_WEIGHT, /* conv [out, in / groups, kh, kw], conv_transpose [in, out / groups, kh, kw], linear [out, in],
                          batch norm's scale [c] */
    NETS_PARAM_BIAS,
    NETS_PARAM_RUNNING_MEAN,
    NETS_PARAM_RUNNING_VAR,
} nets_param_role;

typedef struct nets_param {
    char name[NETS_PARAM_NAME_CAPACITY]; /* "layer1.0.conv1.weight" */
    nets_param_role role;
    bool learned; /* else running statistics */
    int layer;
    int rank;
    int64_t dims[4]; /* unused ones are 1 */
    int64_t elems;
} nets_param;

typedef struct nets_net nets_net;

/* Building. The first failure is kept: later adds do nothing and return -1, nets_net_finish reports it; so a builder
 * needs no checks in between. */
MM_CHECKED mm_status nets_net_create(const char *name, nets_net **net_out);
void nets_net_destroy(nets_net *net);

/* The batch, layer 0: images of that shape, labels below `classes`. Called once, first. */
int nets_add_data(nets_net *net, int64_t height, int64_t width, int64_t channels, int64_t classes);

/* Appends a layer, its inputs being layers returned earlier; -1 on failure (a bad name or attribute, an input that does
 * not fit: the message names the layer). `attrs` NULL: none. */
int nets_add(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, const int *inputs,
             int n_inputs);
/* With one input. */
int nets_add1(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, int input);

/* Checks the whole: one loss, last, whose input has as many channels as there are classes; every other layer used. */
MM_CHECKED mm_status nets_net_finish(nets_net *net);

/* Reading a finished net; everything is borrowed from it. */
const char *nets_net_name(const nets_net *net);
int64_t nets_net_classes(const nets_net *net);
int nets_net_layers(const nets_net *net);
const nets_layer *nets_net_layer(const nets_net *net, int layer);
int nets_net_params(const nets_net *net);
const nets_param *nets_net_param(const nets_net *net, int param);
/* The parameter's index, or -1. */
int nets_net_find_param(const nets_net *net, const char *name);
/* Labels of one image: one, or one for each pixel of the loss's input. */
int64_t nets_net_labels(const nets_net *net);
/* How many learned numbers it has. */
int64_t nets_net_learned_elems(const nets_net *net);

/* A layer's output for a batch, {n, height, width, channels}. MM_ERR_INVALID: batch < 1, or above 2^60 elements. */
MM_CHECKED mm_status nets_net_shape(const nets_net *net, int layer, int64_t batch, int64_t dims_out[4]);

#endif
