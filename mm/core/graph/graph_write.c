/* SPDX-License-Identifier: MIT */
/* mm_graph_save, and a graph as JSON. The format is described in mm/mm_plan.h. */
#include "mm/core/graph/graph_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/atomic_file.h"
#include "mm/core/graph/graph.h"
#include "mm/core/graph/graph_words.h"
#include "mm/core/json_text.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "mm/mm_plan.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for saving a graph"); }

/* A name that a reader would refuse is refused here. */
mm_status mm_graph_check_name(const char *call, const char *what, const char *name) {
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return mm_fail(MM_ERR_INVALID, "%s: the name of %s has control characters: it cannot be saved", call, what);
    errno = 0;
    json_t *text = json_string(name);
    const bool good = text != NULL, lacks_memory = errno == ENOMEM;
    json_decref(text);
    if (lacks_memory) return no_memory();
    return good ? MM_OK : mm_fail(MM_ERR_INVALID, "%s: the name of %s is not UTF-8: it cannot be saved", call, what);
}

mm_status mm_graph_check_names(const char *call, const mm_graph *graph) {
    MM_TRY(mm_graph_check_name(call, "a graph", mm_graph_name(graph)));
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        MM_TRY(mm_graph_check_name(call, "a tensor", mm_graph_tensor(graph, t)->name));
    for (int i = 0; i < mm_graph_layers(graph); i++) {
        const mm_layer_info *layer = mm_graph_layer(graph, i);
        MM_TRY(mm_graph_check_name(call, "a layer", layer->name));
        for (int p = 0; p < layer->n_parts; p++) MM_TRY(mm_graph_check_name(call, "a layer's part", layer->parts[p]));
    }
    return MM_OK;
}

/* From here on NULL, and false, mean that there is no memory. jansson's functions take over a value, and refuse NULL.
 */

static json_t *integers(const int64_t *values, int n) {
    json_t *array = json_array();
    for (int i = 0; i < n && array; i++)
        if (json_array_append_new(array, json_integer(values[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

/* Releases the object, and gives NULL, unless `whole`. */
static json_t *finish(json_t *object, bool whole) {
    if (object && whole) return object;
    json_decref(object);
    return NULL;
}

/* Adds a key; value NULL: fails. */
static bool add(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value) == 0; }

static json_t *tensor_json(const mm_graph *graph, mm_tensor t) {
    const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", tensor->name, "kind", mm_tensor_kind_name(tensor->kind),
                  "ownership", mm_words_ownership.name(tensor->ownership), "dtype", mm_dtype_name(tensor->dtype),
                  "dims", integers(tensor->dims, tensor->rank));
    bool whole = object != NULL;
    if (whole && tensor->weight >= 0)
        whole = add(object, "weight", json_string(mm_graph_tensor(graph, tensor->weight)->name));
    if (whole && tensor->shared != MM_ALLREDUCE_NOT)
        whole = add(object, "allreduce",
                    json_pack("{s:s, s:s}", "when", mm_words_when.name(tensor->shared), "as",
                              mm_words_as.name(tensor->shared_as)));
    return finish(object, whole);
}

static json_t *layer_json(const mm_layer_info *layer) {
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:b}", "name", layer->name, "kind", mm_layer_kind_name(layer->kind), "cost",
                  mm_words_cost.name(layer->properties.cost), "repeatable", (int)layer->properties.repeatable);
    if (!object || layer->n_parts == 0) return object;
    json_t *parts = json_array();
    bool whole = parts != NULL;
    for (int p = 0; whole && p < layer->n_parts; p++)
        whole = json_array_append_new(parts, json_string(layer->parts[p])) == 0;
    return finish(object, add(object, "parts", parts) && whole);
}

static const char *tensor_name(const mm_graph *graph, mm_tensor t) { return mm_graph_tensor(graph, t)->name; }

static json_t *uses_json(const mm_graph *graph, const mm_step_info *step) {
    json_t *array = json_array();
    bool whole = array != NULL;
    for (int u = 0; whole && u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        json_t *object = json_pack("{s:s, s:s}", "tensor", tensor_name(graph, use->tensor), "access",
                                   mm_words_access.name(use->access));
        whole =
            object && (use->form == MM_FORM_VALUE || add(object, "form", json_string(mm_words_form.name(use->form))));
        whole = json_array_append_new(array, object) == 0 && whole;
    }
    return finish(array, whole);
}

static json_t *pairs_json(const mm_graph *graph, const mm_step_info *step) {
    json_t *array = json_array();
    bool whole = array != NULL;
    for (int p = 0; whole && p < step->n_pairs; p++) {
        const mm_pair *pair = &step->pairs[p];
        whole = json_array_append_new(array, json_pack("{s:s, s:s, s:s}", "allow", mm_words_pair.name(pair->alias),
                                                       "input", tensor_name(graph, pair->input), "output",
                                                       tensor_name(graph, pair->output))) == 0;
    }
    return finish(array, whole);
}

static json_t *given_json(const mm_graph *graph, const mm_step_info *step) {
    json_t *array = json_array();
    bool whole = array != NULL;
    for (int u = 0; whole && u < step->n_uses && u < MM_GIVEN_USES; u++)
        if (step->given >> u & 1)
            whole = json_array_append_new(array, json_string(tensor_name(graph, step->uses[u].tensor))) == 0;
    return finish(array, whole);
}

static json_t *codes_json(const mm_graph *graph, const mm_step_info *step) {
    json_t *array = json_array();
    bool whole = array != NULL;
    for (int c = 0; whole && c < step->n_codes; c++) {
        const mm_step_code *code = &step->codes[c];
        whole = json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:I, s:i, s:i}", "tensor",
                                                       tensor_name(graph, step->uses[code->use].tensor), "access",
                                                       mm_words_access.name(code->access), "codec", code->codec,
                                                       "workspace_bytes", (json_int_t)code->workspace_bytes,
                                                       "workspace_strips", code->workspace_strips, "passes",
                                                       code->passes)) == 0;
    }
    return finish(array, whole);
}

