/* Upsampling by a whole factor, on oneDNN's resampling. */
#include <stdlib.h>

#include "nets/host_ops.h"

typedef struct upsample_op {
    nets_op base;
    const nets_dnn *dnn;
    nets_dnn_kernel forward, backward;
    int64_t x_elems;
} upsample_op;

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    upsample_op *op = (upsample_op *)base;
    MM_TRY(nets_dnn_bind(&op->forward, DNNL_ARG_SRC, args->at[NETS_X]));
    MM_TRY(nets_dnn_bind(&op->forward, DNNL_ARG_DST, args->at[NETS_Y]));
    return nets_dnn_run(op->dnn, &op->forward, args->at[NETS_WORKSPACE]);
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    upsample_op *op = (upsample_op *)base;
    MM_TRY(nets_dnn_bind(&op->backward, DNNL_ARG_DIFF_DST, args->at[NETS_DY]));
    MM_TRY(nets_dnn_bind(&op->backward, DNNL_ARG_DIFF_SRC, args->at[NETS_DX]));
    MM_TRY(nets_dnn_run(op->dnn, &op->backward, args->at[NETS_WORKSPACE]));
    nets_host_accumulate(args->at[NETS_DX], args->at[NETS_EARLIER], op->x_elems);
    return MM_OK;
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_forward, args, stream);
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_backward, args, stream);
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const upsample_op *op = (const upsample_op *)base;
    return phase == MM_FORWARD ? op->forward.scratch_bytes : op->backward.scratch_bytes;
}

static void destroy(nets_op *base) {
    upsample_op *op = (upsample_op *)base;
    nets_dnn_kernel_fini(&op->forward);
    nets_dnn_kernel_fini(&op->backward);
    free(op);
}

static mm_status make_kernels(upsample_op *op, const nets_op_desc *desc) {
    MM_TRY(nets_dnn_upsample_forward(op->dnn, desc->x, desc->y, desc->attrs.bilinear, &op->forward));
    if (!desc->training) return MM_OK;
    return nets_dnn_upsample_backward(op->dnn, desc->x, desc->y, desc->attrs.bilinear, &op->backward);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    upsample_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for an upsampling");
    op->base.impl = &nets_host_upsample;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_elems(desc->x);
    mm_status status = make_kernels(op, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_host_upsample = {create, destroy, workspace_bytes, forward, backward};
