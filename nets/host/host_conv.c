/* SPDX-License-Identifier: MIT */
/* Convolution and transposed convolution, on oneDNN's convolutions. The transposed one is the gradient of a convolution
 * that leads from its output to its input: the same three kernels, forward and data gradient exchanged, and that
 * convolution's weights. A bias is added and summed by own loops, the same that a ReLU has where lowering gives it the
 * bias (fuse.h).
 *
 * Weights come in the plain layout and are reordered in the workspace, which a phase's parts (y; dw, then dx) use one
 * after the other. A part is computed in pieces of the batch (partition.h), or of rows if there are few images; as many
 * pieces as there are threads run at a time. Each piece computes a weights' gradient of its own, and these are added in
 * order:
 *
 *   | scratchpad | scratchpad ... | weights in oneDNN's layout, or the first piece's gradient | further pieces' ...  |
 *     a thread's
 *
 * A pass that adds to the gradients of earlier ones (nets_pass) adds as it reorders, or, without a reorder, from the
 * first piece's gradient. A bias's gradient that is to be added lies behind the scratch of its sum.
 *
 * There is one algorithm, oneDNN's direct one, so that every plan gives the same bits. oneDNN 2.6.3 has two others:
 * with GEMM it takes 1.3 to 2 times as long and more scratch; with Winograd (windows of 3 x 3, AVX-512) 0.28 to 0.7
 * times as long, but 9 to 136 MiB of scratch instead of less than 16 KiB, and maps in blocks of 16 channels, besides.
 * (CPU time of one core of an EPYC, convolutions of VGG-16 and ResNet-50 at batch 8 and 32.)
 *
 * A data gradient that is added to an earlier one is computed image by image, in a buffer of the thread behind the
 * part's workspace. So dx may be in the earlier gradient's place.
 *
 * A depthwise convolution's weights' gradient is computed by own loops (depthwise.h).
 *
 * With bf16 maps, the batch, which is f32, is first rounded to the workspace's beginning. */
#include <stdlib.h>
#include <string.h>

#include "nets/host/channels.h"
#include "nets/host/depthwise.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/weights_reorder.h"

/* A part's primitives, and the reorder of their weights, which runs before them (WEIGHTS) or after them
 * (DIFF_WEIGHTS). */
typedef struct conv_part {
    nets_piecewise run;     /* kernels of one direction; arguments: input, output, weights */
    nets_piecewise reorder; /* arguments: FROM, TO; no pieces: the layouts are equal */
    int64_t weights_bytes;  /* in oneDNN's layout */
    int64_t scratch_bytes, workspace_bytes;
} conv_part;

typedef struct conv_op {
    nets_op base;
    const nets_dnn *dnn;
    conv_part y, dx, dw; /* the parts that compute these; dw: not made if the weights are frozen */
    int64_t images, x_image_elems, y_image_elems;
    int64_t rounded_bytes;    /* the batch in bf16, at the workspace's beginning; 0: it is not rounded */
    nets_channels channels;   /* the output's */
    nets_depthwise depthwise; /* computes the weights' gradient in place of dw, if `own_dw` */
    bool own_dw;
    bool bias, transposed, wants_dx, adds_earlier, frozen;
    nets_role weight; /* NETS_W; with bf16 maps NETS_W16 */
} conv_op;

/* Where the part's primitives read or write their weights. */
static void *inner_weights(const conv_part *part, const nets_op_args *args, void *plain) {
    return part->workspace_bytes > part->scratch_bytes ? (char *)args->at[NETS_WORKSPACE] + part->scratch_bytes : plain;
}

static mm_status reorder(const conv_op *op, conv_part *part, const nets_op_args *args, const void *from, void *to) {
    void *const at[NETS_PIECE_ARGS] = {(void *)from, to};
    if (part->reorder.n_pieces == 0) return MM_OK;
    return nets_piecewise_run(op->dnn, &part->reorder, at, args->at[NETS_WORKSPACE]);
}

