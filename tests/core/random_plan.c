#include "tests/core/random_plan.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"

/* What is done to a storage between two uses that lie apart. */
typedef enum action { KEEP, SWAP, LOSSLESS, LOSSY, MASK } action;

typedef struct storage { /* of a root tensor */
    action action;
    bool mask;         /* a mask is made too, for the readers of signs after the gap */
    bool travels;      /* codes go to pinned memory and back */
    int before, after; /* steps around the gap */
    int raw;           /* segment that holds the elements now; -1 */
    int code;          /* segment of what was put away, in pinned memory or not; -1 */
    int sign;          /* segment of the mask while it is true; -1 */
    bool keeps_raw;    /* what was encoded stays where it is, for whoever writes next */
    int kept;          /* that segment, while what it holds is true; -1 */
    bool read;         /* `raw` was, since it was decoded */
} storage;

typedef struct planner {
    const mm_graph *graph;
    const mm_facts *facts;
    const random_plan_options *options;
    mm_plan *plan;
    storage *storages; /* per tensor */
    uint64_t random;
} planner;

static bool chance(planner *p, int percent) { return random_chance(&p->random, percent); }

/* ---------------------------------------------------------------- aliases */

/* Whether any step from `from` on writes to a tensor of the storage, other than as an alias. */
static bool written_after(const planner *p, mm_tensor root, int from) {
    for (int s = from; s < mm_graph_steps(p->graph); s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            bool shared = p->plan->alias[t] != t && step->uses[u].access == MM_WRITE;
            if (p->plan->alias[t] == root && step->uses[u].access != MM_READ && !shared) return true;
        }
    }
    return false;
}

static void choose_aliases(planner *p) {
    for (int s = 0; s < mm_graph_steps(p->graph); s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        for (int k = 0; k < step->n_pairs; k++) {
            mm_tensor output = step->pairs[k].output, root = p->plan->alias[step->pairs[k].input];
            if (!step->pairs[k].alias || p->plan->alias[output] != output || chance(p, 25)) continue;
            /* A storage with two names must not change. */
            p->plan->alias[output] = root;
            if (mm_graph_tensor(p->graph, output)->writes > 1 || written_after(p, root, s))
                p->plan->alias[output] = output;
        }
    }
}

/* ---------------------------------------------------------------- actions */

/* How a step uses a storage. */
typedef struct usage {
    bool any, elements, signs; /* read */
    bool changed;              /* written or modified */
} usage;

static usage used_at(const planner *p, mm_tensor root, int s) {
    const mm_step_info *step = mm_graph_step(p->graph, s);
    usage result = {0};
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (p->plan->alias[use->tensor] != root) continue;
        bool shared = use->tensor != root && use->access == MM_WRITE;
        result.any = true;
        result.changed |= use->access != MM_READ && !shared;
        result.signs |= use->form == MM_FORM_SIGN;
        result.elements |= use->form == MM_FORM_VALUE && (use->access != MM_WRITE || shared);
    }
    return result;
}

/* The longest time that a storage lies unused; and how its value is used after that, until it changes. */
static usage find_gap(const planner *p, mm_tensor root, int *before_out, int *after_out) {
    int last = -1;
    usage later = {0};
    *before_out = *after_out = 0;
    for (int s = 0; s < mm_graph_steps(p->graph); s++) {
        if (!used_at(p, root, s).any) continue;
        if (last >= 0 && s - last > *after_out - *before_out) {
            *before_out = last;
            *after_out = s;
        }
        last = s;
    }
    for (int s = *after_out; s <= last && !later.changed; s++) {
        usage now = used_at(p, root, s);
        later.any |= now.any;
        later.elements |= now.elements;
        later.signs |= now.signs;
        later.changed |= now.changed;
    }
    return later;
}

static void choose_action(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    *st = (storage){.action = KEEP, .raw = -1, .code = -1, .sign = -1, .kept = -1, .keeps_raw = chance(p, 40)};
    const mm_tensor_info *tensor = mm_graph_tensor(p->graph, root);
    if (tensor->ownership != MM_MANAGED || p->plan->alias[root] != root) return;
    usage later = find_gap(p, root, &st->before, &st->after);
    if (st->after - st->before < 2 || !(later.elements || later.signs)) return;
    bool floats = tensor->dtype == MM_F32;
    if (!later.elements && chance(p, 70))
        st->action = MASK;
    else if (later.elements && floats && p->options->lossy && chance(p, 50))
        st->action = LOSSY;
    else if (chance(p, 60))
        st->action = chance(p, 35) ? SWAP : LOSSLESS;
    st->travels = chance(p, 40);
    st->mask = later.signs &&
               (st->action == MASK || st->action == LOSSY || (st->action >= SWAP && later.elements && chance(p, 50)));
}

