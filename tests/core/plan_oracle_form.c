/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "tests/core/plan_oracle_parts.h"

static bool known(int index, int n) { return index >= 0 && index < n; }
static bool known_or_none(int index, int n) { return index == -1 || known(index, n); }

bool plan_walkable(const mm_plan *plan) {
    int32_t seen[MM_STREAM_COUNT] = {0};
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++)
        if (!known(plan->alias[t], mm_graph_tensors(plan->graph))) return false;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if ((unsigned)s->memory > MM_MEM_DISK) return false;
        if ((unsigned)s->content > MM_CONTENT_POOL || (unsigned)s->category >= MM_CATEGORIES) return false;
        if (!known_or_none(s->tensor, mm_graph_tensors(plan->graph))) return false;
        if (!known_or_none(s->pool, plan->n_segments) || !known_or_none(s->spill, plan->n_segments)) return false;
        if (s->bytes < 1 || s->bytes > INT64_C(1) << 50) return false;
        if (!s->dynamic && (s->offset < 0 || s->offset > INT64_C(1) << 50)) return false;
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if ((unsigned)n->kind > MM_NODE_LOAD || (unsigned)n->stream >= MM_STREAM_COUNT) return false;
        if (n->seq != seen[n->stream]) return false;
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (n->wait[s] < -1 || n->wait[s] >= seen[s]) return false;
        seen[n->stream]++;
        bool step = mm_node_runs_step(n);
        if (!known_or_none(n->work, plan->n_segments) || !known_or_none(n->stage, plan->n_segments)) return false;
        if (!known_or_none(n->src, plan->n_segments) || !known_or_none(n->dst, plan->n_segments)) return false;
        if (!step && (n->src < 0 || (n->dst < 0) != (n->kind == MM_NODE_MEASURE))) return false;
        if (!step && !known(n->tensor, mm_graph_tensors(plan->graph))) return false;
        if (!step) continue;
        if (!known(n->step, mm_graph_steps(plan->graph))) return false;
        int n_uses = mm_graph_step(plan->graph, n->step)->n_uses;
        if (n->first_binding < 0 || n->first_binding + (int64_t)n_uses > plan->n_bindings) return false;
        for (int u = 0; u < n_uses; u++)
            if (!known_or_none(plan->bindings[n->first_binding + u], plan->n_segments)) return false;
        if (n->first_code == -1) continue;
        if (n->first_code < 0 || n->first_code + (int64_t)n_uses > plan->n_bindings) return false;
        for (int u = 0; u < n_uses; u++)
            if (!known_or_none(plan->bindings[n->first_code + u], plan->n_segments)) return false;
    }
    return memcmp(seen, plan->stream_nodes, sizeof seen) == 0;
}

static bool managed(const mm_plan *plan, mm_tensor t) {
    return mm_graph_tensor(plan->graph, t)->ownership == MM_MANAGED;
}

static bool external(const mm_plan *plan, mm_tensor t) {
    return mm_graph_tensor(plan->graph, t)->ownership == MM_EXTERNAL;
}

/* Whether the first segments are those of the persistent tensors, in order, and lie where the limits say. */
static bool good_persistents(const mm_plan *plan, const mm_limits *limits) {
    int number = 0;
    int64_t packed = 0;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        if (tensor->ownership != MM_PERSISTENT) continue;
        if (number >= plan->n_segments) return false;
        const mm_segment *s = &plan->segments[number];
        if (s->tensor != t || s->content != MM_CONTENT_RAW || s->category != MM_CAT_PERSISTENT || s->codec != -1 ||
            s->dynamic || s->bytes != tensor->bytes || s->pool != -1 || s->spill != -1)
            return false;
        const mm_place place = limits->places ? limits->places[number] : (mm_place){packed, MM_MEM_DEVICE};
        const int64_t bases[] = {limits->base_bytes, limits->pinned_base_bytes, limits->disk_base_bytes};
        if (s->offset != place.offset || s->memory != place.memory || s->offset < 0 ||
            s->offset % (s->memory == MM_MEM_DISK ? 4096 : 256) || s->offset + s->bytes > bases[s->memory])
            return false;
        if (s->memory != MM_MEM_DEVICE && tensor->shared != MM_ALLREDUCE_NOT) return false;
        for (int i = 0; i < number; i++)
            if (s->memory == plan->segments[i].memory &&
                s->offset < plan->segments[i].offset + plan->segments[i].bytes &&
                plan->segments[i].offset < s->offset + s->bytes)
                return false;
        packed += mm_align(s->bytes);
        number++;
    }
    for (int i = number; i < plan->n_segments; i++)
        if (plan->segments[i].category == MM_CAT_PERSISTENT) return false;
    return true;
}