/* Runs a part that reads the weights, over all images. */
static mm_status run_part(const conv_op *op, conv_part *part, const nets_op_args *args, void *in, void *out) {
    void *weights = inner_weights(part, args, args->at[op->weight]);
    MM_TRY(reorder(op, part, args, args->at[op->weight], weights));
    void *const at[NETS_PIECE_ARGS] = {in, out, weights};
    return nets_piecewise_run(op->dnn, &part->run, at, args->at[NETS_WORKSPACE]);
}

typedef struct rounding {
    const conv_op *op;
    const float *from;
    uint16_t *to;
} rounding;

static void round_range(const void *ctx, int64_t from, int64_t to) {
    const rounding *r = ctx;
    r->op->channels.lines->narrow(r->from + from, to - from, r->to + from);
}

/* The arguments with which the parts run. If the batch is rounded, they have the rounded batch, and the workspace
 * behind it. */
static nets_op_args rounded(const conv_op *op, const nets_op_args *args) {
    nets_op_args inner = *args;
    if (!op->rounded_bytes) return inner;
    const rounding r = {op, args->at[NETS_X], args->at[NETS_WORKSPACE]};
    nets_ranges(op->dnn->pool, op->images * op->x_image_elems, 64, 1, round_range, &r);
    inner.at[NETS_X] = r.to;
    inner.at[NETS_WORKSPACE] = (char *)args->at[NETS_WORKSPACE] + op->rounded_bytes;
    return inner;
}

static mm_status run_forward(nets_op *base, const nets_op_args *outer) {
    conv_op *op = (conv_op *)base;
    const nets_op_args inner = rounded(op, outer), *args = &inner;
    MM_TRY(run_part(op, &op->y, args, args->at[NETS_X], args->at[NETS_Y]));
    if (op->bias)
        nets_channels_add_bias(&op->channels, args->at[NETS_Y], args->at[NETS_B], false, args->at[NETS_Y],
                               args->at[NETS_WORKSPACE]);
    return MM_OK;
}

/* The offset in the workspace of a bias's gradient that is then added to an earlier one: behind the scratch in which it
 * is summed. */
static int64_t bias_scratch(const conv_op *op) { return nets_aligned(op->channels.scratch_bytes); }

typedef struct gradients {
    const float *first;
    int64_t stride;
    int n;
    float *sum; /* may be `first` */
} gradients;

static void sum_gradients(const void *ctx, int64_t from, int64_t to) {
    const gradients *g = ctx;
    float *sum = g->sum;
    if (sum != g->first) memcpy(sum + from, g->first + from, (size_t)(to - from) * sizeof *sum);
    for (int i = 1; i < g->n; i++) nets_host_accumulate(sum + from, g->first + i * g->stride + from, to - from);
}

static void add_range(const void *ctx, int64_t from, int64_t to) {
    const gradients *g = ctx;
    nets_host_accumulate(g->sum + from, g->first + from, to - from);
}

static void give_bias_gradient(const conv_op *op, const nets_op_args *args) {
    float *sum = args->at[NETS_DB], *own = (float *)((char *)args->at[NETS_WORKSPACE] + bias_scratch(op));
    const nets_channels_bias bias = {.dy = args->at[NETS_DY], .dbias = op->base.adds ? own : sum};
    nets_channels_bias_backward(&op->channels, &bias, args->at[NETS_WORKSPACE]);
    if (op->base.adds) nets_host_accumulate(sum, own, op->channels.channels);
}

static void run_depthwise(const conv_op *op, const nets_op_args *args) {
    const void *x = args->at[NETS_X], *dy = args->at[NETS_DY];
    nets_depthwise_give_weights(&op->depthwise, op->transposed ? dy : x, op->transposed ? x : dy, op->base.adds,
                                args->at[NETS_DW], args->at[NETS_WORKSPACE]);
    if (op->bias) give_bias_gradient(op, args);
}

