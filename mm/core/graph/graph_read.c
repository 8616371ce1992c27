/* SPDX-License-Identifier: MIT */
/* mm_graph_load. The format is described in mm/mm_plan.h. A file may come from strangers: what it declares is checked
 * by the functions that declare graphs, and here only what they do not see. */
#include "mm/core/graph/graph_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/graph/graph_read_value.h"
#include "mm/core/json_text.h"

/* The most pairs, codes, smaller workspaces, parts and given outputs of one step or layer. Chosen: far more than any
 * has; each may be looked for among the step's uses. */
enum { FEW_MOST = 16384 };

typedef mm_graph_reader reader;

static mm_status no_memory(const char *path) { return mm_fail(MM_ERR_NOMEM, "out of memory for graph file %s", path); }

/* ---------------------------------------------------------------- tensors and layers */

static mm_status read_dims(const reader *r, const json_t *entry, mm_tensor_desc *desc) {
    json_t *dims;
    MM_TRY(mm_graph_array(r, entry, "dims", MM_RANK_MAX, &dims));
    desc->rank = (int)json_array_size(dims);
    for (int i = 0; i < desc->rank; i++) {
        const json_t *dim = json_array_get(dims, (size_t)i);
        if (!json_is_integer(dim)) return mm_graph_bad_key(r, "dims", "has an entry that is not an integer");
        desc->dims[i] = json_integer_value(dim);
    }
    return MM_OK;
}

static mm_status read_tensor(const reader *r, json_t *entry) {
    static const char *const keys[] = {"name", "kind", "ownership", "dtype", "dims", "weight", "allreduce", NULL};
    mm_tensor_desc desc = {0};
    int kind, ownership, dtype;
    mm_tensor tensor;
    MM_TRY(mm_graph_check_keys(r, entry, keys));
    MM_TRY(mm_graph_text(r, entry, "name", &desc.name));
    MM_TRY(mm_graph_word(r, entry, "kind", &mm_words_tensor_kind, &kind));
    MM_TRY(mm_graph_word(r, entry, "ownership", &mm_words_ownership, &ownership));
    MM_TRY(mm_graph_word(r, entry, "dtype", &mm_words_dtype, &dtype));
    MM_TRY(read_dims(r, entry, &desc));
    desc.kind = (mm_tensor_kind)kind;
    desc.ownership = (mm_ownership)ownership;
    desc.dtype = (mm_dtype)dtype;
    return mm_graph_declared(r, mm_graph_add_tensor(r->graph, &desc, &tensor));
}

/* What a tensor's entry says of other tensors, and of all-reduces. All tensors are declared. */
static mm_status read_relations(const reader *r, json_t *entry, mm_tensor tensor) {
    static const char *const keys[] = {"when", "as", NULL};
    mm_tensor weight;
    int when, as;
    json_t *allreduce = json_object_get(entry, "allreduce");
    if (json_object_get(entry, "weight")) {
        MM_TRY(mm_graph_named_tensor(r, entry, "weight", &weight));
        MM_TRY(mm_graph_declared(r, mm_graph_set_weight(r->graph, tensor, weight)));
    }
    if (!allreduce) return MM_OK;
    MM_TRY(mm_graph_check_keys(r, allreduce, keys));
    MM_TRY(mm_graph_word(r, allreduce, "when", &mm_words_when, &when));
    MM_TRY(mm_graph_word(r, allreduce, "as", &mm_words_as, &as));
    return mm_graph_declared(r, mm_graph_allreduce(r->graph, tensor, (mm_allreduce_when)when, (mm_reduce_op)as));
}

static mm_status read_parts(const reader *r, const json_t *entry, mm_layer layer) {
    json_t *parts;
    MM_TRY(mm_graph_array(r, entry, "parts", FEW_MOST, &parts));
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const char *name;
        MM_TRY(mm_graph_text_of(r, "parts", json_array_get(parts, i), &name));
        MM_TRY(mm_graph_declared(r, mm_graph_add_part(r->graph, layer, name)));
    }
    return MM_OK;
}

