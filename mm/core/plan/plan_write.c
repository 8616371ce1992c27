/* SPDX-License-Identifier: MIT */
/* mm_plan_file_write. FORMAT.md describes the file. */
#include <jansson.h>
#include <stdlib.h>

#include "mm/core/atomic_file.h"
#include "mm/core/graph/graph_write.h"
#include "mm/core/json_text.h"
#include "mm/core/plan/plan_codes.h"
#include "mm/core/plan/plan_lines.h"
#include "mm/core/status.h"

static const char call[] = "mm_plan_save";

/* Writes one plan. After a failure nothing more is written. */
typedef struct writer {
    FILE *file;
    const mm_program *program;
    const mm_plan *plan;
    const mm_graph *graph;
    const mm_graph_facts *facts;
    const mm_limits *limits;      /* NULL: the plan's own */
    const mm_plan_field *outside; /* a key whose value a reader would refuse; NULL: none */
    mm_status status;
} writer;

/* ---------------------------------------------------------------- lines
 *
 * jansson's functions take over a value, and refuse NULL, which stands for a lack of memory. */

static json_t *begin(mm_plan_line line) { return json_pack("{s:s}", "is", mm_plan_line_name(line)); }

/* Prints the line, and releases it. */
static void end(writer *w, json_t *line, bool whole) {
    char *text = line && whole && w->status == MM_OK ? mm_json_print(line, 0) : NULL;
    json_decref(line);
    if (w->status != MM_OK) return;
    if (w->outside)
        w->status = mm_fail(MM_ERR_INVALID, "%s: the plan of %s cannot be saved: its \"%s\" is out of range", call,
                            mm_graph_name(w->graph), w->outside->key);
    else if (!text)
        w->status = mm_fail(MM_ERR_NOMEM, "out of memory for saving a plan");
    else
        fprintf(w->file, "%s\n", text);
    free(text);
}

static bool add(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value) == 0; }

static bool add_fields(writer *w, json_t *object, const mm_plan_field *fields, const void *of) {
    bool whole = object != NULL;
    for (const mm_plan_field *f = fields; f->key && whole; f++) {
        const int64_t value = mm_plan_field_get(f, of);
        if (!f->needed && value == f->otherwise) continue;
        if (value < f->least || value > f->most) w->outside = f;
        whole = add(object, f->key, f->value == MM_VALUE_BOOL ? json_boolean(value) : json_integer(value));
    }
    return whole;
}

static json_t *tensor_name(const writer *w, mm_tensor tensor) {
    return json_string(mm_graph_tensor(w->graph, tensor)->name);
}

/* {"out": 3}: per stream, the number that is waited for. */
static json_t *waits_json(const int32_t wait[MM_STREAM_COUNT]) {
    json_t *object = json_object();
    for (int s = 0; s < MM_STREAM_COUNT && object; s++)
        if (wait[s] >= 0 && !add(object, mm_stream_id_name(s), json_integer(wait[s]))) {
            json_decref(object);
            object = NULL;
        }
    return object;
}

