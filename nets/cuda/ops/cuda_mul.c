/* SPDX-License-Identifier: MIT */
/* Products: glue to op_elementwise_kernels.cu; with a SiLU to op_activation_kernels.cu, and with a number for each
 * image and channel to op_images_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct mul_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_images images; /* the first input's */
    int64_t elems;
    bool for_each_channel; /* the second input has one number for each image and channel */
    bool silu;
} mul_op;

/* out = map times the second input (+ earlier) */
static void scale(const mul_op *op, const nets_op_args *args, const void *map, const void *earlier, void *out,
                  mm_stream *stream) {
    if (op->for_each_channel)
        nets_cuda_scale_images(op->maps, op->images, map, args->at[NETS_X2], earlier, out, mm_cuda_stream(stream));
    else
        nets_cuda_product(op->maps, map, args->at[NETS_X2], earlier, out, op->elems, mm_cuda_stream(stream));
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const mul_op *op = (const mul_op *)base;
    void *const *at = args->at;
    if (op->silu)
        nets_cuda_gated_product(op->maps, at[NETS_X], at[NETS_X2], at[NETS_Y], op->elems, mm_cuda_stream(stream));
    else
        scale(op, args, at[NETS_X], NULL, at[NETS_Y], stream);
    return nets_cuda_launched("mul");
}

static void give_second(const mul_op *op, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    if (!at[NETS_DX2]) return;
    if (op->for_each_channel)
        nets_cuda_image_products(op->maps, op->images, at[NETS_DY], at[NETS_X], at[NETS_EARLIER2], at[NETS_WORKSPACE],
                                 at[NETS_DX2], mm_cuda_stream(stream));
    else
        nets_cuda_product(op->maps, at[NETS_DY], at[NETS_X], at[NETS_EARLIER2], at[NETS_DX2], op->elems,
                          mm_cuda_stream(stream));
}

/* dx may be dy, so it comes last; but if both inputs are one map, the second's gradient is added to the first's. */
static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const mul_op *op = (const mul_op *)base;
    void *const *at = args->at;
    const bool one_map = at[NETS_DX] == at[NETS_DX2];
    if (op->silu) {
        const nets_cuda_gated g = {at[NETS_X],  at[NETS_X2],       at[NETS_DY], at[NETS_EARLIER],
                                   at[NETS_DX], at[NETS_EARLIER2], at[NETS_DX2]};
        nets_cuda_gated_product_backward(op->maps, &g, op->elems, mm_cuda_stream(stream));
        return nets_cuda_launched("a gated mul's gradient");
    }
    if (!one_map) give_second(op, args, stream);
    if (at[NETS_DX]) scale(op, args, at[NETS_DY], at[NETS_EARLIER], at[NETS_DX], stream);
    if (one_map) give_second(op, args, stream);
    return nets_cuda_launched("mul's gradient");
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const mul_op *op = (const mul_op *)base;
    return phase == MM_BACKWARD && op->for_each_channel ? nets_cuda_images_bytes(op->images, 1) : 0;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    const nets_shape *x = &desc->x[0];
    mul_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a product");
    *op = (mul_op){.base.impl = &nets_cuda_op_mul,
                   .maps = desc->maps,
                   .images = {x->dims[0], nets_shape_rows(x) / x->dims[0], (int)nets_shape_channels(x)},
                   .elems = nets_shape_elems(x),
                   .for_each_channel = !nets_shape_equal(x, &desc->x[1]),
                   .silu = desc->silu};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_mul = {NETS_CUDA_MAPS, create, nets_cuda_free, workspace_bytes, forward, backward};
