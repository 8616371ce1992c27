#include "tests/core/plan_oracle.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(size_t n, size_t item) {
    void *memory = calloc(n + 1, item);
    if (!memory) abort();
    return memory;
}

/* ---------------------------------------------------------------- what is in the plan */

/* Marks everything that ends before `node` starts as before `target`. node_at: [stream * n + seq]. */
static void search(const mm_plan *plan, closure *c, const int *node_at, int node, int target) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        const mm_node *n = &plan->nodes[node];
        int seq = s == (int)n->stream ? n->seq - 1 : n->wait[s];
        int earlier = seq < 0 ? -1 : node_at[s * c->n + seq];
        if (earlier < 0 || c->before[earlier * c->n + target]) continue;
        c->before[earlier * c->n + target] = true;
        search(plan, c, node_at, earlier, target);
    }
}

closure closure_create(const mm_plan *plan) {
    size_t n = (size_t)plan->n_nodes;
    closure c = {.n = plan->n_nodes, .before = allocate(n * n, sizeof *c.before)};
    int *node_at = allocate(MM_STREAM_COUNT * n, sizeof *node_at);
    for (int i = 0; i < c.n; i++) node_at[(int)plan->nodes[i].stream * c.n + plan->nodes[i].seq] = i;
    for (int i = 0; i < c.n; i++) search(plan, &c, node_at, i, i);
    free(node_at);
    return c;
}

void closure_destroy(closure *c) { free(c->before); }

static bool is_shared_output(const mm_plan *plan, const mm_use *use) {
    return use->access == MM_WRITE && plan->alias[use->tensor] != use->tensor;
}

access *plan_accesses(const mm_plan *plan, int *n_out) {
    access *list = allocate((size_t)(plan->n_bindings + 4 * plan->n_nodes) * 2, sizeof *list);
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (mm_node_runs_step(node)) {
            const mm_step_info *step = mm_graph_step(plan->graph, node->step);
            for (int u = 0; u < step->n_uses; u++) {
                int segment = plan->bindings[node->first_binding + u];
                bool write = step->uses[u].access != MM_READ && !is_shared_output(plan, &step->uses[u]);
                if (segment >= 0) list[n++] = (access){i, segment, u, write};
            }
        } else {
            list[n++] = (access){i, node->src, -1, false};
            list[n++] = (access){i, node->dst, -1, true};
        }
        if (node->work >= 0) list[n++] = (access){i, node->work, -1, true};
        if (node->stage >= 0) list[n++] = (access){i, node->stage, -1, true};
    }
    *n_out = n;
    return list;
}

bool plan_inplace(const mm_plan *plan, int node, int input, int output) {
    const mm_node *n = &plan->nodes[node];
    if (!mm_node_runs_step(n) || input < 0 || output < 0) return false;
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    const mm_segment *a = &plan->segments[plan->bindings[n->first_binding + input]];
    const mm_segment *b = &plan->segments[plan->bindings[n->first_binding + output]];
    if (a == b || a->offset != b->offset || a->content != MM_CONTENT_RAW) return false;
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].input == step->uses[input].tensor && step->pairs[p].output == step->uses[output].tensor)
            return true;
    return false;
}

/* ---------------------------------------------------------------- form */

static bool known(int index, int n) { return index >= 0 && index < n; }
static bool known_or_none(int index, int n) { return index == -1 || known(index, n); }

