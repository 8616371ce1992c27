/* SPDX-License-Identifier: MIT */
/* Pass 1, form: all indices are in range, all segments and nodes are well-formed. */
#include <string.h>

#include "mm/core/check/plan_check.h"
#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"

static bool in_range(int32_t index, int n) { return index >= 0 && index < n; }

static mm_status check_arrays(const mm_check *c) {
    const mm_plan *plan = c->plan;
    if (!mm_graph_frozen(plan->graph)) return mm_fail(MM_ERR_PLAN, "plan of a graph that is not frozen");
    if (c->facts->n_steps != mm_graph_steps(c->graph) || c->facts->n_tensors != mm_graph_tensors(c->graph))
        return mm_check_refuse(c, MM_RULE_FACTS, -1, -1, "the facts are of a graph with %d steps and %d tensors",
                               c->facts->n_steps, c->facts->n_tensors);
    if (plan->n_nodes < 0 || plan->n_segments < mm_graph_persistents(c->graph) || plan->n_bindings < 0 ||
        !plan->alias || (plan->n_nodes > 0 && !plan->nodes) || (plan->n_segments > 0 && !plan->segments) ||
        (plan->n_bindings > 0 && !plan->bindings))
        return mm_check_refuse(c, MM_RULE_FACTS, -1, -1, "an array is missing");
    return MM_OK;
}

static bool is_external(const mm_check *c, mm_tensor tensor) {
    return mm_graph_tensor(c->graph, tensor)->ownership == MM_EXTERNAL;
}

static bool is_managed(const mm_check *c, mm_tensor tensor) {
    return mm_graph_tensor(c->graph, tensor)->ownership == MM_MANAGED;
}

bool mm_check_may_share(const mm_check *c, const mm_step_info *step, mm_tensor input, mm_tensor output) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].alias && step->pairs[p].input == input && step->pairs[p].output == output)
            return c->plan->alias[input] == c->plan->alias[output];
    return false;
}

static bool is_aliased(const mm_check *c, mm_tensor tensor) { return c->plan->alias[tensor] != tensor; }

/* If output `u` of step `s` shares a storage, checks that the step declares it equal to an input in that storage. */
static mm_status check_shared_output(const mm_check *c, int s, int u) {
    const mm_step_info *step = mm_graph_step(c->graph, s);
    mm_tensor output = step->uses[u].tensor;
    if (step->uses[u].access != MM_WRITE || !is_aliased(c, output)) return MM_OK;
    for (int i = 0; i < step->n_uses; i++)
        if (mm_check_may_share(c, step, step->uses[i].tensor, output)) return MM_OK;
    char name[256];
    return mm_check_refuse(
        c, MM_RULE_DECLARED_EQUAL, -1, output, "shares the storage of %s, but %s does not declare them equal",
        mm_graph_tensor(c->graph, c->plan->alias[output])->name, mm_graph_step_name(c->graph, s, name, sizeof name));
}

static mm_status check_aliases(const mm_check *c) {
    int n = mm_graph_tensors(c->graph);
    for (mm_tensor t = 0; t < n; t++) {
        mm_tensor root = c->plan->alias[t];
        if (!in_range(root, n))
            return mm_check_refuse(c, MM_RULE_ROOTS, -1, t, "shares the storage of tensor %d, which does not exist",
                                   root);
        if (c->plan->alias[root] != root)
            return mm_check_refuse(c, MM_RULE_ROOTS, -1, t, "shares the storage of %s, which shares another's",
                                   mm_graph_tensor(c->graph, root)->name);
        if (root != t && (!is_managed(c, t) || !is_managed(c, root)))
            return mm_check_refuse(c, MM_RULE_ROOTS, -1, t, "shares storage but is not managed");
    }
    for (int s = 0; s < mm_graph_steps(c->graph); s++)
        for (int u = 0; u < mm_graph_step(c->graph, s)->n_uses; u++) MM_TRY(check_shared_output(c, s, u));
    return MM_OK;
}

