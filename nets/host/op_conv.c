/* Convolution and transposed convolution, on oneDNN's convolutions. The transposed one is the gradient of a convolution
 * that leads from its output to its input: the same three kernels, the first two with their places exchanged, and that
 * convolution's weights. A bias is added and summed by own loops, the same that a ReLU has where lowering gives it the
 * bias (fuse.h).
 *
 * Weights travel plain and are reordered in the workspace, which a phase's parts use one after the other:
 *
 *   0           scratch_bytes                 scratch_bytes + weights
 *   | scratchpad | weights in oneDNN's layout |
 *
 * A gradient by the input that is added to an earlier contribution is computed image by image, each behind what its
 * part takes of the workspace: so it may be added in that contribution's place.
 */
#include <stdlib.h>
#include <string.h>

#include "nets/host/channels.h"
#include "nets/host/ops.h"

/* A primitive and the reorder of its weights, before it (WEIGHTS) or after it (DIFF_WEIGHTS). */
typedef struct conv_part {
    nets_dnn_kernel kernel, reorder;
    int in, out; /* the kernel's arguments beside the weights */
    int64_t scratch_bytes, workspace_bytes;
} conv_part;

typedef struct conv_op {
    nets_op base;
    const nets_dnn *dnn;
    conv_part y, dx, dw; /* what gives these */
    int64_t images, x_image_elems, y_image_elems;
    nets_channels channels; /* of the output */
    bool bias, transposed, wants_dx, adds_earlier;
} conv_op;

static mm_status finish_part(const nets_dnn *dnn, const nets_dnn_windows *w, conv_part *part, int weights_arg) {
    bool gradient = weights_arg == DNNL_ARG_DIFF_WEIGHTS;
    MM_TRY(nets_dnn_weights_reorder(dnn, w, &part->kernel, weights_arg, gradient, &part->reorder));
    part->scratch_bytes = nets_aligned(nets_larger(part->kernel.scratch_bytes, part->reorder.scratch_bytes));
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

/* Readies a part that applies the weights. */
static mm_status bind_weights(const conv_op *op, conv_part *part, const nets_op_args *args) {
    void *weights = inner_weights(part, args, args->at[NETS_W]);
    MM_TRY(reorder(op, part, args, args->at[NETS_W], weights));
    return nets_dnn_bind(&part->kernel, DNNL_ARG_WEIGHTS, weights);
}

static mm_status run_part(const conv_op *op, conv_part *part, const nets_op_args *args, const void *in, void *out) {
    MM_TRY(nets_dnn_bind(&part->kernel, part->in, in));
    MM_TRY(nets_dnn_bind(&part->kernel, part->out, out));
    return nets_dnn_run(op->dnn, &part->kernel, args->at[NETS_WORKSPACE]);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    conv_op *op = (conv_op *)base;
    MM_TRY(bind_weights(op, &op->y, args));
    MM_TRY(run_part(op, &op->y, args, args->at[NETS_X], args->at[NETS_Y]));
    if (op->bias)
        nets_channels_add_bias(&op->channels, args->at[NETS_Y], args->at[NETS_B], false, args->at[NETS_Y],
                               args->at[NETS_WORKSPACE]);
    return MM_OK;
}

static mm_status run_backward_weights(conv_op *op, const nets_op_args *args) {
    conv_part *part = &op->dw;
    void *gradient = inner_weights(part, args, args->at[NETS_DW]);
    MM_TRY(nets_dnn_bind(&part->kernel, part->in, args->at[NETS_X]));
    MM_TRY(nets_dnn_bind(&part->kernel, part->out, args->at[NETS_DY]));
    MM_TRY(nets_dnn_bind(&part->kernel, DNNL_ARG_DIFF_WEIGHTS, gradient));
    MM_TRY(nets_dnn_run(op->dnn, &part->kernel, args->at[NETS_WORKSPACE]));
    MM_TRY(reorder(op, part, args, gradient, args->at[NETS_DW]));
    const nets_channels_bias bias = {.dy = args->at[NETS_DY], .dbias = args->at[NETS_DB]};
    if (op->bias) nets_channels_bias_backward(&op->channels, &bias, args->at[NETS_WORKSPACE]);
    return MM_OK;
}

static mm_status add_to_earlier(conv_op *op, const nets_op_args *args) {
    float *alone = (float *)((char *)args->at[NETS_WORKSPACE] + op->dx.workspace_bytes);
    const float *dy = args->at[NETS_DY], *earlier = args->at[NETS_EARLIER];
    for (int64_t i = 0; i < op->images; i++) {
        float *dx = (float *)args->at[NETS_DX] + i * op->x_image_elems;
        MM_TRY(run_part(op, &op->dx, args, dy + i * op->y_image_elems, alone));
        if (dx != earlier + i * op->x_image_elems)
            memcpy(dx, earlier + i * op->x_image_elems, (size_t)op->x_image_elems * sizeof *dx);
        nets_host_accumulate(dx, alone, op->x_image_elems);
    }
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    conv_op *op = (conv_op *)base;
    MM_TRY(run_backward_weights(op, args));
    if (!op->wants_dx) return MM_OK;
    MM_TRY(bind_weights(op, &op->dx, args));
    return op->adds_earlier ? add_to_earlier(op, args)
                            : run_part(op, &op->dx, args, args->at[NETS_DY], args->at[NETS_DX]);
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_forward, args, stream);
}

