/* SPDX-License-Identifier: MIT */
/* Convolutions, pools, norms of channels, and what pads and enlarges images. */
#include <math.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

/* The i-th input as a draft of images in ONNX's order [n, channels, height, width]. */
static mm_status in_image(onnx_import *m, const onnx_node *node, int i, int *draft_out) {
    onnx_value *in;
    MM_TRY(onnx_in_map(m, node, i, &in));
    MM_TRY(onnx_whole(m, node, in, draft_out));
    const onnx_view image = onnx_view_map(onnx_shape(m, *draft_out), m->batch, 4);
    if (!onnx_view_equal(&in->view, &image))
        return onnx_refuse(m, node, "its input is not of images [n, channels, height, width]");
    return MM_OK;
}

static void give_image(onnx_import *m, const onnx_node *node, int draft) {
    const onnx_view view = onnx_view_map(onnx_shape(m, draft), m->batch, 4);
    onnx_give_map(onnx_out(m, node, 0), draft, &view);
}

static void set_param(onnx_import *m, int draft, int place, onnx_tensor *tensor) {
    m->drafts[draft].params[place] = (onnx_param){tensor, false};
}

/* The i-th input as a constant of real numbers that must be there. */
static mm_status in_weight(onnx_import *m, const onnx_node *node, int i, int rank, onnx_tensor **tensor_out) {
    MM_TRY(onnx_in_constant(m, node, i, tensor_out));
    if (!*tensor_out || !(*tensor_out)->real || (*tensor_out)->rank != rank)
        return onnx_refuse(m, node, "its input %d must be %d-dimensional weights", i, rank);
    return MM_OK;
}

/* ---------------------------------------------------------------- windows */

static const char DIFFERS[] = "its padding differs on both sides; layers here pad both alike";

/* The attribute `pads`, or those of `auto_pad`: top, left, bottom, right. */
static mm_status pads_of(onnx_import *m, const onnx_node *node, const nets_shape *in, const nets_attrs *a,
                         int64_t pads_out[4]) {
    char text[ONNX_TEXT_CAPACITY];
    onnx_attr_text(node, "auto_pad", text);
    MM_TRY(onnx_attr_ints(m, node, "pads", 4, 0, pads_out));
    if (strncmp(text, "SAME", 4) != 0) return MM_OK;
    for (int d = 0; d < 2; d++) {
        const int64_t windows = (in->dims[d] + a->stride[d] - 1) / a->stride[d];
        const int64_t need = (windows - 1) * a->stride[d] + a->dilation[d] * (a->kernel[d] - 1) + 1 - in->dims[d];
        pads_out[d] = pads_out[2 + d] = need > 0 ? need / 2 : 0;
        if (need > 0 && need % 2) return onnx_refuse(m, node, "%s", DIFFERS);
    }
    return MM_OK;
}

/* Kernel, strides, padding and dilation. `extra`: padding that a node before it gave, or NULL. */
static mm_status window(onnx_import *m, const onnx_node *node, const nets_shape *in, const int64_t kernel[2],
                        const int64_t *extra, nets_attrs *attrs) {
    int64_t pads[4];
    MM_TRY(onnx_attr_ints(m, node, "strides", 2, 1, attrs->stride));
    MM_TRY(onnx_attr_ints(m, node, "dilations", 2, 1, attrs->dilation));
    memcpy(attrs->kernel, kernel, sizeof attrs->kernel);
    for (int d = 0; d < 2; d++)
        if (attrs->stride[d] < 1 || attrs->dilation[d] < 1 || attrs->kernel[d] < 1 ||
            attrs->kernel[d] > NETS_MAX_EXTENT)
            return onnx_refuse(m, node, "a kernel, stride or dilation is out of range");
    MM_TRY(pads_of(m, node, in, attrs, pads));
    for (int d = 0; d < 4; d++) pads[d] += extra ? extra[d] : 0;
    for (int d = 0; d < 2; d++) {
        if (pads[d] < 0 || pads[d] != pads[2 + d]) return onnx_refuse(m, node, "%s", DIFFERS);
        attrs->pad[d] = pads[d];
    }
    return MM_OK;
}

