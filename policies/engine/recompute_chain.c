/* SPDX-License-Identifier: MIT */
#include "policies/engine/recompute_chain.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine/engine_maps.h"

/* What each step takes: time and bytes. */
typedef struct profile {
    const mm_schedule *schedule;
    mm_cutter cutter;
    int64_t *ns;        /* per step */
    int64_t *used;      /* per step: bytes of managed tensors and workspace that it uses */
    int64_t *gradients; /* per step: bytes of gradient maps alive at it */
    int64_t *carried;   /* per step: of these, bytes of maps that an earlier step wrote */
    int *cuts;
} profile;

static int64_t bytes_of(const mm_schedule *s, mm_tensor t) { return mm_align(mm_graph_tensor(s->graph, t)->bytes); }

static int last_forward_of(const mm_schedule *s, mm_tensor t) { return mm_graph_tensor(s->graph, t)->last_forward; }

static bool is_stashed(const mm_schedule *s, mm_tensor t) {
    return mm_is_forward_map(s, t) && s->tensors[t].last_step > last_forward_of(s, t);
}

bool mm_chain_leaves_out(const mm_schedule *s, mm_tensor map, int last) {
    const mm_layer_properties *layer = mm_graph_step_properties(s->graph, mm_schedule_producer(s->graph, map));
    return layer->cost == MM_LAYER_CHEAP && layer->repeatable && last_forward_of(s, map) <= last;
}

/* ---------------------------------------------------------------- what the steps take */

static const mm_variant *variant_of(const mm_schedule *s, int step) {
    return &s->facts->variants[s->facts->variant_first[step] + (s->variant ? s->variant[step] : 0)];
}

static void measure_steps(profile *p) {
    const mm_schedule *s = p->schedule;
    for (int i = 0; i < p->cutter.n; i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        if (step->phase != MM_FORWARD) continue;
        p->ns[i] = variant_of(s, i)->ns + 1; /* so that all steps count the same if no times are known */
        p->used[i] = variant_of(s, i)->workspace_bytes;
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            if (mm_graph_tensor(s->graph, t)->ownership == MM_MANAGED && s->plan->alias[t] == t)
                p->used[i] += bytes_of(s, t);
        }
    }
}

static bool is_overwritten(const mm_schedule *s, int step, mm_tensor t) {
    const mm_step_info *info = mm_graph_step(s->graph, step);
    for (int u = 0; u < info->n_uses; u++)
        if (s->tensors[info->uses[u].tensor].over == t) return true;
    return false;
}

/* Adds up gradient maps over their lifetimes. A map that is overwritten in place ends before the next one begins. */
static void measure_gradients(profile *p) {
    const mm_schedule *s = p->schedule;
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(s->graph, t);
        if (info->kind != MM_GRADIENT_MAP || info->ownership != MM_MANAGED || s->plan->alias[t] != t) continue;
        if (info->first_use < 0) continue;
        int last = s->tensors[t].last_step;
        if (last > info->first_use && is_overwritten(s, last, t)) last--;
        p->gradients[info->first_use] += bytes_of(s, t);
        p->gradients[last + 1] -= bytes_of(s, t);
        if (last > info->first_use) p->carried[info->first_use + 1] += bytes_of(s, t);
        if (last > info->first_use) p->carried[last + 1] -= bytes_of(s, t);
    }
    for (int i = 1; i < p->cutter.n; i++) {
        p->gradients[i] += p->gradients[i - 1];
        p->carried[i] += p->carried[i - 1];
    }
}

static mm_status profile_init(profile *p, const mm_schedule *s) {
    *p = (profile){.schedule = s};
    size_t n = (size_t)mm_graph_steps(s->graph) + 2;
    MM_TRY(mm_cutter_init(&p->cutter, s));
    p->ns = calloc(n, sizeof *p->ns);
    p->used = calloc(n, sizeof *p->used);
    p->gradients = calloc(n, sizeof *p->gradients);
    p->carried = calloc(n, sizeof *p->carried);
    p->cuts = calloc(n, sizeof *p->cuts);
    if (!p->ns || !p->used || !p->gradients || !p->carried || !p->cuts)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    measure_steps(p);
    measure_gradients(p);
    return MM_OK;
}

