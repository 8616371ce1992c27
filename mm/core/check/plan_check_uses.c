/* SPDX-License-Identifier: MIT */
/* Pass 5, uses: what each segment holds when it is used. */

#include "mm/core/check/plan_check.h"
#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"

/* ---------------------------------------------------------------- accesses to a segment */

static bool is_persistent(const mm_check *c, int segment) {
    return segment >= 0 && segment < mm_graph_persistents(c->graph);
}

static void add_user(mm_check *c, int node, int segment) {
    const mm_node *n = &c->plan->nodes[node];
    mm_residence *r = &c->residences[segment];
    r->users[n->stream] = n->seq;
    if (r->first < 0) r->first = node;
    r->last = node;
}

/* Whether each piece of `node` starts after the pieces of `first` that have bytes in common with it have ended. Only
 * nodes that are cut into several pieces count: false if one of the two is not. */
static bool follows(const mm_check *c, int first, int node) {
    const mm_program *p = c->program;
    const mm_stream_id stream = c->plan->nodes[first].stream;
    if (mm_program_pieces(p, first) == 1 || mm_program_pieces(p, node) == 1) return false;
    for (int i = 0; i < mm_program_pieces(p, node); i++) {
        const int index = mm_program_piece(p, node, i);
        const mm_piece *later = &p->pieces[index];
        for (int j = 0; j < mm_program_pieces(p, first); j++) {
            const mm_piece *earlier = &p->pieces[mm_program_piece(p, first, j)];
            if (mm_pieces_overlap(earlier, later) && earlier->seq > c->clocks[index][stream]) return false;
        }
    }
    return true;
}

/* Whether a node reads what `writer` writes piece by piece. The parts of the two can be compared if the segment, or a
 * copy of it, is the stored form of both. */
static bool carries_on(const mm_check *c, int writer, int node, int segment) {
    const mm_node *w = &c->plan->nodes[writer], *n = &c->plan->nodes[node];
    const bool one_form =
        mm_node_table[w->kind].cost != MM_COST_DECODE && mm_node_table[n->kind].cost != MM_COST_ENCODE;
    return one_form && w->dst == segment && n->src == segment && follows(c, writer, node);
}

/* Whether a node overwrites what `reader` reads, piece by piece: the sum of an all-reduced tensor is copied back over
 * the tensor, part by part, while other parts still go out. */
static bool comes_back(const mm_check *c, int reader, int node, int segment) {
    const mm_node *r = &c->plan->nodes[reader], *n = &c->plan->nodes[node];
    return mm_node_allreduces(c->plan, r) && mm_node_allreduces(c->plan, n) && r->src == segment && n->dst == segment &&
           follows(c, reader, node);
}

/* Checks that the segment holds a value, and that its writer has ended before the node starts, or that the node works
 * on what the writer writes piece by piece. */
static mm_status check_written(const mm_check *c, int node, mm_tensor tensor, int segment) {
    const mm_residence *r = &c->residences[segment];
    if (r->writer < 0 && is_persistent(c, segment)) return MM_OK; /* written before this iteration */
    if (r->writer < 0)
        return mm_check_refuse(c, MM_RULE_WRITTEN, node, tensor,
                               "is read from segment %d before anything was written there", segment);
    const mm_node *writer = &c->plan->nodes[r->writer];
    if (mm_check_ended(c, writer->stream, writer->seq, node) || carries_on(c, r->writer, node, segment)) return MM_OK;
    char name[320];
    const mm_status refused =
        mm_check_refuse(c, MM_RULE_READ_WAITS, node, tensor, "is read without a wait for %s, which writes it",
                        mm_check_node_name(c, r->writer, name, sizeof name));
    return mm_check_against(c, r->writer, segment, -1, refused);
}

/* Checks that all earlier users of the segment have ended when the node, which writes it, starts; and that the
 * segment's value was used, if an operation wrote it. */
