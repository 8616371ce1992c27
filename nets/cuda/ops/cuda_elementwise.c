/* SPDX-License-Identifier: MIT */
/* ReLU, residual sum, dropout and the update step: glue to op_elementwise_kernels.cu and op_update_kernels.cu, and
 * for a ReLU with a bias to op_channels_kernels.cu. */
#include <stdlib.h>
#include <string.h>

#include "nets/cuda/cuda_ops.h"

typedef struct elementwise_op {
    nets_op base;
    mm_dtype maps;
    int64_t elems, channels;
    nets_cuda_dropout dropout;
    nets_cuda_reduction by_bias; /* sums the bias's gradient; all zero unless this is a ReLU with a bias in training */
} elementwise_op;

static mm_status create(const nets_op_impl *impl, const nets_op_desc *desc, nets_op **op_out) {
    elementwise_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = impl;
    op->maps = desc->maps;
    op->elems = nets_shape_elems(&desc->x[0]);
    op->channels = nets_shape_channels(&desc->x[0]);
    op->dropout.image_elems = op->elems / desc->x[0].dims[0];
    op->dropout.threshold = (uint32_t)((double)desc->attrs.p * 4294967296.0);
    op->dropout.scale = 1.0f / (1.0f - desc->attrs.p);
    *op_out = &op->base;
    return MM_OK;
}

static void destroy(nets_op *op) { free(op); }

static mm_dtype maps_of(const nets_op *op) { return ((const elementwise_op *)op)->maps; }
static int64_t elems_of(const nets_op *op) { return ((const elementwise_op *)op)->elems; }

/* ---------------------------------------------------------------- ReLU */

static mm_status relu_forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    nets_cuda_relu(maps_of(op), args->at[NETS_X], args->at[NETS_Y], elems_of(op), mm_cuda_stream(stream));
    return nets_cuda_launched("relu");
}

static mm_status relu_backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    nets_cuda_relu_backward(maps_of(op), args->at[NETS_DY], nets_cuda_gate_of(args), args->at[NETS_EARLIER],
                            args->at[NETS_DX], elems_of(op), mm_cuda_stream(stream));
    return nets_cuda_launched("relu's gradient");
}

/* ---------------------------------------------------------------- ReLU with a bias */

static int64_t rows_of(const elementwise_op *op) { return op->elems / op->channels; }

static mm_status bias_relu_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const elementwise_op *op = (const elementwise_op *)base;
    nets_cuda_bias_relu(op->maps, args->at[NETS_X], args->at[NETS_B], args->at[NETS_Y], rows_of(op), op->channels,
                        mm_cuda_stream(stream));
    return nets_cuda_launched("relu with a bias");
}

static mm_status bias_relu_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const elementwise_op *op = (const elementwise_op *)base;
    nets_cuda_bias_relu_backward(op->maps, args->at[NETS_DY], nets_cuda_gate_of(args), args->at[NETS_EARLIER],
                                 args->at[NETS_DX], &op->by_bias, args->at[NETS_WORKSPACE], args->at[NETS_DB],
                                 mm_cuda_stream(stream));
    return nets_cuda_launched("the gradient of relu with a bias");
}

static int64_t bias_relu_workspace_bytes(const nets_op *base, mm_phase phase) {
    const elementwise_op *op = (const elementwise_op *)base;
    return phase == MM_BACKWARD && op->by_bias.strips.rows ? nets_strips_bytes(&op->by_bias.strips) : 0;
}

static const nets_op_impl bias_relu = {NETS_CUDA_MAPS,    NULL, destroy, bias_relu_workspace_bytes, bias_relu_forward,
                                       bias_relu_backward};

static mm_status create_relu(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    if (!desc->attrs.bias) return create(&nets_cuda_op_relu, desc, op_out);
    MM_TRY(nets_cuda_check_dims(desc));
    MM_TRY(create(&bias_relu, desc, op_out));
    elementwise_op *op = (elementwise_op *)*op_out;
    mm_status status =
        desc->training ? nets_cuda_reduction_init(&op->by_bias, (nets_cuda_backend *)backend, &desc->x[0]) : MM_OK;
    if (status != MM_OK) destroy(&op->base);
    return status;
}

