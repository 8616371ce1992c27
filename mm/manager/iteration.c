/* SPDX-License-Identifier: MIT */
/* The calls of an iteration. Checks their order (states.h), and passes them to the dispatcher. */
#include "mm/manager/iteration.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/text.h"
#include "mm/device/contract/clock.h"
#include "mm/manager/claims.h"
#include "mm/manager/home_moves.h"
#include "mm/manager/install.h"
#include "mm/manager/observe.h"
#include "mm/manager/sampling.h"
#include "mm/manager/settings.h"
#include "mm/manager/states.h"
#include "mm/manager/tensor_refusal.h"
#include "mm/manager/values.h"

mm_stream *mm_compute_stream(mm_manager *m) { return m ? mm_dispatch_compute(m->dispatch) : NULL; }

/* For mm_touched_get: fills the plan's memory with the pattern, and adds its segments and its codecs' block to the
 * coverage. They are rounded up to the alignment, because touched bytes are counted in words. */
static mm_status cover(mm_manager *m, mm_ready *r) {
    const mm_planned *planned = &r->prepared->planned;
    const mm_plan *plan = planned->plan;
    mm_range *ranges = malloc(((size_t)plan->n_segments + 2) * sizeof *ranges);
    if (!ranges) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's ranges");
    const int64_t arena = mm_pool_bytes(m->pool);
    size_t n = 0;
    ranges[n++] = (mm_range){plan->heap_offset, plan->heap_offset + plan->heap_bytes};
    ranges[n++] = (mm_range){planned->block_offset, planned->block_offset + mm_align(planned->block_bytes)};
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->dynamic || s->memory != MM_MEM_DEVICE) continue;
        int64_t end = s->offset + mm_align(s->bytes);
        ranges[n++] = (mm_range){s->offset, end < arena ? end : arena};
    }
    int64_t extent = 0;
    for (size_t i = 0; i < n; i++) extent = ranges[i].end > extent ? ranges[i].end : extent;
    mm_status status = mm_pool_pattern_extend(m->pool, extent);
    if (status == MM_OK) status = mm_coverage_add(&m->coverage, ranges, n);
    free(ranges);
    r->covered = status == MM_OK;
    return status;
}

/* Checks that external memory and the recompute function are set, if the plan needs them. */
static mm_status check_provided(const mm_ready *r, const char *call) {
    const mm_graph *graph = r->prepared->planned.plan->graph;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_EXTERNAL && !r->external[t])
            return mm_fail(MM_ERR_ORDER, "%s: external tensor %s of %s has no memory (mm_external_set)", call,
                           mm_graph_tensor(graph, t)->name, mm_graph_name(graph));
    return mm_prepared_unable(r->prepared) < 0 ? MM_OK : mm_prepared_refuse(r->prepared);
}

mm_status mm_iteration_start(mm_manager *m, const mm_graph *graph, const mm_way *way, const char *call) {
    MM_TRY(mm_state_check(m, MM_MOVE_BEGIN, call));
    MM_TRY(mm_stream_check(mm_compute_stream(m)));
    MM_TRY(mm_manager_prepare(m, graph));
    mm_ready *r = mm_manager_find(m, graph);
    MM_TRY(check_provided(r, call));
    MM_TRY(mm_homes_check_whole(m, graph));
    mm_page_guard_open(m); /* `cover` writes to what no earlier plan has used */
    if (m->options.measure_touched && !r->covered) MM_TRY(cover(m, r));
    const bool samples = way->may_sample && mm_sampling_is_due(r);
    mm_iteration now = {.ready = r, .way = way, .planned = &r->prepared->planned, .execution = r->execution};
    if (samples) {
        now.planned = &r->sampling->planned;
        now.execution = r->sampling->execution;
        now.samples = true;
    }
    mm_sampling_judge(r);
    if (way->runs) MM_TRY(mm_manager_send_values(m, r, samples, call));
    const mm_iteration before = m->now;
    m->now = now;
    mm_status status = way->runs ? mm_claims_begin(m) : MM_OK;
    if (status == MM_OK) status = way->runs ? mm_page_guard_begin(m) : MM_OK;
    if (status == MM_OK) status = way->begin(m->dispatch, now.execution);
    if (status != MM_OK) {
        mm_homes_judge_written(m, status);
        m->now = before;
        return status;
    }
    if (!r->prepared->has_begun) { /* it is part of the plan set */
        mm_policy_thread_interrupt(&m->policy_thread);
        r->prepared->has_begun = true;
    }
    mm_state_go(m, MM_MOVE_BEGIN);
    return MM_OK;
}