static mm_status read_layer(const reader *r, json_t *entry) {
    static const char *const keys[] = {"name", "kind", "cost", "repeatable", "parts", NULL};
    const char *name;
    int kind, cost;
    mm_layer layer;
    MM_TRY(mm_graph_check_keys(r, entry, keys));
    MM_TRY(mm_graph_text(r, entry, "name", &name));
    MM_TRY(mm_graph_word(r, entry, "kind", &mm_words_layer_kind, &kind));
    MM_TRY(mm_graph_word(r, entry, "cost", &mm_words_cost, &cost));
    const json_t *repeatable = json_object_get(entry, "repeatable");
    if (!json_is_boolean(repeatable)) return mm_graph_bad_key(r, "repeatable", "is not true or false");
    const mm_layer_properties properties = {.cost = (mm_layer_cost)cost, .repeatable = json_is_true(repeatable)};
    MM_TRY(mm_graph_declared(r, mm_graph_add_layer(r->graph, name, (mm_layer_kind)kind, &layer)));
    MM_TRY(mm_graph_declared(r, mm_graph_set_properties(r->graph, layer, &properties)));
    return read_parts(r, entry, layer);
}

/* ---------------------------------------------------------------- steps */

static mm_status read_use(const reader *r, json_t *entry, mm_use *use) {
    static const char *const keys[] = {"tensor", "access", "form", NULL};
    int access, form = MM_FORM_VALUE;
    MM_TRY(mm_graph_check_keys(r, entry, keys));
    MM_TRY(mm_graph_named_tensor(r, entry, "tensor", &use->tensor));
    MM_TRY(mm_graph_word(r, entry, "access", &mm_words_access, &access));
    if (json_object_get(entry, "form")) MM_TRY(mm_graph_word(r, entry, "form", &mm_words_form, &form));
    use->access = (mm_access)access;
    use->form = (mm_form)form;
    return MM_OK;
}

static mm_status read_uses(const reader *r, const json_t *array, mm_use *uses) {
    for (size_t i = 0; i < json_array_size(array); i++) MM_TRY(read_use(r, json_array_get(array, i), &uses[i]));
    return MM_OK;
}

/* Declares the step with its uses. */
static mm_status declare_step(const reader *r, const json_t *entry) {
    int64_t layer, workspace_bytes;
    int phase;
    json_t *array;
    MM_TRY(mm_graph_integer(r, entry, "layer", INT32_MAX, &layer));
    MM_TRY(mm_graph_word(r, entry, "phase", &mm_words_phase, &phase));
    MM_TRY(mm_graph_integer(r, entry, "workspace_bytes", INT64_MAX, &workspace_bytes));
    MM_TRY(mm_graph_array(r, entry, "uses", INT32_MAX, &array));
    const size_t n = json_array_size(array);
    mm_use *uses = malloc((n + 1) * sizeof *uses);
    if (!uses) return no_memory(r->path);
    mm_status status = read_uses(r, array, uses);
    if (status == MM_OK)
        status = mm_graph_declared(
            r, mm_graph_add_step(r->graph, (mm_layer)layer, (mm_phase)phase, uses, n, (size_t)workspace_bytes));
    free(uses);
    return status;
}

static mm_status read_pair(const reader *r, json_t *entry) {
    static const char *const keys[] = {"allow", "input", "output", NULL};
    int alias;
    mm_tensor input, output;
    MM_TRY(mm_graph_check_keys(r, entry, keys));
    MM_TRY(mm_graph_word(r, entry, "allow", &mm_words_pair, &alias));
    MM_TRY(mm_graph_named_tensor(r, entry, "input", &input));
    MM_TRY(mm_graph_named_tensor(r, entry, "output", &output));
    return mm_graph_declared(r, alias ? mm_graph_allow_alias(r->graph, input, output)
                                      : mm_graph_allow_inplace(r->graph, input, output));
}

