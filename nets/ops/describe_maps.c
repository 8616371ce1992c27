/* SPDX-License-Identifier: MIT */
/* Dropout, sums and products of maps, and operations that join, crop or enlarge maps. */
#include "nets/ops/describe.h"

/* ---------------------------------------------------------------- element by element */

/* clang-format off */
const nets_op_info nets_info_dropout = {
    .name = "dropout",
    .what = "sets elements to zero at random in training, the others divided by 1 - p",
    .output = "the input's",
    .example = LAYER("drop", "dropout", "\"data\"", ", \"p\": 0.5"),
    .min_inputs = 1, .max_inputs = 1,
    .attrs = ATTRS(ATTR(p, "the rate of zeros", VALUE(0), 0, 1, false, true, NULL),
        ATTR(by_sample, "drops whole samples (stochastic depth), not single elements", FLAG)),
    .infer = nets_infer_same,
    .steps = {
        .kind = MM_LAYER_DROPOUT,
        .repeats = true, /* it draws by the iteration's key and the element's index (mm/core/philox.h) */
        .identity_in_eval = true,
        .forward = {.uses = {R(X), R(RNG), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(RNG), R(DY), GIVES_DX}, .pairs = {INPLACE(DY, DX)}},
    },
};
/* clang-format on */

static mm_status infer_add(nets_layer *layer, const nets_shape *in) {
    char first[NETS_SHAPE_TEXT_CAPACITY], second[NETS_SHAPE_TEXT_CAPACITY];
    if (!nets_shape_equal(&in[0], &in[1]))
        return mm_fail(MM_ERR_INVALID, "layer %s: cannot add %s to %s", layer->name, nets_shape_text(&in[1], second),
                       nets_shape_text(&in[0], first));
    return nets_infer_same(layer, in);
}

/* clang-format off */
const nets_op_info nets_info_add = {
    .name = "add",
    .what = "sum of two inputs of one shape",
    .output = "the inputs'",
    .example = LAYER("sum1", "add", "\"conv2\", \"conv1\"", ""),
    .min_inputs = 2, .max_inputs = 2,
    .infer = infer_add,
    .steps = {
        .kind = MM_LAYER_ADD,
        .forward = {.uses = {R(X), R(X2), W(Y)}, .pairs = {INPLACE(X, Y), INPLACE(X2, Y)}},
        .eval = {.uses = {R(X), R(X2), W(Y)}, .pairs = {INPLACE(X, Y), INPLACE(X2, Y)}},
        .backward = {.uses = {R(DY), GIVES_DX, GIVES_DX_OF(1)}, .pairs = {ALIAS(DY, DX), ALIAS(DY, DX2)}},
    },
};
/* clang-format on */

static mm_status infer_mul(nets_layer *layer, const nets_shape *in) {
    char first[NETS_SHAPE_TEXT_CAPACITY], second[NETS_SHAPE_TEXT_CAPACITY];
    const bool for_each_channel = in[0].rank == in[1].rank && nets_shape_rows(&in[1]) == 1 &&
                                  nets_shape_channels(&in[0]) == nets_shape_channels(&in[1]);
    if (!for_each_channel && !nets_shape_equal(&in[0], &in[1]))
        return mm_fail(MM_ERR_INVALID,
                       "layer %s: cannot multiply %s by %s; the second input must have the first's shape, or one "
                       "number for each of its channels",
                       layer->name, nets_shape_text(&in[0], first), nets_shape_text(&in[1], second));
    return nets_infer_same(layer, in);
}

/* clang-format off */
const nets_op_info nets_info_mul = {
    .name = "mul",
    .what = "the first input times a second, of its shape, or 1, 1, channels (squeeze and excite)",
    .output = "the first input's",
    .example = LAYER("scaled1", "mul", "\"conv2\", \"gate1\"", ""),
    .min_inputs = 2, .max_inputs = 2,
    .infer = infer_mul,
    .steps = {
        .kind = MM_LAYER_ADD,
        .forward = {.uses = {R(X), R(X2), W(Y)}},
        .eval = {.uses = {R(X), R(X2), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(X2), R(DY), GIVES_DX, GIVES_DX_OF(1)}, .pairs = {INPLACE(DY, DX)}},
    },
};
/* clang-format on */

/* ---------------------------------------------------------------- joining and cropping */

static mm_status infer_concat(nets_layer *layer, const nets_shape *in) {
    char first[NETS_SHAPE_TEXT_CAPACITY], other[NETS_SHAPE_TEXT_CAPACITY];
    MM_TRY(nets_infer_same(layer, in));
    for (int i = 1; i < layer->n_inputs; i++) {
        nets_shape pixels[2] = {in[0], in[i]};
        for (int k = 0; k < 2; k++) pixels[k].dims[--pixels[k].rank] = 0;
        if (!nets_shape_equal(&pixels[0], &pixels[1]))
            return mm_fail(MM_ERR_INVALID, "layer %s: its input %d is %s, not %s as the first", layer->name, i,
                           nets_shape_text(&pixels[1], other), nets_shape_text(&pixels[0], first));
        layer->shape.dims[in->rank - 1] += nets_shape_channels(&in[i]);
    }
    return MM_OK;
}