bool plan_walkable(const mm_plan *plan) {
    int32_t seen[MM_STREAM_COUNT] = {0};
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++)
        if (!known(plan->alias[t], mm_graph_tensors(plan->graph))) return false;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if ((unsigned)s->content > MM_CONTENT_WORK || (unsigned)s->category >= MM_CATEGORIES) return false;
        if (!known_or_none(s->tensor, mm_graph_tensors(plan->graph))) return false;
        if (s->bytes < 1 || s->bytes > INT64_C(1) << 50) return false;
        if (!s->dynamic && (s->offset < 0 || s->offset > INT64_C(1) << 50)) return false;
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if ((unsigned)n->kind > MM_NODE_RECOMPUTE || (unsigned)n->stream >= MM_STREAM_COUNT) return false;
        if (n->seq != seen[n->stream]) return false;
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (n->wait[s] < -1 || n->wait[s] >= seen[s]) return false;
        seen[n->stream]++;
        bool step = mm_node_runs_step(n);
        if (!known_or_none(n->work, plan->n_segments) || !known_or_none(n->stage, plan->n_segments)) return false;
        if (!known_or_none(n->src, plan->n_segments) || !known_or_none(n->dst, plan->n_segments)) return false;
        if (!step && (n->src < 0 || n->dst < 0 || !known(n->tensor, mm_graph_tensors(plan->graph)))) return false;
        if (!step) continue;
        if (!known(n->step, mm_graph_steps(plan->graph))) return false;
        int n_uses = mm_graph_step(plan->graph, n->step)->n_uses;
        if (n->first_binding < 0 || n->first_binding + (int64_t)n_uses > plan->n_bindings) return false;
        for (int u = 0; u < n_uses; u++)
            if (!known_or_none(plan->bindings[n->first_binding + u], plan->n_segments)) return false;
    }
    return memcmp(seen, plan->stream_nodes, sizeof seen) == 0;
}

static bool managed(const mm_plan *plan, mm_tensor t) {
    return mm_graph_tensor(plan->graph, t)->ownership == MM_MANAGED;
}

static bool good_segment(const mm_plan *plan, const mm_facts *facts, const mm_limits *limits, const mm_segment *s) {
    if ((s->content == MM_CONTENT_CODED) != (s->codec != -1)) return false;
    if (s->pinned && (s->content == MM_CONTENT_WORK || s->dynamic)) return false;
    if (!s->dynamic && (s->offset % MM_ALIGN || s->offset < (s->pinned ? 0 : limits->base_bytes))) return false;
    if (s->content == MM_CONTENT_WORK) return s->tensor == -1;
    if (s->tensor < 0 || !managed(plan, s->tensor) || plan->alias[s->tensor] != s->tensor) return false;
    if (s->content == MM_CONTENT_RAW) return s->bytes >= mm_graph_tensor(plan->graph, s->tensor)->bytes;
    return known(s->codec, facts->n_codecs) && mm_facts_code(facts, s->codec, s->tensor)->code_bytes == s->bytes;
}

static bool good_work(const mm_plan *plan, int segment, int64_t bytes) {
    if (segment < 0) return bytes == 0;
    return plan->segments[segment].content == MM_CONTENT_WORK && plan->segments[segment].bytes >= bytes;
}

/* A step, for the first time or again. */
static bool good_run(const mm_plan *plan, const mm_facts *facts, const mm_node *n) {
    if (n->stream != MM_STREAM_COMPUTE || n->src != -1 || n->dst != -1 || n->stage != -1 || n->tensor != -1 ||
        n->throttle != 0)
        return false;
    int first = facts->variant_first[n->step], count = facts->variant_first[n->step + 1] - first;
    if (!known(n->variant, count)) return false;
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor t = step->uses[u].tensor;
        int segment = plan->bindings[n->first_binding + u];
        if (managed(plan, t) ? segment < 0 || plan->segments[segment].tensor != plan->alias[t] : segment != -1)
            return false;
        if (segment >= 0 && plan->segments[segment].pinned && plan->segments[segment].content == MM_CONTENT_RAW)
            return false;
    }
    return good_work(plan, n->work, facts->variants[first + n->variant].workspace_bytes);
}

/* What is run again has been run, and does nothing but write managed tensors anew. */
static bool good_recompute(const mm_plan *plan, const mm_facts *facts, const mm_node *n, int steps) {
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    if (n->step >= steps || step->phase != MM_FORWARD) return false;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (managed(plan, use->tensor) ? use->access == MM_MODIFY || is_shared_output(plan, use)
                                       : use->access == MM_WRITE)
            return false;
    }
    return good_run(plan, facts, n);
}

