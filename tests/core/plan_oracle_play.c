/* SPDX-License-Identifier: MIT */
#include "tests/core/plan_oracle_parts.h"

/* The content of a cell: bytes that no segment's end divides. */
typedef struct tag {
    int value;
    bool exact;
    mm_content content;
    int codec;
    mm_tensor tensor;
    int op; /* node of the operation that wrote it; -1 */
} tag;

typedef struct player {
    const mm_plan *plan;
    const mm_graph_facts *facts;
    int64_t
        *ends[MM_MEMORY_COUNT]; /* [memory]: places where a static segment begins or ends; a cell lies between two */
    int n_ends[MM_MEMORY_COUNT];
    tag *cells[MM_MEMORY_COUNT];
    tag *dynamic;  /* one cell for each segment */
    int *current;  /* per tensor: its present value; also of persistent and external ones */
    int *seen;     /* per binding of a step that ran: the value that it found or wrote */
    int *ran;      /* per step that ran: its node */
    bool *exactly; /* per step that ran: it read nothing but what was exact */
    bool *begun;   /* per segment: a pool that a body was encoded into */
    bool *used;    /* per node: an operation's result was read */
    bool *read;    /* per segment: its content was read */
    int values;
    plan_contents *contents; /* per segment */
} player;

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static tag *cells_of(player *p, int segment, int *n_out) {
    const mm_segment *s = &p->plan->segments[segment];
    *n_out = 1;
    if (s->dynamic) return &p->dynamic[segment];
    int first = 0, end = 0;
    while (p->ends[s->memory][first] < s->offset) first++;
    while (p->ends[s->memory][end] < s->offset + s->bytes) end++;
    *n_out = end - first;
    return &p->cells[s->memory][first];
}

static void put(player *p, int segment, tag t) {
    int n;
    tag *cells = cells_of(p, segment, &n);
    for (int i = 0; i < n; i++) cells[i] = t;
    if (t.value < 0) return; /* the content of a workspace */
    p->contents[segment].exact_writes += t.exact;
    p->contents[segment].inexact_writes += !t.exact;
}

/* Whether the whole segment has one value, in the form that the segment says. *out: that value. */
static bool get(player *p, int segment, tag *out) {
    const mm_segment *s = &p->plan->segments[segment];
    int n;
    const tag *cells = cells_of(p, segment, &n);
    for (int i = 0; i < n; i++)
        if (cells[i].value < 0 || cells[i].value != cells[0].value || cells[i].op != cells[0].op ||
            cells[i].exact != cells[0].exact || cells[i].content != s->content || cells[i].codec != s->codec ||
            cells[i].tensor != s->tensor)
            return false;
    *out = cells[0];
    if (cells[0].op >= 0) p->used[cells[0].op] = true;
    p->read[segment] = true;
    p->contents[segment].inexact_reads += !cells[0].exact;
    return true;
}

static bool read_use(player *p, const mm_use *use, int segment, int value, bool *exact) {
    tag t;
    if (!get(p, segment, &t) || t.value != value) return false;
    if (use->form == MM_FORM_SIGN && !t.exact) return false;
    *exact = *exact && t.exact && (t.content == MM_CONTENT_RAW || p->facts->codecs[t.codec].lossless);
    if (t.content == MM_CONTENT_RAW) return true;
    return use->form == MM_FORM_SIGN ? p->facts->codecs[t.codec].gives_sign : use->access == MM_READ;
}

/* Plays an output that shares storage: it must be in the segment of an input that it equals. */
static bool share_use(player *p, const mm_step_info *step, const int32_t *bindings, int u) {
    for (int k = 0; k < step->n_pairs; k++)
        for (int i = 0; i < step->n_uses; i++) {
            const mm_pair *pair = &step->pairs[k];
            if (!pair->alias || pair->output != step->uses[u].tensor || pair->input != step->uses[i].tensor) continue;
            if (bindings[i] != bindings[u] || p->plan->alias[pair->input] != p->plan->alias[pair->output]) continue;
            p->current[pair->output] = p->current[pair->input];
            return p->plan->segments[bindings[u]].content == MM_CONTENT_RAW;
        }
    return false;
}

