/* SPDX-License-Identifier: MIT */
/* The last product and the loss, for one chunk of tokens at a time. In training, a chunk's gradients are computed right
 * after its scores, so only one chunk's scores exist at a time:
 *
 *   scores = X W^T;   gradients = (softmax(scores) - 1 at the label) / labels
 *   Y = gradients W;  DW += gradients^T X
 *
 *   0                        losses_at          gradients_at       sums_at        library_at
 *   | a chunk's scores, then | its rows' losses |                  | bf16: Y in   | the library's |  the forward's
 *   | gradients over them    |                  |                  | f32          | own           |  workspace
 *
 *   | a chunk's scores       | its rows' losses | several chunks'  | bf16: Y in   | the library's |  the larger one
 *   |                        |                  | gradients        | f32          | own           |
 *
 * Chunks are summed in order. With bf16 maps, X, W, Y and the gradients are bf16; scores, DW and sums are f32.
 *
 * DW is read and written for each chunk. So with bf16 maps a step may also gather the gradients of several chunks in a
 * larger workspace, and then give Y and DW of them all at once; the plan chooses between the two sizes. They add up DW
 * in another order, so a deterministic configuration has the smaller one only.
 *
 * Tensor cores need rows that begin at multiples of 16 bytes, and their fast kernels also need a number of classes that
 * is a multiple of 8. So rows are padded to a multiple of 8 classes, and each product is divided: the classes up to a
 * multiple of 8, and the rest. On an H100 the products of GPT-2's 50257 classes took 30 ms a step; divided they take 7.
 * Y is the sum of both parts, and rounded to bf16 once. */
#include <stdlib.h>

#include "mm/core/graph/dtype.h"

#include "nets/cuda/libraries/cudnn_conv.h"

/* A chunk's bytes of scores, and its least and most rows, multiples of a tile of matrix products. The weight's gradient
 * is read and written for each chunk, so small chunks cost time: per 1024 rows, GPT-2's 309 MB take 0.1 ms on an H100;
 * per 384 rows, the 2.1 GB of a Llama of 1 B take 0.7. Gathered gradients take so many bytes, too; or, if that is more,
 * half of DW's, so that the buffer grows with what it saves. Chosen. */
enum { CHUNK_BYTES = 200 << 20, ROWS_UNIT = 128, LEAST_ROWS = 128, MOST_ROWS = 2048, CLASSES_UNIT = 8 };

/* The two parts of each product: the classes up to a multiple of CLASSES_UNIT, and the rest. Either may be empty. */
enum { WHOLE, REST, DIVIDED };

typedef struct chunk_products {
    nets_cudnn_conv scores[DIVIDED], y[DIVIDED], dw[DIVIDED];
} chunk_products;

/* Where the parts of a workspace lie, behind the scores. gradients_at: of gathered gradients. */
typedef struct workspace_layout {
    int64_t losses_at, gradients_at, sums_at, library_at;
} workspace_layout;

typedef struct token_loss_op {
    nets_op base;
    chunk_products of[2];  /* of a whole chunk; of the last one */
    chunk_products all[2]; /* y and dw of all the chunks that are gathered; of the last ones */
    mm_dtype maps;
    nets_role weight;
    int64_t rows, each, channels;
    int64_t gathered;        /* rows whose gradients are gathered, a multiple of `each` or all; 0: never */
    int64_t gathering_bytes; /* of the workspace with which they are */
    int64_t classes[DIVIDED];
    int64_t pitch;           /* elements from row to row of scores */
    nets_cuda_labels labels; /* of all rows, without addresses, which every chunk sets */
    workspace_layout chunked, gathering;
    bool training, frozen;
} token_loss_op;

/* Elements from row to row of the gradients, if they overwrite the scores row by row. */
static int64_t pitch_in_place(const token_loss_op *op) {
    return op->pitch * (int64_t)sizeof(float) / mm_dtype_table[op->maps].bytes;
}

/* Whether Y is summed in f32 and then rounded. */
static bool has_sums(const token_loss_op *op) {
    return op->training && op->maps == MM_BF16 && op->classes[WHOLE] > 0 && op->classes[REST] > 0;
}

