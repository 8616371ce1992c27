/* SPDX-License-Identifier: MIT */
/* Where to cut the forward pass for sqrt(n) recomputation.
 *
 *      steps    1   2   3 | 4   5   6   7 | 8   9            cuts after steps 3 and 7: maps that later steps read
 *      maps       a   b   |c  d   e   f   |g  h              across a cut (c, g) are kept; a, b, d, e, f are made
 *                                                            again when the backward pass comes to them
 *
 * Chen et al. close a segment when its maps exceed a size (their algorithm 3), and search for the size. A map on a
 * branch around a cut is read across it, too, so cuts are where few bytes are read across: not within a residual
 * block. */
#include "policies/engine/recompute_cuts.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine/recompute.h"

bool mm_is_forward_map(const mm_schedule *s, mm_tensor t) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, t);
    return info->kind == MM_FEATURE_MAP && info->ownership == MM_MANAGED && mm_schedule_producer(s->graph, t) >= 0;
}

static void weigh(mm_cutter *c) {
    const mm_schedule *s = c->schedule;
    for (int i = 0; i < c->n; i++) c->open[i] = mm_graph_step(s->graph, i)->phase == MM_FORWARD;
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        if (!mm_is_forward_map(s, t)) continue;
        int made = mm_schedule_producer(s->graph, t), last = mm_graph_tensor(s->graph, t)->last_forward;
        bool stashed = s->tensors[t].last_step > last;
        int64_t bytes = mm_align(mm_graph_tensor(s->graph, t)->bytes);
        if (stashed) c->weight[made] += bytes, c->total_weight += bytes;
        for (int i = made; i < last; i++) {
            c->crossing[i] += bytes;
            c->open[i] &= stashed;
        }
    }
}

mm_status mm_cutter_init(mm_cutter *c, const mm_schedule *s) {
    *c = (mm_cutter){.schedule = s, .n = mm_graph_steps(s->graph)};
    size_t n = (size_t)c->n + 1;
    c->weight = calloc(n, sizeof *c->weight);
    c->crossing = calloc(n, sizeof *c->crossing);
    c->open = calloc(n, sizeof *c->open);
    if (!c->weight || !c->crossing || !c->open) {
        mm_cutter_fini(c);
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    }
    weigh(c);
    return MM_OK;
}

void mm_cutter_fini(mm_cutter *c) {
    free(c->weight);
    free(c->crossing);
    free(c->open);
    memset(c, 0, sizeof *c);
}

int mm_cutter_cut(const mm_cutter *c, int from, int to, int64_t size, int *cuts) {
    int64_t weight = 0, since_best = 0;
    int best = -1, n = 0;
    for (int i = from; i < to; i++) {
        if (weight + c->weight[i] > size && best >= 0) {
            cuts[n++] = best;
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
    return n;
}

/* ---------------------------------------------------------------- about sqrt(n) segments */

typedef struct cutter {
    mm_cutter all;
    int *cuts, n_cuts; /* the steps after which it cuts, for the present size of segments */
    int *before;       /* per step: number of cuts before it */
} cutter;

static void cut(cutter *c, int64_t size) {
    c->n_cuts = mm_cutter_cut(&c->all, 0, c->all.n, size, c->cuts);
    for (int i = 0, n = 0; i < c->all.n; i++) {
        c->before[i] = n;
        n += n < c->n_cuts && c->cuts[n] == i;
    }
}

static bool is_read_across(const cutter *c, mm_tensor t) {
    const mm_schedule *s = c->all.schedule;
    if (!mm_is_forward_map(s, t)) return false;
    int made = mm_schedule_producer(s->graph, t), last = mm_graph_tensor(s->graph, t)->last_forward;
    return last > made && c->before[last] > c->before[made];
}

/* Estimates the peak with these cuts: bytes of all kept maps, and of the largest segment's maps. */
static int64_t estimate(const cutter *c) {
    int64_t kept = 0, largest = 0, weight = 0;
    for (int t = 0; t < mm_graph_tensors(c->all.schedule->graph); t++)
        if (is_read_across(c, t)) kept += mm_align(mm_graph_tensor(c->all.schedule->graph, t)->bytes);
    for (int i = 0, next = 0; i < c->all.n; i++) {
        weight += c->all.weight[i];
        if (weight > largest) largest = weight;
        if (next < c->n_cuts && c->cuts[next] == i) weight = 0, next++;
    }
    return kept + largest;
}

static void cut_best(cutter *c) {
    int layers = 0;
    for (int i = 0; i < c->all.n; i++) layers += mm_graph_step(c->all.schedule->graph, i)->phase == MM_FORWARD;
    int root = 1, best_segments = 1;
    while ((root + 1) * (root + 1) <= layers) root++;
    int64_t least = INT64_MAX;
    for (int segments = root / 2 + 1; segments <= 2 * root; segments++) {
        cut(c, c->all.total_weight / segments);
        int64_t bytes = estimate(c);
        if (bytes >= least) continue;
        least = bytes;
        best_segments = segments;
    }
    cut(c, c->all.total_weight / best_segments);
}

mm_status mm_recompute_cut(const mm_schedule *s, uint8_t *kept) {
    cutter c = {0};
    MM_TRY(mm_cutter_init(&c.all, s));
    c.cuts = calloc((size_t)c.all.n + 1, sizeof *c.cuts);
    c.before = calloc((size_t)c.all.n + 1, sizeof *c.before);
    mm_status status = MM_OK;
    if (c.cuts && c.before) {
        cut_best(&c);
        for (int t = 0; t < mm_graph_tensors(s->graph); t++) kept[t] = is_read_across(&c, t);
    } else
        status = mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    mm_cutter_fini(&c.all);
    free(c.cuts);
    free(c.before);
    return status;
}
