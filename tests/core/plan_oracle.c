/* SPDX-License-Identifier: MIT */
#include "tests/core/plan_oracle.h"

#include "tests/core/plan_oracle_parts.h"

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
    closure c = {.n = plan->n_nodes, .before = oracle_allocate(n * n, sizeof *c.before)};
    int *node_at = oracle_allocate(MM_STREAM_COUNT * n, sizeof *node_at);
    for (int i = 0; i < c.n; i++) node_at[(int)plan->nodes[i].stream * c.n + plan->nodes[i].seq] = i;
    for (int i = 0; i < c.n; i++) search(plan, &c, node_at, i, i);
    free(node_at);
    return c;
}

void closure_destroy(closure *c) { free(c->before); }

access *plan_accesses(const mm_plan *plan, int *n_out) {
    access *list = oracle_allocate((size_t)plan->n_bindings + 6 * (size_t)plan->n_nodes, sizeof *list);
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (mm_node_runs_step(node)) {
            const mm_step_info *step = mm_graph_step(plan->graph, node->step);
            for (int u = 0; u < step->n_uses; u++) {
                int segment = plan->bindings[node->first_binding + u];
                bool write = step->uses[u].access != MM_READ && !oracle_shares(plan, &step->uses[u]);
                if (node->kind == MM_NODE_RECOMPUTE && step->uses[u].access == MM_MODIFY) write = false;
                if (segment >= 0) list[n++] = (access){i, segment, u, write};
            }
            for (int u = 0; u < step->n_uses; u++)
                if (oracle_code(plan, node, u) >= 0) list[n++] = (access){i, oracle_code(plan, node, u), -1, true};
        } else {
            list[n++] = (access){i, node->src, -1, false};
            if (node->dst >= 0) list[n++] = (access){i, node->dst, -1, true};
        }
        if (node->work >= 0) list[n++] = (access){i, node->work, -1, true};
        if (node->stage >= 0) list[n++] = (access){i, node->stage, -1, true};
        const mm_segment *code = oracle_body(plan, node);
        if (!code) continue;
        const int spill = plan->segments[code->pool].spill;
        list[n++] = (access){i, code->pool, -1, node->kind == MM_NODE_ENCODE};
        if (spill >= 0) list[n++] = (access){i, spill, -1, node->kind == MM_NODE_ENCODE};
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
    if (oracle_code(plan, n, input) >= 0) return false; /* the step may encode the input after writing the output */
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].input == step->uses[input].tensor && step->pairs[p].output == step->uses[output].tensor)
            return true;
    return false;
}

/* ---------------------------------------------------------------- races and lifetimes */