/* The input of a convolution or average pool, and the zeros that a Pad before put around it. */
static mm_status in_padded(onnx_import *m, const onnx_node *node, int *draft_out, int64_t padding_out[4]) {
    memset(padding_out, 0, 4 * sizeof *padding_out);
    onnx_value *in = onnx_in(m, node, 0);
    if (in && in->kind == ONNX_MAP && m->drafts[in->draft].kind == ONNX_PADDING && onnx_is_identity(in->function)) {
        memcpy(padding_out, m->drafts[in->draft].padding, 4 * sizeof *padding_out);
        *draft_out = m->drafts[in->draft].layer.inputs[0];
        return MM_OK;
    }
    return in_image(m, node, 0, draft_out);
}

static mm_status conv(onnx_import *m, const onnx_node *node) {
    const bool transposed = strcmp(node->op, "ConvTranspose") == 0;
    nets_attrs attrs = {.groups = onnx_attr_int(node, "group", 1)};
    onnx_tensor *weight, *bias = NULL;
    int64_t padding[4];
    int in, draft;
    MM_TRY(transposed ? in_image(m, node, 0, &in) : in_padded(m, node, &in, padding));
    MM_TRY(in_weight(m, node, 1, 4, &weight));
    if (onnx_in(m, node, 2)) MM_TRY(in_weight(m, node, 2, 1, &bias));
    if (transposed) MM_TRY(onnx_attr_ints(m, node, "output_padding", 2, 0, attrs.output_pad));
    if (onnx_attr_given(node, "output_shape")) return onnx_refuse(m, node, "output_shape is not supported; give pads");
    MM_TRY(window(m, node, onnx_shape(m, in), weight->dims + 2, transposed ? NULL : padding, &attrs));
    attrs.out_channels = transposed ? nets_mul(weight->dims[1], attrs.groups) : weight->dims[0];
    attrs.bias = bias;
    MM_TRY(onnx_draft_add(m, node, transposed ? NETS_CONV_TRANSPOSE : NETS_CONV, &attrs, &in, 1, weight, &draft));
    set_param(m, draft, 0, weight);
    set_param(m, draft, 1, bias);
    give_image(m, node, draft);
    return MM_OK;
}

static mm_status pool(onnx_import *m, const onnx_node *node) {
    const bool max = strcmp(node->op, "MaxPool") == 0;
    nets_attrs attrs = {.ceil_mode = onnx_attr_int(node, "ceil_mode", 0)};
    int64_t kernel[2], padding[4] = {0};
    int in, draft;
    MM_TRY(max ? in_image(m, node, 0, &in) : in_padded(m, node, &in, padding));
    MM_TRY(onnx_attr_ints(m, node, "kernel_shape", 2, 0, kernel));
    MM_TRY(window(m, node, onnx_shape(m, in), kernel, padding, &attrs));
    const bool padded = padding[0] || padding[1], own = attrs.pad[0] != padding[0] || attrs.pad[1] != padding[1];
    if (padded && own) return onnx_refuse(m, node, "both it and a node before it pad its input");
    if (attrs.dilation[0] != 1 || attrs.dilation[1] != 1) return onnx_refuse(m, node, "pools here have no dilation");
    memset(attrs.dilation, 0, sizeof attrs.dilation);
    attrs.exclude_pad = !max && !padded && !onnx_attr_int(node, "count_include_pad", 0);
    MM_TRY(onnx_draft_add(m, node, max ? NETS_MAX_POOL : NETS_AVG_POOL, &attrs, &in, 1, NULL, &draft));
    give_image(m, node, draft);
    return MM_OK;
}

static mm_status pad(onnx_import *m, const onnx_node *node) {
    char mode[ONNX_TEXT_CAPACITY];
    int64_t pads[ONNX_RANK_MAX], padding[4];
    double value;
    int in, draft, n;
    onnx_attr_text(node, "mode", mode);
    MM_TRY(onnx_numbers(m, node, 1, "pads", &n, pads));
    MM_TRY(onnx_in_number(m, node, 2, 0, &value));
    if (n != 8 || onnx_in(m, node, 3) || (*mode && strcmp(mode, "constant") != 0) || value != 0 || pads[0] || pads[1] ||
        pads[4] || pads[5])
        return onnx_refuse(m, node, "only zeros around images are supported, before a convolution or average pool");
    memcpy(padding, (int64_t[]){pads[2], pads[3], pads[6], pads[7]}, sizeof padding);
    for (int d = 0; d < 4; d++)
        if (padding[d] < 0 || padding[d] > NETS_MAX_EXTENT)
            return onnx_refuse(m, node, "it pads by %lld", (long long)padding[d]);
    MM_TRY(in_image(m, node, 0, &in));
    nets_shape shape = *onnx_shape(m, in);
    for (int d = 0; d < 2; d++) shape.dims[d] += padding[d] + padding[2 + d];
    MM_TRY(onnx_draft_special(m, node, ONNX_PADDING, &shape, in, &draft));
    memcpy(m->drafts[draft].padding, padding, sizeof padding);
    give_image(m, node, draft);
    return MM_OK;
}

