/* What gives an image another size and has no weights: pooling (maximum, average, global average), and upsampling by a
 * whole factor; on oneDNN. */
#include <stdlib.h>

#include "nets/host/ops.h"

typedef struct resize_op {
    nets_op base;
    const nets_dnn *dnn;
    nets_dnn_kernel forward, backward;
    nets_dnn_windows maxima; /* a max pool's */
    bool is_max;
    int64_t x_elems;
} resize_op;

static bool has_nan(const float *x, int64_t n) {
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < n; i++) found |= x[i] != x[i];
    return found;
}

/* The windows of row `at` of y (one pixel's channels): where they hold a NaN, so does y. */
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

/* oneDNN passes over a NaN, to the least float where there is nothing else: a training that diverges would not show. */
static void keep_nans(const resize_op *op, const float *x, float *y) {
    const nets_dnn_windows *w = &op->maxima;
    if (!op->is_max || !has_nan(x, op->x_elems)) return;
    for (int64_t at = 0; at < w->y[0] * w->y[1] * w->y[2]; at++) keep_nans_of(w, x, at, y);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    resize_op *op = (resize_op *)base;
    MM_TRY(nets_dnn_bind(&op->forward, DNNL_ARG_SRC, args->at[NETS_X]));
    MM_TRY(nets_dnn_bind(&op->forward, DNNL_ARG_DST, args->at[NETS_Y]));
    MM_TRY(nets_dnn_bind(&op->forward, DNNL_ARG_WORKSPACE, args->at[NETS_INDEX])); /* maxima only */
    MM_TRY(nets_dnn_run(op->dnn, &op->forward, args->at[NETS_WORKSPACE]));
    keep_nans(op, args->at[NETS_X], args->at[NETS_Y]);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    resize_op *op = (resize_op *)base;
    MM_TRY(nets_dnn_bind(&op->backward, DNNL_ARG_DIFF_DST, args->at[NETS_DY]));
    MM_TRY(nets_dnn_bind(&op->backward, DNNL_ARG_WORKSPACE, args->at[NETS_INDEX]));
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
    const resize_op *op = (const resize_op *)base;
    return phase == MM_FORWARD ? op->forward.scratch_bytes : op->backward.scratch_bytes;
}

static void destroy(nets_op *base) {
    resize_op *op = (resize_op *)base;
    nets_dnn_kernel_fini(&op->forward);
    nets_dnn_kernel_fini(&op->backward);
    free(op);
}

static nets_dnn_pool pool_kind(const nets_op_desc *desc) {
    if (desc->kind == NETS_MAX_POOL) return NETS_DNN_POOL_MAX;
    /* What a window in ceil mode has beyond image and padding does not count in either: the IR lets no other padding
     * come together with it. */
    bool exclude = desc->attrs.exclude_pad || (desc->attrs.ceil_mode && !desc->attrs.pad[0] && !desc->attrs.pad[1]);
    return exclude ? NETS_DNN_POOL_AVG_EXCLUDE_PAD : NETS_DNN_POOL_AVG;
}

static mm_status make_pool(resize_op *op, const nets_op_desc *desc) {
    const nets_dnn_windows w = nets_host_windows(desc);
    nets_dnn_pool kind = pool_kind(desc);
    op->maxima = w;
    op->is_max = kind == NETS_DNN_POOL_MAX;
    MM_TRY(nets_dnn_pool_forward(op->dnn, &w, kind, desc->training, &op->forward));
    if (!desc->training) return MM_OK;
    /* The graph counts one byte for each output. */
    int64_t index_bytes = nets_dnn_arg_bytes(&op->forward, DNNL_ARG_WORKSPACE);
    if (desc->kind == NETS_MAX_POOL && index_bytes != nets_elems(desc->y))
        return mm_fail(MM_ERR_UNSUPPORTED, "oneDNN keeps %lld bytes of indices for %lld maxima", (long long)index_bytes,
                       (long long)nets_elems(desc->y));
    return nets_dnn_pool_backward(op->dnn, &w, kind, &op->backward);
}

static mm_status make_upsample(resize_op *op, const nets_op_desc *desc) {
    MM_TRY(nets_dnn_upsample_forward(op->dnn, desc->x, desc->y, desc->attrs.bilinear, &op->forward));
    if (!desc->training) return MM_OK;
    return nets_dnn_upsample_backward(op->dnn, desc->x, desc->y, desc->attrs.bilinear, &op->backward);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    resize_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a pool or an upsampling");
    op->base.impl = &nets_host_resize;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_elems(desc->x);
    mm_status status = desc->kind == NETS_UPSAMPLE ? make_upsample(op, desc) : make_pool(op, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_host_resize = {create, destroy, workspace_bytes, forward, backward};