/* clang-format off */
#define EACH_X R(X), R(X + 1), R(X + 2), R(X + 3), R(X + 4), R(X + 5), R(X + 6), R(X + 7)
#define GIVES_EACH_DX GIVES_DX_OF(0), GIVES_DX_OF(1), GIVES_DX_OF(2), GIVES_DX_OF(3), GIVES_DX_OF(4), GIVES_DX_OF(5), \
    GIVES_DX_OF(6), GIVES_DX_OF(7)
#define EACH_EARLIER_INPLACE EARLIER_INPLACE(0), EARLIER_INPLACE(1), EARLIER_INPLACE(2), EARLIER_INPLACE(3), \
    EARLIER_INPLACE(4), EARLIER_INPLACE(5), EARLIER_INPLACE(6), EARLIER_INPLACE(7)
_Static_assert(NETS_MAX_INPUTS == 8, "each input is listed");

const nets_op_info nets_info_concat = {
    .name = "concat",
    .what = "the inputs' channels one after the other",
    .output = "height, width of every input; the sum of their channels",
    .example = LAYER("cat1", "concat", "\"conv1\", \"conv2\"", ""),
    .min_inputs = 2, .max_inputs = NETS_MAX_INPUTS,
    .infer = infer_concat,
    .steps = {
        .kind = MM_LAYER_CONCAT,
        .forward = {.uses = {EACH_X, W(Y)}},
        .eval = {.uses = {EACH_X, W(Y)}},
        .backward = {.uses = {R(DY), GIVES_EACH_DX}, .pairs = {EACH_EARLIER_INPLACE}},
    },
};
/* clang-format on */

static bool is_within(const nets_layer *layer, const nets_shape *in, size_t d) {
    return layer->attrs.out_size[d] <= in->dims[d];
}

static bool ends_within(const nets_layer *layer, const nets_shape *in, size_t d) {
    return layer->attrs.offset[d] + layer->attrs.out_size[d] <= in->dims[d];
}

static const nets_attr_rule WITHIN = {"at most the input's", NULL, true, is_within};
static const nets_attr_rule ENDS_WITHIN = {"with out_size at most the input's", "out_size", true, ends_within};

static mm_status infer_crop(nets_layer *layer, const nets_shape *in) {
    nets_attrs *a = &layer->attrs;
    MM_TRY(nets_infer_same(layer, in));
    for (int d = 0; d < 2; d++) {
        int64_t half = (in->dims[d] - a->out_size[d]) / 2;
        if (a->center && a->offset[d] != 0 && a->offset[d] != half)
            return mm_fail(MM_ERR_INVALID, "layer %s: \"offset\" is %lld, but \"center\" makes it %lld; leave one out",
                           layer->name, (long long)a->offset[d], (long long)half);
        if (a->center) a->offset[d] = half;
        layer->shape.dims[d] = a->out_size[d];
    }
    return MM_OK;
}

/* clang-format off */
const nets_op_info nets_info_crop = {
    .name = "crop",
    .what = "a rectangle of every channel",
    .output = "out_size; channels",
    .example = LAYER("crop1", "crop", "\"data\"", ", \"out_size\": [6, 4], \"center\": true"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(
        ATTR(out_size, "height and width of what is kept", REQUIRED, FROM(1, INT32_MAX), &WITHIN),
        ATTR(offset, "what is cut off at the top and left", VALUE(0), FROM(0, INT32_MAX), &ENDS_WITHIN),
        ATTR(center, "the offset is half of what is cut off, rounded down", FLAG)),
    .infer = infer_crop,
    .steps = {
        .kind = MM_LAYER_CROP,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(DY), GIVES_DX}, .pairs = {EARLIER_INPLACE(0)}},
    },
};
/* clang-format on */

/* ---------------------------------------------------------------- upsampling */

static mm_status infer_upsample(nets_layer *layer, const nets_shape *in) {
    MM_TRY(nets_infer_same(layer, in));
    for (int d = 0; d < 2; d++) layer->shape.dims[d] *= layer->attrs.scale[d];
    return MM_OK;
}

/* clang-format off */
const nets_op_info nets_info_upsample = {
    .name = "upsample",
    .what = "enlarges by a whole factor, as torch's Upsample",
    .output = "height * scale, width * scale, channels",
    .example = LAYER("up1", "upsample", "\"data\"", ", \"scale\": 2, \"bilinear\": true"),
    .min_inputs = 1, .max_inputs = 1, .input_rank = 3,
    .attrs = ATTRS(
        ATTR(scale, "the factor", REQUIRED, EXTENT, NULL),
        ATTR(bilinear, "interpolates (align_corners=False); else nearest", FLAG)),
    .infer = infer_upsample,
    .steps = {
        .kind = MM_LAYER_UPSAMPLE,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(DY), GIVES_DX}},
    },
};
/* clang-format on */
