/* SPDX-License-Identifier: MIT */
/* Placement by a skyline over time, after Sekiyama et al., "Profile-guided memory optimization for deep neural
 * networks" (2018). Each round takes the lowest stretch of the skyline, and places the most important box whose life
 * lies within it. If no box does, the stretch rises to its lower neighbour.
 *
 *      offset  |  c c c                 b is next: the lowest stretch is times 4 to 7, and only b lives within it
 *              | a a a a     d d d
 *              | a a a a _ _ d d d
 *              +---------------------- time
 *
 * The result depends on the order of importance alone. The search changes that order: a box that found no room below
 * the goal becomes more important ("squeaky wheel" optimisation). */
#include "buffers/layout/layout_problem.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/splitmix.h"

/* A stretch of the skyline: times [first, last] of one height, stored at index `first`. Together, stretches cover all
 * times. */
typedef struct stretch {
    int32_t last;
    int32_t before; /* `first` of the stretch before it; -1: none */
} stretch;

/* Boxes are looked through in blocks, and in a block STRIDE at a time, which compilers turn into vector instructions.
 * If at most FEW boxes, or a FEW_SHARE of all, begin in a stretch, only these are looked through. All are chosen for
 * time. */
enum { NOBODY = -1, BLOCK = 64, STRIDE = 16, FEW = 64, FEW_SHARE = 16 };
#define NO_STRETCH INT64_MAX

typedef struct skyline {
    const mm_layout_problem *problem;
    int32_t *order;        /* boxes by importance; a box's place in it is its rank */
    int32_t *by_life;      /* likewise, in MM_ORDER_LIFE */
    int32_t *rank, *ends;  /* by box: its rank, INT32_MAX if it is placed; its last time; then STRIDE times INT32_MAX */
    int32_t *begin;        /* boxes begin[t] to begin[t + 1] - 1 begin at time t */
    int32_t *first, *last; /* by rank, in whole blocks: lives of the boxes; first NOBODY: placed, or there is none */
    int32_t *unplaced;     /* per block: number of boxes */
    int32_t *shortest;     /* per block: no box of it has a shorter life */
    int32_t blocks, open;  /* number of blocks; the first that has an unplaced box */
    stretch *stretches;    /* by first time */
    int64_t *heights;      /* a tree of minima: leaf time_leaves + t is the height of the stretch that begins at t */
    int32_t time_leaves;
    int64_t *offset;
    int64_t height;
    int32_t blocked;          /* after a failure: rank of the box that found no room */
    int64_t work, work_limit; /* boxes placed and stretches raised */
    int64_t enough;           /* a height that needs no lower one */
    uint64_t random;
} skyline;

static int32_t leaves_for(int32_t n) {
    int32_t leaves = 1;
    while (leaves < n) leaves *= 2;
    return leaves;
}

static mm_status skyline_init(skyline *s, const mm_layout_problem *problem, int64_t work_limit) {
    size_t n = (size_t)problem->n;
    *s = (skyline){.problem = problem, .work_limit = work_limit};
    s->blocks = (problem->n + BLOCK - 1) / BLOCK;
    s->time_leaves = leaves_for(problem->times);
    s->order = malloc(n * sizeof *s->order);
    s->by_life = malloc(n * sizeof *s->by_life);
    s->rank = malloc((n + STRIDE) * sizeof *s->rank);
    s->ends = malloc((n + STRIDE) * sizeof *s->ends);
    s->begin = calloc((size_t)problem->times + 1, sizeof *s->begin);
    s->first = malloc((size_t)s->blocks * BLOCK * sizeof *s->first);
    s->last = malloc((size_t)s->blocks * BLOCK * sizeof *s->last);
    s->unplaced = malloc((size_t)s->blocks * sizeof *s->unplaced);
    s->shortest = malloc((size_t)s->blocks * sizeof *s->shortest);
    s->stretches = malloc((size_t)problem->times * sizeof *s->stretches);
    s->heights = malloc(2 * (size_t)s->time_leaves * sizeof *s->heights);
    s->offset = malloc(n * sizeof *s->offset);
    if (!s->order || !s->by_life || !s->rank || !s->ends || !s->begin || !s->first || !s->last || !s->unplaced ||
        !s->shortest || !s->stretches || !s->heights || !s->offset)
        return mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    for (int32_t i = 0; i < problem->n; i++) {
        s->begin[problem->boxes[i].first + 1]++;
        s->ends[i] = problem->boxes[i].last;
    }
    for (size_t i = n; i < n + STRIDE; i++) s->rank[i] = s->ends[i] = INT32_MAX;
    for (int32_t t = 0; t < problem->times; t++) s->begin[t + 1] += s->begin[t];
    return MM_OK;
}

