/* SPDX-License-Identifier: MIT */
/* Functions and macros for the operations' descriptions (nets/net_ops.h). Internal to nets/ops. */
#ifndef NETS_OPS_DESCRIBE_H
#define NETS_OPS_DESCRIBE_H

#include "nets/net_ops.h"

/* The output has the first input's shape. */
mm_status nets_infer_same(nets_layer *layer, const nets_shape *in);

/* For nets_param_spec.shape: one number for each channel of the input, or of the output. */
int nets_channels_in(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]);
int nets_channels_out(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]);

/* For nets_saved_spec.shape: one number for each of the output's channels. */
nets_shape nets_saved_channels(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y);

/* A layer, as it stands in a network file. */
#define LAYER(name, op, inputs, more) "{\"name\": \"" name "\", \"op\": \"" op "\", \"inputs\": [" inputs "]" more "}"

/* ---------------------------------------------------------------- attributes */

/* clang-format off */
#define FIELD(field) (((nets_attrs *)0)->field) /* for its type only */
#define TYPE(field) _Generic(FIELD(field), \
    int64_t: NETS_ATTR_WHOLE, int64_t *: NETS_ATTR_WHOLE, bool: NETS_ATTR_FLAG, float: NETS_ATTR_REAL)
#define ATTR(field, what, ...) {#field, TYPE(field), offsetof(nets_attrs, field), sizeof FIELD(field), what, __VA_ARGS__}
#define ATTRS(...)  (const nets_attr[]){__VA_ARGS__, {.name = NULL}}
#define REQUIRED    NETS_DEFAULT_NONE, 0
#define KERNEL      NETS_DEFAULT_KERNEL, 0
#define VALUE(v)    NETS_DEFAULT_VALUE, v
#define FROM(l, m)  l, m, false, false
#define ABOVE(l, m) l, m, true, false /* the lower bound is excluded */
#define FLAG        VALUE(0), FROM(0, 1), NULL
#define EXTENT      FROM(1, NETS_MAX_EXTENT)
#define EXTENT_OR_0 FROM(0, NETS_MAX_EXTENT)
#define OUT_CHANNELS ATTR(out_channels, "channels of the output", REQUIRED, EXTENT, NULL)
#define BIAS         ATTR(bias, "a learned number is added to each channel", FLAG)

/* ---------------------------------------------------------------- parameters */

#define CONSTANT(v)       {NETS_INIT_CONSTANT, v}
#define NORMAL_FAN_OUT(v) {NETS_INIT_NORMAL_FAN_OUT, v}
#define UNIFORM_FAN_IN(v) {NETS_INIT_UNIFORM_FAN_IN, v}
/* A bias of "out_channels", if the layer's attribute `bias` is set. */
#define BIAS_PARAM {"bias", "out_channels", nets_channels_out, UNIFORM_FAN_IN(1), .learned = true, .decayed = true, .with = "bias"}

/* ---------------------------------------------------------------- steps */

#define R(role) {NETS_##role, MM_READ, MM_FORM_VALUE, NETS_WORKSPACE}
#define S(role) {NETS_##role, MM_READ, MM_FORM_SIGN, NETS_WORKSPACE}
#define W(role) {NETS_##role, MM_WRITE, MM_FORM_VALUE, NETS_WORKSPACE}
#define M(role) {NETS_##role, MM_MODIFY, MM_FORM_VALUE, NETS_WORKSPACE}
#define INPLACE(input, output) {NETS_##input, NETS_##output, NETS_OVER}
#define INPLACE_OR_EARLIER(input, output) {NETS_##input, NETS_##output, NETS_OVER_OR_EARLIER}
#define ALIAS(input, output) {NETS_##input, NETS_##output, NETS_EQUAL_OR_EARLIER}

/* The input, read only to compute the gradient of the weight. */
#define X_FOR_DW {NETS_X, MM_READ, MM_FORM_VALUE, NETS_DW}

/* Writes an input's gradient and adds the earlier consumers' gradients. */
#define GIVES_DX_OF(i) R(EARLIER + i), W(DX + i)
#define GIVES_DX GIVES_DX_OF(0)
#define EARLIER_INPLACE(i) INPLACE(EARLIER + i, DX + i)
/* clang-format on */

#endif
