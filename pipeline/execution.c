/* SPDX-License-Identifier: MIT */
/* A program made ready to run: its events, its indices, and its times. */
#include "pipeline/execution.h"

#include <stdlib.h>

#include "mm/core/plan/plan_codes.h"
#include "pipeline/allreduce.h"
#include "pipeline/disk_move.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution_events.h"
#include "pipeline/runtime_alloc.h"
#include "pipeline/self_check.h"
#include "pipeline/tracing.h"
#include "pipeline/variable_codes.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's execution"); }

static mm_status index_steps(mm_execution *p) {
    const mm_plan *plan = p->plan;
    p->node_of_step = malloc((size_t)mm_graph_steps(plan->graph) * sizeof *p->node_of_step);
    if (!p->node_of_step) return no_memory();
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_STEP) p->node_of_step[plan->nodes[i].step] = i;
    return MM_OK;
}

static mm_status create_events(mm_execution *p) {
    const mm_dispatch_config *config = &p->dispatch->config;
    p->events = calloc((size_t)p->program->n + 1, sizeof(mm_event *));
    if (!p->events) return no_memory();
    for (int i = 0; i < p->plan->n_segments; i++) p->has_unplanned |= p->plan->segments[i].dynamic;
    MM_TRY(mm_execution_events(p, p->events));
    return config->measure_times ? mm_event_create(config->device, &p->begin) : MM_OK;
}

static mm_status create_times(mm_execution *p) {
    bool measure = p->dispatch->config.measure_times;
    p->ended_ns = calloc((size_t)p->program->n + 1, sizeof *p->ended_ns);
    if (measure) p->total_ns = calloc((size_t)p->plan->n_nodes + 1, sizeof *p->total_ns);
    return p->ended_ns && (p->total_ns || !measure) ? MM_OK : no_memory();
}

static bool has_measures(const mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_MEASURE) return true;
    return false;
}

static int64_t measured_bytes(const mm_execution *p) {
    return (int64_t)(sizeof *p->measured + (size_t)mm_graph_tensors(p->plan->graph) * sizeof *p->measured->sums);
}

static mm_status create_measured(mm_execution *p) {
    void *measured;
    if (!has_measures(p->plan)) return MM_OK;
    MM_TRY(mm_device_reserve(p->dispatch->config.device, MM_MEMORY_PINNED, measured_bytes(p), &measured));
    p->measured = measured;
    return MM_OK;
}

/* Whether a step reads or writes a code without its codec. */
static bool has_coded_steps(const mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (!mm_node_runs_step(n)) continue;
        if (n->first_code >= 0) return true;
        const mm_step_info *step = mm_graph_step(plan->graph, n->step);
        for (int u = 0; step->n_codes > 0 && u < step->n_uses; u++) {
            const int32_t segment = plan->bindings[n->first_binding + u];
            if (segment >= 0 && mm_use_is_coded(&step->uses[u], &plan->segments[segment])) return true;
        }
    }
    return false;
}

static mm_status create_strips(mm_execution *p) {
    if (!has_coded_steps(p->plan)) return MM_OK;
    p->strips = calloc((size_t)p->plan->n_segments + 1, sizeof *p->strips);
    if (!p->strips) return no_memory();
    for (int i = 0; i < p->plan->n_segments; i++) {
        const mm_segment *s = &p->plan->segments[i];
        if (s->content != MM_CONTENT_CODED) continue;
        const mm_shape shape = mm_codec_shape(mm_graph_tensor(p->plan->graph, s->tensor));
        if (!mm_codec_strips_of(p->codecs[s->codec], &shape, &p->strips[i])) p->strips[i].codec = NULL;
    }
    return MM_OK;
}

const mm_strips *mm_execution_strips(const mm_execution *p, int segment) {
    return p->strips && p->strips[segment].codec ? &p->strips[segment].strips : NULL;
}

