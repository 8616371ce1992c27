/* SPDX-License-Identifier: MIT */
#include "mm/manager/claims.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/splitmix.h"
#include "mm/device/contract/clock.h"
#include "mm/manager/claims_state.h"
#include "mm/manager/home_moves.h"
#include "mm/manager/iteration.h"

/* ---------------------------------------------------------------- what an iteration is tested with */

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the self-check"); }

static void clear(mm_claims *c) {
    free(c->uses);
    free(c->repeats);
    free(c->nodes);
    free(c->pending);
    free(c->memory);
    *c = (mm_claims){.random = c->random};
}

void mm_claims_destroy(mm_claims *c) {
    if (!c) return;
    clear(c);
    free(c);
}

/* Whether other streams may write the persistent tensor while steps run: its all-reduce, or a copy to its home. */
static bool is_shared(const mm_graph *graph, const mm_persistent *entry) {
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        if (info->shared != MM_ALLREDUCE_NOT && strcmp(info->name, entry->name) == 0) return true;
    }
    return entry->place.memory != MM_MEM_DEVICE;
}

/* Lists what a recomputation may not change. */
static mm_status list_memory(mm_manager *m, mm_claims *c) {
    const mm_graph *graph = c->plan->graph;
    const mm_ready *r = m->now.ready;
    c->memory = calloc((size_t)m->persistents.n + (size_t)mm_graph_tensors(graph) + 1, sizeof *c->memory);
    if (!c->memory) return no_memory();
    for (int i = 0; i < m->persistents.n; i++) {
        const mm_persistent *p = &m->persistents.entries[i];
        if (is_shared(graph, p)) continue;
        c->memory[c->n_memory++] = (mm_claim_memory){p->name, "persistent", mm_home_address(m, p), p->bytes, 0, 0};
    }
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        if (info->ownership != MM_EXTERNAL) continue;
        c->memory[c->n_memory++] = (mm_claim_memory){info->name, "external", r->external[t], info->bytes, 0, 0};
    }
    return MM_OK;
}

mm_status mm_claims_begin(mm_manager *m) {
    if (!m->options.self_check) return MM_OK;
    if (!m->claims) {
        m->claims = calloc(1, sizeof *m->claims);
        if (!m->claims) return no_memory();
        m->claims->random = (uint64_t)mm_now_ns() ^ (uint64_t)(uintptr_t)m->claims;
    }
    mm_claims *c = m->claims;
    clear(c);
    const mm_plan *plan = c->plan = m->now.planned->plan;
    c->uses = calloc((size_t)plan->n_bindings + 1, sizeof *c->uses);
    c->repeats = calloc((size_t)mm_graph_steps(plan->graph) + 1, sizeof *c->repeats);
    c->nodes = calloc((size_t)plan->n_nodes + 1, sizeof *c->nodes);
    c->pending = calloc((size_t)plan->n_nodes + 1, sizeof *c->pending);
    if (!c->uses || !c->repeats || !c->nodes || !c->pending) return no_memory();
    bool repeats = false;
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) repeats = c->repeats[plan->nodes[i].step] = true;
    return repeats ? list_memory(m, c) : MM_OK;
}

/* ---------------------------------------------------------------- what is tested of a step */

/* Where the node finds its use u. NULL: nowhere. */
static void place(mm_manager *m, const mm_node *n, const mm_use *uses, int u, mm_claim_use *out) {
    const mm_plan *plan = m->claims->plan;
    const mm_tensor_info *info = mm_graph_tensor(plan->graph, uses[u].tensor);
    const int segment = plan->bindings[n->first_binding + u];
    *out = (mm_claim_use){.equals = -1, .first = -1, .bytes = info->bytes, .hole = MM_MARK_NONE};
    if (segment >= 0) {
        out->data = mm_dispatch_address(m->dispatch, segment);
        if (plan->segments[segment].content != MM_CONTENT_RAW) out->bytes = plan->segments[segment].bytes;
    } else if (info->ownership == MM_EXTERNAL) {
        out->data = m->now.ready->external[uses[u].tensor];
    }
}

static bool overlap(const mm_claim_use *a, const mm_claim_use *b) {
    return a->data && b->data && a->data < b->data + b->bytes && b->data < a->data + a->bytes;
}

/* The use of the tensor by the step; -1: none. */
static int use_of(const mm_step_info *step, mm_tensor tensor) {
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) return u;
    return -1;
}

/* Bytes of an element of a mark for the tensor. Floats: their own, as a NaN is marked that no operation makes. Others
 * have any values, so that only a run of 8 bytes is no coincidence, or 4 in a tensor that has no more. */
