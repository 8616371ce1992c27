/* SPDX-License-Identifier: MIT */
/* GELU, element by element, also in place. bf16 is computed in blocks of f32, and rounded once. */
#include <math.h>
#include <stdlib.h>

#include "mm/core/graph/dtype.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"
#include "nets/host/simd_row.h"

enum { BLOCK = 1024 }; /* elements: they stay in the fastest cache. Chosen */

typedef struct gelu_op {
    nets_op base;
    mm_host_pool *pool;
    const nets_simd_row *loops;
    const nets_simd_map *lines;
    int64_t elems, elem_bytes;
    bool tanh;
} gelu_op;

typedef struct gelu_run {
    const gelu_op *op;
    const char *x, *dy, *earlier;
    char *out; /* y, or dx if dy is not NULL */
} gelu_run;

/* The normal distribution's share below x; erfc, because 1 + erf cancels for x below 0. */
static float share_below(float x) { return 0.5f * erfcf(x * -0.7071067812f); }

static void by_erf(const float *all, const float *dy, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const float x = all[i], share = share_below(x);
        out[i] = dy ? dy[i] * (share + x * 0.3989422804f * expf(-0.5f * x * x)) : x * share;
    }
}

/* dy NULL: forward. */
static void compute(const gelu_op *op, const float *x, const float *dy, int64_t n, float *out) {
    if (!op->tanh)
        by_erf(x, dy, n, out);
    else if (dy)
        op->loops->gelu_gradient(x, dy, n, out);
    else
        op->loops->gelu(x, n, out);
}

static void run_block(const gelu_run *r, int64_t at, int64_t n) {
    const gelu_op *op = r->op;
    const nets_simd_map *lines = op->lines;
    const char *earlier = r->earlier ? r->earlier + at : NULL;
    float x[BLOCK], dy[BLOCK];
    if (op->elem_bytes == (int64_t)sizeof(float)) {
        compute(op, (const float *)(r->x + at), r->dy ? (const float *)(r->dy + at) : NULL, n, (float *)(r->out + at));
        if (earlier) lines->add(r->out + at, earlier, n, r->out + at);
        return;
    }
    lines->widen(r->x + at, n, x);
    if (r->dy) lines->widen(r->dy + at, n, dy);
    compute(op, x, r->dy ? dy : NULL, n, x);
    if (earlier)
        lines->add_floats(earlier, x, n, r->out + at);
    else
        lines->narrow(x, n, r->out + at);
}

static void run_range(const void *ctx, int64_t from, int64_t to) {
    const gelu_run *r = ctx;
    for (int64_t i = from; i < to; i += BLOCK) run_block(r, i * r->op->elem_bytes, to - i < BLOCK ? to - i : BLOCK);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const gelu_op *op = (const gelu_op *)base;
    const gelu_run r = {.op = op, .x = args->at[NETS_X], .out = args->at[NETS_Y]};
    nets_ranges(op->pool, op->elems, 1, 4, run_range, &r);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const gelu_op *op = (const gelu_op *)base;
    const gelu_run r = {.op = op,
                        .x = args->at[NETS_X],
                        .dy = args->at[NETS_DY],
                        .earlier = args->at[NETS_EARLIER],
                        .out = args->at[NETS_DX]};
    nets_ranges(op->pool, op->elems, 1, 4, run_range, &r);
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    gelu_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a gelu");
    op->base.impl = &nets_host_op_gelu.base;
    op->pool = nets_host_pool(backend);
    op->loops = nets_simd_row_best();
    op->lines = nets_simd_map_best(desc->maps);
    op->elem_bytes = mm_dtype_table[desc->maps].bytes;
    op->elems = nets_shape_elems(&desc->x[0]);
    op->tanh = desc->attrs.tanh;
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_gelu = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                        nets_host_free, NULL, run_forward, run_backward);