static bool good_move(const mm_plan *plan, const mm_node *n) {
    bool out = n->kind == MM_NODE_OUT;
    const mm_segment *src = &plan->segments[n->src], *dst = &plan->segments[n->dst];
    if (n->stream != (out ? MM_STREAM_OUT : MM_STREAM_IN) || n->step != -1 || n->work != -1 || n->stage != -1 ||
        n->throttle != 0)
        return false;
    if (src->pinned == out || dst->pinned != out) return false;
    if (src->content == MM_CONTENT_WORK || src->tensor != n->tensor || dst->tensor != n->tensor) return false;
    return src->content == dst->content && src->codec == dst->codec && src->bytes == dst->bytes;
}

static bool good_op(const mm_plan *plan, const mm_facts *facts, const mm_node *n) {
    if (n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN) return good_move(plan, n);
    bool encode = n->kind == MM_NODE_ENCODE;
    if (n->stream != (encode ? MM_STREAM_ENCODE : MM_STREAM_DECODE) || n->step != -1) return false;
    if (n->throttle < 0 || (n->throttle > 0 && !encode)) return false;
    const mm_segment *raw = &plan->segments[encode ? n->src : n->dst];
    const mm_segment *code = &plan->segments[encode ? n->dst : n->src];
    if (raw->content != MM_CONTENT_RAW || code->content != MM_CONTENT_CODED) return false;
    if (raw->tensor != n->tensor || code->tensor != n->tensor || raw->pinned) return false;
    if (!encode && !facts->codecs[code->codec].gives_value) return false;
    if (n->stage >= 0 && (!encode || !good_work(plan, n->stage, code->bytes))) return false;
    return good_work(plan, n->work, mm_facts_code(facts, code->codec, n->tensor)->scratch_bytes);
}

static bool good_form(const mm_plan *plan, const mm_facts *facts, const mm_limits *limits) {
    int steps = 0;
    if (!plan_walkable(plan)) return false;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        mm_tensor root = plan->alias[t];
        if (plan->alias[root] != root || (root != t && (!managed(plan, t) || !managed(plan, root)))) return false;
    }
    for (int i = 0; i < plan->n_segments; i++)
        if (!good_segment(plan, facts, limits, &plan->segments[i])) return false;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->wait[n->stream] != -1) return false;
        bool good = n->kind == MM_NODE_RECOMPUTE ? good_recompute(plan, facts, n, steps)
                    : n->kind == MM_NODE_STEP    ? n->step == steps++ && good_run(plan, facts, n)
                                                 : good_op(plan, facts, n);
        if (!good) return false;
    }
    return steps == mm_graph_steps(plan->graph);
}

/* ---------------------------------------------------------------- races and lifetimes */

/* Dynamic segments lie nowhere else. */
static bool overlap(const mm_plan *plan, int a, int b) {
    const mm_segment *x = &plan->segments[a], *y = &plan->segments[b];
    if (a == b) return true;
    if (x->dynamic || y->dynamic || x->pinned != y->pinned) return false;
    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static bool no_races(const mm_plan *plan, const closure *c, const access *list, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            const access *a = &list[j], *b = &list[i];
            if (!(a->write || b->write) || !overlap(plan, a->segment, b->segment)) continue;
            if (a->node == b->node) {
                const access *reader = a->write ? b : a, *writer = a->write ? a : b;
                if (reader->write || !plan_inplace(plan, a->node, reader->use, writer->use)) return false;
            } else if (!closure_before(c, a->node, b->node) && !closure_before(c, b->node, a->node)) {
                return false;
            }
        }
    return true;
}

static int last_user(const access *list, int n, int segment) {
    for (int i = n - 1; i >= 0; i--)
        if (list[i].segment == segment) return list[i].node;
    return -1;
}

static int first_user(const access *list, int n, int segment) {
    for (int i = 0; i < n; i++)
        if (list[i].segment == segment) return list[i].node;
    return -1;
}

/* All users of `a` end before any of `b`'s starts; but both may have the node where `b` begins: in place (no_races has
 * found whether that is allowed). */