static mm_status read_code(const reader *r, json_t *entry) {
    static const char *const keys[] = {"tensor", "access",           "codec", "workspace_bytes",
                                       "passes", "workspace_strips", NULL};
    mm_code_use code = {0};
    int access;
    int64_t bytes, strips, passes;
    MM_TRY(mm_graph_check_keys(r, entry, keys));
    MM_TRY(mm_graph_named_tensor(r, entry, "tensor", &code.tensor));
    MM_TRY(mm_graph_word(r, entry, "access", &mm_words_access, &access));
    MM_TRY(mm_graph_text(r, entry, "codec", &code.codec));
    MM_TRY(mm_graph_integer(r, entry, "workspace_bytes", INT64_MAX, &bytes));
    MM_TRY(mm_graph_integer(r, entry, "workspace_strips", INT32_MAX, &strips));
    MM_TRY(mm_graph_integer(r, entry, "passes", INT32_MAX, &passes));
    code.access = (mm_access)access;
    code.workspace_bytes = (size_t)bytes;
    code.workspace_strips = (int)strips;
    code.passes = (int)passes;
    return mm_graph_declared(r, mm_graph_allow_code(r->graph, &code));
}

static mm_status read_less(const reader *r, const json_t *value) {
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return mm_graph_bad_key(r, "less_workspace_bytes", "has an entry that is no integer, or below 0");
    return mm_graph_declared(r, mm_graph_allow_workspace(r->graph, (size_t)json_integer_value(value)));
}

static mm_status read_given(const reader *r, const json_t *value) {
    const char *name;
    mm_tensor tensor;
    MM_TRY(mm_graph_text_of(r, "given", value, &name));
    MM_TRY(mm_graph_declared(r, mm_graph_find_tensor(r->graph, name, &tensor)));
    return mm_graph_declared(r, mm_graph_allow_given(r->graph, tensor));
}

static mm_status read_step(const reader *r, json_t *entry) {
    static const char *const keys[] = {"layer", "phase", "workspace_bytes", "uses", "less_workspace_bytes",
                                       "pairs", "given", "codes",           NULL};
    json_t *array;
    MM_TRY(mm_graph_check_keys(r, entry, keys));
    MM_TRY(declare_step(r, entry));
    MM_TRY(mm_graph_array(r, entry, "less_workspace_bytes", FEW_MOST, &array));
    for (size_t i = 0; i < json_array_size(array); i++) MM_TRY(read_less(r, json_array_get(array, i)));
    MM_TRY(mm_graph_array(r, entry, "pairs", FEW_MOST, &array));
    for (size_t i = 0; i < json_array_size(array); i++) MM_TRY(read_pair(r, json_array_get(array, i)));
    MM_TRY(mm_graph_array(r, entry, "given", FEW_MOST, &array));
    for (size_t i = 0; i < json_array_size(array); i++) MM_TRY(read_given(r, json_array_get(array, i)));
    MM_TRY(mm_graph_array(r, entry, "codes", FEW_MOST, &array));
    for (size_t i = 0; i < json_array_size(array); i++) MM_TRY(read_code(r, json_array_get(array, i)));
    return MM_OK;
}

/* ---------------------------------------------------------------- graphs */

static void go_to(reader *r, int graph, const char *what, size_t i) {
    snprintf(r->where, sizeof r->where, "graph %d, %s %zu", graph, what, i);
}