void mm_iteration_note_begin(mm_manager *m, const mm_ready *r) {
    const mm_plan *plan = r->prepared->planned.plan;
    const mm_ready *largest = m->largest ? mm_manager_find(m, m->largest) : NULL;
    if (!largest || largest->prepared->planned.plan->peak_bytes < plan->peak_bytes) m->largest = plan->graph;
    m->now.began_ns = mm_now_ns();
    pthread_mutex_lock(&m->lock);
    if (plan->peak_bytes > m->predicted_peak_bytes) m->predicted_peak_bytes = plan->peak_bytes;
    m->stash_bytes = plan->stash_bytes;
    pthread_mutex_unlock(&m->lock);
    mm_manager_notify(m, MM_EVENT_ITERATION_BEGIN, mm_graph_name(plan->graph), plan->peak_bytes, 0);
}

static void notify_over(mm_manager *m, mm_event_kind kind, const mm_ready *r) {
    mm_manager_notify(m, kind, mm_graph_name(r->prepared->graph), 0, mm_now_ns() - m->now.began_ns);
}

/* Called when an iteration is over: resets `largest`. If an iteration has failed and no call has returned the failure
 * yet, `largest` stays for the call that will. */
static void forget_largest(mm_manager *m) {
    if (m->state == MM_STATE_IDLE && !mm_dispatch_owes_failure(m->dispatch)) m->largest = NULL;
}

void mm_iteration_note_end(mm_manager *m, mm_ready *r) {
    r->has_run = true;
    mm_sampling_note_end(r, m->now.ready == r && m->now.samples);
    mm_homes_note_written(m, r->prepared->graph);
    m->number = m->number == INT64_MAX ? 0 : m->number + 1;
    pthread_mutex_lock(&m->lock);
    m->iterations++;
    pthread_mutex_unlock(&m->lock);
    notify_over(m, MM_EVENT_ITERATION_END, r);
}

void mm_iteration_note_abort(mm_manager *m, const mm_ready *r) { notify_over(m, MM_EVENT_ABORT, r); }

/* mm_way.lost of an iteration that runs. If memory ran out, also plans anew. */
static void lose_run(mm_manager *m, mm_ready *r, const mm_failure *why) {
    mm_iteration_note_abort(m, r);
    if (why->status == MM_ERR_NOMEM) mm_manager_run_out(m, why);
}

static const mm_way run = {
    .begin = mm_dispatch_begin, .lost = lose_run, .runs = true, .may_sample = true, .told = "not being recorded"};

mm_status mm_iteration_begin(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_state_check(m, MM_MOVE_BEGIN, "mm_iteration_begin"));
    MM_TRY(mm_policy_look(m));
    MM_TRY(mm_observe_look(m));
    MM_TRY(mm_iteration_start(m, graph, &run, "mm_iteration_begin"));
    mm_iteration_note_begin(m, m->now.ready);
    return MM_OK;
}

