/* SPDX-License-Identifier: MIT */
/* The batch, fully connected layers, and the loss. */
#include "nets/ops/describe.h"

/* clang-format off */
const nets_op_info nets_info_data = {
    .name = "data",
    .what = "the batch: images and labels; a file's \"input\"",
    .output = "as the input says",
    .steps = {
        .kind = MM_LAYER_DATA,
        .forward = {.uses = {W(Y), W(LABELS)}},
        .eval = {.uses = {W(Y), W(LABELS)}},
    },
};
/* clang-format on */

static mm_status infer_linear(nets_layer *layer, const nets_shape *in) {
    (void)in;
    layer->shape = (nets_shape){3, {1, 1, layer->attrs.out_channels}};
    return MM_OK;
}

static int linear_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    dims_out[0] = layer->attrs.out_channels;
    dims_out[1] = nets_shape_elems(in);
    return 2;
}

/* clang-format off */
const nets_op_info nets_info_linear = {
    .name = "linear",
    .what = "sums of all the image's elements, flattened in torch's order (channel, height, width)",
    .output = "1, 1, out_channels",
    .example = LAYER("fc", "linear", "\"data\"", ", \"out_channels\": 10, \"bias\": true"),
    .min_inputs = 1, .max_inputs = 1,
    .attrs = ATTRS(OUT_CHANNELS, BIAS),
    .infer = infer_linear,
    .params = {
        {"weight", "out_channels, channels * height * width", linear_weight, UNIFORM_FAN_IN(1), .learned = true,
         .decayed = true, .factor = true},
        BIAS_PARAM,
    },
    .steps = {
        .kind = MM_LAYER_LINEAR,
        .forward = {.uses = {R(X), R(W), R(B), W(Y)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}},
        .backward = {.uses = {X_FOR_DW, R(W), R(DY), GIVES_DX, W(DW), W(DB)}},
    },
    .skips_frozen = true,
};

const nets_op_info nets_info_loss = {
    .name = "loss",
    .what = "softmax cross-entropy of scores, one a class, with the labels; a file's last layer",
    .output = "the input's; a label for each of its pixels",
    .example = LAYER("loss", "loss", "\"fc\"", ""),
    .min_inputs = 1, .max_inputs = 1, .loss = true,
    .infer = nets_infer_same,
    .f32_output = true,
    .steps = {
        .kind = MM_LAYER_LOSS,
        .forward = {.uses = {R(X), R(LABELS), R(RNG), W(Y), W(LOSS_VALUE), W(CORRECT)}, .pairs = {INPLACE(X, Y)}},
        .eval = {.uses = {R(X), R(LABELS), W(LOSS_VALUE), W(CORRECT)}},
        .backward = {.uses = {R(Y), R(LABELS), GIVES_DX}, .pairs = {INPLACE(Y, DX)}},
    },
};
/* clang-format on */
