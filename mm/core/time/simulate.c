/* SPDX-License-Identifier: MIT */
#include "mm/core/time/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_allreduce.h"
#include "mm/core/plan/plan_codes.h"
#include "mm/core/plan/program.h"
#include "mm/core/status.h"
#include "mm/core/time/cache_miss.h"

/* Work is counted in millionths of a ns at full speed, so that a piece whose speed changes continues from where it is.
 * Rounding errors are less than 1 ns, and MM_NS_MOST ns of work in this unit fit 64 bits. */
enum { FULL_SPEED = 1000000 };

typedef struct simulator {
    const mm_plan *plan;
    const mm_facts *facts;
    const mm_program *program;
    mm_sim_node *nodes;
    mm_period *spans;                 /* per piece */
    int64_t *miss_bytes;              /* per node; NULL: not known */
    int64_t *summed_ns;               /* per seq of the OUT stream: when the sum of that all-reduced piece ends; NULL:
                                         one device */
    int64_t sums_ns;                  /* when the last of the sums that have begun will end; sums run one after the
                                         other */
    mm_allreduce_groups groups;       /* all-reduces in place */
    int begun;                        /* number of groups whose sums have begun */
    int outs_left;                    /* OUT pieces of all-reduced tensors that have not ended yet */
    int64_t *link_bytes;              /* per segment with a code: bytes its codec moves over the link; NULL: none */
    int32_t ended[MM_STREAM_COUNT];   /* number of pieces that have ended */
    int32_t running[MM_STREAM_COUNT]; /* the piece that runs; -1: none */
    int64_t left[MM_STREAM_COUNT];    /* remaining work of the piece that runs */
    int64_t began[MM_STREAM_COUNT];   /* when the piece began; if that is later than now, it waits for a sum until
                                         then */
    int64_t *ended_ns;                /* per piece */
    int64_t busy_ns[MM_STREAM_COUNT];
    mm_work work[MM_STREAM_COUNT]; /* kind of work of the piece that runs */
    int contention[MM_WORK_KINDS][MM_WORK_KINDS];
    int64_t now;
} simulator;

/* ---------------------------------------------------------------- how long, and how fast */

/* ns + more; a sum above MM_NS_MOST does not overflow: it stays above MM_NS_MOST, and is refused later. */
static int64_t add_ns(int64_t ns, double more) {
    return more < (double)MM_NS_MOST ? ns + (int64_t)more : MM_NS_MOST + 1;
}

/* Time of bytes at a rate; 0 if the rate is not known. */
static int64_t rate_ns(int64_t rate, int64_t bytes) {
    if (rate <= 0) return 0;
    return add_ns(0, (double)bytes / (double)rate * 1e9);
}

int64_t mm_simulate_step_ns(const mm_facts *facts, const mm_node *n) {
    int64_t ns = facts->variants[facts->variant_first[n->step] + n->variant].ns;
    return n->given ? ns - ns / 3 : ns;
}

int64_t mm_simulate_node_ns(const mm_plan *plan, const mm_facts *facts, const mm_node *n) {
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    const mm_segment *stored = cost == MM_COST_STEP ? NULL : &plan->segments[mm_program_stored(n)];
    switch (cost) {
    case MM_COST_STEP:
        return mm_simulate_step_ns(facts, n) + mm_node_codes_ns(plan, facts, n, -1);
    case MM_COST_ENCODE:
        return mm_facts_code(facts, stored->codec, n->tensor)->encode_ns;
    case MM_COST_DECODE:
        return mm_facts_code(facts, stored->codec, n->tensor)->decode_ns;
    case MM_COST_LINK_OUT:
        return rate_ns(facts->out_bytes_per_s, stored->bytes);
    case MM_COST_LINK_IN:
        return rate_ns(facts->in_bytes_per_s, stored->bytes);
    case MM_COST_MEMORY:
        return rate_ns(facts->memory_bytes_per_s, stored->bytes);
    }
    return -1; /* an unknown cost: refused as out of range */
}

/* Bytes that the node's codec moves over the link. */
static int64_t link_bytes_of(const simulator *s, const mm_node *n) {
    return s->link_bytes && !mm_node_runs_step(n) ? s->link_bytes[mm_program_stored(n)] : 0;
}

