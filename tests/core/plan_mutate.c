#include "tests/core/plan_mutate.h"

#include <stdlib.h>
#include <string.h>

#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"

static void *copy(const void *from, size_t n, size_t room, size_t item) {
    void *to = calloc(room + 1, item);
    if (!to) abort();
    if (n > 0) memcpy(to, from, n * item);
    return to;
}

mm_plan *plan_clone(const mm_plan *plan) {
    mm_plan *clone = copy(plan, 1, 1, sizeof *plan);
    size_t nodes = (size_t)plan->n_nodes, segments = (size_t)plan->n_segments, bindings = (size_t)plan->n_bindings;
    size_t tensors = (size_t)mm_graph_tensors(plan->graph);
    clone->nodes = copy(plan->nodes, nodes, nodes + 1, sizeof *plan->nodes);
    clone->segments = copy(plan->segments, segments, segments, sizeof *plan->segments);
    clone->bindings = copy(plan->bindings, bindings, bindings, sizeof *plan->bindings);
    clone->alias = copy(plan->alias, tensors, tensors, sizeof *plan->alias);
    return clone;
}

/* ---------------------------------------------------------------- choosing */

static int below(mutant *m, int n) { return random_below(&m->random, n); }

static mm_node *any_node(mutant *m) { return &m->plan->nodes[below(m, m->plan->n_nodes)]; }

static mm_segment *any_segment(mutant *m) {
    return m->plan->n_segments ? &m->plan->segments[below(m, m->plan->n_segments)] : NULL;
}

/* A node, or a segment, that `fits`, all with the same chance; NULL if there is none. */
static mm_node *find_node(mutant *m, bool (*fits)(const mm_node *)) {
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++)
        if (fits(&m->plan->nodes[i]) && below(m, ++seen) == 0) found = &m->plan->nodes[i];
    return found;
}

static mm_segment *find_segment(mutant *m, bool (*fits)(const mm_segment *)) {
    mm_segment *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_segments; i++)
        if (fits(&m->plan->segments[i]) && below(m, ++seen) == 0) found = &m->plan->segments[i];
    return found;
}

static bool is_op(const mm_node *n) { return !mm_node_runs_step(n); }
static bool is_encode(const mm_node *n) { return n->kind == MM_NODE_ENCODE; }
static bool is_move(const mm_node *n) { return n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN; }
static bool has_work(const mm_node *n) { return n->work >= 0; }
static bool is_raw(const mm_segment *s) { return s->content == MM_CONTENT_RAW; }
static bool is_coded(const mm_segment *s) { return s->content == MM_CONTENT_CODED; }
static bool is_placed(const mm_segment *s) { return !s->dynamic; }
static bool is_pinned(const mm_segment *s) { return s->pinned; }

static bool has_wait(const mm_node *n) {
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (n->wait[s] >= 0) return true;
    return false;
}

/* A wait of some node. */
static int32_t *find_wait(mutant *m) {
    mm_node *n = find_node(m, has_wait);
    if (!n) return NULL;
    int s = below(m, MM_STREAM_COUNT);
    while (n->wait[s] < 0) s = (s + 1) % MM_STREAM_COUNT;
    return &n->wait[s];
}

/* A binding of a managed tensor. */
static int32_t *find_binding(mutant *m) {
    int32_t *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_bindings; i++)
        if (m->plan->bindings[i] >= 0 && below(m, ++seen) == 0) found = &m->plan->bindings[i];
    return found;
}

/* Another segment of the same tensor; -1. */
static int find_sibling(mutant *m, int segment) {
    const mm_segment *s = &m->plan->segments[segment];
    int found = -1;
    for (int i = 0, seen = 0; i < m->plan->n_segments; i++)
        if (i != segment && s->tensor >= 0 && m->plan->segments[i].tensor == s->tensor && below(m, ++seen) == 0)
            found = i;
    return found;
}

/* ---------------------------------------------------------------- waits and order */

static bool drop_wait(mutant *m) {
    int32_t *wait = find_wait(m);
    if (wait) *wait = -1;
    return wait != NULL;
}

static bool weaken_wait(mutant *m) {
    int32_t *wait = find_wait(m);
    if (wait) *wait -= 1;
    return wait != NULL;
}

static bool strengthen_wait(mutant *m) {
    int32_t *wait = find_wait(m);
    if (wait) *wait += 1;
    return wait != NULL;
}