static json_t *step_json(const mm_graph *graph, const mm_step_info *step) {
    json_t *object = json_pack("{s:i, s:s, s:I, s:o}", "layer", (int)step->layer, "phase", mm_phase_name(step->phase),
                               "workspace_bytes", (json_int_t)step->workspace_bytes, "uses", uses_json(graph, step));
    bool whole = object != NULL;
    if (whole && step->n_less > 0)
        whole = add(object, "less_workspace_bytes", integers(step->less_bytes, step->n_less));
    if (whole && step->n_pairs > 0) whole = add(object, "pairs", pairs_json(graph, step));
    if (whole && step->given) whole = add(object, "given", given_json(graph, step));
    if (whole && step->n_codes > 0) whole = add(object, "codes", codes_json(graph, step));
    return finish(object, whole);
}

/* ---------------------------------------------------------------- the whole graph as JSON */

/* The i-th tensor, layer or step. */
typedef json_t *(*item_fn)(const mm_graph *graph, int i);

static json_t *layer_at(const mm_graph *graph, int i) { return layer_json(mm_graph_layer(graph, i)); }
static json_t *step_at(const mm_graph *graph, int i) { return step_json(graph, mm_graph_step(graph, i)); }

static json_t *items(const mm_graph *graph, int n, item_fn item) {
    json_t *array = json_array();
    bool whole = array != NULL;
    for (int i = 0; whole && i < n; i++) whole = json_array_append_new(array, item(graph, i)) == 0;
    return finish(array, whole);
}

json_t *mm_graph_json(const mm_graph *graph) {
    return json_pack("{s:s, s:o, s:o, s:o}", "name", mm_graph_name(graph), "tensors",
                     items(graph, mm_graph_tensors(graph), tensor_json), "layers",
                     items(graph, mm_graph_layers(graph), layer_at), "steps",
                     items(graph, mm_graph_steps(graph), step_at));
}

/* ---------------------------------------------------------------- the file: a line for each tensor, layer and step */

/* Prints a value, and releases it; NULL: there was no memory for it. */
static mm_status print_value(FILE *file, json_t *value) {
    char *text = value ? mm_json_print(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (!text) return no_memory();
    fputs(text, file);
    free(text);
    return MM_OK;
}

/* Prints the i-th of n items of an array. */
static mm_status print_item(FILE *file, int i, int n, json_t *value) {
    fputs("   ", file);
    MM_TRY(print_value(file, value));
    fputs(i + 1 < n ? ",\n" : "\n", file);
    return MM_OK;
}

static mm_status print_graph(FILE *file, const mm_graph *graph) {
    const int tensors = mm_graph_tensors(graph), layers = mm_graph_layers(graph), steps = mm_graph_steps(graph);
    fputs(" {\"name\": ", file);
    MM_TRY(print_value(file, json_string(mm_graph_name(graph))));
    fputs(",\n  \"tensors\": [\n", file);
    for (int t = 0; t < tensors; t++) MM_TRY(print_item(file, t, tensors, tensor_json(graph, t)));
    fputs("  ],\n  \"layers\": [\n", file);
    for (int i = 0; i < layers; i++) MM_TRY(print_item(file, i, layers, layer_json(mm_graph_layer(graph, i))));
    fputs("  ],\n  \"steps\": [\n", file);
    for (int s = 0; s < steps; s++) MM_TRY(print_item(file, s, steps, step_json(graph, mm_graph_step(graph, s))));
    fputs("  ]}", file);
    return MM_OK;
}

typedef struct graph_list {
    const mm_graph *const *graphs;
    size_t n;
} graph_list;

/* An mm_file_writer. */
static mm_status print(const void *ctx, FILE *file) {
    const graph_list *list = ctx;
    fprintf(file, "{\"format\": \"%s\", \"version\": %d, \"graphs\": [\n", MM_GRAPH_FORMAT, MM_GRAPH_FORMAT_VERSION);
    for (size_t i = 0; i < list->n; i++) {
        MM_TRY(print_graph(file, list->graphs[i]));
        fputs(i + 1 < list->n ? ",\n" : "\n", file);
    }
    fputs("]}\n", file);
    return MM_OK;
}

static mm_status check(const mm_graph *const *graphs, size_t n) {
    if (n == 0 || n > MM_GRAPHS_MOST)
        return mm_fail(MM_ERR_INVALID, "mm_graph_save: %zu graphs: must be 1 to %d", n, MM_GRAPHS_MOST);
    for (size_t i = 0; i < n; i++) {
        MM_TRY(mm_check_given(graphs[i], "mm_graph_save", "a graph"));
        if (!mm_graph_frozen(graphs[i]))
            return mm_fail(MM_ERR_ORDER, "mm_graph_save: graph %s is not frozen (mm_graph_freeze)",
                           MM_BRIEF(mm_graph_name(graphs[i])));
        MM_TRY(mm_graph_check_names("mm_graph_save", graphs[i]));
    }
    return MM_OK;
}

mm_status mm_graph_save(const mm_graph *const *graphs, size_t n, const char *path) {
    MM_TRY(mm_check_given(graphs, "mm_graph_save", "graphs"));
    MM_TRY(mm_check_given(path, "mm_graph_save", "path"));
    MM_TRY(check(graphs, n));
    return mm_atomic_file_print(path, print, &(graph_list){graphs, n});
}