/* The mean of all pixels of each channel: GlobalAveragePool and ReduceMean. */
static mm_status give_means(onnx_import *m, const onnx_node *node, const bool reduced[], bool keeps) {
    onnx_value *in;
    int whole, draft;
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(onnx_whole(m, node, in, &whole));
    onnx_view view = {0}, gone = {0};
    for (int d = 0; d < in->view.rank; d++) {
        if (reduced[d]) gone.dims[gone.rank++] = in->view.dims[d];
        if (reduced[d] ? keeps : true) view.dims[view.rank++] = reduced[d] ? (onnx_dim){0} : in->view.dims[d];
    }
    const nets_shape *shape = onnx_shape(m, whole);
    const int64_t pixels = nets_shape_rows(shape);
    onnx_view joined;
    const onnx_dim all = onnx_dim_of(pixels, nets_shape_channels(shape));
    if (!onnx_view_reshape(&gone, 1, &pixels, &joined) || !onnx_dim_equal(&joined.dims[0], &all))
        return onnx_refuse(m, node, "layers here compute the mean of all pixels, or all tokens, of each channel");
    const nets_shape before = *shape;
    MM_TRY(onnx_draft_add(m, node, NETS_GLOBAL_AVG_POOL, NULL, &whole, 1, NULL, &draft));
    if (!onnx_view_move(&view, &before, onnx_shape(m, draft)))
        return onnx_refuse(m, node, "its input's channels are not in order");
    onnx_give_map(onnx_out(m, node, 0), draft, &view);
    return MM_OK;
}

static mm_status global_average(onnx_import *m, const onnx_node *node) {
    const bool reduced[ONNX_RANK_MAX] = {false, false, true, true};
    int in;
    MM_TRY(in_image(m, node, 0, &in));
    return give_means(m, node, reduced, true);
}

static mm_status reduce_mean(onnx_import *m, const onnx_node *node) {
    int64_t axes[ONNX_RANK_MAX];
    bool reduced[ONNX_RANK_MAX] = {false};
    onnx_value *in;
    int n, axis;
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(onnx_numbers(m, node, 1, "axes", &n, axes));
    for (int i = 0; i < n; i++) {
        MM_TRY(onnx_axis(m, node, axes[i], in->view.rank, &axis));
        reduced[axis] = true;
    }
    return give_means(m, node, reduced, onnx_attr_int(node, "keepdims", 1));
}

/* ---------------------------------------------------------------- norms */

static mm_status batch_norm(onnx_import *m, const onnx_node *node) {
    /* ONNX keeps `momentum` of the old statistics; torch, and layers here, take that much of the new. */
    const nets_attrs attrs = {.eps = (float)onnx_attr_real(node, "epsilon", 1e-5),
                              .momentum = (float)(1 - onnx_attr_real(node, "momentum", 0.9))};
    onnx_tensor *params[4];
    onnx_value *in;
    int whole, draft;
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(onnx_whole(m, node, in, &whole));
    for (int k = 0; k < 4; k++) MM_TRY(in_weight(m, node, 1 + k, 1, &params[k]));
    const onnx_dim channels = onnx_dim_of(nets_shape_channels(onnx_shape(m, whole)), 1);
    if (in->view.rank < 2 || !onnx_dim_equal(&in->view.dims[1], &channels))
        return onnx_refuse(m, node, "dimension 1 of its input is not the channels");
    MM_TRY(onnx_draft_add(m, node, NETS_BATCH_NORM, &attrs, &whole, 1, params[0], &draft));
    for (int k = 0; k < 4; k++) set_param(m, draft, k, params[k]);
    onnx_give_map(onnx_out(m, node, 0), draft, &in->view);
    return MM_OK;
}

