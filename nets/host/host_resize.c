/* SPDX-License-Identifier: MIT */
/* Operations that change an image's size and have no weights: pooling (maximum, average, global average), and
 * upsampling by a whole factor; by oneDNN. */
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

typedef struct resize_op {
    nets_op base;
    const nets_dnn *dnn;
    nets_piecewise forward, backward; /* arguments: input, output, a max pool's indices */
    nets_dnn_windows maxima;          /* a max pool's */
    bool is_max;
    int64_t x_elems;
    int64_t halves; /* bytes of a max pool's indices, if two share a byte (oneDNN has one a byte); else 0 */
} resize_op;

static bool has_nan(const float *x, int64_t n) {
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < n; i++) found |= x[i] != x[i];
    return found;
}

/* Copies the NaNs in the windows of y's pixel `at` to y. */
static void keep_nans_of(const nets_dnn_windows *w, const float *x, int64_t at, float *y) {
    const int64_t *xd = w->x, channels = xd[3];
    int64_t ox = at % w->y[2], oy = at / w->y[2] % w->y[1], image = at / (w->y[2] * w->y[1]);
    for (int64_t ky = 0; ky < w->kernel[0]; ky++)
        for (int64_t kx = 0; kx < w->kernel[1]; kx++) {
            int64_t iy = oy * w->stride[0] + ky - w->pad[0], ix = ox * w->stride[1] + kx - w->pad[1];
            if (iy < 0 || iy >= xd[1] || ix < 0 || ix >= xd[2]) continue;
            const float *in = x + ((image * xd[1] + iy) * xd[2] + ix) * channels;
            for (int64_t c = 0; c < channels; c++)
                if (in[c] != in[c]) y[at * channels + c] = in[c];
        }
}

typedef struct maxima {
    const nets_dnn_windows *w;
    const float *x;
    float *y;
} maxima;

static void keep_nans_of_images(const void *ctx, int64_t from, int64_t to) {
    const maxima *m = ctx;
    int64_t elems = nets_elems(m->w->x) / m->w->x[0], rows = m->w->y[1] * m->w->y[2];
    if (!has_nan(m->x + from * elems, (to - from) * elems)) return;
    for (int64_t at = from * rows; at < to * rows; at++) keep_nans_of(m->w, m->x, at, m->y);
}

/* oneDNN's maximum passes over NaNs, and is the least float if there is nothing else: a training that diverges would
 * not show. */
static void keep_nans(const resize_op *op, const float *x, float *y) {
    const maxima m = {.w = &op->maxima, .x = x, .y = y};
    int64_t images = op->maxima.x[0];
    if (op->is_max) nets_ranges(op->dnn->pool, images, 1, op->x_elems / images, keep_nans_of_images, &m);
}

/* ---------------------------------------------------------------- indices in 4 bits */

typedef struct indices {
    uint8_t *whole, *halves; /* one a byte; two a byte */
} indices;

static void halve(const void *ctx, int64_t from, int64_t to) {
    const indices *i = ctx;
    for (int64_t b = from; b < to; b++) i->halves[b] = (uint8_t)((i->whole[2 * b] & 15) | i->whole[2 * b + 1] << 4);
}

static void unhalve(const void *ctx, int64_t from, int64_t to) {
    const indices *i = ctx;
    for (int64_t b = from; b < to; b++) {
        i->whole[2 * b] = i->halves[b] & 15;
        i->whole[2 * b + 1] = i->halves[b] >> 4;
    }
}

/* The offset in the workspace of oneDNN's indices: behind the pieces' scratch. */
static int64_t whole_indices(const resize_op *op, const nets_piecewise *run) {
    return nets_aligned(nets_piecewise_places(op->dnn, run) * run->scratch_bytes);
}

/* The indices as oneDNN has them. */
static void *indices_of(const resize_op *op, const nets_piecewise *run, const nets_op_args *args) {
    if (op->halves == 0) return args->at[NETS_INDEX];
    return (uint8_t *)args->at[NETS_WORKSPACE] + whole_indices(op, run);
}

/* ---------------------------------------------------------------- the op */

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    resize_op *op = (resize_op *)base;
    const indices i = {indices_of(op, &op->forward, args), args->at[NETS_INDEX]};
    void *const at[NETS_PIECE_ARGS] = {args->at[NETS_X], args->at[NETS_Y], i.whole};
    MM_TRY(nets_piecewise_run(op->dnn, &op->forward, at, args->at[NETS_WORKSPACE]));
    if (op->halves > 0) nets_ranges(op->dnn->pool, op->halves, 1, 1, halve, &i);
    keep_nans(op, args->at[NETS_X], args->at[NETS_Y]);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    resize_op *op = (resize_op *)base;
    const indices i = {indices_of(op, &op->backward, args), args->at[NETS_INDEX]};
    void *const at[NETS_PIECE_ARGS] = {args->at[NETS_DX], args->at[NETS_DY], i.whole};
    if (op->halves > 0) nets_ranges(op->dnn->pool, op->halves, 1, 1, unhalve, &i);
    MM_TRY(nets_piecewise_run(op->dnn, &op->backward, at, args->at[NETS_WORKSPACE]));
    nets_host_accumulate_on(op->dnn->pool, args->at[NETS_DX], args->at[NETS_EARLIER], op->x_elems);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const resize_op *op = (const resize_op *)base;
    const nets_piecewise *run = phase == MM_FORWARD ? &op->forward : &op->backward;
    if (op->halves > 0) return whole_indices(op, run) + 2 * op->halves;
    return nets_piecewise_places(op->dnn, run) * run->scratch_bytes;
}