static bool all_before(const closure *c, const access *list, int n, int a, int b) {
    int begin = first_user(list, n, b);
    for (int i = 0; i < n; i++) {
        if (list[i].segment != a) continue;
        for (int j = 0; j < n; j++)
            if (list[j].segment == b && !closure_before(c, list[i].node, list[j].node) &&
                !(list[i].node == begin && list[j].node == begin))
                return false;
    }
    return true;
}

static bool no_mixed_lives(const mm_plan *plan, const closure *c, const access *list, int n) {
    for (int a = 0; a < plan->n_segments; a++)
        for (int b = 0; b < a; b++)
            if (overlap(plan, a, b) && !all_before(c, list, n, a, b) && !all_before(c, list, n, b, a)) return false;
    return true;
}

/* Somebody comes to something that a recomputation wrote. */
static bool good_recomputed(const mm_plan *plan, const access *list, int n) {
    for (int node = 0; node < plan->n_nodes; node++) {
        bool used = plan->nodes[node].kind != MM_NODE_RECOMPUTE;
        for (int i = 0; i < n && !used; i++)
            used = list[i].node == node && list[i].write && last_user(list, n, list[i].segment) > node;
        if (!used) return false;
    }
    return true;
}

/* Workspaces have one user, operations' targets are new, everything has a user and is written first: that the right
 * bytes happen to lie there does not do. */
static bool good_users(const mm_plan *plan, const access *list, int n) {
    for (int s = 0; s < plan->n_segments; s++) {
        int users = 0;
        for (int i = 0; i < n; i++) {
            if (list[i].segment != s) continue;
            if (users++ == 0 && !list[i].write) return false;
        }
        if (users == 0 || (plan->segments[s].content == MM_CONTENT_WORK && users != 1)) return false;
    }
    for (int i = 0; i < n; i++) {
        const mm_node *node = &plan->nodes[list[i].node];
        if (!mm_node_runs_step(node) && list[i].write && first_user(list, n, list[i].segment) != list[i].node)
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------- the bytes played through */

/* What a run of bytes holds. */
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
    const mm_facts *facts;
    int64_t *ends[2]; /* of static segments, by memory; cells lie between neighbours */
    int n_ends[2];
    tag *cells[2];
    tag *dynamic; /* one cell for each segment */
    int *current; /* per tensor; fixed ones have numbers too */
    int *seen;    /* per binding of a step that ran: the value there */
    int *ran;     /* per step: its node */
    bool *used;   /* per node: an operation's result was read */
    int values;
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
    while (p->ends[s->pinned][first] < s->offset) first++;
    while (p->ends[s->pinned][end] < s->offset + s->bytes) end++;
    *n_out = end - first;
    return &p->cells[s->pinned][first];
}

static void put(player *p, int segment, tag t) {
    int n;
    tag *cells = cells_of(p, segment, &n);
    for (int i = 0; i < n; i++) cells[i] = t;
}

/* What the whole segment holds, if that is one value in the form that the segment says. */
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
    return true;
}

static bool read_use(player *p, const mm_use *use, int segment, int value, bool *exact) {
    tag t;
    if (!get(p, segment, &t) || t.value != value) return false;
    if (use->form == MM_FORM_SIGN && !t.exact) return false;
    *exact = *exact && t.exact;
    return t.content == MM_CONTENT_RAW || (use->form == MM_FORM_SIGN && p->facts->codecs[t.codec].gives_sign);
}

/* An output that shares storage: in the segment of an input that it equals. */
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
    bool exact = true; /* does not matter */
    p->ran[n->step] = node;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        seen[u] = p->current[use->tensor];
        if (bindings[u] >= 0 && use->access != MM_WRITE && !read_use(p, use, bindings[u], seen[u], &exact))
            return false;
    }
    for (int u = 0; u < step->n_uses; u++)
        if (bindings[u] >= 0 && is_shared_output(p->plan, &step->uses[u]) && !share_use(p, step, bindings, u))
            return false;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (use->access == MM_READ || is_shared_output(p->plan, use)) continue;
        p->current[use->tensor] = p->values++;
        if (use->access == MM_WRITE) seen[u] = p->current[use->tensor];
        if (bindings[u] < 0) continue;
        const mm_segment *s = &p->plan->segments[bindings[u]];
        if (s->content != MM_CONTENT_RAW) return false;
        put(p, bindings[u], (tag){p->current[use->tensor], true, MM_CONTENT_RAW, -1, s->tensor, -1});
    }
    return true;
}

