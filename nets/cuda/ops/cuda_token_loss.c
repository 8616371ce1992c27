/* SPDX-License-Identifier: MIT */
/* The last product and the loss, for one chunk of tokens at a time. In training, a chunk's gradients are computed right
 * after its scores, so only one chunk's scores exist at a time:
 *
 *   scores = X W^T;   scores := (softmax(scores) - 1 at the label) / labels
 *   Y = scores W;     DW += scores^T X
 *
 *   0                        losses_at          sums_at          library_at
 *   | a chunk's scores, then | its rows' losses | bf16: a chunk's | the library's own |       the forward's workspace
 *   | gradients over them    |                  | Y in f32        |
 *
 * Chunks are summed in order. With bf16 maps, X, W, Y and the gradients by the scores are bf16; scores, DW and sums are
 * f32.
 *
 * Tensor cores need rows that begin at multiples of 16 bytes, and their fast kernels also need a number of classes that
 * is a multiple of 8. So rows are padded to a multiple of 8 classes, and each product is divided: the classes up to a
 * multiple of 8, and the rest. On an H100 the products of GPT-2's 50257 classes took 30 ms a step; divided they take 7.
 * Y is the sum of both parts, and rounded to bf16 once. */
#include <stdlib.h>

#include "mm/core/graph/dtype.h"

#include "nets/cuda/libraries/cudnn_conv.h"

/* A chunk's bytes of scores, and its least and most rows, multiples of a tile of matrix products. The weight's gradient
 * is read and written for each chunk, so small chunks cost time: per 1024 rows, GPT-2's 309 MB take 0.1 ms on an
 * H100. */
enum { CHUNK_BYTES = 200 << 20, ROWS_UNIT = 128, LEAST_ROWS = 128, MOST_ROWS = 2048, CLASSES_UNIT = 8 };

/* The two parts of each product: the classes up to a multiple of CLASSES_UNIT, and the rest. Either may be empty. */
enum { WHOLE, REST, DIVIDED };

typedef struct chunk_products {
    nets_cudnn_conv scores[DIVIDED], y[DIVIDED], dw[DIVIDED];
} chunk_products;

typedef struct token_loss_op {
    nets_op base;
    chunk_products of[2]; /* of a whole chunk; of the last one */
    mm_dtype maps;
    nets_role weight;
    int64_t rows, each, channels;
    int64_t classes[DIVIDED];
    int64_t pitch;           /* elements from row to row of scores */
    nets_cuda_labels labels; /* of all rows, without addresses, which every chunk sets */
    int64_t losses_at, sums_at, library_at;
    bool training, frozen;
} token_loss_op;

/* Elements from row to row of the gradients, which overwrite the scores row by row. */
static int64_t gradients_pitch(const token_loss_op *op) {
    return op->pitch * (int64_t)sizeof(float) / mm_dtype_table[op->maps].bytes;
}

/* Whether Y is summed in f32 and then rounded. */
static bool has_sums(const token_loss_op *op) {
    return op->training && op->maps == MM_BF16 && op->classes[WHOLE] > 0 && op->classes[REST] > 0;
}

typedef struct chunk_at {
    char *scores, *library;
    int64_t library_bytes;
} chunk_at;

/* Enqueues both parts of a product. score_bytes, weight_bytes: bytes of an element of the scores (or of the gradients
 * that overwrite them), and of `weights`, which are W or DW. */
static mm_status enqueue_parts(const token_loss_op *op, const nets_cudnn_conv parts[DIVIDED], const chunk_at *at,
                               void *x, int64_t score_bytes, char *weights, int64_t weight_bytes, mm_stream *stream) {
    for (int64_t i = 0, first = 0; i < DIVIDED; first += op->classes[i++]) {
        const nets_conv_tensors tensors = {.x = x,
                                           .y = at->scores + first * score_bytes,
                                           .weights = weights + first * op->channels * weight_bytes,
                                           .workspace = at->library,
                                           .workspace_bytes = at->library_bytes};
        if (op->classes[i]) MM_TRY(nets_cudnn_conv_enqueue(&parts[i], &tensors, stream));
    }
    return MM_OK;
}