static mm_status check_content(const mm_check *c, int segment) {
    const mm_segment *s = &c->plan->segments[segment];
    const bool of_none = s->content == MM_CONTENT_WORK || s->content == MM_CONTENT_POOL;
    if (of_none != (s->tensor == -1))
        return mm_check_refuse_segment(c, MM_RULE_CONTENT, segment,
                                       "is a workspace or a pool and has a tensor, or is neither and has none");
    if (s->content != MM_CONTENT_CODED && s->codec != -1)
        return mm_check_refuse_segment(c, MM_RULE_CONTENT, segment, "has a codec but holds no code");
    if (of_none) return mm_check_pool_form(c, segment);
    if (!in_range(s->tensor, mm_graph_tensors(c->graph)))
        return mm_check_refuse_segment(c, MM_RULE_CONTENT, segment, "is of an unknown tensor");
    if (is_external(c, s->tensor) || is_aliased(c, s->tensor))
        return mm_check_refuse_segment(c, MM_RULE_CONTENT, segment,
                                       "is of a tensor that has no storage of its own in the plan");
    if (s->content == MM_CONTENT_RAW) {
        if (s->bytes < mm_graph_tensor(c->graph, s->tensor)->bytes)
            return mm_check_refuse_segment(c, MM_RULE_SIZE, segment, "is smaller than its tensor");
        return mm_check_pool_form(c, segment);
    }
    if (!in_range(s->codec, c->facts->n_codecs))
        return mm_check_refuse_segment(c, MM_RULE_CONTENT, segment, "is of an unknown codec");
    int64_t code_bytes = mm_facts_code(c->facts, s->codec, s->tensor)->code_bytes;
    if (code_bytes < 0) return mm_check_refuse_segment(c, MM_RULE_SIZE, segment, "its codec does not take this tensor");
    if (s->bytes != code_bytes) return mm_check_refuse_segment(c, MM_RULE_SIZE, segment, "is not of the code's size");
    if (!c->facts->codecs[s->codec].lossless && !mm_tensor_takes_loss(mm_graph_tensor(c->graph, s->tensor)))
        return mm_check_refuse_segment(c, MM_RULE_LOSS, segment,
                                       "holds a lossy code, which only managed maps and gradients take");
    return mm_check_pool_form(c, segment);
}

/* Checks the segment of the persistent tensor with that number. */
static mm_status check_persistent(const mm_check *c, int segment) {
    const mm_segment *s = &c->plan->segments[segment];
    if (!in_range(s->tensor, mm_graph_tensors(c->graph)) ||
        mm_graph_tensor(c->graph, s->tensor)->persistent != segment || s->category != MM_CAT_PERSISTENT)
        return mm_check_refuse_segment(c, MM_RULE_HOME, segment,
                                       "is not the segment of the persistent tensor with its number");
    if (s->content != MM_CONTENT_RAW || s->codec != -1 || s->dynamic ||
        s->bytes != mm_graph_tensor(c->graph, s->tensor)->bytes)
        return mm_check_refuse_segment(c, MM_RULE_HOME, segment, "does not hold its tensor's elements");
    if (s->memory != MM_MEM_DEVICE && mm_graph_tensor(c->graph, s->tensor)->shared != MM_ALLREDUCE_NOT)
        return mm_check_refuse_segment(c, MM_RULE_HOME, segment, "is not on the device, but its tensor is all-reduced");
    return mm_check_pool_form(c, segment);
}

