/* SPDX-License-Identifier: MIT */
/* ReLU, also with a bias that is added before it; also in place. */
#include <stdlib.h>

#include "nets/host/channels.h"
#include "nets/host/host_ops.h"

enum { WORD_BITS = 32 }; /* bits of a sign mask's word */

typedef struct relu_op {
    nets_op base;
    nets_channels channels;
    bool bias, wants_dx;
} relu_op;

/* What the loops read and write. They treat all elements alike; a range begins at a word of the mask. */
typedef struct gating {
    const nets_simd_map *lines;
    int64_t elem_bytes;
    const char *x;
    char *y;
    nets_channels_bias b;
} gating;

static void rectify(const void *ctx, int64_t from, int64_t to) {
    const gating *g = ctx;
    g->lines->rectify(g->x + from * g->elem_bytes, to - from, g->y + from * g->elem_bytes);
}

static void gate(const void *ctx, int64_t from, int64_t to) {
    const gating *g = ctx;
    const nets_channels_bias *b = &g->b;
    const int64_t at = from * g->elem_bytes;
    char *dx = (char *)b->dx + at;
    g->lines->gate(b->y ? (const char *)b->y + at : NULL, b->mask ? b->mask + from / WORD_BITS : NULL,
                   (const char *)b->dy + at, to - from, dx);
    if (b->earlier) g->lines->add(dx, (const char *)b->earlier + at, to - from, dx);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const relu_op *op = (const relu_op *)base;
    const nets_channels *ch = &op->channels;
    const gating g = {.lines = ch->lines, .elem_bytes = ch->elem_bytes, .x = args->at[NETS_X], .y = args->at[NETS_Y]};
    if (op->bias)
        nets_channels_add_bias(ch, args->at[NETS_X], args->at[NETS_B], true, args->at[NETS_Y],
                               args->at[NETS_WORKSPACE]);
    else
        nets_ranges(ch->pool, ch->elems, 1, 1, rectify, &g);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const relu_op *op = (const relu_op *)base;
    const nets_channels *ch = &op->channels;
    bool by_mask = args->sign_roles & NETS_ROLE_BIT(NETS_Y);
    const nets_channels_bias b = {.y = by_mask ? NULL : args->at[NETS_Y],
                                  .mask = by_mask ? args->at[NETS_Y] : NULL,
                                  .dy = args->at[NETS_DY],
                                  .earlier = args->at[NETS_EARLIER],
                                  .dx = op->wants_dx ? args->at[NETS_DX] : NULL,
                                  .dbias = args->at[NETS_DB]};
    if (op->bias) {
        nets_channels_bias_backward(ch, &b, args->at[NETS_WORKSPACE]);
        return MM_OK;
    }
    const gating g = {.lines = ch->lines, .elem_bytes = ch->elem_bytes, .b = b};
    nets_ranges(ch->pool, ch->elems, WORD_BITS, 1, gate, &g);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const relu_op *op = (const relu_op *)base;
    if (!op->bias) return 0;
    bool chunk = phase == MM_BACKWARD && !op->wants_dx;
    return op->channels.scratch_bytes + (chunk ? op->channels.chunk_bytes : 0);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    relu_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a relu");
    *op = (relu_op){.base.impl = &nets_host_op_relu.base,
                    .channels = nets_channels_of(nets_shape_rows(&desc->x[0]), nets_shape_channels(&desc->x[0]),
                                                 desc->maps, nets_host_pool(backend)),
                    .bias = desc->attrs.bias,
                    .wants_dx = desc->wants_dx};
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_relu = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                        nets_host_free, workspace_bytes, run_forward, run_backward);