static int elem_bytes_of(const mm_tensor_info *info) {
    if (info->dtype == MM_F32) return 4;
    if (info->dtype == MM_F16 || info->dtype == MM_BF16) return 2;
    return info->bytes >= 8 ? 8 : info->bytes >= 4 ? 4 : 0;
}

/* A quiet NaN: x86 and most others keep its bits when something is added to it, so that a step which adds to what it
 * claims to write leaves it there. Its payload is neither the one that operations make nor all ones (GPUs' NaN). */
static uint64_t repeat_nan(uint64_t quiet, uint64_t payloads, int bits, uint64_t random) {
    uint64_t word = 0;
    const uint64_t element = quiet | (1 + random % (payloads - 2));
    for (int at = 0; at < 64; at += bits) word |= element << at;
    return word;
}

static uint64_t mark_word(mm_claims *c, const mm_tensor_info *info) {
    const uint64_t random = mm_random_next(&c->random);
    if (info->dtype == MM_F32) return repeat_nan(0x7fc00000, 1 << 22, 32, random);
    if (info->dtype == MM_F16) return repeat_nan(0x7e00, 1 << 9, 16, random);
    if (info->dtype == MM_BF16) return repeat_nan(0x7fc0, 1 << 6, 16, random);
    return random;
}

/* Pairs an output with the input that it equals, or whose storage it shares. */
static void test_alias(const mm_step_info *step, mm_claim_use *uses, const mm_pair *pair) {
    const int input = use_of(step, pair->input), output = use_of(step, pair->output);
    if (!pair->alias || (uses[input].test != MM_CLAIM_SAME && uses[input].test != MM_CLAIM_ALIAS) || !uses[output].data)
        return;
    if (uses[input].data != uses[output].data) {
        if (uses[output].test == MM_CLAIM_MARK) uses[output].equals = input;
        return;
    }
    uses[input].test = MM_CLAIM_ALIAS;
}

/* Whether the pair of uses is an output that shares its input's storage, and so is not written. */
static bool shares(const mm_step_info *step, const mm_claim_use *uses, int u, int v) {
    if (uses[u].data != uses[v].data) return false;
    for (int i = 0; i < step->n_pairs; i++) {
        const mm_pair *pair = &step->pairs[i];
        const int input = use_of(step, pair->input), output = use_of(step, pair->output);
        if (pair->alias && ((input == u && output == v) || (input == v && output == u))) return true;
    }
    return false;
}

/* Whether bytes of use u are written as another use. */
static bool is_written_over(const mm_node *n, const mm_step_info *step, const mm_claim_use *uses, int u) {
    for (int v = 0; v < step->n_uses; v++) {
        if (v == u || mm_node_access(n, &step->uses[v], v) == MM_READ) continue;
        if (overlap(&uses[u], &uses[v]) && !shares(step, uses, u, v)) return true;
    }
    return false;
}

static bool overlaps_any(const mm_step_info *step, const mm_claim_use *uses, int u) {
    for (int v = 0; v < step->n_uses; v++)
        if (v != u && overlap(&uses[u], &uses[v])) return true;
    return false;
}

/* Chooses what is tested of each use. */
static void choose(mm_manager *m, const mm_node *n, mm_claim_use *uses) {
    const mm_plan *plan = m->claims->plan;
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    for (int u = 0; u < step->n_uses; u++) place(m, n, step->uses, u, &uses[u]);
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor_info *info = mm_graph_tensor(plan->graph, step->uses[u].tensor);
        const int segment = plan->bindings[n->first_binding + u];
        const mm_access access = mm_node_access(n, &step->uses[u], u);
        if (!uses[u].data || access == MM_MODIFY) continue;
        if (access == MM_READ) {
            /* A recomputation sums these with all others that are persistent or external. */
            const bool summed = n->kind == MM_NODE_RECOMPUTE && info->ownership != MM_MANAGED;
            if (!summed && !is_written_over(n, step, uses, u)) uses[u].test = MM_CLAIM_SAME;
        } else if ((segment < 0 || plan->segments[segment].content == MM_CONTENT_RAW) && !overlaps_any(step, uses, u)) {
            uses[u].test = MM_CLAIM_MARK;
            uses[u].elem_bytes = elem_bytes_of(info);
        }
    }
    for (int i = 0; i < step->n_pairs; i++) test_alias(step, uses, &step->pairs[i]);
}