/* Numbers; -1 is null. */
static json_t *indices_json(const int32_t *indices, int n) {
    json_t *array = json_array();
    for (int i = 0; i < n && array; i++)
        if (json_array_append_new(array, indices[i] < 0 ? json_null() : json_integer(indices[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

/* ---------------------------------------------------------------- what the plan was made from */

static void write_graph(writer *w) {
    json_t *line = begin(MM_LINE_GRAPH);
    bool whole = line && add(line, "format", json_string(MM_GRAPH_FORMAT));
    whole = whole && add(line, "version", json_integer(MM_GRAPH_FORMAT_VERSION));
    whole = whole && add(line, "graphs", json_pack("[o]", mm_graph_json(w->graph)));
    end(w, line, whole);
}

/* The place of the home of a persistent tensor. packed: where the homes before it end. */
static mm_place place_of(const writer *w, const mm_tensor_info *tensor, int64_t packed) {
    const mm_segment *home = &w->plan->segments[tensor->persistent];
    if (!w->limits) return (mm_place){.offset = home->offset, .memory = home->memory};
    return w->limits->places ? w->limits->places[tensor->persistent] : (mm_place){.offset = packed};
}

static void write_limits(writer *w) {
    const mm_limits own = {.device_bytes = w->plan->peak_bytes,
                           .pinned_bytes = w->plan->pinned_bytes,
                           .base_bytes = w->plan->base_bytes,
                           .pinned_base_bytes = w->plan->pinned_base_bytes,
                           .disk_bytes = w->plan->disk_bytes,
                           .disk_base_bytes = w->plan->disk_base_bytes};
    json_t *line = begin(MM_LINE_LIMITS);
    int64_t packed = 0;
    end(w, line, add_fields(w, line, mm_plan_limits_fields, w->limits ? w->limits : &own));
    for (int t = 0; t < mm_graph_tensors(w->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(w->graph, t);
        if (tensor->persistent < 0) continue;
        const mm_place place = place_of(w, tensor, packed);
        packed += mm_align(tensor->bytes);
        line = begin(MM_LINE_HOME);
        bool whole = line && add(line, "tensor", json_string(tensor->name));
        whole = whole && add(line, "place", json_string(mm_words_where.name((int)place.memory)));
        end(w, line, add_fields(w, line, mm_plan_home_fields, &place) && whole);
    }
}

static json_t *contention_json(const mm_contention *contention) {
    json_t *rows = json_array();
    bool whole = rows != NULL;
    for (int a = 0; a < MM_WORK_KINDS && whole; a++)
        whole = json_array_append_new(rows, indices_json(contention->permille[a], MM_WORK_KINDS)) == 0;
    if (whole) return rows;
    json_decref(rows);
    return NULL;
}

static void write_codec(writer *w, const mm_codec_facts *codec) {
    json_t *line = begin(MM_LINE_CODEC);
    bool whole = line && add(line, "spec", json_string(codec->spec));
    end(w, line, add_fields(w, line, mm_plan_codec_fields, codec) && whole);
}

static void write_code(writer *w, int codec, mm_tensor tensor) {
    json_t *line = begin(MM_LINE_CODE);
    bool whole = line && add(line, "codec", json_string(w->facts->codecs[codec].spec));
    whole = whole && add(line, "tensor", tensor_name(w, tensor));
    end(w, line, add_fields(w, line, mm_plan_code_fields, mm_facts_code(w->facts, codec, tensor)) && whole);
}

/* Writes each code that the plan has a segment for, once. */
static void write_codes(writer *w) {
    const size_t tensors = (size_t)w->facts->n_tensors;
    bool *used = calloc((size_t)w->facts->n_codecs * tensors + 1, sizeof *used);
    if (!used) w->status = mm_fail(MM_ERR_NOMEM, "out of memory for saving a plan");
    for (int i = 0; used && i < w->plan->n_segments; i++) {
        const mm_segment *s = &w->plan->segments[i];
        if (s->content == MM_CONTENT_CODED && s->codec >= 0 && s->tensor >= 0)
            used[(size_t)s->codec * tensors + (size_t)s->tensor] = true;
    }
    for (int c = 0; used && c < w->facts->n_codecs; c++)
        for (mm_tensor t = 0; t < w->facts->n_tensors; t++)
            if (used[(size_t)c * tensors + (size_t)t] && mm_facts_code(w->facts, c, t)->code_bytes >= 0)
                write_code(w, c, t);
    free(used);
}

static void write_variants(writer *w, int step) {
    json_t *line = begin(MM_LINE_VARIANTS), *array = json_array();
    bool whole = line && add(line, "step", json_integer(step));
    for (int v = w->facts->variant_first[step]; v < w->facts->variant_first[step + 1] && whole; v++) {
        json_t *variant = json_object();
        whole = add_fields(w, variant, mm_plan_variant_fields, &w->facts->variants[v]);
        whole = json_array_append_new(array, variant) == 0 && whole;
    }
    whole = add(line, "variants", array) && whole;
    end(w, line, whole);
}

static void write_facts(writer *w) {
    const mm_graph_facts *facts = w->facts;
    json_t *line = begin(MM_LINE_FACTS);
    bool whole = add_fields(w, line, mm_plan_facts_fields, facts);
    if (facts->sum_at != MM_SUM_AT_RANKS)
        whole = whole && add(line, "sum_at", json_string(mm_words_sum_at.name((int)facts->sum_at)));
    if (facts->contention.known) whole = whole && add(line, "contention", contention_json(&facts->contention));
    end(w, line, whole);
    for (int c = 0; c < facts->n_codecs; c++) write_codec(w, &facts->codecs[c]);
    write_codes(w);
    for (int s = 0; s < facts->n_steps; s++) write_variants(w, s);
}

/* ---------------------------------------------------------------- the plan */

static void write_plan(writer *w) {
    const mm_plan_counts counts = {w->plan->n_segments, w->plan->n_nodes, w->program->n};
    json_t *line = begin(MM_LINE_PLAN);
    bool whole = add_fields(w, line, mm_plan_count_fields, &counts);
    end(w, line, add_fields(w, line, mm_plan_plan_fields, w->plan) && whole);
    for (mm_tensor t = 0; t < mm_graph_tensors(w->graph); t++) {
        if (w->plan->alias[t] == t) continue;
        line = begin(MM_LINE_ALIAS);
        whole = line && add(line, "tensor", tensor_name(w, t));
        end(w, line, whole && add(line, "shares", tensor_name(w, w->plan->alias[t])));
    }
}

static void write_segment(writer *w, int index) {
    const mm_segment *s = &w->plan->segments[index];
    const mm_plan_where where = s->dynamic ? MM_WHERE_HEAP : (mm_plan_where)s->memory;
    json_t *line = begin(MM_LINE_SEGMENT);
    bool whole = line && add(line, "index", json_integer(index));
    whole = whole && add(line, "content", json_string(mm_content_name(s->content)));
    whole = whole && add(line, "category", json_string(mm_category_name(s->category)));
    if (s->tensor >= 0) whole = whole && add(line, "tensor", tensor_name(w, s->tensor));
    if (s->codec >= 0) whole = whole && add(line, "codec", json_string(w->facts->codecs[s->codec].spec));
    whole = whole && add(line, "place", json_string(mm_words_where.name(where)));
    end(w, line, add_fields(w, line, mm_plan_segment_fields, s) && whole);
}

/* The numbers of the uses whose outputs are given. */
static json_t *given_json(uint64_t given) {
    int32_t uses[MM_GIVEN_USES];
    int n = 0;
    for (int u = 0; u < MM_GIVEN_USES; u++)
        if (given >> u & 1) uses[n++] = u;
    return indices_json(uses, n);
}

static void write_node(writer *w, int index) {
    const mm_node *n = &w->plan->nodes[index];
    mm_node numbers = *n;
    if (!mm_node_runs_step(n)) numbers.variant = 0; /* ignored (rule 4.1): any number may be there */
    json_t *line = begin(MM_LINE_NODE);
    bool whole = line && add(line, "index", json_integer(index));
    whole = whole && add(line, "kind", json_string(mm_node_kind_name(n->kind)));
    whole = whole && add(line, "stream", json_string(mm_stream_id_name(n->stream)));
    if (n->tensor >= 0) whole = whole && add(line, "tensor", tensor_name(w, n->tensor));
    whole = add_fields(w, line, mm_plan_node_fields, &numbers) && whole;
    if (mm_node_runs_step(n)) {
        const int uses = mm_graph_step(w->graph, n->step)->n_uses;
        const int32_t *bindings = w->plan->bindings;
        whole = whole && add(line, "segments", indices_json(&bindings[n->first_binding], uses));
        if (n->first_code >= 0) whole = whole && add(line, "codes", indices_json(&bindings[n->first_code], uses));
    }
    if (n->given) whole = whole && add(line, "given", given_json(n->given));
    end(w, line, whole && add(line, "waits", waits_json(n->wait)));
}

static void write_piece(writer *w, const mm_piece *piece) {
    json_t *line = begin(MM_LINE_PIECE);
    bool whole = add_fields(w, line, mm_plan_piece_fields, piece);
    end(w, line, whole && add(line, "waits", waits_json(piece->wait)));
}

static mm_status write_all(writer *w, size_t i, size_t n) {
    end(w,
        json_pack("{s:s, s:i, s:I, s:I, s:s}", "format", MM_PLAN_FORMAT, "version", MM_PLAN_FORMAT_VERSION, "plan",
                  (json_int_t)i, "plans", (json_int_t)n, "policy", w->plan->policy),
        true);
    write_graph(w);
    write_limits(w);
    write_facts(w);
    write_plan(w);
    for (int s = 0; s < w->plan->n_segments; s++) write_segment(w, s);
    for (int s = 0; s < w->plan->n_nodes; s++) write_node(w, s);
    for (int p = 0; p < w->program->n; p++) write_piece(w, &w->program->pieces[p]);
    return w->status;
}

/* ---------------------------------------------------------------- the file */

typedef struct plan_list {
    const mm_plan_view *plans;
    size_t n;
} plan_list;

/* An mm_file_writer. */
static mm_status print(const void *ctx, FILE *file) {
    const plan_list *list = ctx;
    for (size_t i = 0; i < list->n; i++) {
        const mm_plan_view *view = &list->plans[i];
        writer w = {.file = file,
                    .program = view->program,
                    .plan = view->program->plan,
                    .graph = view->program->plan->graph,
                    .facts = view->facts,
                    .limits = view->limits};
        MM_TRY(write_all(&w, i, list->n));
    }
    return MM_OK;
}

static mm_status check(const mm_plan_view *view) {
    const mm_plan *plan = view->program->plan;
    const mm_graph_facts *facts = view->facts;
    int64_t bytes = 0;
    MM_TRY(mm_graph_check_names(call, plan->graph));
    MM_TRY(mm_graph_check_name(call, "a policy", plan->policy));
    for (int c = 0; c < facts->n_codecs; c++) MM_TRY(mm_graph_check_name(call, "a codec", facts->codecs[c].spec));
    for (int i = 0; i < plan->n_segments && bytes <= MM_PLAN_MOST_BYTES; i++)
        bytes = plan->segments[i].bytes < MM_PLAN_MOST_BYTES ? bytes + plan->segments[i].bytes : INT64_MAX;
    if (bytes <= MM_PLAN_MOST_BYTES && facts->n_codecs <= MM_PLAN_MOST_CODECS &&
        (int64_t)facts->n_codecs * facts->n_tensors <= MM_PLAN_MOST_CODES)
        return MM_OK;
    return mm_fail(MM_ERR_INVALID, "%s: the plan of %s is too large to be saved: more than 2^61 bytes or %d codes",
                   call, mm_graph_name(plan->graph), MM_PLAN_MOST_CODES);
}

mm_status mm_plan_file_write(const mm_plan_view *plans, size_t n, const char *path) {
    if (n == 0 || n > MM_PLANS_MOST)
        return mm_fail(MM_ERR_INVALID, "%s: %zu plans: must be 1 to %d", call, n, MM_PLANS_MOST);
    for (size_t i = 0; i < n; i++) MM_TRY(check(&plans[i]));
    return mm_atomic_file_print(path, print, &(plan_list){plans, n});
}
