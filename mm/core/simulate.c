#include "mm/core/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

/* Bounds that keep every sum of a plan's times far inside 64 bits: a node takes less than 17 minutes, and computation
 * is slowed down at most tenfold. */
static const int64_t MAX_NODE_NS = INT64_C(1000000000000), MAX_ALLOC_NS = INT64_C(1000000000);
enum { DISTURBED_RATE = 1000, MAX_CONTENTION = 9000 };

/* Work is counted so that all is exact in integers: in a ns a node gets full_rate units done, and a step disturbed by a
 * side stream DISTURBED_RATE; full_rate is 1 + contention times that. */
typedef struct simulator {
    const mm_plan *plan;
    const mm_facts *facts;
    mm_sim_node *nodes;
    int32_t *node_at; /* nodes of stream s, in order, from first[s] */
    int32_t first[MM_STREAM_COUNT + 1];
    int32_t ended[MM_STREAM_COUNT];   /* how many nodes of each stream have */
    int32_t running[MM_STREAM_COUNT]; /* node; -1 */
    int64_t left[MM_STREAM_COUNT];    /* work of it */
    int64_t full_rate;
    int64_t now;
} simulator;

/* A copy over the link takes its bytes at the rate that the link has when it begins. A rate of 0 is not known. */
static int64_t link_ns(const mm_facts *facts, const mm_node *n, int64_t bytes, bool both) {
    bool out = n->kind == MM_NODE_OUT;
    int64_t rate = out ? facts->out_bytes_per_s : facts->in_bytes_per_s;
    int64_t shared = out ? facts->out_both_bytes_per_s : facts->in_both_bytes_per_s;
    if (both && shared > 0) rate = shared;
    if (rate <= 0) return 0;
    double ns = (double)bytes / (double)rate * 1e9;
    return ns < (double)MAX_NODE_NS ? (int64_t)ns : MAX_NODE_NS + 1; /* refused, with all that is too long */
}

static mm_status node_ns(const simulator *s, const mm_node *n, int64_t *ns_out) {
    const mm_plan *plan = s->plan;
    const mm_facts *facts = s->facts;
    int64_t ns;
    if (mm_node_runs_step(n)) {
        ns = facts->variants[facts->variant_first[n->step] + n->variant].ns;
    } else if (n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN) {
        mm_stream_id other = n->kind == MM_NODE_OUT ? MM_STREAM_IN : MM_STREAM_OUT;
        ns = link_ns(facts, n, plan->segments[n->dst].bytes, s->running[other] >= 0);
    } else {
        bool encode = n->kind == MM_NODE_ENCODE;
        const mm_segment *code = &plan->segments[encode ? n->dst : n->src];
        const mm_code_facts *c = mm_facts_code(facts, code->codec, n->tensor);
        ns = encode ? c->encode_ns : c->decode_ns;
    }
    if (ns < 0 || ns > MAX_NODE_NS)
        return mm_fail(MM_ERR_INVALID, "facts for %s: a time of %lld ns is out of range", mm_graph_name(plan->graph),
                       (long long)ns);
    *ns_out = ns;
    return MM_OK;
}

static void sort_by_stream(simulator *s) {
    const mm_plan *plan = s->plan;
    int32_t next[MM_STREAM_COUNT];
    for (int i = 0; i < plan->n_nodes; i++) s->first[plan->nodes[i].stream + 1]++;
    for (int t = 0; t < MM_STREAM_COUNT; t++) s->first[t + 1] += s->first[t];
    memcpy(next, s->first, sizeof next);
    for (int i = 0; i < plan->n_nodes; i++) s->node_at[next[plan->nodes[i].stream]++] = i;
}

static bool is_ready(const simulator *s, const mm_node *n) {
    for (int t = 0; t < MM_STREAM_COUNT; t++)
        if (n->wait[t] >= s->ended[t]) return false;
    return true;
}

/* What a node allocates before it starts, and what is freed with it: segments placed at run time. */
static int count_unplanned(const mm_plan *plan, int node) {
    int n = 0;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->dynamic) n += (s->first_node == node) + (s->last_node == node);
    }
    return n;
}

/* Everything stands still while memory is allocated and freed for a node. */
static mm_status stand_still(simulator *s, int node) {
    if (s->facts->alloc_ns == 0 || s->plan->heap_bytes == 0) return MM_OK;
    if (s->facts->alloc_ns < 0 || s->facts->alloc_ns > MAX_ALLOC_NS)
        return mm_fail(MM_ERR_INVALID, "facts for %s: an allocation of %lld ns is out of range",
                       mm_graph_name(s->plan->graph), (long long)s->facts->alloc_ns);
    s->now += count_unplanned(s->plan, node) * s->facts->alloc_ns;
    return MM_OK;
}

