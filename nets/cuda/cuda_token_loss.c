/* The last product and the loss, chunk of tokens by chunk. In training a chunk's gradients follow its scores at once, so no
 * more than a chunk's scores exist:
 *
 *   scores = X W^T;   scores := (softmax(scores) - 1 at the label) / labels
 *   Y = scores W;     DW += scores^T X
 *
 *   0                  gradients_at            losses_at          library_at
 *   | a chunk's scores | bf16: their gradients | its rows' losses | the library's own |      the forward's workspace
 *
 * Sums over chunks are in order. Of bf16 maps X, W, Y and the gradients by the scores are bf16; scores and DW are f32, and
 * sums too. Rows of scores then begin at multiples of 16 bytes, which tensor cores ask for. In f32 gradients lie over the
 * scores. */
#include <stdlib.h>

#include "mm/core/dtype.h"

#include "nets/cuda/cudnn_conv.h"

/* Of a chunk: bytes of scores, and its least and most rows. The weight's gradient is read and written for each chunk, so
 * fewer rows cost time. A GPT-2's chunk has 656 rows, whose products take about ten times as long as that on an H200.
 * Estimated. */
enum { CHUNK_BYTES = 128 << 20, ROWS_UNIT = 16, LEAST_ROWS = 128, MOST_ROWS = 2048 };

typedef struct chunk_products {
    nets_cudnn_conv scores, y, dw;
} chunk_products;

typedef struct token_loss_op {
    nets_op base;
    chunk_products of[2]; /* of a whole chunk; of the last one */
    mm_dtype maps;
    nets_role weight;
    int64_t rows, each, channels;
    int64_t pitch;           /* elements from row to row of scores, and of their gradients */
    nets_cuda_labels labels; /* of all rows, without addresses */
    int64_t gradients_at, losses_at, library_at;
    bool training;
} token_loss_op;

static mm_status run_chunk(const token_loss_op *op, const chunk_products *p, int64_t first, const nets_op_args *args,
                           mm_stream *stream) {
    char *workspace = args->at[NETS_WORKSPACE];
    const int64_t before = first * op->channels * mm_dtype_table[op->maps].bytes;
    void *scores = workspace, *gradients = workspace + op->gradients_at, *library = workspace + op->library_at;
    void *x = (char *)args->at[NETS_X] + before, *weight = args->at[op->weight];
    const int64_t bytes = nets_op_workspace_within(&op->base, MM_FORWARD, args->workspace_bytes) - op->library_at;
    const bool gives = op->training && args->at[NETS_Y];
    nets_cuda_labels labels = op->labels;
    labels.of = (const int32_t *)args->at[NETS_LABELS] + first;
    labels.n = op->rows - first < op->each ? op->rows - first : op->each;
    labels.first = first;
    labels.adds |= first > 0;
    labels.rng = args->at[NETS_RNG];
    MM_TRY(nets_cudnn_conv_enqueue(&p->scores, x, scores, weight, library, bytes, stream));
    nets_cuda_token_loss(op->maps, labels, scores, op->pitch, gives ? gradients : NULL, workspace + op->losses_at,
                         args->at[NETS_LOSS_VALUE], args->at[NETS_CORRECT], mm_cuda_stream(stream));
    if (!gives) return MM_OK;
    void *y = (char *)args->at[NETS_Y] + before;
    MM_TRY(nets_cudnn_conv_enqueue(&p->y, y, gradients, weight, library, bytes, stream));
    if (!args->at[NETS_DW]) return MM_OK;
    return nets_cudnn_conv_enqueue(&p->dw, x, gradients, args->at[NETS_DW], library, bytes, stream);
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

/* The forward has left the gradient in Y. */
static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const token_loss_op *op = (const token_loss_op *)base;
    if (args->at[NETS_DX] && (args->at[NETS_DX] != args->at[NETS_Y] || args->at[NETS_EARLIER]))
        nets_cuda_sum(op->maps, args->at[NETS_Y], args->at[NETS_EARLIER], args->at[NETS_DX], op->rows * op->channels,
                      mm_cuda_stream(stream));
    return nets_cuda_launched("the gradient of the loss of tokens");
}

