/* SPDX-License-Identifier: MIT */
#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"

/* How far zeros are traced back through layers that pass them on. Chosen: chains of pools and concatenations are
 * shorter, and a graph in which each concatenates the last two takes no time. */
enum { MOST_PASSES = 8 };

typedef enum measured { UNKNOWN, FEW, MANY } measured;

/* What the measured sizes of codes that leave out zeros say about the map. */
static measured zeros_measured(const mm_graph_facts *facts, const mm_graph *graph, mm_tensor tensor) {
    measured found = UNKNOWN;
    for (int c = 0; c < facts->n_codecs; c++) {
        const mm_code_facts *code = mm_facts_code(facts, c, tensor);
        if (!facts->codecs[c].drops_zeros || code->code_bytes < 0 || !code->body_is_measured) continue;
        const int64_t bytes = mm_graph_tensor(graph, tensor)->bytes;
        if (code->code_bytes + code->body_typical_bytes <= bytes - bytes / 8) return MANY;
        found = FEW;
    }
    return found;
}

static const mm_step_info *step_of(const mm_graph *graph, mm_layer layer, mm_phase phase) {
    const int step = mm_graph_layer(graph, layer)->step[phase];
    return step < 0 ? NULL : mm_graph_step(graph, step);
}

/* Whether the backward step of the layer that writes the map reads nothing of it but signs, as a ReLU's does. */
static bool is_read_by_sign(const mm_graph *graph, mm_tensor tensor) {
    const mm_step_info *backward = step_of(graph, mm_graph_tensor(graph, tensor)->producer, MM_BACKWARD);
    for (int u = 0; backward && u < backward->n_uses; u++)
        if (backward->uses[u].tensor == tensor) return backward->uses[u].form == MM_FORM_SIGN;
    return false;
}

static bool promise(const mm_graph_facts *facts, const mm_graph *graph, mm_tensor tensor, int passes);

/* Whether all maps that the step reads promise zeros, and it reads one. */
static bool inputs_promise(const mm_graph_facts *facts, const mm_graph *graph, const mm_step_info *step, int passes) {
    bool all = false;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (use->access != MM_READ || mm_graph_tensor(graph, use->tensor)->kind != MM_FEATURE_MAP) continue;
        all = promise(facts, graph, use->tensor, passes);
        if (!all) break;
    }
    return all;
}

static bool promise(const mm_graph_facts *facts, const mm_graph *graph, mm_tensor tensor, int passes) {
    const mm_tensor_info *info = mm_graph_tensor(graph, tensor);
    if (info->kind != MM_FEATURE_MAP || info->producer < 0) return false;
    const measured zeros = zeros_measured(facts, graph, tensor);
    if (zeros != UNKNOWN) return zeros == MANY;
    const mm_layer_zeros by_kind = mm_layer_kind_zeros(mm_graph_layer(graph, info->producer)->kind);
    if (by_kind == MM_ZEROS_MADE || is_read_by_sign(graph, tensor)) return true;
    const mm_step_info *forward = step_of(graph, info->producer, MM_FORWARD);
    if (!forward || passes == 0) return false;
    for (int p = 0; p < forward->n_pairs; p++)
        if (forward->pairs[p].alias && forward->pairs[p].output == tensor)
            return promise(facts, graph, forward->pairs[p].input, passes - 1);
    return by_kind == MM_ZEROS_PASSED && inputs_promise(facts, graph, forward, passes - 1);
}

bool mm_facts_promise_zeros(const mm_graph_facts *facts, const mm_graph *graph, mm_tensor tensor) {
    return promise(facts, graph, tensor, MOST_PASSES);
}