/* The forward as it runs. */
typedef struct token_loss_run {
    const token_loss_op *op;
    const nets_op_args *args;
    mm_stream *stream;
    const workspace_layout *at;
    char *workspace;
    int64_t library_bytes;
    bool gives; /* computes gradients */
} token_loss_run;

/* Enqueues both parts of a product. scores: or gradients by them; weights: W or DW. Both are addresses of elements of
 * these sizes. */
static mm_status enqueue_parts(const token_loss_run *run, const nets_cudnn_conv parts[DIVIDED], void *x, char *scores,
                               int64_t score_bytes, char *weights, int64_t weight_bytes) {
    const token_loss_op *op = run->op;
    for (int64_t i = 0, first = 0; i < DIVIDED; first += op->classes[i++]) {
        const nets_conv_tensors tensors = {.x = x,
                                           .y = scores + first * score_bytes,
                                           .weights = weights + first * op->channels * weight_bytes,
                                           .workspace = run->workspace + run->at->library_at,
                                           .workspace_bytes = run->library_bytes};
        if (op->classes[i]) MM_TRY(nets_cudnn_conv_enqueue(&parts[i], &tensors, run->stream));
    }
    return MM_OK;
}

/* The address of a row of a map of X's shape. */
static char *row_of(const token_loss_op *op, void *map, int64_t row) {
    return (char *)map + row * op->channels * mm_dtype_table[op->maps].bytes;
}

/* Computes the scores of a chunk's rows, and their losses; `gradients`: and their gradients. */
static mm_status lose_chunk(const token_loss_run *run, int64_t first, nets_cuda_score_gradients gradients) {
    const token_loss_op *op = run->op;
    void *const *at = run->args->at;
    char *scores = run->workspace;
    nets_cuda_labels labels = op->labels;
    labels.of = (const int32_t *)at[NETS_LABELS] + first;
    labels.n = op->rows - first < op->each ? op->rows - first : op->each;
    labels.first = first;
    labels.adds |= first > 0;
    labels.rng = at[NETS_RNG];
    MM_TRY(enqueue_parts(run, op->of[first + op->each >= op->rows].scores, row_of(op, at[NETS_X], first), scores,
                         sizeof(float), at[op->weight], mm_dtype_table[op->maps].bytes));
    nets_cuda_token_loss(op->maps, labels, (float *)(void *)scores, op->pitch, gradients,
                         run->workspace + run->at->losses_at, at[NETS_LOSS_VALUE], at[NETS_CORRECT],
                         mm_cuda_stream(run->stream));
    return MM_OK;
}

/* Computes Y of the n rows of these gradients, and adds their part of DW. */
static mm_status pass_on(const token_loss_run *run, const chunk_products *p, int64_t first, int64_t n,
                         char *gradients) {
    const token_loss_op *op = run->op;
    void *const *at = run->args->at;
    const int64_t width = mm_dtype_table[op->maps].bytes;
    char *y = row_of(op, at[NETS_Y], first), *sums = run->workspace + run->at->sums_at;
    MM_TRY(enqueue_parts(run, p->y, has_sums(op) ? sums : y, gradients, width, at[op->weight], width));
    if (has_sums(op)) nets_cuda_convert(MM_F32, sums, op->maps, y, n * op->channels, mm_cuda_stream(run->stream));
    if (!at[NETS_DW]) return MM_OK;
    return enqueue_parts(run, p->dw, row_of(op, at[NETS_X], first), gradients, width, at[NETS_DW], sizeof(float));
}

static mm_status run_chunk(const token_loss_run *run, int64_t first) {
    const token_loss_op *op = run->op;
    const bool last = first + op->each >= op->rows;
    char *scores = run->workspace;
    const nets_cuda_score_gradients gradients = {run->gives ? scores : NULL, pitch_in_place(op)};
    MM_TRY(lose_chunk(run, first, gradients));
    return run->gives ? pass_on(run, &op->of[last], first, last ? op->rows - first : op->each, scores) : MM_OK;
}

