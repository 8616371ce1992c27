/* SPDX-License-Identifier: MIT */
/* Lines of a plan that say what it is: segments, nodes, pieces. Here is checked what functions that walk plans rely on;
 * whether the plan is right, mm_program_prove says. */
#include "mm/core/plan/plan_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"

typedef mm_plan_reader reader;

mm_status mm_plan_read_plan(reader *r, json_t *line) {
    static const char *const keys[] = {"is", NULL};
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_count_fields, mm_plan_plan_fields, keys));
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_count_fields, &r->counts));
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_plan_fields, &r->stated));
    if (r->counts.segments < mm_graph_persistents(r->file.graph))
        return mm_plan_bad_key(r, "segments", "is less than the graph has persistent tensors");
    MM_TRY(mm_plan_create(r->file.graph, &r->file.limits, &r->file.plan));
    r->file.plan->n_segments = 0; /* the file has the homes, too */
    for (const mm_plan_field *f = mm_plan_plan_fields; f->key; f++)
        mm_plan_field_set(f, r->file.plan, mm_plan_field_get(f, &r->stated));
    return MM_OK;
}

mm_status mm_plan_read_alias(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "tensor", "shares", NULL};
    mm_tensor tensor, root;
    MM_TRY(mm_plan_check_keys(r, line, NULL, NULL, keys));
    MM_TRY(mm_graph_named_tensor(&r->r, line, "tensor", &tensor));
    MM_TRY(mm_graph_named_tensor(&r->r, line, "shares", &root));
    if (root == tensor || r->file.plan->alias[tensor] != tensor)
        return mm_plan_bad_key(r, "tensor", "shares itself, or has a line before");
    r->file.plan->alias[tensor] = root;
    return MM_OK;
}

mm_status mm_plan_read_segment(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "index", "content", "category", "tensor", "codec", "place", NULL};
    mm_segment segment = {.tensor = -1, .codec = -1, .first_node = -1, .last_node = -1, .live_last = -1};
    int content, category, where, codec;
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_segment_fields, NULL, keys));
    MM_TRY(mm_plan_check_index(r, line, "index", r->lines[MM_LINE_SEGMENT]));
    MM_TRY(mm_graph_word(&r->r, line, "content", &mm_words_content, &content));
    MM_TRY(mm_graph_word(&r->r, line, "category", &mm_words_category, &category));
    MM_TRY(mm_graph_word(&r->r, line, "place", &mm_words_where, &where));
    if (json_object_get(line, "tensor")) MM_TRY(mm_graph_named_tensor(&r->r, line, "tensor", &segment.tensor));
    if (json_object_get(line, "codec")) {
        MM_TRY(mm_plan_read_codec_of(r, line, &codec));
        segment.codec = codec;
    }
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_segment_fields, &segment));
    segment.content = (mm_content)content;
    segment.category = (mm_category)category;
    segment.dynamic = where == MM_WHERE_HEAP;
    segment.memory = segment.dynamic ? MM_MEM_DEVICE : (mm_memory)where;
    if (segment.bytes > MM_PLAN_MOST_BYTES - r->segment_bytes)
        return mm_plan_bad_key(r, "bytes", "makes the segments larger than 2^61 bytes together");
    r->segment_bytes += segment.bytes;
    if (r->lines[MM_LINE_SEGMENT] == 0) r->first_segment_line = r->line;
    if (mm_plan_segment(r->file.plan, segment.content, segment.category, segment.tensor, segment.bytes) < 0)
        return MM_ERR_NOMEM;
    r->file.plan->segments[r->file.plan->n_segments - 1] = segment;
    return MM_OK;
}

/* Pools and spills may follow the segments that name them. */
mm_status mm_plan_check_pools(reader *r) {
    const mm_graph_reader present = r->r;
    for (int i = 0; i < r->file.plan->n_segments; i++) {
        const mm_segment *s = &r->file.plan->segments[i];
        snprintf(r->r.where, sizeof r->r.where, "line %d", r->first_segment_line + i);
        MM_TRY(mm_plan_check_segment(r, "pool", s->pool));
        MM_TRY(mm_plan_check_segment(r, "spill", s->spill));
    }
    r->r = present;
    return MM_OK;
}

/* Reads an entry for each use of the step: a segment, or null. */
static mm_status read_bindings(const reader *r, const json_t *line, const char *key, int n_uses, int32_t *bindings) {
    const json_t *array = json_object_get(line, key);
    if (!json_is_array(array) || json_array_size(array) != (size_t)n_uses)
        return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: \"%s\" is not an array of %d entries, one for each use",
                       r->r.path, r->r.where, key, n_uses);
    for (int u = 0; u < n_uses; u++) {
        const json_t *value = json_array_get(array, (size_t)u);
        int64_t segment = -1;
        if (!json_is_null(value)) MM_TRY(mm_plan_read_number(r, key, value, 0, MM_PLAN_MOST_LINES, &segment));
        MM_TRY(mm_plan_check_segment(r, key, (int32_t)segment));
        bindings[u] = (int32_t)segment;
    }
    return MM_OK;
}

