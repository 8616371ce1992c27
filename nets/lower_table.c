#include "nets/lower_table.h"

/* clang-format off */
#define R(role) {NETS_##role, MM_READ, MM_FORM_VALUE}
#define S(role) {NETS_##role, MM_READ, MM_FORM_SIGN}
#define W(role) {NETS_##role, MM_WRITE, MM_FORM_VALUE}
#define M(role) {NETS_##role, MM_MODIFY, MM_FORM_VALUE}
#define INPLACE(input, output) {NETS_##input, NETS_##output, NETS_OVER}
#define INPLACE_OR_EARLIER(input, output) {NETS_##input, NETS_##output, NETS_OVER_OR_EARLIER}
#define ALIAS(input, output) {NETS_##input, NETS_##output, NETS_EQUAL_OR_EARLIER}

/* Gradients by inputs, with the earlier consumers' contributions. */
#define GIVES_DX R(EARLIER), W(DX)

/* Of each input. */
#define EACH_X R(X), R(X + 1), R(X + 2), R(X + 3), R(X + 4), R(X + 5), R(X + 6), R(X + 7)
#define GIVES_DX_OF(i) R(EARLIER + i), W(DX + i)
#define GIVES_EACH_DX GIVES_DX_OF(0), GIVES_DX_OF(1), GIVES_DX_OF(2), GIVES_DX_OF(3), GIVES_DX_OF(4), GIVES_DX_OF(5), \
    GIVES_DX_OF(6), GIVES_DX_OF(7)
#define EARLIER_INPLACE(i) INPLACE(EARLIER + i, DX + i)
#define EACH_EARLIER_INPLACE EARLIER_INPLACE(0), EARLIER_INPLACE(1), EARLIER_INPLACE(2), EARLIER_INPLACE(3), \
    EARLIER_INPLACE(4), EARLIER_INPLACE(5), EARLIER_INPLACE(6), EARLIER_INPLACE(7)
_Static_assert(NETS_MAX_INPUTS == 8, "each input is listed");