static bool add_wait(mutant *m) {
    mm_node *n = any_node(m);
    int s = below(m, MM_STREAM_COUNT);
    if (m->plan->stream_nodes[s] == 0) return false;
    n->wait[s] = below(m, m->plan->stream_nodes[s]);
    return true;
}

/* Numbers the nodes of each stream as they come. */
static void renumber(mm_plan *plan) {
    memset(plan->stream_nodes, 0, sizeof plan->stream_nodes);
    for (int i = 0; i < plan->n_nodes; i++) plan->nodes[i].seq = plan->stream_nodes[plan->nodes[i].stream]++;
}

/* Moves node `from` to place `to`. Waits for nodes of its stream go on naming the same nodes. */
static void move_node(mm_plan *plan, int from, int to) {
    mm_node moved = plan->nodes[from];
    int32_t *new_seq = copy(NULL, 0, (size_t)plan->n_nodes, sizeof *new_seq);
    if (from < to)
        memmove(&plan->nodes[from], &plan->nodes[from + 1], (size_t)(to - from) * sizeof moved);
    else
        memmove(&plan->nodes[to + 1], &plan->nodes[to], (size_t)(from - to) * sizeof moved);
    plan->nodes[to] = moved;
    int32_t seq = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].stream == moved.stream) new_seq[plan->nodes[i].seq] = seq++;
    for (int i = 0; i < plan->n_nodes; i++) {
        int32_t *wait = &plan->nodes[i].wait[moved.stream];
        if (*wait >= 0) *wait = new_seq[*wait];
    }
    free(new_seq);
    renumber(plan);
}

static bool swap_neighbours(mutant *m) {
    if (m->plan->n_nodes < 2) return false;
    int i = below(m, m->plan->n_nodes - 1);
    move_node(m->plan, i, i + 1);
    return true;
}

static bool move_operation(mutant *m) {
    mm_node *n = find_node(m, is_op);
    if (!n) return false;
    move_node(m->plan, (int)(n - m->plan->nodes), below(m, m->plan->n_nodes));
    return true;
}

static bool drop_node(mutant *m) {
    mm_node *n = random_chance(&m->random, 80) ? find_node(m, is_op) : any_node(m);
    if (!n) return false;
    mm_node dropped = *n;
    int i = (int)(n - m->plan->nodes);
    memmove(n, n + 1, (size_t)(--m->plan->n_nodes - i) * sizeof *n);
    for (int k = 0; k < m->plan->n_nodes; k++)
        if (m->plan->nodes[k].wait[dropped.stream] >= dropped.seq) m->plan->nodes[k].wait[dropped.stream]--;
    renumber(m->plan);
    return true;
}

static bool duplicate_node(mutant *m) {
    mm_node *n = random_chance(&m->random, 80) ? find_node(m, is_op) : any_node(m);
    if (!n) return false;
    mm_node twice = *n;
    int i = (int)(n - m->plan->nodes);
    memmove(n + 1, n, (size_t)(m->plan->n_nodes++ - i) * sizeof *n);
    for (int k = i + 2; k < m->plan->n_nodes; k++)
        if (m->plan->nodes[k].wait[twice.stream] >= twice.seq) m->plan->nodes[k].wait[twice.stream]++;
    renumber(m->plan);
    return true;
}

/* A copy over the link that no longer waits for one of the streams it waited for. */
static bool move_too_early(mutant *m) {
    mm_node *n = find_node(m, is_move);
    if (!n || !has_wait(n)) return false;
    int s = below(m, MM_STREAM_COUNT);
    while (n->wait[s] < 0) s = (s + 1) % MM_STREAM_COUNT;
    n->wait[s] = -1;
    return true;
}

/* A copy the other way, on the stream of that way; sometimes with its ends exchanged too. */
static bool turn_move(mutant *m) {
    mm_node *n = find_node(m, is_move);
    if (!n) return false;
    n->kind = n->kind == MM_NODE_OUT ? MM_NODE_IN : MM_NODE_OUT;
    n->stream = mm_node_stream(n->kind);
    n->wait[n->stream] = -1;
    if (below(m, 2)) {
        int32_t src = n->src;
        n->src = n->dst;
        n->dst = src;
    }
    renumber(m->plan);
    return true;
}

/* A copy of, or to, something else of the same tensor. */
static bool other_end_of_move(mutant *m) {
    mm_node *n = find_node(m, is_move);
    if (!n) return false;
    int32_t *end = below(m, 2) ? &n->src : &n->dst;
    int sibling = find_sibling(m, *end);
    if (sibling >= 0) *end = sibling;
    return sibling >= 0;
}

