/* Convolution and the fully connected layer, on oneDNN's convolutions.
 *
 * A linear layer of single pixels is a 1x1 convolution over one image whose height is the batch: the same bytes, and
 * the shape of a matrix product. One of larger maps is a convolution with a kernel as large as the map: its weights
 * [out, c, h, w] are torch's [out, c * h * w]. oneDNN's own inner product allocates on every call; this does not.
 *
 * Weights travel plain and are reordered in the workspace, which a phase's parts use one after the other:
 *
 *   0           scratch_bytes                 scratch_bytes + weights
 *   | scratchpad | weights in oneDNN's layout |
 */
#include <stdlib.h>

#include "nets/host_ops.h"

/* A primitive and the reorder of its weights, before it (WEIGHTS) or after it (DIFF_WEIGHTS). */
typedef struct conv_part {
    nets_dnn_kernel kernel, reorder;
    int64_t scratch_bytes, workspace_bytes;
} conv_part;

typedef struct conv_op {
    nets_op base;
    const nets_dnn *dnn;
    conv_part forward, data, weights; /* of the backward: gradient by the data, by the weights */
    int64_t x_elems;
    bool wants_dx;
} conv_op;

static mm_status finish_part(const nets_dnn *dnn, conv_part *part, int weights_arg) {
    bool gradient = weights_arg == DNNL_ARG_DIFF_WEIGHTS;
    MM_TRY(nets_dnn_weights_reorder(dnn, &part->kernel, weights_arg, gradient, &part->reorder));
    int64_t scratch = part->kernel.scratch_bytes;
    if (part->reorder.scratch_bytes > scratch) scratch = part->reorder.scratch_bytes;
    part->scratch_bytes = nets_aligned(scratch);
    part->workspace_bytes = part->scratch_bytes;
    if (part->reorder.primitive) part->workspace_bytes += nets_aligned(nets_dnn_arg_bytes(&part->kernel, weights_arg));
    return MM_OK;
}

/* Where the part's primitive finds or leaves its weights. */
static void *inner_weights(const conv_part *part, const nets_op_args *args, void *plain) {
    return part->reorder.primitive ? (char *)args->at[NETS_WORKSPACE] + part->scratch_bytes : plain;
}

static mm_status reorder(const conv_op *op, conv_part *part, const nets_op_args *args, const void *from, void *to) {
    if (!part->reorder.primitive) return MM_OK;
    MM_TRY(nets_dnn_bind(&part->reorder, DNNL_ARG_FROM, from));
    MM_TRY(nets_dnn_bind(&part->reorder, DNNL_ARG_TO, to));
    return nets_dnn_run(op->dnn, &part->reorder, args->at[NETS_WORKSPACE]);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    conv_op *op = (conv_op *)base;
    nets_dnn_kernel *k = &op->forward.kernel;
    void *weights = inner_weights(&op->forward, args, args->at[NETS_W]);
    MM_TRY(reorder(op, &op->forward, args, args->at[NETS_W], weights));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SRC, args->at[NETS_X]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_WEIGHTS, weights));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_BIAS, args->at[NETS_B]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DST, args->at[NETS_Y]));
    return nets_dnn_run(op->dnn, k, args->at[NETS_WORKSPACE]);
}

static mm_status run_backward_weights(conv_op *op, const nets_op_args *args) {
    nets_dnn_kernel *k = &op->weights.kernel;
    void *gradient = inner_weights(&op->weights, args, args->at[NETS_DW]);
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_SRC, args->at[NETS_X]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_DST, args->at[NETS_DY]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_WEIGHTS, gradient));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_BIAS, args->at[NETS_DB]));
    MM_TRY(nets_dnn_run(op->dnn, k, args->at[NETS_WORKSPACE]));
    return reorder(op, &op->weights, args, gradient, args->at[NETS_DW]);
}