static bool play_step(player *p, int node) {
    const mm_node *n = &p->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(p->plan->graph, n->step);
    const int32_t *bindings = &p->plan->bindings[n->first_binding];
    int *seen = &p->seen[n->first_binding];
    p->ran[n->step] = node;
    p->exactly[n->step] = true;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        seen[u] = p->current[use->tensor];
        if (bindings[u] >= 0 && use->access != MM_WRITE &&
            !read_use(p, use, bindings[u], seen[u], &p->exactly[n->step]))
            return false;
    }
    for (int u = 0; u < step->n_uses; u++)
        if (bindings[u] >= 0 && oracle_shares(p->plan, &step->uses[u]) && !share_use(p, step, bindings, u))
            return false;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (use->access == MM_READ || oracle_shares(p->plan, use)) continue;
        p->current[use->tensor] = p->values++;
        if (use->access == MM_WRITE) seen[u] = p->current[use->tensor];
        if (bindings[u] < 0) continue;
        const mm_segment *s = &p->plan->segments[bindings[u]];
        if (s->content != MM_CONTENT_RAW) return false;
        put(p, bindings[u], (tag){p->current[use->tensor], true, MM_CONTENT_RAW, -1, s->tensor, -1});
    }
    for (int u = 0; u < step->n_uses; u++) { /* codes of what is there now */
        const int code = oracle_code(p->plan, n, u);
        tag t;
        if (code < 0) continue;
        if (!get(p, bindings[u], &t) || t.value != p->current[step->uses[u].tensor]) return false;
        t.content = MM_CONTENT_CODED;
        t.codec = p->plan->segments[code].codec;
        t.op = -1;
        put(p, code, t);
        p->read[code] = false;
    }
    return true;
}

/* A step that runs again must find the values that it found at first; it writes those that it wrote then. */
static bool play_recompute(player *p, int node) {
    const mm_node *n = &p->plan->nodes[node], *ran = &p->plan->nodes[p->ran[n->step]];
    const mm_step_info *step = mm_graph_step(p->plan->graph, n->step);
    const int32_t *bindings = &p->plan->bindings[n->first_binding];
    const int *seen = &p->seen[ran->first_binding];
    bool exact = p->exactly[n->step] && n->variant == ran->variant &&
                 p->facts->variants[p->facts->variant_first[n->step] + n->variant].deterministic;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        tag modified; /* it may have changed since */
        if (use->access == MM_MODIFY && bindings[u] >= 0 && !get(p, bindings[u], &modified)) return false;
        if (use->access != MM_READ) continue;
        bool same =
            bindings[u] < 0 ? p->current[use->tensor] == seen[u] : read_use(p, use, bindings[u], seen[u], &exact);
        if (!same) return false;
    }
    for (int u = 0; u < step->n_uses; u++) {
        if (bindings[u] < 0 || step->uses[u].access != MM_WRITE) continue;
        const mm_segment *s = &p->plan->segments[bindings[u]];
        if (s->content != MM_CONTENT_RAW) return false;
        put(p, bindings[u], (tag){seen[u], exact, MM_CONTENT_RAW, -1, s->tensor, -1});
    }
    return true;
}

/* Whether a pool's bytes are intact: the iteration's first encode into it claims them, all later uses must find them
 * claimed. */
static bool use_pool(player *p, int pool, bool encode) {
    int n;
    tag *cells = cells_of(p, pool, &n), mine = {.value = INT32_MAX - pool, .content = MM_CONTENT_POOL};
    if (encode && !p->begun[pool])
        for (int i = 0; i < n; i++) cells[i] = mine;
    p->begun[pool] = true;
    for (int i = 0; i < n; i++)
        if (cells[i].value != mine.value) return false;
    return true;
}

/* A measure must find its tensor's present value, exact. Its result counts as used, since the host reads it. */
static bool play_measure(player *p, int node) {
    const mm_node *n = &p->plan->nodes[node];
    tag t;
    p->used[node] = true;
    return get(p, n->src, &t) && t.value == p->current[n->tensor] && t.exact;
}

static bool play_op(player *p, int node) {
    const mm_node *n = &p->plan->nodes[node];
    tag t;
    if (!get(p, n->src, &t)) return false;
    const mm_segment *dst = &p->plan->segments[n->dst];
    if (n->kind == MM_NODE_DECODE) t.exact = t.exact && p->facts->codecs[t.codec].lossless;
    t.content = dst->content;
    t.codec = dst->codec;
    t.op = node;
    if (oracle_persists(p->plan, n->dst) && !t.exact) return false;
    put(p, n->dst, t);
    const mm_segment *code = oracle_body(p->plan, n);
    if (!code) return true;
    const int spill = p->plan->segments[code->pool].spill;
    const bool encode = n->kind == MM_NODE_ENCODE;
    return use_pool(p, code->pool, encode) && (spill < 0 || use_pool(p, spill, encode));
}