static mm_status check_segment(const mm_check *c, int segment) {
    const mm_segment *s = &c->plan->segments[segment];
    if (segment < mm_graph_persistents(c->graph)) return check_persistent(c, segment);
    if (s->category == MM_CAT_PERSISTENT)
        return mm_check_refuse_segment(c, MM_RULE_HOME, segment,
                                       "counts as persistent, but is not of a persistent tensor");
    if ((unsigned)s->content >= MM_CONTENTS || (unsigned)s->category >= MM_CATEGORIES)
        return mm_check_refuse_segment(c, MM_RULE_CONTENT, segment, "is of an unknown content or category");
    if ((unsigned)s->memory >= MM_MEMORY_COUNT)
        return mm_check_refuse_segment(c, MM_RULE_PLACE, segment, "is in an unknown memory");
    if (s->bytes <= 0) return mm_check_refuse_segment(c, MM_RULE_SIZE, segment, "has no bytes");
    if (s->memory != MM_MEM_DEVICE && s->content == MM_CONTENT_WORK)
        return mm_check_refuse_segment(c, MM_RULE_PLACE, segment, "is a workspace that is not on the device");
    if (s->memory != MM_MEM_DEVICE && s->dynamic)
        return mm_check_refuse_segment(c, MM_RULE_PLACE, segment, "is in the heap, but not on the device");
    if (!s->dynamic) {
        if (s->offset % mm_memory_align(s->memory) != 0)
            return mm_check_refuse_segment(c, MM_RULE_PLACE, segment, "its offset is not aligned");
        if (s->offset < mm_limits_base(c->limits, s->memory))
            return mm_check_refuse_segment(c, MM_RULE_PLACE, segment, "lies below the base");
        if (s->offset > INT64_MAX - s->bytes)
            return mm_check_refuse_segment(c, MM_RULE_PLACE, segment, "its end is out of range");
    }
    return check_content(c, segment);
}

static mm_status check_work(const mm_check *c, int node, int64_t bytes) {
    int32_t work = c->plan->nodes[node].work;
    if (work == -1) {
        if (bytes == 0) return MM_OK;
        return mm_check_refuse(c, MM_RULE_WORKSPACE, node, -1, "has no workspace but needs %lld bytes",
                               (long long)bytes);
    }
    if (!in_range(work, c->plan->n_segments) || c->plan->segments[work].content != MM_CONTENT_WORK ||
        c->plan->segments[work].memory != MM_MEM_DEVICE)
        return mm_check_refuse(c, MM_RULE_WORKSPACE, node, -1, "its workspace, segment %d, is not one on the device",
                               work);
    if (c->plan->segments[work].bytes >= bytes) return MM_OK;
    return mm_check_refuse(c, MM_RULE_WORKSPACE, node, -1, "its workspace has %lld bytes of the %lld it needs",
                           (long long)c->plan->segments[work].bytes, (long long)bytes);
}

/* Whether a step on the host may find the tensor in a segment: its home in pinned memory; or, of a home on the disk, a
 * copy in pinned memory. */
static bool serves_host(const mm_check *c, mm_tensor tensor, int32_t segment) {
    const int home = mm_graph_tensor(c->graph, tensor)->persistent;
    if (!in_range(segment, c->plan->n_segments) || home < 0) return false;
    const mm_segment *s = &c->plan->segments[segment];
    const bool is_copy = c->plan->segments[home].memory == MM_MEM_DISK && s->content == MM_CONTENT_RAW;
    return s->memory == MM_MEM_PINNED && s->tensor == tensor && (segment == home || is_copy);
}

static mm_status check_bindings(const mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(c->graph, n->step);
    const int persistents = mm_graph_persistents(c->graph);
    if (n->first_binding < 0 || n->first_binding > c->plan->n_bindings - step->n_uses)
        return mm_check_refuse(c, MM_RULE_BINDINGS, node, -1, "its bindings are out of range");
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor tensor = step->uses[u].tensor;
        int32_t segment = c->plan->bindings[n->first_binding + u];
        if (step->on_host) {
            if (serves_host(c, tensor, segment)) continue;
            return mm_check_refuse(c, MM_RULE_BINDINGS, node, tensor,
                                   "runs on the host, but is bound to segment %d: neither the home in pinned memory, "
                                   "nor a copy there of one on the disk",
                                   segment);
        }
        const bool at_home = in_range(segment, persistents) && c->plan->segments[segment].memory == MM_MEM_DEVICE;
        if (at_home && c->plan->segments[segment].tensor == tensor) continue;
        if (!is_managed(c, tensor) && !mm_plan_visits(c->plan, tensor)) {
            if (segment == -1 && is_external(c, tensor)) continue;
            return mm_check_refuse(c, MM_RULE_BINDINGS, node, tensor, "is bound to segment %d, but has a fixed place",
                                   segment);
        }
        if (!in_range(segment, c->plan->n_segments))
            return mm_check_refuse(c, MM_RULE_BINDINGS, node, tensor, "is not bound to a segment");
        if (c->plan->segments[segment].memory != MM_MEM_DEVICE)
            return mm_check_refuse(c, MM_RULE_BINDINGS, node, tensor, "is bound to segment %d, %s", segment,
                                   mm_memory_where(c->plan->segments[segment].memory));
        if (c->plan->segments[segment].tensor != c->plan->alias[tensor])
            return mm_check_refuse(c, MM_RULE_BINDINGS, node, tensor, "is bound to segment %d, of another tensor",
                                   segment);
        if (c->plan->segments[segment].pool != -1)
            return mm_check_refuse(c, MM_RULE_BINDINGS, node, tensor, "is bound to segment %d, a code with a body",
                                   segment);
    }
    return MM_OK;
}