/* Whether two segments share bytes. Dynamic segments share none: they are placed at run time. */
static bool overlap(const mm_plan *plan, int a, int b) {
    const mm_segment *x = &plan->segments[a], *y = &plan->segments[b];
    if (a == b) return true;
    if (x->dynamic || y->dynamic || x->memory != y->memory) return false;
    return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

/* Nodes that use one pool need not wait for each other: the bodies in it lie apart. */
static bool no_races(const mm_plan *plan, const closure *c, const access *list, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            const access *a = &list[j], *b = &list[i];
            if (!(a->write || b->write) || !overlap(plan, a->segment, b->segment)) continue;
            if (a->segment == b->segment && oracle_is_pool(plan, a->segment)) continue;
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

/* The nodes that use each segment: of segment s, nodes[first[s]] to nodes[first[s + 1] - 1], in issue order. */
typedef struct users {
    int *first, *nodes;
} users;

static users users_create(const mm_plan *plan, const access *list, int n) {
    users u = {oracle_allocate((size_t)plan->n_segments + 1, sizeof *u.first),
               oracle_allocate((size_t)n, sizeof *u.nodes)};
    int placed = 0;
    for (int s = 0; s < plan->n_segments; s++) {
        u.first[s] = placed;
        for (int i = 0; i < n; i++)
            if (list[i].segment == s) u.nodes[placed++] = list[i].node;
    }
    u.first[plan->n_segments] = placed;
    return u;
}

/* Whether all users of `a` end before any user of `b` starts. The first user of `b` may also use `a`, in place:
 * no_races has checked that this is allowed. */
static bool all_before(const closure *c, const users *u, int a, int b) {
    const int begin = u->nodes[u->first[b]];
    for (int i = u->first[a]; i < u->first[a + 1]; i++)
        for (int j = u->first[b]; j < u->first[b + 1]; j++) {
            const int before = u->nodes[i], after = u->nodes[j];
            if (!closure_before(c, before, after) && !(before == begin && after == begin)) return false;
        }
    return true;
}

/* Whether segments that share bytes live one after the other. Each has users: good_users has checked that. */
static bool no_mixed_lives(const mm_plan *plan, const closure *c, const access *list, int n) {
    users u = users_create(plan, list, n);
    bool right = true;
    for (int a = 0; a < plan->n_segments && right; a++)
        for (int b = 0; b < a && right; b++)
            right = !overlap(plan, a, b) || all_before(c, &u, a, b) || all_before(c, &u, b, a);
    free(u.first);
    free(u.nodes);
    return right;
}

static bool reads(const mm_plan *plan, const access *a) {
    const mm_node *n = &plan->nodes[a->node];
    return !a->write || (a->use >= 0 && mm_node_runs_step(n) &&
                         mm_graph_step(plan->graph, n->step)->uses[a->use].access == MM_MODIFY);
}

/* Whether a later node reads what the access wrote, before another writes there. list: in issue order. */
static bool is_read_later(const mm_plan *plan, const access *list, int n, const access *written) {
    for (int i = 0; i < n; i++)
        if (list[i].node > written->node && list[i].segment == written->segment) return reads(plan, &list[i]);
    return false;
}

/* Whether a later node reads something that each recomputation wrote. */
static bool good_recomputed(const mm_plan *plan, const access *list, int n) {
    for (int node = 0; node < plan->n_nodes; node++) {
        bool used = plan->nodes[node].kind != MM_NODE_RECOMPUTE;
        for (int i = 0; i < n && !used; i++)
            used = list[i].node == node && list[i].write && is_read_later(plan, list, n, &list[i]);
        if (!used) return false;
    }
    return true;
}

/* Whether each operation of a side stream on a persistent tensor, and each step on the host, comes after some step on
 * the device. */
static bool good_begin(const mm_plan *plan, const closure *c, const access *list, int n) {
    for (int i = 0; i < n; i++) {
        bool after = mm_node_computes(&plan->nodes[list[i].node]) || !oracle_persists(plan, list[i].segment);
        for (int node = 0; node < plan->n_nodes && !after; node++)
            after = mm_node_computes(&plan->nodes[node]) && closure_before(c, node, list[i].node);
        if (!after) return false;
    }
    return true;
}

/* Whether workspaces have one user, targets of operations are new, only one stream writes to a pool, and every segment
 * is used, first by a write: what another segment left in its bytes does not count. Persistent tensors need none. */
static bool good_users(const mm_plan *plan, const access *list, int n) {
    for (int s = 0; s < plan->n_segments; s++) {
        int users = 0;
        for (int i = 0; i < n; i++) {
            if (list[i].segment != s) continue;
            if (users++ == 0 && !list[i].write && !oracle_persists(plan, s)) return false;
            if (oracle_is_pool(plan, s) && list[i].write && plan->nodes[list[i].node].stream != MM_STREAM_ENCODE)
                return false;
        }
        if (users == 0 || (plan->segments[s].content == MM_CONTENT_WORK && users != 1)) return false;
    }
    for (int i = 0; i < n; i++) {
        const mm_node *node = &plan->nodes[list[i].node];
        const bool codes = plan->segments[list[i].segment].content == MM_CONTENT_CODED && list[i].use < 0;
        if ((!mm_node_runs_step(node) || codes) && !oracle_persists(plan, list[i].segment) && list[i].write &&
            !oracle_is_pool(plan, list[i].segment) && first_user(list, n, list[i].segment) != list[i].node)
            return false;
    }
    return true;
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
    for (int part = 0; part < 2; part++) live[part] = oracle_allocate((size_t)plan->n_nodes, sizeof *live[part]);
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        int part = s->content == MM_CONTENT_CODED, last = last_user(list, n, i);
        for (int node = first_user(list, n, i); s->dynamic && node <= last; node++)
            good &= (live[part][node] += mm_align(s->bytes)) <= capacity[part];
        good &= s->dynamic || s->memory != MM_MEM_DEVICE || plan->heap_bytes == 0 ||
                s->offset + s->bytes <= plan->heap_offset || s->offset >= plan->heap_offset + plan->heap_bytes;
    }
    free(live[0]);
    free(live[1]);
    return good;
}

/* Whether all other users of a dynamic segment end before its last user in issue order does, which frees it. */
static bool good_frees(const mm_plan *plan, const closure *c, const access *list, int n) {
    for (int i = 0; i < n; i++) {
        if (!plan->segments[list[i].segment].dynamic) continue;
        int last = last_user(list, n, list[i].segment);
        if (list[i].node != last && !closure_before(c, list[i].node, last)) return false;
    }
    return true;
}

static bool good_sums(const mm_plan *plan, const access *list, int n) {
    int64_t ends[MM_MEMORY_COUNT] = {plan->base_bytes, plan->pinned_base_bytes, plan->disk_base_bytes}, external = 0;
    if (plan->heap_bytes > 0) ends[0] = larger(ends[0], plan->heap_offset + plan->heap_bytes);
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        int last = last_user(list, n, i);
        if (s->first_node != first_user(list, n, i) || s->last_node != last) return false;
        bool kept = plan->keeps_all && s->live_last == plan->n_nodes - 1;
        if (s->live_last != last && s->live_last != last - 1 && !kept) return false;
        if (s->dynamic || oracle_persists(plan, i)) continue;
        ends[s->memory] = larger(ends[s->memory], s->offset + s->bytes);
    }
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++)
        if (mm_graph_tensor(plan->graph, t)->ownership == MM_EXTERNAL)
            external += mm_graph_tensor(plan->graph, t)->bytes;
    return plan->extent_bytes == ends[0] && plan->pinned_bytes == ends[1] && plan->disk_bytes == ends[2] &&
           plan->external_bytes == external && plan->peak_bytes == ends[0] + external;
}