/* Time of a codec that takes `ns`, and also moves bytes over the link. Moves to and from a code or pool in pinned
 * memory overlap with the codec's work; moves of spilled bytes add to it. */
static int64_t codec_ns(const simulator *s, const mm_node *n, int64_t ns, int64_t rate) {
    const int64_t bytes = link_bytes_of(s, n);
    if (bytes == 0 || ns < 0) return ns;
    const int64_t link = rate_ns(rate, bytes);
    const mm_segment *code = &s->plan->segments[mm_program_stored(n)];
    if (code->pool < 0 || s->plan->segments[code->pool].pinned) return link > ns ? link : ns;
    return add_ns(ns, (double)link);
}

static int64_t operation_ns(const simulator *s, const mm_node *n) {
    const int64_t ns = mm_simulate_node_ns(s->plan, s->facts, n);
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    if (cost == MM_COST_ENCODE) return codec_ns(s, n, ns, s->facts->out_bytes_per_s);
    return cost == MM_COST_DECODE ? codec_ns(s, n, ns, s->facts->in_bytes_per_s) : ns;
}

static mm_status node_ns(const simulator *s, const mm_node *n, int64_t *ns_out) {
    const mm_plan *plan = s->plan;
    const mm_facts *facts = s->facts;
    int64_t ns;
    if (mm_node_runs_step(n)) {
        ns = mm_simulate_node_ns(plan, facts, n);
        if (s->miss_bytes && ns >= 0 && ns <= MM_NS_MOST)
            ns = add_ns(ns, (double)s->miss_bytes[n - plan->nodes] * 1e-3 * (double)facts->far_ps_per_byte);
    } else
        ns = operation_ns(s, n);
    if (ns < 0 || ns > MM_NS_MOST)
        return mm_fail(MM_ERR_INVALID, "facts for %s: a time of %lld ns is out of range", mm_graph_name(plan->graph),
                       (long long)ns);
    *ns_out = ns;
    return MM_OK;
}

