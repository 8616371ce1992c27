/* Placement by a skyline over time, after Sekiyama et al., "Profile-guided memory optimization for deep neural
 * networks" (2018): of the lowest stretch of the skyline take the most important box whose life lies within it, and
 * stand it there; where none does, raise the stretch to its lower neighbour.
 *
 *      offset  |  c c c                 b is next: the lowest stretch is times 4 to 7, and only b lives within it
 *              | a a a a     d d d
 *              | a a a a _ _ d d d
 *              +---------------------- time
 *
 * The result depends on the order of importance alone. The search changes that order where it failed: a box for which
 * there is no room below the goal becomes more important ("squeaky wheel"). */
#include "buffers/layout_problem.h"

#include <stdlib.h>
#include <string.h>

/* Times [first, last] at one height. Stretches are kept in the order of time and cover all times. */
typedef struct stretch {
    int32_t first, last;
    int64_t height;
} stretch;

/* What the search for a box looks at, side by side in memory. */
typedef struct entry {
    int32_t first, last; /* last: HOLE once the box is placed */
    int32_t rank;        /* its place in the order */
} entry;

typedef struct beginner {
    int32_t last, rank; /* rank: its place in the order; once it is placed, one behind all */
} beginner;

enum { HOLE = INT32_MAX };

typedef struct skyline {
    const mm_layout_problem *problem;
    int32_t *order; /* boxes by importance */
    entry *entries; /* in the order; without most of those that are placed */
    int32_t n_entries, holes;
    int32_t *entry_of;   /* by place in the order */
    beginner *beginners; /* by box, so by first */
    int32_t *begin;      /* boxes [begin[t], begin[t + 1]) begin at time t */
    stretch *stretches;  /* at most one a time */
    int32_t n_stretches;
    int64_t *offset;
    int64_t height;
    int32_t blocked; /* after a failure: the place in the order of the box without room */
    int64_t work, work_limit;
    uint64_t random;
} skyline;

static mm_status skyline_init(skyline *s, const mm_layout_problem *problem, int64_t work_limit) {
    size_t n = (size_t)problem->n;
    *s = (skyline){.problem = problem, .work_limit = work_limit};
    s->order = malloc(n * sizeof *s->order);
    s->entries = malloc(n * sizeof *s->entries);
    s->entry_of = malloc(n * sizeof *s->entry_of);
    s->beginners = malloc(n * sizeof *s->beginners);
    s->begin = calloc((size_t)problem->times + 1, sizeof *s->begin);
    s->stretches = malloc((size_t)problem->times * sizeof *s->stretches);
    s->offset = malloc(n * sizeof *s->offset);
    if (!s->order || !s->entries || !s->entry_of || !s->beginners || !s->begin || !s->stretches || !s->offset) {
        return mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    }
    for (int32_t i = 0; i < problem->n; i++) s->begin[problem->boxes[i].first + 1]++;
    for (int32_t t = 0; t < problem->times; t++) s->begin[t + 1] += s->begin[t];
    return MM_OK;
}

static void skyline_fini(skyline *s) {
    free(s->order);
    free(s->entries);
    free(s->entry_of);
    free(s->beginners);
    free(s->begin);
    free(s->stretches);
    free(s->offset);
}

/* splitmix64 from a fixed seed: the same placement everywhere. */
static int32_t random_below(skyline *s, int32_t n) {
    uint64_t z = s->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (int32_t)((z ^ z >> 31) % (uint64_t)n);
}

static int32_t lowest_stretch(skyline *s) {
    const stretch *low = s->stretches, *end = low + s->n_stretches;
    int64_t height = low->height;
    for (const stretch *at = low + 1; at < end; at++) {
        if (at->height >= height) continue;
        height = at->height;
        low = at;
    }
    s->work += s->n_stretches;
    return (int32_t)(low - s->stretches);
}

/* The place in the order of the most important box that is not placed and lives within the stretch; n if none does. From
 * the top of the order, but no farther than there are boxes that begin within: then those are the fewer to look at. */
static int32_t most_important(skyline *s, const stretch *within) {
    int32_t n = s->problem->n, first = within->first, last = within->last, looked = 0;
    const beginner *box = &s->beginners[s->begin[first]], *end = &s->beginners[s->begin[last + 1]];
    const entry *e = s->entries, *entries_end = e + s->n_entries;
    for (; e < entries_end && looked < end - box; e++) {
        if (e->last <= last && e->first >= first) {
            s->work += looked + 1;
            return e->rank;
        }
        looked += e->last != HOLE;
    }
    s->work += looked;
    int32_t best = n;
    for (; box < end; box++)
        if (box->last <= last && box->rank < best) best = box->rank;
    return best;
}

static void close_holes(skyline *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_entries; i++) {
        if (s->entries[i].last == HOLE) continue;
        s->entry_of[s->entries[i].rank] = n;
        s->entries[n++] = s->entries[i];
    }
    s->n_entries = n;
    s->holes = 0;
}

/* The box at place `at` is placed. */
static void take_out(skyline *s, int32_t at) {
    s->entries[s->entry_of[at]].last = HOLE;
    s->beginners[s->order[at]].rank = s->problem->n;
    if (++s->holes > s->n_entries / 8) close_holes(s);
}