/* One end of a copy differs from the other: raw and coded, in size, or on the same side of the link. */
static bool unlike_ends_of_move(mutant *m) {
    mm_node *n = find_node(m, is_move);
    if (!n) return false;
    mm_segment *s = &m->plan->segments[below(m, 2) ? n->src : n->dst];
    switch (below(m, 3)) {
    case 0:
        s->codec = s->content == MM_CONTENT_RAW ? below(m, m->facts->n_codecs) : -1;
        s->content = s->codec < 0 ? MM_CONTENT_RAW : MM_CONTENT_CODED;
        s->bytes = s->codec < 0 ? mm_graph_tensor(m->plan->graph, s->tensor)->bytes
                                : mm_facts_code(m->facts, s->codec, s->tensor)->code_bytes;
        return s->bytes > 0;
    case 1:
        s->bytes += 1 + below(m, 300);
        return true;
    default:
        s->pinned = !s->pinned;
        return true;
    }
}

/* Both ends of a copied code are of another codec, and of the right size for it. */
static bool other_codec_of_move(mutant *m) {
    mm_node *n = find_node(m, is_move);
    if (!n || m->plan->segments[n->src].content != MM_CONTENT_CODED) return false;
    int codec = below(m, m->facts->n_codecs);
    int64_t bytes = mm_facts_code(m->facts, codec, n->tensor)->code_bytes;
    int32_t ends[] = {n->src, n->dst};
    for (int i = 0; bytes > 0 && i < 2; i++) {
        m->plan->segments[ends[i]].codec = codec;
        m->plan->segments[ends[i]].bytes = bytes;
    }
    return bytes > 0;
}

static bool work_for_move(mutant *m) {
    mm_node *n = find_node(m, is_move);
    if (n) *(below(m, 2) ? &n->work : &n->stage) = below(m, m->plan->n_segments);
    return n != NULL;
}

/* An encode of a map where it lies in pinned memory, after it got there. */
static bool encode_pinned(mutant *m) {
    mm_plan *plan = m->plan;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int out = 0; out < i; out++) {
            if (!is_encode(&plan->nodes[i]) || plan->nodes[out].kind != MM_NODE_OUT) continue;
            int copy = plan->nodes[out].dst;
            if (plan->nodes[out].tensor != plan->nodes[i].tensor || !is_raw(&plan->segments[copy])) continue;
            plan->nodes[i].src = copy;
            mm_plan_wait(plan, i, out);
            return true;
        }
    return false;
}

/* A step that reads or writes a tensor where it lies in pinned memory. */
static bool bind_pinned(mutant *m) {
    int32_t *binding = find_binding(m);
    for (int i = 0; binding && i < m->plan->n_segments; i++) {
        const mm_segment *s = &m->plan->segments[i];
        if (!s->pinned || s->tensor != m->plan->segments[*binding].tensor) continue;
        *binding = i;
        return true;
    }
    return false;
}

static bool other_stream(mutant *m) {
    any_node(m)->stream = (mm_stream_id)below(m, MM_STREAM_COUNT);
    return true;
}

static bool other_step(mutant *m) {
    any_node(m)->step = below(m, mm_graph_steps(m->plan->graph) + 2) - 1;
    return true;
}

static bool other_seq(mutant *m) {
    any_node(m)->seq += below(m, 3) - 1;
    return true;
}

/* ---------------------------------------------------------------- bytes */

static bool shift_offset(mutant *m) {
    mm_segment *s = find_segment(m, is_placed);
    if (s) s->offset += MM_ALIGN * (int64_t)(below(m, 17) - 8);
    return s != NULL;
}

static bool shift_pinned(mutant *m) {
    mm_segment *s = find_segment(m, is_pinned);
    if (s) s->offset += MM_ALIGN * (int64_t)(below(m, 9) - 4);
    return s != NULL;
}

static bool pinned_over_another(mutant *m) {
    mm_segment *s = find_segment(m, is_pinned), *other = find_segment(m, is_pinned);
    if (s) s->offset = other->offset;
    return s != other;
}

static bool misalign_offset(mutant *m) {
    mm_segment *s = find_segment(m, is_placed);
    if (s) s->offset += 1 + below(m, MM_ALIGN - 1);
    return s != NULL;
}

/* Reuses bytes at the wrong time. */
static bool move_over_another(mutant *m) {
    mm_segment *s = find_segment(m, is_placed), *other = find_segment(m, is_placed);
    if (s) s->offset = other->offset;
    return s != NULL && s != other;
}

