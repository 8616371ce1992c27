/* SPDX-License-Identifier: MIT */
/* Normalisations. */
#include "nets/ops/describe.h"

static bool is_odd(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)in, (void)d;
    return layer->attrs.size % 2 == 1;
}

static const nets_attr_rule ODD = {"odd", NULL, false, is_odd};

static bool divides_channels(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)d;
    return nets_shape_channels(in) % layer->attrs.groups == 0;
}

static const nets_attr_rule DIVISOR = {"dividing the channels", NULL, true, divides_channels};

/* A number for each image and group. */
static nets_shape saved_groups(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y) {
    (void)x;
    return (nets_shape){2, {y->dims[0], attrs->groups}};
}

/* clang-format off */
#define STATISTICS .saved = {{"mean", MM_F32, nets_saved_channels, true}, {"var", MM_F32, nets_saved_channels, true}}

/* Codecs whose codes are strips (mm.h), and need no random numbers. */
#define WRITES_CODES .codes = {{NETS_X, MM_WRITE, "zfp"}, {NETS_X, MM_WRITE, "dpr"}, {NETS_X, MM_WRITE, "mx"}, \
                               {NETS_X, MM_WRITE, "raw"}, {NETS_Y, MM_WRITE, "mask"}}
#define READS_CODES .codes = {{NETS_X, MM_READ, "zfp"}, {NETS_X, MM_READ, "dpr"}, {NETS_X, MM_READ, "mx"}, \
                              {NETS_X, MM_READ, "raw"}}

/* A batch norm fused with a ReLU and, if it has a second input, with the sum between them. */
static const nets_op_lowering BATCH_NORM_RELU = {
    .kind = MM_LAYER_BATCH_NORM_RELU,
    STATISTICS,
    .forward = {.uses = {R(X), R(X2), R(W), R(B), W(Y), W(SAVED_MEAN), W(SAVED_VAR), M(MEAN), M(VAR)},
                .pairs = {INPLACE(X2, Y)}, WRITES_CODES},
    .eval = {.uses = {R(X), R(X2), R(W), R(B), R(MEAN), R(VAR), W(Y)}, .pairs = {INPLACE(X, Y), INPLACE(X2, Y)}},
    .backward = {.uses = {R(X), R(W), R(B), R(SAVED_MEAN), R(SAVED_VAR), S(Y), R(DY), GIVES_DX, GIVES_DX_OF(1), W(DW),
                          W(DB)},
                 .pairs = {INPLACE(DY, DX), INPLACE_OR_EARLIER(Y, DX2)}, READS_CODES},
};

const nets_op_info nets_info_batch_norm = {
    .name = "batch_norm",
    .what = "normalises each channel over the batch, then scales and shifts it",
    .output = "the input's",
    .example = LAYER("bn1", "batch_norm", "\"data\"", ", \"eps\": 0.001"),
    .min_inputs = 1, .max_inputs = 1,
    .attrs = ATTRS(
        ATTR(eps, "added to the variance", VALUE(1e-5), 0, 1, true, true, NULL),
        ATTR(momentum, "running = (1 - momentum) running + momentum new", VALUE(0.1), ABOVE(0, 1), NULL)),
    .infer = nets_infer_same,
    .params = {
        {"weight", "channels", nets_channels_in, CONSTANT(1), .learned = true, .decayed = true},
        {"bias", "channels", nets_channels_in, CONSTANT(0), .learned = true, .decayed = true},
        {"running_mean", "channels", nets_channels_in, CONSTANT(0), .learned = false},
        {"running_var", "channels", nets_channels_in, CONSTANT(1), .learned = false},
    },
    .steps = {
        .kind = MM_LAYER_BATCH_NORM,
        STATISTICS,
        .forward = {.uses = {R(X), R(W), R(B), W(Y), W(SAVED_MEAN), W(SAVED_VAR), M(MEAN), M(VAR)}, WRITES_CODES},
        .eval = {.uses = {R(X), R(W), R(B), R(MEAN), R(VAR), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(W), R(B), R(SAVED_MEAN), R(SAVED_VAR), R(DY), GIVES_DX, W(DW), W(DB)},
                     .pairs = {INPLACE(DY, DX)}, READS_CODES},
    },
    .with_relu = &BATCH_NORM_RELU,
};

const nets_op_info nets_info_group_norm = {
    .name = "group_norm",
    .what = "normalises each image's groups of channels, then scales and shifts each channel",
    .output = "the input's",
    .example = LAYER("gn1", "group_norm", "\"conv1\"", ", \"groups\": 2"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(
        ATTR(groups, "of channels, each normalised by itself", REQUIRED, EXTENT, &DIVISOR),
        ATTR(eps, "added to the variance", VALUE(1e-5), 0, 1, true, true, NULL)),
    .infer = nets_infer_same,
    .params = {
        {"weight", "channels", nets_channels_in, CONSTANT(1), .learned = true, .decayed = true},
        {"bias", "channels", nets_channels_in, CONSTANT(0), .learned = true, .decayed = true},
    },
    .steps = {
        .kind = MM_LAYER_LAYER_NORM,
        .saved = {{"mean", MM_F32, saved_groups, false}, {"factor", MM_F32, saved_groups, false}},
        .forward = {.uses = {R(X), R(W), R(B), W(Y), W(SAVED_MEAN), W(SAVED_VAR)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(W), R(SAVED_MEAN), R(SAVED_VAR), R(DY), GIVES_DX, W(DW), W(DB)},
                     .pairs = {INPLACE(DY, DX)}},
    },
};

const nets_op_info nets_info_lrn = {
    .name = "lrn",
    .what = "x / (k + alpha / size * sum of x^2 over a window of channels)^beta, as torch's",
    .output = "the input's",
    .example = LAYER("norm1", "lrn", "\"data\"", ", \"size\": 5"),
    .min_inputs = 1, .max_inputs = 1,
    .attrs = ATTRS(
        ATTR(size, "channels of a window", REQUIRED, EXTENT, &ODD),
        ATTR(alpha, "factor of the mean square", VALUE(1e-4), ABOVE(0, NETS_MAX_EXTENT), NULL),
        ATTR(beta, "exponent", VALUE(0.75), ABOVE(0, 16), NULL),
        ATTR(k, "what the mean square is added to", VALUE(1), ABOVE(0, NETS_MAX_EXTENT), NULL)),
    .infer = nets_infer_same,
    .steps = {
        .kind = MM_LAYER_LRN,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(DY), GIVES_DX}, .pairs = {INPLACE(DY, DX)}},
    },
};
/* clang-format on */
