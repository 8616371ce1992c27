#include "nets/net_ops.h"

#include <stdio.h>
#include <string.h>

#include "nets/net_attrs.h"

static const int64_t MAX_ELEMS = INT64_C(1) << 60;

int64_t nets_mul(int64_t a, int64_t b) {
    int64_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > MAX_ELEMS) return -1;
    return product;
}

static const char AXIS[2][8] = {"height", "width"};

static mm_status infer_same(nets_layer *layer, const int64_t (*in)[3]) {
    for (int d = 0; d < 3; d++) layer->shape[d] = in[0][d];
    return MM_OK;
}

/* What a kernel covers of an axis. */
static int64_t reach(const nets_attrs *a, int d) {
    int64_t dilation = a->dilation[d] ? a->dilation[d] : 1; /* pools have none */
    return dilation * (a->kernel[d] - 1) + 1;
}

static mm_status infer_windows(nets_layer *layer, const int64_t in[3]) {
    const nets_attrs *a = &layer->attrs;
    for (int d = 0; d < 2; d++) {
        int64_t room = in[d] + 2 * a->pad[d] - reach(a, d);
        if (room < 0)
            return mm_fail(MM_ERR_INVALID, "layer %s: kernel %lld does not fit into %s %lld padded by %lld",
                           layer->name, (long long)reach(a, d), AXIS[d], (long long)in[d], (long long)a->pad[d]);
        int64_t last = room / a->stride[d];
        /* torch's rule: one more for the rest, unless it would begin in the padding behind. */
        if (a->ceil_mode && room % a->stride[d] && (last + 1) * a->stride[d] < in[d] + a->pad[d]) last++;
        layer->shape[d] = last + 1;
    }
    return MM_OK;
}

static mm_status infer_conv(nets_layer *layer, const int64_t (*in)[3]) {
    layer->shape[2] = layer->attrs.out_channels;
    return infer_windows(layer, in[0]);
}

static mm_status infer_conv_transpose(nets_layer *layer, const int64_t (*in)[3]) {
    const nets_attrs *a = &layer->attrs;
    layer->shape[2] = a->out_channels;
    for (int d = 0; d < 2; d++) {
        layer->shape[d] = (in[0][d] - 1) * a->stride[d] + reach(a, d) + a->output_pad[d] - 2 * a->pad[d];
        if (layer->shape[d] < 1)
            return mm_fail(MM_ERR_INVALID, "layer %s: padding %lld leaves nothing of %s %lld", layer->name,
                           (long long)a->pad[d], AXIS[d], (long long)(layer->shape[d] + 2 * a->pad[d]));
    }
    return MM_OK;
}

/* A weight of these dims and, where wanted, a bias. */
static int params_weight_bias(const nets_layer *layer, int rank, int64_t d0, int64_t d1,
                              nets_param_spec out[NETS_MAX_PARAMS]) {
    const nets_attrs *a = &layer->attrs;
    bool kernel = rank == 4;
    out[0] = (nets_param_spec){
        "weight", NETS_PARAM_WEIGHT, true, rank, {d0, d1, kernel ? a->kernel[0] : 1, kernel ? a->kernel[1] : 1}};
    if (!a->bias) return 1;
    out[1] = (nets_param_spec){"bias", NETS_PARAM_BIAS, true, 1, {a->out_channels, 1, 1, 1}};
    return 2;
}

static int params_conv(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    return params_weight_bias(layer, 4, layer->attrs.out_channels, in[2] / layer->attrs.groups, out);
}

static int params_conv_transpose(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    return params_weight_bias(layer, 4, in[2], layer->attrs.out_channels / layer->attrs.groups, out);
}

static mm_status infer_linear(nets_layer *layer, const int64_t (*in)[3]) {
    (void)in;
    layer->shape[0] = layer->shape[1] = 1;
    layer->shape[2] = layer->attrs.out_channels;
    return MM_OK;
}

static int params_linear(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    return params_weight_bias(layer, 2, layer->attrs.out_channels, in[0] * in[1] * in[2], out);
}

static int params_batch_norm(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    (void)layer;
    out[0] = (nets_param_spec){"weight", NETS_PARAM_WEIGHT, true, 1, {in[2], 1, 1, 1}};
    out[1] = (nets_param_spec){"bias", NETS_PARAM_BIAS, true, 1, {in[2], 1, 1, 1}};
    out[2] = (nets_param_spec){"running_mean", NETS_PARAM_RUNNING_MEAN, false, 1, {in[2], 1, 1, 1}};
    out[3] = (nets_param_spec){"running_var", NETS_PARAM_RUNNING_VAR, false, 1, {in[2], 1, 1, 1}};
    return 4;
}

static mm_status infer_pool(nets_layer *layer, const int64_t (*in)[3]) {
    layer->shape[2] = in[0][2];
    return infer_windows(layer, in[0]);
}