/* A piece takes its rows' share of its node's time; shares add up to it exactly. Copies take issue_ns more. */
static mm_status piece_ns(const simulator *s, const mm_piece *piece, int64_t *ns_out) {
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

/* Whether a stream slows others down: it runs a piece that has work left. */
static bool is_busy(const simulator *s, mm_stream_id t) {
    return s->running[t] >= 0 && s->left[t] > 0 && s->began[t] <= s->now;
}

static mm_work work_of(const mm_plan *plan, const mm_node *n) {
    switch ((mm_stream_id)n->stream) {
    case MM_STREAM_ENCODE:
        return MM_WORK_ENCODE;
    case MM_STREAM_DECODE:
        return MM_WORK_DECODE;
    case MM_STREAM_OUT:
    case MM_STREAM_IN:
        return MM_WORK_LINK;
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
static bool is_moving(const simulator *s, mm_stream_id codec) {
    return is_busy(s, codec) && link_bytes_of(s, &s->plan->nodes[s->program->pieces[s->running[codec]].node]) > 0;
}

/* Whether a direction of the link is busy: with a copy, or with bytes that a codec moves itself. */
static bool is_link_busy(const simulator *s, mm_stream_id direction) {
    return is_busy(s, direction) || is_moving(s, codec_of(direction));
}

/* By how many permille the work of a stream takes longer because of what runs on other streams. Bytes that a codec
 * itself moves over the link do not slow that codec down. */
static int64_t contention(const simulator *s, mm_stream_id t) {
    const int *beside = s->contention[s->work[t]];
    int permille = 0;
    for (mm_stream_id other = MM_STREAM_COMPUTE; other <= MM_STREAM_DECODE; other++)
        if (other != t && is_busy(s, other)) permille += beside[s->work[other]];
    for (mm_stream_id way = MM_STREAM_OUT; beside[MM_WORK_LINK] > 0 && way <= MM_STREAM_IN; way++)
        if (is_busy(s, way) || (codec_of(way) != t && is_moving(s, codec_of(way))))
            return permille + beside[MM_WORK_LINK];
    return permille;
}

static int64_t speed(const simulator *s, mm_stream_id t) {
    const mm_facts *f = s->facts;
    const int64_t beside = INT64_C(1000) * FULL_SPEED / (1000 + contention(s, t));
    const bool out = t == MM_STREAM_OUT;
    if ((!out && t != MM_STREAM_IN) || !is_link_busy(s, out ? MM_STREAM_IN : MM_STREAM_OUT)) return beside;
    const int64_t alone = out ? f->out_bytes_per_s : f->in_bytes_per_s;
    const int64_t shared = out ? f->out_both_bytes_per_s : f->in_both_bytes_per_s;
    return shared > 0 && shared < alone ? (int64_t)((double)shared / (double)alone * (double)beside) : beside;
}

/* Checks all entries, even those that are never used. */
static mm_status check_contention(const mm_plan *plan, const mm_facts *f) {
    const int *all[] = {&f->contention_permille, &f->link_contention_permille, &f->contention.permille[0][0]};
    const int n[] = {1, 1, f->contention.known ? MM_WORK_KINDS * MM_WORK_KINDS : 0};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < n[i]; k++)
            if (all[i][k] < 0 || all[i][k] > MM_CONTENTION_MOST)
                return mm_fail(MM_ERR_INVALID, "facts for %s: a contention of %d permille is out of range, 0 to %d",
                               mm_graph_name(plan->graph), all[i][k], MM_CONTENTION_MOST);
    return MM_OK;
}

static mm_status check_facts(const mm_plan *plan, const mm_facts *f) {
    MM_TRY(check_contention(plan, f));
    if (f->host_sum_bytes_per_s < 0 || f->link_sharers < 0 || f->ranks < 0)
        return mm_fail(MM_ERR_INVALID,
                       "facts for %s: out of range: ranks %d, link_sharers %d or host_sum_bytes_per_s %lld",
                       mm_graph_name(plan->graph), f->ranks, f->link_sharers, (long long)f->host_sum_bytes_per_s);
    if (f->issue_ns < 0 || f->issue_ns > MM_ALLOC_NS_MOST || f->alloc_ns < 0 || f->alloc_ns > MM_ALLOC_NS_MOST)
        return mm_fail(MM_ERR_INVALID, "facts for %s: out of range: issue_ns %lld or alloc_ns %lld",
                       mm_graph_name(plan->graph), (long long)f->issue_ns, (long long)f->alloc_ns);
    if (f->cache_bytes < 0 || f->far_ps_per_byte < 0 || f->far_ps_per_byte > MM_FAR_PS_MOST)
        return mm_fail(MM_ERR_INVALID, "facts for %s: out of range: cache_bytes %lld or far_ps_per_byte %lld",
                       mm_graph_name(plan->graph), (long long)f->cache_bytes, (long long)f->far_ps_per_byte);
    if (mm_facts_link_is_possible(f)) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "facts for %s: the link's rate with both ways busy is less than a tenth of that of one way alone",
                   mm_graph_name(plan->graph));
}

/* ---------------------------------------------------------------- time passes */

/* Whether a piece copies back a sum of the first device, and not all tensors have reached the host yet. */
static bool waits_for_all(const simulator *s, const mm_piece *piece) {
    const mm_node *n = &s->plan->nodes[piece->node];
    return s->outs_left > 0 && s->facts->sum_at == MM_SUM_AT_DEVICE && n->kind == MM_NODE_IN &&
           mm_node_allreduces(s->plan, n);
}

static bool is_ready(const simulator *s, const mm_piece *piece) {
    if (waits_for_all(s, piece)) return false;
    for (int t = 0; t < MM_STREAM_COUNT; t++)
        if (piece->wait[t] >= s->ended[t]) return false;
    return true;
}

/* Number of segments placed at run time that are allocated before a node, or freed after it. */
static int count_unplanned(const mm_plan *plan, int node) {
    int n = 0;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->dynamic) n += (s->first_node == node) + (s->last_node == node);
    }
    return n;
}

/* The piece that a stream can start now; NULL: it is busy, or its next piece is not ready. */
static const mm_piece *next_piece(const simulator *s, int t) {
    if (s->running[t] >= 0 || s->ended[t] == s->program->count[t]) return NULL;
    const mm_piece *piece = &s->program->pieces[s->program->at[t][s->ended[t]]];
    return is_ready(s, piece) ? piece : NULL;
}