static mm_status check_writable(const mm_check *c, int node, mm_tensor tensor, int segment) {
    const mm_residence *r = &c->residences[segment];
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (r->users[s] < 0 || mm_check_ended(c, s, r->users[s], node)) continue;
        const int user = c->node_at[s][r->users[s]];
        if (comes_back(c, user, node, segment)) continue;
        char name[320];
        const mm_status refused =
            mm_check_refuse(c, MM_RULE_WRITE_WAITS, node, tensor, "is written without a wait for %s, which uses it",
                            mm_check_node_name(c, user, name, sizeof name));
        return mm_check_against(c, user, segment, -1, refused);
    }
    if (r->unread)
        return mm_check_refuse(c, MM_RULE_RESULT_USED, r->writer, tensor,
                               "its result is overwritten before anything has used it");
    return MM_OK;
}

static void set_content(mm_check *c, int node, int segment, int32_t value, bool exact) {
    mm_residence *r = &c->residences[segment];
    r->always_exact = exact && (r->writer < 0 || r->always_exact);
    r->writer = node;
    r->value = value;
    r->exact = exact;
    r->unread = !mm_node_runs_step(&c->plan->nodes[node]);
    add_user(c, node, segment);
}

/* The value that the segment holds is read. */
static void mark_read(mm_check *c, int segment) {
    mm_residence *r = &c->residences[segment];
    r->unread = false;
    if (r->writer >= 0) c->useful[r->writer] = true;
}

/* Checks that no other node uses the workspace, scratch or stage. */
static mm_status use_work(mm_check *c, int node, int segment) {
    if (segment < 0) return MM_OK;
    if (c->residences[segment].first >= 0) {
        char name[320];
        return mm_check_refuse(c, MM_RULE_ALONE, node, -1, "its workspace, segment %d, is used by %s, too", segment,
                               mm_check_node_name(c, c->residences[segment].first, name, sizeof name));
    }
    add_user(c, node, segment);
    return MM_OK;
}

/* ---------------------------------------------------------------- steps */

/* Checks that the segment holds the value numbered `value` of the tensor, in a form that serves the use. */
static mm_status check_serves(const mm_check *c, int node, const mm_use *use, int segment, int32_t value) {
    const mm_segment *s = &c->plan->segments[segment];
    const mm_residence *r = &c->residences[segment];
    MM_TRY(check_written(c, node, use->tensor, segment));
    if (r->value != value)
        return mm_check_refuse(c, MM_RULE_VALUE, node, use->tensor,
                               "segment %d holds another value than the one to be read", segment);
    if (s->content == MM_CONTENT_CODED && use->form == MM_FORM_SIGN && !c->facts->codecs[s->codec].gives_sign)
        return mm_check_refuse(c, MM_RULE_SIGNS, node, use->tensor, "a code of %s does not serve a reader of signs",
                               c->facts->codecs[s->codec].spec);
    if (use->form == MM_FORM_SIGN && !r->exact)
        return mm_check_refuse(c, MM_RULE_SIGNS, node, use->tensor,
                               "signs are read from what was decoded from a lossy code");
    return MM_OK;
}

/* Checks that output `u` of the step, which shares the storage of an input, is bound to that input's segment. */
static mm_status check_shared(const mm_check *c, int node, const mm_step_info *step, const int32_t *bindings, int u) {
    mm_tensor output = step->uses[u].tensor;
    if (c->plan->segments[bindings[u]].content != MM_CONTENT_RAW)
        return mm_check_refuse(c, MM_RULE_ELEMENTS, node, output, "shares the storage of a code");
    for (int i = 0; i < step->n_uses; i++)
        if (bindings[i] == bindings[u] && mm_check_may_share(c, step, step->uses[i].tensor, output)) return MM_OK;
    return mm_check_refuse(c, MM_RULE_SHARED_OUTPUT, node, output,
                           "is not bound to the segment of the tensor whose storage it shares");
}