static void profile_fini(profile *p) {
    mm_cutter_fini(&p->cutter);
    free(p->ns);
    free(p->used);
    free(p->gradients);
    free(p->carried);
    free(p->cuts);
}

/* ---------------------------------------------------------------- stages */

static int backward_of(const mm_schedule *s, int step) {
    return mm_graph_layer(s->graph, mm_graph_step(s->graph, step)->layer)->step[MM_BACKWARD];
}

/* Adds what the stage's backward steps need, with all its maps there; each step frees what it is the last to use. */
static void add_backward(const profile *p, const mm_chains *chains, mm_stage *stage) {
    const mm_schedule *s = p->schedule;
    int begin = -1;
    for (int i = stage->first; i <= stage->last; i++) {
        const int backward = backward_of(s, i);
        if (backward < 0) continue;
        int64_t bytes = p->gradients[backward] + variant_of(s, backward)->workspace_bytes;
        for (int m = chains->first_map[stage->first]; m < chains->first_map[stage->last + 1]; m++)
            if (s->tensors[chains->maps[m]].last_step >= backward) bytes += bytes_of(s, chains->maps[m]);
        if (bytes > stage->backward_bytes) stage->backward_bytes = bytes;
        if (begin >= 0 && backward > begin) continue;
        begin = backward;
        stage->entry_bytes = p->carried[backward];
    }
}

static mm_stage stage_of(const profile *p, const mm_chains *chains, int first, int last) {
    const mm_schedule *s = p->schedule;
    mm_stage stage = {.first = first, .last = last};
    add_backward(p, chains, &stage);
    for (int i = first; i <= last; i++) {
        bool left_out = false;
        stage.ns += p->ns[i];
        if (p->used[i] > stage.forward_bytes) stage.forward_bytes = p->used[i];
        for (int m = chains->first_map[i]; m < chains->first_map[i + 1]; m++) {
            bool out = mm_chain_leaves_out(s, chains->maps[m], last);
            stage.bytes += bytes_of(s, chains->maps[m]);
            if (!out) stage.thin_bytes += bytes_of(s, chains->maps[m]);
            left_out |= out;
        }
        if (left_out) stage.cheap_ns += p->ns[i];
    }
    return stage;
}

/* The stage that contains a forward step. */
static int find_stage(const mm_chain *chain, int step) {
    int low = 0, high = chain->n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (chain->stages[middle].last < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void sum_across(const mm_chains *chains, mm_chain *chain) {
    const size_t width = (size_t)chain->n + 1;
    const int from = chain->stages[0].first, to = chain->stages[chain->n - 1].last;
    for (int m = chains->first_map[from]; m < chains->first_map[to + 1]; m++) {
        mm_tensor t = chains->maps[m];
        int last = last_forward_of(chains->schedule, t);
        int a = find_stage(chain, mm_schedule_producer(chains->schedule->graph, t));
        int b = last > to ? chain->n : find_stage(chain, last);
        for (int i = a + 1; i <= b; i++) chain->across[(size_t)a * width + (size_t)i] += bytes_of(chains->schedule, t);
    }
    for (int a = chain->n - 2; a >= 0; a--)
        for (int b = a + 2; b <= chain->n; b++)
            chain->across[(size_t)a * width + (size_t)b] += chain->across[(size_t)(a + 1) * width + (size_t)b];
}

/* The chain of the steps from `first` to `last`, cut after the steps p->cuts. */
static mm_status chain_init(const profile *p, const mm_chains *chains, int first, int last, int n_cuts,
                            mm_chain *chain) {
    *chain = (mm_chain){.n = n_cuts + 1};
    size_t n = (size_t)chain->n;
    chain->stages = calloc(n, sizeof *chain->stages);
    chain->across = calloc(n * (n + 1), sizeof *chain->across);
    if (!chain->stages || !chain->across)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(p->schedule->graph));
    for (int k = 0, begin = first; k < chain->n; k++) {
        int end = k < n_cuts ? p->cuts[k] : last;
        chain->stages[k] = stage_of(p, chains, begin, end);
        begin = end + 1;
    }
    sum_across(chains, chain);
    return MM_OK;
}

/* Cuts the steps into at most `most` segments: at every allowed place if these are few enough. Sets p->cuts; returns
 * their number. */
static int cut(profile *p, int first, int last, int most) {
    int64_t weight = 0;
    int n = 0;
    for (int i = first; i < last; i++)
        if (p->cutter.open[i]) p->cuts[n++] = i;
    for (int i = first; i <= last; i++) weight += p->cutter.weight[i];
    for (int64_t size = weight / most + 1; n >= most; size += size / 4 + 1)
        n = mm_cutter_cut(&p->cutter, first, last, size, p->cuts);
    return n;
}

static mm_status list_maps(mm_chains *c) {
    const mm_schedule *s = c->schedule;
    const int n = mm_graph_tensors(s->graph);
    int32_t *next = calloc((size_t)c->n_steps + 2, sizeof *next);
    c->first_map = calloc((size_t)c->n_steps + 2, sizeof *c->first_map);
    c->maps = malloc(((size_t)n + 1) * sizeof *c->maps);
    if (next && c->first_map && c->maps) {
        for (int t = 0; t < n; t++)
            if (is_stashed(s, t)) c->first_map[mm_schedule_producer(s->graph, t) + 1]++;
        for (int i = 0; i <= c->n_steps; i++) c->first_map[i + 1] += c->first_map[i];
        memcpy(next, c->first_map, ((size_t)c->n_steps + 1) * sizeof *next);
        for (int t = 0; t < n; t++)
            if (is_stashed(s, t)) c->maps[next[mm_schedule_producer(s->graph, t)]++] = t;
    }
    free(next);
    return next && c->first_map && c->maps
               ? MM_OK
               : mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
}

static mm_status make_fine(mm_chains *c, profile *p) {
    c->fine = calloc((size_t)c->coarse.n, sizeof *c->fine);
    if (!c->fine) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(c->schedule->graph));
    for (int k = 0; k < c->coarse.n; k++) {
        const mm_stage *stage = &c->coarse.stages[k];
        int n_cuts = cut(p, stage->first, stage->last, MM_CHAIN_FINE);
        MM_TRY(chain_init(p, c, stage->first, stage->last, n_cuts, &c->fine[k]));
    }
    return MM_OK;
}