static mm_status run_backward_weights(conv_op *op, const nets_op_args *args) {
    if (op->own_dw) {
        run_depthwise(op, args);
        return MM_OK;
    }
    conv_part *part = &op->dw;
    void *gradient = inner_weights(part, args, args->at[NETS_DW]);
    void *const at[NETS_PIECE_ARGS] = {args->at[NETS_X], args->at[NETS_DY], gradient};
    MM_TRY(nets_piecewise_run(op->dnn, &part->run, at, args->at[NETS_WORKSPACE]));
    const gradients all = {.first = gradient,
                           .stride = nets_aligned(part->weights_bytes) / (int64_t)sizeof(float),
                           .n = part->run.n_pieces,
                           .sum = part->reorder.n_pieces > 0 || op->base.adds ? gradient : args->at[NETS_DW]};
    const gradients added = {.first = gradient, .sum = args->at[NETS_DW]};
    const int64_t elems = part->weights_bytes / (int64_t)sizeof(float);
    if (all.n > 1) nets_ranges(op->dnn->pool, elems, 1, 1, sum_gradients, &all);
    MM_TRY(reorder(op, part, args, gradient, args->at[NETS_DW]));
    if (op->base.adds && part->reorder.n_pieces == 0) nets_ranges(op->dnn->pool, elems, 1, 1, add_range, &added);
    if (op->bias) give_bias_gradient(op, args);
    return MM_OK;
}

/* ---------------------------------------------------------------- added to an earlier contribution */

typedef struct addition {
    conv_op *op;
    const nets_op_args *args;
} addition;

static int64_t image_bytes(const conv_op *op) { return nets_aligned(op->x_image_elems * (int64_t)sizeof(float)); }

static mm_status add_image(void *ctx, int64_t i, int thread) {
    const addition *a = ctx;
    const nets_op_args *args = a->args;
    conv_op *op = a->op;
    char *workspace = args->at[NETS_WORKSPACE];
    int64_t place = nets_piecewise_place(op->dnn, &op->dx.run, i, thread), n = op->x_image_elems;
    float *alone = (float *)(workspace + op->dx.workspace_bytes + place * image_bytes(op));
    void *const at[NETS_PIECE_ARGS] = {args->at[NETS_DY], alone, inner_weights(&op->dx, args, args->at[op->weight])};
    MM_TRY(nets_piecewise_run_one(op->dnn, &op->dx.run, i, thread, at, workspace + place * op->dx.run.scratch_bytes));
    if (op->weight == NETS_W16) {
        op->channels.lines->add_floats((const uint16_t *)args->at[NETS_EARLIER] + i * n, alone, n,
                                       (uint16_t *)args->at[NETS_DX] + i * n);
        return MM_OK;
    }
    float *dx = (float *)args->at[NETS_DX] + i * n;
    const float *earlier = (const float *)args->at[NETS_EARLIER] + i * n;
    if (dx != earlier) memcpy(dx, earlier, (size_t)n * sizeof *dx);
    nets_host_accumulate(dx, alone, n);
    return MM_OK;
}

static mm_status add_to_earlier(conv_op *op, const nets_op_args *args) {
    addition a = {.op = op, .args = args};
    void *weights = args->at[op->weight];
    MM_TRY(reorder(op, &op->dx, args, weights, inner_weights(&op->dx, args, weights)));
    return mm_host_pool_run(op->dnn->pool, op->images, add_image, &a);
}

static mm_status run_backward(nets_op *base, const nets_op_args *outer) {
    conv_op *op = (conv_op *)base;
    const nets_op_args inner = rounded(op, outer), *args = &inner;
    if (!op->frozen) MM_TRY(run_backward_weights(op, args));
    if (!op->wants_dx) return MM_OK;
    return op->adds_earlier ? add_to_earlier(op, args)
                            : run_part(op, &op->dx, args, args->at[NETS_DY], args->at[NETS_DX]);
}