/* Whether the use reads exactly what was first written: not if it decodes elements from a lossy code. */
static bool serves_exactly(const mm_check *c, const mm_use *use, int segment) {
    const mm_segment *s = &c->plan->segments[segment];
    if (mm_use_is_coded(use, s) && !c->facts->codecs[s->codec].lossless) return false;
    return c->residences[segment].exact;
}

/* Checks the step's reads, and its outputs that share an input's storage. Comes before its writes. */
static mm_status step_reads(mm_check *c, int node, const mm_step_info *step, const int32_t *bindings) {
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (bindings[u] < 0 || use->access == MM_WRITE) continue;
        MM_TRY(check_serves(c, node, use, bindings[u], c->current[use->tensor]));
        c->ran_exactly[c->plan->nodes[node].step] &= serves_exactly(c, use, bindings[u]);
        mark_read(c, bindings[u]);
        if (use->access == MM_READ) add_user(c, node, bindings[u]);
    }
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (bindings[u] < 0 || use->access != MM_WRITE || c->plan->alias[use->tensor] == use->tensor) continue;
        MM_TRY(check_shared(c, node, step, bindings, u));
        c->current[use->tensor] = c->residences[bindings[u]].value;
    }
    return MM_OK;
}

static mm_status step_writes(mm_check *c, int node, const mm_step_info *step, const int32_t *bindings) {
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        bool aliased = c->plan->alias[use->tensor] != use->tensor;
        if (bindings[u] < 0 || use->access == MM_READ || (use->access == MM_WRITE && aliased)) continue;
        if (c->plan->segments[bindings[u]].content != MM_CONTENT_RAW)
            return mm_check_refuse(c, MM_RULE_ELEMENTS, node, use->tensor, "is written into a code");
        MM_TRY(check_writable(c, node, use->tensor, bindings[u]));
        c->current[use->tensor] = c->values++;
        set_content(c, node, bindings[u], c->current[use->tensor], true);
    }
    return MM_OK;
}

/* Checks the codes that the step writes, of what it has read or written. */
static mm_status step_codes(mm_check *c, int node, const mm_step_info *step, const int32_t *bindings) {
    const mm_node *n = &c->plan->nodes[node];
    for (int u = 0; u < step->n_uses; u++) {
        const int32_t code = mm_node_code(c->plan, n, u);
        if (code < 0) continue;
        if (c->residences[code].first >= 0)
            return mm_check_refuse(c, MM_RULE_FRESH, node, step->uses[u].tensor,
                                   "its code's segment %d was used before", code);
        set_content(c, node, code, c->current[step->uses[u].tensor], c->residences[bindings[u]].exact);
        c->residences[code].unread = true;
    }
    return MM_OK;
}

/* Records the numbers of the values that the step read and wrote, for its recomputation. External tensors are in no
 * segment, but their values are numbered too. */
static void remember_values(mm_check *c, int node, const mm_step_info *step, bool written) {
    const int32_t *bindings = &c->plan->bindings[c->plan->nodes[node].first_binding];
    int32_t *seen = &c->seen[c->plan->nodes[node].first_binding];
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (written && bindings[u] < 0 && use->access != MM_READ) c->current[use->tensor] = c->values++;
        if (written == (use->access == MM_WRITE)) seen[u] = c->current[use->tensor];
    }
}

/* Checks that what touches a persistent tensor beside the compute stream comes after the first step. Iterations follow
 * each other on the compute stream, so what comes after the first step comes after the whole previous iteration. */
static mm_status check_after_begin(const mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    if (!mm_node_on_host(n) && !is_persistent(c, n->src) && !is_persistent(c, n->dst)) return MM_OK;
    if (c->clocks[mm_program_piece(c->program, node, 0)][MM_STREAM_COMPUTE] >= 0) return MM_OK;
    return mm_check_refuse(c, MM_RULE_HOME_ENTRY, node, n->tensor,
                           "touches a persistent tensor without a wait for any step: the iteration "
                           "before may still use it");
}