/* A group norm, with a weight and bias for each channel. */
static mm_status group_norm(onnx_import *m, const onnx_node *node) {
    const nets_attrs attrs = {.eps = (float)onnx_attr_real(node, "epsilon", 1e-5),
                              .groups = onnx_attr_int(node, "num_groups", 1)};
    onnx_tensor *weight, *bias;
    int in, draft;
    MM_TRY(in_image(m, node, 0, &in));
    MM_TRY(in_weight(m, node, 1, 1, &weight));
    MM_TRY(in_weight(m, node, 2, 1, &bias));
    MM_TRY(onnx_draft_add(m, node, NETS_GROUP_NORM, &attrs, &in, 1, weight, &draft));
    set_param(m, draft, 0, weight);
    set_param(m, draft, 1, bias);
    give_image(m, node, draft);
    return MM_OK;
}

static bool all_are(const onnx_tensor *tensor, double number) {
    for (int64_t i = 0; i < tensor->elems; i++)
        if (onnx_tensor_at(tensor, i) != number) return false;
    return true;
}

/* Each channel by itself; or, reshaped to [n, groups, ...], each group, as torch exports group norms: then the scale is
 * 1, the bias 0, and the channels' own come behind (onnx_scale_channels). */
static mm_status instance_norm(onnx_import *m, const onnx_node *node) {
    onnx_tensor *weight, *bias;
    onnx_value *in;
    int whole, draft;
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(onnx_whole(m, node, in, &whole));
    MM_TRY(in_weight(m, node, 1, 1, &weight));
    MM_TRY(in_weight(m, node, 2, 1, &bias));
    const nets_shape *shape = onnx_shape(m, whole);
    const int64_t channels = nets_shape_channels(shape), groups = weight->elems;
    const int64_t dims[] = {m->batch, groups, nets_shape_elems(shape) / (groups ? groups : 1)};
    const onnx_view image = onnx_view_map(shape, m->batch, 4);
    onnx_view grouped, own;
    if (groups < 1 || channels % groups || !onnx_view_reshape(&image, 3, dims, &grouped) ||
        !onnx_view_reshape(&in->view, 3, dims, &own) || !onnx_view_equal(&grouped, &own))
        return onnx_refuse(m, node, "its input is not of images' channels, or groups of channels");
    const bool plain = all_are(weight, 1) && all_are(bias, 0);
    if (groups != channels && !plain)
        return onnx_refuse(m, node, "groups have a scale of their own; layers here scale channels");
    const nets_attrs attrs = {.eps = (float)onnx_attr_real(node, "epsilon", 1e-5), .groups = groups};
    MM_TRY(onnx_draft_add(m, node, NETS_GROUP_NORM, &attrs, &whole, 1, groups == channels ? weight : NULL, &draft));
    if (groups == channels && !plain) {
        set_param(m, draft, 0, weight);
        set_param(m, draft, 1, bias);
    }
    m->drafts[draft].affine_pending = plain;
    onnx_give_map(onnx_out(m, node, 0), draft, &in->view);
    return MM_OK;
}

static mm_status lrn(onnx_import *m, const onnx_node *node) {
    const nets_attrs attrs = {.size = onnx_attr_int(node, "size", 0),
                              .alpha = (float)onnx_attr_real(node, "alpha", 1e-4),
                              .beta = (float)onnx_attr_real(node, "beta", 0.75),
                              .k = (float)onnx_attr_real(node, "bias", 1)};
    int in, draft;
    MM_TRY(in_image(m, node, 0, &in));
    MM_TRY(onnx_draft_add(m, node, NETS_LRN, &attrs, &in, 1, NULL, &draft));
    give_image(m, node, draft);
    return MM_OK;
}

/* ---------------------------------------------------------------- enlarging */

