/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/program.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

typedef struct lowering {
    const mm_plan *plan;
    const mm_graph_facts *facts;
    mm_program *out;
    int32_t *node_at[MM_STREAM_COUNT]; /* per stream and seq: the node; complete before pieces are made */
    int64_t *step_rows;                /* per node: rows of each of its pieces, the last may have fewer; 0: not cut */
    int32_t *source;                   /* per node: the node whose result it works on piece by piece; -1: none */
    int32_t *copies;                   /* seq of the OUT pieces whose encodes are throttled (mm_node.throttle), in issue
                                          order */
    int n_copies;
} lowering;

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for a program"); }

/* ---------------------------------------------------------------- which nodes are cut, and where */

static int64_t rows_of(const lowering *d, int node) {
    mm_tensor tensor = d->plan->nodes[node].tensor;
    return tensor < 0 ? 0 : mm_graph_tensor(d->plan->graph, tensor)->dims[0];
}

/* Number of rows in a piece of a code; 0: the code is not cut. */
static int64_t rows_of_piece(const lowering *d, const mm_segment *code) {
    if (code->content != MM_CONTENT_CODED || code->pool >= 0 || !d->facts->codecs[code->codec].fixed_size) return 0;
    const mm_code_facts *facts = mm_facts_code(d->facts, code->codec, code->tensor);
    int64_t split = facts->split_rows;
    const mm_tensor_info *tensor = mm_graph_tensor(d->plan->graph, code->tensor);
    if (split <= 0 || facts->split_bytes <= 0) return 0;
    int64_t all = tensor->dims[0], row_bytes = tensor->bytes / all;
    int64_t rows = (d->facts->piece_bytes + row_bytes - 1) / row_bytes;
    int64_t fewest = (all + MM_PIECES_MOST - 1) / MM_PIECES_MOST;
    if (rows < fewest) rows = fewest;
    rows = (rows + split - 1) / split * split;
    return rows < all ? rows : 0;
}

/* Number of rows in a piece of an all-reduced tensor; 0: it is not cut. The tensor may have more pieces than
 * MM_PIECES_MOST. Pieces are aligned. */
static int64_t rows_of_shared(const lowering *d, const mm_tensor_info *tensor) {
    const int64_t all = tensor->dims[0], row_bytes = tensor->bytes / all, bytes = d->facts->piece_bytes;
    int64_t aligned = 1;
    while (aligned * row_bytes % MM_ALIGN != 0) aligned *= 2;
    const int64_t rows = ((bytes + row_bytes - 1) / row_bytes + aligned - 1) / aligned * aligned;
    return rows < all ? rows : 0;
}

static bool is_dynamic(const mm_plan *plan, const mm_node *n) {
    const int32_t segments[] = {n->src, n->dst, n->work};
    for (int i = 0; i < 3; i++)
        if (segments[i] >= 0 && plan->segments[segments[i]].dynamic) return true;
    return false;
}

/* The node whose result this one works on piece by piece; -1: none. Nodes with segments placed at run time are not cut,
 * because these are allocated and freed by node; nor are encodes with a stage, which is copied as a whole. */
static int find_source(const lowering *d, const mm_node *n) {
    const bool shares = mm_node_allreduces(d->plan, n);
    const mm_node_kind first = shares ? MM_NODE_OUT : mm_node_table[n->kind].carries_on;
    const mm_stream_id stream = mm_node_stream(first);
    if (first == n->kind || n->wait[stream] < 0) return -1;
    int source = d->node_at[stream][n->wait[stream]];
    const mm_node *s = &d->plan->nodes[source];
    if (s->kind != first || s->dst != n->src || s->stage >= 0 || is_dynamic(d->plan, s) || is_dynamic(d->plan, n))
        return -1;
    return source;
}

static void divide(lowering *d) {
    for (int i = 0; i < d->plan->n_nodes; i++) {
        const mm_node *n = &d->plan->nodes[i];
        d->source[i] = find_source(d, n);
        int64_t rows = d->source[i] < 0                 ? 0
                       : mm_node_allreduces(d->plan, n) ? rows_of_shared(d, mm_graph_tensor(d->plan->graph, n->tensor))
                                                        : rows_of_piece(d, &d->plan->segments[n->src]);
        if (rows == 0)
            d->source[i] = -1;
        else
            d->step_rows[i] = d->step_rows[d->source[i]] = rows;
    }
}

static int pieces_of(const lowering *d, int node) {
    int64_t rows = d->step_rows[node];
    return rows == 0 ? 1 : (int)((rows_of(d, node) + rows - 1) / rows);
}

/* ---------------------------------------------------------------- numbering */

static mm_status index_nodes(lowering *d) {
    const mm_plan *plan = d->plan;
    for (int i = 0; i < plan->n_nodes; i++) d->node_at[plan->nodes[i].stream][plan->nodes[i].seq] = i;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (plan->nodes[i].wait[s] >= plan->stream_nodes[s])
                return mm_fail(MM_ERR_PLAN, "plan of %s: node %d waits for number %d of the %s stream, which has %d",
                               mm_graph_name(plan->graph), i, plan->nodes[i].wait[s], mm_stream_id_name(s),
                               plan->stream_nodes[s]);
    return MM_OK;
}