static mm_status check_earlier(const conv_op *op, const nets_op_args *args) {
    if ((args->at[NETS_EARLIER] != NULL) == op->adds_earlier) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "a convolution created %s an earlier gradient to add to was enqueued otherwise",
                   op->adds_earlier ? "for" : "without");
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    MM_TRY(check_earlier((const conv_op *)op, args));
    return nets_host_backward(op, args, stream);
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const conv_op *op = (const conv_op *)base;
    int64_t bias = op->bias ? op->channels.scratch_bytes : 0;
    if (op->bias && op->base.adds && phase == MM_BACKWARD)
        bias = bias_scratch(op) + op->channels.channels * (int64_t)sizeof(float);
    if (phase == MM_FORWARD) return op->rounded_bytes + nets_larger(bias, op->y.workspace_bytes);
    int64_t dx = op->dx.workspace_bytes;
    if (op->adds_earlier) dx += nets_piecewise_places(op->dnn, &op->dx.run) * image_bytes(op);
    return op->rounded_bytes + nets_larger(bias, nets_larger(dx, op->dw.workspace_bytes));
}

static void fini_part(conv_part *part) {
    nets_piecewise_fini(&part->run);
    nets_piecewise_fini(&part->reorder);
}

static void destroy(nets_op *base) {
    conv_op *op = (conv_op *)base;
    fini_part(&op->y);
    fini_part(&op->dx);
    fini_part(&op->dw);
    free(op);
}

/* ---------------------------------------------------------------- creation */

/* A part's pieces: `in` and `out` are the kernels' arguments along the batch. */
typedef struct part_desc {
    nets_dnn_conv_kind kind;
    int in, out, weights;
    bool sums; /* each piece computes a weights' gradient of its own */
} part_desc;

static const part_desc BY_FORWARD = {NETS_DNN_CONV_FORWARD, DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS, false};
static const part_desc BY_DATA = {NETS_DNN_CONV_BY_DATA, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, false};
static const part_desc BY_WEIGHTS = {NETS_DNN_CONV_BY_WEIGHTS, DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                     true};

/* Bytes of all pieces' weights' gradients. Up to SMALL there may be more pieces than threads; beyond LARGE there are
 * fewer. Chosen. */
enum { SMALL_GRADIENTS = 1 << 20, LARGE_GRADIENTS = 64 << 20 };

static int pieces_of(const nets_dnn *dnn, const nets_dnn_windows *w, const part_desc *d) {
    int pieces = nets_pieces(dnn->pool);
    if (!d->sums) return pieces;
    int64_t bytes = w->x[3] * w->y[3] / w->groups * w->kernel[0] * w->kernel[1] * (int64_t)sizeof(float);
    if (pieces * bytes > SMALL_GRADIENTS) pieces = mm_host_pool_threads(dnn->pool);
    while (pieces > 2 && pieces * bytes > LARGE_GRADIENTS) pieces--;
    return pieces;
}

/* Makes the kernel for `each` images and the kernel for the rest; the weights of both must have the same layout. */
static mm_status make_kernels(const nets_dnn *dnn, const nets_dnn_windows *w, const part_desc *d, const nets_cut *cut,
                              nets_piecewise *run) {
    const int64_t images[] = {cut->each, nets_cut_rest(cut)};
    for (int k = 0; k < (images[1] == images[0] ? 1 : 2); k++) {
        nets_dnn_windows part = *w;
        part.x[0] = part.y[0] = images[k];
        MM_TRY(nets_dnn_conv(dnn, &part, d->kind, k == 0 ? NULL : &run->kernel[0], &run->kernel[k]));
    }
    nets_piecewise_measure(run);
    return MM_OK;
}

/* The bytes of one image of an argument. */
static int64_t image_bytes_of(const nets_dnn_windows *w, int arg) {
    const int64_t *dims = arg == DNNL_ARG_SRC || arg == DNNL_ARG_DIFF_SRC ? w->x : w->y;
    return nets_elems(dims) / dims[0] * (int64_t)(w->half ? sizeof(uint16_t) : sizeof(float));
}

/* ---------------------------------------------------------------- rows of images */

/* Some rows of each image: rows of y with the rows of x that they need, or, of a data gradient, rows of x with those of
 * y. */
typedef struct row_part {
    nets_dnn_windows w; /* windows of these rows; what lies beyond the image or the other side's rows is padding */
    int64_t x_row, y_row;
    int kernel;
} row_part;