static mm_status run_backward_data(conv_op *op, const nets_op_args *args) {
    nets_dnn_kernel *k = &op->data.kernel;
    void *weights = inner_weights(&op->data, args, args->at[NETS_W]);
    MM_TRY(reorder(op, &op->data, args, args->at[NETS_W], weights));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_DST, args->at[NETS_DY]));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_WEIGHTS, weights));
    MM_TRY(nets_dnn_bind(k, DNNL_ARG_DIFF_SRC, args->at[NETS_DX]));
    MM_TRY(nets_dnn_run(op->dnn, k, args->at[NETS_WORKSPACE]));
    nets_host_accumulate(args->at[NETS_DX], args->at[NETS_EARLIER], op->x_elems);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    conv_op *op = (conv_op *)base;
    MM_TRY(run_backward_weights(op, args));
    return op->wants_dx ? run_backward_data(op, args) : MM_OK;
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_forward, args, stream);
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_backward, args, stream);
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const conv_op *op = (const conv_op *)base;
    if (phase == MM_FORWARD) return op->forward.workspace_bytes;
    return op->data.workspace_bytes > op->weights.workspace_bytes ? op->data.workspace_bytes
                                                                  : op->weights.workspace_bytes;
}

static void fini_part(conv_part *part) {
    nets_dnn_kernel_fini(&part->kernel);
    nets_dnn_kernel_fini(&part->reorder);
}

static void destroy(nets_op *base) {
    conv_op *op = (conv_op *)base;
    fini_part(&op->forward);
    fini_part(&op->data);
    fini_part(&op->weights);
    free(op);
}

static mm_status make_parts(conv_op *op, const nets_dnn_windows *w, const nets_op_desc *desc) {
    MM_TRY(nets_dnn_conv_forward(op->dnn, w, desc->attrs.bias, &op->forward.kernel));
    MM_TRY(finish_part(op->dnn, &op->forward, DNNL_ARG_WEIGHTS));
    if (!desc->training) return MM_OK;
    MM_TRY(nets_dnn_conv_backward_weights(op->dnn, w, desc->attrs.bias, &op->weights.kernel));
    MM_TRY(finish_part(op->dnn, &op->weights, DNNL_ARG_DIFF_WEIGHTS));
    if (!desc->wants_dx) return MM_OK;
    MM_TRY(nets_dnn_conv_backward_data(op->dnn, w, &op->data.kernel));
    return finish_part(op->dnn, &op->data, DNNL_ARG_WEIGHTS);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, const nets_dnn_windows *w,
                        const nets_op_impl *impl, nets_op **op_out) {
    conv_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = impl;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_elems(desc->x);
    op->wants_dx = desc->wants_dx;
    mm_status status = make_parts(op, w, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

static mm_status create_conv(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    nets_dnn_windows w = {.x = {desc->x[0], desc->x[1], desc->x[2], desc->x[3]},
                          .y = {desc->y[0], desc->y[1], desc->y[2], desc->y[3]}};
    for (int d = 0; d < 2; d++) {
        w.kernel[d] = desc->attrs.kernel[d];
        w.stride[d] = desc->attrs.stride[d];
        w.pad[d] = desc->attrs.pad[d];
    }
    return create(backend, desc, &w, &nets_host_conv, op_out);
}

static mm_status create_linear(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    int64_t n = desc->x[0], height = desc->x[1], width = desc->x[2], in = desc->x[3], out = desc->y[3];
    bool pixels = height * width == 1;
    nets_dnn_windows product = {.x = {1, n, 1, in}, .y = {1, n, 1, out}, .kernel = {1, 1}, .stride = {1, 1}};
    nets_dnn_windows whole = {
        .x = {n, height, width, in}, .y = {n, 1, 1, out}, .kernel = {height, width}, .stride = {1, 1}};
    return create(backend, desc, pixels ? &product : &whole, &nets_host_linear, op_out);
}

const nets_op_impl nets_host_conv = {create_conv, destroy, workspace_bytes, forward, backward};
const nets_op_impl nets_host_linear = {create_linear, destroy, workspace_bytes, forward, backward};
