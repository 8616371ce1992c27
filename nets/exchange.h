/* SPDX-License-Identifier: MIT */
/* Optimizer states and gradients that ranks divide (ZeRO: Rajbhandari et al., SC 2020): each rank has a share of every
 * parameter's, updates these weights alone, and then sends them to the others.
 *
 * A parameter's elements, in the device's order, are cut into equal parts, one for each rank; the last one has the
 * rest, too. Every rank declares room for the last part, so that all ranks have the same graph.
 *
 *   elements   0              each           2 each         3 each               elems
 *   rank       |0             |1             |2             |3                   | */
#ifndef NETS_EXCHANGE_H
#define NETS_EXCHANGE_H

#include "mm/core/status.h"

/* What is divided. Behind each backward step, a step adds up the ranks' gradients; each rank gets its share of the sum.
 * States: the share lies in the gradient, the rest of which is void then. Gradients: the shares have a tensor of their
 * own, and a whole gradient exists only between these two steps; of large weights, no more than parts of it
 * (nets/lower/param_parts.h). */
typedef enum nets_divide { NETS_DIVIDE_NONE, NETS_DIVIDE_STATES, NETS_DIVIDE_GRADIENTS, NETS_DIVIDES } nets_divide;

/* Pieces of tensors that are under way at a time through host memory. So the sum of a gradient may arrive during the
 * steps that add up the next so many gradients. Chosen: of 4 MiB each, twice what a communicator has under way. */
enum { NETS_PIECES_UNDER_WAY = 8 };

/* The most elements of a piece of parts (nets/lower/param_parts.h). Chosen: what a communicator adds up at a time. */
enum { NETS_PIECE_MOST = 1 << 20 };

typedef struct nets_share {
    int64_t first, n; /* elements; n may be 0 */
} nets_share;

enum { NETS_SHARE_UNIT = 16 }; /* elements: 64 bytes */

/* The elements of each share but the last: a multiple of `unit`, which is NETS_SHARE_UNIT or a multiple of it. */
static inline int64_t nets_share_each(int64_t elems, int ranks, int64_t unit) { return elems / ranks / unit * unit; }

/* The elements of the last share, which has the rest. */
static inline int64_t nets_share_room(int64_t elems, int ranks, int64_t unit) {
    return elems - (ranks - 1) * nets_share_each(elems, ranks, unit);
}

static inline nets_share nets_share_of(int64_t elems, int ranks, int rank, int64_t unit) {
    const int64_t each = nets_share_each(elems, ranks, unit);
    return (nets_share){rank * each, rank < ranks - 1 ? each : elems - rank * each};
}

/* A tensor in the device's memory. */
typedef struct nets_exchanged {
    enum {
        NETS_SCATTERED, /* f32: this rank's share becomes the ranks' sum; the others are void */
        NETS_GATHERED,  /* each rank's share goes to all */
        NETS_COUNTED,   /* i32: their sum */
    } as;
    void *data;
    int64_t elems; /* of four bytes; shares are of NETS_SHARE_UNIT */
} nets_exchanged;

/* How an executor exchanges what is divided. All ranks make the same calls in the same order. */
typedef struct nets_exchange {
    int64_t most_elems; /* of one `begin` that adds up */
    /* Through host memory. `data` has an equal part for each rank. gathers: each rank's part goes to all; else this
     * rank's part becomes the sum of the ranks', added in the order of ranks, and the other parts are void. `data`
     * belongs to the callee until `wait` has returned for it; `wait` is for the oldest. Called on a thread of the
     * device; begin must not block. */
    void (*begin)(void *ctx, bool gathers, void *data, int64_t elems);
    mm_status (*wait)(void *ctx);
    /* On devices that reach each other's memory: enqueues the exchange of n tensors, in place, on `stream`. */
    mm_status (*enqueue)(void *ctx, const nets_exchanged *tensors, int n, mm_stream *stream);
    /* Collects `bytes` from every rank in all_out, in the order of ranks. Blocks; between iterations. */
    mm_status (*collect)(void *ctx, const void *mine, int64_t bytes, void *all_out);
} nets_exchange;

#endif