static mm_status number(lowering *d) {
    mm_program *out = d->out;
    int total = 0;
    for (int i = 0; i < d->plan->n_nodes; i++) {
        int32_t *count = &out->count[d->plan->nodes[i].stream];
        out->first[i] = *count;
        *count += pieces_of(d, i);
        out->last[i] = *count - 1;
    }
    for (int s = 0; s < MM_STREAM_COUNT; s++) total += out->count[s];
    out->pieces = malloc(((size_t)total + 1) * sizeof *out->pieces);
    out->at[0] = malloc(((size_t)total + 1) * sizeof **out->at);
    d->copies = malloc(((size_t)total + 1) * sizeof *d->copies);
    if (!out->pieces || !out->at[0] || !d->copies) return no_memory();
    for (int s = 1; s < MM_STREAM_COUNT; s++) out->at[s] = out->at[s - 1] + out->count[s - 1];
    return MM_OK;
}

/* ---------------------------------------------------------------- pieces in issue order */

/* Sets the rows and bytes of an operation's piece `index`. */
static void set_part(const lowering *d, const mm_node *n, int64_t step_rows, mm_piece *piece, int index) {
    if (n->tensor < 0) return;
    const mm_tensor_info *tensor = mm_graph_tensor(d->plan->graph, n->tensor);
    const mm_segment *stored = &d->plan->segments[mm_program_stored(n)];
    const int64_t all = tensor->dims[0];
    piece->rows = all;
    piece->stored_bytes = stored->bytes;
    if (step_rows == 0) return;
    const mm_code_facts elements = {.split_rows = 1, .split_bytes = tensor->bytes / all};
    const mm_code_facts *form =
        mm_node_allreduces(d->plan, n) ? &elements : mm_facts_code(d->facts, stored->codec, n->tensor);
    piece->first_row = index * step_rows;
    piece->rows = piece->first_row + step_rows < all ? step_rows : all - piece->first_row;
    piece->map_offset = tensor->bytes / all * piece->first_row;
    piece->stored_offset = piece->first_row / form->split_rows * form->split_bytes;
    if (piece->first_row + piece->rows < all)
        piece->stored_bytes = piece->rows / form->split_rows * form->split_bytes;
    else
        piece->stored_bytes -= piece->stored_offset;
}

static mm_piece *emit(lowering *d, int node, int index) {
    const mm_node *n = &d->plan->nodes[node];
    mm_piece *piece = &d->out->pieces[d->out->n];
    *piece = (mm_piece){.node = node, .stream = n->stream, .seq = d->out->first[node] + index};
    if (!mm_node_runs_step(n)) set_part(d, n, d->step_rows[node], piece, index);
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        piece->wait[s] = index > 0 || n->wait[s] < 0 ? -1 : d->out->last[d->node_at[s][n->wait[s]]];
    int source = d->source[node];
    if (source >= 0) piece->wait[d->plan->nodes[source].stream] = d->out->first[source] + index;
    d->out->at[n->stream][piece->seq] = d->out->n++;
    return piece;
}

/* Interleaves the pieces of a throttled encode and of its OUT, so that a piece can wait for the OUT of an earlier
 * one. */
static void emit_throttled(lowering *d, int encode) {
    for (int i = 0; i < pieces_of(d, encode); i++) {
        mm_piece *piece = emit(d, encode, i);
        int ahead = d->plan->nodes[encode].throttle;
        int32_t *wait = &piece->wait[MM_STREAM_OUT];
        if (d->n_copies >= ahead && d->copies[d->n_copies - ahead] > *wait) *wait = d->copies[d->n_copies - ahead];
        d->copies[d->n_copies++] = emit(d, encode + 1, i)->seq;
    }
}

/* Whether the node is a throttled encode. Its OUT follows right after it, so the OUT waits for no node that is issued
 * between the two. */
static bool is_throttled(const lowering *d, int node) {
    const mm_node *n = &d->plan->nodes[node];
    if (n->throttle <= 0 || node + 1 == d->plan->n_nodes) return false;
    const mm_node *out = n + 1;
    return out->kind == MM_NODE_OUT && out->src == n->dst && pieces_of(d, node) == pieces_of(d, node + 1);
}

static void emit_all(lowering *d) {
    for (int i = 0; i < d->plan->n_nodes; i++) {
        if (is_throttled(d, i)) {
            emit_throttled(d, i++);
            continue;
        }
        for (int k = 0; k < pieces_of(d, i); k++) emit(d, i, k);
    }
}

/* ---------------------------------------------------------------- life */

