/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_touch.h"
#include "mm/core/status.h"

static const struct {
    const char *word, *where;
    int64_t align;
} memories[MM_MEMORY_COUNT] = {
#define MEMORY(name, word, where, align) {word, where, align},
    MM_MEMORIES(MEMORY)
#undef MEMORY
};

const char *mm_memory_name(mm_memory memory) {
    return (unsigned)memory < MM_MEMORY_COUNT ? memories[memory].word : "unknown";
}

const char *mm_memory_where(mm_memory memory) {
    return (unsigned)memory < MM_MEMORY_COUNT ? memories[memory].where : "nowhere";
}

int64_t mm_memory_align(mm_memory memory) { return memories[memory].align; }

const char *mm_content_name(mm_content content) {
    static const char *const names[MM_CONTENTS] = {
        [MM_CONTENT_RAW] = "raw",
        [MM_CONTENT_CODED] = "coded",
        [MM_CONTENT_WORK] = "workspace",
        [MM_CONTENT_POOL] = "pool",
    };
    return (unsigned)content < MM_CONTENTS ? names[content] : "unknown";
}

const char *mm_category_name(mm_category category) {
    static const char *const names[MM_CATEGORIES] = {
        [MM_CAT_PERSISTENT] = "persistent",
        [MM_CAT_FEATURE_MAP] = "feature maps",
        [MM_CAT_GRADIENT_MAP] = "gradient maps",
        [MM_CAT_WORKSPACE] = "workspace",
        [MM_CAT_CODE] = "codes",
        [MM_CAT_BUFFER] = "tensor buffers",
        [MM_CAT_VISIT] = "fetched weights and states",
    };
    return (unsigned)category < MM_CATEGORIES ? names[category] : "unknown";
}

/* The power of two at or above a count. */
static size_t capacity_of(size_t count) {
    return count > 1 ? (size_t)1 << (64 - __builtin_clzll((unsigned long long)count - 1)) : 1;
}

/* Makes room for `more` items of an array, whose capacity is that of its count. */
static bool grow(void **array, int count, int more, size_t item_bytes) {
    const size_t capacity = capacity_of((size_t)count + (size_t)more);
    if (count > 0 && capacity == capacity_of((size_t)count)) return true;
    void *larger = realloc(*array, capacity * item_bytes);
    if (larger) *array = larger;
    return larger != NULL;
}

static int no_memory(void) {
    mm_fail_set("out of memory for a plan");
    return -1;
}

int64_t mm_plan_base(const mm_graph *graph) {
    int64_t base = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->persistent >= 0) base += mm_align(mm_graph_tensor(graph, t)->bytes);
    return base;
}

/* Adds the segments of persistent tensors, which are the plan's first segments. */
static mm_status add_persistents(mm_plan *plan, const mm_place *places) {
    int64_t end = 0;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        if (tensor->persistent < 0) continue;
        const int index = mm_plan_segment(plan, MM_CONTENT_RAW, MM_CAT_PERSISTENT, t, tensor->bytes);
        if (index < 0) return MM_ERR_NOMEM;
        plan->segments[index].offset = places ? places[index].offset : end;
        if (places) plan->segments[index].memory = places[index].memory;
        end += mm_align(tensor->bytes);
    }
    return MM_OK;
}

mm_status mm_plan_create(const mm_graph *graph, const mm_limits *limits, mm_plan **plan_out) {
    if (!mm_graph_frozen(graph)) return mm_fail(MM_ERR_ORDER, "graph %s is not frozen", mm_graph_name(graph));
    mm_plan *plan = calloc(1, sizeof *plan);
    int n = mm_graph_tensors(graph);
    mm_tensor *alias = malloc(((size_t)n + 1) * sizeof *alias);
    char *policy = strdup("");
    if (!plan || !alias || !policy) {
        free(plan);
        free(alias);
        free(policy);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a plan of %d tensors", n);
    }
    for (int t = 0; t < n; t++) alias[t] = t;
    plan->graph = graph;
    plan->policy = policy;
    plan->alias = alias;
    plan->base_bytes = limits->base_bytes;
    plan->pinned_base_bytes = limits->pinned_base_bytes;
    plan->disk_base_bytes = limits->disk_base_bytes;
    mm_status status = add_persistents(plan, limits->places);
    if (status != MM_OK)
        mm_plan_destroy(plan);
    else
        *plan_out = plan;
    return status;
}

void mm_plan_destroy(mm_plan *plan) {
    if (!plan) return;
    free(plan->nodes);
    free(plan->segments);
    free(plan->bindings);
    free(plan->alias);
    free(plan->policy);
    free(plan);
}