static mm_status read_given(const reader *r, const json_t *line, uint64_t *given) {
    json_t *array;
    MM_TRY(mm_graph_array(&r->r, line, "given", MM_GIVEN_USES, &array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        int64_t use = 0;
        MM_TRY(mm_plan_read_number(r, "given", json_array_get(array, i), 0, MM_GIVEN_USES - 1, &use));
        *given |= UINT64_C(1) << use;
    }
    return MM_OK;
}

/* What a node has that runs a step. */
static mm_status read_uses(const reader *r, const json_t *line, int index) {
    mm_plan *plan = r->file.plan;
    const int n_uses = mm_graph_step(r->file.graph, plan->nodes[index].step)->n_uses;
    MM_TRY(read_bindings(r, line, "segments", n_uses, &plan->bindings[plan->nodes[index].first_binding]));
    if (!json_object_get(line, "codes")) return MM_OK;
    if (n_uses == 0) return mm_plan_bad_key(r, "codes", "is of a step without uses");
    if (!mm_plan_write_code(plan, index, 0, -1)) return MM_ERR_NOMEM;
    return read_bindings(r, line, "codes", n_uses, &plan->bindings[plan->nodes[index].first_code]);
}

/* Takes over what a line says of a node that was added. */
static void set_node(mm_plan *plan, mm_node *node, const mm_node *stated) {
    const int32_t first_binding = node->first_binding, first_code = node->first_code;
    plan->stream_nodes[node->stream]--;
    plan->stream_nodes[stated->stream]++;
    *node = *stated;
    node->first_binding = first_binding;
    node->first_code = first_code;
}

mm_status mm_plan_read_node(reader *r, json_t *line) {
    static const char *const keys[] = {"is",       "index", "kind",  "stream", "tensor",
                                       "segments", "codes", "given", "waits",  NULL};
    mm_node node = {.tensor = -1};
    int kind, stream;
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_node_fields, NULL, keys));
    MM_TRY(mm_plan_check_index(r, line, "index", r->lines[MM_LINE_NODE]));
    MM_TRY(mm_graph_word(&r->r, line, "kind", &mm_words_node, &kind));
    MM_TRY(mm_graph_word(&r->r, line, "stream", &mm_words_stream, &stream));
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_node_fields, &node));
    MM_TRY(mm_plan_read_waits(r, line, node.wait));
    MM_TRY(read_given(r, line, &node.given));
    if (json_object_get(line, "tensor")) MM_TRY(mm_graph_named_tensor(&r->r, line, "tensor", &node.tensor));
    MM_TRY(mm_plan_check_segment(r, "source", node.src));
    MM_TRY(mm_plan_check_segment(r, "target", node.dst));
    MM_TRY(mm_plan_check_segment(r, "work", node.work));
    MM_TRY(mm_plan_check_segment(r, "stage", node.stage));
    node.kind = (mm_node_kind)kind;
    node.stream = (mm_stream_id)stream;
    const bool runs = mm_node_runs_step(&node);
    if (node.step >= mm_graph_steps(r->file.graph) || (runs && node.step < 0))
        return mm_plan_bad_key(r, "step", "is missing, or no step of the graph");
    if (!runs && (json_object_get(line, "segments") || json_object_get(line, "codes")))
        return mm_graph_bad(&r->r, "has segments for the uses of a step, but is none");
    if (!runs && node.tensor < 0) return mm_plan_bad_key(r, "tensor", "is missing");
    const int index =
        runs ? mm_plan_step(r->file.plan, node.step) : mm_plan_op(r->file.plan, node.kind, node.tensor, -1, -1);
    if (index < 0) return MM_ERR_NOMEM;
    set_node(r->file.plan, &r->file.plan->nodes[index], &node);
    return runs ? read_uses(r, line, index) : MM_OK;
}

mm_status mm_plan_read_piece(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "waits", NULL};
    mm_program *program = r->file.program;
    mm_piece piece = {0};
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_piece_fields, NULL, keys));
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_piece_fields, &piece));
    MM_TRY(mm_plan_read_waits(r, line, piece.wait));
    if (piece.node >= r->file.plan->n_nodes) return mm_plan_bad_key(r, "node", "is no node of the plan");
    piece.stream = r->file.plan->nodes[piece.node].stream;
    if (!program) {
        program = r->file.program = calloc(1, sizeof *program);
        if (!program) return mm_plan_no_memory(r);
        program->plan = r->file.plan;
    }
    if (!mm_plan_grow((void **)&program->pieces, program->n, sizeof *program->pieces)) return mm_plan_no_memory(r);
    program->pieces[program->n++] = piece;
    return MM_OK;
}

/* ---------------------------------------------------------------- the whole */

/* Numbers the pieces of each node and stream, as they come. */
static void index_pieces(mm_program *p) {
    for (int i = 0; i < p->n; i++) p->count[p->pieces[i].stream]++;
    for (int s = 1; s < MM_STREAM_COUNT; s++) p->at[s] = p->at[s - 1] + p->count[s - 1];
    memset(p->count, 0, sizeof p->count);
    for (int i = 0; i < p->plan->n_nodes; i++) {
        p->first[i] = 0;
        p->last[i] = -1;
    }
    for (int i = 0; i < p->n; i++) {
        const mm_piece *piece = &p->pieces[i];
        const int32_t number = p->count[piece->stream]++;
        p->at[piece->stream][number] = i;
        if (p->last[piece->node] < 0) p->first[piece->node] = number;
        p->last[piece->node] = number;
    }
}

mm_status mm_plan_read_finish(mm_plan_reader *r) {
    mm_program *program = r->file.program;
    mm_plan *plan = r->file.plan;
    if (!program) return mm_graph_bad(&r->r, "the plan has no piece");
    program->first = malloc(((size_t)plan->n_nodes + 1) * sizeof *program->first);
    program->last = malloc(((size_t)plan->n_nodes + 1) * sizeof *program->last);
    program->at[0] = malloc(((size_t)program->n + 1) * sizeof **program->at);
    if (!program->first || !program->last || !program->at[0]) return mm_plan_no_memory(r);
    index_pieces(program);
    MM_TRY(mm_plan_finish(plan));
    for (const mm_plan_field *f = mm_plan_plan_fields; f->key; f++)
        mm_plan_field_set(f, plan, mm_plan_field_get(f, &r->stated));
    return MM_OK;
}