/* If the step finds a code in place of elements, checks that it declares to read it. */
static mm_status check_code_read(const mm_check *c, int node, int u) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(c->graph, n->step);
    const int32_t segment = c->plan->bindings[n->first_binding + u];
    if (segment < 0) return MM_OK;
    const mm_segment *s = &c->plan->segments[segment];
    if (!mm_use_is_coded(&step->uses[u], s)) return MM_OK;
    if (mm_node_access(n, &step->uses[u], u) != MM_READ) return MM_OK; /* the pass `uses` refuses it */
    if (!mm_step_code_of(c->facts, step, u, MM_READ, s->codec, s->tensor))
        return mm_check_refuse(c, MM_RULE_CODE_READ, node, step->uses[u].tensor,
                               "a code of %s does not serve a reader of elements", c->facts->codecs[s->codec].spec);
    return MM_OK;
}

/* Checks the segment of the code that the step writes of its use u. */
static mm_status check_code_written(const mm_check *c, int node, int u) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(c->graph, n->step);
    const mm_tensor tensor = step->uses[u].tensor;
    const int32_t code = c->plan->bindings[n->first_code + u], value = c->plan->bindings[n->first_binding + u];
    if (code == -1) return MM_OK;
    if (!in_range(code, c->plan->n_segments) || c->plan->segments[code].content != MM_CONTENT_CODED ||
        c->plan->segments[code].pool != -1)
        return mm_check_refuse(c, MM_RULE_CODE_WRITTEN, node, tensor,
                               "its code goes to segment %d, which is not for a code without a body", code);
    const mm_segment *s = &c->plan->segments[code];
    if (!is_managed(c, tensor) || s->tensor != c->plan->alias[tensor])
        return mm_check_refuse(c, MM_RULE_CODE_WRITTEN, node, tensor, "its code goes to segment %d, of another tensor",
                               code);
    if (s->memory != MM_MEM_DEVICE)
        return mm_check_refuse(c, MM_RULE_CODE_WRITTEN, node, tensor,
                               "its code goes to segment %d, %s: steps write those on the device", code,
                               mm_memory_where(s->memory));
    if (!in_range(value, c->plan->n_segments) || c->plan->segments[value].content != MM_CONTENT_RAW)
        return mm_check_refuse(c, MM_RULE_CODE_WRITTEN, node, tensor,
                               "its code is written by a step that does not have its elements");
    if (!mm_step_code_of(c->facts, step, u, MM_WRITE, s->codec, s->tensor))
        return mm_check_refuse(c, MM_RULE_CODE_WRITTEN, node, tensor, "the step does not write codes of %s",
                               c->facts->codecs[s->codec].spec);
    return MM_OK;
}

static mm_status check_codes(const mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const int n_uses = mm_graph_step(c->graph, n->step)->n_uses;
    for (int u = 0; u < n_uses; u++) MM_TRY(check_code_read(c, node, u));
    if (n->first_code == -1) return MM_OK;
    if (n->kind != MM_NODE_STEP)
        return mm_check_refuse(c, MM_RULE_CODE_WRITTEN, node, -1, "only a step that runs first writes codes");
    if (n->first_code < 0 || n->first_code > c->plan->n_bindings - n_uses)
        return mm_check_refuse(c, MM_RULE_CODE_WRITTEN, node, -1, "its codes are out of range");
    for (int u = 0; u < n_uses; u++) MM_TRY(check_code_written(c, node, u));
    return MM_OK;
}