mm_status mm_iteration_finish(mm_manager *m, const mm_way *way, const char *call,
                              mm_status (*dispatch_end)(mm_dispatch *)) {
    MM_TRY(mm_state_check(m, MM_MOVE_END, call));
    mm_ready *r = m->now.ready;
    if (m->now.way != way)
        return mm_fail(MM_ERR_ORDER, "%s: %s is %s", call, mm_graph_name(r->prepared->graph), m->now.way->told);
    mm_state_go(m, MM_MOVE_END);
    mm_failure failure;
    mm_failure_save(&failure, dispatch_end(m->dispatch));
    const mm_status guarded = mm_page_guard_end(m, failure.status == MM_OK);
    if (guarded != MM_OK && failure.status == MM_OK) mm_failure_save(&failure, guarded);
    const mm_status claims = mm_claims_end(m); /* a wrong claim may be the cause of the other failure */
    if (claims != MM_OK) mm_failure_save(&failure, claims);
    if (failure.status != MM_OK) {
        mm_homes_judge_written(m, failure.status);
        way->lost(m, r, &failure);
    }
    return mm_failure_restore(&failure);
}

static mm_status end(mm_manager *m, const char *call, mm_status (*dispatch_end)(mm_dispatch *dispatch)) {
    MM_TRY(mm_iteration_finish(m, &run, call, dispatch_end));
    mm_iteration_note_end(m, m->now.ready);
    return MM_OK;
}

mm_status mm_iteration_end(mm_manager *m) {
    MM_TRY(mm_state_check(m, MM_MOVE_END, "mm_iteration_end")); /* if refused, `largest` stays */
    mm_status status = end(m, "mm_iteration_end", mm_dispatch_end);
    mm_homes_judge_written(m, status);
    forget_largest(m);
    return status;
}

/* If the iteration samples, waits for it, because its measurements are read before the next iteration begins. */
mm_status mm_iteration_end_async(mm_manager *m) {
    const bool samples = m && m->state != MM_STATE_IDLE && m->now.samples;
    return end(m, "mm_iteration_end_async", samples ? mm_dispatch_end : mm_dispatch_end_async);
}

/* ---------------------------------------------------------------- rehearsals */

static void lose_rehearsal(mm_manager *m, mm_ready *r, const mm_failure *why) {
    if (why->status == MM_ERR_NOMEM) lose_run(m, r, why);
}

static const mm_way rehearsal = {.begin = mm_dispatch_rehearse,
                                 .lost = lose_rehearsal,
                                 .runs = true,
                                 .told = "being rehearsed (mm_iteration_abort)"};

mm_status mm_rehearsal_begin(mm_manager *m, const mm_graph *graph) {
    return mm_iteration_start(m, graph, &rehearsal, "mm_rehearsal_begin");
}

mm_status mm_manager_sync(mm_manager *m) { return mm_manager_drain(m, "mm_manager_sync"); }

void mm_iteration_abort(mm_manager *m) {
    if (!m || !mm_state_may(m, MM_MOVE_ABORT)) return;
    mm_failure reason; /* keeps the caller's mm_last_error */
    mm_failure_save(&reason, MM_ERR_DEVICE);
    mm_state_go(m, MM_MOVE_ABORT);
    mm_caller_stream_drain(m);
    mm_page_guard_open(m);
    mm_dispatch_abort(m->dispatch);
    const mm_status guarded = mm_page_guard_end(m, false);
    (void)guarded; /* the iteration is given up */
    const mm_iteration *was = &m->now;
    mm_homes_judge_written(m, reason.status);
    was->way->lost(m, was->ready, was->ran_out.status != MM_OK ? &was->ran_out : &reason);
    forget_largest(m);
    mm_failure_restore(&reason);
}

/* Refuses a call for a step that is not due, or that is illegal in this state. */
static mm_status out_of_order(const mm_manager *m, mm_move move, const char *call, mm_layer layer, mm_phase phase) {
    if (!m || m->state == MM_STATE_IDLE) return mm_state_refuse(m, move, call);
    const mm_graph *graph = m->now.ready->prepared->graph;
    const char *name = layer >= 0 && layer < mm_graph_layers(graph) ? mm_graph_layer(graph, layer)->name : "unknown";
    char told[MM_MESSAGE_CAPACITY];
    snprintf(told, sizeof told, "%s(%s %s)", call, name, mm_phase_name(phase));
    return mm_state_refuse(m, move, told);
}