/* A box stands on stretch `at`, whose rest stays on both sides of it. */
static void stand(skyline *s, int32_t at, const mm_box *box) {
    stretch low = s->stretches[at];
    int32_t before = box->first > low.first, after = box->last < low.last;
    stretch *to = &s->stretches[at];
    memmove(to + 1 + before + after, to + 1, (size_t)(s->n_stretches - at - 1) * sizeof *to);
    s->n_stretches += before + after;
    s->work += (s->n_stretches - at) / 4;
    if (before) *to++ = (stretch){low.first, box->first - 1, low.height};
    *to = (stretch){box->first, box->last, low.height + box->size};
    if (after) to[1] = (stretch){box->last + 1, low.last, low.height};
}

/* Stretch `at` rises to its lower neighbour and joins every neighbour of that height. */
static void raise(skyline *s, int32_t at) {
    int64_t height = INT64_MAX;
    int32_t first = at, last = at;
    if (at > 0) height = s->stretches[at - 1].height;
    if (at + 1 < s->n_stretches && s->stretches[at + 1].height < height) height = s->stretches[at + 1].height;
    if (at > 0 && s->stretches[at - 1].height == height) first--;
    if (at + 1 < s->n_stretches && s->stretches[at + 1].height == height) last++;
    s->stretches[first] = (stretch){s->stretches[first].first, s->stretches[last].last, height};
    memmove(&s->stretches[first + 1], &s->stretches[last + 1], (size_t)(s->n_stretches - last - 1) * sizeof(stretch));
    s->n_stretches -= last - first;
    s->work += (s->n_stretches - first) / 4;
}

/* Places all boxes by s->order below `goal`. If a box finds no room, false and s->blocked; also false, with nothing
 * blocked (-1), when the work is used up. */
static bool place(skyline *s, int64_t goal) {
    int32_t n = s->problem->n;
    for (int32_t i = 0; i < n; i++) {
        const mm_box *box = &s->problem->boxes[s->order[i]];
        s->entries[i] = (entry){box->first, box->last, i};
        s->entry_of[i] = i;
        s->beginners[s->order[i]] = (beginner){box->last, i};
    }
    s->n_entries = n;
    s->holes = 0;
    s->stretches[0] = (stretch){0, s->problem->times - 1, 0};
    s->n_stretches = 1;
    s->height = 0;
    s->blocked = -1;
    s->work += n;
    for (int32_t left = n; left > 0;) {
        if (s->work > s->work_limit) return false;
        int32_t low = lowest_stretch(s), at = most_important(s, &s->stretches[low]);
        if (at == n) {
            raise(s, low);
            continue;
        }
        int32_t box = s->order[at];
        int64_t offset = s->stretches[low].height, end = offset + s->problem->boxes[box].size;
        if (end > goal) { /* and the skyline never sinks */
            s->blocked = at;
            return false;
        }
        s->offset[box] = offset;
        if (end > s->height) s->height = end;
        take_out(s, at);
        stand(s, low, &s->problem->boxes[box]);
        left--;
    }
    return true;
}

static bool done(const skyline *s, const mm_placement *best) {
    return best->height == s->problem->lower_bound || s->work > s->work_limit;
}

static void keep(const skyline *s, mm_placement *best) {
    memcpy(best->offset, s->offset, (size_t)s->problem->n * sizeof *best->offset);
    best->height = s->height;
}

/* The box at place `from` becomes as important as the one at `to` < from, and that one and those between less. */
static void promote(skyline *s, int32_t from, int32_t to) {
    int32_t box = s->order[from];
    memmove(&s->order[to + 1], &s->order[to], (size_t)(from - to) * sizeof *s->order);
    s->order[to] = box;
    s->work += (from - to) / 8;
}

/* From the present order, repairs what fails below a goal somewhere between the lower bound and the best. */
static void search_near(skyline *s, mm_placement *best) {
    enum { REPAIRS = 25 };
    int64_t bound = s->problem->lower_bound, slack = best->height - 1 - bound;
    int64_t goal = bound + slack / 4 * (random_below(s, 2) ? 4 : random_below(s, 4));
    for (int i = 0; i < REPAIRS && !done(s, best); i++) {
        if (goal >= best->height) goal = best->height - 1;
        if (place(s, goal)) {
            keep(s, best);
        } else if (s->blocked > 0) {
            promote(s, s->blocked, random_below(s, 3) ? random_below(s, s->blocked) : 0);
        } else {
            return; /* the most important box already */
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
    for (int order = 0; order < MM_ORDERS && !done(s, best); order++) {
        MM_TRY(mm_layout_order_boxes(s->problem, (mm_layout_order)order, s->order));
        if (place(s, best->height - 1)) keep(s, best);
    }
    for (int round = 0; !done(s, best); round++) {
        MM_TRY(mm_layout_order_boxes(s->problem, MM_ORDER_LIFE, s->order)); /* by far the best to start from */
        if (round > 0) shuffle_a_little(s);
        search_near(s, best);
    }
    return MM_OK;
}

mm_status mm_layout_search(const mm_layout_problem *problem, int64_t work, mm_placement *best) {
    skyline s;
    mm_status status = skyline_init(&s, problem, work);
    if (status == MM_OK) status = search(&s, best);
    skyline_fini(&s);
    return status;
}
