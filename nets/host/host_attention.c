/* SPDX-License-Identifier: MIT */
/* Attention, block by block (Dao et al. 2022, "FlashAttention"): of the scores, which are the square of the
 * context, only one block exists at a time, in the cache. One thread computes a whole head of a sample, in a fixed
 * order.
 *
 *   keys       0     1     2         With s = scale q k, for a block of rows (queries) i and each block of keys j <= i:
 *   rows 0   | \ |     |     |         forward:   top, l = sum of e^(s - top), o = sum of e^(s - top) v; both are
 *   rows 1   |   |  \  |     |                    rescaled when a block raises the top. y = o / l, log l + top is saved
 *   rows 2   |   |     |  \  |         backward:  p = e^(s - saved); dp = dy v; ds = p (dp - y dy) scale;
 *            whole blocks, then half of             dv += p dy; dq += ds k; dk += ds q
 *            the one on the diagonal
 *
 * That is causal attention; in full attention each row sees all blocks of keys, whole.
 *
 * The input's channels are q, of `heads` times `size`, then k and v, of `kv_heads` times `size`. A thread computes a
 * head of k and v with its group of heads of q, one after the other. With bf16 maps products take bf16 factors, of
 * which p and ds are rounded, and sums are f32: gradients are summed in panels [tokens, size] and rounded once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/dtype.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"
#include "nets/host/simd_row.h"

enum { BLOCK = 128 }; /* rows and keys of a block: its scores take 64 KiB, of a cache of 256 KiB at least. Chosen */

/* Products of blocks. OUTPUT and the gradients of q, k and v add to their results. */
enum { SCORES, OUTPUT, BY_P, BY_V, BY_Q, BY_K, PRODUCTS };
/* The sizes of blocks. Only the last block of rows, or of keys, can be smaller; keys alone only in full attention. */
enum { WHOLE, LAST_ROWS, LAST_KEYS, LAST_BOTH, SIZES };

typedef struct attention_op {
    nets_op base;
    const nets_dnn *dnn;
    const nets_simd_row *loops;
    int64_t samples, tokens, heads, kv_heads, size;
    nets_cut blocks; /* cuts the tokens */
    nets_dnn_kernel product[PRODUCTS][SIZES];
    const nets_simd_map *lines;
    int64_t elem_bytes;       /* size of a map's element */
    bool half;                /* maps are bf16 */
    int64_t x_pitch, y_pitch; /* elements from token to token in maps */
    int64_t dx_pitch;         /* and in gradients of q, k and v: in maps, or in panels if `half` */
    int64_t scratch_bytes;    /* a product's */
    int64_t floats_bytes[2];  /* of a place in the workspace, beside that scratch: of each phase */
    float scale;
    bool full;
} attention_op;

typedef struct attention_run {
    attention_op *op;
    const nets_op_args *args;
    bool backward;
} attention_run;

/* One head of one sample, and the thread's scratch. */
typedef struct head {
    attention_op *op;
    int thread;
    const char *q, *k, *v, *dy; /* in maps */
    char *y;
    float *log_sums, *dq, *dk, *dv;
    void *scratch;
    float *s, *dp;    /* of a block */
    float *o;         /* output of a block's rows, [rows, size]; in the backward, a row of y and of dy as floats */
    uint16_t *factor; /* a block as a factor, if `half` */
    float *top, *l;   /* [rows]; in the backward, `top` has the dot product of y and dy */
} head;

/* The block of rows i and keys j. */
typedef struct block {
    int64_t row, key, rows, keys;
    int size;
    bool diagonal;
} block;

static block block_of(const attention_op *op, int64_t i, int64_t j) {
    const int64_t last = op->blocks.pieces - 1, each = op->blocks.each, rest = nets_cut_rest(&op->blocks);
    return (block){.row = i * each,
                   .key = j * each,
                   .rows = i == last ? rest : each,
                   .keys = j == last ? rest : each,
                   .size = i < last ? (j < last ? WHOLE : LAST_KEYS) : (j < last ? LAST_ROWS : LAST_BOTH),
                   .diagonal = i == j && !op->full};
}