static bool is_due(const mm_manager *m, mm_layer layer, mm_phase phase) {
    const mm_graph *graph = m->now.ready->prepared->graph;
    if (m->now.step >= mm_graph_steps(graph)) return false;
    const mm_step_info *step = mm_graph_step(graph, m->now.step);
    return step->layer == layer && step->phase == phase;
}

static mm_status check_step(const mm_manager *m, mm_move move, const char *call, mm_layer layer, mm_phase phase) {
    return m && mm_state_may(m, move) && is_due(m, layer, phase) ? MM_OK : out_of_order(m, move, call, layer, phase);
}

/* If `status` is MM_ERR_NOMEM, saves the failure until the iteration is aborted: mm_iteration_abort then plans anew.
 * Returns `status`. */
static mm_status note(mm_manager *m, mm_status status) {
    if (status == MM_ERR_NOMEM) mm_failure_save(&m->now.ran_out, status);
    return status;
}

/* Calls the user's function in state AGAIN, and ends the step. */
static mm_status run_again(mm_manager *m, int node, mm_stream *stream) {
    const mm_ready *r = m->now.ready;
    mm_layer layer = mm_graph_step(r->prepared->graph, m->now.planned->plan->nodes[node].step)->layer;
    MM_TRY(stream ? MM_OK : mm_page_guard_step_begin(m, node));
    mm_status status = r->recompute(r->recompute_ctx, m, layer, stream);
    if (m->state != MM_STATE_AGAIN)
        return mm_fail(MM_ERR_ORDER, "the iteration was aborted while a step of it was recomputed");
    mm_page_guard_step_end(m);
    if (status == MM_OK) status = mm_caller_stream_take_back(m);
    if (status == MM_OK) status = mm_claims_step_end(m, node, stream == NULL);
    return status == MM_OK ? mm_dispatch_step_end(m->dispatch, node) : status;
}

static mm_status recompute(mm_manager *m, int node, mm_stream *stream, int64_t *waited_ns) {
    int64_t waited = 0;
    mm_status status = mm_dispatch_step_begin(m->dispatch, node, stream, &waited);
    *waited_ns += waited;
    if (status == MM_OK) status = mm_claims_step_begin(m, node, stream == NULL);
    if (status == MM_OK) status = mm_caller_stream_hand_over(m);
    if (status == MM_OK) {
        m->now.node = node;
        mm_state_go(m, MM_MOVE_AGAIN_BEGIN);
        status = run_again(m, node, stream);
    }
    if (m->state != MM_STATE_IDLE) mm_state_go(m, status == MM_OK ? MM_MOVE_AGAIN_END : MM_MOVE_AGAIN_FAIL);
    return status;
}

/* Runs the recomputations that the plan has between the step before and this one. */
static mm_status recompute_for(mm_manager *m, int node, mm_stream *stream, int64_t *waited_ns) {
    const mm_plan *plan = m->now.planned->plan;
    int first = node;
    while (first > 0 && plan->nodes[first - 1].kind != MM_NODE_STEP) first--;
    for (int i = first; i < node; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) MM_TRY(recompute(m, i, stream, waited_ns));
    return MM_OK;
}