/* Whether the step is an update that needs sums in place. It waits for all sums that have begun. */
static bool updates_with_sums(const simulator *s, int node) {
    for (int g = 0; g < s->begun; g++)
        if (s->groups.groups[g].update == node) return true;
    return false;
}

/* When a piece that starts now begins its work. A copy back of a sum, and an update, hold up their stream until the sum
 * is there. */
static int64_t sum_of(const simulator *s, const mm_piece *piece) {
    const mm_node *n = &s->plan->nodes[piece->node];
    if (updates_with_sums(s, piece->node)) return s->sums_ns > s->now ? s->sums_ns : s->now;
    if (!s->summed_ns || n->kind != MM_NODE_IN || !mm_node_allreduces(s->plan, n)) return s->now;
    const int64_t there = s->facts->sum_at == MM_SUM_AT_DEVICE ? s->sums_ns : s->summed_ns[piece->wait[MM_STREAM_OUT]];
    return there > s->now ? there : s->now;
}

/* Called when a piece has ended. If the piece brought a part of an all-reduced tensor to the host, the sum of that part
 * begins as soon as earlier sums have ended; under MM_SUM_AT_DEVICE, all sums begin when the last tensor is on the
 * host. */
static void begin_sum(simulator *s, const mm_piece *piece) {
    const mm_node *n = &s->plan->nodes[piece->node];
    if (!s->summed_ns || n->kind != MM_NODE_OUT || !mm_node_allreduces(s->plan, n)) return;
    const bool one_by_one = s->facts->sum_at == MM_SUM_AT_DEVICE;
    s->outs_left--;
    s->sums_ns =
        (one_by_one || s->sums_ns > s->now ? s->sums_ns : s->now) + mm_facts_sum_ns(s->facts, piece->stored_bytes);
    s->summed_ns[piece->seq] = s->sums_ns;
    if (one_by_one && s->outs_left == 0) s->sums_ns += s->now; /* until now, sums_ns was how long all sums take */
}

/* Called when a node has ended: begins the all-reduces in place that may begin after this node. */
static void begin_sums_in_place(simulator *s, int node) {
    for (; s->begun < s->groups.n && s->groups.groups[s->begun].after == node; s->begun++) {
        mm_period *span = &s->spans[s->program->n + s->begun];
        const int64_t ns = mm_facts_sum_ns(s->facts, mm_allreduce_group_bytes(s->plan, &s->groups, s->begun));
        span->start_ns = s->sums_ns > s->now ? s->sums_ns : s->now;
        s->sums_ns = span->end_ns = span->start_ns + (s->facts->ranks > 1 ? ns : 0);
    }
}

static mm_status start_piece(simulator *s, int t, const mm_piece *piece) {
    int64_t ns;
    MM_TRY(piece_ns(s, piece, &ns));
    s->running[t] = s->program->at[t][s->ended[t]];
    s->work[t] = work_of(s->plan, &s->plan->nodes[piece->node]);
    s->left[t] = ns * FULL_SPEED;
    s->began[t] = sum_of(s, piece);
    s->spans[s->running[t]].start_ns = s->began[t];
    if (mm_piece_is_first(s->program, piece)) s->nodes[piece->node].start_ns = s->began[t];
    return MM_OK;
}

/* Number of allocations and frees of a stream's next piece, if they cost time. */
static int allocations(const simulator *s, int t) {
    const mm_piece *piece = s->facts->alloc_ns > 0 && s->plan->heap_bytes > 0 ? next_piece(s, t) : NULL;
    return piece && mm_piece_is_first(s->program, piece) ? count_unplanned(s->plan, piece->node) : 0;
}

/* If a stream's next piece allocates or frees: waits until all streams are idle, then lets the time of the allocations
 * pass and starts the piece. Until then *drains_out is true, and no piece may start. */
static mm_status allocate(simulator *s, bool *drains_out) {
    bool idle = true;
    *drains_out = false;
    for (int t = 0; t < MM_STREAM_COUNT; t++) idle &= s->running[t] < 0;
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        int n = allocations(s, t);
        if (n == 0) continue;
        *drains_out = !idle;
        if (!idle) return MM_OK;
        s->now += n * s->facts->alloc_ns;
        return start_piece(s, t, next_piece(s, t));
    }
    return MM_OK;
}

