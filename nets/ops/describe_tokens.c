/* SPDX-License-Identifier: MIT */
/* Operations of transformers. A sample is a row of tokens: maps are [1, tokens, channels]. */
#include "nets/ops/describe.h"

/* The first input's shape with other channels. */
static mm_status infer_channels(nets_layer *layer, const nets_shape *in, int64_t channels) {
    layer->shape = *in;
    layer->shape.dims[in->rank - 1] = channels;
    return MM_OK;
}

static int matrix(int64_t rows, int64_t columns, int64_t dims_out[MM_RANK_MAX]) {
    dims_out[0] = rows;
    dims_out[1] = columns;
    return 2;
}

/* clang-format off */
/* The default is GPT-2's. */
#define DEVIATION ATTR(deviation, "standard deviation of initial weights", VALUE(0.02), ABOVE(0, 16), NULL)
#define NORMAL    {NETS_INIT_NORMAL, 0}
/* clang-format on */

/* ---------------------------------------------------------------- embeddings */

static mm_status infer_embedding(nets_layer *layer, const nets_shape *in) {
    char text[NETS_SHAPE_TEXT_CAPACITY];
    if (nets_shape_channels(in) != 1)
        return mm_fail(MM_ERR_INVALID, "layer %s: its input is %s, must have one channel, the tokens' numbers",
                       layer->name, nets_shape_text(in, text));
    return infer_channels(layer, in, layer->attrs.out_channels);
}

static int embedding_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    (void)in;
    return matrix(layer->attrs.vocabulary, layer->attrs.out_channels, dims_out);
}

static int position_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    (void)layer;
    return matrix(nets_shape_rows(in), nets_shape_channels(in), dims_out);
}

