/* SPDX-License-Identifier: MIT */
/* Activations (nets/activation.h) but ReLU, element by element, also in place. bf16 is computed in blocks of f32, and
 * rounded once. */
#include <stdlib.h>

#include "mm/core/graph/dtype.h"
#include "nets/contract/op_activation.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"
#include "nets/host/simd_row.h"

/* BLOCK: elements that are computed at a time; they stay in the fastest cache. Chosen; a multiple of WORD_BITS, the
 * bits of a sign mask's word. */
enum { BLOCK = 1024, WORD_BITS = 32 };

typedef struct activation_op {
    nets_op base;
    mm_host_pool *pool;
    const nets_simd_activation *loops;
    const nets_simd_map *lines;
    nets_role by; /* what the gradient is computed from */
    int64_t elems, elem_bytes;
    float slope;
} activation_op;

typedef struct activation_run {
    const activation_op *op;
    const char *in;       /* x; in a backward, what the gradient is computed from */
    const uint32_t *mask; /* the signs of `in`, in place of it */
    const char *dy, *earlier;
    char *out; /* y, or dx if dy is not NULL */
} activation_run;

static const float *floats_at(const activation_op *op, const char *map, int64_t first, int64_t n, float *block) {
    return nets_simd_floats(op->lines, op->elem_bytes, map, first, n, block);
}

/* The signs from `first` on as numbers of these signs. */
static const float *signs_at(const uint32_t *mask, int64_t first, int64_t n, float *block) {
    for (int64_t i = 0; i < n; i++) block[i] = (float)(mask[(first + i) / WORD_BITS] >> (first + i) % WORD_BITS & 1);
    return block;
}

static void run_block(const activation_run *r, int64_t first, int64_t n) {
    const activation_op *op = r->op;
    const nets_simd_map *lines = op->lines;
    const bool half = op->elem_bytes != (int64_t)sizeof(float);
    const char *earlier = r->earlier ? r->earlier + first * op->elem_bytes : NULL;
    char *out = r->out + first * op->elem_bytes;
    float in_block[BLOCK], dy_block[BLOCK];
    float *to = half ? in_block : (float *)out;
    const float *in = r->mask ? signs_at(r->mask, first, n, in_block) : floats_at(op, r->in, first, n, in_block);
    if (r->dy)
        op->loops->gradient(in, floats_at(op, r->dy, first, n, dy_block), op->slope, n, to);
    else
        op->loops->value(in, op->slope, n, to);
    if (half && earlier)
        lines->add_floats(earlier, to, n, out);
    else if (half)
        lines->narrow(to, n, out);
    else if (earlier)
        lines->add(out, earlier, n, out);
}

static void run_range(const void *ctx, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i += BLOCK) run_block(ctx, i, to - i < BLOCK ? to - i : BLOCK);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const activation_op *op = (const activation_op *)base;
    const activation_run r = {.op = op, .in = args->at[NETS_X], .out = args->at[NETS_Y]};
    nets_ranges(op->pool, op->elems, WORD_BITS, 4, run_range, &r);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const activation_op *op = (const activation_op *)base;
    const bool by_mask = args->sign_roles & NETS_ROLE_BIT(op->by);
    const activation_run r = {.op = op,
                              .in = by_mask ? NULL : args->at[op->by],
                              .mask = by_mask ? args->at[op->by] : NULL,
                              .dy = args->at[NETS_DY],
                              .earlier = args->at[NETS_EARLIER],
                              .out = args->at[NETS_DX]};
    nets_ranges(op->pool, op->elems, WORD_BITS, 4, run_range, &r);
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const nets_activation activation = nets_activation_of(desc->kind, &desc->attrs);
    activation_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    *op = (activation_op){.base.impl = backend->ops->impls[desc->kind],
                          .pool = nets_host_pool(backend),
                          .loops = &nets_simd_row_best()->activations[activation],
                          .lines = nets_simd_map_best(desc->maps),
                          .by = nets_activation_by(activation),
                          .elems = nets_shape_elems(&desc->x[0]),
                          .elem_bytes = mm_dtype_table[desc->maps].bytes,
                          .slope = desc->attrs.slope};
    *op_out = &op->base;
    return MM_OK;
}

#define ACTIVATION                                                                                                     \
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create, nets_host_free, NULL, run_forward,        \
                   run_backward)
const nets_host_impl nets_host_op_leaky_relu = ACTIVATION, nets_host_op_relu6 = ACTIVATION,
                     nets_host_op_sigmoid = ACTIVATION, nets_host_op_hard_sigmoid = ACTIVATION,
                     nets_host_op_silu = ACTIVATION, nets_host_op_hard_swish = ACTIVATION,
                     nets_host_op_gelu = ACTIVATION, nets_host_op_scale = ACTIVATION;