/* ---------------------------------------------------------------- nodes */

static int add_segment(planner *p, mm_content content, mm_tensor tensor, int64_t bytes, int codec) {
    static const mm_category categories[] = {MM_CAT_FEATURE_MAP, MM_CAT_CODE, MM_CAT_WORKSPACE};
    mm_category category = categories[content];
    if (content == MM_CONTENT_RAW && mm_graph_tensor(p->graph, tensor)->kind == MM_GRADIENT_MAP)
        category = MM_CAT_GRADIENT_MAP;
    int segment = mm_plan_segment(p->plan, content, category, tensor, bytes);
    if (segment < 0) abort();
    p->plan->segments[segment].codec = codec;
    return segment;
}

static int add_raw(planner *p, mm_tensor root) {
    return add_segment(p, MM_CONTENT_RAW, root, mm_graph_tensor(p->graph, root)->bytes, -1);
}

static void add_work(planner *p, int node, int64_t bytes) {
    if (bytes == 0 && !chance(p, 5)) return;
    int segment = add_segment(p, MM_CONTENT_WORK, -1, bytes + 1 + random_below(&p->random, 100), -1);
    p->plan->nodes[node].work = segment;
}

static int latest_node(const planner *p, mm_stream_id stream) {
    for (int i = p->plan->n_nodes - 1; i >= 0; i--)
        if (p->plan->nodes[i].stream == stream) return i;
    return -1;
}

/* Waits that nothing needs, but that let bytes be used again sooner. */
static void add_idle_waits(planner *p, int node) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int latest = latest_node(p, s);
        if (latest >= 0 && latest != node && chance(p, 30)) mm_plan_wait(p->plan, node, latest);
    }
}

static int add_op(planner *p, mm_node_kind kind, mm_tensor root, int src, int dst, int codec) {
    int node = mm_plan_op(p->plan, kind, root, src, dst);
    if (node < 0) abort();
    add_work(p, node, mm_facts_code(p->facts, codec, root)->scratch_bytes);
    if (kind == MM_NODE_ENCODE && p->options->dynamic && chance(p, 30))
        p->plan->nodes[node].stage = add_segment(p, MM_CONTENT_WORK, -1, p->plan->segments[dst].bytes, -1);
    add_idle_waits(p, node);
    return node;
}

static int add_encode(planner *p, mm_tensor root, int codec) {
    int64_t bytes = mm_facts_code(p->facts, codec, root)->code_bytes;
    int code = add_segment(p, MM_CONTENT_CODED, root, bytes, codec);
    add_op(p, MM_NODE_ENCODE, root, p->storages[root].raw, code, codec);
    return code;
}

/* Copies a segment over the link; returns the copy. */
static int add_move(planner *p, mm_node_kind kind, int src) {
    const mm_segment from = p->plan->segments[src];
    int dst = add_segment(p, from.content, from.tensor, from.bytes, from.codec);
    p->plan->segments[dst].pinned = kind == MM_NODE_OUT;
    int node = mm_plan_op(p->plan, kind, from.tensor, src, dst);
    if (node < 0) abort();
    add_idle_waits(p, node);
    return dst;
}

static void put_away_sign(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    if (st->mask) st->sign = add_encode(p, root, RANDOM_MASK);
    if (st->mask && st->travels) st->sign = add_move(p, MM_NODE_OUT, st->sign);
}

static void put_away_after(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    bool mask_first = chance(p, 50);
    if (mask_first) put_away_sign(p, root);
    if (st->action == SWAP) st->code = st->raw;
    if (st->action > SWAP && st->action != MASK)
        st->code = add_encode(p, root, st->action == LOSSY ? RANDOM_LOSSY : RANDOM_LOSSLESS);
    if (st->code >= 0 && (st->action == SWAP || st->travels)) st->code = add_move(p, MM_NODE_OUT, st->code);
    if (!mask_first) put_away_sign(p, root);
    st->kept = st->keeps_raw ? st->raw : -1;
    st->raw = -1;
    st->read = false;
}

