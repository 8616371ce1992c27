/* SPDX-License-Identifier: MIT */
#include "tools/facts/machine_work.h"

#include <math.h>

double machine_elems(const mm_tensor_info *t) { return (double)t->bytes / (double)mm_dtype_bytes(t->dtype); }

/* The tensor of this kind and access that a step uses; of several, the one of highest rank. NULL: none. */
static const mm_tensor_info *find_use(const mm_graph *graph, const mm_step_info *step, mm_tensor_kind kind,
                                      mm_access access) {
    const mm_tensor_info *found = NULL;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor_info *t = mm_graph_tensor(graph, step->uses[u].tensor);
        if (t->kind == kind && step->uses[u].access == access && (!found || t->rank > found->rank)) found = t;
    }
    return found;
}

/* Whether a convolution is transposed. If it is, dims[0] of its weight is the number of the input's channels, else that
 * of the output's. If both numbers are equal, the output's height decides. */
static bool is_transposed(const machine_product *p) {
    if (p->w->dims[0] != p->y->dims[3]) return true;
    return p->w->dims[0] == p->x->dims[3] && p->y->dims[1] >= 2 * p->x->dims[1];
}

/* Attention computes two products: of each token's channels with the channels of, on average, half of all tokens. */
static machine_product attention_of(const machine_product *maps) {
    machine_product p = *maps;
    if (!p.x || !p.y || p.y->rank < 2) return (machine_product){0};
    p.linear = p.attention = true;
    p.outputs = machine_elems(p.y);
    p.multiply_adds = machine_elems(p.y) * (double)p.y->dims[p.y->rank - 2];
    return p;
}

/* A convolution applies a filter for each element of its output; a transposed one, of its input. */
machine_product machine_product_of(const mm_graph *graph, mm_layer layer) {
    const mm_layer_info *info = mm_graph_layer(graph, layer);
    int forward = info->step[MM_FORWARD];
    if (forward < 0) return (machine_product){0};
    const mm_step_info *step = mm_graph_step(graph, forward);
    machine_product p = {.w = find_use(graph, step, MM_WEIGHT, MM_READ),
                         .y = find_use(graph, step, MM_FEATURE_MAP, MM_WRITE),
                         .x = find_use(graph, step, MM_FEATURE_MAP, MM_READ)};
    if (!p.x) p.x = find_use(graph, step, MM_INPUT, MM_READ);
    if (p.x) p.type = p.x->dtype;
    if (info->kind == MM_LAYER_ATTENTION) return attention_of(&p);
    if (!p.w || !p.x || !p.y) return (machine_product){0};
    if (info->kind != MM_LAYER_CONV && info->kind != MM_LAYER_LINEAR && info->kind != MM_LAYER_LOSS)
        return (machine_product){0};
    p.linear = info->kind != MM_LAYER_CONV;
    p.filtered = !p.linear && is_transposed(&p) ? p.x : p.y;
    const double rows = machine_elems(p.y) / (double)p.y->dims[p.y->rank - 1];
    p.outputs = info->kind == MM_LAYER_LOSS ? rows * (double)p.w->dims[0] : machine_elems(p.y);
    p.multiply_adds =
        p.linear ? machine_elems(p.w) * rows : machine_elems(p.filtered) * machine_elems(p.w) / (double)p.w->dims[0];
    p.winograd = !p.linear && p.w->dims[2] == 3 && p.w->dims[3] == 3 && p.y->dims[1] == p.x->dims[1] &&
                 p.y->dims[2] == p.x->dims[2];
    return p;
}

static bool has_weight_gradients(const mm_graph *graph) {
    mm_tensor t = 0;
    while (t < mm_graph_tensors(graph) && mm_graph_tensor(graph, t)->kind != MM_WEIGHT_GRADIENT) t++;
    return t < mm_graph_tensors(graph);
}

/* Whether the step computes its weights' gradient: it has that, or the graph declares none of any weights. */
static bool gives_weights(const mm_graph *graph, const mm_step_info *step) {
    return find_use(graph, step, MM_WEIGHT_GRADIENT, MM_WRITE) ||
           find_use(graph, step, MM_WEIGHT_GRADIENT, MM_MODIFY) || !has_weight_gradients(graph);
}

bool machine_is_twice(const mm_graph *graph, const mm_step_info *step) {
    return step->phase == MM_BACKWARD && find_use(graph, step, MM_GRADIENT_MAP, MM_WRITE) && gives_weights(graph, step);
}

double machine_times(const mm_graph *graph, const mm_step_info *step) {
    const mm_layer_kind kind = mm_graph_layer(graph, step->layer)->kind;
    if (kind == MM_LAYER_LOSS) return step->phase == MM_FORWARD ? 2 + gives_weights(graph, step) : 0;
    if (kind == MM_LAYER_ATTENTION) return step->phase == MM_FORWARD ? 1 : 2.5;
    return 1 + machine_is_twice(graph, step);
}

/* Whether a tensor is an output that only shares its input's storage: the step writes no bytes of it. */
static bool is_passed_on(const mm_step_info *step, mm_tensor tensor) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].alias && step->pairs[p].output == tensor) return true;
    return false;
}

/* The part of the gradient and of the weight that an update reads and changes: of one whose states are a strip of the
 * weight's elements (nets/lower/param_strips.h), that strip; else all. */
static double updated_share(const mm_graph *graph, const mm_step_info *step) {
    double share = 0;
    for (int u = 0; step->phase == MM_UPDATE && u < step->n_uses; u++) {
        const mm_tensor_info *state = mm_graph_tensor(graph, step->uses[u].tensor);
        if (state->kind != MM_OPTIMIZER || state->weight < 0) continue;
        share = fmax(share, machine_elems(state) / machine_elems(mm_graph_tensor(graph, state->weight)));
    }
    return share > 0 && share < 1 ? share : 1;
}

double machine_traffic_bytes(const mm_graph *graph, const mm_step_info *step) {
    const double share = updated_share(graph, step);
    double bytes = 0;
    bool writes = false;
    for (int u = 0; u < step->n_uses; u++) {
        if (is_passed_on(step, step->uses[u].tensor)) continue;
        const mm_tensor_info *tensor = mm_graph_tensor(graph, step->uses[u].tensor);
        const double all = (double)tensor->bytes * (1 + (step->uses[u].access == MM_MODIFY));
        writes |= step->uses[u].access != MM_READ;
        bytes += tensor->kind == MM_OPTIMIZER ? all : share * all;
    }
    return writes ? bytes : 0;
}
