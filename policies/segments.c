/* Where to cut the forward pass for sqrt(n) recomputation.
 *
 *      steps    1   2   3 | 4   5   6   7 | 8   9            a cut after step 3 and one after 7: the maps that steps
 *      maps       a   b   |c  d   e   f   |g  h              beyond read across them (c, g) are kept, a, b, d, e, f
 *                                                            are made again when the backward pass comes to them
 *
 * Chen et al. close a segment when its maps exceed a size (their algorithm 3), and search for the size. A map that
 * branches around a cut is read across it too, so a cut is put where little is: not within a residual block. */
#include <stdlib.h>

#include "mm/core/status.h"
#include "policies/recompute.h"

typedef struct cutter {
    const mm_schedule *schedule;
    int n;             /* steps */
    int64_t *weight;   /* per step: bytes of the maps that it makes and that the backward pass reads */
    int64_t *crossing; /* per step: bytes that later forward steps read across a cut after it */
    bool *open; /* per step: a cut after it is allowed, because the backward pass reads all crossing maps anyway */
    int *cuts, n_cuts; /* the cuts for the present size of segments: after these steps */
    int *before;       /* per step: number of cuts before it */
    int64_t total_weight;
} cutter;

static bool is_map(const mm_schedule *s, mm_tensor t) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, t);
    return info->kind == MM_FEATURE_MAP && info->ownership == MM_MANAGED && mm_maps_producer(s->graph, t) >= 0;
}

static void weigh(cutter *c) {
    const mm_schedule *s = c->schedule;
    for (int i = 0; i < c->n; i++) c->open[i] = mm_graph_step(s->graph, i)->phase == MM_FORWARD;
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        if (!is_map(s, t)) continue;
        int made = mm_maps_producer(s->graph, t), last = mm_graph_tensor(s->graph, t)->last_forward;
        bool stashed = s->last_step[t] > last;
        int64_t bytes = mm_align(mm_graph_tensor(s->graph, t)->bytes);
        if (stashed) c->weight[made] += bytes, c->total_weight += bytes;
        for (int i = made; i < last; i++) {
            c->crossing[i] += bytes;
            c->open[i] &= stashed;
        }
    }
}

/* Cuts so that segments have at most `size` bytes, if there are allowed places. Each cut is at the place with the least
 * crossing bytes among those that leave its segment at least half of `size`. */
static void cut_at(cutter *c, int64_t size) {
    int64_t weight = 0, since_best = 0;
    int best = -1;
    c->n_cuts = 0;
    for (int i = 0; i < c->n; i++) {
        if (weight + c->weight[i] > size && best >= 0) {
            c->cuts[c->n_cuts++] = best;
            weight = since_best;
            since_best = 0;
            best = -1;
        }
        weight += c->weight[i];
        since_best += c->weight[i];
        if (!c->open[i] || 2 * weight < size) continue;
        if (best >= 0 && c->crossing[i] > c->crossing[best]) continue;
        best = i;
        since_best = 0;
    }
}

static void cut(cutter *c, int64_t size) {
    cut_at(c, size);
    for (int i = 0, n = 0; i < c->n; i++) {
        c->before[i] = n;
        n += n < c->n_cuts && c->cuts[n] == i;
    }
}

static bool is_read_across(const cutter *c, mm_tensor t) {
    if (!is_map(c->schedule, t)) return false;
    int made = mm_maps_producer(c->schedule->graph, t), last = mm_graph_tensor(c->schedule->graph, t)->last_forward;
    return last > made && c->before[last] > c->before[made];
}

/* The cuts' peak: bytes of all kept maps, and of the largest segment's maps. */
static int64_t estimate(const cutter *c) {
    int64_t kept = 0, largest = 0, weight = 0;
    for (int t = 0; t < mm_graph_tensors(c->schedule->graph); t++)
        if (is_read_across(c, t)) kept += mm_align(mm_graph_tensor(c->schedule->graph, t)->bytes);
    for (int i = 0, next = 0; i < c->n; i++) {
        weight += c->weight[i];
        if (weight > largest) largest = weight;
        if (next < c->n_cuts && c->cuts[next] == i) weight = 0, next++;
    }
    return kept + largest;
}

static void cut_best(cutter *c) {
    int layers = 0;
    for (int i = 0; i < c->n; i++) layers += mm_graph_step(c->schedule->graph, i)->phase == MM_FORWARD;
    int root = 1, best_segments = 1;
    while ((root + 1) * (root + 1) <= layers) root++;
    int64_t least = INT64_MAX;
    for (int segments = root / 2 + 1; segments <= 2 * root; segments++) {
        cut(c, c->total_weight / segments);
        int64_t bytes = estimate(c);
        if (bytes >= least) continue;
        least = bytes;
        best_segments = segments;
    }
    cut(c, c->total_weight / best_segments);
}

mm_status mm_recompute_cut(const mm_schedule *s, uint8_t *kept) {
    cutter c = {.schedule = s, .n = mm_graph_steps(s->graph)};
    size_t n = (size_t)c.n + 1;
    c.weight = calloc(n, sizeof *c.weight);
    c.crossing = calloc(n, sizeof *c.crossing);
    c.open = calloc(n, sizeof *c.open);
    c.cuts = calloc(n, sizeof *c.cuts);
    c.before = calloc(n, sizeof *c.before);
    mm_status status = MM_OK;
    if (c.weight && c.crossing && c.open && c.cuts && c.before) {
        weigh(&c);
        cut_best(&c);
        for (int t = 0; t < mm_graph_tensors(s->graph); t++) kept[t] = is_read_across(&c, t);
    } else
        status = mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    free(c.weight);
    free(c.crossing);
    free(c.open);
    free(c.cuts);
    free(c.before);
    return status;
}