/* Runs the chunks whose gradients are gathered. */
static mm_status run_gathered(const token_loss_run *run, int64_t first) {
    const token_loss_op *op = run->op;
    const bool last = first + op->gathered >= op->rows;
    const int64_t n = last ? op->rows - first : op->gathered, row_bytes = op->pitch * mm_dtype_table[op->maps].bytes;
    char *gradients = run->workspace + run->at->gradients_at;
    for (int64_t row = 0; row < n; row += op->each)
        MM_TRY(lose_chunk(run, first + row, (nets_cuda_score_gradients){gradients + row * row_bytes, op->pitch}));
    return pass_on(run, &op->all[last], first, n, gradients);
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const token_loss_op *op = (const token_loss_op *)base;
    const int64_t bytes = nets_op_workspace_within(base, MM_FORWARD, args->workspace_bytes);
    const bool gives = op->training && args->at[NETS_Y];
    const bool gathers = gives && op->gathered && bytes >= op->gathering_bytes;
    const workspace_layout *at = gathers ? &op->gathering : &op->chunked;
    const token_loss_run run = {op, args, stream, at, args->at[NETS_WORKSPACE], bytes - at->library_at, gives};
    if (gives && args->at[NETS_DW] && !base->adds)
        MM_TRY(mm_cuda_check(cudaMemsetAsync(args->at[NETS_DW], 0,
                                             (size_t)(op->labels.classes * op->channels) * sizeof(float),
                                             mm_cuda_stream(stream)),
                             "cudaMemsetAsync"));
    for (int64_t first = 0; first < op->rows; first += gathers ? op->gathered : op->each)
        MM_TRY(gathers ? run_gathered(&run, first) : run_chunk(&run, first));
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
            nets_cudnn_conv_fini(&op->all[k].y[i]);
            nets_cudnn_conv_fini(&op->all[k].dw[i]);
        }
    free(op);
}

static int to_f32(const token_loss_op *op) { return op->maps == MM_BF16 ? NETS_CONV_BF16_TO_F32 : 0; }

static mm_status make_scores(const token_loss_op *op, nets_cuda_backend *cuda, int64_t rows, int i, chunk_products *p) {
    const nets_conv_terms of_y = nets_cudnn_output_terms(&cuda->terms);
    nets_conv_shape scores = nets_product_shape(NETS_CONV_FORWARD, rows, op->channels, op->classes[i], to_f32(op));
    scores.pitch = op->pitch > op->classes[i] ? (int)op->pitch : 0;
    return nets_cudnn_conv_init(&p->scores[i], cuda, &scores, &of_y);
}

/* pitch: from row to row of the gradients. */
static mm_status make_gradients(const token_loss_op *op, nets_cuda_backend *cuda, int64_t rows, int64_t pitch, int i,
                                chunk_products *p) {
    const int64_t in = op->channels, out = op->classes[i];
    const bool bf16 = op->maps == MM_BF16;
    nets_conv_shape y = nets_product_shape(NETS_CONV_BY_INPUT, rows, in, out, has_sums(op) ? to_f32(op) : bf16);
    nets_conv_shape dw = nets_product_shape(NETS_CONV_BY_WEIGHTS, rows, in, out, bf16);
    y.pitch = dw.pitch = pitch > out ? (int)pitch : 0;
    y.adds = i == REST && op->classes[WHOLE] > 0;
    dw.adds = true;
    MM_TRY(nets_cudnn_conv_init(&p->y[i], cuda, &y, &cuda->terms));
    return op->frozen ? MM_OK : nets_cudnn_conv_init(&p->dw[i], cuda, &dw, &cuda->terms);
}

static mm_status make_chunk(const token_loss_op *op, nets_cuda_backend *cuda, int64_t rows, chunk_products *p) {
    for (int i = 0; i < DIVIDED; i++) {
        if (!op->classes[i]) continue;
        MM_TRY(make_scores(op, cuda, rows, i, p));
        if (op->training) MM_TRY(make_gradients(op, cuda, rows, pitch_in_place(op), i, p));
    }
    return MM_OK;
}

static mm_status make_gathered(const token_loss_op *op, nets_cuda_backend *cuda, int64_t rows, chunk_products *p) {
    for (int i = 0; i < DIVIDED; i++)
        if (op->classes[i]) MM_TRY(make_gradients(op, cuda, rows, op->pitch, i, p));
    return MM_OK;
}

