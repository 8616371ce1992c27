/* SPDX-License-Identifier: MIT */
/* Operations of windows that move over an image: convolutions and pools. */
#include "nets/ops/describe.h"

static const char AXIS[2][8] = {"height", "width"};

/* How many elements of an axis a kernel spans. */
static int64_t reach(const nets_attrs *a, int d) {
    int64_t dilation = a->dilation[d] ? a->dilation[d] : 1; /* pools have no dilation: theirs is 0 */
    return dilation * (a->kernel[d] - 1) + 1;
}

static mm_status infer_windows(nets_layer *layer, const int64_t in[3], int64_t channels) {
    const nets_attrs *a = &layer->attrs;
    layer->shape = (nets_shape){3, {0, 0, channels}};
    for (int d = 0; d < 2; d++) {
        int64_t room = in[d] + 2 * a->pad[d] - reach(a, d);
        if (room < 0)
            return mm_fail(MM_ERR_INVALID, "layer %s: kernel %lld does not fit into %s %lld padded by %lld",
                           layer->name, (long long)reach(a, d), AXIS[d], (long long)in[d], (long long)a->pad[d]);
        int64_t last = room / a->stride[d];
        /* torch's rule: the rest gets one more window, unless that would begin in the padding at the end. */
        if (a->ceil_mode && room % a->stride[d] && (last + 1) * a->stride[d] < in[d] + a->pad[d]) last++;
        layer->shape.dims[d] = last + 1;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- attributes */

/* A window that lies wholly in the padding would have no maximum. */
static bool is_half_kernel(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)in;
    return 2 * layer->attrs.pad[d] <= layer->attrs.kernel[d];
}

/* The index map has one byte for the index of the window's element. */
static bool is_small_window(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)in, (void)d;
    return layer->attrs.kernel[0] * layer->attrs.kernel[1] <= UINT8_MAX;
}

/* The operation is the gradient of a convolution, which would not read any further rows. */
static bool is_less_than_stride(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)in;
    return layer->attrs.output_pad[d] < layer->attrs.stride[d];
}

static bool divides_channels(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)d;
    return in->dims[2] % layer->attrs.groups == 0 && layer->attrs.out_channels % layer->attrs.groups == 0;
}

static const nets_attr_rule HALF_KERNEL = {"at most half the kernel", "kernel", false, is_half_kernel};
static const nets_attr_rule SMALL_WINDOW = {"height times width at most 255", NULL, false, is_small_window};
static const nets_attr_rule LESS_THAN_STRIDE = {"less than the stride", "stride", false, is_less_than_stride};
static const nets_attr_rule DIVISOR = {"dividing input's and output's channels", "out_channels", true,
                                       divides_channels};

/* clang-format off */
#define WINDOW_ATTR   ATTR(kernel, "height and width of the window", REQUIRED, EXTENT, NULL)
#define STRIDE_ATTR   ATTR(stride, "from one window to the next", VALUE(1), EXTENT, NULL)
#define POOL_STRIDE   ATTR(stride, "from one window to the next", KERNEL, EXTENT, NULL)
#define DILATION_ATTR ATTR(dilation, "from one element of the kernel to the next", VALUE(1), EXTENT, NULL)
#define GROUPS_ATTR   ATTR(groups, "of channels, each convolved for itself", VALUE(1), EXTENT, &DIVISOR)
#define CEIL_MODE     ATTR(ceil_mode, "a last window may end beyond the padded image, if it begins in it", FLAG)
/* clang-format on */

/* ---------------------------------------------------------------- convolutions */

static mm_status infer_conv(nets_layer *layer, const nets_shape *in) {
    return infer_windows(layer, in->dims, layer->attrs.out_channels);
}

static int weight_of(const nets_layer *layer, int64_t d0, int64_t d1, int64_t dims_out[MM_RANK_MAX]) {
    dims_out[0] = d0;
    dims_out[1] = d1 / layer->attrs.groups;
    for (int d = 0; d < 2; d++) dims_out[2 + d] = layer->attrs.kernel[d];
    return 4;
}