static mm_status check_run(const mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    if (n->tensor != -1 || n->src != -1 || n->dst != -1 || n->stage != -1 || n->throttle != 0)
        return mm_check_refuse(c, MM_RULE_STEPS, node, -1, "is a step, but has an operation's fields");
    int first = c->facts->variant_first[n->step], end = c->facts->variant_first[n->step + 1];
    if (!in_range(n->variant, end - first))
        return mm_check_refuse(c, MM_RULE_STEPS, node, -1, "has no variant %d", n->variant);
    MM_TRY(check_bindings(c, node));
    MM_TRY(check_codes(c, node));
    return check_work(c, node, mm_node_work_bytes(c->plan, c->facts, n));
}

static mm_status check_step(const mm_check *c, int node, int expected) {
    const mm_node *n = &c->plan->nodes[node];
    if (n->step != expected || n->step >= mm_graph_steps(c->graph))
        return mm_check_refuse(c, MM_RULE_STEPS, node, -1, "step %d of the graph where step %d is due", n->step,
                               expected);
    if (n->given != 0)
        return mm_check_refuse(c, MM_RULE_STEPS, node, -1, "is given outputs, but runs for the first time");
    return check_run(c, node);
}

/* Checks that the step of a recomputation has run before, may run again, and writes only managed tensors. */
static mm_status check_recompute(const mm_check *c, int node, int steps_before) {
    const mm_node *n = &c->plan->nodes[node];
    if (!in_range(n->step, steps_before))
        return mm_check_refuse(c, MM_RULE_RECOMPUTE, -1, -1, "node %d recomputes step %d, which has not run", node,
                               n->step);
    const mm_step_info *step = mm_graph_step(c->graph, n->step);
    if (step->phase != MM_FORWARD)
        return mm_check_refuse(c, MM_RULE_RECOMPUTE, node, -1, "only a forward step can be recomputed");
    if (!mm_graph_layer(c->graph, step->layer)->properties.repeatable)
        return mm_check_refuse(c, MM_RULE_RECOMPUTE, node, -1, "does not repeat: its layer is not repeatable");
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor tensor = step->uses[u].tensor;
        bool managed = is_managed(c, tensor);
        if (step->uses[u].access == (managed ? MM_MODIFY : MM_WRITE) ||
            (managed && step->uses[u].access == MM_WRITE && is_aliased(c, tensor)))
            return mm_check_refuse(c, MM_RULE_RECOMPUTE, node, tensor, "is written in a way that cannot be recomputed");
        if (u < MM_GIVEN_USES && n->given >> u & 1 && !(step->given >> u & 1))
            return mm_check_refuse(c, MM_RULE_RECOMPUTE, node, tensor,
                                   "is given to a step that does not declare that it can be");
    }
    return check_run(c, node);
}

static mm_status check_stage(const mm_check *c, int node, const mm_segment *code) {
    const mm_node *n = &c->plan->nodes[node];
    if (n->stage == -1) return MM_OK;
    if (n->kind != MM_NODE_ENCODE || !in_range(n->stage, c->plan->n_segments))
        return mm_check_refuse(c, MM_RULE_CODING, node, -1,
                               "its stage, segment %d, does not exist, or it is not an encode", n->stage);
    if (code->pool != -1)
        return mm_check_refuse(c, MM_RULE_CODING, node, n->tensor, "a code with a body cannot be staged");
    const mm_segment *stage = &c->plan->segments[n->stage];
    if (stage->content != MM_CONTENT_WORK || stage->bytes < code->bytes)
        return mm_check_refuse(c, MM_RULE_CODING, node, -1, "its stage, segment %d, does not hold the code", n->stage);
    return MM_OK;
}

