/* SPDX-License-Identifier: MIT */
/* Exact placement within a given height: branch and bound, for items that a heuristic does not fit into it. MiniMalloc
 * (Moffitt, ASPLOS 2023) and its sources have canonical placements, the bound by the sizes of the boxes alive at one
 * time, dominated places, and independent parts solved separately. Added here are the bound for boxes that were passed
 * over, the witnesses (may_fit), given offsets, and what layout_exact.c adds.
 *
 * Any placement can be pushed down until each free box stands on another one or on the ground. So it is enough to place
 * boxes in order of offset (ties by rank), each on its support: the highest end of the placed boxes that are alive
 * together with it. A branch either places the next box there, or passes over it. A box that was passed over must stand
 * on a box that is still open (not placed), so it is no lower than the lowest possible end of an open box that is alive
 * together with it. A box with a given offset is placed there when its turn comes, and cannot be passed over. A branch
 * ends when a box stands in the place of a given one, or when at some time
 *
 *      the lowest open box's offset + sizes of all open boxes > height */
#include "buffers/layout/layout_branch.h"

/* Pieces open[begin] to open[end - 1]: all open pieces that live between the times `from` and `to`. */
typedef struct part {
    int32_t begin, end;
    int32_t from, to;
} part;

/* Pieces are placed in ascending order of (offset, rank). */
typedef struct place {
    int64_t offset;
    int32_t rank, piece;
} place;

/* ---------------------------------------------------------------- pieces */

static void set_low(mm_branch *b, int32_t p, int64_t low, int64_t support) {
    b->changes[b->n_changes++] = (mm_branch_change){p, b->low[p], b->support[p]};
    b->low[p] = low;
    b->support[p] = support;
}

static void undo_changes(mm_branch *b, size_t mark) {
    while (b->n_changes > mark) {
        const mm_branch_change *c = &b->changes[--b->n_changes];
        b->low[c->piece] = c->low;
        b->support[c->piece] = c->support;
    }
}

/* Counts the piece as open (sign 1), or as open no longer (sign -1). Returns true if no open piece crosses one of its
 * times any more, so that the part can be split there. */
static bool count_open(mm_branch *b, const mm_piece *p, int sign) {
    bool apart = false;
    for (int32_t t = p->first; t <= p->last; t++) b->sizes[t] += sign * p->size;
    for (int32_t t = p->first; t < p->last; t++) apart |= (b->crossing[t] += sign) == 0;
    return apart;
}

void mm_branch_open(mm_branch *b) {
    for (int32_t t = 0; t < b->times; t++) {
        b->sizes[t] = b->crossing[t] = 0;
        b->witness[t] = b->alive.at[b->alive.begin[t]];
    }
    for (int32_t i = 0; i < b->n; i++) {
        b->open[i] = i;
        b->support[i] = 0;
        b->low[i] = b->pieces[i].given > 0 ? b->pieces[i].given : 0;
        b->is_placed[i] = false;
        (void)count_open(b, &b->pieces[i], 1);
    }
    b->n_changes = 0;
}

/* ---------------------------------------------------------------- bounds */

static int32_t find_witness(const mm_branch *b, int32_t time, int64_t latest) {
    for (int32_t i = b->alive.begin[time]; i < b->alive.begin[time + 1]; i++)
        if (b->low[b->alive.at[i]] <= latest && !b->is_placed[b->alive.at[i]]) return b->alive.at[i];
    return -1;
}

/* Checks the bound at the top of this file at the times `from` to `to`. No open piece can lie below `floor`. A time may
 * fit if one open piece alive then, its witness, can lie low enough. */
static bool may_fit(mm_branch *b, int32_t from, int32_t to, int64_t floor) {
    for (int32_t t = from; t <= to; t++) {
        if (b->sizes[t] == 0) continue;
        const int64_t latest = b->height - b->sizes[t];
        int32_t witness = b->witness[t];
        if (floor <= latest && !b->is_placed[witness] && b->low[witness] <= latest) continue;
        witness = floor <= latest ? find_witness(b, t, latest) : -1;
        if (witness < 0) {
            b->blame[t]++;
            return false;
        }
        b->witness[t] = witness;
    }
    return true;
}

/* The next piece must be placed below this offset. If it were placed higher, another open piece would fit wholly
 * underneath, or a given one would have been passed over, or the open pieces of some time would not fit below the
 * height any more. */
static int64_t ceiling_of(const mm_branch *b, const part *p) {
    int64_t ceiling = INT64_MAX;
    for (int32_t i = p->begin; i < p->end; i++) {
        const mm_piece *open = &b->pieces[b->open[i]];
        const int64_t top = open->given >= 0 ? open->given + 1 : b->support[b->open[i]] + open->size;
        if (top < ceiling) ceiling = top;
    }
    for (int32_t t = p->from; t <= p->to; t++)
        if (b->sizes[t] > 0 && b->height - b->sizes[t] < ceiling) ceiling = b->height - b->sizes[t] + 1;
    return ceiling;
}

/* ---------------------------------------------------------------- the search */

/* Finds the first place after `since` and below `ceiling`, and moves its piece to the part's end. Returns false if
 * there is none. */
