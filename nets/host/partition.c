/* SPDX-License-Identifier: MIT */
#include "nets/host/partition.h"

#include <stdlib.h>

#include "nets/contract/op_sizes.h"

nets_cut nets_cut_of(int64_t items, int pieces, int64_t unit, int64_t least) {
    int64_t each = (items + pieces - 1) / pieces;
    each = (nets_larger(each, least) + unit - 1) / unit * unit;
    if (each > items || pieces == 1) each = items;
    return (nets_cut){.items = items, .each = each, .pieces = items > 0 ? (int)((items + each - 1) / each) : 0};
}

int64_t nets_cut_rest(const nets_cut *cut) { return cut->items - cut->each * (cut->pieces - 1); }

int nets_pieces(const mm_host_pool *pool) {
    int threads = mm_host_pool_threads(pool);
    return threads == 1 ? 1 : NETS_PIECES_A_THREAD * threads;
}

int64_t nets_places(const mm_host_pool *pool, int64_t pieces) {
    const int threads = mm_host_pool_threads(pool);
    return pieces < threads ? pieces : threads;
}

/* If there are fewer pieces than threads, each piece has a place of its own, since each piece runs once. */
int64_t nets_place(const mm_host_pool *pool, int64_t pieces, int64_t piece, int thread) {
    return pieces < mm_host_pool_threads(pool) ? piece : thread;
}

/* ---------------------------------------------------------------- own loops */

/* The least elements of a range that is worth a thread: some ten microseconds' work. Chosen. */
enum { LEAST_ELEMS = 1 << 14 };

typedef struct range_run {
    nets_cut cut;
    nets_range_fn fn;
    const void *ctx;
} range_run;

static mm_status run_range(void *ctx, int64_t piece, int thread) {
    const range_run *run = ctx;
    (void)thread;
    int64_t from = piece * run->cut.each, to = from + run->cut.each;
    run->fn(run->ctx, from, to < run->cut.items ? to : run->cut.items);
    return MM_OK;
}

void nets_ranges(mm_host_pool *pool, int64_t n, int64_t unit, int64_t item_elems, nets_range_fn fn, const void *ctx) {
    range_run run = {.cut = nets_cut_of(n, nets_pieces(pool), unit, LEAST_ELEMS / item_elems), .fn = fn, .ctx = ctx};
    mm_status never_fails = mm_host_pool_run(pool, run.cut.pieces, run_range, &run);
    (void)never_fails;
}

/* ---------------------------------------------------------------- kernels */

mm_status nets_piecewise_init(nets_piecewise *p, int n) {
    p->pieces = calloc((size_t)n, sizeof *p->pieces);
    if (!p->pieces) return mm_fail(MM_ERR_NOMEM, "no memory for %d pieces of an operation", n);
    p->n_pieces = n;
    return MM_OK;
}

mm_status nets_piecewise_init_cut(nets_piecewise *p, const nets_cut *cut, const nets_piece_arg args[NETS_PIECE_ARGS]) {
    MM_TRY(nets_piecewise_init(p, cut->pieces));
    for (int a = 0; a < NETS_PIECE_ARGS; a++) p->arg[a] = args[a].arg;
    for (int i = 0; i < cut->pieces; i++) {
        nets_piece *piece = &p->pieces[i];
        piece->kernel = i == cut->pieces - 1 && nets_cut_rest(cut) != cut->each;
        for (int a = 0; a < NETS_PIECE_ARGS; a++)
            piece->offset[a] = i * (cut->each * args[a].bytes_an_item + args[a].bytes_a_piece);
    }
    return MM_OK;
}

void nets_piecewise_measure(nets_piecewise *p) {
    for (int k = 0; k < NETS_PIECE_KERNELS; k++)
        p->scratch_bytes = nets_larger(p->scratch_bytes, nets_aligned(p->kernel[k].scratch_bytes));
}

void nets_piecewise_fini(nets_piecewise *p) {
    for (int k = 0; k < NETS_PIECE_KERNELS; k++) nets_dnn_kernel_fini(&p->kernel[k]);
    free(p->pieces);
    *p = (nets_piecewise){0};
}

static nets_cut whole_cut(int64_t items) { return (nets_cut){.items = items, .each = items, .pieces = 1}; }

nets_grid nets_grid_of_rows(nets_cut rows, int64_t columns) { return (nets_grid){rows, whole_cut(columns)}; }
nets_grid nets_grid_of_columns(int64_t rows, nets_cut columns) { return (nets_grid){whole_cut(rows), columns}; }

/* A piece copies its rows of one factor and its columns of the other, in the order in which oneDNN multiplies them. So
 * the copies are fewest if pieces are few and about square. Measured with GPT-2 on two threads, CPU time of a step:
 * two pieces a thread take 0.96 of that of four in bf16, and 0.97 in f32. */
nets_grid nets_grid_of(const mm_host_pool *pool, int64_t rows, int64_t columns) {
    enum { PIECES_A_THREAD = 2 };
    enum { UNIT = 32, LEAST = 64 }; /* a cache line of bf16 numbers; enough for oneDNN's kernels to be fast */
    const int threads = mm_host_pool_threads(pool), pieces = threads == 1 ? 1 : PIECES_A_THREAD * threads;
    nets_grid best = {whole_cut(rows), whole_cut(columns)};
    double least = 0;
    for (int i = 1; i <= pieces; i++) {
        if (pieces % i != 0) continue;
        const nets_grid grid = {nets_cut_of(rows, i, UNIT, LEAST), nets_cut_of(columns, pieces / i, UNIT, LEAST)};
        const int n = grid.rows.pieces * grid.columns.pieces, most = best.rows.pieces * best.columns.pieces;
        const double copied = (double)rows * grid.columns.pieces + (double)columns * grid.rows.pieces;
        if (n < most || (n == most && copied >= least)) continue;
        best = grid;
        least = copied;
    }
    return best;
}