/* Begins the step that is due. */
static mm_status begin_step(mm_manager *m, mm_layer layer, mm_stream *stream) {
    int64_t again_ns = 0, waited_ns;
    int node = mm_execution_node(m->now.execution, m->now.step);
    MM_TRY(note(m, recompute_for(m, node, stream, &again_ns)));
    MM_TRY(note(m, mm_dispatch_step_begin(m->dispatch, node, stream, &waited_ns)));
    MM_TRY(note(m, mm_claims_step_begin(m, node, stream == NULL)));
    MM_TRY(note(m, mm_caller_stream_hand_over(m)));
    waited_ns += again_ns;
    MM_TRY(stream ? MM_OK : mm_page_guard_step_begin(m, node));
    m->now.node = node;
    m->now.computes_inline = stream == NULL;
    if (waited_ns > 0)
        mm_manager_notify(m, MM_EVENT_WAIT, mm_graph_layer(m->now.ready->prepared->graph, layer)->name, 0, waited_ns);
    mm_state_go(m, MM_MOVE_STEP_BEGIN);
    return MM_OK;
}

mm_status mm_layer_begin(mm_manager *m, mm_layer layer, mm_phase phase, mm_stream *stream) {
    MM_TRY(check_step(m, MM_MOVE_STEP_BEGIN, "mm_layer_begin", layer, phase));
    m->caller_stream.in_use = false;
    return begin_step(m, layer, stream);
}

mm_status mm_layer_begin_on(mm_manager *m, mm_layer layer, mm_phase phase, void *handle) {
    mm_stream *stream;
    MM_TRY(check_step(m, MM_MOVE_STEP_BEGIN, "mm_layer_begin_on", layer, phase));
    const mm_graph *graph = m->now.ready->prepared->graph;
    if (mm_graph_step(graph, m->now.step)->on_host)
        return mm_fail(MM_ERR_UNSUPPORTED, "mm_layer_begin_on(%s %s): the step runs on the host: mm_layer_begin",
                       mm_graph_layer(graph, layer)->name, mm_phase_name(phase));
    MM_TRY(mm_caller_stream_use(m, handle, &stream));
    return begin_step(m, layer, stream);
}

mm_status mm_layer_end(mm_manager *m, mm_layer layer, mm_phase phase) {
    MM_TRY(check_step(m, MM_MOVE_STEP_END, "mm_layer_end", layer, phase));
    mm_page_guard_step_end(m);
    MM_TRY(note(m, mm_caller_stream_take_back(m)));
    MM_TRY(note(m, mm_claims_step_end(m, m->now.node, m->now.computes_inline)));
    MM_TRY(note(m, mm_dispatch_step_end(m->dispatch, m->now.node)));
    mm_state_go(m, MM_MOVE_STEP_END);
    m->now.step++;
    return MM_OK;
}

/* ---------------------------------------------------------------- tensors of the current step */

/* The plan of the iteration under way. */
static const mm_planned *planned_now(const mm_manager *m) { return m->now.planned; }

/* The node of the step under way; NULL outside of a step. */
static const mm_node *current_node(const mm_manager *m) {
    return mm_state_in_step(m) ? &planned_now(m)->plan->nodes[m->now.node] : NULL;
}

/* The current step's use of a tensor; -1 if it has none, or outside of a step. */
static int current_use(const mm_manager *m, mm_tensor tensor) {
    const mm_node *node = current_node(m);
    if (!node) return -1;
    const mm_step_info *step = mm_graph_step(planned_now(m)->plan->graph, node->step);
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) return u;
    return -1;
}

/* The segment of the current step's use of a tensor; -1 if it has none, or outside of a step. */
static int current_segment(const mm_manager *m, mm_tensor tensor) {
    const int use = current_use(m, tensor);
    return use < 0 ? -1 : planned_now(m)->plan->bindings[current_node(m)->first_binding + use];
}

/* The tensor's address; NULL: it has none now. */
static void *find_address(mm_manager *m, mm_tensor tensor) {
    if (!m || m->state == MM_STATE_IDLE) return NULL;
    const mm_graph *graph = m->now.ready->prepared->graph;
    if (tensor < 0 || tensor >= mm_graph_tensors(graph)) return NULL;
    const mm_tensor_info *info = mm_graph_tensor(graph, tensor);
    if (info->ownership == MM_EXTERNAL) return m->now.ready->external[tensor];
    const bool at_home = info->ownership == MM_PERSISTENT && !mm_plan_visits(planned_now(m)->plan, tensor);
    const int segment = at_home ? info->persistent : current_segment(m, tensor);
    return segment < 0 ? NULL : mm_dispatch_address(m->dispatch, segment);
}