mm_status mm_plan_name(mm_plan *plan, const char *policy) {
    char *copy = strdup(policy);
    if (!copy) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a plan");
    free(plan->policy);
    plan->policy = copy;
    return MM_OK;
}

static int add_node(mm_plan *plan, mm_node_kind kind, mm_stream_id stream) {
    if (!grow((void **)&plan->nodes, plan->n_nodes, 1, sizeof *plan->nodes)) return no_memory();
    mm_node *node = &plan->nodes[plan->n_nodes];
    *node = (mm_node){.kind = kind,
                      .stream = stream,
                      .seq = plan->stream_nodes[stream]++,
                      .step = -1,
                      .first_code = -1,
                      .tensor = -1,
                      .src = -1,
                      .dst = -1,
                      .work = -1,
                      .stage = -1};
    for (int s = 0; s < MM_STREAM_COUNT; s++) node->wait[s] = -1;
    return plan->n_nodes++;
}

static int add_step(mm_plan *plan, mm_node_kind kind, int step) {
    const mm_step_info *info = mm_graph_step(plan->graph, step);
    const int n_uses = info->n_uses;
    if (!grow((void **)&plan->bindings, plan->n_bindings, n_uses, sizeof *plan->bindings)) return no_memory();
    int index = add_node(plan, kind, info->on_host ? MM_STREAM_HOST : MM_STREAM_COMPUTE);
    if (index < 0) return -1;
    plan->nodes[index].step = step;
    plan->nodes[index].first_binding = plan->n_bindings;
    for (int u = 0; u < n_uses; u++) {
        const mm_tensor tensor = info->uses[u].tensor;
        plan->bindings[plan->n_bindings++] =
            mm_plan_visits(plan, tensor) && !info->on_host ? -1 : mm_graph_tensor(plan->graph, tensor)->persistent;
    }
    return index;
}

int mm_plan_step(mm_plan *plan, int step) { return add_step(plan, MM_NODE_STEP, step); }

int mm_plan_recompute(mm_plan *plan, int step) { return add_step(plan, MM_NODE_RECOMPUTE, step); }

int mm_plan_op(mm_plan *plan, mm_node_kind kind, mm_tensor tensor, int src, int dst) {
    int index = add_node(plan, kind, mm_node_stream(kind));
    if (index < 0) return -1;
    plan->nodes[index].tensor = tensor;
    plan->nodes[index].src = src;
    plan->nodes[index].dst = dst;
    return index;
}

bool mm_plan_write_code(mm_plan *plan, int node, int use, int segment) {
    mm_node *n = &plan->nodes[node];
    const int n_uses = mm_graph_step(plan->graph, n->step)->n_uses;
    if (n->first_code < 0) {
        if (!grow((void **)&plan->bindings, plan->n_bindings, n_uses, sizeof *plan->bindings)) {
            no_memory();
            return false;
        }
        n->first_code = plan->n_bindings;
        for (int u = 0; u < n_uses; u++) plan->bindings[plan->n_bindings++] = -1;
    }
    plan->bindings[n->first_code + use] = segment;
    return true;
}

int mm_plan_segment(mm_plan *plan, mm_content content, mm_category category, mm_tensor tensor, int64_t bytes) {
    if (!grow((void **)&plan->segments, plan->n_segments, 1, sizeof *plan->segments)) return no_memory();
    plan->segments[plan->n_segments] = (mm_segment){.content = content,
                                                    .category = category,
                                                    .tensor = tensor,
                                                    .codec = -1,
                                                    .pool = -1,
                                                    .spill = -1,
                                                    .bytes = bytes,
                                                    .first_node = -1,
                                                    .last_node = -1,
                                                    .live_last = -1};
    return plan->n_segments++;
}

void mm_plan_wait(mm_plan *plan, int node, int earlier) {
    const mm_node *other = &plan->nodes[earlier];
    int32_t *wait = &plan->nodes[node].wait[other->stream];
    if (plan->nodes[node].stream != other->stream && *wait < other->seq) *wait = other->seq;
}

static void account_use(mm_plan *plan, int node, int segment) {
    mm_segment *s = &plan->segments[segment];
    if (s->first_node < 0) s->first_node = node;
    s->last_node = s->live_last = node;
}

