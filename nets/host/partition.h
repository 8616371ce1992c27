/* SPDX-License-Identifier: MIT */
/* How the host's ops are divided among threads. Internal.
 *
 * oneDNN's primitives are made for one thread and run on pieces of a batch, each piece with scratch of its own. Own
 * loops run on ranges. The pieces, and so the order of all sums, depend only on the shape and the number of threads.
 *
 * oneDNN on its own threads (OpenMP) is not faster. Measured with ResNet-50, batch 8, on two cores, in images/s:
 *
 *                       alone         with a codec beside it
 *   OpenMP              8.6 .. 11.2   6.7 .. 7.8
 *   pieces              8.3 .. 10.7   6.2 .. 7.9
 *   one thread          6.3           5.9
 *
 * OpenMP's threads also wait busily, divide the work equally among cores beforehand, belong to the whole process, and
 * are unknown to tsan. */
#ifndef NETS_HOST_PARTITION_H
#define NETS_HOST_PARTITION_H

#include "mm/device/host/host_pool.h"
#include "nets/contract/op_desc.h"
#include "nets/host/onednn.h"

/* A division of items into pieces of `each` items; the last piece has the rest. */
typedef struct nets_cut {
    int64_t items, each;
    int pieces;
} nets_cut;

/* Cuts items into at most `pieces` pieces of at least `least` items. All but the last are multiples of `unit`. */
nets_cut nets_cut_of(int64_t items, int pieces, int64_t unit, int64_t least);
/* Cuts items into pieces of `each` items. */
static inline nets_cut nets_cut_in_parts(int64_t items, int64_t each) {
    return (nets_cut){.items = items, .each = each, .pieces = (int)((items + each - 1) / each)};
}
/* How many items the last piece has. */
int64_t nets_cut_rest(const nets_cut *cut);

/* A division of a matrix into pieces, each of some rows and some columns. Pieces are counted row by row. */
typedef struct nets_grid {
    nets_cut rows, columns;
} nets_grid;

nets_grid nets_grid_of_rows(nets_cut rows, int64_t columns);
nets_grid nets_grid_of_columns(int64_t rows, nets_cut columns);
/* Cuts a product into pieces for the pool's threads, in the shapes that are fastest. */
nets_grid nets_grid_of(const mm_host_pool *pool, int64_t rows, int64_t columns);

/* How many pieces there are for each thread, if there are several threads: a thread that shares its core with others
 * then takes fewer pieces. Chosen. */
enum { NETS_PIECES_A_THREAD = 4 };
int nets_pieces(const mm_host_pool *pool);

/* How many of a run's pieces are computed at a time (places), and the place of a piece on `thread`. */
int64_t nets_places(const mm_host_pool *pool, int64_t pieces);
int64_t nets_place(const mm_host_pool *pool, int64_t pieces, int64_t piece, int thread);

/* ---------------------------------------------------------------- own loops */

typedef void (*nets_range_fn)(const void *ctx, int64_t from, int64_t to);

/* Runs fn over [0, n) in ranges. A range is a multiple of `unit` items, and long enough to be worth a thread if an item
 * has `item_elems` numbers. */
void nets_ranges(mm_host_pool *pool, int64_t n, int64_t unit, int64_t item_elems, nets_range_fn fn, const void *ctx);

/* ---------------------------------------------------------------- kernels */

enum { NETS_PIECE_ARGS = 4, NETS_PIECE_KERNELS = 8 };

/* One run of a kernel. */
typedef struct nets_piece {
    int kernel;                      /* index in nets_piecewise.kernel */
    int64_t offset[NETS_PIECE_ARGS]; /* each argument's, in bytes */
} nets_piece;

/* A computation in pieces: runs of a few kernels that differ only in their sizes. */
typedef struct nets_piecewise {
    int n_pieces;
    nets_piece *pieces;
    nets_dnn_kernel kernel[NETS_PIECE_KERNELS]; /* the unused ones are not made */
    int arg[NETS_PIECE_ARGS];                   /* oneDNN's names of the arguments; 0 ends the list */
    int64_t scratch_bytes;                      /* one piece's; set by nets_piecewise_measure */
} nets_piecewise;

/* An argument. Its memory moves by bytes_an_item for each item, and by bytes_a_piece more for each piece. */
typedef struct nets_piece_arg {
    int arg;
    int64_t bytes_an_item, bytes_a_piece;
} nets_piece_arg;

/* Allocates n pieces, for the caller to fill. */
MM_CHECKED mm_status nets_piecewise_init(nets_piecewise *p, int n);
/* Makes the pieces of a cut. They use kernel[0], for `each` items; a shorter last piece uses kernel[1]. The caller
 * makes the kernels. */
MM_CHECKED mm_status nets_piecewise_init_cut(nets_piecewise *p, const nets_cut *cut,
                                             const nets_piece_arg args[NETS_PIECE_ARGS]);
/* Sets scratch_bytes. Call it when the kernels are made. */
void nets_piecewise_measure(nets_piecewise *p);
void nets_piecewise_fini(nets_piecewise *p);

/* Makes a product in the grid's pieces, with arguments SRC, WEIGHTS, DST, and BIAS. own_blocks: each piece writes to a
 * block of its own, not to its part of the whole. */
MM_CHECKED mm_status nets_piecewise_product(const nets_dnn *dnn, const nets_dnn_product_desc *whole,
                                            const nets_grid *grid, bool own_blocks, nets_piecewise *p);

/* nets_places, nets_place of its pieces. */
int64_t nets_piecewise_places(const nets_dnn *dnn, const nets_piecewise *p);
int64_t nets_piecewise_place(const nets_dnn *dnn, const nets_piecewise *p, int64_t piece, int thread);

/* Runs all pieces. at[i] is the memory of argument arg[i]; `scratch` has scratch_bytes for each place. */
MM_CHECKED mm_status nets_piecewise_run(const nets_dnn *dnn, nets_piecewise *p, void *const at[NETS_PIECE_ARGS],
                                        void *scratch);
/* Runs the pieces of a product that are these parts. The k-th writes its rows of the product at which->dw + k *
 * bytes_a_part; scratch is which->workspace. */
MM_CHECKED mm_status nets_piecewise_run_some(const nets_dnn *dnn, nets_piecewise *p, const nets_part_args *which,
                                             const void *a, const void *b, int64_t bytes_a_part);
/* Runs one piece, from within a run of the pool, with scratch of its own. */
MM_CHECKED mm_status nets_piecewise_run_one(const nets_dnn *dnn, nets_piecewise *p, int64_t piece, int thread,
                                            void *const at[NETS_PIECE_ARGS], void *scratch);

#endif
