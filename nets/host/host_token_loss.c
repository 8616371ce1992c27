/* SPDX-License-Identifier: MIT */
/* The last product and the loss, by chunks of tokens. In training a chunk's gradients follow its scores at once:
 *
 *   scores = x weight^T;   scores := (softmax(scores) - 1 at the label) / labels
 *   y = scores weight;     dweight += scores^T x
 *
 * so no more than a chunk's scores exist. Chunks are summed in their order; the first one writes dweight, unless the
 * pass adds to an earlier gradient.
 *
 * With bf16 maps the products take bf16 factors, and their sums are f32: the scores' gradients are rounded, each row
 * into the first half of its own place. */
#include <math.h>
#include <stdlib.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"
#include "nets/host/simd_row.h"

/* A chunk's bytes of scores, and its least and most rows. For each chunk the weight is read twice, and its gradient is
 * read and written: with GPT-2's 50257 classes, four times as many bytes would save 2 % of the CPU time. Chosen. */
enum { CHUNK_BYTES = 24 << 20, LEAST_ROWS = 128, MOST_ROWS = 1024, ROWS_UNIT = 16 };

/* The products of a chunk. `dweight` adds; `first` does not: it is the first chunk's. */
typedef struct chunk_products {
    nets_piecewise scores, y, dweight, first;
} chunk_products;

typedef struct token_loss_op {
    nets_op base;
    const nets_dnn *dnn;
    const nets_simd_row *loops;
    const nets_simd_map *lines;
    int64_t map_bytes;         /* bytes of a map's element */
    nets_role weight;          /* NETS_W; with bf16 maps NETS_W16 */
    nets_cut chunks;           /* cuts the rows */
    chunk_products product[2]; /* a whole chunk's; the last one's */
    int64_t rows, rows_per_sample, channels, classes;
    int64_t whole; /* labels of the whole batch */
    int64_t part_rows;
    int64_t losses_at, correct_at, scratch_at, workspace_bytes;
    bool training, adds, frozen, parts_only;
} token_loss_op;

typedef struct token_loss_run {
    token_loss_op *op;
    const nets_op_args *args;
    int64_t first;  /* the chunk's first row */
    bool gives;     /* computes gradients */
    float *scores;  /* the chunk's; then their gradients */
    double *losses; /* one for each of its rows */
    int32_t *correct;
} token_loss_run;

static int64_t first_sample(const nets_op_args *args) {
    const uint32_t *rng = args->at[NETS_RNG];
    return rng ? rng[NETS_RNG_IMAGE] : 0;
}

static mm_status check_labels(const token_loss_op *op, const nets_op_args *args) {
    const int32_t *labels = args->at[NETS_LABELS];
    for (int64_t i = 0; i < op->rows; i++)
        if (labels[i] < 0 || labels[i] >= op->classes)
            return mm_fail(MM_ERR_INVALID, "label %d of sample %lld is not one of %lld classes", labels[i],
                           (long long)(first_sample(args) + i / op->rows_per_sample), (long long)op->classes);
    return MM_OK;
}

/* Whether the label is the first class with the highest score, `top`. */
static bool is_highest(const float *scores, int64_t n, int32_t label, float top) {
    int64_t k = 0;
    while (k < n && scores[k] != top) k++;
    return k == label;
}

/* scores = scores * factor, less `share` at the label. With bf16 maps the result is rounded into the row's first half:
 * block by block, none of which reads what another has written. */
static void give_row(const token_loss_op *op, float factor, int32_t label, float share, float *scores) {
    enum { BLOCK = 1024 };
    float block[BLOCK];
    if (op->weight == NETS_W) {
        op->loops->scale(scores, factor, op->classes, scores);
        scores[label] -= share;
        return;
    }
    for (int64_t at = 0; at < op->classes; at += BLOCK) {
        const int64_t n = op->classes - at < BLOCK ? op->classes - at : BLOCK;
        op->loops->scale(scores + at, factor, n, block);
        if (label >= at && label < at + n) block[label - at] -= share;
        op->lines->narrow(block, n, (uint16_t *)(void *)scores + at);
    }
}

static void lose_rows(const void *ctx, int64_t from, int64_t to) {
    const token_loss_run *run = ctx;
    const token_loss_op *op = run->op;
    const int32_t *labels = (const int32_t *)run->args->at[NETS_LABELS] + run->first;
    for (int64_t r = from; r < to; r++) {
        float *scores = run->scores + r * op->classes;
        const float top = op->loops->top(scores, op->classes), at_label = scores[labels[r]];
        run->correct[r] = is_highest(scores, op->classes, labels[r], top);
        const float sum = op->loops->exps(scores, 1, top, op->classes, scores);
        run->losses[r] = log((double)sum) - ((double)at_label - (double)top);
        if (!run->gives) continue;
        give_row(op, 1.0f / (sum * (float)op->whole), labels[r], 1.0f / (float)op->whole, scores);
    }
}