static const nets_op_lowering TABLE[NETS_OP_KINDS] = {
    [NETS_DATA] = {
        .kind = MM_LAYER_DATA,
        .forward = {.uses = {W(Y), W(LABELS)}},
        .eval = {.uses = {W(Y), W(LABELS)}},
    },
    [NETS_CONV] = {
        .kind = MM_LAYER_CONV,
        .forward = {.uses = {R(X), R(W), R(B), W(Y)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}},
        .backward = {.uses = {R(X), R(W), R(DY), GIVES_DX, W(DW), W(DB)}, .pairs = {EARLIER_INPLACE(0)}},
    },
    [NETS_CONV_TRANSPOSE] = {
        .kind = MM_LAYER_CONV,
        .forward = {.uses = {R(X), R(W), R(B), W(Y)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}},
        .backward = {.uses = {R(X), R(W), R(DY), GIVES_DX, W(DW), W(DB)}, .pairs = {EARLIER_INPLACE(0)}},
    },
    [NETS_BATCH_NORM] = {
        .kind = MM_LAYER_BATCH_NORM,
        .saved = {{NETS_SAVED_MEAN, MM_F32, true, "mean"}, {NETS_SAVED_VAR, MM_F32, true, "var"}},
        .forward = {.uses = {R(X), R(W), R(B), W(Y), W(SAVED_MEAN), W(SAVED_VAR), M(MEAN), M(VAR)}},
        .eval = {.uses = {R(X), R(W), R(B), R(MEAN), R(VAR), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(W), R(B), R(SAVED_MEAN), R(SAVED_VAR), R(DY), GIVES_DX, W(DW), W(DB)},
                     .pairs = {INPLACE(DY, DX)}},
    },
    [NETS_LRN] = {
        .kind = MM_LAYER_LRN,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(X), R(DY), GIVES_DX}, .pairs = {INPLACE(DY, DX)}},
    },
    [NETS_RELU] = {
        .kind = MM_LAYER_RELU,
        .forward = {.uses = {R(X), R(B), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .eval = {.uses = {R(X), R(B), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {S(Y), R(DY), GIVES_DX, W(DB)}, .pairs = {INPLACE(DY, DX)}},
    },
    [NETS_MAX_POOL] = {
        .kind = MM_LAYER_POOL,
        .saved = {{NETS_INDEX, MM_U8, false, "index"}},
        .forward = {.uses = {R(X), W(Y), W(INDEX)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(INDEX), R(DY), GIVES_DX}},
    },
    [NETS_AVG_POOL] = {
        .kind = MM_LAYER_POOL,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(DY), GIVES_DX}},
    },
    [NETS_GLOBAL_AVG_POOL] = {
        .kind = MM_LAYER_POOL,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(DY), GIVES_DX}},
    },
    [NETS_LINEAR] = {
        .kind = MM_LAYER_LINEAR,
        .forward = {.uses = {R(X), R(W), R(B), W(Y)}},
        .eval = {.uses = {R(X), R(W), R(B), W(Y)}},
        .backward = {.uses = {R(X), R(W), R(DY), GIVES_DX, W(DW), W(DB)}},
    },
    [NETS_ADD] = {
        .kind = MM_LAYER_ADD,
        .forward = {.uses = {R(X), R(X2), W(Y)}, .pairs = {INPLACE(X, Y), INPLACE(X2, Y)}},
        .eval = {.uses = {R(X), R(X2), W(Y)}, .pairs = {INPLACE(X, Y), INPLACE(X2, Y)}},
        .backward = {.uses = {R(DY), GIVES_DX, R(EARLIER2), W(DX2)}, .pairs = {ALIAS(DY, DX), ALIAS(DY, DX2)}},
    },
    [NETS_CONCAT] = {
        .kind = MM_LAYER_CONCAT,
        .forward = {.uses = {EACH_X, W(Y)}},
        .eval = {.uses = {EACH_X, W(Y)}},
        .backward = {.uses = {R(DY), GIVES_EACH_DX}, .pairs = {EACH_EARLIER_INPLACE}},
    },
    [NETS_CROP] = {
        .kind = MM_LAYER_CROP,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(DY), GIVES_DX}, .pairs = {EARLIER_INPLACE(0)}},
    },
    [NETS_UPSAMPLE] = {
        .kind = MM_LAYER_UPSAMPLE,
        .forward = {.uses = {R(X), W(Y)}},
        .eval = {.uses = {R(X), W(Y)}},
        .backward = {.uses = {R(DY), GIVES_DX}},
    },
    [NETS_DROPOUT] = {
        .kind = MM_LAYER_DROPOUT,
        .identity_in_eval = true,
        .forward = {.uses = {R(X), R(RNG), W(Y)}, .pairs = {INPLACE(X, Y)}},
        .backward = {.uses = {R(RNG), R(DY), GIVES_DX}, .pairs = {INPLACE(DY, DX)}},
    },
    [NETS_LOSS] = {
        .kind = MM_LAYER_LOSS,
        .forward = {.uses = {R(X), R(LABELS), W(Y), W(LOSS_VALUE), W(CORRECT)}, .pairs = {INPLACE(X, Y)}},
        .eval = {.uses = {R(X), R(LABELS), W(LOSS_VALUE), W(CORRECT)}},
        .backward = {.uses = {R(Y), R(LABELS), GIVES_DX}, .pairs = {INPLACE(Y, DX)}},
    },
};

/* A batch norm with its ReLU, and the sum between them where it has a second input. */
static const nets_op_lowering BATCH_NORM_RELU = {
    .kind = MM_LAYER_BATCH_NORM_RELU,
    .saved = {{NETS_SAVED_MEAN, MM_F32, true, "mean"}, {NETS_SAVED_VAR, MM_F32, true, "var"}},
    .forward = {.uses = {R(X), R(X2), R(W), R(B), W(Y), W(SAVED_MEAN), W(SAVED_VAR), M(MEAN), M(VAR)},
                .pairs = {INPLACE(X2, Y)}},
    .eval = {.uses = {R(X), R(X2), R(W), R(B), R(MEAN), R(VAR), W(Y)}, .pairs = {INPLACE(X, Y), INPLACE(X2, Y)}},
    .backward = {.uses = {R(X), R(W), R(B), R(SAVED_MEAN), R(SAVED_VAR), S(Y), R(DY), GIVES_DX, GIVES_DX_OF(1), W(DW),
                          W(DB)},
                 .pairs = {INPLACE(DY, DX), INPLACE_OR_EARLIER(Y, DX2)}},
};
/* clang-format on */

const nets_op_lowering *nets_op_lowering_of(nets_op_kind op, bool relu) {
    return op == NETS_BATCH_NORM && relu ? &BATCH_NORM_RELU : &TABLE[op];
}