static mm_status make_all(token_loss_op *op, nets_cuda_backend *cuda) {
    if (op->rows > op->each) MM_TRY(make_chunk(op, cuda, op->each, &op->of[0]));
    MM_TRY(make_chunk(op, cuda, (op->rows - 1) % op->each + 1, &op->of[1]));
    if (!op->gathered) return MM_OK;
    if (op->rows > op->gathered) MM_TRY(make_gathered(op, cuda, op->gathered, &op->all[0]));
    return make_gathered(op, cuda, (op->rows - 1) % op->gathered + 1, &op->all[1]);
}

/* gathered: rows of gradients that lie apart from the scores; 0: none. */
static workspace_layout lay_out(const token_loss_op *op, int64_t gathered) {
    const int64_t f32 = sizeof(float), summed = gathered ? gathered : op->each;
    workspace_layout at = {.losses_at = nets_aligned(op->each * op->pitch * f32)};
    at.gradients_at = at.losses_at + nets_aligned(nets_cuda_token_loss_bytes(op->each));
    at.sums_at = at.gradients_at + nets_aligned(gathered * op->pitch * mm_dtype_table[op->maps].bytes);
    at.library_at = at.sums_at + (has_sums(op) ? nets_aligned(summed * op->channels * f32) : 0);
    return at;
}

/* Puts the workspace with which gradients are gathered in front of the others, if it is larger than they are. If there
 * are as many as there can be, the second largest of them goes. */
static void offer_gathering(token_loss_op *op) {
    nets_workspaces *const w = &op->base.workspaces[MM_FORWARD];
    const nets_cudnn_conv *parts[2 * 3 * DIVIDED];
    nets_op with = {.impl = op->base.impl};
    int n = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < DIVIDED; i++) {
            parts[n++] = &op->of[k].scores[i];
            parts[n++] = &op->all[k].y[i];
            parts[n++] = &op->all[k].dw[i];
        }
    op->gathering = lay_out(op, op->gathered);
    nets_cudnn_conv_set_workspaces(&with, MM_FORWARD, parts, n, (nets_conv_room){.before = op->gathering.library_at});
    op->gathering_bytes = with.workspaces[MM_FORWARD].bytes[0];
    if (op->gathering_bytes <= w->bytes[0]) {
        op->gathered = 0;
        return;
    }
    const int kept = w->n < NETS_WORKSPACES ? w->n : NETS_WORKSPACES - 1, dropped = w->n - kept;
    for (int i = kept; i > 0; i--) w->bytes[i] = w->bytes[i == 1 ? 0 : i - 1 + dropped];
    w->bytes[0] = op->gathering_bytes;
    w->n = kept + 1;
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
    op->chunked = lay_out(op, 0);
    nets_cudnn_conv_set_workspaces(&op->base, MM_FORWARD, parts, n, (nets_conv_room){.before = op->chunked.library_at});
    if (op->gathered) offer_gathering(op);
}

static int64_t rows_of_chunk(int64_t rows, int64_t classes) {
    const int64_t fit = CHUNK_BYTES / (classes * (int64_t)sizeof(float)) / ROWS_UNIT * ROWS_UNIT;
    const int64_t each = fit < LEAST_ROWS ? LEAST_ROWS : fit > MOST_ROWS ? MOST_ROWS : fit;
    return each < rows ? each : rows;
}

/* The rows whose gradients are gathered; 0: that would be no more than a chunk's. */
static int64_t rows_gathered(const token_loss_op *op, const nets_cuda_backend *cuda) {
    const int64_t f32 = sizeof(float), dw = op->labels.classes * op->channels * f32;
    const int64_t most = nets_larger(CHUNK_BYTES, dw / 2), limit = cuda->terms.tensor_core_limit_bytes;
    const int64_t fit = (most < limit ? most : limit) / (op->pitch * mm_dtype_table[op->maps].bytes);
    const int64_t rows = fit < op->rows ? fit / op->each * op->each : op->rows;
    const bool can = op->maps == MM_BF16 && op->training && !op->frozen && !cuda->terms.deterministic;
    return can && rows > op->each ? rows : 0;
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
    op->gathered = rows_gathered(op, cuda);
    const mm_status status = make_all(op, cuda);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    set_workspaces(op);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_token_loss = {NETS_CUDA_MAPS, create, destroy, NULL, forward, backward};