/* Whether a pool and its spill have room for all bodies, however large, and no other pool has that spill. */
static bool good_pool(const mm_plan *plan, const mm_graph_facts *facts, int pool) {
    const mm_segment *p = &plan->segments[pool];
    int64_t needed = 0, room = p->bytes;
    int owners = 0, codes = 0;
    if (p->tensor != -1 || p->codec != -1 || p->pool != -1 || p->dynamic || p->memory == MM_MEM_DISK) return false;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        owners += s->spill == pool;
        codes += s->pool == pool;
        if (s->pool == pool) needed += mm_align(mm_facts_code(facts, s->codec, s->tensor)->body_bound_bytes);
    }
    if (owners > 0) return owners == 1 && codes == 0 && p->memory == MM_MEM_PINNED && p->spill < 0;
    if (p->spill < 0) return needed <= room;
    const mm_segment *spill = &plan->segments[p->spill];
    room += spill->bytes - MM_CHUNK_BYTES;
    return needed <= room && p->memory == MM_MEM_DEVICE && spill->memory == MM_MEM_PINNED &&
           oracle_is_pool(plan, p->spill);
}

static bool good_segment(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits,
                         const mm_segment *s) {
    if ((s->content == MM_CONTENT_CODED) != (s->codec != -1)) return false;
    if (s->memory != MM_MEM_DEVICE && (s->content == MM_CONTENT_WORK || s->dynamic)) return false;
    const int64_t bases[] = {limits->base_bytes, limits->pinned_base_bytes, limits->disk_base_bytes};
    if (!s->dynamic && (s->offset % (s->memory == MM_MEM_DISK ? 4096 : 256) || s->offset < bases[s->memory]))
        return false;
    if (s->content == MM_CONTENT_POOL) return s->tensor == -1 && s->pool == -1;
    if (s->spill != -1 || (s->pool != -1 && s->content != MM_CONTENT_CODED)) return false;
    if (s->content == MM_CONTENT_WORK) return s->tensor == -1;
    if (s->tensor < 0 || external(plan, s->tensor) || plan->alias[s->tensor] != s->tensor) return false;
    if (s->content == MM_CONTENT_RAW) return s->bytes >= mm_graph_tensor(plan->graph, s->tensor)->bytes;
    if (!known(s->codec, facts->n_codecs)) return false;
    const mm_code_facts *code = mm_facts_code(facts, s->codec, s->tensor);
    const mm_tensor_kind kind = mm_graph_tensor(plan->graph, s->tensor)->kind;
    if (!facts->codecs[s->codec].lossless && kind != MM_FEATURE_MAP && kind != MM_GRADIENT_MAP) return false;
    const bool in_pool = s->pool >= 0 && oracle_is_pool(plan, s->pool);
    return code->code_bytes == s->bytes && (code->body_bound_bytes > 0 ? in_pool : s->pool == -1);
}

static bool good_work(const mm_plan *plan, int segment, int64_t bytes) {
    if (segment < 0) return bytes == 0;
    return plan->segments[segment].content == MM_CONTENT_WORK && plan->segments[segment].bytes >= bytes;
}