static mm_status multiply(const token_loss_run *run, nets_piecewise *p, const void *a, const void *b, void *y) {
    void *const at[NETS_PIECE_ARGS] = {(void *)a, (void *)b, y};
    return nets_piecewise_run(run->op->dnn, p, at, (char *)run->args->at[NETS_WORKSPACE] + run->op->scratch_at);
}

/* The product that gives a chunk's part of the weight's gradient. */
static nets_piecewise *dweight_of(token_loss_op *op, int64_t chunk) {
    chunk_products *p = &op->product[chunk == op->chunks.pieces - 1];
    return chunk == 0 && !op->base.adds ? &p->first : &p->dweight;
}

static mm_status run_chunk(token_loss_run *run, int64_t chunk) {
    token_loss_op *op = run->op;
    void *const *at = run->args->at;
    const bool last = chunk == op->chunks.pieces - 1;
    const int64_t rows = last ? nets_cut_rest(&op->chunks) : op->chunks.each;
    chunk_products *p = &op->product[last];
    run->first = chunk * op->chunks.each;
    if (op->parts_only) run->scores = (float *)at[NETS_SAVED] + run->first * op->classes;
    const int64_t row = run->first * op->channels * op->map_bytes;
    const char *x = (const char *)at[NETS_X] + row;
    MM_TRY(multiply(run, &p->scores, x, at[op->weight], run->scores));
    nets_ranges(op->dnn->pool, rows, 1, 4 * op->classes, lose_rows, run);
    if (!run->gives) return MM_OK;
    MM_TRY(multiply(run, &p->y, run->scores, at[op->weight], (char *)at[NETS_Y] + row));
    return at[NETS_DW] ? multiply(run, dweight_of(op, chunk), run->scores, x, at[NETS_DW]) : MM_OK;
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    token_loss_op *op = (token_loss_op *)base;
    char *workspace = args->at[NETS_WORKSPACE];
    token_loss_run run = {.op = op,
                          .args = args,
                          .gives = op->training && args->at[NETS_Y],
                          .scores = (float *)workspace,
                          .losses = (double *)(void *)(workspace + op->losses_at),
                          .correct = (int32_t *)(void *)(workspace + op->correct_at)};
    double loss = 0;
    int32_t correct = 0;
    MM_TRY(check_labels(op, args));
    for (int64_t c = 0; c < op->chunks.pieces; c++) {
        MM_TRY(run_chunk(&run, c));
        const int64_t rows = c == op->chunks.pieces - 1 ? nets_cut_rest(&op->chunks) : op->chunks.each;
        for (int64_t r = 0; r < rows; r++) {
            loss += run.losses[r];
            correct += run.correct[r];
        }
    }
    float *value = args->at[NETS_LOSS_VALUE];
    int32_t *all_correct = args->at[NETS_CORRECT];
    if (value) *value = (float)(loss / (double)op->whole) + (op->adds ? *value : 0);
    if (all_correct) *all_correct = correct + (op->adds ? *all_correct : 0);
    return MM_OK;
}

/* The forward has left the gradient in Y. */
static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const token_loss_op *op = (const token_loss_op *)base;
    nets_host_pass_gradient(op->dnn->pool, op->weight == NETS_W ? MM_F32 : MM_BF16, args->at[NETS_Y],
                            args->at[NETS_EARLIER], args->at[NETS_DX], op->rows * op->channels);
    return MM_OK;
}

/* Parts of the weight's gradient, by the scores' gradients that the forward has saved. */
static mm_status run_parts(nets_op *base, const nets_part_args *args) {
    token_loss_op *op = (token_loss_op *)base;
    const int64_t part_bytes = op->part_rows * op->channels * (int64_t)sizeof *args->dw;
    for (int64_t c = 0, first = 0; c < op->chunks.pieces; c++, first += op->chunks.each)
        MM_TRY(nets_piecewise_run_some(op->dnn, dweight_of(op, c), args, args->dy + first * op->classes,
                                       args->x + first * op->channels, part_bytes));
    return MM_OK;
}

mm_status nets_host_token_loss_parts(nets_op *op, const nets_part_args *args, mm_stream *stream) {
    return nets_host_parts(op, run_parts, args, stream);
}

static int64_t workspace_bytes(const nets_op *op, mm_phase phase) {
    return phase == MM_FORWARD ? ((const token_loss_op *)op)->workspace_bytes : 0;
}

static void destroy(nets_op *base) {
    token_loss_op *op = (token_loss_op *)base;
    for (int k = 0; k < 2; k++) {
        nets_piecewise_fini(&op->product[k].scores);
        nets_piecewise_fini(&op->product[k].y);
        nets_piecewise_fini(&op->product[k].dweight);
        nets_piecewise_fini(&op->product[k].first);
    }
    free(op);
}