/* By whole factors, as torch's Upsample. */
static mm_status resize(onnx_import *m, const onnx_node *node) {
    char mode[ONNX_TEXT_CAPACITY], place[ONNX_TEXT_CAPACITY], nearest[ONNX_TEXT_CAPACITY];
    onnx_tensor *scales, *sizes;
    nets_attrs attrs = {0};
    int in, draft;
    onnx_attr_text(node, "mode", mode);
    onnx_attr_text(node, "coordinate_transformation_mode", place);
    onnx_attr_text(node, "nearest_mode", nearest);
    MM_TRY(in_image(m, node, 0, &in));
    MM_TRY(onnx_in_constant(m, node, 2, &scales));
    MM_TRY(onnx_in_constant(m, node, 3, &sizes));
    const nets_shape *shape = onnx_shape(m, in);
    const onnx_tensor *given = scales && scales->elems ? scales : sizes;
    if (!given || given->elems != 4) return onnx_refuse(m, node, "it has no scale or size of four dimensions");
    for (int d = 0; d < 2; d++) {
        const double number = onnx_tensor_at(given, 2 + d),
                     factor = given == sizes ? number / (double)shape->dims[d] : number;
        if (!(factor >= 1) || factor > NETS_MAX_EXTENT || factor != floor(factor))
            return onnx_refuse(m, node, "it scales by %g; layers here enlarge by whole factors", factor);
        attrs.scale[d] = (int64_t)factor;
    }
    attrs.bilinear = strcmp(mode, "linear") == 0;
    const bool half = !*place || strstr(place, "half_pixel");
    const bool as_torch = attrs.bilinear ? half : strcmp(place, "asymmetric") == 0 && strcmp(nearest, "floor") == 0;
    if (!as_torch || (!attrs.bilinear && *mode && strcmp(mode, "nearest") != 0))
        return onnx_refuse(m, node,
                           "of mode %s, %s %s; layers here do nearest (asymmetric, floor) and linear (half_pixel)",
                           *mode ? mode : "nearest", *place ? place : "half_pixel", nearest);
    MM_TRY(onnx_draft_add(m, node, NETS_UPSAMPLE, &attrs, &in, 1, NULL, &draft));
    give_image(m, node, draft);
    return MM_OK;
}

/* ---------------------------------------------------------------- dropout, softmax */

static mm_status dropout(onnx_import *m, const onnx_node *node) {
    double rate, training;
    onnx_value *in = onnx_in(m, node, 0), *out = onnx_out(m, node, 0);
    MM_TRY(onnx_in_number(m, node, 1, 0.5, &rate));
    MM_TRY(onnx_in_number(m, node, 2, 0, &training));
    if (training != 0 && rate > 0) {
        if (in && in->kind == ONNX_SHARES)
            return onnx_refuse(m, node, "attention here drops none of its shares; export with a rate of 0 there");
        MM_TRY(onnx_in_map(m, node, 0, &in));
        int whole, draft;
        const nets_attrs attrs = {.p = (float)rate};
        MM_TRY(onnx_whole(m, node, in, &whole));
        MM_TRY(onnx_draft_add(m, node, NETS_DROPOUT, &attrs, &whole, 1, NULL, &draft));
        onnx_give_map(out, draft, &in->view);
        return MM_OK;
    }
    return onnx_same(m, node);
}

static mm_status softmax(onnx_import *m, const onnx_node *node) {
    onnx_value *in = onnx_in(m, node, 0), *out = onnx_out(m, node, 0);
    int axis, whole, draft;
    if (in && in->kind == ONNX_SCORES) return onnx_attention_shares(m, node);
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(onnx_axis(m, node, onnx_attr_int(node, "axis", -1), in->view.rank, &axis));
    MM_TRY(onnx_whole(m, node, in, &whole));
    const onnx_dim channels = onnx_dim_of(nets_shape_channels(onnx_shape(m, whole)), 1);
    if (!onnx_dim_equal(&in->view.dims[axis], &channels)) return onnx_refuse(m, node, "it is supported over channels");
    const nets_shape shape = *onnx_shape(m, whole);
    MM_TRY(onnx_draft_special(m, node, ONNX_SOFTMAX, &shape, whole, &draft));
    onnx_give_map(out, draft, &in->view);
    return MM_OK;
}

const onnx_op onnx_image_ops[] = {
    {"Conv", conv, NULL},
    {"ConvTranspose", conv, NULL},
    {"MaxPool", pool, NULL},
    {"AveragePool", pool, NULL},
    {"GlobalAveragePool", global_average, NULL},
    {"ReduceMean", reduce_mean, NULL},
    {"Pad", pad, NULL},
    {"BatchNormalization", batch_norm, NULL},
    {"GroupNormalization", group_norm, NULL},
    {"InstanceNormalization", instance_norm, NULL},
    {"LRN", lrn, NULL},
    {"Resize", resize, NULL},
    {"Dropout", dropout, onnx_same},
    {"Softmax", softmax, NULL},
    {"LogSoftmax", softmax, NULL},
    {NULL, NULL, NULL},
};