/* Starts all pieces that can start. *any_out: whether any piece runs. */
static mm_status start_pieces(simulator *s, bool *any_out) {
    bool drains;
    *any_out = false;
    MM_TRY(allocate(s, &drains));
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        const mm_piece *piece = drains || allocations(s, t) > 0 ? NULL : next_piece(s, t);
        if (piece) MM_TRY(start_piece(s, t, piece));
        *any_out |= s->running[t] >= 0;
    }
    return MM_OK;
}

/* Advances the time to the next end of a piece, rounded to the nearest ns, or of a sum that a piece waits for. */
static void advance(simulator *s) {
    int64_t rate[MM_STREAM_COUNT], needed[MM_STREAM_COUNT], step = INT64_MAX;
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        if (s->running[t] < 0) continue;
        const bool waits = s->began[t] > s->now;
        rate[t] = waits ? 0 : speed(s, (mm_stream_id)t);
        needed[t] = waits ? s->began[t] - s->now : (s->left[t] + rate[t] / 2) / rate[t];
        if (needed[t] < step) step = needed[t];
    }
    s->now += step;
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        if (s->running[t] < 0) continue;
        s->left[t] -= step * rate[t];
        if (needed[t] > step || rate[t] == 0) continue;
        s->nodes[s->program->pieces[s->running[t]].node].end_ns = s->ended_ns[s->running[t]] = s->now;
        s->spans[s->running[t]].end_ns = s->now;
        begin_sum(s, &s->program->pieces[s->running[t]]);
        begin_sums_in_place(s, s->program->pieces[s->running[t]].node);
        s->busy_ns[t] += s->now - s->began[t];
        s->ended[t]++;
        s->running[t] = -1;
    }
}

static mm_status run(simulator *s) {
    for (;;) {
        bool any;
        MM_TRY(start_pieces(s, &any));
        if (!any) break;
        advance(s);
    }
    for (int t = 0; t < MM_STREAM_COUNT; t++)
        if (s->ended[t] < s->program->count[t])
            return mm_fail(MM_ERR_PLAN, "plan of %s: the %s stream waits for a piece that never ends",
                           mm_graph_name(s->plan->graph), mm_stream_id_name(t));
    return MM_OK;
}

/* ---------------------------------------------------------------- results */

static mm_status count_live(const mm_plan *plan, mm_sim_node *nodes) {
    int64_t *change = calloc((size_t)plan->n_nodes + 1, sizeof *change);
    if (!change) return mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!mm_segment_has_life(s)) continue;
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

/* Time from the start of the first step to the end of the last. */
static int64_t compute_span(const simulator *s) {
    int32_t n = s->program->count[MM_STREAM_COMPUTE];
    if (n == 0) return 0;
    const int32_t *at = s->program->at[MM_STREAM_COMPUTE];
    const mm_piece *first = &s->program->pieces[at[0]], *last = &s->program->pieces[at[n - 1]];
    return s->nodes[last->node].end_ns - s->nodes[first->node].start_ns;
}

/* By how much busy_ns exceeds wait_ns, in permille of busy_ns. */
static int hidden(int64_t busy_ns, int64_t wait_ns) {
    if (busy_ns == 0) return 1000;
    return wait_ns >= busy_ns ? 0 : (int)(1000.0 * (double)(busy_ns - wait_ns) / (double)busy_ns);
}

static void sum_up(const simulator *s, mm_simulation *out) {
    int64_t side = 0;
    memcpy(out->busy_ns, s->busy_ns, sizeof out->busy_ns);
    out->iteration_ns = s->now;
    out->compute_ns = out->busy_ns[MM_STREAM_COMPUTE];
    out->stall_ns = compute_span(s) - out->compute_ns;
    mm_program_waits(s->program, s->ended_ns, out->exposed_ns);
    for (int t = 0; t < MM_STREAM_COUNT; t++) side += t == MM_STREAM_COMPUTE ? 0 : out->busy_ns[t];
    for (int i = s->program->n; i < out->n_spans; i++) side += s->spans[i].end_ns - s->spans[i].start_ns;
    out->hidden_permille = hidden(side, out->stall_ns);
    out->codec_hidden_permille = hidden(out->busy_ns[MM_STREAM_ENCODE] + out->busy_ns[MM_STREAM_DECODE],
                                        out->exposed_ns[MM_STREAM_ENCODE] + out->exposed_ns[MM_STREAM_DECODE]);
}