static mm_status make(lowering *d) {
    size_t n = (size_t)d->plan->n_nodes + 1;
    d->node_at[0] = malloc(n * sizeof **d->node_at);
    d->step_rows = calloc(n, sizeof *d->step_rows);
    d->source = malloc(n * sizeof *d->source);
    d->out->first = malloc(n * sizeof *d->out->first);
    d->out->last = malloc(n * sizeof *d->out->last);
    if (!d->node_at[0] || !d->step_rows || !d->source || !d->out->first || !d->out->last) return no_memory();
    for (int s = 1; s < MM_STREAM_COUNT; s++) d->node_at[s] = d->node_at[s - 1] + d->plan->stream_nodes[s - 1];
    MM_TRY(index_nodes(d));
    divide(d);
    MM_TRY(number(d));
    emit_all(d);
    return MM_OK;
}

mm_status mm_program_init(const mm_plan *plan, const mm_graph_facts *facts, mm_program *program_out) {
    *program_out = (mm_program){.plan = plan};
    lowering d = {.plan = plan, .facts = facts, .out = program_out};
    mm_status status = make(&d);
    free(d.node_at[0]);
    free(d.step_rows);
    free(d.source);
    free(d.copies);
    if (status != MM_OK) mm_program_fini(program_out);
    return status;
}

void mm_program_fini(mm_program *p) {
    free(p->pieces);
    free(p->first);
    free(p->last);
    free(p->at[0]);
    *p = (mm_program){0};
}

/* ---------------------------------------------------------------- order */

void mm_program_clocks(const mm_program *p, int32_t (*clocks_out)[MM_STREAM_COUNT]) {
    for (int i = 0; i < p->n; i++) {
        const mm_piece *piece = &p->pieces[i];
        int32_t *mine = clocks_out[i];
        for (int s = 0; s < MM_STREAM_COUNT; s++) mine[s] = -1;
        for (int s = 0; s < MM_STREAM_COUNT; s++) {
            const int32_t awaited = s == (int)piece->stream ? piece->seq - 1 : piece->wait[s];
            if (awaited < 0) continue;
            const int32_t *other = clocks_out[p->at[s][awaited]];
            for (int t = 0; t < MM_STREAM_COUNT; t++)
                if (other[t] > mine[t]) mine[t] = other[t];
        }
        mine[piece->stream] = piece->seq;
    }
}

/* ---------------------------------------------------------------- times of an execution */

/* The piece that ended last of those that `piece` had to wait for: the one before on its stream, and its waits. NULL:
 * none with a known end. */
static const mm_piece *last_awaited(const mm_program *p, const int64_t *ended_ns, const mm_piece *piece,
                                    int64_t *ended_ns_out) {
    const mm_piece *last = NULL;
    *ended_ns_out = 0;
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int32_t seq = s == (int)piece->stream ? piece->seq - 1 : piece->wait[s];
        int32_t awaited = seq < 0 ? -1 : p->at[s][seq];
        if (awaited < 0 || ended_ns[awaited] <= *ended_ns_out) continue;
        *ended_ns_out = ended_ns[awaited];
        last = &p->pieces[awaited];
    }
    return last;
}

int64_t mm_program_started(const mm_program *program, const int64_t *ended_ns, const mm_piece *piece) {
    int64_t start;
    last_awaited(program, ended_ns, piece, &start);
    return start;
}

/* Adds how long one step waited for each side stream. */
static void add_waits_before(const mm_program *p, const int64_t *ended_ns, const mm_piece *step,
                             int64_t waits[MM_STREAM_COUNT]) {
    int64_t from = ended_ns[p->at[MM_STREAM_COMPUTE][step->seq - 1]], end, start;
    const mm_piece *awaited = last_awaited(p, ended_ns, step, &end);
    for (; awaited && awaited->stream != MM_STREAM_COMPUTE && end > from; end = start) {
        const mm_stream_id stream = awaited->stream;
        awaited = last_awaited(p, ended_ns, awaited, &start);
        if (start < from) start = from;
        waits[stream] += end - start;
    }
}

void mm_program_node_times(const mm_program *p, const mm_period *periods, int64_t *node_ns) {
    for (int i = 0; i < p->plan->n_nodes; i++) node_ns[i] = 0;
    for (int i = 0; i < p->n; i++) node_ns[p->pieces[i].node] += periods[i].end_ns - periods[i].start_ns;
}

void mm_program_waits(const mm_program *p, const int64_t *ended_ns, int64_t waits_out[MM_STREAM_COUNT]) {
    memset(waits_out, 0, MM_STREAM_COUNT * sizeof *waits_out);
    for (int32_t i = 1; i < p->count[MM_STREAM_COMPUTE]; i++) {
        const mm_piece *step = &p->pieces[p->at[MM_STREAM_COMPUTE][i]];
        if (mm_piece_waits(step)) add_waits_before(p, ended_ns, step, waits_out);
    }
}

int64_t mm_program_codec_wait(const mm_program *p, const int64_t *ended_ns) {
    int64_t waits[MM_STREAM_COUNT];
    mm_program_waits(p, ended_ns, waits);
    return waits[MM_STREAM_ENCODE] + waits[MM_STREAM_DECODE];
}