static bool swap_offsets(mutant *m) {
    mm_segment *s = find_segment(m, is_placed), *other = find_segment(m, is_placed);
    if (!s || s == other) return false;
    int64_t offset = s->offset;
    s->offset = other->offset;
    other->offset = offset;
    return true;
}

static bool toggle_pinned(mutant *m) {
    mm_segment *s = any_segment(m);
    if (s) s->pinned = !s->pinned;
    return s != NULL;
}

static bool toggle_dynamic(mutant *m) {
    mm_segment *s = any_segment(m);
    if (s) s->dynamic = !s->dynamic;
    return s != NULL;
}

static bool other_bytes(mutant *m) {
    mm_segment *s = any_segment(m);
    if (!s) return false;
    s->bytes += below(m, 9) - 4;
    return true;
}

static bool grow_segment(mutant *m) {
    mm_segment *s = find_segment(m, is_raw);
    if (s) s->bytes += below(m, 4000);
    return s != NULL;
}

static bool small_code(mutant *m) {
    mm_segment *s = find_segment(m, is_coded);
    if (s) s->bytes -= 1 + below(m, (int)s->bytes);
    return s != NULL;
}

static bool low_workspace(mutant *m) {
    mm_node *n = find_node(m, has_work);
    if (!n) return false;
    mm_segment *s = &m->plan->segments[n->work];
    s->bytes -= 1 + below(m, (int)s->bytes);
    return true;
}

static bool smaller_heap(mutant *m) {
    if (m->plan->heap_bytes == 0) return false;
    m->plan->heap_bytes -= 1 + below(m, 1000);
    return true;
}

static bool move_heap(mutant *m) {
    if (m->plan->heap_bytes == 0) return false;
    m->plan->heap_offset += MM_ALIGN * (int64_t)(below(m, 9) - 4);
    return true;
}

static bool other_heap_parts(mutant *m) {
    if (m->plan->heap_bytes == 0) return false;
    m->plan->heap_code_bytes += MM_ALIGN * (int64_t)(below(m, 5) - 2) + (below(m, 4) == 0);
    return true;
}

/* ---------------------------------------------------------------- who uses what */

static bool bind_sibling(mutant *m) {
    int32_t *binding = find_binding(m);
    int sibling = binding ? find_sibling(m, *binding) : -1;
    if (sibling >= 0) *binding = sibling;
    return sibling >= 0;
}

static bool bind_any(mutant *m) {
    if (m->plan->n_bindings == 0) return false;
    m->plan->bindings[below(m, m->plan->n_bindings)] = below(m, m->plan->n_segments + 1) - 1;
    return true;
}

/* Another segment of the tensor for a use that is written, or that shares its input's storage. */
static bool rebind_write(mutant *m, bool shared) {
    int32_t *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++) {
        const mm_node *n = &m->plan->nodes[i];
        const mm_step_info *step = n->kind == MM_NODE_STEP ? mm_graph_step(m->plan->graph, n->step) : NULL;
        for (int u = 0; step && u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            int32_t *binding = &m->plan->bindings[n->first_binding + u];
            if (step->uses[u].access == MM_WRITE && *binding >= 0 && (m->plan->alias[t] != t) == shared &&
                find_sibling(m, *binding) >= 0 && below(m, ++seen) == 0)
                found = binding;
        }
    }
    if (found) *found = find_sibling(m, *found);
    return found != NULL;
}

static bool write_elsewhere(mutant *m) { return rebind_write(m, false); }
static bool share_elsewhere(mutant *m) { return rebind_write(m, true); }

/* A write that no longer waits for an operation that reads what is there, nor does anything before it on its stream. */
static bool write_too_early(mutant *m) {
    int n, seen = 0, writer = -1, reader = -1;
    access *list = plan_accesses(m->plan, &n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            const mm_node *reads = &m->plan->nodes[list[j].node];
            bool waits = m->plan->nodes[list[i].node].wait[reads->stream] >= reads->seq;
            if (list[i].segment != list[j].segment || !list[i].write || list[j].write || !is_op(reads) || !waits)
                continue;
            if (below(m, ++seen) != 0) continue;
            writer = list[i].node;
            reader = list[j].node;
        }
    free(list);
    for (int i = reader + 1; i <= writer; i++) {
        int32_t *wait = &m->plan->nodes[i].wait[m->plan->nodes[reader].stream];
        bool same = m->plan->nodes[i].stream == m->plan->nodes[writer].stream;
        if (same && *wait >= m->plan->nodes[reader].seq) *wait = m->plan->nodes[reader].seq - 1;
    }
    return writer >= 0;
}

