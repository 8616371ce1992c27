/* SPDX-License-Identifier: MIT */
#include "policies/engine/recompute_knapsack.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine/recompute_cuts.h"

enum { SLOTS = 2000 /* chosen: bytes are rounded to a 2000th of all */ };

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for a knapsack"); }

mm_status mm_knapsack_solve(int n, const int64_t *worth, const int *weight, int capacity, uint8_t *take) {
    const size_t width = (size_t)capacity + 1;
    int64_t *best = calloc(width, sizeof *best);
    if (!best) return no_memory();
    memset(take, 0, (size_t)n * width);
    for (int i = 0; i < n; i++)
        for (int c = capacity; c >= weight[i]; c--) {
            const int64_t with = best[c - weight[i]] + worth[i];
            if (with <= best[c]) continue;
            best[c] = with;
            take[(size_t)i * width + (size_t)c] = 1;
        }
    free(best);
    return MM_OK;
}

/* ---------------------------------------------------------------- what maps weigh, and are worth */

typedef struct items {
    const mm_schedule *schedule;
    mm_tensor *map;
    int64_t *worth;
    int *weight; /* in slots */
    int n;
    int *seen; /* per step: the item for which it was last counted */
} items;

static bool is_stashed(const mm_schedule *s, mm_tensor t) {
    return mm_is_forward_map(s, t) && s->tensors[t].last_step > mm_graph_tensor(s->graph, t)->last_forward;
}

static bool may_run_again(const mm_schedule *s, int step) {
    return mm_graph_step_properties(s->graph, step)->repeatable;
}

/* Time of the steps that make a tensor from stashed maps, and that were not counted for this item yet. Steps count one
 * ns more than they take, so that they count where no times are known. */
static int64_t time_to_make(items *k, mm_tensor t, int item) {
    const mm_schedule *s = k->schedule;
    const int step = mm_schedule_producer(s->graph, t);
    if (step < 0 || k->seen[step] == item) return 0;
    k->seen[step] = item;
    const mm_step_info *info = mm_graph_step(s->graph, step);
    int64_t ns = s->facts->variants[s->facts->variant_first[step]].ns + 1;
    for (int u = 0; u < info->n_uses; u++) {
        const mm_tensor from = info->uses[u].tensor;
        if (info->uses[u].access == MM_READ && mm_is_forward_map(s, from) && !is_stashed(s, from))
            ns += time_to_make(k, from, item);
    }
    return ns;
}

/* Lists the maps that may be dropped; the others are kept anyway. */
static void list(items *k) {
    const mm_schedule *s = k->schedule;
    int64_t total = 0;
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        if (!is_stashed(s, t) || !may_run_again(s, mm_schedule_producer(s->graph, t))) continue;
        k->map[k->n] = t;
        k->worth[k->n] = time_to_make(k, t, k->n + 1);
        total += mm_graph_tensor(s->graph, t)->bytes;
        k->n++;
    }
    for (int i = 0; i < k->n; i++)
        k->weight[i] = (int)(((int64_t)mm_graph_tensor(s->graph, k->map[i])->bytes * SLOTS + total / 2) / (total + 1));
}

static mm_status items_init(items *k, const mm_schedule *s) {
    const size_t tensors = (size_t)mm_graph_tensors(s->graph) + 1, steps = (size_t)mm_graph_steps(s->graph) + 1;
    *k = (items){.schedule = s,
                 .map = malloc(tensors * sizeof *k->map),
                 .worth = malloc(tensors * sizeof *k->worth),
                 .weight = malloc(tensors * sizeof *k->weight),
                 .seen = calloc(steps, sizeof *k->seen)};
    if (!k->map || !k->worth || !k->weight || !k->seen) return no_memory();
    list(k);
    return MM_OK;
}

static void items_fini(items *k) {
    free(k->map);
    free(k->worth);
    free(k->weight);
    free(k->seen);
}

/* ---------------------------------------------------------------- the choices */

/* Adds the choice of a capacity, unless it is the last one again: level 0: kept; 1: made again once, and then there
 * until its last use, since there are no cuts. */
static void choose(mm_nesting *nesting, const items *k, const uint8_t *take, int capacity) {
    const size_t tensors = (size_t)nesting->n_tensors;
    uint8_t *level = nesting->level + (size_t)nesting->n * tensors;
    memset(level, 0, tensors);
    for (int i = k->n - 1; i >= 0; i--) {
        const bool kept = take[(size_t)i * (SLOTS + 1) + (size_t)capacity];
        level[k->map[i]] = !kept;
        if (kept) capacity -= k->weight[i];
    }
    if (nesting->n == 0 || memcmp(level, level - tensors, tensors) != 0) nesting->n++;
}

static mm_status fill(mm_nesting *nesting, const items *k, int most) {
    uint8_t *take = malloc((size_t)k->n * (SLOTS + 1) + 1);
    nesting->level = malloc(((size_t)most + 1) * (size_t)nesting->n_tensors + 1);
    nesting->cut = malloc(((size_t)most + 1) * (size_t)nesting->n_steps + 1);
    mm_status status = take && nesting->level && nesting->cut ? MM_OK : no_memory();
    if (status == MM_OK) status = mm_knapsack_solve(k->n, k->worth, k->weight, SLOTS, take);
    if (status == MM_OK) {
        memset(nesting->cut, MM_LEVEL_STAGE, ((size_t)most + 1) * (size_t)nesting->n_steps);
        for (int i = 0; i < most && k->n > 0; i++) choose(nesting, k, take, (int)((int64_t)SLOTS * i / most));
    }
    free(take);
    return status;
}

mm_status mm_knapsack_choose(mm_nesting *nesting, const mm_schedule *s, int most) {
    items k;
    *nesting = (mm_nesting){.n_tensors = mm_graph_tensors(s->graph), .n_steps = mm_graph_steps(s->graph)};
    mm_status status = items_init(&k, s);
    if (status == MM_OK) status = fill(nesting, &k, most);
    items_fini(&k);
    if (status != MM_OK) mm_nesting_fini(nesting);
    return status;
}
