/* GELU, element by element; in place or not is the same. */
#include <math.h>
#include <stdlib.h>

#include "nets/host/host_ops.h"
#include "nets/host/pieces.h"
#include "nets/host/rows.h"

typedef struct gelu_op {
    nets_op base;
    mm_host_pool *pool;
    const nets_rows *loops;
    int64_t elems;
    bool tanh;
} gelu_op;

typedef struct gelu_run {
    const gelu_op *op;
    const float *x, *dy;
    float *out; /* y, or dx where there is dy */
} gelu_run;

/* The normal distribution's share below x; erfc, because 1 + erf cancels for x below 0. */
static float share_below(float x) { return 0.5f * erfcf(x * -0.7071067812f); }

static void by_erf(const gelu_run *r, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        const float x = r->x[i], share = share_below(x);
        r->out[i] = r->dy ? r->dy[i] * (share + x * 0.3989422804f * expf(-0.5f * x * x)) : x * share;
    }
}

static void run_range(const void *ctx, int64_t from, int64_t to) {
    const gelu_run *r = ctx;
    if (!r->op->tanh)
        by_erf(r, from, to);
    else if (r->dy)
        r->op->loops->gelu_gradient(r->x + from, r->dy + from, to - from, r->out + from);
    else
        r->op->loops->gelu(r->x + from, to - from, r->out + from);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const gelu_op *op = (const gelu_op *)base;
    const gelu_run r = {.op = op, .x = args->at[NETS_X], .out = args->at[NETS_Y]};
    nets_ranges(op->pool, op->elems, 1, 4, run_range, &r);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const gelu_op *op = (const gelu_op *)base;
    const gelu_run r = {.op = op, .x = args->at[NETS_X], .dy = args->at[NETS_DY], .out = args->at[NETS_DX]};
    nets_ranges(op->pool, op->elems, 1, 4, run_range, &r);
    nets_host_accumulate_on(op->pool, r.out, args->at[NETS_EARLIER], op->elems);
    return MM_OK;
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_forward, args, stream);
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_backward, args, stream);
}

static void destroy(nets_op *op) { free(op); }

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    gelu_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a gelu");
    op->base.impl = &nets_host_op_gelu;
    op->pool = nets_host_pool(backend);
    op->loops = nets_rows_best();
    op->elems = nets_shape_elems(&desc->x[0]);
    op->tanh = desc->attrs.tanh;
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_host_op_gelu = {NETS_DTYPE_BIT(MM_F32), create, destroy, NULL, forward, backward};