/* From what the step found when it ran: the same as then. */
static bool play_recompute(player *p, int node) {
    const mm_node *n = &p->plan->nodes[node], *ran = &p->plan->nodes[p->ran[n->step]];
    const mm_step_info *step = mm_graph_step(p->plan->graph, n->step);
    const int32_t *bindings = &p->plan->bindings[n->first_binding];
    const int *seen = &p->seen[ran->first_binding];
    bool exact =
        n->variant == ran->variant && p->facts->variants[p->facts->variant_first[n->step] + n->variant].deterministic;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
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

static bool play_op(player *p, int node) {
    const mm_node *n = &p->plan->nodes[node];
    tag t;
    if (!get(p, n->src, &t)) return false;
    const mm_segment *dst = &p->plan->segments[n->dst];
    if (n->kind == MM_NODE_DECODE) t.exact = t.exact && p->facts->codecs[t.codec].lossless;
    t.content = dst->content;
    t.codec = dst->codec;
    t.op = node;
    put(p, n->dst, t);
    return true;
}

static bool play(player *p) {
    static const tag nothing = {.value = -1, .op = -1};
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < p->n_ends[m]; i++) p->cells[m][i] = nothing;
    for (int i = 0; i < p->plan->n_segments; i++) p->dynamic[i] = nothing;
    for (int t = 0; t < mm_graph_tensors(p->plan->graph); t++) p->current[t] = -2;
    for (int i = 0; i < p->plan->n_nodes; i++) {
        const mm_node *n = &p->plan->nodes[i];
        bool right = n->kind == MM_NODE_STEP        ? play_step(p, i)
                     : n->kind == MM_NODE_RECOMPUTE ? play_recompute(p, i)
                                                    : play_op(p, i);
        if (!right) return false;
        if (n->work >= 0) put(p, n->work, nothing);
        if (n->stage >= 0) put(p, n->stage, nothing);
    }
    for (int i = 0; i < p->plan->n_nodes; i++)
        if (!mm_node_runs_step(&p->plan->nodes[i]) && !p->used[i]) return false;
    return true;
}

static bool plays_right(const mm_plan *plan, const mm_facts *facts) {
    player p = {.plan = plan, .facts = facts};
    for (int m = 0; m < 2; m++) {
        p.ends[m] = allocate(2 * (size_t)plan->n_segments, sizeof *p.ends[m]);
        for (int i = 0; i < plan->n_segments; i++) {
            const mm_segment *s = &plan->segments[i];
            if (s->dynamic || (int)s->pinned != m) continue;
            p.ends[m][p.n_ends[m]++] = s->offset;
            p.ends[m][p.n_ends[m]++] = s->offset + s->bytes;
        }
        qsort(p.ends[m], (size_t)p.n_ends[m], sizeof *p.ends[m], by_value);
        p.cells[m] = allocate((size_t)p.n_ends[m], sizeof *p.cells[m]);
    }
    p.dynamic = allocate((size_t)plan->n_segments, sizeof *p.dynamic);
    p.current = allocate((size_t)mm_graph_tensors(plan->graph), sizeof *p.current);
    p.seen = allocate((size_t)plan->n_bindings, sizeof *p.seen);
    p.ran = allocate((size_t)mm_graph_steps(plan->graph), sizeof *p.ran);
    p.used = allocate((size_t)plan->n_nodes, sizeof *p.used);
    bool right = play(&p);
    for (int m = 0; m < 2; m++) {
        free(p.ends[m]);
        free(p.cells[m]);
    }
    free(p.dynamic);
    free(p.current);
    free(p.seen);
    free(p.ran);
    free(p.used);
    return right;
}