static mm_status walk_step(mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(c->graph, n->step);
    const int32_t *bindings = &c->plan->bindings[n->first_binding];
    c->ran[n->step] = node;
    c->ran_exactly[n->step] = true;
    if (mm_node_on_host(n)) MM_TRY(check_after_begin(c, node));
    remember_values(c, node, step, false);
    MM_TRY(step_reads(c, node, step, bindings));
    MM_TRY(step_writes(c, node, step, bindings));
    MM_TRY(step_codes(c, node, step, bindings));
    remember_values(c, node, step, true);
    return use_work(c, node, n->work);
}

/* Checks that a recomputation reads the values that the step read the first time. *exact: set to false if one of these
 * values is not exact, because the result is then not exact either. */
static mm_status recompute_reads(mm_check *c, int node, const mm_step_info *step, const int32_t *seen, bool *exact) {
    const mm_node *n = &c->plan->nodes[node];
    const int32_t *bindings = &c->plan->bindings[n->first_binding];
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (mm_node_access(n, use, u) != MM_READ) continue;
        if (use->access == MM_MODIFY) { /* a persistent tensor, which may have changed since */
            if (bindings[u] < 0) continue;
            MM_TRY(check_written(c, node, use->tensor, bindings[u]));
            mark_read(c, bindings[u]);
            add_user(c, node, bindings[u]);
            continue;
        }
        const bool fixed = bindings[u] < 0 || is_persistent(c, bindings[u]);
        if (fixed && c->current[use->tensor] != seen[u])
            return mm_check_refuse(c, MM_RULE_UNCHANGED, node, use->tensor, "has changed since the step ran");
        if (bindings[u] < 0) continue;
        MM_TRY(check_serves(c, node, use, bindings[u], seen[u]));
        *exact = *exact && serves_exactly(c, use, bindings[u]);
        mark_read(c, bindings[u]);
        add_user(c, node, bindings[u]);
    }
    return MM_OK;
}

static mm_status walk_recompute(mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(c->graph, n->step);
    const int32_t *bindings = &c->plan->bindings[n->first_binding];
    const mm_node *ran = &c->plan->nodes[c->ran[n->step]];
    const int32_t *seen = &c->seen[ran->first_binding];
    const mm_variant *variant = &c->facts->variants[c->facts->variant_first[n->step] + n->variant];
    bool exact = n->variant == ran->variant && variant->deterministic && c->ran_exactly[n->step];
    MM_TRY(recompute_reads(c, node, step, seen, &exact));
    for (int u = 0; u < step->n_uses; u++) {
        if (bindings[u] < 0 || step->uses[u].access != MM_WRITE || mm_node_is_given(n, u)) continue;
        if (c->plan->segments[bindings[u]].content != MM_CONTENT_RAW)
            return mm_check_refuse(c, MM_RULE_ELEMENTS, node, step->uses[u].tensor, "is written into a code");
        MM_TRY(check_writable(c, node, step->uses[u].tensor, bindings[u]));
        set_content(c, node, bindings[u], seen[u], exact);
    }
    return use_work(c, node, n->work);
}

/* ---------------------------------------------------------------- operations */

/* Adds a user to the pool of a code's body, and to the pool's spill. */
static void use_pool(mm_check *c, int node, int code) {
    const int32_t pool = c->plan->segments[code].pool;
    if (pool < 0) return;
    add_user(c, node, pool);
    if (c->plan->segments[pool].spill >= 0) add_user(c, node, c->plan->segments[pool].spill);
}

/* Checks the operation's read of its source. */
static mm_status read_source(mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    MM_TRY(check_after_begin(c, node));
    MM_TRY(check_written(c, node, n->tensor, n->src));
    mark_read(c, n->src);
    add_user(c, node, n->src);
    return MM_OK;
}