static bool other_bindings(mutant *m) {
    any_node(m)->first_binding += below(m, 5) - 2;
    return true;
}

static bool other_source(mutant *m) {
    mm_node *n = find_node(m, is_op);
    int sibling = n ? find_sibling(m, n->src) : -1;
    if (sibling >= 0) n->src = sibling;
    return sibling >= 0;
}

static bool other_target(mutant *m) {
    mm_node *n = find_node(m, is_op);
    int sibling = n ? find_sibling(m, n->dst) : -1;
    if (sibling >= 0) n->dst = sibling;
    return sibling >= 0;
}

static bool swap_operations(mutant *m) {
    mm_node *a = find_node(m, is_op), *b = find_node(m, is_op);
    if (!a || a == b || a->kind != b->kind) return false;
    mm_node old = *a;
    a->tensor = b->tensor, a->src = b->src, a->dst = b->dst, a->work = b->work, a->stage = b->stage;
    b->tensor = old.tensor, b->src = old.src, b->dst = old.dst, b->work = old.work, b->stage = old.stage;
    return true;
}

static bool other_codec(mutant *m) {
    mm_segment *s = find_segment(m, is_coded);
    if (s) s->codec = below(m, m->facts->n_codecs + 2) - 1;
    return s != NULL;
}

/* The other codec, and the code of the right size for it. */
static bool exchange_codec(mutant *m) {
    mm_segment *s = find_segment(m, is_coded);
    if (!s) return false;
    s->codec = below(m, m->facts->n_codecs);
    int64_t bytes = mm_facts_code(m->facts, s->codec, s->tensor)->code_bytes;
    if (bytes > 0) s->bytes = bytes;
    return true;
}

static bool other_content(mutant *m) {
    mm_segment *s = any_segment(m);
    if (s) s->content = (mm_content)below(m, 4);
    return s != NULL;
}

static bool other_tensor(mutant *m) {
    mm_segment *s = any_segment(m);
    if (s) s->tensor = below(m, mm_graph_tensors(m->plan->graph) + 2) - 1;
    return s != NULL;
}

static bool wrong_alias(mutant *m) {
    int n = mm_graph_tensors(m->plan->graph);
    m->plan->alias[below(m, n)] = below(m, n);
    return true;
}

/* An alias that the graph allows, but that this plan was not made for. */
static bool unplanned_alias(mutant *m) {
    int s = below(m, mm_graph_steps(m->plan->graph));
    const mm_step_info *step = mm_graph_step(m->plan->graph, s);
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].alias) {
            m->plan->alias[step->pairs[p].output] = m->plan->alias[step->pairs[p].input];
            return true;
        }
    return false;
}

static bool lose_workspace(mutant *m) {
    mm_node *n = find_node(m, has_work);
    if (n) n->work = -1;
    return n != NULL;
}

static bool share_workspace(mutant *m) {
    mm_node *a = find_node(m, has_work), *b = find_node(m, has_work);
    if (a) a->work = b->work;
    return a != b;
}

static bool other_stage(mutant *m) {
    mm_node *n = find_node(m, is_encode);
    if (n) n->stage = below(m, m->plan->n_segments + 1) - 1;
    return n != NULL;
}

static bool other_variant(mutant *m) {
    any_node(m)->variant = below(m, 5) - 1;
    return true;
}

/* ---------------------------------------------------------------- limits and sums */

static bool shrink_device(mutant *m) {
    m->limits.device_bytes = m->plan->peak_bytes - 1 - below(m, 1000);
    return true;
}

static bool shrink_pinned(mutant *m) {
    m->limits.pinned_bytes = m->plan->pinned_bytes - 1;
    return true;
}

static bool raise_base(mutant *m) {
    m->limits.base_bytes += MM_ALIGN;
    return true;
}

/* The budget and a wait: the plan's fault must win. */
static bool shrink_and_drop(mutant *m) { return shrink_device(m) && drop_wait(m); }

static bool wrong_sum(mutant *m) {
    int64_t *sums[] = {&m->plan->extent_bytes, &m->plan->peak_bytes, &m->plan->pinned_bytes, &m->plan->external_bytes};
    *sums[below(m, 4)] += below(m, 2) ? 1 : -1;
    m->keep_sums = true;
    return true;
}