static void skyline_fini(skyline *s) {
    free(s->order);
    free(s->by_life);
    free(s->rank);
    free(s->ends);
    free(s->begin);
    free(s->first);
    free(s->last);
    free(s->unplaced);
    free(s->shortest);
    free(s->stretches);
    free(s->heights);
    free(s->offset);
}

/* From a fixed seed: the same placement everywhere. */
static int32_t random_below(skyline *s, int32_t n) { return (int32_t)(mm_random_next(&s->random) % (uint64_t)n); }

/* ---------------------------------------------------------------- the skyline */

static int64_t height_of(const skyline *s, int32_t first) { return s->heights[s->time_leaves + first]; }

/* height NO_STRETCH: no stretch begins at `first` any more. */
static void set_height(skyline *s, int32_t first, int64_t height) {
    int64_t *heights = s->heights;
    int32_t i = s->time_leaves + first;
    for (heights[i] = height; i > 1; i /= 2) {
        int64_t lower = heights[i] < heights[i ^ 1] ? heights[i] : heights[i ^ 1];
        if (heights[i / 2] == lower) break;
        heights[i / 2] = lower;
    }
}

/* `first` of the lowest stretch; of equals the earliest. */
static int32_t lowest_stretch(const skyline *s) {
    int32_t i = 1;
    while (i < s->time_leaves) i = 2 * i + (s->heights[2 * i] > s->heights[2 * i + 1]);
    return i - s->time_leaves;
}

static void set_stretch(skyline *s, int32_t first, int32_t last, int32_t before) {
    s->stretches[first] = (stretch){last, before};
    if (last + 1 < s->problem->times) s->stretches[last + 1].before = first;
}

static void level(skyline *s) {
    for (int32_t i = 0; i < 2 * s->time_leaves; i++) s->heights[i] = NO_STRETCH;
    set_stretch(s, 0, s->problem->times - 1, -1);
    set_height(s, 0, 0);
}

/* Places a box on the lowest stretch, which is at `first`. What remains of it on either side keeps its height. Returns
 * `first` of the earlier remainder, which is the lowest stretch then; -1: nothing remains. */
static int32_t stand(skyline *s, int32_t first, const mm_box *box) {
    const stretch low = s->stretches[first];
    const int64_t height = height_of(s, first);
    if (box->last < low.last) {
        set_stretch(s, box->last + 1, low.last, box->first);
        set_height(s, box->last + 1, height);
    }
    set_stretch(s, box->first, box->last, box->first > first ? first : low.before);
    set_height(s, box->first, height + box->size);
    if (box->first > first) set_stretch(s, first, box->first - 1, low.before);
    return box->first > first ? first : box->last < low.last ? box->last + 1 : -1;
}

/* The stretch at `first` rises to its lower neighbour and joins every neighbour of that height. */
static void raise(skyline *s, int32_t first) {
    const stretch low = s->stretches[first];
    const int32_t after = low.last + 1;
    int64_t left = low.before >= 0 ? height_of(s, low.before) : INT64_MAX;
    int64_t right = after < s->problem->times ? height_of(s, after) : INT64_MAX;
    int64_t height = left < right ? left : right;
    int32_t last = low.last, from = first, before = low.before;
    if (right == height) {
        last = s->stretches[after].last;
        set_height(s, after, NO_STRETCH);
    }
    if (left == height) {
        from = before;
        before = s->stretches[from].before;
    }
    set_height(s, first, from == first ? height : NO_STRETCH);
    set_stretch(s, from, last, before);
}

