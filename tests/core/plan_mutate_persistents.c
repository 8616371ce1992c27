/* SPDX-License-Identifier: MIT */
/* Mutations of persistent tensors: moved, over each other, mistaken, touched too early, put back too late; and of their
 * visits: a home in the other memory, used by a step, or not written back. */
#include "tests/core/plan_mutate_parts.h"
#include "tests/core/random_graph.h"

static mm_segment *find_persistent(mutant *m) {
    return &m->plan->segments[mutant_below(m, mm_graph_persistents(m->plan->graph))];
}

static bool move_persistent(mutant *m) {
    find_persistent(m)->offset += MM_ALIGN * (int64_t)(mutant_below(m, 5) - 2);
    return true;
}

/* Two persistent tensors lie in one place. */
static bool persistent_over_another(mutant *m) {
    mm_segment *s = find_persistent(m), *other = find_persistent(m);
    s->offset = other->offset;
    return s != other;
}

static bool swap_persistents(mutant *m) {
    mm_segment *s = find_persistent(m), *other = find_persistent(m), old = *s;
    *s = *other;
    *other = old;
    return s != other;
}

static bool lower_base(mutant *m) {
    m->limits.base_bytes -= MM_ALIGN;
    return m->limits.base_bytes >= 0;
}

/* A persistent tensor counts as a map, or another segment as persistent. */
static bool other_category(mutant *m) {
    mm_segment *s = mutant_below(m, 2) ? find_persistent(m) : mutant_segment(m);
    s->category = s->category == MM_CAT_PERSISTENT ? MM_CAT_FEATURE_MAP : MM_CAT_PERSISTENT;
    return true;
}

/* A step uses a copy of a persistent tensor in place of the tensor. */
static bool bind_copy(mutant *m) {
    const int n = mm_graph_persistents(m->plan->graph);
    int32_t *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_bindings; i++) {
        int32_t *binding = &m->plan->bindings[i];
        if (*binding >= 0 && *binding < n && mutant_find_sibling(m, *binding) >= 0 && mutant_below(m, ++seen) == 0)
            found = binding;
    }
    if (found) *found = mutant_find_sibling(m, *found);
    return found != NULL;
}

static mm_node *find_op(mutant *m, bool reads, bool writes) {
    const int n = mm_graph_persistents(m->plan->graph);
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++) {
        mm_node *node = &m->plan->nodes[i];
        if (node_is_op(node) && ((reads && node->src < n) || (writes && node->dst >= 0 && node->dst < n)) &&
            mutant_below(m, ++seen) == 0)
            found = node;
    }
    return found;
}

/* An operation on a persistent tensor waits for nothing. */
static bool touch_at_once(mutant *m) {
    mm_node *n = find_op(m, true, true);
    for (int s = 0; n && s < MM_STREAM_COUNT; s++) n->wait[s] = -1;
    return n != NULL;
}

/* A copy is made or put back later, perhaps after the tensor has changed. */
static bool touch_later(mutant *m) {
    mm_node *n = find_op(m, true, true);
    const int from = n ? (int)(n - m->plan->nodes) : 0;
    if (n) mutant_move_node(m->plan, from, from + mutant_below(m, m->plan->n_nodes - from));
    return n != NULL;
}

/* A copy is put back behind all nodes, and waits for every stream: only its content can be wrong. */
static bool put_back_last(mutant *m) {
    mm_node *n = find_op(m, false, true);
    if (!n) return false;
    mutant_move_node(m->plan, (int)(n - m->plan->nodes), m->plan->n_nodes - 1);
    n = &m->plan->nodes[m->plan->n_nodes - 1];
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (s != (int)n->stream) n->wait[s] = m->plan->stream_nodes[s] - 1;
    return true;
}

/* A persistent tensor comes back from a lossy code, even if a step then overwrites it. */
static bool lossy_trip(mutant *m) {
    const mm_node *n = find_op(m, false, true);
    bool any = false;
    for (int i = 0; n && i < m->plan->n_segments; i++) {
        mm_segment *s = &m->plan->segments[i];
        const int64_t bytes = mm_facts_code(m->facts, RANDOM_LOSSY, n->tensor)->code_bytes;
        if (s->tensor != n->tensor || s->content != MM_CONTENT_CODED || s->pool >= 0 || bytes < 0) continue;
        s->codec = RANDOM_LOSSY;
        s->bytes = bytes;
        any = true;
    }
    return any;
}

/* ---------------------------------------------------------------- homes in pinned memory, or on the disk */

static bool is_home(const mutant *m, int segment) {
    return segment >= 0 && segment < mm_graph_persistents(m->plan->graph) &&
           m->plan->segments[segment].memory != MM_MEM_DEVICE;
}

