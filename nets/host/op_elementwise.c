/* The residual sum: own loops, element by element, so in place or not is the same. The pragmas tell the compiler
 * that: it would fall back to scalar code where it sees that input and output are one. */
#include <stdlib.h>
#include <string.h>

#include "nets/host/ops.h"

typedef struct elementwise_op {
    nets_op base;
    int64_t elems;
} elementwise_op;

static mm_status create(const nets_op_impl *impl, const nets_op_desc *desc, nets_op **op_out) {
    elementwise_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = impl;
    op->elems = nets_elems(desc->x);
    *op_out = &op->base;
    return MM_OK;
}

static void destroy(nets_op *op) { free(op); }

void nets_host_accumulate(float *sum, const float *addend, int64_t elems) {
    if (!addend) return;
#pragma omp simd
    for (int64_t i = 0; i < elems; i++) sum[i] += addend[i];
}

/* ---------------------------------------------------------------- residual sum */

static mm_status run_add_forward(nets_op *base, const nets_op_args *args) {
    const float *a = args->at[NETS_X], *b = args->at[NETS_X2];
    float *y = args->at[NETS_Y];
    int64_t n = ((elementwise_op *)base)->elems;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
    return MM_OK;
}

/* The gradient by one addend: dy itself, plus what came earlier. Nothing to do where both share their storage. */
static void add_backward_one(const float *dy, const float *earlier, float *dx, int64_t n) {
    if (!dx) return;
    if (earlier) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] + earlier[i];
    } else if (dx != dy) {
        memcpy(dx, dy, (size_t)n * sizeof *dx);
    }
}

static mm_status run_add_backward(nets_op *base, const nets_op_args *args) {
    int64_t n = ((elementwise_op *)base)->elems;
    add_backward_one(args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX], n);
    add_backward_one(args->at[NETS_DY], args->at[NETS_EARLIER2], args->at[NETS_DX2], n);
    return MM_OK;
}

static mm_status add_forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_add_forward, args, stream);
}

static mm_status add_backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_add_backward, args, stream);
}

static mm_status create_add(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    return create(&nets_host_add, desc, op_out);
}

const nets_op_impl nets_host_add = {create_add, destroy, NULL, add_forward, add_backward};