static bool play(player *p) {
    static const tag nothing = {.value = -1, .op = -1};
    for (int m = 0; m < MM_MEMORY_COUNT; m++)
        for (int i = 0; i < p->n_ends[m]; i++) p->cells[m][i] = nothing;
    for (int i = 0; i < p->plan->n_segments; i++) p->dynamic[i] = nothing;
    for (int t = 0; t < mm_graph_tensors(p->plan->graph); t++) p->current[t] = -2;
    for (int i = 0; i < p->plan->n_segments; i++) { /* persistent tensors have a value from the start */
        const mm_segment *s = &p->plan->segments[i];
        if (!oracle_persists(p->plan, i)) continue;
        p->current[s->tensor] = p->values++;
        put(p, i, (tag){p->current[s->tensor], true, MM_CONTENT_RAW, -1, s->tensor, -1});
    }
    for (int i = 0; i < p->plan->n_nodes; i++) {
        const mm_node *n = &p->plan->nodes[i];
        bool right = n->kind == MM_NODE_STEP        ? play_step(p, i)
                     : n->kind == MM_NODE_RECOMPUTE ? play_recompute(p, i)
                     : n->kind == MM_NODE_MEASURE   ? play_measure(p, i)
                                                    : play_op(p, i);
        if (!right) return false;
        if (n->work >= 0) put(p, n->work, nothing);
        if (n->stage >= 0) put(p, n->stage, nothing);
    }
    for (int i = 0; i < p->plan->n_segments; i++) { /* at the end they have their last value */
        tag t;
        if (!oracle_persists(p->plan, i)) continue;
        if (!get(p, i, &t) || t.value != p->current[p->plan->segments[i].tensor] || !t.exact) return false;
    }
    for (int i = 0; i < p->plan->n_nodes; i++)
        if (!mm_node_runs_step(&p->plan->nodes[i]) && !p->used[i]) return false;
    for (int i = 0; i < p->plan->n_segments; i++)
        if (p->plan->segments[i].content == MM_CONTENT_CODED && !p->read[i]) return false;
    return true;
}

bool oracle_plays(const mm_plan *plan, const mm_graph_facts *facts, plan_contents *contents) {
    player p = {.plan = plan, .facts = facts, .contents = contents};
    for (int m = 0; m < MM_MEMORY_COUNT; m++) {
        p.ends[m] = oracle_allocate(2 * (size_t)plan->n_segments, sizeof *p.ends[m]);
        for (int i = 0; i < plan->n_segments; i++) {
            const mm_segment *s = &plan->segments[i];
            if (s->dynamic || (int)s->memory != m) continue;
            p.ends[m][p.n_ends[m]++] = s->offset;
            p.ends[m][p.n_ends[m]++] = s->offset + s->bytes;
        }
        qsort(p.ends[m], (size_t)p.n_ends[m], sizeof *p.ends[m], by_value);
        p.cells[m] = oracle_allocate((size_t)p.n_ends[m], sizeof *p.cells[m]);
    }
    p.dynamic = oracle_allocate((size_t)plan->n_segments, sizeof *p.dynamic);
    p.current = oracle_allocate((size_t)mm_graph_tensors(plan->graph), sizeof *p.current);
    p.seen = oracle_allocate((size_t)plan->n_bindings, sizeof *p.seen);
    p.ran = oracle_allocate((size_t)mm_graph_steps(plan->graph), sizeof *p.ran);
    p.exactly = oracle_allocate((size_t)mm_graph_steps(plan->graph), sizeof *p.exactly);
    p.begun = oracle_allocate((size_t)plan->n_segments, sizeof *p.begun);
    p.used = oracle_allocate((size_t)plan->n_nodes, sizeof *p.used);
    p.read = oracle_allocate((size_t)plan->n_segments, sizeof *p.read);
    bool right = play(&p);
    for (int m = 0; m < MM_MEMORY_COUNT; m++) {
        free(p.ends[m]);
        free(p.cells[m]);
    }
    free(p.dynamic);
    free(p.current);
    free(p.seen);
    free(p.ran);
    free(p.exactly);
    free(p.begun);
    free(p.used);
    free(p.read);
    return right;
}