static mm_status run_chunk(const token_loss_op *op, const chunk_products *p, int64_t first, const nets_op_args *args,
                           mm_stream *stream) {
    const int64_t width = mm_dtype_table[op->maps].bytes, f32 = sizeof(float), before = first * op->channels * width;
    const bool gives = op->training && args->at[NETS_Y];
    char *workspace = args->at[NETS_WORKSPACE], *x = (char *)args->at[NETS_X] + before;
    char *weight = args->at[op->weight], *dw = args->at[NETS_DW], *sums = workspace + op->sums_at;
    const chunk_at at = {workspace, workspace + op->library_at,
                         nets_op_workspace_within(&op->base, MM_FORWARD, args->workspace_bytes) - op->library_at};
    nets_cuda_labels labels = op->labels;
    labels.of = (const int32_t *)args->at[NETS_LABELS] + first;
    labels.n = op->rows - first < op->each ? op->rows - first : op->each;
    labels.first = first;
    labels.adds |= first > 0;
    labels.rng = args->at[NETS_RNG];
    MM_TRY(enqueue_parts(op, p->scores, &at, x, f32, weight, width, stream));
    nets_cuda_token_loss(op->maps, labels, (float *)(void *)at.scores, op->pitch, gives, workspace + op->losses_at,
                         args->at[NETS_LOSS_VALUE], args->at[NETS_CORRECT], mm_cuda_stream(stream));
    if (!gives) return MM_OK;
    char *y = (char *)args->at[NETS_Y] + before;
    MM_TRY(enqueue_parts(op, p->y, &at, has_sums(op) ? sums : y, width, weight, width, stream));
    if (has_sums(op)) nets_cuda_convert(MM_F32, sums, op->maps, y, labels.n * op->channels, mm_cuda_stream(stream));
    return dw ? enqueue_parts(op, p->dw, &at, x, width, dw, f32, stream) : MM_OK;
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const token_loss_op *op = (const token_loss_op *)base;
    if (op->training && args->at[NETS_Y] && args->at[NETS_DW] && !base->adds)
        MM_TRY(mm_cuda_check(cudaMemsetAsync(args->at[NETS_DW], 0,
                                             (size_t)(op->labels.classes * op->channels) * sizeof(float),
                                             mm_cuda_stream(stream)),
                             "cudaMemsetAsync"));
    for (int64_t first = 0; first < op->rows; first += op->each)
        MM_TRY(run_chunk(op, &op->of[first + op->each >= op->rows], first, args, stream));
    return nets_cuda_launched("the loss of tokens");
}

/* The forward left the gradient in Y: this only copies it to DX, or adds the earlier contribution to it. */
static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const token_loss_op *op = (const token_loss_op *)base;
    if (args->at[NETS_DX] && (args->at[NETS_DX] != args->at[NETS_Y] || args->at[NETS_EARLIER]))
        nets_cuda_sum(op->maps, args->at[NETS_Y], args->at[NETS_EARLIER], args->at[NETS_DX], op->rows * op->channels,
                      mm_cuda_stream(stream));
    return nets_cuda_launched("the gradient of the loss of tokens");
}

static void destroy(nets_op *base) {
    token_loss_op *op = (token_loss_op *)base;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < DIVIDED; i++) {
            nets_cudnn_conv_fini(&op->of[k].scores[i]);
            nets_cudnn_conv_fini(&op->of[k].y[i]);
            nets_cudnn_conv_fini(&op->of[k].dw[i]);
        }
    free(op);
}