static mm_status read_all(reader *r, int graph, const json_t *entry) {
    json_t *tensors, *layers, *steps;
    MM_TRY(mm_graph_array(r, entry, "tensors", INT32_MAX, &tensors));
    MM_TRY(mm_graph_array(r, entry, "layers", INT32_MAX, &layers));
    MM_TRY(mm_graph_array(r, entry, "steps", INT32_MAX, &steps));
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        go_to(r, graph, "tensor", i);
        MM_TRY(read_tensor(r, json_array_get(tensors, i)));
    }
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        go_to(r, graph, "tensor", i);
        MM_TRY(read_relations(r, json_array_get(tensors, i), (mm_tensor)i));
    }
    for (size_t i = 0; i < json_array_size(layers); i++) {
        go_to(r, graph, "layer", i);
        MM_TRY(read_layer(r, json_array_get(layers, i)));
    }
    for (size_t i = 0; i < json_array_size(steps); i++) {
        go_to(r, graph, "step", i);
        MM_TRY(read_step(r, json_array_get(steps, i)));
    }
    snprintf(r->where, sizeof r->where, "graph %d", graph);
    return mm_graph_declared(r, mm_graph_freeze(r->graph));
}

static mm_status read_graph(const char *path, int i, json_t *entry, mm_graph **graph_out) {
    static const char *const keys[] = {"name", "tensors", "layers", "steps", NULL};
    reader r = {.what = "graph file", .path = path};
    const char *name;
    snprintf(r.where, sizeof r.where, "graph %d", i);
    MM_TRY(mm_graph_check_keys(&r, entry, keys));
    MM_TRY(mm_graph_text(&r, entry, "name", &name));
    MM_TRY(mm_graph_create(name, &r.graph));
    mm_status status = read_all(&r, i, entry);
    if (status == MM_OK)
        *graph_out = r.graph;
    else
        mm_graph_destroy(r.graph);
    return status;
}

static mm_status check_header(const reader *r, const json_t *root) {
    const char *format = json_string_value(json_object_get(root, "format"));
    int64_t version;
    if (!format || strcmp(format, MM_GRAPH_FORMAT) != 0)
        return mm_graph_bad_key(r, "format", "is not \"" MM_GRAPH_FORMAT "\"");
    MM_TRY(mm_graph_integer(r, root, "version", INT32_MAX, &version));
    if (version == 0 || version > MM_GRAPH_FORMAT_VERSION)
        return mm_fail(MM_ERR_FORMAT, "graph file %s: is of version %lld; mm %s reads versions 1 to %d", r->path,
                       (long long)version, MM_VERSION, MM_GRAPH_FORMAT_VERSION);
    return MM_OK;
}

mm_status mm_graph_parse(const char *path, const json_t *root, mm_graph ***graphs_out, size_t *n_out) {
    const reader r = {.what = "graph file", .path = path, .where = "the file"};
    json_t *array;
    MM_TRY(check_header(&r, root));
    MM_TRY(mm_graph_array(&r, root, "graphs", MM_GRAPHS_MOST, &array));
    const size_t n = json_array_size(array);
    if (n == 0) return mm_graph_bad_key(&r, "graphs", "is missing or empty");
    mm_graph **graphs = calloc(n, sizeof *graphs);
    if (!graphs) return no_memory(path);
    mm_status status = MM_OK;
    for (size_t i = 0; status == MM_OK && i < n; i++)
        status = read_graph(path, (int)i, json_array_get(array, i), &graphs[i]);
    if (status != MM_OK) {
        mm_graph_list_destroy(graphs, n);
        return status;
    }
    *graphs_out = graphs;
    *n_out = n;
    return MM_OK;
}

mm_status mm_graph_load(const char *path, mm_graph ***graphs_out, size_t *n_out) {
    json_t *root;
    MM_TRY(mm_check_given(path, "mm_graph_load", "path"));
    MM_TRY(mm_check_given(graphs_out, "mm_graph_load", "graphs_out"));
    MM_TRY(mm_check_given(n_out, "mm_graph_load", "n_out"));
    MM_TRY(mm_json_read("graph file ", path, JSON_REJECT_DUPLICATES, &root));
    const mm_status status = mm_graph_parse(path, root, graphs_out, n_out);
    json_decref(root);
    return status;
}

void mm_graph_list_destroy(mm_graph **graphs, size_t n) {
    for (size_t i = 0; graphs && i < n; i++) mm_graph_destroy(graphs[i]);
    free(graphs);
}