/* clang-format off */
const nets_op_info nets_info_embedding = {
    .name = "embedding",
    .what = "a learned row for each token; the input has the tokens' numbers, from 0, as floats",
    .output = "height, width; out_channels",
    .example = LAYER("wte", "embedding", "\"data\"", ", \"vocabulary\": 256, \"out_channels\": 128"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(
        ATTR(vocabulary, "how many tokens there are", REQUIRED, EXTENT, NULL), OUT_CHANNELS, DEVIATION),
    .infer = infer_embedding,
    .params = {{"weight", "vocabulary, out_channels", embedding_weight, NORMAL, .learned = true, .decayed = true,
                .looked_up = true}},
    .steps = {
        .kind = MM_LAYER_EMBEDDING,
        .forward = {.uses = {R(X), R(W), W(Y)}},
        .eval = {.uses = {R(X), R(W), W(Y)}},
        .backward = {.uses = {R(X), R(DY), W(DW)}},
    },
};

const nets_op_info nets_info_position = {
    .name = "position",
    .what = "adds a learned row to each token, by its place",
    .output = "the input's",
    .example = LAYER("wpe", "position", "\"wte\"", ""),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(DEVIATION),
    .infer = nets_infer_same,
    .params = {{"weight", "height * width, channels", position_weight, NORMAL, .learned = true, .decayed = true}},
    .steps = {
        .kind = MM_LAYER_EMBEDDING,
        .forward = {.uses = {R(X), R(W), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .eval = {.uses = {R(X), R(W), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(DY), GIVES_DX, W(DW)}, .pairs = {ALIAS(DY, DX)}},
    },
};

/* clang-format on */

static mm_status infer_class_token(nets_layer *layer, const nets_shape *in) {
    layer->shape = (nets_shape){3, {1, nets_shape_rows(in) + 1, nets_shape_channels(in)}};
    return MM_OK;
}

static int class_token_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    (void)layer;
    dims_out[2] = nets_shape_channels(in);
    return 3;
}

static int class_token_position(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    dims_out[1] = nets_shape_rows(&layer->shape);
    return class_token_weight(layer, in, dims_out);
}

/* clang-format off */
const nets_op_info nets_info_class_token = {
    .name = "class_token",
    .what = "the pixels as tokens behind a learned one; a learned row is added to each, by its place",
    .output = "1, height * width + 1; channels",
    .example = LAYER("tokens", "class_token", "\"patches\"", ""),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(DEVIATION),
    .infer = infer_class_token,
    .params = {
        {"token", "1, 1, channels", class_token_weight, CONSTANT(0), .learned = true, .decayed = true},
        {"position", "1, height * width + 1, channels", class_token_position, NORMAL, .learned = true, .decayed = true},
    },
    .steps = {
        .kind = MM_LAYER_EMBEDDING,
        .forward = {.uses = {R(X), R(W), R(B), W(Y)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}},
        .backward = {.uses = {R(DY), GIVES_DX, W(DW), W(DB)}},
    },
};

/* ---------------------------------------------------------------- maps */

static nets_shape saved_rows(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y) {
    (void)attrs, (void)x;
    return (nets_shape){1, {nets_shape_rows(y)}};
}

const nets_op_info nets_info_layer_norm = {
    .name = "layer_norm",
    .what = "normalises the channels of each token, then scales and shifts them",
    .output = "the input's",
    .example = LAYER("ln_1", "layer_norm", "\"wpe\"", ""),
    .min_inputs = 1, .max_inputs = 1,
    .attrs = ATTRS(ATTR(eps, "added to the variance", VALUE(1e-5), 0, 1, true, true, NULL)),
    .infer = nets_infer_same,
    .params = {
        {"weight", "channels", nets_channels_in, CONSTANT(1), .learned = true},
        {"bias", "channels", nets_channels_in, CONSTANT(0), .learned = true},
    },
    .steps = {
        .kind = MM_LAYER_LAYER_NORM,
        .saved = {{"mean", MM_F32, saved_rows, false}, {"factor", MM_F32, saved_rows, false}},
        .forward = {.uses = {R(X), R(W), R(B), W(Y), W(SAVED_MEAN), W(SAVED_VAR)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(W), R(SAVED_MEAN), R(SAVED_VAR), R(DY), GIVES_DX, W(DW), W(DB)},
                     .pairs = {INPLACE(DY, DX)}},
    },
};

const nets_op_info nets_info_rms_norm = {
    .name = "rms_norm",
    .what = "divides the channels of each token by the root of their mean square, then scales them",
    .output = "the input's",
    .example = LAYER("norm1", "rms_norm", "\"wte\"", ""),
    .min_inputs = 1, .max_inputs = 1,
    .attrs = ATTRS(ATTR(eps, "added to the mean square", VALUE(1e-6), 0, 1, true, true, NULL)),
    .infer = nets_infer_same,
    .params = {{"weight", "channels", nets_channels_in, CONSTANT(1), .learned = true}},
    .steps = {
        .kind = MM_LAYER_LAYER_NORM,
        .saved = {{"factor", MM_F32, saved_rows, false}},
        .forward = {.uses = {R(X), R(W), W(Y), W(SAVED)}},
        .eval = {.uses = {R(X), R(W), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(W), R(SAVED), R(DY), GIVES_DX, W(DW)}, .pairs = {INPLACE(DY, DX)}},
    },
};
/* clang-format on */

static mm_status infer_project(nets_layer *layer, const nets_shape *in) {
    return infer_channels(layer, in, layer->attrs.out_channels);
}

static int project_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    const int64_t channels = nets_shape_channels(in), out = layer->attrs.out_channels;
    return layer->attrs.by_output ? matrix(out, channels, dims_out) : matrix(channels, out, dims_out);
}

/* clang-format off */
const nets_op_info nets_info_project = {
    .name = "project",
    .what = "linear in the channels of each token",
    .output = "height, width; out_channels",
    .example = LAYER("c_fc", "project", "\"ln_2\"", ", \"out_channels\": 512, \"bias\": true"),
    .min_inputs = 1, .max_inputs = 1,
    .attrs = ATTRS(OUT_CHANNELS, BIAS,
        ATTR(by_output, "the weight is stored by output channel, as torch's; else by input, as GPT-2's", FLAG),
        DEVIATION, ATTR(zero, "initial weights are zero", FLAG)),
    .infer = infer_project,
    .params = {
        {"weight", "channels, out_channels (by_output: the other way)", project_weight, NORMAL, .learned = true, .decayed = true,
         .factor = true},
        {"bias", "out_channels", nets_channels_out, CONSTANT(0), .learned = true, .with = "bias"},
    },
    .steps = {
        .kind = MM_LAYER_LINEAR,
        .forward = {.uses = {R(X), R(W), R(B), W(Y)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}},
        .backward = {.uses = {X_FOR_DW, R(W), R(DY), GIVES_DX, W(DW), W(DB)}},
    },
    .skips_frozen = true,
};
/* clang-format on */

/* ---------------------------------------------------------------- attention */

/* Heads of queries, keys and values. */
static int64_t all_heads(const nets_layer *layer) { return layer->attrs.heads + 2 * nets_kv_heads(&layer->attrs); }

static bool divides_channels(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)d;
    return nets_shape_channels(in) % all_heads(layer) == 0;
}

static bool divides_heads(const nets_layer *layer, const nets_shape *in, size_t d) {
    (void)in, (void)d;
    return layer->attrs.heads % nets_kv_heads(&layer->attrs) == 0;
}

static const nets_attr_rule DIVIDES_CHANNELS = {"with twice kv_heads dividing the channels", "kv_heads", true,
                                                divides_channels};
static const nets_attr_rule DIVIDES_HEADS = {"dividing heads", "heads", false, divides_heads};