void *mm_iteration_address(mm_manager *m, int use) {
    const mm_plan *plan = planned_now(m)->plan;
    const mm_node *node = current_node(m);
    const int segment = plan->bindings[node->first_binding + use];
    return mm_dispatch_address(m->dispatch, segment);
}

void *mm_tensor_data(mm_manager *m, mm_tensor tensor) {
    void *address = find_address(m, tensor);
    if (!address) mm_tensor_refuse(m, tensor);
    return address;
}

/* Whether the current step reads the tensor's elements in a code. */
static bool is_coded(const mm_manager *m, mm_tensor tensor) {
    const int use = current_use(m, tensor), segment = current_segment(m, tensor);
    if (segment < 0) return false;
    const mm_plan *plan = planned_now(m)->plan;
    return mm_use_is_coded(&mm_graph_step(plan->graph, current_node(m)->step)->uses[use], &plan->segments[segment]);
}

mm_stream *mm_host_stream(mm_manager *m) {
    const mm_node *node = m ? current_node(m) : NULL;
    return node && mm_node_on_host(node) ? mm_dispatch_host(m->dispatch) : NULL;
}

mm_form mm_tensor_form(mm_manager *m, mm_tensor tensor) {
    int segment = current_segment(m, tensor);
    if (segment < 0 || planned_now(m)->plan->segments[segment].content != MM_CONTENT_CODED) return MM_FORM_VALUE;
    return is_coded(m, tensor) ? MM_FORM_CODE : MM_FORM_SIGN;
}

bool mm_tensor_coded(mm_manager *m, mm_tensor tensor, mm_access access, mm_coded *coded_out) {
    const int use = current_use(m, tensor);
    if (use < 0) return false;
    int segment = mm_node_code(planned_now(m)->plan, current_node(m), use);
    if (access == MM_READ) segment = is_coded(m, tensor) ? current_segment(m, tensor) : -1;
    if (segment < 0) return false;
    *coded_out = (mm_coded){.strips = mm_execution_strips(m->now.ready->execution, segment),
                            .code = mm_dispatch_address(m->dispatch, segment),
                            .counters = mm_dispatch_counters(m->dispatch)};
    return true;
}

bool mm_tensor_exact(mm_manager *m, mm_tensor tensor) {
    int segment = current_segment(m, tensor);
    if (segment < 0 || mm_graph_tensor(planned_now(m)->plan->graph, tensor)->ownership != MM_MANAGED) return false;
    const int codec = planned_now(m)->plan->segments[segment].codec;
    if (is_coded(m, tensor) && !planned_now(m)->facts->codecs[codec].lossless) return false;
    return planned_now(m)->exact[segment];
}

bool mm_tensor_given(mm_manager *m, mm_tensor tensor) {
    const mm_node *node = current_node(m);
    if (!node) return false;
    const mm_step_info *step = mm_graph_step(planned_now(m)->plan->graph, node->step);
    for (int u = 0; u < step->n_uses && u < MM_GIVEN_USES; u++)
        if (step->uses[u].tensor == tensor) return node->given >> u & 1;
    return false;
}

void *mm_workspace_data(mm_manager *m) {
    const mm_node *node = current_node(m);
    return node && node->work >= 0 ? mm_dispatch_address(m->dispatch, node->work) : NULL;
}

size_t mm_workspace_bytes(mm_manager *m) {
    const mm_node *node = current_node(m);
    return node && node->work >= 0 ? (size_t)planned_now(m)->plan->segments[node->work].bytes : 0;
}

int mm_current_step(const mm_manager *m) {
    const mm_node *node = current_node(m);
    return node ? node->step : -1;
}
