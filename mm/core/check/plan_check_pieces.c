/* SPDX-License-Identifier: MIT */
/* Pass 3, pieces: the program is well-formed, and the pieces of each node do its work once. */
#include "mm/core/check/plan_check.h"
#include "mm/core/status.h"

static mm_status check_arrays(const mm_check *c) {
    const mm_program *p = c->program;
    if (p->plan != c->plan) return mm_check_refuse(c, MM_RULE_PIECES, -1, -1, "its program is of another plan");
    if (p->n < 0 || !p->pieces || !p->first || !p->last || !p->at[0])
        return mm_check_refuse(c, MM_RULE_PIECES, -1, -1, "its program lacks an array");
    return MM_OK;
}

/* issued: per stream, number of pieces before this one. */
static mm_status check_place(const mm_check *c, int index, const int32_t *issued) {
    const mm_program *p = c->program;
    const mm_piece *piece = &p->pieces[index];
    if (piece->node < 0 || piece->node >= c->plan->n_nodes || piece->stream != c->plan->nodes[piece->node].stream)
        return mm_check_refuse(c, MM_RULE_PIECES, -1, -1, "piece %d has no node, or is on another stream than its node",
                               index);
    if (piece->seq != issued[piece->stream] || piece->seq >= p->count[piece->stream] ||
        p->at[piece->stream][piece->seq] != index)
        return mm_check_refuse(c, MM_RULE_PIECES, piece->node, -1,
                               "piece %d has number %d on its stream where %d is due", index, piece->seq,
                               issued[piece->stream]);
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (piece->wait[s] < -1 || piece->wait[s] >= issued[s] || (s == (int)piece->stream && piece->wait[s] != -1))
            return mm_check_refuse(c, MM_RULE_PIECES, piece->node, -1,
                                   "piece %d waits for number %d of the %s stream, which is not issued before it",
                                   index, piece->wait[s], mm_stream_id_name(s));
    return MM_OK;
}

/* Whether a node may have several pieces: it encodes, decodes or copies a code without a body over the link, or copies
 * an all-reduced tensor; it has no stage; and none of its segments is placed at run time, as these are
 * allocated and freed whole. */
static bool may_be_cut(const mm_check *c, const mm_node *n) {
    const int32_t segments[] = {n->src, n->dst, n->work};
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    bool cut = n->stage < 0 && cost != MM_COST_STEP && cost != MM_COST_DISK_OUT && cost != MM_COST_DISK_IN;
    for (int i = 0; i < 3; i++) cut &= segments[i] < 0 || !c->plan->segments[segments[i]].dynamic;
    const mm_segment *stored = cut ? &c->plan->segments[mm_program_stored(n)] : NULL;
    return cut && (mm_node_allreduces(c->plan, n) || (stored->content == MM_CONTENT_CODED && stored->pool < 0));
}

/* Where the rows from `row` on begin in the stored form of a node that is cut; -1: they cannot begin a piece. */
static int64_t stored_at(const mm_check *c, const mm_node *n, int64_t row) {
    const mm_segment *stored = &c->plan->segments[mm_program_stored(n)];
    const mm_tensor_info *tensor = mm_graph_tensor(c->graph, n->tensor);
    if (stored->content != MM_CONTENT_CODED) return tensor->bytes / tensor->dims[0] * row;
    const mm_code_facts *code = mm_facts_code(c->facts, stored->codec, n->tensor);
    return code->split_rows > 0 && row % code->split_rows == 0 ? row / code->split_rows * code->split_bytes : -1;
}

/* Checks that an operation's pieces cover its rows, the map's bytes and the stored bytes, in order and completely. */
static mm_status check_parts(const mm_check *c, int node) {
    const mm_program *p = c->program;
    const mm_node *n = &c->plan->nodes[node];
    const mm_tensor_info *tensor = mm_graph_tensor(c->graph, n->tensor);
    const int64_t all = tensor->dims[0], row_bytes = tensor->bytes / all;
    int64_t row = 0, stored = 0;
    for (int i = 0; i < mm_program_pieces(p, node); i++) {
        const mm_piece *piece = &p->pieces[mm_program_piece(p, node, i)];
        if (piece->first_row != row || piece->rows <= 0 || piece->rows > all - row ||
            piece->map_offset != row * row_bytes)
            return mm_check_refuse(c, MM_RULE_PARTS, node, n->tensor,
                                   "piece %d has %lld rows from row %lld on, where row %lld is due", i,
                                   (long long)piece->rows, (long long)piece->first_row, (long long)row);
        if (piece->stored_offset != stored || piece->stored_bytes <= 0 || piece->stored_offset % MM_ALIGN != 0 ||
            piece->map_offset % MM_ALIGN != 0)
            return mm_check_refuse(c, MM_RULE_PARTS, node, n->tensor,
                                   "piece %d stores %lld bytes at %lld, where %lld is due", i,
                                   (long long)piece->stored_bytes, (long long)piece->stored_offset, (long long)stored);
        if (mm_program_pieces(p, node) > 1 && stored_at(c, n, row) != stored)
            return mm_check_refuse(c, MM_RULE_PARTS, node, n->tensor,
                                   "piece %d begins at byte %lld of what is stored, where row %lld does not", i,
                                   (long long)stored, (long long)row);
        row += piece->rows;
        stored += piece->stored_bytes;
    }
    if (row != all || stored != c->plan->segments[mm_program_stored(n)].bytes)
        return mm_check_refuse(c, MM_RULE_PARTS, node, n->tensor,
                               "its pieces have %lld rows of %lld and %lld bytes of %lld", (long long)row,
                               (long long)all, (long long)stored,
                               (long long)c->plan->segments[mm_program_stored(n)].bytes);
    return MM_OK;
}

static mm_status check_node(const mm_check *c, int node, int32_t *due) {
    const mm_program *p = c->program;
    const mm_node *n = &c->plan->nodes[node];
    if (p->first[node] != due[n->stream] || p->last[node] < p->first[node] || p->last[node] >= p->count[n->stream])
        return mm_check_refuse(c, MM_RULE_PIECES, node, -1, "its pieces are not the next on its stream");
    if (p->last[node] > p->first[node] && !may_be_cut(c, n))
        return mm_check_refuse(c, MM_RULE_CUT, node, -1, "is cut into %d pieces, but cannot be",
                               mm_program_pieces(p, node));
    due[n->stream] = p->last[node] + 1;
    for (int i = 0; i < mm_program_pieces(p, node); i++)
        if (p->pieces[mm_program_piece(p, node, i)].node != node)
            return mm_check_refuse(c, MM_RULE_PIECES, node, -1, "piece %d on its stream is another node's",
                                   p->first[node] + i);
    return mm_node_runs_step(n) ? MM_OK : check_parts(c, node);
}

mm_status mm_check_pieces(const mm_check *c) {
    const mm_program *p = c->program;
    int32_t issued[MM_STREAM_COUNT] = {0}, due[MM_STREAM_COUNT] = {0};
    MM_TRY(check_arrays(c));
    for (int i = 0; i < p->n; i++) {
        MM_TRY(check_place(c, i, issued));
        issued[p->pieces[i].stream]++;
    }
    for (int i = 0; i < c->plan->n_nodes; i++) MM_TRY(check_node(c, i, due));
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (issued[s] != p->count[s] || due[s] != p->count[s])
            return mm_check_refuse(c, MM_RULE_PIECES, -1, -1,
                                   "its program has a wrong number of pieces on the %s stream", mm_stream_id_name(s));
    return MM_OK;
}
