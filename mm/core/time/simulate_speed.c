/* SPDX-License-Identifier: MIT */
/* How long the pieces of a simulation take, and how fast they run beside others. */
#include <stdlib.h>

#include "mm/core/plan/program.h"
#include "mm/core/status.h"
#include "mm/core/time/cache_miss.h"
#include "mm/core/time/simulator.h"

/* ---------------------------------------------------------------- bytes that cost time */

mm_status mm_sim_find_far(mm_simulator *s) {
    if (s->facts->cache_bytes == 0 || s->facts->far_ps_per_byte == 0) return MM_OK;
    s->miss_bytes = malloc(((size_t)s->plan->n_nodes + 1) * sizeof *s->miss_bytes);
    if (!s->miss_bytes) return mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
    return mm_cache_miss_bytes(s->plan, s->facts->cache_bytes, s->miss_bytes);
}

static bool is_moved_code(const mm_segment *s) {
    return s->content == MM_CONTENT_CODED && s->pool < 0 && s->memory == MM_MEM_PINNED;
}

/* Finds how many bytes of each code its codec moves over the link. Bodies are put into their pools in issue order, with
 * their typical bytes: what a pool on the device has no room for goes over the link. A code without a body that is
 * encoded into pinned memory, or decoded from there, goes over it as a whole. */
mm_status mm_sim_find_link_bytes(mm_simulator *s) {
    const mm_plan *plan = s->plan;
    int64_t *left; /* per pool: bytes that are still free */
    int moved = 0;
    for (int i = 0; i < plan->n_segments; i++)
        moved += plan->segments[i].content == MM_CONTENT_POOL || is_moved_code(&plan->segments[i]);
    if (moved == 0) return MM_OK;
    s->link_bytes = calloc((size_t)plan->n_segments, sizeof *s->link_bytes);
    left = malloc((size_t)plan->n_segments * sizeof *left);
    if (!s->link_bytes || !left) {
        free(left);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
    }
    for (int i = 0; i < plan->n_segments; i++) {
        left[i] = plan->segments[i].memory == MM_MEM_PINNED ? 0 : plan->segments[i].bytes;
        if (is_moved_code(&plan->segments[i])) s->link_bytes[i] = plan->segments[i].bytes;
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        const mm_segment *code = mm_node_table[n->kind].cost == MM_COST_ENCODE ? &plan->segments[n->dst] : NULL;
        if (!code || code->pool < 0) continue;
        const int64_t bytes = mm_facts_code(s->facts, code->codec, n->tensor)->body_typical_bytes;
        const int64_t inside = bytes < left[code->pool] ? bytes : left[code->pool];
        left[code->pool] -= inside;
        s->link_bytes[n->dst] = bytes - inside;
    }
    free(left);
    return MM_OK;
}

/* ---------------------------------------------------------------- how long */

/* Bytes that the node's codec moves over the link. */
static int64_t link_bytes_of(const mm_simulator *s, const mm_node *n) {
    return s->link_bytes && !mm_node_runs_step(n) ? s->link_bytes[mm_program_stored(n)] : 0;
}

/* Time of a codec that takes `ns`, and also moves bytes over the link. Moves to and from a code or pool in pinned
 * memory overlap with the codec's work; moves of spilled bytes add to it. */
static int64_t codec_ns(const mm_simulator *s, const mm_node *n, int64_t ns, int64_t rate) {
    const int64_t bytes = link_bytes_of(s, n);
    if (bytes == 0 || ns < 0) return ns;
    const int64_t link = mm_rate_ns(rate, bytes);
    const mm_segment *code = &s->plan->segments[mm_program_stored(n)];
    if (code->pool < 0 || s->plan->segments[code->pool].memory == MM_MEM_PINNED) return link > ns ? link : ns;
    return mm_add_ns(ns, (double)link);
}

static int64_t operation_ns(const mm_simulator *s, const mm_node *n) {
    const int64_t ns = mm_simulate_node_ns(s->plan, s->facts, n);
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    if (cost == MM_COST_ENCODE) return codec_ns(s, n, ns, s->facts->out_bytes_per_s);
    return cost == MM_COST_DECODE ? codec_ns(s, n, ns, s->facts->in_bytes_per_s) : ns;
}

static mm_status node_ns(const mm_simulator *s, const mm_node *n, int64_t *ns_out) {
    const mm_plan *plan = s->plan;
    const mm_graph_facts *facts = s->facts;
    int64_t ns;
    if (mm_node_runs_step(n)) {
        ns = mm_simulate_node_ns(plan, facts, n);
        if (s->miss_bytes && !mm_node_on_host(n) && ns >= 0 && ns <= MM_NS_MOST)
            ns = mm_add_ns(ns, (double)s->miss_bytes[n - plan->nodes] * 1e-3 * (double)facts->far_ps_per_byte);
    } else
        ns = operation_ns(s, n);
    if (ns < 0 || ns > MM_NS_MOST)
        return mm_fail(MM_ERR_INVALID, "facts for %s: a time of %lld ns is out of range", mm_graph_name(plan->graph),
                       (long long)ns);
    *ns_out = ns;
    return MM_OK;
}