/* clang-format off */
#define HEADS    ATTR(heads, "heads of queries, each attended by itself", REQUIRED, EXTENT, &DIVIDES_CHANNELS)
#define KV_HEADS ATTR(kv_heads, "heads of keys and of values, each for as many neighbouring heads of queries; 0: one for each", \
                      VALUE(0), EXTENT_OR_0, &DIVIDES_HEADS)
/* clang-format on */

static mm_status infer_rotary(nets_layer *layer, const nets_shape *in) {
    const int64_t size = nets_shape_channels(in) / all_heads(layer);
    if (size % 2)
        return mm_fail(MM_ERR_INVALID, "layer %s: its heads have %lld channels, must have an even number", layer->name,
                       (long long)size);
    return nets_infer_same(layer, in);
}

/* clang-format off */
/* Su et al. 2021, "RoFormer"; the pairs are channels i and i + size / 2 of a head, as in transformers' files of Llamas.
 * The default of `base` is the paper's. */
const nets_op_info nets_info_rotary = {
    .name = "rotary",
    .what = "turns pairs of channels of queries and keys by the token's place; channels as attention's",
    .output = "the input's",
    .example = LAYER("rotary", "rotary", "\"qkv\"", ", \"heads\": 4, \"kv_heads\": 2"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(HEADS, KV_HEADS,
        ATTR(base, "the longest turn takes nearly 2 pi base tokens", VALUE(10000), ABOVE(1, 1e12), NULL)),
    .infer = infer_rotary,
    .steps = {
        .kind = MM_LAYER_CONCAT,
        .forward = {.uses = {R(X), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .eval = {.uses = {R(X), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(DY), GIVES_DX}, .pairs = {INPLACE(DY, DX)}},
    },
};
/* clang-format on */

static mm_status infer_attention(nets_layer *layer, const nets_shape *in) {
    return infer_channels(layer, in, nets_shape_channels(in) / all_heads(layer) * layer->attrs.heads);
}

/* A number for each token and head: [n, heads, tokens]. */
static nets_shape saved_heads(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y) {
    (void)x;
    return (nets_shape){3, {y->dims[0], attrs->heads, nets_shape_rows(y) / y->dims[0]}};
}

/* clang-format off */
const nets_op_info nets_info_attention = {
    .name = "attention",
    .what = "attention; the input's channels are all heads' queries, then keys, then values",
    .output = "height, width; the queries' channels: channels / 3, if kv_heads is heads",
    .example = LAYER("attn", "attention", "\"c_attn\"", ", \"heads\": 4"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(HEADS, KV_HEADS,
        ATTR(full, "each token attends to all; else (causal) to those up to itself", FLAG)),
    .infer = infer_attention,
    .steps = {
        .kind = MM_LAYER_ATTENTION,
        .saved = {{"log_sums", MM_F32, saved_heads, false}},
        .forward = {.uses = {R(X), W(Y), W(SAVED)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(X), R(Y), R(SAVED), R(DY), GIVES_DX}},
    },
};
/* clang-format on */

/* ---------------------------------------------------------------- loss */

static int token_loss_weight(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    return matrix(layer->attrs.out_channels, nets_shape_channels(in), dims_out);
}

/* The forward writes Y, which is the gradient with respect to X, and the weight's gradient: scores exist for a few
 * tokens at a time only, and are not computed again. Only if the weight's gradient is computed in parts at the end of
 * the backward pass (nets/lower/param_parts.h), the scores' gradients are saved, in SAVED. */
/* clang-format off */
const nets_op_info nets_info_token_loss = {
    .name = "token_loss",
    .what = "each token's scores of all classes, by a product, and their loss; a file's last layer",
    .output = "the input's: in training, its gradient",
    .example = LAYER("loss", "token_loss", "\"ln_f\"", ", \"out_channels\": 256, \"tied\": true"),
    .min_inputs = 1, .max_inputs = 1, .loss = true,
    .attrs = ATTRS(
        ATTR(out_channels, "the classes", REQUIRED, EXTENT, NULL),
        ATTR(tied, "the weight is the embedding's", FLAG), DEVIATION),
    .infer = nets_infer_same,
    .params = {{"weight", "out_channels, channels", token_loss_weight, NORMAL, .learned = true, .decayed = true,
                .factor = true, .without = "tied"}},
    .steps = {
        .kind = MM_LAYER_LOSS,
        .forward = {.uses = {R(X), R(W), R(LABELS), R(RNG), W(Y), W(DW), W(SAVED), W(LOSS_VALUE), W(CORRECT)}},
        .eval = {.uses = {R(X), R(W), R(LABELS), W(LOSS_VALUE), W(CORRECT)}},
        .backward = {.uses = {R(Y), GIVES_DX}, .pairs = {ALIAS(Y, DX)}},
    },
    .skips_frozen = true,
};
/* clang-format on */
