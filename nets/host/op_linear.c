/* The fully connected layer: oneDNN's matrix products over the plain weights, which need no other layout and so no
 * workspace of the weights' size. (Its inner product allocates on every call.)
 *
 * Features are counted in torch's order, channel by channel. An image of more than one pixel is pixel by pixel, so the
 * whole batch changes its order in the workspace, and its gradient changes back:
 *
 *   0            scratch_bytes        scratch_bytes + planes
 *   | scratchpad | images as planes   |
 *   | the bias's scratch          |     after the products
 */
#include <stdlib.h>

#include "nets/host/channels.h"
#include "nets/host/ops.h"

typedef struct linear_op {
    nets_op base;
    const nets_dnn *dnn;
    nets_dnn_kernel y, dx, dw;              /* what gives these */
    nets_dnn_kernel to_planes, from_planes; /* not made where an image is one pixel */
    int64_t x_elems, batch;
    nets_channels channels;                 /* of the output */
    int64_t scratch_bytes, workspace_bytes; /* of either phase */
    bool bias, wants_dx;
} linear_op;

static mm_status run_reorder(const linear_op *op, nets_dnn_kernel *kernel, const void *from, void *to, void *scratch) {
    MM_TRY(nets_dnn_bind(kernel, DNNL_ARG_FROM, from));
    MM_TRY(nets_dnn_bind(kernel, DNNL_ARG_TO, to));
    return nets_dnn_run(op->dnn, kernel, scratch);
}

static void *planes(const linear_op *op, const nets_op_args *args) {
    return (char *)args->at[NETS_WORKSPACE] + op->scratch_bytes;
}

/* The batch with its features in torch's order. */
static mm_status get_features(linear_op *op, const nets_op_args *args, void **features_out) {
    *features_out = args->at[NETS_X];
    if (!op->to_planes.primitive) return MM_OK;
    *features_out = planes(op, args);
    return run_reorder(op, &op->to_planes, args->at[NETS_X], *features_out, args->at[NETS_WORKSPACE]);
}

static mm_status run_product(const linear_op *op, nets_dnn_kernel *kernel, const nets_op_args *args, const void *a,
                             const void *b, void *y) {
    MM_TRY(nets_dnn_bind(kernel, DNNL_ARG_SRC, a));
    MM_TRY(nets_dnn_bind(kernel, DNNL_ARG_WEIGHTS, b));
    MM_TRY(nets_dnn_bind(kernel, DNNL_ARG_DST, y));
    return nets_dnn_run(op->dnn, kernel, args->at[NETS_WORKSPACE]);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    linear_op *op = (linear_op *)base;
    void *features;
    MM_TRY(get_features(op, args, &features));
    MM_TRY(run_product(op, &op->y, args, features, args->at[NETS_W], args->at[NETS_Y]));
    if (op->bias)
        nets_channels_add_bias(&op->channels, args->at[NETS_Y], args->at[NETS_B], false, args->at[NETS_Y],
                               args->at[NETS_WORKSPACE]);
    return MM_OK;
}

static mm_status run_backward_data(linear_op *op, const nets_op_args *args) {
    bool maps = op->from_planes.primitive != NULL;
    void *dx = args->at[NETS_DX], *features = maps ? planes(op, args) : dx;
    MM_TRY(run_product(op, &op->dx, args, args->at[NETS_DY], args->at[NETS_W], features));
    if (maps) MM_TRY(run_reorder(op, &op->from_planes, features, dx, args->at[NETS_WORKSPACE]));
    nets_host_accumulate(dx, args->at[NETS_EARLIER], op->x_elems);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    linear_op *op = (linear_op *)base;
    void *features;
    MM_TRY(get_features(op, args, &features));
    MM_TRY(run_product(op, &op->dw, args, args->at[NETS_DY], features, args->at[NETS_DW]));
    if (op->wants_dx) MM_TRY(run_backward_data(op, args));
    const nets_channels_bias bias = {.dy = args->at[NETS_DY], .dbias = args->at[NETS_DB]};
    if (op->bias) nets_channels_bias_backward(&op->channels, &bias, args->at[NETS_WORKSPACE]);
    return MM_OK;
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_forward, args, stream);
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_backward, args, stream);
}

static int64_t workspace_bytes(const nets_op *op, mm_phase phase) {
    (void)phase;
    return ((const linear_op *)op)->workspace_bytes;
}

static void destroy(nets_op *base) {
    linear_op *op = (linear_op *)base;
    nets_dnn_kernel_fini(&op->y);
    nets_dnn_kernel_fini(&op->dx);
    nets_dnn_kernel_fini(&op->dw);
    nets_dnn_kernel_fini(&op->to_planes);
    nets_dnn_kernel_fini(&op->from_planes);
    free(op);
}

static mm_status make_kernels(linear_op *op, const nets_op_desc *desc) {
    int64_t batch = op->batch, in = op->x_elems / batch, out = desc->y[3];
    bool maps = desc->x[1] * desc->x[2] > 1;
    const nets_dnn_product_desc y = {.rows = batch, .inner = in, .columns = out, .b_transposed = true};
    const nets_dnn_product_desc dx = {.rows = batch, .inner = out, .columns = in};
    const nets_dnn_product_desc dw = {.rows = out, .inner = batch, .columns = in, .a_transposed = true};
    MM_TRY(nets_dnn_product(op->dnn, &y, &op->y));
    if (maps) MM_TRY(nets_dnn_planes_reorder(op->dnn, desc->x, true, &op->to_planes));
    if (!desc->training) return MM_OK;
    MM_TRY(nets_dnn_product(op->dnn, &dw, &op->dw));
    if (!desc->wants_dx) return MM_OK;
    MM_TRY(nets_dnn_product(op->dnn, &dx, &op->dx));
    return maps ? nets_dnn_planes_reorder(op->dnn, desc->x, false, &op->from_planes) : MM_OK;
}

static void measure_workspace(linear_op *op) {
    const nets_dnn_kernel *const kernels[] = {&op->y, &op->dx, &op->dw, &op->to_planes, &op->from_planes};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        op->scratch_bytes = nets_larger(op->scratch_bytes, kernels[i]->scratch_bytes);
    op->scratch_bytes = nets_aligned(op->scratch_bytes);
    op->workspace_bytes = op->scratch_bytes;
    if (op->to_planes.primitive) op->workspace_bytes += nets_aligned(op->x_elems * (int64_t)sizeof(float));
    if (op->bias) op->workspace_bytes = nets_larger(op->workspace_bytes, op->channels.scratch_bytes);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    linear_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a linear layer");
    op->base.impl = &nets_host_linear;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_elems(desc->x);
    op->batch = desc->x[0];
    op->channels = nets_channels_of(desc->x[0], desc->y[3]);
    op->bias = desc->attrs.bias;
    op->wants_dx = desc->wants_dx;
    mm_status status = make_kernels(op, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    measure_workspace(op);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_host_linear = {create, destroy, workspace_bytes, forward, backward};