/* A home is in another memory than the limits say. */
static bool home_in_other_memory(mutant *m) {
    mm_segment *s = find_persistent(m);
    s->memory = (mm_memory)(((int)s->memory + 1 + mutant_below(m, MM_MEMORY_COUNT - 1)) % MM_MEMORY_COUNT);
    return true;
}

/* A step uses the home itself in place of the copy on the device. */
static bool bind_home(mutant *m) {
    int32_t *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_bindings; i++) {
        int32_t *binding = &m->plan->bindings[i];
        if (*binding < 0 || m->plan->segments[*binding].category != MM_CAT_VISIT) continue;
        if (mutant_below(m, ++seen) == 0) found = binding;
    }
    if (found) *found = mm_graph_tensor(m->plan->graph, m->plan->segments[*found].tensor)->persistent;
    return found != NULL;
}

/* A copy from or to a home; NULL: there is none. */
static mm_node *find_visit(mutant *m, bool to_home) {
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++) {
        mm_node *node = &m->plan->nodes[i];
        if (node_is_op(node) && is_home(m, to_home ? node->dst : node->src) && mutant_below(m, ++seen) == 0)
            found = node;
    }
    return found;
}

/* What a visit has written does not come home: the copy goes to another place. */
static bool come_home_elsewhere(mutant *m) {
    mm_node *n = find_visit(m, true);
    if (!n) return false;
    const mm_memory memory = m->plan->segments[n->dst].memory;
    const int64_t bytes = m->plan->segments[n->dst].bytes;
    const int elsewhere = mm_plan_segment(m->plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, n->tensor, bytes);
    if (elsewhere < 0) return false;
    m->plan->segments[elsewhere].memory = memory;
    m->plan->segments[elsewhere].offset = mm_memory_round(memory, *mm_plan_end(m->plan, memory));
    n->dst = elsewhere;
    return true;
}

/* A copy comes home before the step that writes it last. */
static bool come_home_early(mutant *m) {
    mm_node *n = find_visit(m, true);
    const int from = n ? (int)(n - m->plan->nodes) : 0;
    if (from > 0) mutant_move_node(m->plan, from, mutant_below(m, from));
    return from > 0;
}

/* A visit begins without a wait for the step that sends the value home, or for any. */
static bool visit_at_once(mutant *m) {
    mm_node *n = find_visit(m, false);
    for (int s = 0; n && s < MM_STREAM_COUNT; s++) n->wait[s] = -1;
    return n != NULL;
}

/* A visiting copy counts as a map, or as persistent. */
static bool visit_in_home_region(mutant *m) {
    mm_node *n = find_visit(m, false);
    if (!n) return false;
    mm_segment *s = &m->plan->segments[n->dst];
    const int64_t base = mm_limits_base(&m->limits, s->memory);
    s->offset = base - MM_ALIGN;
    return base >= MM_ALIGN;
}

/* Another segment lies where homes are. */
static bool lie_among_homes(mutant *m) {
    for (int i = mm_graph_persistents(m->plan->graph); i < m->plan->n_segments; i++) {
        mm_segment *s = &m->plan->segments[i];
        if (s->memory == MM_MEM_DEVICE || mm_limits_base(&m->limits, s->memory) == 0 || !mutant_below(m, 2)) continue;
        s->offset = 0;
        return true;
    }
    return false;
}

/* Whether an earlier node stores to the home that the node at `index` loads. */
static bool is_loaded_again(const mm_plan *plan, int index) {
    bool stored = false;
    for (int i = 0; plan->nodes[index].kind == MM_NODE_LOAD && i < index; i++)
        stored |= plan->nodes[i].kind == MM_NODE_STORE && plan->nodes[i].dst == plan->nodes[index].src;
    return stored;
}

/* A home on the disk is loaded without a wait for the store before. */
static bool load_home_before_store(mutant *m) {
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++)
        if (is_home(m, m->plan->nodes[i].src) && is_loaded_again(m->plan, i) && mutant_below(m, ++seen) == 0)
            found = &m->plan->nodes[i];
    for (int s = 0; found && s < MM_STREAM_COUNT; s++)
        if (s != MM_STREAM_COMPUTE) found->wait[s] = -1;
    return found != NULL;
}