static int conv_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    return weight_of(layer, layer->attrs.out_channels, in->dims[2], dims_out);
}

/* clang-format off */
#define CONV_STEPS {                                                                                                   \
    .kind = MM_LAYER_CONV,                                                                                             \
    .forward = {.uses = {R(X), R(W), R(B), W(Y)}},                                                                     \
    .eval = {.uses = {R(X), R(W), R(B), W(Y)}},                                                                        \
    .backward = {.uses = {X_FOR_DW, R(W), R(DY), GIVES_DX, W(DW), W(DB)}, .pairs = {EARLIER_INPLACE(0)}},              \
}

const nets_op_info nets_info_conv = {
    .name = "conv",
    .what = "convolution, as torch's Conv2d",
    .output = "(height + 2 pad - dilation (kernel - 1) - 1) / stride + 1, rounded down; out_channels",
    .example = LAYER("conv1", "conv", "\"data\"", ", \"out_channels\": 16, \"kernel\": 3, \"stride\": 2, \"pad\": 1"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(OUT_CHANNELS, WINDOW_ATTR, STRIDE_ATTR,
        ATTR(pad, "zeros around the input, on both sides", VALUE(0), EXTENT_OR_0, NULL), DILATION_ATTR, GROUPS_ATTR, BIAS),
    .infer = infer_conv,
    .params = {
        {"weight", "out_channels, channels / groups, kernel height, kernel width", conv_weight, NORMAL_FAN_OUT(2),
         .learned = true, .decayed = true, .factor = true},
        BIAS_PARAM,
    },
    .steps = CONV_STEPS,
    .skips_frozen = true,
};
/* clang-format on */

static mm_status infer_conv_transpose(nets_layer *layer, const nets_shape *in) {
    const nets_attrs *a = &layer->attrs;
    layer->shape = (nets_shape){3, {0, 0, a->out_channels}};
    for (int d = 0; d < 2; d++) {
        int64_t size = (in->dims[d] - 1) * a->stride[d] + reach(a, d) + a->output_pad[d] - 2 * a->pad[d];
        if (size < 1)
            return mm_fail(MM_ERR_INVALID, "layer %s: padding %lld leaves nothing of %s %lld", layer->name,
                           (long long)a->pad[d], AXIS[d], (long long)(size + 2 * a->pad[d]));
        layer->shape.dims[d] = size;
    }
    return MM_OK;
}

static int conv_transpose_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    return weight_of(layer, in->dims[2], layer->attrs.out_channels, dims_out);
}

/* clang-format off */
const nets_op_info nets_info_conv_transpose = {
    .name = "conv_transpose",
    .what = "the gradient of a convolution by its input, as torch's ConvTranspose2d",
    .output = "(height - 1) stride + dilation (kernel - 1) + 1 + output_pad - 2 pad; out_channels",
    .example = LAYER("up1", "conv_transpose", "\"data\"", ", \"out_channels\": 16, \"kernel\": 2, \"stride\": 2"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(OUT_CHANNELS, WINDOW_ATTR, STRIDE_ATTR,
        ATTR(pad, "what is cut off the output, on both sides", VALUE(0), EXTENT_OR_0, NULL),
        ATTR(output_pad, "rows and columns more, below and on the right", VALUE(0), EXTENT_OR_0, &LESS_THAN_STRIDE),
        DILATION_ATTR, GROUPS_ATTR, BIAS),
    .infer = infer_conv_transpose,
    .params = {
        {"weight", "channels, out_channels / groups, kernel height, kernel width", conv_transpose_weight,
         UNIFORM_FAN_IN(1), .learned = true, .decayed = true, .factor = true},
        BIAS_PARAM,
    },
    .steps = CONV_STEPS,
    .skips_frozen = true,
};
/* clang-format on */

/* ---------------------------------------------------------------- pools */

static mm_status infer_pool(nets_layer *layer, const nets_shape *in) {
    return infer_windows(layer, in->dims, in->dims[2]);
}

static mm_status infer_avg_pool(nets_layer *layer, const nets_shape *in) {
    MM_TRY(infer_pool(layer, in));
    const nets_attrs *a = &layer->attrs;
    bool padded = a->pad[0] || a->pad[1];
    for (int d = 0; d < 2; d++) {
        int64_t end = (layer->shape.dims[d] - 1) * a->stride[d] + a->kernel[d];
        if (padded && !a->exclude_pad && end > in->dims[d] + 2 * a->pad[d])
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "layer %s: ceil_mode makes a window end beyond the padding, which the average counts; give "
                           "\"exclude_pad\": true, or leave out ceil_mode or the padding",
                           layer->name);
    }
    return MM_OK;
}

