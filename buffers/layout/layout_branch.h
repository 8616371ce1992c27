/* SPDX-License-Identifier: MIT */
/* Private to layout: the branch and bound of the exact search, within one section and one order of its pieces. */
#ifndef BUFFERS_LAYOUT_LAYOUT_BRANCH_H
#define BUFFERS_LAYOUT_LAYOUT_BRANCH_H

#include "buffers/layout/layout_problem.h"

/* A box of the present section. No box of a section is alive together with one of another section. */
typedef struct mm_piece {
    int64_t size;
    int64_t given; /* its offset, if that is given; -1: it is free */
    int64_t load;  /* the most bytes alive at one of its times */
    int32_t first, last;
    int32_t box;  /* index in problem->boxes */
    int32_t kind; /* index of the first free piece that has the same times and size */
    int32_t twin; /* the piece of the same kind that must be placed before it; -1: none */
} mm_piece;

/* A piece's values before a change, to undo it. */
typedef struct mm_branch_change {
    int32_t piece;
    int64_t low, support;
} mm_branch_change;

/* A list of lists of pieces: list i is at[begin[i]] to at[begin[i + 1] - 1]. */
typedef struct mm_piece_lists {
    int32_t *begin, *at;
} mm_piece_lists;

typedef struct mm_branch {
    int64_t height;
    int32_t n, times; /* pieces and times of the section; its times begin at 0 */
    mm_piece *pieces;
    int32_t *rank;        /* per piece: its place in the order, in which ties of offsets are broken */
    mm_piece_lists near;  /* per piece: those that live together with it */
    mm_piece_lists alive; /* per time: those alive at it */
    /* per piece */
    int64_t *support; /* the highest end of placed pieces that it lives together with */
    int64_t *low;     /* lower bound of its offset in the present branch; above `support` if it was passed over */
    int64_t *offset;
    bool *is_placed;
    int32_t *open; /* all pieces; those of a part lie next to each other, the unplaced ones first */
    /* per time */
    int64_t *sizes;    /* sum of the open pieces' sizes */
    int32_t *crossing; /* number of open pieces that live at this time and the next */
    int32_t *witness;  /* a piece alive at this time: the one to which may_fit looks first */
    int64_t *blame;    /* how often a branch ended at this time */
    mm_branch_change *changes;
    size_t n_changes, changes_capacity;
    bool is_full;  /* there is no room for more changes */
    int64_t nodes; /* left for the present search */
} mm_branch;

typedef enum mm_branch_result { MM_BRANCH_FOUND, MM_BRANCH_NONE, MM_BRANCH_STOPPED } mm_branch_result;

/* Opens all pieces: sets sizes, crossing and all that a search needs. */
void mm_branch_open(mm_branch *b);

/* Searches for a placement of the section within `height`, in the order of `rank`, for at most b->nodes nodes; FOUND:
 * `offset` has it. All pieces must be open. */
mm_branch_result mm_branch_search(mm_branch *b);

#endif
