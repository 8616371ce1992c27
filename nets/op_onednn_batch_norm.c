/* Batch norm, on oneDNN. It normalises with the biased variance of the batch and keeps the unbiased one in the running
 * statistics, as torch does. */
#include <stdlib.h>

#include "nets/host_ops.h"

typedef struct batch_norm_op {
    nets_op base;
    const nets_dnn *dnn;
    nets_dnn_kernel forward, backward;
    int64_t elems, channels;
    float momentum;
    bool training, wants_dx;
    int64_t unwanted_offset; /* oneDNN always computes the gradient by the data; unwanted, it goes to the workspace,
                                behind the scratchpad */
} batch_norm_op;

static void update_running(const batch_norm_op *op, const nets_op_args *args) {
    const float *mean = args->at[NETS_SAVED_MEAN], *var = args->at[NETS_SAVED_VAR];
    float *running_mean = args->at[NETS_MEAN], *running_var = args->at[NETS_VAR];
    if (!running_mean) return; /* recomputed: this batch has been counted */
    int64_t count = op->elems / op->channels;
    float unbias = count > 1 ? (float)count / (float)(count - 1) : 1.0f;
    for (int64_t c = 0; c < op->channels; c++) {
        running_mean[c] += op->momentum * (mean[c] - running_mean[c]);
        running_var[c] += op->momentum * (var[c] * unbias - running_var[c]);
    }
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    batch_norm_op *op = (batch_norm_op *)base;
    nets_dnn_kernel *k = &op->forward;
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SRC, args->at[NETS_X]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DST, args->at[NETS_Y]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SCALE, args->at[NETS_W]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SHIFT, args->at[NETS_B]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_MEAN, args->at[op->training ? NETS_SAVED_MEAN : NETS_MEAN]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_VARIANCE, args->at[op->training ? NETS_SAVED_VAR : NETS_VAR]));
    MM_TRY(nets_dnn_run(op->dnn, k, args->at[NETS_WORKSPACE]));
    if (op->training) update_running(op, args);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    batch_norm_op *op = (batch_norm_op *)base;
    nets_dnn_kernel *k = &op->backward;
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SRC, args->at[NETS_X]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SCALE, args->at[NETS_W]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SHIFT, args->at[NETS_B]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_MEAN, args->at[NETS_SAVED_MEAN]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_VARIANCE, args->at[NETS_SAVED_VAR]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_DST, args->at[NETS_DY]));
    void *dx = op->wants_dx ? args->at[NETS_DX] : (char *)args->at[NETS_WORKSPACE] + op->unwanted_offset;
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_SRC, dx));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_SCALE, args->at[NETS_DW]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_SHIFT, args->at[NETS_DB]));
    MM_TRY(nets_dnn_run(op->dnn, k, args->at[NETS_WORKSPACE]));
    if (op->wants_dx) nets_host_accumulate(args->at[NETS_DX], args->at[NETS_EARLIER], op->elems);
    return MM_OK;
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_forward, args, stream);
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_backward, args, stream);
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const batch_norm_op *op = (const batch_norm_op *)base;
    if (phase == MM_FORWARD) return op->forward.scratch_bytes;
    return op->wants_dx ? op->backward.scratch_bytes : op->unwanted_offset + op->elems * (int64_t)sizeof(float);
}

static void destroy(nets_op *base) {
    batch_norm_op *op = (batch_norm_op *)base;
    nets_dnn_kernel_fini(&op->forward);
    nets_dnn_kernel_fini(&op->backward);
    free(op);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    batch_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a batch norm");
    *op = (batch_norm_op){.base.impl = &nets_host_batch_norm,
                          .dnn = &((nets_host_backend *)backend)->dnn,
                          .elems = nets_elems(desc->x),
                          .channels = desc->x[3],
                          .momentum = desc->attrs.momentum,
                          .training = desc->training,
                          .wants_dx = desc->wants_dx};
    mm_status status = nets_dnn_batch_norm_forward(op->dnn, desc->x, desc->attrs.eps, desc->training, &op->forward);
    if (status == MM_OK && desc->training)
        status = nets_dnn_batch_norm_backward(op->dnn, desc->x, desc->attrs.eps, &op->backward);
    op->unwanted_offset = nets_aligned(op->backward.scratch_bytes);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_host_batch_norm = {create, destroy, workspace_bytes, forward, backward};
