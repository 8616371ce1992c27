/* The calls of an iteration: their order is checked here, the work is the dispatcher's. */
#include <stdlib.h>

#include "mm/device/clock.h"
#include "mm/manager.h"

mm_stream *mm_compute_stream(mm_manager *m) { return m ? mm_dispatch_compute(m->dispatch) : NULL; }

/* Remembers where the plan may write, for mm_touched_get, up to whole units of alignment: touched bytes are counted in
 * words. The pattern reaches as far as any plan that has run; what lies beyond is never touched. */
static mm_status cover(mm_manager *m, mm_record *r) {
    const mm_plan *plan = r->planned.plan;
    mm_range *ranges = malloc(((size_t)plan->n_segments + 1) * sizeof *ranges);
    if (!ranges) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's ranges");
    const int64_t arena = mm_pool_bytes(m->pool);
    size_t n = 0;
    ranges[n++] = (mm_range){plan->heap_offset, plan->heap_offset + plan->heap_bytes};
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->dynamic || s->pinned) continue;
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

/* A plan that runs steps again needs somebody to run them. */
static mm_status check_recompute(const mm_record *r) {
    const mm_plan *plan = r->planned.plan;
    char name[256];
    int step = mm_record_unable(r);
    if (step < 0) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "policy %s recomputes %s of %s: tell how with mm_recompute_set",
                   MM_BRIEF(plan->policy), mm_graph_step_name(plan->graph, step, name, sizeof name),
                   mm_graph_name(plan->graph));
}

mm_status mm_iteration_start(mm_manager *m, const mm_graph *graph, const char *call,
                             mm_status (*dispatch_begin)(mm_dispatch *dispatch, mm_execution *execution)) {
    MM_TRY(mm_manager_check_idle(m, call));
    MM_TRY(mm_manager_prepare(m, graph));
    mm_record *r = mm_manager_find(m, graph);
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_EXTERNAL && !r->fixed[t])
            return mm_fail(MM_ERR_ORDER, "%s: external tensor %s of %s has no memory (mm_external_set)", call,
                           mm_graph_tensor(graph, t)->name, mm_graph_name(graph));
    MM_TRY(check_recompute(r));
    if (m->options.measure_touched && !r->covered) MM_TRY(cover(m, r));
    MM_TRY(dispatch_begin(m->dispatch, r->execution));
    m->running = r;
    m->step = 0;
    m->in_step = m->failed = m->ran_out = false;
    return MM_OK;
}

void mm_iteration_note_begin(mm_manager *m, const mm_record *r) {
    const mm_plan *plan = r->planned.plan;
    const mm_record *largest = m->largest ? mm_manager_find(m, m->largest) : NULL;
    if (!largest || largest->planned.plan->peak_bytes < plan->peak_bytes) m->largest = r->graph;
    m->began_ns = mm_now_ns();
    pthread_mutex_lock(&m->lock);
    if (plan->peak_bytes > m->predicted_peak_bytes) m->predicted_peak_bytes = plan->peak_bytes;
    m->stash_bytes = plan->stash_bytes;
    pthread_mutex_unlock(&m->lock);
    mm_manager_notify(m, MM_EVENT_ITERATION_BEGIN, mm_graph_name(r->graph), plan->peak_bytes, 0);
}

void mm_iteration_note_end(mm_manager *m, mm_record *r) {
    r->has_run = true;
    pthread_mutex_lock(&m->lock);
    m->iterations++;
    pthread_mutex_unlock(&m->lock);
    mm_manager_notify(m, MM_EVENT_ITERATION_END, mm_graph_name(r->graph), 0, mm_now_ns() - m->began_ns);
}

void mm_iteration_note_abort(mm_manager *m, const mm_graph *graph) {
    mm_manager_notify(m, MM_EVENT_ABORT, mm_graph_name(graph), 0, mm_now_ns() - m->began_ns);
}

mm_status mm_iteration_begin(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_iteration_start(m, graph, "mm_iteration_begin", mm_dispatch_begin));
    mm_iteration_note_begin(m, m->running);
    return MM_OK;
}