static mm_status check_earlier(const conv_op *op, const nets_op_args *args) {
    if ((args->at[NETS_EARLIER] != NULL) == op->adds_earlier) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "a convolution was made %s an earlier contribution to its gradient",
                   op->adds_earlier ? "for" : "without");
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    MM_TRY(check_earlier((const conv_op *)op, args));
    return nets_host_enqueue(op, run_backward, args, stream);
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const conv_op *op = (const conv_op *)base;
    int64_t bias = op->bias ? op->channels.scratch_bytes : 0;
    if (phase == MM_FORWARD) return nets_larger(bias, op->y.workspace_bytes);
    int64_t dx = op->dx.workspace_bytes;
    if (op->adds_earlier) dx += nets_aligned(op->x_image_elems * (int64_t)sizeof(float));
    return nets_larger(bias, nets_larger(dx, op->dw.workspace_bytes));
}

static void fini_part(conv_part *part) {
    nets_dnn_kernel_fini(&part->kernel);
    nets_dnn_kernel_fini(&part->reorder);
}

static void destroy(nets_op *base) {
    conv_op *op = (conv_op *)base;
    fini_part(&op->y);
    fini_part(&op->dx);
    fini_part(&op->dw);
    free(op);
}

/* ---------------------------------------------------------------- creation */

static mm_status make_direct(const nets_dnn *dnn, const nets_dnn_windows *w, conv_part *part) {
    part->in = DNNL_ARG_SRC;
    part->out = DNNL_ARG_DST;
    MM_TRY(nets_dnn_conv_forward(dnn, w, &part->kernel));
    return finish_part(dnn, w, part, DNNL_ARG_WEIGHTS);
}

static mm_status make_transposed(const nets_dnn *dnn, const nets_dnn_windows *w, conv_part *part) {
    part->in = DNNL_ARG_DIFF_DST;
    part->out = DNNL_ARG_DIFF_SRC;
    MM_TRY(nets_dnn_conv_backward_data(dnn, w, &part->kernel));
    return finish_part(dnn, w, part, DNNL_ARG_WEIGHTS);
}

static mm_status make_dw(conv_op *op, const nets_dnn_windows *w) {
    op->dw.in = op->transposed ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC;
    op->dw.out = op->transposed ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST;
    MM_TRY(nets_dnn_conv_backward_weights(op->dnn, w, &op->dw.kernel));
    return finish_part(op->dnn, w, &op->dw, DNNL_ARG_DIFF_WEIGHTS);
}

/* `w`: the convolution's windows; the transposed one's are from its output to its input. */
static mm_status make_parts(conv_op *op, const nets_dnn_windows *w, const nets_op_desc *desc) {
    bool transposed = op->transposed;
    MM_TRY(transposed ? make_transposed(op->dnn, w, &op->y) : make_direct(op->dnn, w, &op->y));
    if (!desc->training) return MM_OK;
    MM_TRY(make_dw(op, w));
    if (!desc->wants_dx) return MM_OK;
    nets_dnn_windows dx = *w;
    if (desc->adds_earlier) dx.x[0] = dx.y[0] = 1;
    return transposed ? make_direct(op->dnn, &dx, &op->dx) : make_transposed(op->dnn, &dx, &op->dx);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, const nets_op_impl *impl, nets_op **op_out) {
    conv_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = impl;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->transposed = desc->kind == NETS_CONV_TRANSPOSE;
    op->wants_dx = desc->wants_dx;
    op->adds_earlier = desc->adds_earlier;
    op->images = desc->x[0];
    op->x_image_elems = nets_elems(desc->x) / op->images;
    op->y_image_elems = nets_elems(desc->y) / op->images;
    op->channels = nets_channels_of(desc->y[0] * desc->y[1] * desc->y[2], desc->y[3]);
    op->bias = desc->attrs.bias;
    nets_op_desc from_y = *desc;
    for (int d = 0; d < 4; d++) {
        from_y.x[d] = desc->y[d];
        from_y.y[d] = desc->x[d];
    }
    const nets_dnn_windows w = nets_host_windows(op->transposed ? &from_y : desc);
    mm_status status = make_parts(op, &w, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

static mm_status create_conv(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    return create(backend, desc, &nets_host_conv, op_out);
}

static mm_status create_conv_transpose(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    return create(backend, desc, &nets_host_conv_transpose, op_out);
}

const nets_op_impl nets_host_conv = {create_conv, destroy, workspace_bytes, forward, backward};
const nets_op_impl nets_host_conv_transpose = {create_conv_transpose, destroy, workspace_bytes, forward, backward};