/* How many blocks of keys the block of rows i sees. */
static int64_t key_blocks(const attention_op *op, int64_t i) { return op->full ? op->blocks.pieces : i + 1; }

static int64_t row_of_x(const attention_op *op) { return (op->heads + 2 * op->kv_heads) * op->size; }
static int64_t row_of_y(const attention_op *op) { return op->heads * op->size; }

/* A map's rows from `row` on. */
static const char *rows_of(const attention_op *op, const char *map, int64_t row, int64_t pitch) {
    return map + row * pitch * op->elem_bytes;
}

/* A block as a factor of products. */
static const void *factor_of(const head *h, const block *b, const float *values) {
    if (!h->op->half) return values;
    h->op->lines->narrow(values, b->rows * b->keys, h->factor);
    return h->factor;
}

static mm_status multiply(const head *h, int product, int size, const void *a, const void *b, float *y) {
    nets_dnn_kernel *kernel = &h->op->product[product][size];
    MM_TRY(nets_dnn_bind(kernel, h->thread, DNNL_ARG_SRC, a));
    MM_TRY(nets_dnn_bind(kernel, h->thread, DNNL_ARG_WEIGHTS, b));
    MM_TRY(nets_dnn_bind(kernel, h->thread, DNNL_ARG_DST, y));
    return nets_dnn_run(h->op->dnn, kernel, h->thread, h->scratch);
}

/* How many keys of the block a row sees. */
static int64_t seen(const block *b, int64_t row) { return b->diagonal ? row + 1 : b->keys; }

/* ---------------------------------------------------------------- forward */

static mm_status add_block(const head *h, const block *b) {
    const attention_op *op = h->op;
    MM_TRY(multiply(h, SCORES, b->size, rows_of(op, h->q, b->row, op->x_pitch), rows_of(op, h->k, b->key, op->x_pitch),
                    h->s));
    for (int64_t r = 0; r < b->rows; r++) {
        float *s = h->s + r * b->keys, *o = h->o + r * op->size;
        const int64_t n = seen(b, r);
        const float top = op->loops->top(s, n) * op->scale;
        if (b->key == 0) {
            h->top[r] = top;
            h->l[r] = 0;
        } else if (top > h->top[r]) {
            const float less = expf(h->top[r] - top);
            op->loops->scale(o, less, op->size, o);
            h->l[r] *= less;
            h->top[r] = top;
        }
        h->l[r] += op->loops->exps(s, op->scale, h->top[r], n, s);
        memset(s + n, 0, (size_t)(b->keys - n) * sizeof *s);
    }
    return multiply(h, OUTPUT, b->size, factor_of(h, b, h->s), rows_of(op, h->v, b->key, op->x_pitch), h->o);
}