mm_status mm_iteration_finish(mm_manager *m, const char *call, bool recording,
                              mm_status (*dispatch_end)(mm_dispatch *)) {
    if (!m || !m->running) return mm_fail(MM_ERR_ORDER, "%s: no iteration is under way", call);
    const mm_graph *graph = m->running->graph;
    if (m->in_step || m->step != mm_graph_steps(graph)) {
        char name[256];
        mm_graph_step_name(graph, m->step, name, sizeof name);
        return mm_fail(MM_ERR_ORDER, "%s: %s of %s has not %s", call, name, mm_graph_name(graph),
                       m->in_step ? "ended" : "been run");
    }
    if (m->recording != recording)
        return mm_fail(MM_ERR_ORDER, "%s: %s is %s", call, mm_graph_name(graph),
                       m->recording ? "being recorded (mm_record_end)" : "not being recorded");
    m->running = NULL;
    m->recording = false;
    mm_status status = dispatch_end(m->dispatch);
    if (status == MM_OK || recording) return status;
    mm_iteration_note_abort(m, graph);
    if (status == MM_ERR_NOMEM) mm_manager_run_out(m);
    return status;
}

static mm_status end(mm_manager *m, const char *call, mm_status (*dispatch_end)(mm_dispatch *dispatch)) {
    mm_record *r = m ? m->running : NULL;
    MM_TRY(mm_iteration_finish(m, call, false, dispatch_end));
    mm_iteration_note_end(m, r);
    return MM_OK;
}

mm_status mm_iteration_end(mm_manager *m) {
    mm_status status = end(m, "mm_iteration_end", mm_dispatch_end);
    if (m && !m->running) m->largest = NULL;
    return status;
}

mm_status mm_iteration_end_async(mm_manager *m) { return end(m, "mm_iteration_end_async", mm_dispatch_end_async); }

mm_status mm_manager_sync(mm_manager *m) { return mm_manager_settle(m, "mm_manager_sync"); }

void mm_iteration_abort(mm_manager *m) {
    if (!m || !m->running) return;
    mm_record *r = m->running;
    m->running = NULL;
    m->in_step = false;
    mm_dispatch_abort(m->dispatch);
    bool recording = m->recording;
    m->recording = false;
    if (recording) {
        mm_replay_refuse(m, r, MM_ERR_DEVICE, mm_last_error());
        return;
    }
    mm_iteration_note_abort(m, r->graph);
    if (m->ran_out) mm_manager_run_out(m);
    m->largest = NULL;
}

static mm_status out_of_order(const mm_manager *m, const char *call, mm_layer layer, mm_phase phase) {
    const mm_graph *graph = m->running->graph;
    char expected[256] = "mm_iteration_end";
    if (m->step < mm_graph_steps(graph)) mm_graph_step_name(graph, m->step, expected, sizeof expected);
    const char *name = layer >= 0 && layer < mm_graph_layers(graph) ? mm_graph_layer(graph, layer)->name : "unknown";
    return mm_fail(MM_ERR_ORDER, "%s(%s %s) is out of order: %s of %s is %s", call, name, mm_phase_name(phase),
                   expected, mm_graph_name(graph), m->in_step ? "under way" : "next");
}

static bool is_current(const mm_manager *m, mm_layer layer, mm_phase phase) {
    const mm_graph *graph = m->running->graph;
    if (m->step >= mm_graph_steps(graph)) return false;
    const mm_step_info *step = mm_graph_step(graph, m->step);
    return step->layer == layer && step->phase == phase;
}

/* Memory that ran out while a step was begun or ended: the plan is given up with the iteration. */
static mm_status note(mm_manager *m, mm_status status) {
    m->ran_out |= status == MM_ERR_NOMEM;
    return status;
}

static mm_status recompute(mm_manager *m, int node, mm_stream *stream, int64_t *waited_ns) {
    const mm_record *r = m->running;
    int64_t waited;
    mm_status begun = mm_dispatch_step_begin(m->dispatch, node, stream, &waited);
    m->failed = begun != MM_OK;
    MM_TRY(begun);
    *waited_ns += waited;
    m->node = node;
    m->in_step = true;
    mm_layer layer = mm_graph_step(r->graph, r->planned.plan->nodes[node].step)->layer;
    mm_status status = r->recompute(r->recompute_ctx, m, layer, stream);
    if (m->running != r) return mm_fail(MM_ERR_ORDER, "the iteration was aborted while a step of it was recomputed");
    m->in_step = false;
    if (status == MM_OK) status = mm_dispatch_step_end(m->dispatch, node);
    m->failed = status != MM_OK;
    return status;
}

/* What the plan runs again between the step before and this one. */
static mm_status recompute_for(mm_manager *m, int node, mm_stream *stream, int64_t *waited_ns) {
    const mm_plan *plan = m->running->planned.plan;
    int first = node;
    while (first > 0 && plan->nodes[first - 1].kind != MM_NODE_STEP) first--;
    for (int i = first; i < node; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) MM_TRY(recompute(m, i, stream, waited_ns));
    return MM_OK;
}