static mm_status infer_global_pool(nets_layer *layer, const nets_shape *in) {
    for (int d = 0; d < 2; d++) layer->attrs.kernel[d] = layer->attrs.stride[d] = in->dims[d];
    if (in->dims[0] > NETS_MAX_EXTENT || in->dims[1] > NETS_MAX_EXTENT)
        return mm_fail(MM_ERR_INVALID, "layer %s: its input is %lldx%lld, must be at most %d high and wide",
                       layer->name, (long long)in->dims[0], (long long)in->dims[1], NETS_MAX_EXTENT);
    return infer_pool(layer, in);
}

/* clang-format off */
#define POOLED "(height + 2 pad - kernel) / stride + 1, rounded down (ceil_mode: up); channels"
#define POOL_STEPS {                                                                                                   \
    .kind = MM_LAYER_POOL,                                                                                             \
    .forward = {.uses = {R(X), W(Y)}},                                                                                 \
    .eval = {.uses = {R(X), W(Y)}},                                                                                    \
    .backward = {.uses = {R(DY), GIVES_DX}},                                                                           \
}

static nets_shape index_shape(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y) {
    (void)x;
    nets_shape shape = *y;
    if (nets_halves_index(attrs, nets_shape_channels(y))) shape.dims[shape.rank - 1] /= 2;
    return shape;
}

const nets_op_info nets_info_max_pool = {
    .name = "max_pool",
    .what = "the greatest of each window",
    .output = POOLED,
    .example = LAYER("pool1", "max_pool", "\"data\"", ", \"kernel\": 3, \"stride\": 2, \"pad\": 1"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(
        ATTR(kernel, "height and width of the window", REQUIRED, FROM(1, UINT8_MAX), &SMALL_WINDOW), POOL_STRIDE,
        ATTR(pad, "nothing around the input, on both sides", VALUE(0), EXTENT_OR_0, &HALF_KERNEL), CEIL_MODE),
    .infer = infer_pool,
    .steps = {
        .kind = MM_LAYER_POOL,
        .saved = {{"index", MM_U8, index_shape, false}},
        .forward = {.uses = {R(X), W(Y), W(INDEX)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(INDEX), R(DY), GIVES_DX}},
    },
};

const nets_op_info nets_info_avg_pool = {
    .name = "avg_pool",
    .what = "the mean of each window",
    .output = POOLED,
    .example = LAYER("pool1", "avg_pool", "\"data\"", ", \"kernel\": 2"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(WINDOW_ATTR, POOL_STRIDE,
        ATTR(pad, "zeros around the input, on both sides", VALUE(0), EXTENT_OR_0, &HALF_KERNEL), CEIL_MODE,
        ATTR(exclude_pad, "divide by the elements inside the image, not by the kernel's", FLAG)),
    .infer = infer_avg_pool,
    .steps = POOL_STEPS,
};

const nets_op_info nets_info_global_avg_pool = {
    .name = "global_avg_pool",
    .what = "the mean of each channel",
    .output = "1, 1, channels",
    .example = LAYER("pool", "global_avg_pool", "\"data\"", ""),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .infer = infer_global_pool,
    .steps = POOL_STEPS,
};
/* clang-format on */