/* ---------------------------------------------------------------- residual sum */

static mm_status add_forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    nets_cuda_sum(maps_of(op), args->at[NETS_X], args->at[NETS_X2], args->at[NETS_Y], elems_of(op),
                  mm_cuda_stream(stream));
    return nets_cuda_launched("add");
}

/* The gradient by one addend: dy plus the earlier contribution. Nothing to do if that is NULL and dx is dy. */
static void add_backward_one(const nets_op *op, const void *dy, const void *earlier, void *dx, mm_stream *stream) {
    if (dx && (earlier || dx != dy)) nets_cuda_sum(maps_of(op), dy, earlier, dx, elems_of(op), mm_cuda_stream(stream));
}

static mm_status add_backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    add_backward_one(op, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX], stream);
    add_backward_one(op, args->at[NETS_DY], args->at[NETS_EARLIER2], args->at[NETS_DX2], stream);
    return nets_cuda_launched("add's gradient");
}

static mm_status create_add(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    return create(&nets_cuda_op_add, desc, op_out);
}

/* ---------------------------------------------------------------- dropout */

static mm_status drop(const nets_op *base, const nets_op_args *args, nets_role in, nets_role earlier, nets_role out,
                      mm_stream *stream) {
    nets_cuda_dropout how = ((const elementwise_op *)base)->dropout;
    how.rng = args->at[NETS_RNG];
    how.layer = args->layer;
    nets_cuda_drop(maps_of(base), how, args->at[in], earlier == NETS_WORKSPACE ? NULL : args->at[earlier],
                   args->at[out], elems_of(base), mm_cuda_stream(stream));
    return nets_cuda_launched("dropout");
}

static mm_status dropout_forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return drop(op, args, NETS_X, NETS_WORKSPACE, NETS_Y, stream);
}

static mm_status dropout_backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return drop(op, args, NETS_DY, NETS_EARLIER, NETS_DX, stream);
}

static mm_status create_dropout(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    return create(&nets_cuda_op_dropout, desc, op_out);
}

/* ---------------------------------------------------------------- update */

static void list_tensors(const nets_update_param *params, int n, nets_cuda_update *update) {
    uint32_t block = 0;
    memset(update->decayed, 0, sizeof update->decayed);
    for (int i = 0; i < n; i++) {
        update->decayed[i / 32] |= (uint32_t)params[i].decayed << i % 32;
        update->tensors[i].weight = params[i].weight;
        memcpy(update->tensors[i].state, params[i].state, sizeof params[i].state);
        update->tensors[i].gradient = params[i].gradient;
        update->tensors[i].copy = params[i].copy;
        update->tensors[i].elems = params[i].elems;
        update->first_block[i] = block;
        block += (uint32_t)((params[i].elems + NETS_CUDA_UPDATE_CHUNK - 1) / NETS_CUDA_UPDATE_CHUNK);
    }
    update->first_block[n] = block;
    update->n = n;
}

typedef void (*update_fn)(const nets_cuda_update *update, cudaStream_t stream);

static const update_fn UPDATES[] = {[NETS_SGD] = nets_cuda_update_sgd,
                                    [NETS_PLAIN_SGD] = nets_cuda_update_plain_sgd,
                                    [NETS_ADAMW] = nets_cuda_update_adamw};
_Static_assert(sizeof UPDATES / sizeof *UPDATES == NETS_OPTIMIZERS, "an update for each");

/* Passes over all tensors, in this order: HALT checks the gradients, NORM sums their squares, MOVE updates the
 * weights. */
enum { HALT, NORM, MOVE, PASSES };

