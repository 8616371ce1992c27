/* SPDX-License-Identifier: MIT */
#include "tests/mm/manager/manager_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/core/status.h"
#include "mm/planning/together.h"

void rig_init(rig *r, const mm_graph *graph, uint64_t seed) {
    *r = (rig){.graph = graph,
               .seed = seed,
               .external = calloc((size_t)mm_graph_tensors(graph), sizeof *r->external),
               .again = calloc((size_t)mm_graph_steps(graph), sizeof *r->again),
               .times_again = calloc((size_t)mm_graph_steps(graph), sizeof *r->times_again),
               .operands = calloc((size_t)mm_graph_steps(graph), sizeof *r->operands)};
    assert_non_null(r->external);
    assert_non_null(r->operands);
    assert_non_null(r->again);
    assert_non_null(r->times_again);
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        if (mm_graph_tensor(graph, t)->ownership != MM_EXTERNAL) continue;
        r->external[t] = malloc((size_t)mm_graph_tensor(graph, t)->bytes);
        assert_non_null(r->external[t]);
        random_graph_fill(graph, t, seed, r->external[t]);
    }
}

void rig_fini(rig *r) {
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) free(r->external[t]);
    free(r->external);
    free(r->operands);
    free(r->again);
    free(r->times_again);
}

static mm_status fill_persistent(const rig *r, mm_manager *m, mm_tensor t) {
    const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
    void *values = malloc((size_t)tensor->bytes);
    assert_non_null(values);
    random_graph_fill(r->graph, t, r->seed, values);
    mm_status status = mm_persistent_set(m, tensor->name, 0, values, tensor->bytes);
    free(values);
    return status;
}

mm_status rig_bind(const rig *r, mm_manager *m) {
    MM_TRY(mm_manager_prepare(m, r->graph));
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
        if (r->external[t]) MM_TRY(mm_external_set(m, r->graph, t, r->external[t]));
        if (tensor->ownership == MM_PERSISTENT) MM_TRY(fill_persistent(r, m, t));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- steps */

/* Finds the operands of the step under way, and writes them to `kept` only if they differ from it: a task of the last
 * iteration may still be reading `kept`, and then they are the same. */
static void find_operands(const rig *r, mm_manager *m, int s, random_operand kept[RANDOM_USES]) {
    const mm_step_info *step = mm_graph_step(r->graph, s);
    random_operand operands[RANDOM_USES];
    memset(operands, 0, sizeof operands);
    assert_true(step->n_uses <= RANDOM_USES);
    assert_int_equal(mm_current_step(m), s);
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor tensor = step->uses[u].tensor;
        operands[u].data = mm_tensor_data(m, tensor);
        operands[u].form = mm_tensor_form(m, tensor);
        assert_non_null(operands[u].data);
        const bool coded = mm_tensor_coded(m, tensor, MM_READ, &operands[u].read);
        assert_int_equal(coded, operands[u].form == MM_FORM_CODE);
        if (!mm_tensor_coded(m, tensor, MM_WRITE, &operands[u].write)) assert_null(operands[u].write.strips);
    }
    if (memcmp(operands, kept, sizeof operands) != 0) memcpy(kept, operands, sizeof operands);
}

static mm_status run_task(const rig *r, mm_manager *m, int s, const random_operand *operands, mm_stream *stream) {
    random_task task = {r->graph, s, operands, mm_workspace_data(m), 0};
    bool codes = false; /* codes need a workspace of their own */
    for (int u = 0; u < mm_graph_step(r->graph, s)->n_uses; u++)
        codes |= operands[u].read.strips || operands[u].write.strips;
    if (!codes) assert_int_equal(task.workspace != NULL, mm_graph_step(r->graph, s)->workspace_bytes > 0);
    return stream ? rig_device_used()->launch(stream, random_graph_run_task, &task, sizeof task)
                  : random_graph_run_task(&task);
}

static mm_status run_step(rig *r, mm_manager *m, int s, bool on_stream) {
    const mm_step_info *step = mm_graph_step(r->graph, s);
    mm_stream *stream = on_stream ? mm_compute_stream(m) : NULL;
    MM_TRY(mm_layer_begin(m, step->layer, step->phase, stream));
    find_operands(r, m, s, r->operands[s]);
    MM_TRY(run_task(r, m, s, r->operands[s], stream));
    return mm_layer_end(m, step->layer, step->phase);
}

