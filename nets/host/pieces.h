/* How the host's ops are shared out among threads. Internal.
 *
 * oneDNN's primitives are made for one thread and run on pieces of a batch, each with scratch of its own; own loops run
 * on ranges. Which pieces there are hangs on the shape and the number of threads alone, and so do all sums.
 *
 * oneDNN on threads of its own (OpenMP) is not faster: ResNet-50, batch 8, on two cores, 8.6 to 11.2 images/s, with a
 * codec beside it 6.7 to 7.8; in pieces 8.3 to 10.7, and 6.2 to 7.9 (one thread: 6.3 and 5.9). But its threads wait
 * busily, fix the share of each core beforehand, and are the process's, not ours; and tsan does not know them. */
#ifndef NETS_HOST_PIECES_H
#define NETS_HOST_PIECES_H

#include "mm/device/host_pool.h"
#include "nets/host/onednn.h"

/* Runs of `each` items and a last one of the rest. */
typedef struct nets_cut {
    int64_t items, each;
    int pieces;
} nets_cut;

/* About `pieces` of at least `least` items, as multiples of `unit` (but the last). One piece: all items. */
nets_cut nets_cut_of(int64_t items, int pieces, int64_t unit, int64_t least);
/* Of the last. */
int64_t nets_cut_rest(const nets_cut *cut);

/* More pieces than threads, where nothing is lost by it: a thread whose core is used by others too takes fewer. */
enum { NETS_PIECES_A_THREAD = 4 };
int nets_pieces(const mm_host_pool *pool);

/* ---------------------------------------------------------------- own loops */

typedef void (*nets_range_fn)(const void *ctx, int64_t from, int64_t to);

/* fn over [0, n), in ranges that are multiples of `unit` items; of so many that a range is worth a thread if an item is
 * `item_elems` numbers. */
void nets_ranges(mm_host_pool *pool, int64_t n, int64_t unit, int64_t item_elems, nets_range_fn fn, const void *ctx);

/* ---------------------------------------------------------------- kernels */

enum { NETS_PIECE_ARGS = 3, NETS_PIECE_KERNELS = 8 };

/* One of a kernel's runs. */
typedef struct nets_piece {
    int kernel;                      /* which of those below */
    int64_t offset[NETS_PIECE_ARGS]; /* of each argument, in bytes */
} nets_piece;

/* A computation in pieces: the runs of a few kernels, which differ in their sizes alone. */
typedef struct nets_piecewise {
    int n_pieces;
    nets_piece *pieces;
    nets_dnn_kernel kernel[NETS_PIECE_KERNELS]; /* the unused ones have no primitive */
    int arg[NETS_PIECE_ARGS];                   /* oneDNN's names; 0: no further one */
    int64_t scratch_bytes;                      /* of one piece; nets_piecewise_measure */
} nets_piecewise;

/* What an argument of a cut moves by from item to item, or from piece to piece. */
typedef struct nets_piece_arg {
    int arg;
    int64_t bytes_an_item, bytes_a_piece;
} nets_piece_arg;

/* Room for n pieces. */
MM_CHECKED mm_status nets_piecewise_init(nets_piecewise *p, int n);
/* Those of a cut, of kernel[0] for `each` items and, if the rest is less, of kernel[1] for that. The kernels are the
 * caller's to make. */
MM_CHECKED mm_status nets_piecewise_init_cut(nets_piecewise *p, const nets_cut *cut,
                                             const nets_piece_arg args[NETS_PIECE_ARGS]);
/* After the kernels were made. */
void nets_piecewise_measure(nets_piecewise *p);
void nets_piecewise_fini(nets_piecewise *p);

/* How many of its pieces run at a time, and which of so many places is a piece's. */
int nets_piecewise_places(const nets_dnn *dnn, const nets_piecewise *p);
int64_t nets_piecewise_place(const nets_dnn *dnn, const nets_piecewise *p, int64_t piece, int thread);

/* Runs all pieces; at[i] is where the argument arg[i] begins, `scratch` has scratch_bytes for each place. */
MM_CHECKED mm_status nets_piecewise_run(const nets_dnn *dnn, nets_piecewise *p, void *const at[NETS_PIECE_ARGS],
                                        void *scratch);
/* One of them, within a run of the pool; `scratch` of its own. */
MM_CHECKED mm_status nets_piecewise_run_one(const nets_dnn *dnn, nets_piecewise *p, int64_t piece, int thread,
                                            void *const at[NETS_PIECE_ARGS], void *scratch);

#endif