/* Whether piece i is the last of the cut, and smaller than the others. */
static bool is_rest(const nets_cut *cut, int i) { return i == cut->pieces - 1 && nets_cut_rest(cut) != cut->each; }

mm_status nets_piecewise_product(const nets_dnn *dnn, const nets_dnn_product_desc *whole, const nets_grid *grid,
                                 bool own_blocks, nets_piecewise *run) {
    const int64_t factor = whole->half ? sizeof(uint16_t) : sizeof(float);
    const int64_t product = whole->half_y ? sizeof(uint16_t) : sizeof(float);
    nets_dnn_product_desc part = *whole;
    if (part.a_stride == 0) part.a_stride = whole->a_transposed ? whole->rows : whole->inner;
    part.b_stride = whole->b_transposed ? whole->inner : whole->columns;
    part.y_stride = whole->columns;
    const int64_t a_row = factor * (whole->a_transposed ? 1 : part.a_stride);
    const int64_t b_column = factor * (whole->b_transposed ? part.b_stride : 1);
    const int args[NETS_PIECE_ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, whole->bias ? DNNL_ARG_BIAS : 0};
    MM_TRY(nets_piecewise_init(run, grid->rows.pieces * grid->columns.pieces));
    for (int a = 0; a < NETS_PIECE_ARGS; a++) run->arg[a] = args[a];
    for (int i = 0; i < run->n_pieces; i++) {
        const int r = i / grid->columns.pieces, c = i % grid->columns.pieces;
        const int64_t row = r * grid->rows.each, column = c * grid->columns.each;
        const bool last_rows = is_rest(&grid->rows, r), last_columns = is_rest(&grid->columns, c);
        nets_piece *piece = &run->pieces[i];
        *piece = (nets_piece){.kernel = 2 * last_rows + last_columns,
                              .offset = {row * a_row, column * b_column,
                                         own_blocks ? 0 : (row * part.y_stride + column) * product,
                                         column * (int64_t)sizeof(float)}};
        part.rows = last_rows ? nets_cut_rest(&grid->rows) : grid->rows.each;
        part.columns = last_columns ? nets_cut_rest(&grid->columns) : grid->columns.each;
        nets_dnn_kernel *kernel = &run->kernel[piece->kernel];
        if (!nets_dnn_is_made(kernel)) MM_TRY(nets_dnn_product(dnn, &part, kernel));
    }
    nets_piecewise_measure(run);
    return MM_OK;
}

int64_t nets_piecewise_places(const nets_dnn *dnn, const nets_piecewise *p) {
    return nets_places(dnn->pool, p->n_pieces);
}

int64_t nets_piecewise_place(const nets_dnn *dnn, const nets_piecewise *p, int64_t piece, int thread) {
    return nets_place(dnn->pool, p->n_pieces, piece, thread);
}

mm_status nets_piecewise_run_one(const nets_dnn *dnn, nets_piecewise *p, int64_t i, int thread,
                                 void *const at[NETS_PIECE_ARGS], void *scratch) {
    const nets_piece *piece = &p->pieces[i];
    nets_dnn_kernel *kernel = &p->kernel[piece->kernel];
    for (int a = 0; a < NETS_PIECE_ARGS && p->arg[a]; a++)
        MM_TRY(nets_dnn_bind(kernel, thread, p->arg[a], (char *)at[a] + piece->offset[a]));
    return nets_dnn_run(dnn, kernel, thread, scratch);
}

typedef struct piecewise_run {
    const nets_dnn *dnn;
    nets_piecewise *p;
    void *const *at;
    char *scratch;
} piecewise_run;

static mm_status run_piece(void *ctx, int64_t piece, int thread) {
    const piecewise_run *run = ctx;
    char *scratch = run->scratch + nets_piecewise_place(run->dnn, run->p, piece, thread) * run->p->scratch_bytes;
    return nets_piecewise_run_one(run->dnn, run->p, piece, thread, run->at, scratch);
}

mm_status nets_piecewise_run(const nets_dnn *dnn, nets_piecewise *p, void *const at[NETS_PIECE_ARGS], void *scratch) {
    piecewise_run run = {.dnn = dnn, .p = p, .at = at, .scratch = scratch};
    return mm_host_pool_run(dnn->pool, p->n_pieces, run_piece, &run);
}

typedef struct some_run {
    const nets_dnn *dnn;
    nets_piecewise *p;
    const nets_part_args *which;
    const void *a, *b;
    int64_t bytes_a_part;
} some_run;

static mm_status run_some(void *ctx, int64_t k, int thread) {
    const some_run *run = ctx;
    const int64_t i = run->which->first + k * run->which->step;
    if (i >= run->p->n_pieces) return MM_OK;
    /* The piece's offset is that of its rows in the whole product. */
    char *product = (char *)run->which->dw + k * run->bytes_a_part - run->p->pieces[i].offset[2];
    void *const at[NETS_PIECE_ARGS] = {(void *)run->a, (void *)run->b, product};
    char *scratch =
        (char *)run->which->workspace + nets_piecewise_place(run->dnn, run->p, i, thread) * run->p->scratch_bytes;
    return nets_piecewise_run_one(run->dnn, run->p, i, thread, at, scratch);
}

mm_status nets_piecewise_run_some(const nets_dnn *dnn, nets_piecewise *p, const nets_part_args *which, const void *a,
                                  const void *b, int64_t bytes_a_part) {
    some_run run = {dnn, p, which, a, b, bytes_a_part};
    return mm_host_pool_run(dnn->pool, which->n, run_some, &run);
}