mm_status rig_again(void *ctx, mm_manager *m, mm_layer layer, mm_stream *stream) {
    const rig *r = ctx;
    const int s = mm_graph_layer(r->graph, layer)->step[MM_FORWARD];
    assert_true(r->times_again[s] < RIG_AGAIN_MOST);
    random_operand *operands = r->again[s][r->times_again[s]++];
    find_operands(r, m, s, operands);
    return run_task(r, m, s, operands, stream);
}

mm_status rig_steps(rig *r, mm_manager *m, rig_mode mode, int first, int count) {
    if (first == 0) memset(r->times_again, 0, (size_t)mm_graph_steps(r->graph) * sizeof *r->times_again);
    for (int s = first; s < first + count; s++) {
        bool on_stream = mode == RIG_STREAM || (mode == RIG_MIXED && s % 2 == 0);
        MM_TRY(run_step(r, m, s, on_stream || !rig_device_used()->cpu_reaches_memory));
    }
    return MM_OK;
}

static mm_status iteration(rig *r, mm_manager *m, rig_mode mode, mm_status (*end)(mm_manager *manager)) {
    mm_status status = mm_iteration_begin(m, r->graph);
    if (status == MM_OK) status = rig_steps(r, m, mode, 0, mm_graph_steps(r->graph));
    if (status == MM_OK) return end(m);
    mm_iteration_abort(m);
    return status;
}

mm_status rig_iteration(rig *r, mm_manager *m, rig_mode mode) { return iteration(r, m, mode, mm_iteration_end); }

mm_status rig_iteration_ahead(rig *r, mm_manager *m, rig_mode mode) {
    return iteration(r, m, mode, mm_iteration_end_async);
}

uint64_t rig_digest(const rig *r, mm_manager *m) {
    uint64_t digest = 0;
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
        if (tensor->ownership != MM_PERSISTENT) continue;
        void *values = malloc((size_t)tensor->bytes);
        assert_non_null(values);
        if (mm_persistent_get(m, tensor->name, 0, values, tensor->bytes) != MM_OK) fail_msg("%s", mm_last_error());
        digest = random_graph_digest(digest, values, (size_t)tensor->bytes);
        free(values);
    }
    return digest;
}

/* ---------------------------------------------------------------- managers */

rig_need rig_needs(const mm_graph *graph, const char *spec, int64_t device_bytes, int64_t pinned_bytes) {
    mm_policy policy;
    mm_planned planned;
    mm_limits limits = {.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = mm_plan_base(graph)};
    if (mm_policy_parse(spec, &policy) != MM_OK ||
        mm_planned_init(&planned, &policy, graph, rig_device_used()->name) != MM_OK ||
        mm_planned_make_housed(&planned, &policy, graph, &limits) != MM_OK)
        fail_msg("%s on %s: %s", spec, mm_graph_name(graph), mm_last_error());
    const mm_plan *plan = planned.plan;
    rig_need need = {.device_bytes = plan->peak_bytes, .pinned_bytes = plan->pinned_bytes};
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        need.operations += n->kind != MM_NODE_STEP;
        if (n->kind == MM_NODE_OUT) need.out_bytes += plan->segments[n->dst].bytes;
        if (n->kind == MM_NODE_IN) need.in_bytes += plan->segments[n->src].bytes;
    }
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return need;
}

int64_t rig_minimum(const mm_graph *graph, const char *spec) {
    return rig_needs(graph, spec, INT64_MAX, INT64_MAX).device_bytes;
}

mm_graph *rig_random_graph(uint64_t seed, int layers, int max_channels) {
    mm_graph *graph;
    random_graph_options options = {.seed = seed, .layers = layers, .max_channels = max_channels};
    if (random_graph_create(&options, &graph) != MM_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, mm_last_error());
    return graph;
}

mm_facts *rig_facts(const mm_graph *graph, const mm_graph_facts *facts) {
    const char *root = getenv("TEST_TMPDIR");
    char path[4096];
    mm_facts *read;
    snprintf(path, sizeof path, "%s/facts-%d", root ? root : "/tmp", (int)getpid());
    if (mm_facts_write(facts, graph, path) != MM_OK) fail_msg("%s", mm_last_error());
    if (mm_facts_load(path, &read) != MM_OK) fail_msg("%s", mm_last_error());
    unlink(path);
    return read;
}

mm_manager *rig_manager(const mm_options *options) {
    mm_manager *manager;
    mm_options own = *options;
    if (!own.device) own.device = rig_device_used()->name;
    if (mm_manager_create(&own, &manager) != MM_OK)
        fail_msg("%s: %s", options->policy ? options->policy : "no policy", mm_last_error());
    return manager;
}