static mm_status attend_rows(const head *h, int64_t i) {
    const attention_op *op = h->op;
    const block whole = block_of(op, i, i);
    memset(h->o, 0, (size_t)(whole.rows * op->size) * sizeof *h->o);
    for (int64_t j = 0; j < key_blocks(op, i); j++) {
        const block b = block_of(op, i, j);
        MM_TRY(add_block(h, &b));
    }
    for (int64_t r = 0; r < whole.rows; r++) {
        char *y = h->y + (whole.row + r) * op->y_pitch * op->elem_bytes;
        float *o = h->o + r * op->size, *to = op->half ? o : (float *)(void *)y;
        op->loops->scale(o, 1.0f / h->l[r], op->size, to);
        if (op->half) op->lines->narrow(to, op->size, y);
        if (h->log_sums) h->log_sums[whole.row + r] = h->top[r] + logf(h->l[r]);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- backward */

static mm_status give_block(const head *h, const block *b) {
    const attention_op *op = h->op;
    const char *q = rows_of(op, h->q, b->row, op->x_pitch), *k = rows_of(op, h->k, b->key, op->x_pitch);
    const char *v = rows_of(op, h->v, b->key, op->x_pitch), *dy = rows_of(op, h->dy, b->row, op->y_pitch);
    const int64_t at_key = b->key * op->dx_pitch;
    MM_TRY(multiply(h, SCORES, b->size, q, k, h->s));
    for (int64_t r = 0; r < b->rows; r++) {
        float *s = h->s + r * b->keys;
        const int64_t n = seen(b, r);
        op->loops->exps(s, op->scale, h->log_sums[b->row + r], n, s);
        memset(s + n, 0, (size_t)(b->keys - n) * sizeof *s);
    }
    MM_TRY(multiply(h, BY_V, b->size, factor_of(h, b, h->s), dy, h->dv + at_key));
    MM_TRY(multiply(h, BY_P, b->size, dy, v, h->dp));
    for (int64_t r = 0; r < b->rows; r++) {
        float *s = h->s + r * b->keys;
        const float *dp = h->dp + r * b->keys, at_y = h->top[r], scale = op->scale;
#pragma omp simd
        for (int64_t c = 0; c < b->keys; c++) s[c] = s[c] * (dp[c] - at_y) * scale;
    }
    const void *ds = factor_of(h, b, h->s);
    MM_TRY(multiply(h, BY_Q, b->size, ds, k, h->dq + b->row * op->dx_pitch));
    return multiply(h, BY_K, b->size, ds, q, h->dk + at_key);
}

static mm_status give_rows(const head *h, int64_t i) {
    const attention_op *op = h->op;
    const block whole = block_of(op, i, i);
    for (int64_t r = 0; r < whole.rows; r++) {
        const int64_t at = (whole.row + r) * op->y_pitch, n = op->size;
        h->top[r] = op->loops->dot(nets_simd_floats(op->lines, op->elem_bytes, h->y, at, n, h->o),
                                   nets_simd_floats(op->lines, op->elem_bytes, h->dy, at, n, h->o + n), n);
    }
    for (int64_t j = 0; j < key_blocks(op, i); j++) {
        const block b = block_of(op, i, j);
        MM_TRY(give_block(h, &b));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- both */

/* Where a head of q and its k and v lie in the maps: byte offsets. */
typedef struct place {
    int64_t q, k, v, y;
    bool begins, ends; /* the first, and the last, head of its group */
} place;

/* index: of the head of q, in all samples. */
static place place_of(const attention_op *op, int64_t index) {
    const int64_t sample = index / op->heads, head = index % op->heads, group = op->heads / op->kv_heads;
    const int64_t x = sample * op->tokens * row_of_x(op), y = sample * op->tokens * row_of_y(op);
    const int64_t k = x + (op->heads + head / group) * op->size;
    return (place){.q = (x + head * op->size) * op->elem_bytes,
                   .k = k * op->elem_bytes,
                   .v = (k + op->kv_heads * op->size) * op->elem_bytes,
                   .y = (y + head * op->size) * op->elem_bytes,
                   .begins = head % group == 0,
                   .ends = head % group == group - 1};
}

static int64_t groups_of(const attention_op *op) { return op->samples * op->kv_heads; }

static int64_t place_bytes(const attention_op *op, bool backward) {
    return op->floats_bytes[backward ? MM_BACKWARD : MM_FORWARD] + op->scratch_bytes;
}

/* `index`: of the head of q; `group`: of its group, in all samples. */
static head head_of(const attention_run *run, int64_t index, int64_t group, int thread) {
    attention_op *op = run->op;
    const int64_t each = op->blocks.each, at = nets_place(op->dnn->pool, groups_of(op), group, thread);
    float *floats = (float *)((char *)run->args->at[NETS_WORKSPACE] + at * place_bytes(op, run->backward));
    head h = {.op = op, .thread = thread};
    if (run->args->at[NETS_SAVED]) h.log_sums = (float *)run->args->at[NETS_SAVED] + index * op->tokens;
    h.s = floats;
    h.dp = h.s + each * each;
    h.o = h.dp + each * each;
    h.top = h.o + (each + (op->half ? 1 : 0)) * op->size;
    h.l = h.top + each;
    h.factor = (uint16_t *)(void *)(h.l + each);
    h.scratch = (char *)floats + op->floats_bytes[run->backward ? MM_BACKWARD : MM_FORWARD];
    return h;
}

/* The panels of gradients are set to zero; those of k and v collect what the heads of a group give. */
static void point(const attention_run *run, const place *at, head *h) {
    const attention_op *op = run->op;
    char *x = run->args->at[NETS_X], *dx = run->args->at[NETS_DX];
    h->q = x + at->q;
    h->k = x + at->k;
    h->v = x + at->v;
    h->y = (char *)run->args->at[NETS_Y] + at->y;
    if (!run->backward) return;
    h->dy = (char *)run->args->at[NETS_DY] + at->y;
    if (op->half) {
        const int64_t panel = op->tokens * op->size;
        h->dq = (float *)(void *)h->factor + (op->blocks.each * op->blocks.each + 1) / 2;
        h->dk = h->dq + panel;
        h->dv = h->dk + panel;
        memset(h->dq, 0, (size_t)((at->begins ? 3 : 1) * panel) * sizeof *h->dq);
    } else {
        h->dq = (float *)(void *)(dx + at->q);
        h->dk = (float *)(void *)(dx + at->k);
        h->dv = (float *)(void *)(dx + at->v);
    }
}

/* Writes a panel to a map, after adding `earlier` unless that is NULL. */
static void give(const attention_op *op, const float *from, int64_t row, const char *earlier, char *to) {
    for (int64_t t = 0; t < op->tokens; t++) {
        const int64_t at = t * row * op->elem_bytes;
        if (earlier)
            op->lines->add_floats(earlier + at, from + t * op->size, op->size, to + at);
        else
            op->lines->narrow(from + t * op->size, op->size, to + at);
    }
}

static void give_all(const attention_run *run, const place *at, const head *h) {
    const attention_op *op = run->op;
    char *dx = run->args->at[NETS_DX];
    const char *earlier = run->args->at[NETS_EARLIER];
    const float *const gradients[] = {h->dq, h->dk, h->dv};
    const int64_t parts[] = {at->q, at->k, at->v};
    for (int i = 0; i < (at->ends ? 3 : 1); i++)
        give(op, gradients[i], row_of_x(op), earlier ? earlier + parts[i] : NULL, dx + parts[i]);
}

static mm_status run_head(const attention_run *run, int64_t index, int64_t group, int thread) {
    const place at = place_of(run->op, index);
    head h = head_of(run, index, group, thread);
    point(run, &at, &h);
    for (int64_t i = 0; i < run->op->blocks.pieces; i++) MM_TRY(run->backward ? give_rows(&h, i) : attend_rows(&h, i));
    if (run->op->half && run->backward) give_all(run, &at, &h);
    return MM_OK;
}

static mm_status run_group(void *ctx, int64_t piece, int thread) {
    const attention_run *run = ctx;
    const int64_t heads = run->op->heads / run->op->kv_heads;
    for (int64_t i = 0; i < heads; i++) MM_TRY(run_head(run, piece * heads + i, piece, thread));
    return MM_OK;
}

static mm_status run_all(nets_op *base, const nets_op_args *args, bool backward) {
    attention_run run = {(attention_op *)base, args, backward};
    return mm_host_pool_run(run.op->dnn->pool, groups_of(run.op), run_group, &run);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) { return run_all(base, args, false); }

static void clear(const void *ctx, int64_t from, int64_t to) {
    memset((float *)((const nets_op_args *)ctx)->at[NETS_DX] + from, 0, (size_t)(to - from) * sizeof(float));
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const attention_op *op = (const attention_op *)base;
    const int64_t elems = op->samples * op->tokens * row_of_x(op);
    if (op->half) return run_all(base, args, true);
    nets_ranges(op->dnn->pool, elems, 1, 1, clear, args);
    MM_TRY(run_all(base, args, true));
    nets_host_accumulate_on(op->dnn->pool, args->at[NETS_DX], args->at[NETS_EARLIER], elems);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const attention_op *op = (const attention_op *)base;
    return nets_places(op->dnn->pool, groups_of(op)) * place_bytes(op, phase == MM_BACKWARD);
}

static void destroy(nets_op *base) {
    attention_op *op = (attention_op *)base;
    for (int p = 0; p < PRODUCTS; p++)
        for (int s = 0; s < SIZES; s++) nets_dnn_kernel_fini(&op->product[p][s]);
    free(op);
}

static mm_status make_products(attention_op *op, bool training) {
    const int64_t x = op->x_pitch, y = op->y_pitch, dx = op->dx_pitch, size = op->size;
    const int64_t each = op->blocks.each, rest = nets_cut_rest(&op->blocks);
    const bool half = op->half;
    for (int s = op->blocks.pieces > 1 ? WHOLE : LAST_BOTH; s < SIZES; s++) {
        if (s == LAST_KEYS && !op->full) continue;
        const int64_t rows = s == WHOLE || s == LAST_KEYS ? each : rest;
        const int64_t keys = s == LAST_BOTH || s == LAST_KEYS ? rest : each;
        const nets_dnn_product_desc products[PRODUCTS] = {
            [SCORES] = {rows, size, keys, false, true, x, x, keys, false, half},
            [OUTPUT] = {rows, keys, size, false, false, keys, x, size, true, half},
            [BY_P] = {rows, size, keys, false, true, y, x, keys, false, half},
            [BY_V] = {keys, rows, size, true, false, keys, y, dx, true, half},
            [BY_Q] = {rows, keys, size, false, false, keys, x, dx, true, half},
            [BY_K] = {keys, rows, size, true, false, keys, x, dx, true, half},
        };
        for (int p = 0; p < (training ? PRODUCTS : BY_P); p++) {
            MM_TRY(nets_dnn_product(op->dnn, &products[p], &op->product[p][s]));
            op->scratch_bytes = nets_larger(op->scratch_bytes, nets_aligned(op->product[p][s].scratch_bytes));
        }
    }
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const bool half = desc->maps == MM_BF16;
    if (half && !nets_dnn_has_bf16()) return mm_fail(MM_ERR_UNSUPPORTED, "this CPU has no units for bf16");
    attention_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for an attention");
    op->base.impl = &nets_host_op_attention.base;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->loops = nets_simd_row_best();
    op->samples = desc->y.dims[0];
    op->tokens = nets_shape_rows(&desc->y) / op->samples;
    op->heads = desc->attrs.heads;
    op->kv_heads = nets_kv_heads(&desc->attrs);
    op->size = nets_shape_channels(&desc->y) / op->heads;
    op->scale = 1.0f / sqrtf((float)op->size);
    op->full = desc->attrs.full;
    op->lines = nets_simd_map_best(desc->maps);
    op->elem_bytes = mm_dtype_table[desc->maps].bytes;
    op->half = half;
    op->x_pitch = row_of_x(op);
    op->y_pitch = row_of_y(op);
    op->dx_pitch = half ? op->size : op->x_pitch;
    const int64_t each = op->tokens < BLOCK ? op->tokens : BLOCK;
    op->blocks = (nets_cut){op->tokens, each, (int)((op->tokens + each - 1) / each)};
    mm_status status = make_products(op, desc->training);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    int64_t floats = 2 * each * each + each * (op->size + 2);
    if (half) floats += op->size + (each * each + 1) / 2;
    op->floats_bytes[MM_FORWARD] = nets_aligned(floats * (int64_t)sizeof(float));
    if (half) floats += 3 * op->tokens * op->size; /* panels */
    op->floats_bytes[MM_BACKWARD] = nets_aligned(floats * (int64_t)sizeof(float));
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_attention = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                             destroy, workspace_bytes, run_forward, run_backward);