/* Per mm_node_end: which segments are allowed. */
static const struct {
    bool raw, coded;
    bool memory[MM_MEMORY_COUNT];
    const char *words;
} ends[] = {
    [MM_END_NONE] = {.words = "none"},
    [MM_END_RAW] = {.raw = true, .memory = {[MM_MEM_DEVICE] = true}, .words = "a map on the device"},
    [MM_END_CODED] = {.coded = true, .memory = {[MM_MEM_DEVICE] = true, [MM_MEM_PINNED] = true}, .words = "a code"},
    [MM_END_DEVICE] = {.raw = true,
                       .coded = true,
                       .memory = {[MM_MEM_DEVICE] = true},
                       .words = "a map or a code on the device"},
    [MM_END_PINNED] = {.raw = true,
                       .coded = true,
                       .memory = {[MM_MEM_PINNED] = true},
                       .words = "a map or a code in pinned memory"},
    [MM_END_DISK] = {.raw = true,
                     .coded = true,
                     .memory = {[MM_MEM_DISK] = true},
                     .words = "a map or a code on the disk"},
};

static bool is_end(const mm_segment *s, mm_node_end end) {
    return ends[end].memory[s->memory] &&
           ((s->content == MM_CONTENT_RAW && ends[end].raw) || (s->content == MM_CONTENT_CODED && ends[end].coded));
}

static mm_status check_end(const mm_check *c, int node, const char *what, int segment, mm_node_end end) {
    static const char *const contents[MM_CONTENTS] = {[MM_CONTENT_RAW] = "a map",
                                                      [MM_CONTENT_CODED] = "a code",
                                                      [MM_CONTENT_WORK] = "a workspace",
                                                      [MM_CONTENT_POOL] = "a pool"};
    const mm_node *n = &c->plan->nodes[node];
    if (end == MM_END_NONE && segment == -1) return MM_OK;
    if (!in_range(segment, c->plan->n_segments))
        return mm_check_refuse(c, MM_RULE_ENDS, node, n->tensor, "its %s is not a segment", what);
    const mm_segment *s = &c->plan->segments[segment];
    if (!is_end(s, end))
        return mm_check_refuse(c, MM_RULE_ENDS, node, n->tensor, "its %s is %s %s, not %s", what, contents[s->content],
                               mm_memory_where(s->memory), ends[end].words);
    if (s->tensor == n->tensor) return MM_OK;
    return mm_check_refuse(c, MM_RULE_ENDS, node, n->tensor, "its %s is of another tensor", what);
}

/* Checks that a copy does not change the content. */
static mm_status check_move(const mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_segment *src = &c->plan->segments[n->src], *dst = &c->plan->segments[n->dst];
    if (src->content != dst->content || src->codec != dst->codec || src->bytes != dst->bytes)
        return mm_check_refuse(c, MM_RULE_COPY, node, n->tensor, "source and target differ in form or size");
    if (src->pool != -1 || dst->pool != -1)
        return mm_check_refuse(c, MM_RULE_COPY, node, n->tensor,
                               "a code with a body cannot be copied: nobody knows its size");
    if (n->work != -1 || n->stage != -1)
        return mm_check_refuse(c, MM_RULE_COPY, node, n->tensor, "is a copy, but has a workspace");
    return MM_OK;
}

static mm_status check_measure(const mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    if (mm_graph_tensor(c->graph, n->tensor)->dtype != MM_F32)
        return mm_check_refuse(c, MM_RULE_MEASURE, node, n->tensor, "is not f32, and so cannot be measured");
    if (n->work != -1 || n->stage != -1)
        return mm_check_refuse(c, MM_RULE_MEASURE, node, n->tensor, "is a measure, but has a workspace");
    return MM_OK;
}

/* Checks an encode or a decode. */
static mm_status check_coding(const mm_check *c, int node, bool encode) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_segment *code = &c->plan->segments[mm_program_stored(n)];
    if (!encode && !c->facts->codecs[code->codec].gives_value)
        return mm_check_refuse(c, MM_RULE_CODING, node, n->tensor, "codec %s does not give the elements back",
                               c->facts->codecs[code->codec].spec);
    MM_TRY(check_stage(c, node, code));
    return check_work(c, node, mm_facts_code(c->facts, code->codec, n->tensor)->scratch_bytes);
}

