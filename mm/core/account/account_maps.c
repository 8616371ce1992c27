/* SPDX-License-Identifier: MIT */
#include "mm/core/account/account_maps.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

const char *mm_stash_class_name(mm_stash_class class) {
    static const char *const names[MM_STASH_CLASSES] = {
        [MM_STASH_RELU_POOL] = "ReLU to pool",        [MM_STASH_RELU_CONV] = "ReLU to convolution",
        [MM_STASH_POOL_CONV] = "pool to convolution", [MM_STASH_OTHER] = "other maps",
        [MM_STASH_SAVED] = "indices and statistics",  [MM_STASH_BATCH] = "the batch",
    };
    return (unsigned)class < MM_STASH_CLASSES ? names[class] : "unknown";
}

/* The kinds of layers that read a tensor or an alias of it in the forward pass, a bit for each. */
static uint32_t readers_of(const mm_plan *plan, mm_tensor root) {
    uint32_t kinds = 0;
    for (int i = 0; i < mm_graph_steps(plan->graph); i++) {
        const mm_step_info *step = mm_graph_step(plan->graph, i);
        for (int u = 0; step->phase == MM_FORWARD && u < step->n_uses; u++)
            if (mm_plan_root(plan, step->uses[u].tensor) == root && step->uses[u].access == MM_READ)
                kinds |= 1u << mm_graph_layer(plan->graph, step->layer)->kind;
    }
    return kinds;
}

static mm_stash_class class_of(const mm_plan *plan, mm_tensor root) {
    const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, root);
    if (tensor->kind == MM_INPUT) return MM_STASH_BATCH;
    if (tensor->kind != MM_FEATURE_MAP || tensor->producer < 0) return MM_STASH_SAVED;
    const mm_layer_kind writer = mm_graph_layer(plan->graph, tensor->producer)->kind;
    const bool relu = writer == MM_LAYER_RELU || writer == MM_LAYER_BATCH_NORM_RELU;
    const uint32_t readers = readers_of(plan, root);
    const bool conv = readers >> MM_LAYER_CONV & 1;
    if (conv && (relu || writer == MM_LAYER_POOL)) return relu ? MM_STASH_RELU_CONV : MM_STASH_POOL_CONV;
    return relu && readers >> MM_LAYER_POOL & 1 ? MM_STASH_RELU_POOL : MM_STASH_OTHER;
}

/* Bytes that are reserved on the device for a code's body. */
static int64_t body_bytes(const mm_plan *plan, const mm_graph_facts *facts, const mm_segment *s) {
    if (s->content != MM_CONTENT_CODED || s->pool < 0 || plan->segments[s->pool].memory == MM_MEM_PINNED) return 0;
    return mm_facts_code(facts, s->codec, s->tensor)->body_reserve_bytes;
}

static void classify(const mm_plan *plan, const mm_graph_facts *facts, const mm_stash_account *stash,
                     mm_map_account *account) {
    for (int i = 0; i < stash->n_maps; i++) {
        mm_stash_sum *sum = &account->stash[class_of(plan, stash->maps[i].tensor)];
        sum->bytes += stash->maps[i].bytes;
        sum->held_bytes += stash->maps[i].held_bytes;
    }
    for (int i = 0; i < plan->n_segments; i++) {
        const int64_t body = body_bytes(plan, facts, &plan->segments[i]);
        if (body > 0) account->stash[class_of(plan, plan->segments[i].tensor)].held_bytes += body;
    }
}

static bool is_batch(const mm_plan *plan, const mm_segment *s) {
    return s->tensor >= 0 && mm_graph_tensor(plan->graph, s->tensor)->kind == MM_INPUT;
}

/* Bytes that a segment would take if it were allocated when it is first used; for a code with a body, the reserve for
 * the body is included, as there would be no pool. 0: workspaces, pools and the batch do not count. */
static int64_t own_bytes(const mm_plan *plan, const mm_graph_facts *facts, const mm_segment *s) {
    if (!mm_segment_has_life(s) || s->content == MM_CONTENT_WORK || s->content == MM_CONTENT_POOL) return 0;
    return is_batch(plan, s) ? 0 : s->bytes + body_bytes(plan, facts, s);
}

/* The most own_bytes that are alive at a node, without the segments marked in left_out. change: scratch, n_nodes + 1
 * entries. */
static int64_t peak(const mm_plan *plan, const mm_graph_facts *facts, const bool *left_out, int64_t *change) {
    memset(change, 0, ((size_t)plan->n_nodes + 1) * sizeof *change);
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        const int64_t bytes = left_out[i] ? 0 : own_bytes(plan, facts, s);
        if (bytes == 0) continue;
        change[s->first_node] += bytes;
        change[s->live_last + 1] -= bytes;
    }
    int64_t live = 0, most = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        live += change[i];
        if (live > most) most = live;
    }
    return most;
}

mm_status mm_map_account_init(const mm_plan *plan, const mm_graph_facts *facts, const mm_stash_account *stash,
                              mm_map_account *account_out) {
    mm_map_account account = {.placed_bytes = plan->extent_bytes - mm_align(plan->base_bytes)};
    int64_t *change = malloc(((size_t)plan->n_nodes + 1) * sizeof *change);
    bool *left_out = calloc((size_t)plan->n_segments + 1, sizeof *left_out);
    if (!change || !left_out) {
        free(change);
        free(left_out);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the accounts of %d nodes", plan->n_nodes);
    }
    account.dynamic_bytes = peak(plan, facts, left_out, change);
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_DECODE) left_out[plan->nodes[i].dst] = true;
    account.undecoded_bytes = peak(plan, facts, left_out, change);
    for (int i = 0; i < plan->n_segments; i++)
        if (mm_segment_has_life(&plan->segments[i]) && is_batch(plan, &plan->segments[i]))
            account.placed_bytes -= mm_align(plan->segments[i].bytes);
    classify(plan, facts, stash, &account);
    free(change);
    free(left_out);
    *account_out = account;
    return MM_OK;
}