static mm_status make_products(const token_loss_op *op, nets_cuda_backend *cuda, int64_t rows, int i,
                               chunk_products *p) {
    const nets_conv_terms of_y = nets_cudnn_output_terms(&cuda->terms);
    const int64_t in = op->channels, out = op->classes[i];
    const bool bf16 = op->maps == MM_BF16;
    const int to_f32 = bf16 ? NETS_CONV_BF16_TO_F32 : 0;
    nets_conv_shape scores = nets_product_shape(NETS_CONV_FORWARD, rows, in, out, to_f32);
    nets_conv_shape y = nets_product_shape(NETS_CONV_BY_INPUT, rows, in, out, has_sums(op) ? to_f32 : bf16);
    nets_conv_shape dw = nets_product_shape(NETS_CONV_BY_WEIGHTS, rows, in, out, bf16);
    scores.pitch = op->pitch > out ? (int)op->pitch : 0;
    y.pitch = dw.pitch = gradients_pitch(op) > out ? (int)gradients_pitch(op) : 0;
    y.adds = i == REST && op->classes[WHOLE] > 0;
    dw.adds = true;
    MM_TRY(nets_cudnn_conv_init(&p->scores[i], cuda, &scores, &of_y));
    if (!op->training) return MM_OK;
    MM_TRY(nets_cudnn_conv_init(&p->y[i], cuda, &y, &cuda->terms));
    return op->frozen ? MM_OK : nets_cudnn_conv_init(&p->dw[i], cuda, &dw, &cuda->terms);
}

static mm_status make_chunk(const token_loss_op *op, nets_cuda_backend *cuda, int64_t rows, chunk_products *p) {
    for (int i = 0; i < DIVIDED; i++)
        if (op->classes[i]) MM_TRY(make_products(op, cuda, rows, i, p));
    return MM_OK;
}

static void set_workspaces(token_loss_op *op) {
    const nets_cudnn_conv *parts[2 * 3 * DIVIDED];
    int n = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < DIVIDED; i++) {
            parts[n++] = &op->of[k].scores[i];
            parts[n++] = &op->of[k].y[i];
            parts[n++] = &op->of[k].dw[i];
        }
    op->losses_at = nets_aligned(op->each * op->pitch * (int64_t)sizeof(float));
    op->sums_at = op->losses_at + nets_aligned(nets_cuda_token_loss_bytes(op->each));
    op->library_at = op->sums_at + (has_sums(op) ? nets_aligned(op->each * op->channels * (int64_t)sizeof(float)) : 0);
    nets_cudnn_conv_set_workspaces(&op->base, MM_FORWARD, parts, n, (nets_conv_room){.before = op->library_at});
}

static int64_t rows_of_chunk(int64_t rows, int64_t classes) {
    const int64_t fit = CHUNK_BYTES / (classes * (int64_t)sizeof(float)) / ROWS_UNIT * ROWS_UNIT;
    const int64_t each = fit < LEAST_ROWS ? LEAST_ROWS : fit > MOST_ROWS ? MOST_ROWS : fit;
    return each < rows ? each : rows;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    MM_TRY(nets_cuda_check_dims(desc));
    if (desc->maps == MM_BF16 && desc->adds_earlier)
        return mm_fail(MM_ERR_UNSUPPORTED, "a loss of tokens of bf16 maps cannot add to an earlier gradient");
    token_loss_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a loss of tokens");
    const int64_t rows = nets_shape_rows(&desc->x[0]), image = rows / desc->x[0].dims[0];
    op->base.impl = &nets_cuda_op_token_loss;
    op->base.adds = desc->training && desc->pass.adds;
    op->maps = desc->maps;
    op->weight = desc->maps == MM_BF16 ? NETS_W16 : NETS_W;
    op->rows = rows;
    op->channels = nets_shape_channels(&desc->x[0]);
    op->training = desc->training;
    op->frozen = desc->frozen;
    op->labels = (nets_cuda_labels){.image = image,
                                    .whole = desc->pass.whole > 0 ? desc->pass.whole * image : rows,
                                    .classes = (int)desc->attrs.out_channels,
                                    .adds = desc->pass.adds};
    op->classes[REST] = op->labels.classes % CLASSES_UNIT;
    op->classes[WHOLE] = op->labels.classes - op->classes[REST];
    op->pitch = op->classes[WHOLE] + (op->classes[REST] ? CLASSES_UNIT : 0);
    op->each = rows_of_chunk(rows, op->labels.classes);
    nets_cuda_backend *cuda = (nets_cuda_backend *)backend;
    mm_status status = rows > op->each ? make_chunk(op, cuda, op->each, &op->of[0]) : MM_OK;
    if (status == MM_OK) status = make_chunk(op, cuda, (rows - 1) % op->each + 1, &op->of[1]);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    set_workspaces(op);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_token_loss = {NETS_CUDA_MAPS, create, destroy, NULL, forward, backward};