/* Whether the step says that it reads or writes such a code of its use by itself. *bytes: grows by what that takes. */
static bool declared(const mm_graph_facts *facts, const mm_step_info *step, int u, mm_access access,
                     const mm_segment *code, int64_t *bytes) {
    if (code->codec < 0 || code->pool >= 0) return false;
    const mm_codec_facts *codec = &facts->codecs[code->codec];
    const int64_t strip = mm_facts_code(facts, code->codec, code->tensor)->strip_elems;
    if (strip <= 0 || (access == MM_READ && !codec->gives_value)) return false;
    for (int i = 0; i < step->n_codes; i++) {
        const mm_step_code *c = &step->codes[i];
        const size_t length = strcspn(codec->spec, ":");
        if (c->use != u || c->access != access || strlen(c->codec) != length ||
            memcmp(c->codec, codec->spec, length) != 0)
            continue;
        *bytes += mm_align(c->workspace_bytes + c->workspace_strips * strip * 4);
        return true;
    }
    return false;
}

/* Whether the step may read the codes that it is bound to, and write those that it writes. */
static bool good_codes(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n, int64_t *bytes) {
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    if (n->first_code != -1 && n->kind != MM_NODE_STEP) return false;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        const int read = plan->bindings[n->first_binding + u], written = oracle_code(plan, n, u);
        const mm_segment *from = read >= 0 ? &plan->segments[read] : NULL;
        if (from && from->content == MM_CONTENT_CODED && use->form == MM_FORM_VALUE && use->access == MM_READ &&
            (from->memory != MM_MEM_DEVICE || !declared(facts, step, u, MM_READ, from, bytes)))
            return false;
        if (written < 0) continue;
        const mm_segment *to = &plan->segments[written];
        if (to->content != MM_CONTENT_CODED || to->memory != MM_MEM_DEVICE || !managed(plan, use->tensor) ||
            to->tensor != plan->alias[use->tensor] || !from || from->content != MM_CONTENT_RAW ||
            !declared(facts, step, u, MM_WRITE, to, bytes))
            return false;
    }
    return true;
}

/* Whether a node that runs a step, for the first time or again, is well-formed. */
static bool good_run(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n) {
    const bool host = n->kind == MM_NODE_STEP && mm_graph_step(plan->graph, n->step)->on_host;
    if (n->stream != (host ? MM_STREAM_HOST : MM_STREAM_COMPUTE) || n->src != -1 || n->dst != -1 || n->stage != -1 ||
        n->tensor != -1 || n->throttle != 0)
        return false;
    int first = facts->variant_first[n->step], count = facts->variant_first[n->step + 1] - first;
    if (!known(n->variant, count)) return false;
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor t = step->uses[u].tensor;
        int segment = plan->bindings[n->first_binding + u];
        if (external(plan, t) ? segment != -1 : segment < 0 || plan->segments[segment].tensor != plan->alias[t])
            return false;
        const int home = mm_graph_tensor(plan->graph, t)->persistent;
        if (host) {
            if (home < 0 || segment < 0 || plan->segments[segment].memory != MM_MEM_PINNED) return false;
            if (segment != home && plan->segments[home].memory != MM_MEM_DISK) return false;
            if (plan->segments[segment].content != MM_CONTENT_RAW) return false;
            continue;
        }
        if (!managed(plan, t) && segment >= 0 && segment != home && plan->segments[home].memory == MM_MEM_DEVICE)
            return false;
        if (segment >= 0 && plan->segments[segment].memory != MM_MEM_DEVICE) return false;
        if (segment >= 0 && plan->segments[segment].pool >= 0) return false;
    }
    const int64_t own = facts->variants[first + n->variant].workspace_bytes;
    int64_t more = 0;
    return good_codes(plan, facts, n, &more) && good_work(plan, n->work, more > 0 ? mm_align(own) + more : own);
}

/* Whether a step that is run again is a forward step that has run, and does nothing but write managed tensors anew. */
static bool good_recompute(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n, int steps) {
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    if (n->step >= steps || step->phase != MM_FORWARD) return false;
    if (!mm_graph_layer(plan->graph, step->layer)->properties.repeatable) return false;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (managed(plan, use->tensor) ? use->access == MM_MODIFY || oracle_shares(plan, use) : use->access == MM_WRITE)
            return false;
    }
    return good_run(plan, facts, n);
}

