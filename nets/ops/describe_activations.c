/* SPDX-License-Identifier: MIT */
/* Activations: functions of single elements (nets/activation.h). What their backward reads is what the derivative is a
 * function of: the output, whose storage the forward may share with the input; its signs alone; or else the input. */
#include "nets/ops/describe.h"

/* clang-format off */
#define ACTIVATION .output = "the input's", .min_inputs = 1, .max_inputs = 1, .infer = nets_infer_same

/* `y`: R(Y) or S(Y). */
#define BY_OUTPUT(y) {                                                                                                 \
    .kind = MM_LAYER_RELU,                                                                                             \
    .forward = {.uses = {R(X), W(Y)}, .pairs = {INPLACE(X, Y)}},                                                       \
    .eval = {.uses = {R(X), W(Y)}, .pairs = {INPLACE(X, Y)}},                                                          \
    .backward = {.uses = {y, R(DY), GIVES_DX}, .pairs = {INPLACE(DY, DX)}},                                            \
}
#define BY_INPUT(layer_kind) {                                                                                         \
    .kind = layer_kind,                                                                                                \
    .forward = {.uses = {R(X), W(Y)}},                                                                                 \
    .eval = {.uses = {R(X), W(Y)}, .pairs = {INPLACE(X, Y)}},                                                          \
    .backward = {.uses = {R(X), R(DY), GIVES_DX}, .pairs = {INPLACE(DY, DX)}},                                         \
}

const nets_op_info nets_info_relu = {
    .name = "relu",
    .what = "max(0, x)",
    .example = LAYER("relu1", "relu", "\"data\"", ""),
    ACTIVATION,
    .steps = {
        .kind = MM_LAYER_RELU,
        .forward = {.uses = {R(X), R(B), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .eval = {.uses = {R(X), R(B), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {S(Y), R(DY), GIVES_DX, W(DB)}, .pairs = {INPLACE(DY, DX)}},
    },
};

const nets_op_info nets_info_leaky_relu = {
    .name = "leaky_relu",
    .what = "x, or slope x where x is negative",
    .example = LAYER("leaky1", "leaky_relu", "\"data\"", ", \"slope\": 0.1"),
    ACTIVATION,
    .attrs = ATTRS(ATTR(slope, "the factor of negative numbers", VALUE(0.01), ABOVE(0, 16), NULL)),
    .steps = BY_OUTPUT(S(Y)),
};

const nets_op_info nets_info_relu6 = {
    .name = "relu6",
    .what = "x limited to 0 to 6",
    .example = LAYER("relu1", "relu6", "\"data\"", ""),
    ACTIVATION,
    .steps = BY_OUTPUT(R(Y)),
};

const nets_op_info nets_info_sigmoid = {
    .name = "sigmoid",
    .what = "1 / (1 + e^-x)",
    .example = LAYER("gate1", "sigmoid", "\"fc2\"", ""),
    ACTIVATION,
    .steps = BY_OUTPUT(R(Y)),
};

const nets_op_info nets_info_hard_sigmoid = {
    .name = "hard_sigmoid",
    .what = "x + 3 limited to 0 to 6, divided by 6",
    .example = LAYER("gate1", "hard_sigmoid", "\"fc2\"", ""),
    ACTIVATION,
    .steps = BY_OUTPUT(R(Y)),
};

const nets_op_info nets_info_silu = {
    .name = "silu",
    .what = "x / (1 + e^-x), also called swish",
    .example = LAYER("silu1", "silu", "\"data\"", ""),
    ACTIVATION,
    .steps = BY_INPUT(MM_LAYER_RELU),
};

const nets_op_info nets_info_hard_swish = {
    .name = "hard_swish",
    .what = "x times x + 3 limited to 0 to 6, divided by 6",
    .example = LAYER("hswish1", "hard_swish", "\"data\"", ""),
    ACTIVATION,
    .steps = BY_INPUT(MM_LAYER_RELU),
};

const nets_op_info nets_info_gelu = {
    .name = "gelu",
    .what = "x times the normal distribution's share below x",
    .example = LAYER("act", "gelu", "\"c_fc\"", ", \"tanh\": true"),
    ACTIVATION,
    .attrs = ATTRS(ATTR(tanh, "approximated by a tanh, as in GPT-2; else by erf", FLAG)),
    .steps = BY_INPUT(MM_LAYER_GELU),
};

const nets_op_info nets_info_scale = {
    .name = "scale",
    .what = "slope x",
    .example = LAYER("scale1", "scale", "\"data\"", ", \"slope\": 2"),
    ACTIVATION,
    .attrs = ATTRS(ATTR(slope, "the factor", REQUIRED, ABOVE(0, 65536), NULL)),
    .steps = BY_OUTPUT(R(Y)),
};
/* clang-format on */