static void destroy(nets_op *base) {
    token_loss_op *op = (token_loss_op *)base;
    for (int k = 0; k < 2; k++) {
        nets_cudnn_conv_fini(&op->of[k].scores);
        nets_cudnn_conv_fini(&op->of[k].y);
        nets_cudnn_conv_fini(&op->of[k].dw);
    }
    free(op);
}

static mm_status make_products(const token_loss_op *op, nets_cuda_backend *cuda, int64_t rows, chunk_products *p) {
    const nets_conv_terms of_y = nets_cudnn_output_terms(&cuda->terms);
    const int64_t in = op->channels, out = op->labels.classes;
    const bool bf16 = op->maps == MM_BF16;
    nets_conv_shape scores = nets_product_shape(NETS_CONV_FORWARD, rows, in, out, bf16 ? NETS_CONV_BF16_TO_F32 : 0);
    nets_conv_shape y = nets_product_shape(NETS_CONV_BY_INPUT, rows, in, out, bf16);
    nets_conv_shape dw = nets_product_shape(NETS_CONV_BY_WEIGHTS, rows, in, out, bf16);
    scores.pitch = y.pitch = dw.pitch = op->pitch > out ? (int)op->pitch : 0;
    dw.adds = true;
    MM_TRY(nets_cudnn_conv_init(&p->scores, cuda, &scores, &of_y));
    if (!op->training) return MM_OK;
    MM_TRY(nets_cudnn_conv_init(&p->y, cuda, &y, &cuda->terms));
    return nets_cudnn_conv_init(&p->dw, cuda, &dw, &cuda->terms);
}

static void set_workspaces(token_loss_op *op) {
    const chunk_products *a = &op->of[0], *b = &op->of[1];
    const nets_cudnn_conv *const parts[] = {&a->scores, &a->y, &a->dw, &b->scores, &b->y, &b->dw};
    const int64_t scores_bytes = nets_aligned(op->each * op->pitch * (int64_t)sizeof(float));
    const bool apart = op->training && op->maps == MM_BF16;
    op->gradients_at = apart ? scores_bytes : 0;
    op->losses_at = scores_bytes + (apart ? nets_aligned(op->each * op->pitch * mm_dtype_table[op->maps].bytes) : 0);
    op->library_at = op->losses_at + nets_aligned(nets_cuda_token_loss_bytes(op->each));
    nets_cudnn_conv_set_workspaces(&op->base, MM_FORWARD, parts, 6, (nets_conv_room){.before = op->library_at});
}

static int64_t rows_of_chunk(int64_t rows, int64_t classes) {
    const int64_t fit = CHUNK_BYTES / (classes * (int64_t)sizeof(float)) / ROWS_UNIT * ROWS_UNIT;
    const int64_t each = fit < LEAST_ROWS ? LEAST_ROWS : fit > MOST_ROWS ? MOST_ROWS : fit;
    return each < rows ? each : rows;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    MM_TRY(nets_cuda_check_dims(desc));
    if (desc->maps == MM_BF16 && desc->adds_earlier)
        return mm_fail(MM_ERR_UNSUPPORTED, "Y would be rounded before an earlier contribution is added");
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
    op->labels = (nets_cuda_labels){.image = image,
                                    .whole = desc->pass.whole > 0 ? desc->pass.whole * image : rows,
                                    .classes = (int)desc->attrs.out_channels,
                                    .adds = desc->pass.adds};
    op->pitch = op->maps == MM_BF16 ? (op->labels.classes + 7) / 8 * 8 : op->labels.classes;
    op->each = rows_of_chunk(rows, op->labels.classes);
    nets_cuda_backend *cuda = (nets_cuda_backend *)backend;
    mm_status status = rows > op->each ? make_products(op, cuda, op->each, &op->of[0]) : MM_OK;
    if (status == MM_OK) status = make_products(op, cuda, (rows - 1) % op->each + 1, &op->of[1]);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    set_workspaces(op);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_token_loss = {NETS_CUDA_MAPS, create, destroy, NULL, forward, backward};