static int64_t ceil_div(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }

/* Sets the part of rows `from` to `to` - 1. False: it has no windows, or no whole ones. */
static bool find_rows(const nets_dnn_windows *w, bool by_x, int64_t from, int64_t to, row_part *part) {
    const int64_t stride = w->stride[0], pad = w->pad[0], reach = w->dilation[0] * (w->kernel[0] - 1);
    int64_t x[2] = {from, to}, y[2] = {from, to}; /* first, behind the last */
    if (by_x) {
        y[0] = ceil_div(from + pad - reach, stride);
        y[1] = (to - 1 + pad) / stride + 1 < w->y[1] ? (to - 1 + pad) / stride + 1 : w->y[1];
    } else {
        x[0] = nets_larger(from * stride - pad, 0);
        x[1] = (to - 1) * stride - pad + reach + 1 < w->x[1] ? (to - 1) * stride - pad + reach + 1 : w->x[1];
    }
    if (x[0] >= x[1] || y[0] >= y[1]) return false;
    part->w = *w;
    part->x_row = x[0];
    part->y_row = y[0];
    part->w.x[0] = part->w.y[0] = 1;
    part->w.x[1] = x[1] - x[0];
    part->w.y[1] = y[1] - y[0];
    part->w.pad[0] = pad + x[0] - y[0] * stride;
    part->w.pad_end_least[0] = 0;
    int64_t end = (part->w.y[1] - 1) * stride + reach + 1 - part->w.x[1] - part->w.pad[0];
    return part->w.pad[0] >= 0 && part->w.pad[0] <= reach && end <= reach && -end < stride;
}

/* Numbers the kernels; parts of equal windows share one. False: there are too many. */
static bool number_kernels(row_part *parts, int n) {
    int kernels = 0;
    for (int i = 0; i < n; i++) {
        int same = 0;
        while (same < i && (parts[same].w.x[1] != parts[i].w.x[1] || parts[same].w.y[1] != parts[i].w.y[1] ||
                            parts[same].w.pad[0] != parts[i].w.pad[0]))
            same++;
        parts[i].kernel = same < i ? parts[same].kernel : kernels++;
    }
    return kernels <= NETS_PIECE_KERNELS;
}

/* The bytes of one row of an argument. */
static int64_t row_bytes_of(const nets_dnn_windows *w, int arg) {
    return image_bytes_of(w, arg) / (arg == DNNL_ARG_SRC || arg == DNNL_ARG_DIFF_SRC ? w->x[1] : w->y[1]);
}

static mm_status make_row_kernels(const nets_dnn *dnn, const part_desc *d, const row_part *parts, int n,
                                  nets_piecewise *run) {
    for (int i = 0; i < n; i++) {
        nets_dnn_kernel *kernel = &run->kernel[parts[i].kernel];
        if (!nets_dnn_is_made(kernel))
            MM_TRY(nets_dnn_conv(dnn, &parts[i].w, d->kind, i == 0 ? NULL : &run->kernel[0], kernel));
    }
    nets_piecewise_measure(run);
    return MM_OK;
}

static mm_status init_rows(const nets_dnn_windows *w, const part_desc *d, const row_part *parts, int n,
                           nets_piecewise *run) {
    const int args[NETS_PIECE_ARGS] = {d->in, d->out, d->weights};
    int64_t weights_bytes = d->sums ? nets_aligned(nets_dnn_arg_bytes(&run->kernel[0], d->weights)) : 0;
    MM_TRY(nets_piecewise_init(run, (int)w->x[0] * n));
    for (int i = 0; i < run->n_pieces; i++) {
        const row_part *part = &parts[i % n];
        run->pieces[i].kernel = part->kernel;
        run->pieces[i].offset[2] = i * weights_bytes;
        for (int a = 0; a < NETS_PIECE_ARGS; a++) run->arg[a] = args[a];
        for (int a = 0; a < 2; a++) {
            bool of_x = args[a] == DNNL_ARG_SRC || args[a] == DNNL_ARG_DIFF_SRC;
            run->pieces[i].offset[a] =
                i / n * image_bytes_of(w, args[a]) + (of_x ? part->x_row : part->y_row) * row_bytes_of(w, args[a]);
        }
    }
    return MM_OK;
}