/* Closes the cuts that several maps are read across. */
static void close_wide_cuts(profile *p) {
    const mm_schedule *s = p->schedule;
    int *crossing = p->cuts; /* not in use yet */
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        if (!mm_is_forward_map(s, t)) continue;
        for (int i = mm_schedule_producer(s->graph, t); i < last_forward_of(s, t); i++) crossing[i]++;
    }
    for (int i = 0; i < p->cutter.n; i++) p->cutter.open[i] &= crossing[i] <= 1;
}

static mm_status make_chains(mm_chains *c, profile *p, int most_blocks) {
    const int last = c->n_steps - 1, most = most_blocks > 0 ? most_blocks : MM_CHAIN_COARSE;
    MM_TRY(profile_init(p, c->schedule));
    MM_TRY(list_maps(c));
    if (most_blocks > 0) close_wide_cuts(p);
    MM_TRY(chain_init(p, c, 0, last, cut(p, 0, last, most), &c->coarse));
    return most_blocks > 0 ? MM_OK : make_fine(c, p);
}

/* most_blocks: as in mm_chains_init_blocks; 0: as mm_chains_init. */
static mm_status init(mm_chains *c, const mm_schedule *s, int most_blocks) {
    profile p;
    *c = (mm_chains){.schedule = s};
    for (int i = 0; i < mm_graph_steps(s->graph); i++)
        if (mm_graph_step(s->graph, i)->phase == MM_FORWARD) c->n_steps = i + 1;
    if (c->n_steps == 0) return MM_OK;
    mm_status status = make_chains(c, &p, most_blocks);
    profile_fini(&p);
    if (status != MM_OK) mm_chains_fini(c);
    return status;
}

mm_status mm_chains_init(mm_chains *c, const mm_schedule *s) { return init(c, s, 0); }

mm_status mm_chains_init_blocks(mm_chains *c, const mm_schedule *s, int most) { return init(c, s, most); }

static void chain_fini(mm_chain *chain) {
    free(chain->stages);
    free(chain->across);
}

void mm_chains_fini(mm_chains *c) {
    for (int k = 0; c->fine && k < c->coarse.n; k++) chain_fini(&c->fine[k]);
    chain_fini(&c->coarse);
    free(c->fine);
    free(c->maps);
    free(c->first_map);
    memset(c, 0, sizeof *c);
}
