/* SPDX-License-Identifier: MIT */
/* Compares what was measured around steps, and says which claim is wrong, and what to declare instead. */
#include <stdio.h>

#include "mm/core/text.h"
#include "mm/manager/claims_state.h"

enum { STEP_CAPACITY = 2 * MM_BRIEF_CAPACITY };

/* "ln2 backward", or "ln1 forward, computed again,". */
static const char *step_text(const mm_claims *c, const mm_node *n, char buffer[STEP_CAPACITY]) {
    char name[STEP_CAPACITY];
    mm_graph_step_name(c->plan->graph, n->step, name, sizeof name);
    const int length = snprintf(buffer, STEP_CAPACITY, "%s%s", MM_BRIEF(name),
                                n->kind == MM_NODE_RECOMPUTE ? ", computed again," : "");
    mm_text_mark_cut(buffer, STEP_CAPACITY, length);
    return buffer;
}

static mm_status tell_read(const mm_node *n, const char *step, const char *tensor, int u) {
    if (mm_node_is_given(n, u))
        return mm_fail(MM_ERR_INVALID,
                       "self-check: %s writes tensor %s, which it is given; ask mm_tensor_given, or do without "
                       "mm_graph_allow_given",
                       step, tensor);
    return mm_fail(MM_ERR_INVALID, "self-check: %s writes tensor %s, which it declares MM_READ; declare MM_MODIFY",
                   step, tensor);
}

static mm_status tell_hole(const mm_claim_use *use, const char *step, const char *tensor) {
    return mm_fail(
        MM_ERR_INVALID,
        "self-check: %s declares MM_WRITE of tensor %s, and does not write its byte %llu of %lld, or adds to "
        "what was there; write every byte, or declare MM_MODIFY (mm_loop: MM_TOUCH_ADD if it adds)",
        step, tensor, (unsigned long long)use->hole, (long long)use->bytes);
}

/* Lists the outputs that share the storage of use u. Which of them was written is not known. */
static mm_status tell_alias(const mm_claims *c, const mm_node *n, const mm_claim_use *uses, int u) {
    const mm_graph *graph = c->plan->graph;
    const mm_step_info *step = mm_graph_step(graph, n->step);
    char outputs[MM_MESSAGE_CAPACITY / 4] = "";
    size_t length = 0;
    for (int v = 0; v < step->n_uses && length < sizeof outputs; v++)
        if (uses[v].data == uses[u].data && step->uses[v].access == MM_WRITE)
            length += (size_t)snprintf(outputs + length, sizeof outputs - length, "%s%s", length > 0 ? ", " : "",
                                       mm_graph_tensor(graph, step->uses[v].tensor)->name);
    mm_text_mark_cut(outputs, sizeof outputs, (int)length);
    return mm_fail(
        MM_ERR_INVALID,
        "self-check: %s writes other bits to %s, which shares the storage of %s; write nothing where pointers "
        "are equal, or declare mm_graph_allow_inplace in place of mm_graph_allow_alias, or neither",
        step_text(c, n, (char[STEP_CAPACITY]){0}), outputs,
        MM_BRIEF(mm_graph_tensor(graph, step->uses[u].tensor)->name));
}

static mm_status look_at_use(const mm_claims *c, const mm_node *n, const mm_claim_use *uses, int u) {
    const mm_graph *graph = c->plan->graph;
    const mm_use *declared = mm_graph_step(graph, n->step)->uses;
    const mm_claim_use *use = &uses[u];
    const char *tensor = MM_BRIEF(mm_graph_tensor(graph, declared[u].tensor)->name);
    const char *step = step_text(c, n, (char[STEP_CAPACITY]){0});
    if (use->test == MM_CLAIM_SAME && use->before != use->after) return tell_read(n, step, tensor, u);
    if (use->test == MM_CLAIM_ALIAS && use->before != use->after) return tell_alias(c, n, uses, u);
    if (use->test != MM_CLAIM_MARK) return MM_OK;
    if (use->hole != MM_MARK_NONE) return tell_hole(use, step, tensor);
    if (use->equals >= 0 && use->after != uses[use->equals].after)
        return mm_fail(MM_ERR_INVALID,
                       "self-check: %s writes tensor %s with other bits than %s has; do without mm_graph_allow_alias "
                       "(mm_loop: mm_slot.over), or copy",
                       step, tensor, MM_BRIEF(mm_graph_tensor(graph, declared[use->equals].tensor)->name));
    if (use->first >= 0 && c->uses[use->first].test == MM_CLAIM_MARK && use->after != c->uses[use->first].after)
        return mm_fail(MM_ERR_INVALID,
                       "self-check: %s writes tensor %s with other bits than the first time; use the same random "
                       "numbers, or declare the layer not repeatable (mm_graph_set_properties; mm_loop: no `run`)",
                       step, tensor);
    return MM_OK;
}

mm_status mm_claims_look(mm_claims *c) {
    while (c->n_looked < c->n_nodes && c->pending[c->n_looked] == 0) {
        const mm_node *n = &c->plan->nodes[c->nodes[c->n_looked++]];
        for (int u = 0; u < mm_graph_step(c->plan->graph, n->step)->n_uses; u++)
            MM_TRY(look_at_use(c, n, c->uses + n->first_binding, u));
    }
    return MM_OK;
}

mm_status mm_claims_look_memory(const mm_claims *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    for (int i = 0; i < c->n_memory; i++) {
        const mm_claim_memory *memory = &c->memory[i];
        if (memory->before == memory->after) continue;
        return mm_fail(
            MM_ERR_INVALID,
            "self-check: %s changes %s tensor %s, which it may not (mm_recompute_fn); leave it as it is when "
            "computed again, or declare the layer not repeatable (mm_graph_set_properties; mm_loop: no `run`)",
            step_text(c, n, (char[STEP_CAPACITY]){0}), memory->ownership, MM_BRIEF(memory->name));
    }
    return MM_OK;
}