static void fetch(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    int code = st->code;
    st->code = -1;
    if (p->plan->segments[code].pinned) code = add_move(p, MM_NODE_IN, code);
    st->raw = code;
    if (p->plan->segments[code].content == MM_CONTENT_RAW) return;
    st->raw = add_raw(p, root);
    add_op(p, MM_NODE_DECODE, root, code, st->raw, p->plan->segments[code].codec);
}

/* Fetches what step `s` needs, and sometimes what a later one will. */
static void fetch_before(planner *p, int s, int ahead) {
    for (mm_tensor t = 0; t < mm_graph_tensors(p->graph); t++) {
        storage *st = &p->storages[t];
        if (st->after < s || st->after > s + ahead) continue;
        if (st->sign >= 0 && p->plan->segments[st->sign].pinned && used_at(p, t, st->after).signs)
            st->sign = add_move(p, MM_NODE_IN, st->sign);
        if (st->code >= 0) fetch(p, t);
    }
}

static int bind(planner *p, const mm_use *use) {
    mm_tensor root = p->plan->alias[use->tensor];
    storage *st = &p->storages[root];
    if (mm_graph_tensor(p->graph, root)->ownership != MM_MANAGED) return -1;
    if (use->form == MM_FORM_SIGN && st->sign >= 0) return st->sign;
    bool write = use->access == MM_WRITE && use->tensor == root, change = write || use->access == MM_MODIFY;
    if (change && st->kept >= 0 && (st->raw < 0 || st->read)) {
        st->raw = st->kept;
    } else if (write && (st->raw < 0 || chance(p, 50))) {
        st->raw = add_raw(p, root);
    }
    if (change) st->sign = st->kept = -1;
    st->read = true;
    return st->raw;
}

static void add_step(planner *p, int s) {
    const mm_step_info *step = mm_graph_step(p->graph, s);
    int node = mm_plan_step(p->plan, s);
    if (node < 0) abort();
    int first = p->facts->variant_first[s], variants = p->facts->variant_first[s + 1] - first;
    p->plan->nodes[node].variant = random_below(&p->random, variants);
    add_work(p, node, p->facts->variants[first + p->plan->nodes[node].variant].workspace_bytes);
    for (int u = 0; u < step->n_uses; u++)
        p->plan->bindings[p->plan->nodes[node].first_binding + u] = bind(p, &step->uses[u]);
    add_idle_waits(p, node);
}

static void add_nodes(planner *p) {
    for (int s = 0; s < mm_graph_steps(p->graph); s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        fetch_before(p, s, chance(p, 40) ? random_below(&p->random, 4) : 0);
        add_step(p, s);
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor root = p->plan->alias[step->uses[u].tensor];
            const storage *st = &p->storages[root];
            if (st->action != KEEP && st->before == s && st->raw >= 0) put_away_after(p, root);
        }
    }
}

