/* ReLU and the residual sum: own loops, element by element, so in place or not is the same. The pragmas tell the compiler
 * that: it would fall back to scalar code where it sees that input and output are one. */
#include <stdlib.h>
#include <string.h>

#include "nets/host_ops.h"

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

void nets_host_add_bias(float *values, const float *bias, int64_t rows, int64_t columns) {
    if (!bias) return;
    for (int64_t r = 0; r < rows; r++) nets_host_accumulate(values + r * columns, bias, columns);
}

void nets_host_sum_rows(const float *values, int64_t rows, int64_t columns, double *sums, float *gradient_out) {
    if (!gradient_out) return;
    for (int64_t c = 0; c < columns; c++) sums[c] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = values + r * columns;
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) sums[c] += (double)row[c];
    }
    for (int64_t c = 0; c < columns; c++) gradient_out[c] = (float)sums[c];
}

/* ---------------------------------------------------------------- ReLU */

static mm_status run_relu_forward(nets_op *base, const nets_op_args *args) {
    const float *x = args->at[NETS_X];
    float *y = args->at[NETS_Y];
    int64_t n = ((elementwise_op *)base)->elems;
    /* Written so that a NaN stays one: a training that diverges shows. */
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
    return MM_OK;
}

/* The gradients are loaded whether they pass or not: a conditional load cannot be vectorised. */
static void relu_backward_by_value(const float *y, const float *dy, float *dx, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = dy[i];
        dx[i] = y[i] > 0 ? gradient : 0;
    }
}

static void relu_backward_by_mask(const uint32_t *mask, const float *dy, float *dx, int64_t n) {
    uint32_t bits[32]; /* a table, since not every processor shifts each lane by a number of its own */
    for (int k = 0; k < 32; k++) bits[k] = UINT32_C(1) << k;
    for (int64_t i = 0; i + 32 <= n; i += 32) {
        uint32_t word = mask[i / 32];
        const float *in = dy + i;
        float *out = dx + i;
#pragma omp simd
        for (int k = 0; k < 32; k++) {
            float gradient = in[k];
            out[k] = (word & bits[k]) != 0 ? gradient : 0;
        }
    }
    for (int64_t i = n / 32 * 32; i < n; i++) dx[i] = mask[i / 32] & bits[i % 32] ? dy[i] : 0;
}

static mm_status run_relu_backward(nets_op *base, const nets_op_args *args) {
    int64_t n = ((elementwise_op *)base)->elems;
    if (args->sign_roles & NETS_ROLE_BIT(NETS_Y))
        relu_backward_by_mask(args->at[NETS_Y], args->at[NETS_DY], args->at[NETS_DX], n);
    else
        relu_backward_by_value(args->at[NETS_Y], args->at[NETS_DY], args->at[NETS_DX], n);
    nets_host_accumulate(args->at[NETS_DX], args->at[NETS_EARLIER], n);
    return MM_OK;
}

static mm_status relu_forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_relu_forward, args, stream);
}

static mm_status relu_backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_relu_backward, args, stream);
}

static mm_status create_relu(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    return create(&nets_host_relu, desc, op_out);
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

const nets_op_impl nets_host_relu = {create_relu, destroy, NULL, relu_forward, relu_backward};
const nets_op_impl nets_host_add = {create_add, destroy, NULL, add_forward, add_backward};