/* Pairs the outputs of a recomputation with those of the first time, if it reads the same bits. */
static void pair_with_first(mm_manager *m, const mm_node *n, mm_claim_use *uses) {
    const mm_plan *plan = m->claims->plan;
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    const mm_node *before = &plan->nodes[mm_execution_node(m->now.execution, n->step)];
    for (int u = 0; u < step->n_uses; u++) {
        const int segment = plan->bindings[n->first_binding + u];
        const bool exact = segment >= 0 && m->now.planned->exact[segment];
        if (uses[u].test == MM_CLAIM_MARK && exact) uses[u].first = before->first_binding + u;
    }
}

/* ---------------------------------------------------------------- around a step */

static mm_status sum(mm_stream *stream, const mm_claim_use *use, uint64_t *sum_out) {
    return mm_checksum_async(stream, use->data, use->bytes, sum_out);
}

/* Whether the node's claims are tested: not those of steps on the host, since tests run on the device. */
static bool is_tested(const mm_manager *m, int node) {
    return m->options.self_check && m->now.way->runs && !mm_node_on_host(&m->claims->plan->nodes[node]);
}

mm_status mm_claims_step_begin(mm_manager *m, int node, bool inline_compute) {
    mm_claims *c = m->claims;
    if (!is_tested(m, node)) return MM_OK;
    const mm_node *n = &c->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(c->plan->graph, n->step);
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    mm_claim_use *uses = c->uses + n->first_binding;
    c->undeclared.status = MM_OK;
    choose(m, n, uses);
    if (n->kind == MM_NODE_RECOMPUTE) {
        pair_with_first(m, n, uses);
        for (int i = 0; i < c->n_memory; i++)
            MM_TRY(mm_checksum_async(stream, c->memory[i].data, c->memory[i].bytes, &c->memory[i].before));
    }
    for (int u = 0; u < step->n_uses; u++) {
        mm_claim_use *use = &uses[u];
        if (use->test == MM_CLAIM_SAME || use->test == MM_CLAIM_ALIAS) MM_TRY(sum(stream, use, &use->before));
        if (use->test == MM_CLAIM_MARK && use->elem_bytes > 0) {
            use->before = mark_word(c, mm_graph_tensor(c->plan->graph, step->uses[u].tensor));
            MM_TRY(mm_mark_async(stream, use->data, use->bytes, use->before));
        }
    }
    c->pending[c->n_nodes] = 1;
    c->nodes[c->n_nodes++] = node;
    return inline_compute ? mm_stream_sync(stream) : MM_OK;
}

/* Whether an output is summed, to be compared with another. */
static bool is_compared(const mm_claims *c, const mm_node *n, const mm_claim_use *use) {
    return use->equals >= 0 || use->first >= 0 || (n->kind == MM_NODE_STEP && c->repeats[n->step]);
}

mm_status mm_claims_step_end(mm_manager *m, int node, bool inline_compute) {
    mm_claims *c = m->claims;
    if (!is_tested(m, node)) return MM_OK;
    MM_TRY(mm_failure_restore(&c->undeclared));
    const mm_node *n = &c->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(c->plan->graph, n->step);
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    mm_claim_use *uses = c->uses + n->first_binding;
    const bool again = n->kind == MM_NODE_RECOMPUTE;
    for (int u = 0; u < step->n_uses; u++) {
        mm_claim_use *use = &uses[u];
        if (use->test == MM_CLAIM_NONE) continue;
        if (use->test != MM_CLAIM_MARK || is_compared(c, n, use)) MM_TRY(sum(stream, use, &use->after));
        if (use->test != MM_CLAIM_MARK || use->elem_bytes == 0) continue;
        const mm_mark mark = {use->before, use->elem_bytes};
        MM_TRY(mm_find_mark_async(stream, use->data, use->bytes, &mark, &use->hole));
    }
    for (int i = 0; again && i < c->n_memory; i++)
        MM_TRY(mm_checksum_async(stream, c->memory[i].data, c->memory[i].bytes, &c->memory[i].after));
    MM_TRY(mm_checksum_async(stream, NULL, 0, &c->pending[c->n_nodes - 1])); /* 0 */
    if (!inline_compute && !again) return MM_OK;
    /* Sums around a recomputation have room for one at a time. */
    MM_TRY(mm_stream_sync(stream));
    MM_TRY(mm_claims_look(c));
    return again ? mm_claims_look_memory(c, node) : MM_OK;
}

mm_status mm_claims_end(mm_manager *m) {
    return m->options.self_check && m->now.way->runs ? mm_claims_look(m->claims) : MM_OK;
}

void mm_claims_undeclared(mm_manager *m) {
    if (m->options.self_check && m->now.way->runs && m->claims->undeclared.status == MM_OK)
        mm_failure_save(&m->claims->undeclared, MM_ERR_INVALID);
}