/* Makes pieces of rows of images, if there are too few images for the threads. Makes no pieces if that is not possible
 * or not needed. MM_ERR_NOMEM is returned: whole images, in its place, would give other bits. */
static mm_status make_rows(const nets_dnn *dnn, const nets_dnn_windows *w, const part_desc *d, nets_piecewise *run) {
    enum { PARTS_MOST = 64, LEAST_ROWS = 2 };
    bool by_x = d->kind == NETS_DNN_CONV_BY_DATA;
    int64_t images = w->x[0], wanted = 2 * mm_host_pool_threads(dnn->pool), most = pieces_of(dnn, w, d) / images;
    if (mm_host_pool_threads(dnn->pool) == 1 || images >= wanted) return MM_OK;
    int64_t n = (wanted + images - 1) / images;
    if (d->sums && n > most) n = nets_larger(most, 1);
    const nets_cut cut = nets_cut_of(by_x ? w->x[1] : w->y[1], n < PARTS_MOST ? (int)n : PARTS_MOST,
                                     by_x ? w->stride[0] : 1, LEAST_ROWS);
    row_part parts[PARTS_MOST];
    if (cut.pieces < 2) return MM_OK;
    for (int i = 0; i < cut.pieces; i++) {
        int64_t from = i * cut.each, to = from + cut.each < cut.items ? from + cut.each : cut.items;
        if (!find_rows(w, by_x, from, to, &parts[i])) return MM_OK;
    }
    if (!number_kernels(parts, cut.pieces)) return MM_OK;
    mm_status status = make_row_kernels(dnn, d, parts, cut.pieces, run);
    if (status == MM_OK) status = init_rows(w, d, parts, cut.pieces, run);
    if (status != MM_OK) nets_piecewise_fini(run);
    return status == MM_ERR_NOMEM ? status : MM_OK;
}

/* ---------------------------------------------------------------- parts */

/* Makes pieces of whole images. one_by_one: of one image each, all with the same output address. */
static mm_status make_images(const nets_dnn *dnn, const nets_dnn_windows *w, const part_desc *d, bool one_by_one,
                             nets_piecewise *run) {
    nets_cut cut = nets_cut_of(w->x[0], pieces_of(dnn, w, d), 1, 1);
    if (one_by_one) cut = (nets_cut){.items = w->x[0], .each = 1, .pieces = (int)w->x[0]};
    MM_TRY(make_kernels(dnn, w, d, &cut, run));
    const nets_piece_arg args[NETS_PIECE_ARGS] = {
        {d->in, image_bytes_of(w, d->in), 0},
        {d->out, one_by_one ? 0 : image_bytes_of(w, d->out), 0},
        {d->weights, 0, d->sums ? nets_aligned(nets_dnn_arg_bytes(&run->kernel[0], d->weights)) : 0},
    };
    return nets_piecewise_init_cut(run, &cut, args);
}

static mm_status make_part(const conv_op *op, const nets_dnn_windows *w, const part_desc *d, bool one_by_one,
                           conv_part *part) {
    const nets_dnn *dnn = op->dnn;
    if (!one_by_one) MM_TRY(make_rows(dnn, w, d, &part->run));
    if (part->run.n_pieces == 0) MM_TRY(make_images(dnn, w, d, one_by_one, &part->run));
    part->weights_bytes = nets_dnn_arg_bytes(&part->run.kernel[0], d->weights);
    const bool adds = d->sums && op->base.adds;
    MM_TRY(nets_weights_reorder_init(&part->reorder, dnn, w, &part->run.kernel[0], d->weights, adds));
    part->scratch_bytes = nets_larger(nets_piecewise_places(dnn, &part->run) * part->run.scratch_bytes,
                                      nets_piecewise_places(dnn, &part->reorder) * part->reorder.scratch_bytes);
    int copies = d->sums && part->run.n_pieces > 1 ? part->run.n_pieces : part->reorder.n_pieces > 0 || adds;
    part->workspace_bytes = part->scratch_bytes + copies * nets_aligned(part->weights_bytes);
    return MM_OK;
}