/* ---------------------------------------------------------------- sums */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static bool good_heap(const mm_plan *plan, const mm_limits *limits, const access *list, int n) {
    if (plan->heap_bytes < 0 || plan->heap_offset < 0 || plan->heap_offset % MM_ALIGN) return false;
    if (plan->heap_bytes > 0 && plan->heap_offset < limits->base_bytes) return false;
    if (plan->heap_code_bytes < 0 || plan->heap_code_bytes > plan->heap_bytes || plan->heap_code_bytes % MM_ALIGN)
        return false;
    bool good = true;
    int64_t capacity[2] = {plan->heap_bytes - plan->heap_code_bytes, plan->heap_code_bytes};
    int64_t *live[2];
    for (int part = 0; part < 2; part++) live[part] = allocate((size_t)plan->n_nodes, sizeof *live[part]);
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        int part = s->content == MM_CONTENT_CODED, last = last_user(list, n, i);
        for (int node = first_user(list, n, i); s->dynamic && node <= last; node++)
            good &= (live[part][node] += mm_align(s->bytes)) <= capacity[part];
        good &= s->dynamic || s->pinned || plan->heap_bytes == 0 || s->offset + s->bytes <= plan->heap_offset ||
                s->offset >= plan->heap_offset + plan->heap_bytes;
    }
    free(live[0]);
    free(live[1]);
    return good;
}

/* A dynamic segment goes when its last user in issue order ends: by then all others have. */
static bool good_frees(const mm_plan *plan, const closure *c, const access *list, int n) {
    for (int i = 0; i < n; i++) {
        if (!plan->segments[list[i].segment].dynamic) continue;
        int last = last_user(list, n, list[i].segment);
        if (list[i].node != last && !closure_before(c, list[i].node, last)) return false;
    }
    return true;
}

static bool good_sums(const mm_plan *plan, const access *list, int n) {
    int64_t extent = plan->base_bytes, pinned = 0, external = 0;
    if (plan->heap_bytes > 0) extent = larger(extent, plan->heap_offset + plan->heap_bytes);
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        int last = last_user(list, n, i);
        if (s->first_node != first_user(list, n, i) || s->last_node != last) return false;
        bool kept = plan->keeps_all && s->live_last == plan->n_nodes - 1;
        if (s->live_last != last && s->live_last != last - 1 && !kept) return false;
        if (s->dynamic) continue;
        if (s->pinned)
            pinned = larger(pinned, s->offset + s->bytes);
        else
            extent = larger(extent, s->offset + s->bytes);
    }
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++)
        if (mm_graph_tensor(plan->graph, t)->ownership == MM_EXTERNAL)
            external += mm_graph_tensor(plan->graph, t)->bytes;
    return plan->extent_bytes == extent && plan->pinned_bytes == pinned && plan->external_bytes == external &&
           plan->peak_bytes == extent + external;
}

mm_status plan_oracle(const mm_plan *plan, const mm_facts *facts, const mm_limits *limits, const char **why_out) {
    *why_out = "form";
    if (!good_form(plan, facts, limits)) return MM_ERR_PLAN;
    int n;
    access *list = plan_accesses(plan, &n);
    closure c = closure_create(plan);
    const char *why = NULL;
    if (!good_users(plan, list, n) || !good_recomputed(plan, list, n))
        why = "users";
    else if (!no_races(plan, &c, list, n))
        why = "race";
    else if (!no_mixed_lives(plan, &c, list, n))
        why = "lives";
    else if (!plays_right(plan, facts))
        why = "values";
    else if (!good_frees(plan, &c, list, n))
        why = "frees";
    else if (plan->base_bytes < limits->base_bytes || !good_heap(plan, limits, list, n) || !good_sums(plan, list, n))
        why = "sums";
    closure_destroy(&c);
    free(list);
    *why_out = why ? why : "limits";
    if (why) return MM_ERR_PLAN;
    return plan->peak_bytes > limits->device_bytes || plan->pinned_bytes > limits->pinned_bytes ? MM_ERR_INFEASIBLE
                                                                                                : MM_OK;
}