static void destroy(nets_op *base) {
    resize_op *op = (resize_op *)base;
    nets_piecewise_fini(&op->forward);
    nets_piecewise_fini(&op->backward);
    free(op);
}

static nets_dnn_pool pool_kind(const nets_op_desc *desc) {
    if (desc->kind == NETS_MAX_POOL) return NETS_DNN_POOL_MAX;
    /* torch never counts what a window in ceil mode has beyond the padding. So without padding it is excluded; with
     * padding, such windows are refused (describe_windows.c). */
    bool exclude = desc->attrs.exclude_pad || (desc->attrs.ceil_mode && !desc->attrs.pad[0] && !desc->attrs.pad[1]);
    return exclude ? NETS_DNN_POOL_AVG_EXCLUDE_PAD : NETS_DNN_POOL_AVG;
}

nets_dnn_windows nets_host_windows(const nets_op_desc *desc) {
    nets_dnn_windows w = {.groups = desc->attrs.groups};
    memcpy(w.x, desc->x[0].dims, sizeof w.x);
    memcpy(w.y, desc->y.dims, sizeof w.y);
    for (int d = 0; d < 2; d++) {
        w.kernel[d] = desc->attrs.kernel[d];
        w.stride[d] = desc->attrs.stride[d];
        w.pad[d] = w.pad_end_least[d] = desc->attrs.pad[d];
        w.dilation[d] = nets_larger(desc->attrs.dilation[d], 1); /* pools have no dilation: theirs is 0 */
    }
    return w;
}

static mm_status make_kernel(const nets_dnn *dnn, const nets_op_desc *desc, int64_t images, bool backward,
                             nets_dnn_kernel *kernel_out) {
    nets_dnn_windows w = nets_host_windows(desc);
    w.x[0] = w.y[0] = images;
    if (desc->kind == NETS_UPSAMPLE)
        return backward ? nets_dnn_upsample_backward(dnn, w.x, w.y, desc->attrs.bilinear, kernel_out)
                        : nets_dnn_upsample_forward(dnn, w.x, w.y, desc->attrs.bilinear, kernel_out);
    return backward ? nets_dnn_pool_backward(dnn, &w, pool_kind(desc), kernel_out)
                    : nets_dnn_pool_forward(dnn, &w, pool_kind(desc), desc->training, kernel_out);
}

/* The pieces' offsets take one byte of indices for each output. */
static mm_status check_indices(const nets_op_desc *desc, const nets_dnn_kernel *kernel, int64_t images) {
    int64_t bytes = nets_dnn_arg_bytes(kernel, DNNL_ARG_WORKSPACE),
            maxima = nets_shape_elems(&desc->y) / desc->y.dims[0] * images;
    if (desc->kind != NETS_MAX_POOL || !desc->training || bytes == maxima) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "oneDNN has %lld bytes of indices for %lld maxima, not one for each",
                   (long long)bytes, (long long)maxima);
}

static mm_status make(const nets_dnn *dnn, const nets_op_desc *desc, bool backward, nets_piecewise *run) {
    const nets_cut cut = nets_cut_of(desc->x[0].dims[0], nets_pieces(dnn->pool), 1, 1);
    int64_t x = nets_shape_elems(&desc->x[0]) / desc->x[0].dims[0], y = nets_shape_elems(&desc->y) / desc->y.dims[0];
    const int64_t images[] = {cut.each, nets_cut_rest(&cut)};
    const nets_piece_arg args[NETS_PIECE_ARGS] = {
        {backward ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x * (int64_t)sizeof(float), 0},
        {backward ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, y * (int64_t)sizeof(float), 0},
        {DNNL_ARG_WORKSPACE, y, 0}, /* maxima only */
    };
    for (int k = 0; k < (images[1] == images[0] ? 1 : 2); k++) {
        MM_TRY(make_kernel(dnn, desc, images[k], backward, &run->kernel[k]));
        MM_TRY(check_indices(desc, &run->kernel[k], images[k]));
    }
    nets_piecewise_measure(run);
    return nets_piecewise_init_cut(run, &cut, args);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    resize_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a pool or an upsampling");
    op->base.impl = backend->ops->impls[desc->kind];
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_shape_elems(&desc->x[0]);
    op->maxima = nets_host_windows(desc);
    op->is_max = desc->kind == NETS_MAX_POOL;
    if (op->is_max && desc->training && nets_halves_index(&desc->attrs, nets_shape_channels(&desc->y)))
        op->halves = nets_shape_elems(&desc->y) / 2;
    mm_status status = make(op->dnn, desc, false, &op->forward);
    if (status == MM_OK && desc->training) status = make(op->dnn, desc, true, &op->backward);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

#define RESIZE NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, destroy, workspace_bytes, run_forward, run_backward)

const nets_host_impl nets_host_op_max_pool = RESIZE;
const nets_host_impl nets_host_op_avg_pool = RESIZE;
const nets_host_impl nets_host_op_global_avg_pool = RESIZE;
const nets_host_impl nets_host_op_upsample = RESIZE;