/* `w`: the convolution's windows; for a transposed one, those of the convolution from its output to its input. */
static mm_status make_parts(conv_op *op, const nets_dnn_windows *w, const nets_op_desc *desc) {
    part_desc dw = BY_WEIGHTS;
    MM_TRY(make_part(op, w, op->transposed ? &BY_DATA : &BY_FORWARD, false, &op->y));
    if (!desc->training) return MM_OK;
    if (op->transposed) { /* x is that convolution's output */
        dw.in = BY_WEIGHTS.out;
        dw.out = BY_WEIGHTS.in;
    }
    op->own_dw = nets_is_depthwise(w) && !op->frozen;
    if (op->own_dw) {
        op->depthwise = nets_depthwise_of(w, op->dnn->pool);
        op->dw.workspace_bytes = nets_depthwise_bytes(&op->depthwise);
    } else if (!op->frozen) {
        MM_TRY(make_part(op, w, &dw, false, &op->dw));
    }
    if (!desc->wants_dx) return MM_OK;
    return make_part(op, w, op->transposed ? &BY_FORWARD : &BY_DATA, desc->adds_earlier, &op->dx);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, const nets_op_impl *impl, nets_op **op_out) {
    conv_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = impl;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->transposed = desc->kind == NETS_CONV_TRANSPOSE;
    op->wants_dx = desc->wants_dx;
    op->adds_earlier = desc->adds_earlier;
    op->images = desc->x[0].dims[0];
    op->x_image_elems = nets_shape_elems(&desc->x[0]) / op->images;
    op->y_image_elems = nets_shape_elems(&desc->y) / op->images;
    op->channels =
        nets_channels_of(nets_shape_rows(&desc->y), nets_shape_channels(&desc->y), desc->maps, op->dnn->pool);
    op->bias = desc->attrs.bias;
    op->frozen = desc->frozen;
    op->base.adds = desc->training && desc->pass.adds && !desc->frozen;
    nets_op_desc from_y = *desc;
    from_y.x[0] = desc->y;
    from_y.y = desc->x[0];
    nets_dnn_windows w = nets_host_windows(op->transposed ? &from_y : desc);
    w.half = desc->maps == MM_BF16;
    w.wide_dx = w.half && desc->adds_earlier;
    op->weight = w.half ? NETS_W16 : NETS_W;
    if (w.half && desc->f32_inputs)
        op->rounded_bytes = nets_aligned(op->images * op->x_image_elems * (int64_t)sizeof(uint16_t));
    mm_status status = make_parts(op, &w, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

static mm_status create_conv(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const bool half = desc->maps == MM_BF16;
    if (half && !nets_dnn_has_bf16()) return mm_fail(MM_ERR_UNSUPPORTED, "this CPU has no units for bf16");
    if (half && desc->attrs.bias) /* the bias would be added to rounded sums */
        return mm_fail(MM_ERR_UNSUPPORTED, "a convolution with a bias does not take bf16 maps");
    if (half && desc->f32_inputs && desc->wants_dx)
        return mm_fail(MM_ERR_UNSUPPORTED, "a convolution of bf16 maps has no gradient with respect to the batch");
    return create(backend, desc, &nets_host_op_conv.base, op_out);
}

static mm_status create_conv_transpose(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    return create(backend, desc, &nets_host_op_conv_transpose.base, op_out);
}

#define CONV(maps, create)                                                                                             \
    { {maps, create, destroy, workspace_bytes, nets_host_forward, backward}, run_forward, run_backward }

const nets_host_impl nets_host_op_conv =
    CONV(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16) | NETS_MIXED, create_conv);
const nets_host_impl nets_host_op_conv_transpose = CONV(NETS_DTYPE_BIT(MM_F32), create_conv_transpose);