/* The waits between users of one segment. */
static void add_needed_waits(planner *p) {
    int n;
    access *list = plan_accesses(p->plan, &n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (list[i].segment == list[j].segment && (list[i].write || list[j].write) && list[i].node != list[j].node)
                mm_plan_wait(p->plan, list[i].node, list[j].node);
    free(list);
}

/* ---------------------------------------------------------------- places */

typedef struct placer {
    planner *p;
    closure closure;
    access *list;
    int n;
    bool *placed;
} placer;

/* All users of a end before b's first, apart from a last one that writes b in place. */
static bool comes_before(const placer *q, int a, int b, bool same_offset) {
    int first = -1;
    const access *writer = NULL;
    for (int i = 0; i < q->n && first < 0; i++)
        if (q->list[i].segment == b) {
            writer = &q->list[i];
            first = writer->node;
        }
    for (int i = 0; i < q->n; i++) {
        const access *user = &q->list[i];
        if (user->segment != a || closure_before(&q->closure, user->node, first)) continue;
        if (!same_offset || user->node != first || user->write) return false;
        if (!plan_inplace(q->p->plan, first, user->use, writer->use)) return false;
    }
    return true;
}

static bool may_lie(const placer *q, int segment) {
    const mm_segment *s = &q->p->plan->segments[segment];
    for (int i = 0; i < q->p->plan->n_segments; i++) {
        const mm_segment *other = &q->p->plan->segments[i];
        if (!q->placed[i] || other->pinned != s->pinned || s->offset >= other->offset + other->bytes ||
            other->offset >= s->offset + s->bytes)
            continue;
        bool same = s->offset == other->offset;
        if (!comes_before(q, i, segment, same) && !comes_before(q, segment, i, same)) return false;
    }
    return true;
}

/* At the lowest place there is, or sometimes at one above. */
static void place(placer *q, int segment, int64_t base) {
    mm_plan *plan = q->p->plan;
    mm_segment *s = &plan->segments[segment];
    int64_t lowest = s->pinned ? 0 : base, best = INT64_MAX;
    for (int i = -1; i < plan->n_segments; i++) {
        if (i >= 0 && (!q->placed[i] || plan->segments[i].pinned != s->pinned)) continue;
        for (int end = 0; end < 2; end++) {
            s->offset = i < 0 ? lowest : plan->segments[i].offset + (end ? mm_align(plan->segments[i].bytes) : 0);
            if (s->offset < best && (best == INT64_MAX || !chance(q->p, 5)) && may_lie(q, segment)) best = s->offset;
        }
    }
    s->offset = best;
    q->placed[segment] = true;
}

/* The most that lives at once in the heap's part for codes, or in the other. */
static int64_t heap_peak(const mm_plan *plan, bool codes) {
    int64_t peak = 0;
    for (int node = 0; node < plan->n_nodes; node++) {
        int64_t live = 0;
        for (int i = 0; i < plan->n_segments; i++) {
            const mm_segment *s = &plan->segments[i];
            if (s->dynamic && (s->content == MM_CONTENT_CODED) == codes && s->first_node <= node &&
                node <= s->last_node)
                live += mm_align(s->bytes);
        }
        if (live > peak) peak = live;
    }
    return peak;
}

static void place_heap(mm_plan *plan) {
    plan->heap_code_bytes = heap_peak(plan, true);
    plan->heap_bytes = plan->heap_code_bytes + heap_peak(plan, false);
    plan->heap_offset = plan->heap_bytes > 0 ? mm_align(plan->extent_bytes) : 0;
}

/* Some codes lie in pinned memory, to be written and read there; where copies go is settled. */
static void choose_memory(planner *p) {
    mm_plan *plan = p->plan;
    bool *copied = calloc((size_t)plan->n_segments + 1, sizeof *copied);
    if (!copied) abort();
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN) copied[n->src] = copied[n->dst] = true;
    }
    for (int i = 0; i < plan->n_segments; i++) {
        mm_segment *s = &plan->segments[i];
        if (!copied[i]) s->pinned = s->content == MM_CONTENT_CODED && chance(p, 20);
        s->dynamic = p->options->dynamic && !s->pinned && chance(p, 20);
    }
    free(copied);
}

/* A dynamic segment is freed after its last user: that one waits for the others. */
static void wait_before_free(mm_plan *plan) {
    int n;
    access *list = plan_accesses(plan, &n);
    for (int i = 0; i < n; i++) {
        int last = list[i].node;
        for (int j = 0; j < n; j++)
            if (list[j].segment == list[i].segment && list[j].node > last) last = list[j].node;
        if (plan->segments[list[i].segment].dynamic && last > list[i].node) mm_plan_wait(plan, last, list[i].node);
    }
    free(list);
}

static mm_status place_all(planner *p, const mm_limits *limits) {
    mm_plan *plan = p->plan;
    choose_memory(p);
    wait_before_free(plan);
    placer q = {.p = p, .closure = closure_create(plan)};
    q.list = plan_accesses(plan, &q.n);
    q.placed = calloc((size_t)plan->n_segments + 1, sizeof *q.placed);
    if (!q.placed) abort();
    for (int i = 0; i < plan->n_segments; i++)
        if (!plan->segments[i].dynamic) place(&q, i, limits->base_bytes);
    closure_destroy(&q.closure);
    free(q.list);
    free(q.placed);
    MM_TRY(mm_plan_finish(plan));
    place_heap(plan);
    return mm_plan_finish(plan);
}

mm_status random_plan_create(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                             const random_plan_options *options, mm_plan **plan_out) {
    planner p = {.graph = graph, .facts = facts, .options = options, .random = options->seed};
    MM_TRY(mm_plan_create(graph, limits, &p.plan));
    p.storages = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *p.storages);
    if (!p.storages) abort();
    choose_aliases(&p);
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++) choose_action(&p, t);
    add_nodes(&p);
    add_needed_waits(&p);
    mm_status status = place_all(&p, limits);
    free(p.storages);
    if (status == MM_OK)
        *plan_out = p.plan;
    else
        mm_plan_destroy(p.plan);
    return status;
}