/* What was stored to a home, or loaded from it, is copied on without a wait for that, or before it. */
static bool pass_on_early(mutant *m) {
    mm_node *n = find_visit(m, mutant_below(m, 2));
    const int through = !n ? -1 : n->kind == MM_NODE_STORE ? n->src : n->kind == MM_NODE_LOAD ? n->dst : -1;
    for (int i = 0; through >= 0 && i < m->plan->n_nodes; i++) {
        mm_node *other = &m->plan->nodes[i];
        if (other->src == through && other->kind == MM_NODE_IN) other->wait[MM_STREAM_LOAD] = -1;
    }
    if (through >= 0 && n->kind == MM_NODE_STORE) n->wait[MM_STREAM_OUT] = -1;
    return through >= 0;
}

/* Two homes are stored to each other's place. */
static bool exchange_homes(mutant *m) {
    mm_node *a = find_visit(m, true), *b = find_visit(m, true);
    if (!a || a == b || a->kind != b->kind) return false;
    const int32_t dst = a->dst;
    a->dst = b->dst;
    b->dst = dst;
    return a->dst != b->dst;
}

/* ---------------------------------------------------------------- steps on the host */

/* A step on the host begins without a wait for copies to or from its homes, or for any. */
static bool host_step_at_once(mutant *m) {
    mm_node *n = mutant_find_node(m, mm_node_on_host);
    const int all = n ? mutant_below(m, 2) : 0;
    for (int s = 0; n && s < MM_STREAM_COUNT; s++)
        if (all || s == MM_STREAM_OUT || s == MM_STREAM_IN) n->wait[s] = -1;
    return n != NULL;
}

/* A step on the host uses another segment than the home. */
static bool host_step_elsewhere(mutant *m) {
    const mm_node *n = mutant_find_node(m, mm_node_on_host);
    if (!n) return false;
    const int use = mutant_below(m, mm_graph_step(m->plan->graph, n->step)->n_uses);
    int32_t *binding = &m->plan->bindings[n->first_binding + use];
    const int other = mutant_find_sibling(m, *binding);
    if (other >= 0) *binding = other;
    return other >= 0;
}

/* A step on the host runs on the compute stream, or a step of the device on the host's. */
static bool step_of_other_stream(mutant *m) {
    mm_node *n = mutant_find_node(m, mm_node_on_host);
    if (!n) return false;
    n->stream = MM_STREAM_COMPUTE;
    n->wait[MM_STREAM_COMPUTE] = -1;
    mutant_renumber(m->plan);
    for (int i = 0; i < m->plan->n_nodes; i++)
        for (int s = 0; s < MM_STREAM_COUNT; s++) m->plan->nodes[i].wait[s] = -1;
    return true;
}

/* What a step on the host wrote is fetched without a wait for it. */
static bool fetch_before_the_host(mutant *m) {
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++)
        if (m->plan->nodes[i].wait[MM_STREAM_HOST] >= 0 && mutant_below(m, ++seen) == 0) found = &m->plan->nodes[i];
    if (found) found->wait[MM_STREAM_HOST] = -1;
    return found != NULL;
}

static bool raise_pinned_base(mutant *m) {
    m->limits.pinned_base_bytes += MM_ALIGN;
    return true;
}

static bool raise_disk_base(mutant *m) {
    m->limits.disk_base_bytes += mm_memory_align(MM_MEM_DISK);
    return true;
}

static bool lower_disk_base(mutant *m) {
    m->limits.disk_base_bytes -= mm_memory_align(MM_MEM_DISK);
    return m->limits.disk_base_bytes >= 0;
}

const mutation mutations_of_persistents[] = {
    {"move_persistent", move_persistent},
    {"persistent_over_another", persistent_over_another},
    {"swap_persistents", swap_persistents},
    {"lower_base", lower_base},
    {"other_category", other_category},
    {"bind_copy", bind_copy},
    {"touch_at_once", touch_at_once},
    {"touch_later", touch_later},
    {"put_back_last", put_back_last},
    {"lossy_trip", lossy_trip},
    {"home_in_other_memory", home_in_other_memory},
    {"bind_home", bind_home},
    {"come_home_elsewhere", come_home_elsewhere},
    {"come_home_early", come_home_early},
    {"visit_at_once", visit_at_once},
    {"visit_in_home_region", visit_in_home_region},
    {"lie_among_homes", lie_among_homes},
    {"load_home_before_store", load_home_before_store},
    {"pass_on_early", pass_on_early},
    {"exchange_homes", exchange_homes},
    {"raise_pinned_base", raise_pinned_base},
    {"raise_disk_base", raise_disk_base},
    {"lower_disk_base", lower_disk_base},
    {"host_step_at_once", host_step_at_once},
    {"host_step_elsewhere", host_step_elsewhere},
    {"step_of_other_stream", step_of_other_stream},
    {"fetch_before_the_host", fetch_before_the_host},
    {NULL, NULL},
};