/* A launch for every NETS_CUDA_UPDATE_TENSORS tensors. The last of MOVE counts the iteration, unless it is halted. */
static void enqueue_pass(int pass, const nets_update_args *args, nets_cuda_norm *norm, nets_cuda_update *update,
                         cudaStream_t stream) {
    int parts = 0;
    const int all = pass == HALT ? args->n_checked : args->n_params;
    for (int first = 0; first < all || (first == 0 && pass == HALT); first += NETS_CUDA_UPDATE_TENSORS) {
        int n = all - first;
        if (n > NETS_CUDA_UPDATE_TENSORS) n = NETS_CUDA_UPDATE_TENSORS;
        update->rng = first + n == all && !args->goes_on ? args->rng : NULL;
        list_tensors(args->params + first, n, update);
        const uint32_t chunks = update->first_block[n];
        if (first == 0) parts = chunks < NETS_CUDA_UPDATE_PARTS ? (int)chunks : NETS_CUDA_UPDATE_PARTS;
        if (pass == HALT)
            nets_cuda_update_halt(update, args->loss, args->most, args->rng + NETS_RNG_HALTED, stream);
        else if (pass == NORM)
            nets_cuda_update_squares(update, norm->parts, parts, first > 0, stream);
        else
            UPDATES[args->optimizer.id](update, stream);
    }
    if (pass == NORM) nets_cuda_update_clip(norm->parts, parts, args->optimizer.clip_norm, &norm->clip, stream);
}

static mm_status enqueue_updates(const nets_update_args *args, nets_cuda_norm *norm, mm_stream *stream) {
    const uint32_t *halted = args->optimizer.only_finite ? args->rng + NETS_RNG_HALTED : NULL;
    const bool clips = args->optimizer.clip_norm > 0, runs[PASSES] = {halted && args->checks, clips, true};
    nets_cuda_update update = {.optimizer = args->optimizer,
                               .lr = args->lr,
                               .step = args->step,
                               .halted = halted,
                               .clip = clips ? &norm->clip : NULL};
    for (int pass = 0; pass < PASSES; pass++)
        if (runs[pass]) enqueue_pass(pass, args, norm, &update, mm_cuda_stream(stream));
    if (args->step && !args->goes_on) nets_cuda_update_count(args->step, halted, mm_cuda_stream(stream));
    return nets_cuda_launched("the update");
}

mm_status nets_cuda_update_step(nets_backend *backend, const nets_update_args *args, mm_stream *stream) {
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    mm_status status = enqueue_updates(args, ((nets_cuda_backend *)backend)->norm, stream);
    mm_device_leave(stream->device, entered);
    return status;
}

mm_status nets_cuda_check_step(nets_backend *backend, const nets_update_args *args, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_update update = {0};
    enqueue_pass(HALT, args, NULL, &update, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("the check of gradients");
    mm_device_leave(stream->device, entered);
    return status;
}

/* ---------------------------------------------------------------- sub-batches */

mm_status nets_cuda_pass_on_step(nets_backend *backend, uint32_t *rng, int64_t images, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_pass_on(rng, images, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("the end of a sub-batch");
    mm_device_leave(stream->device, entered);
    return status;
}

mm_status nets_cuda_add_step(nets_backend *backend, float *sum, const float *addend, int64_t elems, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_sum(MM_F32, sum, addend, sum, elems, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("a sum of gradients");
    mm_device_leave(stream->device, entered);
    return status;
}

const nets_op_impl nets_cuda_op_relu = {NETS_CUDA_MAPS, create_relu, destroy, NULL, relu_forward, relu_backward};
const nets_op_impl nets_cuda_op_add = {NETS_CUDA_MAPS, create_add, destroy, NULL, add_forward, add_backward};
const nets_op_impl nets_cuda_op_dropout = {NETS_CUDA_MAPS, create_dropout,  destroy,
                                           NULL,           dropout_forward, dropout_backward};

/* ---------------------------------------------------------------- batches */

mm_status nets_cuda_pad_step(nets_backend *backend, const float *from, float *to, int64_t pixels, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_pad_pixels(MM_F32, from, to, pixels, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("a batch's fourth channel");
    mm_device_leave(stream->device, entered);
    return status;
}

/* ---------------------------------------------------------------- types */

mm_status nets_cuda_convert_step(nets_backend *backend, mm_dtype from_type, const void *from, mm_dtype to_type,
                                 void *to, int64_t elems, mm_stream *stream) {
    (void)backend;
    nets_cuda_convert(from_type, from, to_type, to, elems, mm_cuda_stream(stream));
    return nets_cuda_launched("a conversion");
}