/* A piece takes its rows' share of its node's time; shares add up to it exactly. Copies take issue_ns more. */
mm_status mm_sim_piece_ns(const mm_simulator *s, const mm_piece *piece, int64_t *ns_out) {
    const mm_node *n = &s->plan->nodes[piece->node];
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    int64_t issue = cost == MM_COST_LINK_OUT || cost == MM_COST_LINK_IN ? s->facts->issue_ns : 0;
    MM_TRY(node_ns(s, n, ns_out));
    if (mm_program_pieces(s->program, piece->node) > 1) {
        double ns = (double)*ns_out, rows = (double)mm_graph_tensor(s->plan->graph, n->tensor)->dims[0];
        *ns_out = (int64_t)(ns * (double)(piece->first_row + piece->rows) / rows) -
                  (int64_t)(ns * (double)piece->first_row / rows);
    }
    *ns_out += issue;
    return MM_OK;
}

/* ---------------------------------------------------------------- how fast */

/* Whether a stream slows others down: it runs a piece that has work left. */
static bool is_busy(const mm_simulator *s, mm_stream_id t) {
    return s->running[t] >= 0 && s->left[t] > 0 && s->began[t] <= s->now;
}

mm_work mm_sim_work_of(const mm_plan *plan, const mm_node *n) {
    switch ((mm_stream_id)n->stream) {
    case MM_STREAM_ENCODE:
        return MM_WORK_ENCODE;
    case MM_STREAM_DECODE:
        return MM_WORK_DECODE;
    case MM_STREAM_OUT:
    case MM_STREAM_IN:
        return MM_WORK_LINK;
    case MM_STREAM_STORE: /* of no meaning, as on the host: they slow down each other alone (mm_sim_speed) */
    case MM_STREAM_LOAD:
        return MM_WORK_LINK;
    case MM_STREAM_HOST: /* of no meaning: it runs at full speed, and slows nothing down */
    case MM_STREAM_COMPUTE:
    case MM_STREAM_COUNT:
        break;
    }
    return mm_graph_step_properties(plan->graph, n->step)->cost == MM_LAYER_EXPENSIVE ? MM_WORK_EXPENSIVE
                                                                                      : MM_WORK_CHEAP;
}

/* The stream of the codec that may move bytes over the link in a direction. */
static mm_stream_id codec_of(mm_stream_id direction) {
    return direction == MM_STREAM_OUT ? MM_STREAM_ENCODE : MM_STREAM_DECODE;
}

/* Whether a codec's stream is writing to pinned memory, or reading from there. */
static bool is_moving(const mm_simulator *s, mm_stream_id codec) {
    return is_busy(s, codec) && link_bytes_of(s, &s->plan->nodes[s->program->pieces[s->running[codec]].node]) > 0;
}

/* Whether a direction of the link is busy: with a copy, or with bytes that a codec moves itself. */
static bool is_link_busy(const mm_simulator *s, mm_stream_id direction) {
    return is_busy(s, direction) || is_moving(s, codec_of(direction));
}

/* By how many permille the work of a stream takes longer because of what runs on other streams. Bytes that a codec
 * itself moves over the link do not slow that codec down. */
static int64_t contention(const mm_simulator *s, mm_stream_id t) {
    const int *beside = s->contention[s->work[t]];
    int permille = 0;
    for (mm_stream_id other = MM_STREAM_COMPUTE; other <= MM_STREAM_DECODE; other++)
        if (other != t && is_busy(s, other)) permille += beside[s->work[other]];
    for (mm_stream_id way = MM_STREAM_OUT; beside[MM_WORK_LINK] > 0 && way <= MM_STREAM_IN; way++)
        if (is_busy(s, way) || (codec_of(way) != t && is_moving(s, codec_of(way))))
            return permille + beside[MM_WORK_LINK];
    return permille;
}

int64_t mm_sim_speed(const mm_simulator *s, mm_stream_id t) {
    const mm_graph_facts *f = s->facts;
    if (t == MM_STREAM_HOST) return MM_SIM_FULL_SPEED;
    /* The disk is one resource: reads and writes at the same time get half of it each. */
    if (t == MM_STREAM_STORE) return MM_SIM_FULL_SPEED / (is_busy(s, MM_STREAM_LOAD) ? 2 : 1);
    if (t == MM_STREAM_LOAD) return MM_SIM_FULL_SPEED / (is_busy(s, MM_STREAM_STORE) ? 2 : 1);
    const int64_t beside = INT64_C(1000) * MM_SIM_FULL_SPEED / (1000 + contention(s, t));
    const bool out = t == MM_STREAM_OUT;
    if ((!out && t != MM_STREAM_IN) || !is_link_busy(s, out ? MM_STREAM_IN : MM_STREAM_OUT)) return beside;
    const int64_t alone = out ? f->out_bytes_per_s : f->in_bytes_per_s;
    const int64_t shared = out ? f->out_both_bytes_per_s : f->in_both_bytes_per_s;
    return shared > 0 && shared < alone ? (int64_t)((double)shared / (double)alone * (double)beside) : beside;
}
