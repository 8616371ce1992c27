/* SPDX-License-Identifier: MIT */
/* Activations but ReLU: glue to op_activation_kernels.cu. */
#include <stdlib.h>

#include "nets/contract/op_activation.h"
#include "nets/cuda/cuda_ops.h"

typedef struct activation_op {
    nets_op base;
    nets_op_kind kind;
    mm_dtype maps;
    int64_t elems;
    nets_cuda_activation activation;
    nets_role by; /* what the gradient is computed from */
} activation_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const activation_op *op = (const activation_op *)base;
    nets_cuda_activate(op->maps, op->activation, args->at[NETS_X], args->at[NETS_Y], op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched(nets_op_name(op->kind));
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const activation_op *op = (const activation_op *)base;
    const void *in = args->at[op->by];
    const bool by_mask = args->sign_roles & NETS_ROLE_BIT(op->by);
    nets_cuda_activate_backward(op->maps, op->activation, by_mask ? NULL : in, by_mask ? in : NULL, args->at[NETS_DY],
                                args->at[NETS_EARLIER], args->at[NETS_DX], op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched("an activation's gradient");
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const nets_activation activation = nets_activation_of(desc->kind, &desc->attrs);
    activation_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    *op = (activation_op){.base.impl = backend->ops->impls[desc->kind],
                          .kind = desc->kind,
                          .maps = desc->maps,
                          .elems = nets_shape_elems(&desc->y),
                          .activation = {activation, desc->attrs.slope},
                          .by = nets_activation_by(activation)};
    *op_out = &op->base;
    return MM_OK;
}

#define ACTIVATION                                                                                                     \
    { NETS_CUDA_MAPS, create, nets_cuda_free, NULL, forward, backward }
const nets_op_impl nets_cuda_op_leaky_relu = ACTIVATION, nets_cuda_op_relu6 = ACTIVATION,
                   nets_cuda_op_sigmoid = ACTIVATION, nets_cuda_op_hard_sigmoid = ACTIVATION,
                   nets_cuda_op_silu = ACTIVATION, nets_cuda_op_hard_swish = ACTIVATION, nets_cuda_op_gelu = ACTIVATION,
                   nets_cuda_op_scale = ACTIVATION;