static bool next_place(mm_branch *b, const part *p, int64_t ceiling, place *since) {
    place next = {ceiling, -1, -1};
    int32_t at = -1;
    for (int32_t i = p->begin; i < p->end; i++) {
        const int32_t open = b->open[i], rank = b->rank[open], twin = b->pieces[open].twin;
        const int64_t given = b->pieces[open].given, offset = given >= 0 ? given : b->support[open];
        if (offset > next.offset || (offset == next.offset && rank > next.rank)) continue;
        if (offset < since->offset || (offset == since->offset && rank <= since->rank)) continue;
        if (b->low[open] > offset || (twin >= 0 && !b->is_placed[twin])) continue;
        next = (place){offset, rank, open};
        at = i;
    }
    if (at < 0) return false;
    b->open[at] = b->open[p->end - 1];
    b->open[p->end - 1] = next.piece;
    *since = next;
    return true;
}

static mm_branch_result search(mm_branch *b, const part *p, place since);

/* Splits the part at the times that no open piece crosses, and solves the pieces in between one after the other. All
 * times that no open piece crosses lie from `first` to `last` - 1, or are ends of the part. */
static mm_branch_result search_parts(mm_branch *b, const part *p, int32_t first, int32_t last, place since) {
    part next = {p->begin, p->begin, p->from, 0};
    for (int32_t t = first; t <= last; t++) {
        if (t < last && b->crossing[t] > 0) continue;
        next.to = t < last ? t : p->to;
        for (int32_t i = next.end; i < p->end; i++) {
            const int32_t open = b->open[i];
            if (b->pieces[open].last > next.to) continue;
            b->open[i] = b->open[next.end];
            b->open[next.end++] = open;
        }
        const mm_branch_result result = search(b, &next, since);
        if (result != MM_BRANCH_FOUND) return result;
        next = (part){next.end, next.end, next.to + 1, 0};
    }
    return MM_BRANCH_FOUND;
}

/* Raises the supports of the open pieces that live together with one whose end is `top`. Returns false if it lies in
 * the place of a given one. */
static bool raise_supports(mm_branch *b, int32_t placed, int64_t top) {
    for (int32_t i = b->near.begin[placed]; i < b->near.begin[placed + 1]; i++) {
        const int32_t open = b->near.at[i];
        if (b->is_placed[open] || b->support[open] >= top) continue;
        if (b->pieces[open].given >= 0 && b->pieces[open].given < top) return false;
        set_low(b, open, b->low[open] > top ? b->low[open] : top, top);
    }
    return true;
}

/* Places `at`, the last piece of the part, and searches on with the others. */
static mm_branch_result search_with(mm_branch *b, const part *p, place at) {
    const mm_piece *placed = &b->pieces[at.piece];
    const size_t mark = b->n_changes;
    const part rest = {p->begin, p->end - 1, p->from, p->to};
    mm_branch_result result = MM_BRANCH_NONE;
    b->is_placed[at.piece] = true;
    b->offset[at.piece] = at.offset;
    if (raise_supports(b, at.piece, at.offset + placed->size)) {
        const bool apart = count_open(b, placed, -1);
        if (may_fit(b, rest.from, rest.to, at.offset))
            result = apart ? search_parts(b, &rest, placed->first, placed->last, at) : search(b, &rest, at);
        (void)count_open(b, placed, 1);
    }
    undo_changes(b, mark);
    b->is_placed[at.piece] = false;
    return result;
}

/* Passes over `at`, the last piece of the part. Raises the lower bound of its offset. Returns false if no placement is
 * left. */
static bool pass_over(mm_branch *b, place at) {
    const mm_piece *passed = &b->pieces[at.piece];
    int64_t low = INT64_MAX;
    if (passed->given >= 0) return false;
    for (int32_t i = b->near.begin[at.piece]; i < b->near.begin[at.piece + 1]; i++) {
        const int32_t open = b->near.at[i];
        if (b->is_placed[open]) continue;
        const int64_t top = (b->low[open] > at.offset ? b->low[open] : at.offset) + b->pieces[open].size;
        if (top < low) low = top;
    }
    if (low == INT64_MAX) return false;
    set_low(b, at.piece, low, at.offset);
    return may_fit(b, passed->first, passed->last, at.offset);
}

/* Tries to place all pieces of the part after `since`. Restores everything but the offsets found and the order within
 * the part. If it is STOPPED, the bounds that pass_over raised remain. */
static mm_branch_result search(mm_branch *b, const part *p, place since) {
    const size_t mark = b->n_changes;
    const int64_t ceiling = ceiling_of(b, p);
    mm_branch_result result = p->begin == p->end ? MM_BRANCH_FOUND : MM_BRANCH_NONE;
    while (result == MM_BRANCH_NONE && next_place(b, p, ceiling, &since)) {
        b->is_full |= b->n_changes + (size_t)(p->end - p->begin) > b->changes_capacity;
        if (b->nodes <= 0 || b->is_full) return MM_BRANCH_STOPPED;
        b->nodes--;
        result = search_with(b, p, since);
        if (result == MM_BRANCH_NONE && !pass_over(b, since)) break;
    }
    if (result != MM_BRANCH_STOPPED) undo_changes(b, mark);
    return result;
}

mm_branch_result mm_branch_search(mm_branch *b) {
    const part all = {0, b->n, 0, b->times - 1};
    return may_fit(b, 0, b->times - 1, 0) ? search(b, &all, (place){0, -1, -1}) : MM_BRANCH_NONE;
}