/* If a segment's last user writes another segment in place over it, its bytes count only up to the node before. */
static void account_inplace(mm_plan *plan, int node) {
    const mm_node *n = &plan->nodes[node];
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    for (int p = 0; p < step->n_pairs; p++) {
        int from = -1, to = -1;
        for (int u = 0; u < step->n_uses; u++) {
            if (step->uses[u].tensor == step->pairs[p].input) from = plan->bindings[n->first_binding + u];
            if (step->uses[u].tensor == step->pairs[p].output) to = plan->bindings[n->first_binding + u];
        }
        if (from < 0 || to < 0 || from == to) continue;
        mm_segment *a = &plan->segments[from], *b = &plan->segments[to];
        if (a->dynamic || b->dynamic || a->offset != b->offset || a->memory != b->memory) continue;
        if (a->last_node == node && b->first_node == node) a->live_last = node - 1;
    }
}

static void account_nodes(mm_plan *plan) {
    for (int i = 0; i < plan->n_segments; i++)
        plan->segments[i].first_node = plan->segments[i].last_node = plan->segments[i].live_last = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        mm_touch_rows rows;
        mm_node_touch_rows(plan, &plan->nodes[i], &rows);
        for (int r = 0; r < MM_TOUCH_ROWS; r++)
            for (int k = 0; k < rows.row[r].n; k++)
                if (rows.row[r].segments[k] >= 0) account_use(plan, i, rows.row[r].segments[k]);
    }
    for (int i = 0; i < plan->n_nodes; i++)
        if (mm_node_runs_step(&plan->nodes[i])) account_inplace(plan, i);
    for (int i = 0; plan->keeps_all && i < plan->n_segments; i++)
        if (plan->segments[i].content != MM_CONTENT_WORK && plan->segments[i].first_node >= 0)
            plan->segments[i].live_last = plan->n_nodes - 1;
}

static void account_extents(mm_plan *plan) {
    for (mm_memory m = 0; m < MM_MEMORY_COUNT; m++) *mm_plan_end(plan, m) = mm_plan_memory_base(plan, m);
    if (plan->heap_bytes > 0) plan->extent_bytes = plan->heap_offset + plan->heap_bytes;
    for (int i = mm_graph_persistents(plan->graph); i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        int64_t *end = mm_plan_end(plan, s->memory);
        if (!s->dynamic && s->offset + s->bytes > *end) *end = s->offset + s->bytes;
    }
    plan->external_bytes = 0;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        if (tensor->ownership == MM_EXTERNAL) plan->external_bytes += tensor->bytes;
    }
    plan->peak_bytes = plan->extent_bytes + plan->external_bytes;
}

void mm_plan_turning_point(const mm_plan *plan, int *last_forward_out, int *first_backward_out) {
    *last_forward_out = *first_backward_out = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        if (plan->nodes[i].kind != MM_NODE_STEP) continue;
        mm_phase phase = mm_graph_step(plan->graph, plan->nodes[i].step)->phase;
        if (phase == MM_FORWARD) *last_forward_out = i;
        if (phase == MM_BACKWARD && *first_backward_out < 0) *first_backward_out = i;
    }
}

static mm_status account_live(mm_plan *plan) {
    int64_t *change = calloc((size_t)plan->n_nodes + 1, sizeof *change);
    if (!change) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's accounts");
    int last_forward, first_backward;
    mm_plan_turning_point(plan, &last_forward, &first_backward);
    plan->stash_bytes = 0;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!mm_segment_has_life(s)) continue;
        change[s->first_node] += s->bytes;
        change[s->live_last + 1] -= s->bytes;
        if (first_backward >= 0 && s->first_node <= last_forward && s->live_last >= first_backward)
            plan->stash_bytes += s->bytes;
    }
    int64_t live = plan->base_bytes + plan->external_bytes;
    plan->live_peak_bytes = live;
    plan->peak_step = 0;
    for (int i = 0, step = 0; i < plan->n_nodes; i++) {
        if (mm_node_runs_step(&plan->nodes[i])) step = plan->nodes[i].step;
        live += change[i];
        if (live > plan->live_peak_bytes) {
            plan->live_peak_bytes = live;
            plan->peak_step = step;
        }
    }
    free(change);
    return MM_OK;
}

mm_status mm_plan_finish(mm_plan *plan) {
    account_nodes(plan);
    account_extents(plan);
    return account_live(plan);
}

void mm_plan_live_at(const mm_plan *plan, int node, int64_t bytes_out[MM_CATEGORIES]) {
    for (int c = 0; c < MM_CATEGORIES; c++) bytes_out[c] = 0;
    bytes_out[MM_CAT_PERSISTENT] = plan->base_bytes;
    bytes_out[MM_CAT_FEATURE_MAP] = plan->external_bytes;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (mm_segment_has_life(s) && s->first_node <= node && node <= s->live_last) bytes_out[s->category] += s->bytes;
    }
}