static bool wrong_life(mutant *m) {
    mm_segment *s = any_segment(m);
    if (!s) return false;
    int32_t *ends[] = {&s->first_node, &s->last_node, &s->live_last};
    *ends[below(m, 3)] += below(m, 5) - 2;
    m->keep_sums = true;
    return true;
}

/* With live ranges that go on to the end, and some that do not. */
static bool keep_all(mutant *m) {
    m->plan->keeps_all = true;
    if (!plan_walkable(m->plan) || mm_plan_finish(m->plan) != MM_OK) return false;
    return below(m, 2) ? wrong_life(m) : true;
}

/* Any 32 bits anywhere: nothing may be trusted. */
static bool garbage(mutant *m) {
    int32_t value = (int32_t)random_next(&m->random);
    if (below(m, 2)) value = below(m, 40) - 5;
    mm_node *n = any_node(m);
    mm_segment *s = any_segment(m);
    if (!s) return false;
    int32_t *fields[] = {&n->seq,
                         &n->wait[below(m, MM_STREAM_COUNT)],
                         &n->step,
                         &n->variant,
                         &n->first_binding,
                         &n->tensor,
                         &n->src,
                         &n->dst,
                         &n->work,
                         &n->stage,
                         &s->tensor,
                         &s->codec,
                         &m->plan->alias[below(m, mm_graph_tensors(m->plan->graph))]};
    int which = below(m, (int)(sizeof fields / sizeof *fields) + 3);
    int64_t wide = (int64_t)random_next(&m->random);
    if (which < (int)(sizeof fields / sizeof *fields))
        *fields[which] = value;
    else if (which % 3 == 0)
        s->offset = wide / MM_ALIGN * MM_ALIGN;
    else if (which % 3 == 1)
        s->bytes = wide;
    else
        *(below(m, 2) ? &m->plan->heap_bytes : &m->plan->heap_code_bytes) = wide;
    return true;
}

const mutation mutations[] = {
    {"drop_wait", drop_wait},
    {"weaken_wait", weaken_wait},
    {"strengthen_wait", strengthen_wait},
    {"add_wait", add_wait},
    {"swap_neighbours", swap_neighbours},
    {"move_operation", move_operation},
    {"drop_node", drop_node},
    {"duplicate_node", duplicate_node},
    {"other_stream", other_stream},
    {"move_too_early", move_too_early},
    {"turn_move", turn_move},
    {"other_end_of_move", other_end_of_move},
    {"unlike_ends_of_move", unlike_ends_of_move},
    {"other_codec_of_move", other_codec_of_move},
    {"work_for_move", work_for_move},
    {"encode_pinned", encode_pinned},
    {"bind_pinned", bind_pinned},
    {"other_step", other_step},
    {"other_seq", other_seq},
    {"shift_offset", shift_offset},
    {"shift_pinned", shift_pinned},
    {"pinned_over_another", pinned_over_another},
    {"misalign_offset", misalign_offset},
    {"move_over_another", move_over_another},
    {"swap_offsets", swap_offsets},
    {"toggle_pinned", toggle_pinned},
    {"toggle_dynamic", toggle_dynamic},
    {"other_bytes", other_bytes},
    {"grow_segment", grow_segment},
    {"small_code", small_code},
    {"low_workspace", low_workspace},
    {"smaller_heap", smaller_heap},
    {"move_heap", move_heap},
    {"other_heap_parts", other_heap_parts},
    {"bind_sibling", bind_sibling},
    {"bind_any", bind_any},
    {"write_elsewhere", write_elsewhere},
    {"share_elsewhere", share_elsewhere},
    {"write_too_early", write_too_early},
    {"other_bindings", other_bindings},
    {"other_source", other_source},
    {"other_target", other_target},
    {"swap_operations", swap_operations},
    {"other_codec", other_codec},
    {"exchange_codec", exchange_codec},
    {"other_content", other_content},
    {"other_tensor", other_tensor},
    {"wrong_alias", wrong_alias},
    {"unplanned_alias", unplanned_alias},
    {"lose_workspace", lose_workspace},
    {"share_workspace", share_workspace},
    {"other_stage", other_stage},
    {"other_variant", other_variant},
    {"shrink_device", shrink_device},
    {"shrink_pinned", shrink_pinned},
    {"raise_base", raise_base},
    {"shrink_and_drop", shrink_and_drop},
    {"wrong_sum", wrong_sum},
    {"wrong_life", wrong_life},
    {"keep_all", keep_all},
    {"garbage", garbage},
    {NULL, NULL},
};
