/* SPDX-License-Identifier: MIT */
/* Rotary embeddings (Su et al. 2021, "RoFormer"): channels i and i + size / 2 of each head of the queries and keys, as
 * a point of the plane, turn by the angle place * base^(-2 i / size); the gradient turns back. Angles are products of
 * f32, as in transformers' Llama. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

typedef struct rotary_op {
    nets_op base;
    mm_host_pool *pool;
    int64_t rows, places, width; /* width: of all channels */
    int64_t turned, half;        /* heads that turn; pairs of a head */
    float *turns;                /* [places][2][half]: cosines, then sines */
} rotary_op;

typedef struct rotary_run {
    const rotary_op *op;
    const float *from, *earlier;
    float *to;
    float way; /* 1: forward; -1: back */
} rotary_run;

/* Turns one head. `to` may be `from`, or `earlier`: each pair is read before it is written. */
static void turn(const rotary_run *r, int64_t place, int64_t at) {
    const int64_t half = r->op->half;
    const float *cosines = r->op->turns + place * 2 * half, *sines = cosines + half, way = r->way;
    const float *from = r->from + at, *earlier = r->earlier ? r->earlier + at : NULL;
    float *to = r->to + at;
    for (int64_t i = 0; i < half; i++) {
        const float a = from[i], b = from[i + half], sine = way * sines[i];
        const float x = a * cosines[i] - b * sine, y = b * cosines[i] + a * sine;
        to[i] = earlier ? x + earlier[i] : x;
        to[i + half] = earlier ? y + earlier[i + half] : y;
    }
}

static void turn_rows(const void *ctx, int64_t first, int64_t end) {
    const rotary_run *r = ctx;
    const int64_t width = r->op->width, rest = 2 * r->op->turned * r->op->half;
    for (int64_t row = first; row < end; row++) {
        for (int64_t head = 0; head < r->op->turned; head++)
            turn(r, row % r->op->places, row * width + head * 2 * r->op->half);
        for (int64_t e = row * width + rest; e < (row + 1) * width; e++)
            r->to[e] = r->earlier ? r->from[e] + r->earlier[e] : r->from[e];
    }
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const rotary_op *op = (const rotary_op *)base;
    const rotary_run r = {op, args->at[NETS_X], NULL, args->at[NETS_Y], 1};
    nets_ranges(op->pool, op->rows, 1, op->width, turn_rows, &r);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const rotary_op *op = (const rotary_op *)base;
    const rotary_run r = {op, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX], -1};
    nets_ranges(op->pool, op->rows, 1, op->width, turn_rows, &r);
    return MM_OK;
}

static void destroy(nets_op *base) {
    free(((rotary_op *)base)->turns);
    free(base);
}

static void fill_turns(rotary_op *op, double base) {
    for (int64_t i = 0; i < op->half; i++) {
        const float speed = (float)pow(base, -(double)i / (double)op->half);
        for (int64_t place = 0; place < op->places; place++) {
            float *at = op->turns + place * 2 * op->half + i;
            const float angle = (float)place * speed;
            at[0] = cosf(angle);
            at[op->half] = sinf(angle);
        }
    }
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const int64_t heads = desc->attrs.heads, kv_heads = nets_kv_heads(&desc->attrs);
    rotary_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a rotary embedding");
    op->base.impl = &nets_host_op_rotary.base;
    op->pool = nets_host_pool(backend);
    op->rows = nets_shape_rows(&desc->y);
    op->places = op->rows / desc->y.dims[0];
    op->width = nets_shape_channels(&desc->y);
    op->turned = heads + kv_heads;
    op->half = op->width / (heads + 2 * kv_heads) / 2;
    op->turns = malloc((size_t)(op->places * 2 * op->half) * sizeof *op->turns);
    if (!op->turns) {
        free(op);
        return mm_fail(MM_ERR_NOMEM, "no memory for the angles of a rotary embedding");
    }
    fill_turns(op, desc->attrs.base);
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_rotary =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, destroy, NULL, run_forward, run_backward);