static mm_status infer_avg_pool(nets_layer *layer, const int64_t (*in)[3]) {
    MM_TRY(infer_pool(layer, in));
    const nets_attrs *a = &layer->attrs;
    bool padded = a->pad[0] || a->pad[1];
    for (int d = 0; d < 2; d++) {
        int64_t end = (layer->shape[d] - 1) * a->stride[d] + a->kernel[d];
        if (padded && !a->exclude_pad && end > in[0][d] + 2 * a->pad[d])
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "layer %s: ceil_mode makes a window end beyond the padding, which the average counts; give "
                           "\"exclude_pad\": true, or leave out ceil_mode or the padding",
                           layer->name);
    }
    return MM_OK;
}

static mm_status infer_global_pool(nets_layer *layer, const int64_t (*in)[3]) {
    if (in[0][0] > NETS_MAX_EXTENT || in[0][1] > NETS_MAX_EXTENT)
        return mm_fail(MM_ERR_INVALID, "layer %s: its input is %lldx%lld, must be at most %d high and wide",
                       layer->name, (long long)in[0][0], (long long)in[0][1], NETS_MAX_EXTENT);
    layer->attrs.kernel[0] = layer->attrs.stride[0] = in[0][0];
    layer->attrs.kernel[1] = layer->attrs.stride[1] = in[0][1];
    return infer_pool(layer, in);
}

static mm_status infer_add(nets_layer *layer, const int64_t (*in)[3]) {
    for (int d = 0; d < 3; d++)
        if (in[0][d] != in[1][d])
            return mm_fail(MM_ERR_INVALID, "layer %s: adds %lldx%lldx%lld to %lldx%lldx%lld", layer->name,
                           (long long)in[1][0], (long long)in[1][1], (long long)in[1][2], (long long)in[0][0],
                           (long long)in[0][1], (long long)in[0][2]);
    return infer_same(layer, in);
}

static mm_status infer_concat(nets_layer *layer, const int64_t (*in)[3]) {
    MM_TRY(infer_same(layer, in));
    for (int i = 1; i < layer->n_inputs; i++) {
        if (in[i][0] != in[0][0] || in[i][1] != in[0][1])
            return mm_fail(MM_ERR_INVALID, "layer %s: its input %d is %lldx%lld, not %lldx%lld as the first",
                           layer->name, i, (long long)in[i][0], (long long)in[i][1], (long long)in[0][0],
                           (long long)in[0][1]);
        layer->shape[2] += in[i][2];
    }
    return MM_OK;
}

static mm_status infer_crop(nets_layer *layer, const int64_t (*in)[3]) {
    nets_attrs *a = &layer->attrs;
    for (int d = 0; d < 2; d++) {
        int64_t half = (in[0][d] - a->out_size[d]) / 2;
        if (a->center && a->offset[d] != 0 && a->offset[d] != half)
            return mm_fail(MM_ERR_INVALID, "layer %s: \"offset\" is %lld, but \"center\" makes it %lld; leave one out",
                           layer->name, (long long)a->offset[d], (long long)half);
        if (a->center) a->offset[d] = half;
        layer->shape[d] = a->out_size[d];
    }
    layer->shape[2] = in[0][2];
    return MM_OK;
}

static mm_status infer_upsample(nets_layer *layer, const int64_t (*in)[3]) {
    for (int d = 0; d < 2; d++) layer->shape[d] = in[0][d] * layer->attrs.scale[d];
    layer->shape[2] = in[0][2];
    return MM_OK;
}

#define WINDOWS                       "(height + 2 pad - dilation (kernel - 1) - 1) / stride + 1, rounded down; "
#define POOLED                        "(height + 2 pad - kernel) / stride + 1, rounded down (ceil_mode: up); channels"
#define STATISTICS                    "running_mean [channels], running_var [channels] (not learned)"
#define LAYER(name, op, inputs, more) "{\"name\": \"" name "\", \"op\": \"" op "\", \"inputs\": [" inputs "]" more "}"