mm_status mm_layer_begin(mm_manager *m, mm_layer layer, mm_phase phase, mm_stream *stream) {
    if (!m || !m->running) return mm_fail(MM_ERR_ORDER, "mm_layer_begin: no iteration is under way");
    if (m->in_step || !is_current(m, layer, phase)) return out_of_order(m, "mm_layer_begin", layer, phase);
    if (m->failed) return mm_fail(MM_ERR_ORDER, "mm_layer_begin: a recomputation has failed; abort the iteration");
    int64_t again_ns = 0, waited_ns;
    int node = mm_execution_node(m->running->execution, m->step);
    MM_TRY(note(m, recompute_for(m, node, stream, &again_ns)));
    MM_TRY(note(m, mm_dispatch_step_begin(m->dispatch, node, stream, &waited_ns)));
    waited_ns += again_ns;
    m->node = node;
    if (waited_ns > 0)
        mm_manager_notify(m, MM_EVENT_WAIT, mm_graph_layer(m->running->graph, layer)->name, 0, waited_ns);
    m->in_step = true;
    return MM_OK;
}

mm_status mm_layer_end(mm_manager *m, mm_layer layer, mm_phase phase) {
    if (!m || !m->running) return mm_fail(MM_ERR_ORDER, "mm_layer_end: no iteration is under way");
    /* While a step is recomputed for it, the current one has not begun. */
    if (!m->in_step || !is_current(m, layer, phase) || m->node != mm_execution_node(m->running->execution, m->step))
        return out_of_order(m, "mm_layer_end", layer, phase);
    MM_TRY(note(m, mm_dispatch_step_end(m->dispatch, m->node)));
    m->in_step = false;
    m->step++;
    return MM_OK;
}

/* The segment of the current node's use of a tensor; -1 if it has none. */
static int current_segment(const mm_manager *m, mm_tensor tensor) {
    const mm_plan *plan = m->running->planned.plan;
    const mm_node *node = &plan->nodes[m->node];
    const mm_step_info *step = mm_graph_step(m->running->graph, node->step);
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) return plan->bindings[node->first_binding + u];
    return -1;
}

void *mm_tensor_data(mm_manager *m, mm_tensor tensor) {
    if (!m || !m->running || tensor < 0 || tensor >= mm_graph_tensors(m->running->graph)) return NULL;
    if (mm_graph_tensor(m->running->graph, tensor)->ownership != MM_MANAGED) return m->running->fixed[tensor];
    if (!m->in_step) return NULL;
    int segment = current_segment(m, tensor);
    return segment < 0 ? NULL : mm_dispatch_address(m->dispatch, segment);
}

mm_form mm_tensor_form(mm_manager *m, mm_tensor tensor) {
    if (!m || !m->running || !m->in_step) return MM_FORM_VALUE;
    int segment = current_segment(m, tensor);
    if (segment < 0) return MM_FORM_VALUE;
    return m->running->planned.plan->segments[segment].content == MM_CONTENT_CODED ? MM_FORM_SIGN : MM_FORM_VALUE;
}

bool mm_tensor_exact(mm_manager *m, mm_tensor tensor) {
    if (!m || !m->running || !m->in_step) return false;
    int segment = current_segment(m, tensor);
    return segment >= 0 && m->running->planned.exact[segment];
}

bool mm_tensor_given(mm_manager *m, mm_tensor tensor) {
    if (!m || !m->running || !m->in_step) return false;
    const mm_node *n = &m->running->planned.plan->nodes[m->node];
    const mm_step_info *step = mm_graph_step(m->running->graph, n->step);
    for (int u = 0; u < step->n_uses && u < MM_GIVEN_USES; u++)
        if (step->uses[u].tensor == tensor) return n->given >> u & 1;
    return false;
}

void *mm_workspace_data(mm_manager *m) {
    if (!m || !m->running || !m->in_step) return NULL;
    const mm_plan *plan = m->running->planned.plan;
    int segment = plan->nodes[m->node].work;
    return segment < 0 ? NULL : mm_dispatch_address(m->dispatch, segment);
}

size_t mm_workspace_bytes(mm_manager *m) {
    if (!m || !m->running || !m->in_step) return 0;
    const mm_plan *plan = m->running->planned.plan;
    int segment = plan->nodes[m->node].work;
    return segment < 0 ? 0 : (size_t)plan->segments[segment].bytes;
}

int mm_current_step(const mm_manager *m) {
    return m && m->running && m->in_step ? m->running->planned.plan->nodes[m->node].step : -1;
}
