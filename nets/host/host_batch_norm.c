/* SPDX-License-Identifier: MIT */
/* Batch norm, also fused with a sum and a ReLU. It normalises with the batch's biased variance and keeps the unbiased
 * one in the running statistics, as torch does. It uses own loops. Measured on maps of 2 to 50 MB with one thread, they
 * take the same time as oneDNN's, which read the input once more; the ReLU adds no time. */
#include <stdlib.h>

#include "nets/contract/op_batch_norm.h"
#include "nets/host/channels.h"
#include "nets/host/host_ops.h"

/* Computing the ReLU's signs from x needs two more lines of constants. Up to MOST_LANES_BY_X lanes these fit the
 * first-level cache beside the others. Measured: computing them from x saves a fifth of the time with so many lanes,
 * and costs a fifth with four times as many. Maps below LEAST_ELEMS_BY_X fit the cache themselves and gain nothing. */
enum { MOST_LANES_BY_X = 512, LEAST_ELEMS_BY_X = 1 << 14 };

static bool gains_by_x(const nets_channels *ch) {
    return ch->lanes <= MOST_LANES_BY_X && ch->elems >= LEAST_ELEMS_BY_X;
}

typedef struct batch_norm_op {
    nets_op base;
    nets_channels channels;
    float eps, momentum;
    bool relu, training, wants_dx;
    bool by_x; /* the backward may compute the ReLU's signs from x, and gains by it */
} batch_norm_op;

static void update_running(const batch_norm_op *op, const nets_op_args *args) {
    const float *mean = args->at[NETS_SAVED_MEAN], *var = args->at[NETS_SAVED_VAR];
    float *running_mean = args->at[NETS_MEAN], *running_var = args->at[NETS_VAR];
    if (!running_mean) return; /* a recomputation: the running statistics have this batch already */
    int64_t count = op->channels.rows;
    float unbias = count > 1 ? (float)count / (float)(count - 1) : 1.0f;
    for (int64_t c = 0; c < op->channels.channels; c++) {
        running_mean[c] += op->momentum * (mean[c] - running_mean[c]);
        running_var[c] += op->momentum * (var[c] * unbias - running_var[c]);
    }
}

static nets_channels_affine affine_of(const batch_norm_op *op, const nets_op_args *args) {
    return (nets_channels_affine){.mean = args->at[op->training ? NETS_SAVED_MEAN : NETS_MEAN],
                                  .var = args->at[op->training ? NETS_SAVED_VAR : NETS_VAR],
                                  .scale = args->at[NETS_W],
                                  .shift = args->at[NETS_B],
                                  .eps = op->eps};
}

static const mm_coded *code_of(const nets_op_args *args, int which) {
    return args->coded[which].strips ? &args->coded[which] : NULL;
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const batch_norm_op *op = (const batch_norm_op *)base;
    const nets_channels_norm norm = {.by = affine_of(op, args),
                                     .x = args->at[NETS_X],
                                     .x2 = args->at[NETS_X2],
                                     .relu = op->relu,
                                     .y = args->at[NETS_Y],
                                     .x_code = code_of(args, NETS_CODED_X),
                                     .y_code = code_of(args, NETS_CODED_Y)};
    if (op->training && !(args->given_roles & NETS_STATISTICS_BITS)) {
        nets_channels_statistics(&op->channels, args->at[NETS_X], args->at[NETS_SAVED_MEAN], args->at[NETS_SAVED_VAR],
                                 args->at[NETS_WORKSPACE]);
        update_running(op, args);
    }
    nets_channels_normalise(&op->channels, &norm, args->at[NETS_WORKSPACE]);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const batch_norm_op *op = (const batch_norm_op *)base;
    int64_t bytes = op->channels.scratch_bytes;
    if (phase == MM_FORWARD || !op->relu) return bytes;
    if (!op->wants_dx) return bytes + op->channels.chunk_bytes; /* chunk_bytes is more than by_x_bytes */
    return bytes + (op->by_x ? op->channels.by_x_bytes : 0);
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const batch_norm_op *op = (const batch_norm_op *)base;
    bool by_mask = args->sign_roles & NETS_ROLE_BIT(NETS_Y);
    bool by_x = op->by_x && nets_knows_normalised(args);
    const nets_channels_gradients g = {.by = affine_of(op, args),
                                       .relu = op->relu,
                                       .y = by_x || by_mask ? NULL : args->at[NETS_Y],
                                       .mask = !by_x && by_mask ? args->at[NETS_Y] : NULL,
                                       .x = args->at[NETS_X],
                                       .x_code = code_of(args, NETS_CODED_X),
                                       .window = (char *)args->at[NETS_WORKSPACE] +
                                                 nets_aligned(workspace_bytes(base, MM_BACKWARD)),
                                       .dy = args->at[NETS_DY],
                                       .earlier = args->at[NETS_EARLIER],
                                       .earlier2 = args->at[NETS_EARLIER2],
                                       .dx = op->wants_dx ? args->at[NETS_DX] : NULL,
                                       .dx2 = args->at[NETS_DX2],
                                       .dscale = args->at[NETS_DW],
                                       .dshift = args->at[NETS_DB]};
    nets_channels_backward(&op->channels, &g, args->at[NETS_WORKSPACE]);
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    batch_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a batch norm");
    *op = (batch_norm_op){.base.impl = &nets_host_op_batch_norm.base,
                          .channels = nets_channels_of(nets_shape_rows(&desc->x[0]), nets_shape_channels(&desc->x[0]),
                                                       desc->maps, nets_host_pool(backend)),
                          .eps = desc->attrs.eps,
                          .momentum = desc->attrs.momentum,
                          .relu = desc->relu,
                          .training = desc->training,
                          .wants_dx = desc->wants_dx};
    op->by_x = desc->relu && desc->n_inputs == 1 && gains_by_x(&op->channels);
    op->base.code_needs = (nets_code_needs){.workspace_bytes = op->channels.chunk_bytes,
                                            .workspace_strips = 2 * op->channels.places,
                                            .passes = op->wants_dx ? 2 : 1};
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_batch_norm =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create, nets_host_free, workspace_bytes,
                   run_forward, run_backward);