mm_status plan_oracle(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits,
                      plan_contents *contents_out, const char **why_out) {
    *why_out = "form";
    if (!oracle_form(plan, facts, limits)) return MM_ERR_PLAN;
    int n;
    access *list = plan_accesses(plan, &n);
    closure c = closure_create(plan);
    const char *why = NULL;
    if (!good_users(plan, list, n) || !good_recomputed(plan, list, n))
        why = "users";
    else if (!good_begin(plan, &c, list, n))
        why = "begin";
    else if (!no_races(plan, &c, list, n))
        why = "race";
    else if (!no_mixed_lives(plan, &c, list, n))
        why = "lives";
    else if (!oracle_plays(plan, facts, contents_out))
        why = "values";
    else if (!good_frees(plan, &c, list, n))
        why = "frees";
    else if (plan->base_bytes < limits->base_bytes || plan->pinned_base_bytes < limits->pinned_base_bytes ||
             plan->disk_base_bytes < limits->disk_base_bytes || !good_heap(plan, limits, list, n) ||
             !good_sums(plan, list, n))
        why = "sums";
    closure_destroy(&c);
    free(list);
    *why_out = why ? why : "limits";
    if (why) return MM_ERR_PLAN;
    const bool fits = plan->peak_bytes <= limits->device_bytes && plan->pinned_bytes <= limits->pinned_bytes &&
                      plan->disk_bytes <= limits->disk_bytes;
    return fits ? MM_OK : MM_ERR_INFEASIBLE;
}