static mm_status find_far(simulator *s) {
    if (s->facts->cache_bytes == 0 || s->facts->far_ps_per_byte == 0) return MM_OK;
    s->miss_bytes = malloc(((size_t)s->plan->n_nodes + 1) * sizeof *s->miss_bytes);
    if (!s->miss_bytes) return mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
    return mm_cache_miss_bytes(s->plan, s->facts->cache_bytes, s->miss_bytes);
}

static mm_status find_sums(simulator *s) {
    if (s->facts->ranks <= 1) return MM_OK;
    for (int i = 0; i < s->program->n; i++) {
        const mm_node *n = &s->plan->nodes[s->program->pieces[i].node];
        s->outs_left += n->kind == MM_NODE_OUT && mm_node_allreduces(s->plan, n);
    }
    s->summed_ns = calloc((size_t)s->program->count[MM_STREAM_OUT] + 1, sizeof *s->summed_ns);
    return s->summed_ns ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
}

static bool is_moved_code(const mm_segment *s) { return s->content == MM_CONTENT_CODED && s->pool < 0 && s->pinned; }

/* Finds how many bytes of each code its codec moves over the link. Bodies are put into their pools in issue order, with
 * their typical bytes: what a pool on the device has no room for goes over the link. A code without a body that is
 * encoded into pinned memory, or decoded from there, goes over it as a whole. */
static mm_status find_link_bytes(simulator *s) {
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
        left[i] = plan->segments[i].pinned ? 0 : plan->segments[i].bytes;
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

mm_status mm_program_simulate(const mm_program *program, const mm_facts *facts, mm_simulation *simulation_out) {
    const mm_plan *plan = program->plan;
    simulator s = {.plan = plan, .facts = facts, .program = program};
    MM_TRY(check_facts(plan, facts));
    for (int t = 0; t < MM_STREAM_COUNT; t++) s.running[t] = -1;
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++)
            s.contention[of][beside] = mm_facts_contention(facts, of, beside);
    s.nodes = calloc((size_t)plan->n_nodes + 1, sizeof *s.nodes);
    mm_status status = mm_plan_allreduce_groups(plan, &s.groups);
    s.spans = calloc((size_t)program->n + (size_t)s.groups.n + 1, sizeof *s.spans);
    s.ended_ns = calloc((size_t)program->n + 1, sizeof *s.ended_ns);
    if (status == MM_OK && (!s.nodes || !s.spans || !s.ended_ns))
        status = mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
    if (status == MM_OK) status = find_far(&s);
    if (status == MM_OK) status = find_link_bytes(&s);
    if (status == MM_OK) status = find_sums(&s);
    if (status == MM_OK) status = run(&s);
    if (status == MM_OK) status = count_live(plan, s.nodes);
    if (status == MM_OK) {
        *simulation_out = (mm_simulation){
            .n_nodes = plan->n_nodes, .nodes = s.nodes, .spans = s.spans, .n_spans = program->n + s.groups.n};
        sum_up(&s, simulation_out);
    } else {
        free(s.nodes);
        free(s.spans);
    }
    free(s.ended_ns);
    free(s.miss_bytes);
    free(s.summed_ns);
    free(s.link_bytes);
    mm_allreduce_groups_fini(&s.groups);
    return status;
}

mm_status mm_simulate(const mm_plan *plan, const mm_facts *facts, mm_simulation *simulation_out) {
    mm_program program;
    MM_TRY(mm_program_init(plan, facts, &program));
    mm_status status = mm_program_simulate(&program, facts, simulation_out);
    mm_program_fini(&program);
    return status;
}

void mm_simulation_fini(mm_simulation *simulation) {
    free(simulation->nodes);
    free(simulation->spans);
    *simulation = (mm_simulation){0};
}
