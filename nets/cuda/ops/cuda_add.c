/* SPDX-License-Identifier: MIT */
/* The residual sum: glue to op_elementwise_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct add_op {
    nets_op base;
    mm_dtype maps;
    int64_t elems;
} add_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const add_op *op = (const add_op *)base;
    nets_cuda_sum(op->maps, args->at[NETS_X], args->at[NETS_X2], args->at[NETS_Y], op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched("add");
}

/* The gradient by one addend: dy plus the earlier contribution. If there is no earlier contribution and dx is dy, there
 * is nothing to do. */
static void backward_one(const add_op *op, const void *dy, const void *earlier, void *dx, mm_stream *stream) {
    if (dx && (earlier || dx != dy)) nets_cuda_sum(op->maps, dy, earlier, dx, op->elems, mm_cuda_stream(stream));
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const add_op *op = (const add_op *)base;
    backward_one(op, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX], stream);
    backward_one(op, args->at[NETS_DY], args->at[NETS_EARLIER2], args->at[NETS_DX2], stream);
    return nets_cuda_launched("add's gradient");
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    add_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a sum");
    *op = (add_op){.base.impl = &nets_cuda_op_add, .maps = desc->maps, .elems = nets_shape_elems(&desc->x[0])};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_add = {NETS_CUDA_MAPS, create, nets_cuda_free, NULL, forward, backward};