/* Starts what can start now. Returns whether anything runs. */
static mm_status start_nodes(simulator *s, bool *any_out) {
    *any_out = false;
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        int32_t next = s->first[t] + s->ended[t];
        if (s->running[t] < 0 && next < s->first[t + 1] && is_ready(s, &s->plan->nodes[s->node_at[next]])) {
            int64_t ns;
            MM_TRY(node_ns(s, &s->plan->nodes[s->node_at[next]], &ns));
            s->running[t] = s->node_at[next];
            MM_TRY(stand_still(s, s->node_at[next]));
            s->left[t] = ns * s->full_rate;
            s->nodes[s->running[t]].start_ns = s->now;
        }
        *any_out |= s->running[t] >= 0;
    }
    return MM_OK;
}

/* Whether any side stream works; one that is about to end a node of no length does not. */
static bool is_disturbed(const simulator *s) {
    for (int t = 0; t < MM_STREAM_COUNT; t++)
        if (t != MM_STREAM_COMPUTE && s->running[t] >= 0 && s->left[t] > 0) return true;
    return false;
}

/* Goes on to the next end of a node. */
static void advance(simulator *s) {
    int64_t rate[MM_STREAM_COUNT], step = INT64_MAX;
    bool disturbed = is_disturbed(s);
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        rate[t] = t == MM_STREAM_COMPUTE && disturbed ? DISTURBED_RATE : s->full_rate;
        if (s->running[t] < 0) continue;
        int64_t needed = (s->left[t] + rate[t] - 1) / rate[t];
        if (needed < step) step = needed;
    }
    s->now += step;
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        if (s->running[t] < 0) continue;
        s->left[t] -= step * rate[t];
        if (s->left[t] > 0) continue;
        s->nodes[s->running[t]].end_ns = s->now;
        s->ended[t]++;
        s->running[t] = -1;
    }
}

static mm_status run(simulator *s) {
    for (;;) {
        bool any;
        MM_TRY(start_nodes(s, &any));
        if (!any) break;
        advance(s);
    }
    for (int t = 0; t < MM_STREAM_COUNT; t++)
        if (s->first[t] + s->ended[t] < s->first[t + 1])
            return mm_fail(MM_ERR_PLAN, "plan of %s: the %s stream waits for what never happens",
                           mm_graph_name(s->plan->graph), mm_stream_id_name(t));
    return MM_OK;
}

static mm_status count_live(const mm_plan *plan, mm_sim_node *nodes) {
    int64_t *change = calloc((size_t)plan->n_nodes + 1, sizeof *change);
    if (!change) return mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->pinned || s->first_node < 0) continue;
        change[s->first_node] += s->bytes;
        change[s->live_last + 1] -= s->bytes;
    }
    int64_t live = plan->base_bytes + plan->external_bytes;
    for (int i = 0; i < plan->n_nodes; i++) {
        live += change[i];
        nodes[i].live_bytes = live;
    }
    free(change);
    return MM_OK;
}

static void sum_up(const simulator *s, mm_simulation *out) {
    const mm_plan *plan = s->plan;
    for (int i = 0; i < plan->n_nodes; i++)
        out->busy_ns[plan->nodes[i].stream] += s->nodes[i].end_ns - s->nodes[i].start_ns;
    out->iteration_ns = s->now;
    out->compute_ns = out->busy_ns[MM_STREAM_COMPUTE];
    int32_t first = s->first[MM_STREAM_COMPUTE], end = s->first[MM_STREAM_COMPUTE + 1];
    if (first < end) {
        int64_t span = s->nodes[s->node_at[end - 1]].end_ns - s->nodes[s->node_at[first]].start_ns;
        out->stall_ns = span - out->compute_ns;
    }
    int64_t side = 0;
    for (int t = 0; t < MM_STREAM_COUNT; t++) side += t == MM_STREAM_COMPUTE ? 0 : out->busy_ns[t];
    int64_t stall = out->stall_ns < side ? out->stall_ns : side;
    out->hidden_permille = side == 0 ? 1000 : (int)(1000.0 * (double)(side - stall) / (double)side);
}

mm_status mm_simulate(const mm_plan *plan, const mm_facts *facts, mm_simulation *simulation_out) {
    if (facts->contention_permille < 0 || facts->contention_permille > MAX_CONTENTION)
        return mm_fail(MM_ERR_INVALID, "facts for %s: a contention of %d permille is out of range",
                       mm_graph_name(plan->graph), facts->contention_permille);
    simulator s = {.plan = plan, .facts = facts, .full_rate = DISTURBED_RATE + facts->contention_permille};
    for (int t = 0; t < MM_STREAM_COUNT; t++) s.running[t] = -1;
    s.nodes = calloc((size_t)plan->n_nodes + 1, sizeof *s.nodes);
    s.node_at = malloc(((size_t)plan->n_nodes + 1) * sizeof *s.node_at);
    mm_status status = s.nodes && s.node_at ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
    if (status == MM_OK) {
        sort_by_stream(&s);
        status = run(&s);
    }
    if (status == MM_OK) status = count_live(plan, s.nodes);
    if (status == MM_OK) {
        *simulation_out = (mm_simulation){.n_nodes = plan->n_nodes, .nodes = s.nodes};
        sum_up(&s, simulation_out);
    } else
        free(s.nodes);
    free(s.node_at);
    return status;
}

void mm_simulation_fini(mm_simulation *simulation) {
    free(simulation->nodes);
    *simulation = (mm_simulation){0};
}
