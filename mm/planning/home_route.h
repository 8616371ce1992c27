/* SPDX-License-Identifier: MIT */
/* Route: the order in which persistent tensors move from their homes to other ones, piece by piece, through a small
 * buffer. A piece is taken from its home to the buffer, and put from there to its new home, once nothing else is left
 * in those bytes:
 *
 *     homes before   | a1 a2 | b |  ...                take a1, put a1, take a2, put a2; where pieces wait for each
 *     homes after    | b | a1 a2 |  ...                other in a circle, one stays in the buffer meanwhile
 *
 * Pure: it touches no bytes of tensors. */
#ifndef MM_PLANNING_HOME_ROUTE_H
#define MM_PLANNING_HOME_ROUTE_H

#include "mm/core/plan/plan.h"
#include "mm/core/status.h"

/* Most bytes of a piece. Large enough for the full rate of links and disks (chosen), small beside any budget. */
enum { MM_ROUTE_PIECE_BYTES = 4 << 20 };
/* A buffer of more bytes is worth smaller pieces. Chosen. */
enum { MM_ROUTE_BUFFER_BYTES = 64 << 20 };
/* So much smaller are these: still a MiB, below which links and disks lose much of their rate. Chosen. */
enum { MM_ROUTE_LESS = 4 };

/* A tensor that moves. */
typedef struct mm_route_item {
    mm_place from, to;
    int64_t bytes;
} mm_route_item;

typedef struct mm_route_piece {
    int32_t item;
    int64_t offset, bytes; /* of the item */
    mm_place from, to;     /* of the piece */
    int64_t slot;          /* its offset in the buffer, a multiple of MM_ROUTE_SLOT */
    int32_t over;          /* the first step that puts anything over where it was; INT32_MAX: none does */
} mm_route_piece;

enum { MM_ROUTE_SLOT = 4096 }; /* alignment in the buffer: that of blocks of the disk */

typedef struct mm_route_step {
    int32_t piece;
    bool puts; /* false: takes */
} mm_route_step;

typedef struct mm_route {
    mm_route_piece *pieces;
    mm_route_step *steps; /* each piece is taken once, and put once, later */
    int n_pieces, n_steps;
    int64_t buffer_bytes; /* that is enough for all pieces that are in the buffer at one time */
} mm_route;

/* Finds a route. Homes of before have no byte in common, and those of after have none; they are aligned as
 * mm_memory_align says. piece_bytes: the most of a piece, a multiple of MM_ROUTE_SLOT. Pieces are MM_ROUTE_LESS times
 * smaller if the buffer would take more than most_bytes; it may still take more. Measured with pieces of 4 MiB, in
 * random moves between two or three memories: 1 to 68 MiB for 20 tensors of 90 GiB in all, 30 to 60 MiB for 300 of
 * 1.3 GiB, 190 to 530 MiB for 2000 of 63 GiB. Finding a route of 65,000 pieces takes 0.06 s. MM_ERR_NOMEM. The caller
 * calls mm_route_fini. */
MM_CHECKED mm_status mm_route_init(const mm_route_item *items, int n, int64_t piece_bytes, int64_t most_bytes,
                                   mm_route *route_out);
void mm_route_fini(mm_route *route);

#endif