static bool good_move(const mm_plan *plan, const mm_node *n) {
    static const struct {
        mm_node_kind kind;
        mm_stream_id stream;
        mm_memory from, to;
    } moves[] = {{MM_NODE_OUT, MM_STREAM_OUT, MM_MEM_DEVICE, MM_MEM_PINNED},
                 {MM_NODE_IN, MM_STREAM_IN, MM_MEM_PINNED, MM_MEM_DEVICE},
                 {MM_NODE_STORE, MM_STREAM_STORE, MM_MEM_PINNED, MM_MEM_DISK},
                 {MM_NODE_LOAD, MM_STREAM_LOAD, MM_MEM_DISK, MM_MEM_PINNED}};
    const mm_segment *src = &plan->segments[n->src], *dst = &plan->segments[n->dst];
    int m = 0;
    while (moves[m].kind != n->kind) m++;
    if (n->stream != moves[m].stream || n->step != -1 || n->work != -1 || n->stage != -1 || n->throttle != 0)
        return false;
    if (src->memory != moves[m].from || dst->memory != moves[m].to) return false;
    if (src->content >= MM_CONTENT_WORK || src->pool >= 0 || dst->pool >= 0 || src->tensor != n->tensor ||
        dst->tensor != n->tensor)
        return false;
    return src->content == dst->content && src->codec == dst->codec && src->bytes == dst->bytes;
}

/* Whether a measure's source is the elements of a persistent tensor or of a map, on the device. */
static bool good_measure(const mm_plan *plan, const mm_node *n) {
    const mm_segment *src = &plan->segments[n->src];
    return n->stream == MM_STREAM_ENCODE && n->step == -1 && n->work == -1 && n->stage == -1 && n->throttle == 0 &&
           src->content == MM_CONTENT_RAW && src->memory == MM_MEM_DEVICE && src->tensor == n->tensor &&
           mm_graph_tensor(plan->graph, n->tensor)->dtype == MM_F32;
}

static bool good_op(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n) {
    if (n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN || n->kind == MM_NODE_STORE || n->kind == MM_NODE_LOAD)
        return good_move(plan, n);
    if (n->kind == MM_NODE_MEASURE) return good_measure(plan, n);
    bool encode = n->kind == MM_NODE_ENCODE;
    if (n->stream != (encode ? MM_STREAM_ENCODE : MM_STREAM_DECODE) || n->step != -1) return false;
    if (n->throttle < 0 || (n->throttle > 0 && !encode)) return false;
    const mm_segment *raw = &plan->segments[encode ? n->src : n->dst];
    const mm_segment *code = &plan->segments[encode ? n->dst : n->src];
    if (raw->content != MM_CONTENT_RAW || code->content != MM_CONTENT_CODED) return false;
    if (raw->tensor != n->tensor || code->tensor != n->tensor || raw->memory != MM_MEM_DEVICE ||
        code->memory == MM_MEM_DISK)
        return false;
    if (!encode && !facts->codecs[code->codec].gives_value) return false;
    if (n->stage >= 0 && (!encode || code->pool >= 0 || !good_work(plan, n->stage, code->bytes))) return false;
    return good_work(plan, n->work, mm_facts_code(facts, code->codec, n->tensor)->scratch_bytes);
}

bool oracle_form(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits) {
    int steps = 0;
    if (!plan_walkable(plan)) return false;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        mm_tensor root = plan->alias[t];
        if (plan->alias[root] != root || (root != t && (!managed(plan, t) || !managed(plan, root)))) return false;
    }
    if (!good_persistents(plan, limits)) return false;
    for (int i = 0; i < plan->n_segments; i++)
        if (plan->segments[i].category != MM_CAT_PERSISTENT && !good_segment(plan, facts, limits, &plan->segments[i]))
            return false;
    for (int i = 0; i < plan->n_segments; i++)
        if (oracle_is_pool(plan, i) && !good_pool(plan, facts, i)) return false;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->wait[n->stream] != -1) return false;
        bool good = n->kind == MM_NODE_RECOMPUTE ? good_recompute(plan, facts, n, steps)
                    : n->kind == MM_NODE_STEP    ? n->step == steps++ && good_run(plan, facts, n)
                                                 : good_op(plan, facts, n);
        if (!good) return false;
    }
    return steps == mm_graph_steps(plan->graph);
}