/* chunk: the number of a chunk of these rows. */
static mm_status make_products(token_loss_op *op, int64_t rows, int64_t chunk, chunk_products *p) {
    const mm_host_pool *pool = op->dnn->pool;
    const bool half = op->weight == NETS_W16;
    const int64_t stride = half ? 2 * op->classes : 0; /* of scores' gradients */
    const nets_dnn_product_desc scores = {
        .rows = rows, .inner = op->channels, .columns = op->classes, .b_transposed = true, .half = half};
    const nets_dnn_product_desc y = {
        .rows = rows, .inner = op->classes, .columns = op->channels, .a_stride = stride, .half = half, .half_y = half};
    nets_dnn_product_desc dweight = {.rows = op->classes,
                                     .inner = rows,
                                     .columns = op->channels,
                                     .a_transposed = true,
                                     .a_stride = stride,
                                     .half = half};
    const nets_grid by_class = nets_grid_of(pool, rows, op->classes), y_grid = nets_grid_of(pool, rows, op->channels);
    const nets_grid weight_grid = op->part_rows > 0
                                      ? nets_grid_of_rows(nets_cut_in_parts(op->classes, op->part_rows), op->channels)
                                      : nets_grid_of(pool, op->classes, op->channels);
    MM_TRY(nets_piecewise_product(op->dnn, &scores, &by_class, false, &p->scores));
    if (!op->training) return MM_OK;
    MM_TRY(nets_piecewise_product(op->dnn, &y, &y_grid, false, &p->y));
    if (op->frozen) return MM_OK;
    const bool writes = chunk == 0 && !op->base.adds, whole = op->chunks.pieces == 1;
    if (writes) MM_TRY(nets_piecewise_product(op->dnn, &dweight, &weight_grid, false, &p->first));
    dweight.adds = true;
    return writes && whole ? MM_OK : nets_piecewise_product(op->dnn, &dweight, &weight_grid, false, &p->dweight);
}

static void measure_workspace(token_loss_op *op) {
    const int64_t rows = op->chunks.each;
    op->losses_at = op->parts_only ? 0 : nets_aligned(rows * op->classes * (int64_t)sizeof(float));
    op->correct_at = op->losses_at + nets_aligned(rows * (int64_t)sizeof(double));
    op->scratch_at = op->correct_at + nets_aligned(rows * (int64_t)sizeof(int32_t));
    int64_t scratch = 0, parts = 0;
    for (int k = 0; k < 2; k++) {
        const nets_piecewise *const all[] = {&op->product[k].scores, &op->product[k].y, &op->product[k].dweight,
                                             &op->product[k].first};
        for (int i = 2; i < 4; i++)
            parts = nets_larger(parts, nets_piecewise_places(op->dnn, all[i]) * all[i]->scratch_bytes);
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            scratch = nets_larger(scratch, nets_piecewise_places(op->dnn, all[i]) * all[i]->scratch_bytes);
    }
    op->workspace_bytes = op->scratch_at + scratch;
    op->base.part_bytes = parts;
}

/* All chunks have about as many rows: a multiple of ROWS_UNIT, as both limits are. */
static int64_t rows_of_chunk(int64_t rows, int64_t classes) {
    const int64_t fit = CHUNK_BYTES / (classes * (int64_t)sizeof(float)) / ROWS_UNIT * ROWS_UNIT;
    const int64_t most = fit < LEAST_ROWS ? LEAST_ROWS : fit > MOST_ROWS ? MOST_ROWS : fit;
    const int64_t chunks = (rows + most - 1) / most;
    const int64_t each = ((rows + chunks - 1) / chunks + ROWS_UNIT - 1) / ROWS_UNIT * ROWS_UNIT;
    return each < rows ? each : rows;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const bool half = desc->maps == MM_BF16;
    if (half && !nets_dnn_has_bf16()) return mm_fail(MM_ERR_UNSUPPORTED, "this CPU has no units for bf16");
    token_loss_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a loss of tokens");
    op->base.impl = &nets_host_op_token_loss.base;
    op->base.adds = desc->training && desc->pass.adds;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->loops = nets_simd_row_best();
    op->lines = nets_simd_map_best(desc->maps);
    op->map_bytes = mm_dtype_bytes(desc->maps);
    op->weight = half ? NETS_W16 : NETS_W;
    op->rows = nets_shape_rows(&desc->x[0]);
    op->rows_per_sample = op->rows / desc->x[0].dims[0];
    op->channels = nets_shape_channels(&desc->x[0]);
    op->classes = desc->attrs.out_channels;
    op->whole = desc->pass.whole > 0 ? desc->pass.whole * op->rows_per_sample : op->rows;
    op->adds = desc->pass.adds;
    op->training = desc->training;
    op->frozen = desc->frozen;
    op->part_rows = desc->part_rows;
    op->parts_only = desc->parts_only;
    const int64_t each = rows_of_chunk(op->rows, op->classes);
    op->chunks = (nets_cut){op->rows, each, (int)((op->rows + each - 1) / each)};
    mm_status status = MM_OK;
    const int64_t last = op->chunks.pieces - 1;
    if (last > 0) status = make_products(op, each, 0, &op->product[0]);
    if (status == MM_OK) status = make_products(op, nets_cut_rest(&op->chunks), last, &op->product[1]);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    measure_workspace(op);
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_token_loss = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                              destroy, workspace_bytes, run_forward, run_backward);