static mm_status walk_measure(mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_residence *src = &c->residences[n->src];
    MM_TRY(read_source(c, node));
    if (src->value != c->current[n->tensor])
        return mm_check_refuse(c, MM_RULE_MEASURED, node, n->tensor,
                               "segment %d holds another value than the present one", n->src);
    if (!src->exact)
        return mm_check_refuse(c, MM_RULE_MEASURED, node, n->tensor, "is measured as it was decoded from a lossy code");
    return MM_OK;
}

static mm_status walk_op(mm_check *c, int node) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_residence *src = &c->residences[n->src];
    MM_TRY(read_source(c, node));
    const bool lossless =
        mm_node_table[n->kind].cost != MM_COST_DECODE || c->facts->codecs[c->plan->segments[n->src].codec].lossless;
    if (is_persistent(c, n->dst))
        MM_TRY(check_writable(c, node, n->tensor, n->dst));
    else if (c->residences[n->dst].first >= 0)
        return mm_check_refuse(c, MM_RULE_FRESH, node, n->tensor, "its target, segment %d, was used before", n->dst);
    set_content(c, node, n->dst, src->value, src->exact && lossless);
    use_pool(c, node, mm_program_stored(n));
    MM_TRY(use_work(c, node, n->work));
    return use_work(c, node, n->stage);
}

/* ---------------------------------------------------------------- the whole plan */

static mm_status check_segments_after(const mm_check *c) {
    for (int i = 0; i < c->plan->n_segments; i++) {
        const mm_segment *s = &c->plan->segments[i];
        const mm_residence *r = &c->residences[i];
        if (r->first < 0) return mm_check_refuse_segment(c, MM_RULE_SEGMENT_USED, i, "no node uses it");
        if (is_persistent(c, i) && r->value != c->current[s->tensor])
            return mm_check_refuse(c, MM_RULE_HOME_END, r->writer, s->tensor,
                                   "at the end, its segment does not hold the value that was written last");
        if (r->unread && !is_persistent(c, i))
            return mm_check_refuse(c, MM_RULE_RESULT_USED, r->writer, s->tensor, "its result is not used by anything");
        bool kept = c->plan->keeps_all && s->live_last == c->plan->n_nodes - 1;
        if (s->first_node != r->first || s->last_node != r->last ||
            (s->live_last != s->last_node && s->live_last != s->last_node - 1 && !kept))
            return mm_check_refuse_segment(c, MM_RULE_STATED, i, "its first and last node are not what the plan says");
    }
    return MM_OK;
}

mm_status mm_check_uses(mm_check *c) {
    mm_residence unused = {.first = -1, .last = -1, .writer = -1, .value = -1};
    for (int s = 0; s < MM_STREAM_COUNT; s++) unused.users[s] = -1;
    for (int i = 0; i < c->plan->n_segments; i++) c->residences[i] = unused;
    for (int t = 0; t < mm_graph_tensors(c->graph); t++) c->current[t] = -2; /* in no segment */
    for (int i = 0; i < mm_graph_persistents(c->graph); i++) {
        c->residences[i].value = c->current[c->plan->segments[i].tensor] = c->values++;
        c->residences[i].exact = c->residences[i].always_exact = true;
    }
    for (int i = 0; i < c->plan->n_nodes; i++) switch (c->plan->nodes[i].kind) {
        case MM_NODE_STEP:
            MM_TRY(walk_step(c, i));
            break;
        case MM_NODE_RECOMPUTE:
            MM_TRY(walk_recompute(c, i));
            break;
        case MM_NODE_MEASURE:
            MM_TRY(walk_measure(c, i));
            break;
        default:
            MM_TRY(walk_op(c, i));
        }
    for (int i = 0; i < c->plan->n_nodes; i++)
        if (c->plan->nodes[i].kind == MM_NODE_RECOMPUTE && !c->useful[i])
            return mm_check_refuse(c, MM_RULE_RESULT_USED, i, -1, "its result is not used by anything");
    return check_segments_after(c);
}