/* ---------------------------------------------------------------- boxes that are not placed yet */

static void line_up(skyline *s) {
    for (int32_t rank = 0; rank < s->problem->n; rank++) {
        const mm_box *box = &s->problem->boxes[s->order[rank]];
        s->first[rank] = box->first;
        s->last[rank] = box->last;
        s->rank[s->order[rank]] = rank;
        int32_t *shortest = &s->shortest[rank / BLOCK];
        if (rank % BLOCK == 0 || box->last - box->first < *shortest) *shortest = box->last - box->first;
    }
    for (int32_t rank = s->problem->n; rank < s->blocks * BLOCK; rank++) s->first[rank] = s->last[rank] = NOBODY;
    for (int32_t block = 0; block < s->blocks; block++) s->unplaced[block] = BLOCK;
    s->unplaced[s->blocks - 1] -= s->blocks * BLOCK - s->problem->n;
    s->open = 0;
}

static void take_out(skyline *s, int32_t rank) {
    s->first[rank] = NOBODY;
    s->rank[s->order[rank]] = INT32_MAX;
    s->unplaced[rank / BLOCK]--;
    while (s->open < s->blocks && s->unplaced[s->open] == 0) s->open++;
}

/* The first of a block's boxes that lives within [from, end]; NOBODY: none does. */
static int32_t first_within(const int32_t *first, const int32_t *last, int32_t from, int32_t end) {
    for (int32_t i = 0; i < BLOCK; i += STRIDE) {
        int32_t any = 0;
        for (int32_t k = 0; k < STRIDE; k++) any |= (first[i + k] >= from) & (last[i + k] <= end);
        if (!any) continue;
        while (first[i] < from || last[i] > end) i++;
        return i;
    }
    return NOBODY;
}

/* The least rank of n boxes that end by `end`; INT32_MAX: there is none. Looks at up to STRIDE - 1 boxes beyond the n:
 * they begin after `end`, and so end after it. */
static int32_t least_rank(const int32_t *rank, const int32_t *ends, int32_t n, int32_t end) {
    int32_t lane[STRIDE], least = INT32_MAX;
    for (int32_t k = 0; k < STRIDE; k++) lane[k] = INT32_MAX;
    for (int32_t i = 0; i < n; i += STRIDE)
        for (int32_t k = 0; k < STRIDE; k++) {
            const int32_t at = rank[i + k] | (-(ends[i + k] > end) & INT32_MAX);
            lane[k] = at < lane[k] ? at : lane[k];
        }
    for (int32_t k = 0; k < STRIDE; k++) least = lane[k] < least ? lane[k] : least;
    return least;
}

/* Rank of the most important unplaced box that lives within the stretch at `from`; NOBODY: none does. Looks through
 * the boxes that begin there, if they are few; else through all, the most important first. */
static int32_t most_important(const skyline *s, int32_t from) {
    const int32_t end = s->stretches[from].last, begin = s->begin[from], n = s->begin[end + 1] - begin;
    if (n <= FEW || n <= s->problem->n / FEW_SHARE) {
        const int32_t least = least_rank(s->rank + begin, s->ends + begin, n, end);
        return least < INT32_MAX ? least : NOBODY;
    }
    for (int32_t block = s->open; block < s->blocks; block++) {
        if (s->unplaced[block] == 0 || s->shortest[block] > end - from) continue;
        const int32_t i = first_within(s->first + block * BLOCK, s->last + block * BLOCK, from, end);
        if (i != NOBODY) return block * BLOCK + i;
    }
    return NOBODY;
}

/* ---------------------------------------------------------------- placing along the skyline */

/* Places all boxes below `goal`, by importance. If it returns false, s->blocked is the rank of the box that found no
 * room, or -1 if the work limit is reached. */