static mm_status check_op(const mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_node_traits *traits = &mm_node_table[n->kind];
    const bool encode = traits->cost == MM_COST_ENCODE;
    if (n->step != -1) return mm_check_refuse(c, MM_RULE_ENDS, node, -1, "is an operation, but names a step");
    if (n->throttle != 0 && (!encode || n->throttle < 0))
        return mm_check_refuse(c, MM_RULE_CODING, node, n->tensor, "is throttled to %d pieces", n->throttle);
    MM_TRY(check_end(c, node, "source", n->src, traits->src));
    MM_TRY(check_end(c, node, "target", n->dst, traits->dst));
    switch (traits->cost) {
    case MM_COST_ENCODE:
    case MM_COST_DECODE:
        return check_coding(c, node, encode);
    case MM_COST_LINK_OUT:
    case MM_COST_LINK_IN:
    case MM_COST_DISK_OUT:
    case MM_COST_DISK_IN:
        return check_move(c, node);
    case MM_COST_MEMORY:
        return check_measure(c, node);
    case MM_COST_STEP:
        break;
    }
    return mm_check_refuse(c, MM_RULE_ENDS, node, -1, "is a step and an operation");
}

/* The stream of a node of a known kind. */
static mm_stream_id stream_due(const mm_check *c, const mm_node *n) {
    const bool of_graph = n->kind == MM_NODE_STEP && in_range(n->step, mm_graph_steps(c->graph));
    return of_graph && mm_graph_step(c->graph, n->step)->on_host ? MM_STREAM_HOST : mm_node_stream(n->kind);
}

/* issued: per stream, number of nodes before this one. */
static mm_status check_node_place(const mm_check *c, int node, const int32_t *issued) {
    const mm_node *n = &c->plan->nodes[node];
    if ((unsigned)n->kind >= MM_NODE_KINDS || n->stream != stream_due(c, n))
        return mm_check_refuse(c, MM_RULE_STREAM, -1, -1, "node %d is of an unknown kind, or on another kind's stream",
                               node);
    if (n->seq != issued[n->stream])
        return mm_check_refuse(c, MM_RULE_STREAM, node, -1, "has number %d on its stream where %d is due", n->seq,
                               issued[n->stream]);
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (n->wait[s] < -1 || (s == (int)n->stream && n->wait[s] != -1))
            return mm_check_refuse(c, MM_RULE_WAITS, node, -1, "waits for number %d of the %s stream, which it cannot",
                                   n->wait[s], mm_stream_id_name(s));
        if (n->wait[s] >= issued[s])
            return mm_check_refuse(c, MM_RULE_WAITS, node, -1,
                                   "waits for number %d of the %s stream, which is not issued before it", n->wait[s],
                                   mm_stream_id_name(s));
    }
    return MM_OK;
}

mm_status mm_check_form(const mm_check *c) {
    MM_TRY(check_arrays(c));
    MM_TRY(check_aliases(c));
    for (int s = 0; s < c->plan->n_segments; s++) MM_TRY(check_segment(c, s));
    int32_t issued[MM_STREAM_COUNT] = {0};
    int steps = 0;
    for (int i = 0; i < c->plan->n_nodes; i++) {
        MM_TRY(check_node_place(c, i, issued));
        const mm_node *n = &c->plan->nodes[i];
        if (n->kind == MM_NODE_STEP)
            MM_TRY(check_step(c, i, steps++));
        else if (n->kind == MM_NODE_RECOMPUTE)
            MM_TRY(check_recompute(c, i, steps));
        else
            MM_TRY(check_op(c, i));
        issued[n->stream]++;
    }
    if (steps != mm_graph_steps(c->graph))
        return mm_check_refuse(c, MM_RULE_STEPS, -1, -1, "has %d of the graph's %d steps", steps,
                               mm_graph_steps(c->graph));
    if (memcmp(issued, c->plan->stream_nodes, sizeof issued) != 0)
        return mm_check_refuse(c, MM_RULE_STREAM, -1, -1, "states wrong numbers of nodes on its streams");
    return MM_OK;
}