/* clang-format off */
static const nets_op_info OPS[NETS_OP_KINDS] = {
    [NETS_DATA] = {"data", 0, 0, "the batch: images and labels; a file's \"input\"", "as the input says", NULL, NULL,
        NULL, NULL},
    [NETS_CONV] = {"conv", 1, 1, "convolution, as torch's Conv2d", WINDOWS "out_channels",
        "weight [out_channels, channels / groups, kernel height, kernel width], with bias: bias [out_channels]",
        LAYER("conv1", "conv", "\"data\"", ", \"out_channels\": 16, \"kernel\": 3, \"stride\": 2, \"pad\": 1"),
        infer_conv, params_conv},
    [NETS_CONV_TRANSPOSE] = {"conv_transpose", 1, 1,
        "the gradient of a convolution by its input, as torch's ConvTranspose2d",
        "(height - 1) stride + dilation (kernel - 1) + 1 + output_pad - 2 pad; out_channels",
        "weight [channels, out_channels / groups, kernel height, kernel width], with bias: bias [out_channels]",
        LAYER("up1", "conv_transpose", "\"data\"", ", \"out_channels\": 16, \"kernel\": 2, \"stride\": 2"),
        infer_conv_transpose, params_conv_transpose},
    [NETS_BATCH_NORM] = {"batch_norm", 1, 1, "normalises each channel over the batch, then scales and shifts it",
        "the input's", "weight [channels], bias [channels], " STATISTICS,
        LAYER("bn1", "batch_norm", "\"data\"", ", \"eps\": 0.001"), infer_same, params_batch_norm},
    [NETS_LRN] = {"lrn", 1, 1,
        "x / (k + alpha / size * sum of x^2 over a window of channels)^beta, as torch's",
        "the input's", NULL, LAYER("norm1", "lrn", "\"data\"", ", \"size\": 5"), infer_same, NULL},
    [NETS_RELU] = {"relu", 1, 1, "max(0, x)", "the input's", NULL, LAYER("relu1", "relu", "\"data\"", ""), infer_same,
        NULL},
    [NETS_MAX_POOL] = {"max_pool", 1, 1, "the greatest of each window", POOLED, NULL,
        LAYER("pool1", "max_pool", "\"data\"", ", \"kernel\": 3, \"stride\": 2, \"pad\": 1"), infer_pool, NULL},
    [NETS_AVG_POOL] = {"avg_pool", 1, 1, "the mean of each window", POOLED, NULL,
        LAYER("pool1", "avg_pool", "\"data\"", ", \"kernel\": 2"), infer_avg_pool, NULL},
    [NETS_GLOBAL_AVG_POOL] = {"global_avg_pool", 1, 1, "the mean of each channel", "1, 1, channels", NULL,
        LAYER("pool", "global_avg_pool", "\"data\"", ""), infer_global_pool, NULL},
    [NETS_LINEAR] = {"linear", 1, 1,
        "sums of all the image's elements, flattened in torch's order (channel, height, width)",
        "1, 1, out_channels", "weight [out_channels, channels * height * width], with bias: bias [out_channels]",
        LAYER("fc", "linear", "\"data\"", ", \"out_channels\": 10, \"bias\": true"), infer_linear, params_linear},
    [NETS_ADD] = {"add", 2, 2, "sum of two inputs of one shape", "the inputs'", NULL,
        LAYER("sum1", "add", "\"conv2\", \"conv1\"", ""), infer_add, NULL},
    [NETS_CONCAT] = {"concat", 2, NETS_MAX_INPUTS, "the inputs' channels one after the other",
        "height, width of every input; the sum of their channels", NULL,
        LAYER("cat1", "concat", "\"conv1\", \"conv2\"", ""), infer_concat, NULL},
    [NETS_CROP] = {"crop", 1, 1, "a rectangle of every channel", "out_size; channels", NULL,
        LAYER("crop1", "crop", "\"data\"", ", \"out_size\": [6, 4], \"center\": true"), infer_crop, NULL},
    [NETS_UPSAMPLE] = {"upsample", 1, 1, "enlarges by a whole factor, as torch's Upsample",
        "height * scale, width * scale, channels", NULL,
        LAYER("up1", "upsample", "\"data\"", ", \"scale\": 2, \"bilinear\": true"), infer_upsample, NULL},
    [NETS_DROPOUT] = {"dropout", 1, 1, "sets elements to zero at random in training, the others divided by 1 - p",
        "the input's", NULL, LAYER("drop", "dropout", "\"data\"", ", \"p\": 0.5"), infer_same, NULL},
    [NETS_LOSS] = {"loss", 1, 1,
        "softmax cross-entropy of scores, one a class, with the labels; a file's last layer",
        "the input's; a label for each of its pixels", NULL, LAYER("loss", "loss", "\"fc\"", ""), infer_same, NULL},
};
/* clang-format on */

mm_status nets_op_infer(nets_layer *layer, const int64_t (*in)[3]) {
    const nets_op_info *info = nets_op_info_of(layer->op);
    if (!info->infer) return MM_OK;
    MM_TRY(nets_attrs_complete(layer, in[0]));
    return info->infer(layer, in);
}

const nets_op_info *nets_op_info_of(nets_op_kind op) { return (unsigned)op < NETS_OP_KINDS ? &OPS[op] : NULL; }

nets_op_kind nets_op_find(const char *name) {
    for (int op = 0; op < NETS_OP_KINDS; op++)
        if (OPS[op].example && strcmp(OPS[op].name, name) == 0) return (nets_op_kind)op;
    return NETS_OP_KINDS;
}

const char *nets_op_names(char text_out[NETS_OP_NAMES_CAPACITY]) {
    size_t at = 0;
    for (int op = 0; op < NETS_OP_KINDS; op++)
        if (OPS[op].example && at < NETS_OP_NAMES_CAPACITY)
            at += (size_t)snprintf(text_out + at, NETS_OP_NAMES_CAPACITY - at, "%s%s", at ? ", " : "", OPS[op].name);
    return text_out;
}

const char *nets_op_name(nets_op_kind op) {
    const nets_op_info *info = nets_op_info_of(op);
    return info ? info->name : "?";
}