static bool place(skyline *s, int64_t goal) {
    line_up(s);
    level(s);
    s->height = 0;
    s->blocked = -1;
    int32_t low = 0; /* the lowest stretch; -1: it must be looked for */
    for (int32_t left = s->problem->n; left > 0;) {
        if (s->work++ > s->work_limit) return false;
        if (low < 0) low = lowest_stretch(s);
        const int32_t at = most_important(s, low);
        if (at == NOBODY) {
            raise(s, low);
            low = -1;
            continue;
        }
        int32_t box = s->order[at];
        int64_t offset = height_of(s, low), end = offset + s->problem->boxes[box].size;
        if (end > goal) { /* no later attempt can be lower: the skyline never sinks */
            s->blocked = at;
            return false;
        }
        s->offset[box] = offset;
        if (end > s->height) s->height = end;
        take_out(s, at);
        low = stand(s, low, &s->problem->boxes[box]);
        left--;
    }
    return true;
}

static bool done(const skyline *s, const mm_placement *best) {
    return best->height <= s->enough || s->work > s->work_limit;
}

static void keep(const skyline *s, mm_placement *best) {
    memcpy(best->offset, s->offset, (size_t)s->problem->n * sizeof *best->offset);
    best->height = s->height;
}

/* Moves the box at place `from` of the order to place `to` < from; those from `to` on move down by one. */
static void promote(skyline *s, int32_t from, int32_t to) {
    int32_t box = s->order[from];
    memmove(&s->order[to + 1], &s->order[to], (size_t)(from - to) * sizeof *s->order);
    s->order[to] = box;
}

/* Searches from the present order: sets a goal between what is enough and the best height, and promotes boxes that
 * block it. REPAIRS is chosen, not tuned: the work limit bounds the search anyway. */
static void search_near(skyline *s, mm_placement *best) {
    enum { REPAIRS = 25 };
    int64_t bound = s->enough, slack = best->height - 1 - bound;
    int64_t goal = bound + slack / 4 * (random_below(s, 2) ? 4 : random_below(s, 4));
    for (int i = 0; i < REPAIRS && !done(s, best); i++) {
        if (goal >= best->height) goal = best->height - 1;
        if (place(s, goal)) {
            keep(s, best);
        } else if (s->blocked > 0) {
            promote(s, s->blocked, random_below(s, 3) ? random_below(s, s->blocked) : 0);
        } else {
            return; /* the most important box has no room, or the work is used up */
        }
    }
}

static void shuffle_a_little(skyline *s) {
    int32_t n = s->problem->n;
    for (int32_t i = random_below(s, 2 + n / 16); i >= 0; i--) {
        int32_t from = random_below(s, n);
        if (from > 0) promote(s, from, random_below(s, from));
    }
}

static mm_status search(skyline *s, mm_placement *best) {
    for (int order = 0; order < MM_ORDERS && (order == 0 || !done(s, best)); order++) {
        MM_TRY(mm_layout_order_boxes(s->problem, (mm_layout_order)order, s->order));
        if (order == MM_ORDER_LIFE) memcpy(s->by_life, s->order, (size_t)s->problem->n * sizeof *s->order);
        const int64_t first = best->height > s->enough ? best->height : s->enough;
        if (place(s, order == 0 ? first : best->height - 1)) keep(s, best);
    }
    for (int round = 0; !done(s, best); round++) {
        memcpy(s->order, s->by_life, (size_t)s->problem->n * sizeof *s->order); /* by far the best to start from */
        if (round > 0) shuffle_a_little(s);
        search_near(s, best);
    }
    return MM_OK;
}

mm_status mm_layout_search(const mm_layout_problem *problem, int64_t work, int64_t enough, mm_placement *best) {
    skyline s;
    mm_status status = skyline_init(&s, problem, work);
    s.enough = enough;
    if (status == MM_OK) status = search(&s, best);
    skyline_fini(&s);
    return status;
}
