/* SPDX-License-Identifier: MIT */
#include "mm/core/time/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/time/simulator.h"
#include "mm/core/time/untimed.h"

/* ---------------------------------------------------------------- time passes */

static bool is_ready(const mm_simulator *s, const mm_piece *piece) {
    if (mm_sim_waits_for_all(s, piece)) return false;
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
static const mm_piece *next_piece(const mm_simulator *s, int t) {
    if (s->running[t] >= 0 || s->ended[t] == s->program->count[t]) return NULL;
    const mm_piece *piece = &s->program->pieces[s->program->at[t][s->ended[t]]];
    return is_ready(s, piece) ? piece : NULL;
}

static mm_status start_piece(mm_simulator *s, int t, const mm_piece *piece) {
    int64_t ns;
    MM_TRY(mm_sim_piece_ns(s, piece, &ns));
    s->running[t] = s->program->at[t][s->ended[t]];
    s->work[t] = mm_sim_work_of(s->plan, &s->plan->nodes[piece->node]);
    s->left[t] = ns * MM_SIM_FULL_SPEED;
    s->began[t] = mm_sim_work_begins_ns(s, piece);
    s->spans[s->running[t]].start_ns = s->began[t];
    if (mm_piece_is_first(s->program, piece)) s->nodes[piece->node].start_ns = s->began[t];
    return MM_OK;
}

/* Number of allocations and frees of a stream's next piece, if they cost time. */
static int allocations(const mm_simulator *s, int t) {
    const mm_piece *piece = s->facts->alloc_ns > 0 && s->plan->heap_bytes > 0 ? next_piece(s, t) : NULL;
    return piece && mm_piece_is_first(s->program, piece) ? count_unplanned(s->plan, piece->node) : 0;
}

/* If a stream's next piece allocates or frees: waits until all streams are idle, then lets the time of the allocations
 * pass and starts the piece. Until then *drains_out is true, and no piece may start. */
static mm_status allocate(mm_simulator *s, bool *drains_out) {
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
static mm_status start_pieces(mm_simulator *s, bool *any_out) {
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
static void advance(mm_simulator *s) {
    int64_t rate[MM_STREAM_COUNT], needed[MM_STREAM_COUNT], step = INT64_MAX;
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        if (s->running[t] < 0) continue;
        const bool waits = s->began[t] > s->now;
        rate[t] = waits ? 0 : mm_sim_speed(s, (mm_stream_id)t);
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
        mm_sim_begin_sums(s, &s->program->pieces[s->running[t]]);
        s->busy_ns[t] += s->now - s->began[t];
        s->ended[t]++;
        s->running[t] = -1;
    }
}

static mm_status run(mm_simulator *s) {
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
static int64_t compute_span(const mm_simulator *s) {
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

static void sum_up(const mm_simulator *s, mm_simulation *out) {
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

mm_status mm_program_simulate(const mm_program *program, const mm_graph_facts *facts, mm_simulation *simulation_out) {
    const mm_plan *plan = program->plan;
    mm_simulator s = {.plan = plan, .facts = facts, .program = program};
    MM_TRY(mm_facts_check(facts, mm_graph_name(plan->graph)));
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
    if (status == MM_OK) status = mm_sim_find_far(&s);
    if (status == MM_OK) status = mm_sim_find_link_bytes(&s);
    if (status == MM_OK) status = mm_sim_find_sums(&s);
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

mm_status mm_program_predict(const mm_program *program, const mm_graph_facts *facts, int64_t *ns_out) {
    mm_simulation simulation;
    int64_t ns = 0;
    if (!mm_plan_untimed(program->plan, facts)) {
        MM_TRY(mm_program_simulate(program, facts, &simulation));
        ns = simulation.iteration_ns;
        mm_simulation_fini(&simulation);
    }
    *ns_out = ns;
    return MM_OK;
}

mm_status mm_simulate(const mm_plan *plan, const mm_graph_facts *facts, mm_simulation *simulation_out) {
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
