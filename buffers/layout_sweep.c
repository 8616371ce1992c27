/* Placement by a simulated allocator: time runs over the boxes, each is given room when its life begins. O(n log n) and
 * a walk over the free spans for each box; few spans are free where lives are nested, as a stash's are. */
#include "buffers/layout_problem.h"
#include "buffers/ranges.h"

#include <stdlib.h>
#include <string.h>

/* One allocator. */
typedef struct sweep_rule {
    bool backward; /* from the last time to the first */
    mm_fit fit;
    int32_t long_life; /* boxes alive for fewer times are placed from above; 0: none is */
} sweep_rule;

typedef struct sweep {
    const mm_layout_problem *problem;
    int32_t *by_begin, *by_end; /* boxes in the order in which their lives begin and end, in the sweep's direction */
    int32_t *from, *key, *count; /* for sorting */
    int64_t *offset;
    mm_ranges ranges;
    int64_t work; /* boxes and spans looked at */
} sweep;

static mm_status sweep_init(sweep *s, const mm_layout_problem *problem) {
    size_t n = (size_t)problem->n;
    *s = (sweep){.problem = problem};
    s->by_begin = malloc(n * sizeof *s->by_begin);
    s->by_end = malloc(n * sizeof *s->by_end);
    s->from = malloc(n * sizeof *s->from);
    s->key = malloc(n * sizeof *s->key);
    s->count = malloc(((size_t)problem->times + 1) * sizeof *s->count);
    s->offset = malloc(n * sizeof *s->offset);
    if (!s->by_begin || !s->by_end || !s->from || !s->key || !s->count || !s->offset) {
        return mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    }
    MM_TRY(mm_ranges_init(&s->ranges, 0, 0));
    return mm_ranges_reserve(&s->ranges, n + 2);
}

static void sweep_fini(sweep *s) {
    free(s->by_begin);
    free(s->by_end);
    free(s->from);
    free(s->key);
    free(s->count);
    free(s->offset);
    mm_ranges_fini(&s->ranges);
}

/* When a box's life begins or ends, as the sweep sees time. */
static int32_t begin_time(const sweep *s, bool backward, int32_t box) {
    const mm_box *b = &s->problem->boxes[box];
    return backward ? s->problem->times - 1 - b->last : b->first;
}

static int32_t end_time(const sweep *s, bool backward, int32_t box) {
    const mm_box *b = &s->problem->boxes[box];
    return backward ? s->problem->times - 1 - b->first : b->last;
}

/* Stable counting sort of the boxes, taken in the order s->from, by s->key. */
static void sort_by_key(sweep *s, int32_t *order_out) {
    int32_t n = s->problem->n, times = s->problem->times;
    memset(s->count, 0, ((size_t)times + 1) * sizeof *s->count);
    for (int32_t i = 0; i < n; i++) s->count[s->key[i] + 1]++;
    for (int32_t t = 0; t < times; t++) s->count[t + 1] += s->count[t];
    for (int32_t i = 0; i < n; i++) order_out[s->count[s->key[s->from[i]]]++] = s->from[i];
}

/* The boxes as a sweep meets them; those that begin together in the order of `preference`. */
static void sort_for(sweep *s, bool backward, mm_layout_order preference) {
    mm_layout_order_boxes(s->problem, preference, s->from);
    for (int32_t i = 0; i < s->problem->n; i++) s->key[i] = begin_time(s, backward, i);
    sort_by_key(s, s->by_begin);
    for (int32_t i = 0; i < s->problem->n; i++) s->key[i] = end_time(s, backward, i);
    sort_by_key(s, s->by_end);
}

static int64_t take(sweep *s, const sweep_rule *rule, int32_t box) {
    const mm_box *b = &s->problem->boxes[box];
    bool from_above = b->last - b->first + 1 < rule->long_life;
    return mm_ranges_take(&s->ranges, b->bytes, 1, from_above ? MM_FIT_HIGHEST : rule->fit);
}

/* Runs one allocator over [0, limit). False if it does not fit. Boxes must be sorted for the rule's direction. */
static bool sweep_run(sweep *s, const sweep_rule *rule, int64_t limit, int64_t *height_out) {
    const mm_box *boxes = s->problem->boxes;
    int32_t n = s->problem->n;
    s->ranges.n = 1;
    s->ranges.free[0] = (mm_span){0, limit};
    int64_t height = 0;
    for (int32_t i = 0, ended = 0; i < n;) {
        int32_t now = begin_time(s, rule->backward, s->by_begin[i]);
        for (; ended < n && end_time(s, rule->backward, s->by_end[ended]) < now; ended++) {
            int32_t box = s->by_end[ended];
            mm_ranges_give(&s->ranges, s->offset[box], boxes[box].bytes);
        }
        for (; i < n && begin_time(s, rule->backward, s->by_begin[i]) == now; i++) {
            int32_t box = s->by_begin[i];
            s->work += 8 + (int64_t)s->ranges.n;
            s->offset[box] = take(s, rule, box);
            if (s->offset[box] < 0) return false;
            int64_t end = s->offset[box] + boxes[box].bytes;
            if (end > height) height = end;
        }
    }
    *height_out = height;
    return true;
}

static void keep(const sweep *s, int64_t height, mm_placement *best) {
    memcpy(best->offset, s->offset, (size_t)s->problem->n * sizeof *best->offset);
    best->height = height;
}

mm_status mm_layout_sweep_modnn(const mm_layout_problem *problem, mm_placement *placement_out) {
    const sweep_rule modnn = {.fit = MM_FIT_EXACT_LOWEST};
    sweep s;
    mm_status status = sweep_init(&s, problem);
    if (status == MM_OK) {
        int64_t height = 0;
        sort_for(&s, modnn.backward, MM_ORDER_FIRST);
        sweep_run(&s, &modnn, INT64_MAX, &height); /* always fits */
        keep(&s, height, placement_out);
    }
    sweep_fini(&s);
    return status;
}

/* Tries a rule in less than the best height; with two ends, the arena's height matters: the lower bound first. */
static void try_rule(sweep *s, const sweep_rule *rule, mm_placement *best) {
    int64_t height;
    if (rule->long_life > 0 && sweep_run(s, rule, s->problem->lower_bound, &height)) {
        keep(s, height, best);
    } else if (sweep_run(s, rule, best->height - 1, &height)) {
        keep(s, height, best);
    }
}

/* Rules that differ in what is placed from above; the boxes are sorted. */
static void try_lives(sweep *s, sweep_rule rule, int64_t work_limit, mm_placement *best) {
    for (int64_t life = 0; life <= s->problem->times; life = life ? 4 * life : 2) {
        if (best->height == s->problem->lower_bound || s->work > work_limit) return;
        rule.long_life = (int32_t)life;
        try_rule(s, &rule, best);
    }
}

mm_status mm_layout_sweeps(const mm_layout_problem *problem, int64_t *work, mm_placement *best) {
    static const mm_layout_order preferences[] = {MM_ORDER_LIFE, MM_ORDER_BYTES};
    sweep s;
    mm_status status = sweep_init(&s, problem);
    for (int backward = 0; status == MM_OK && backward < 2; backward++) {
        for (size_t p = 0; p < sizeof preferences / sizeof *preferences; p++) {
            sort_for(&s, backward, preferences[p]);
            try_lives(&s, (sweep_rule){.backward = backward, .fit = MM_FIT_LOWEST}, *work, best);
            try_lives(&s, (sweep_rule){.backward = backward, .fit = MM_FIT_CLOSEST}, *work, best);
        }
    }
    *work -= s.work;
    sweep_fini(&s);
    return status;
}