mm_status mm_execution_create(mm_dispatch *dispatch, const mm_program *program, const mm_graph_facts *facts,
                              mm_codec *const *codecs, mm_execution **execution_out) {
    mm_execution *p = calloc(1, sizeof *p);
    if (!p) return no_memory();
    p->dispatch = dispatch;
    p->program = program;
    p->plan = program->plan;
    p->facts = facts;
    p->codecs = codecs;
    mm_status status = index_steps(p);
    if (status == MM_OK) status = create_events(p);
    if (status == MM_OK && mm_dispatch_is_timed(dispatch)) status = create_times(p);
    if (status == MM_OK) status = mm_variable_codes_init(p);
    if (status == MM_OK) status = mm_allreduce_init(p);
    if (status == MM_OK) status = mm_disk_moves_init(p);
    if (status == MM_OK) status = mm_runtime_alloc_init(p);
    if (status == MM_OK) status = mm_self_check_init(p);
    if (status == MM_OK) status = create_measured(p);
    if (status == MM_OK) status = create_strips(p);
    if (status != MM_OK) {
        mm_execution_destroy(p);
        return status;
    }
    *execution_out = p;
    return MM_OK;
}

bool mm_execution_recorded(const mm_execution *p) { return p->recorded != NULL; }

void mm_execution_unrecord(mm_execution *p) {
    mm_replay_destroy(p->recorded);
    p->recorded = NULL;
}

void mm_execution_set_block(mm_execution *p, const void *block) { p->block = block; }

void mm_execution_destroy(mm_execution *p) {
    if (!p) return;
    mm_execution_unrecord(p);
    mm_traced_fini(p);
    mm_execution_unobserve(p);
    mm_self_check_fini(p);
    mm_runtime_alloc_fini(p);
    mm_variable_codes_fini(p);
    mm_allreduce_fini(p);
    mm_disk_moves_fini(p);
    for (int i = 0; p->events && i < p->program->n; i++) mm_event_destroy(p->events[i]);
    mm_event_destroy(p->begin);
    if (p->measured) mm_device_release(p->dispatch->config.device, MM_MEMORY_PINNED, p->measured, measured_bytes(p));
    free(p->strips);
    free(p->events);
    free(p->total_ns);
    free(p->ended_ns);
    free(p->node_of_step);
    free(p);
}

int mm_execution_pieces(const mm_execution *p, int node) { return mm_program_pieces(p->program, node); }

bool mm_execution_sums(const mm_execution *p, mm_tensor tensor, mm_sums *sums_out) {
    const mm_tensor root = mm_plan_root(p->plan, tensor);
    for (int i = 0; p->measured && i < p->plan->n_nodes; i++) {
        if (p->plan->nodes[i].kind != MM_NODE_MEASURE || p->plan->nodes[i].tensor != root) continue;
        *sums_out = p->measured->sums[root];
        return true;
    }
    return false;
}

int mm_execution_node(const mm_execution *p, int step) { return p->node_of_step[step]; }

/* ---------------------------------------------------------------- times, once an iteration has ended */

/* Skips the first iteration, in which caches warm up. */
static void add_times(mm_execution *p) {
    if (p->timed++ == 0) return;
    for (int i = 0; i < p->program->n; i++) {
        const mm_piece *piece = &p->program->pieces[i];
        int64_t start = mm_program_started(p->program, p->ended_ns, piece), end = p->ended_ns[i];
        if (start == 0) start = mm_event_ns(p->begin);
        if (end > start) p->total_ns[piece->node] += end - start;
    }
}

int64_t mm_execution_measure(mm_execution *p) {
    if (!p->ended_ns) return 0;
    for (int i = 0; i < p->program->n; i++) p->ended_ns[i] = p->events[i] ? mm_event_ns(p->events[i]) : 0;
    if (p->total_ns) add_times(p);
    return mm_program_codec_wait(p->program, p->ended_ns);
}

int64_t mm_execution_ns(const mm_execution *p, int node) {
    return p->total_ns && p->timed > 1 ? p->total_ns[node] / (p->timed - 1) : 0;
}
