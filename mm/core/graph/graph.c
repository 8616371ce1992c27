/* SPDX-License-Identifier: MIT */
#include "mm/core/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/dtype.h"
#include "mm/core/graph/names.h"
#include "mm/core/status.h"

static const int64_t MAX_TENSOR_BYTES = INT64_C(1) << 62;
/* MAX_TOTAL_BYTES: chosen so that sums over a plan fit 64 bits. MAX_NAME: chosen; messages of MM_MESSAGE_CAPACITY hold
 * a name or two. MAX_COUNT: chosen, far above any network. */
static const int64_t MAX_TOTAL_BYTES = INT64_C(1) << 60;
enum { MAX_NAME = 200, MAX_COUNT = 1 << 24 };

typedef struct step {
    mm_step_info info;
    mm_use *uses;
    mm_pair *pairs;
    mm_step_code *codes;
    int64_t *less_bytes;
} step;

struct mm_graph {
    char *name;
    bool frozen;
    mm_tensor_info *tensors;
    mm_layer_info *layers;
    step *steps;
    int n_tensors, n_persistents, n_layers, n_steps;
    mm_names names; /* tensors by name */
};

const char *mm_tensor_kind_name(mm_tensor_kind kind) {
    static const char *const names[MM_TENSOR_KINDS] = {
        [MM_INPUT] = "input",
        [MM_FEATURE_MAP] = "feature map",
        [MM_GRADIENT_MAP] = "gradient map",
        [MM_SAVED] = "saved",
        [MM_WEIGHT] = "weight",
        [MM_WEIGHT_GRADIENT] = "weight gradient",
        [MM_STATE] = "state",
        [MM_OPTIMIZER] = "optimizer state",
    };
    return (unsigned)kind < MM_TENSOR_KINDS ? names[kind] : "unknown";
}

bool mm_tensor_takes_loss(const mm_tensor_info *tensor) {
    return tensor->ownership == MM_MANAGED && (tensor->kind == MM_FEATURE_MAP || tensor->kind == MM_GRADIENT_MAP);
}

const char *mm_phase_name(mm_phase phase) {
    static const char *const names[] = {"forward", "backward", "update"};
    return (unsigned)phase < 3 ? names[phase] : "unknown phase";
}

static mm_status no_memory(const char *what) { return mm_fail(MM_ERR_NOMEM, "out of memory for %s", what); }

/* Makes room for one more item of an array. Its capacity is not stored: the power of two at or above its count. */
static bool grow(void **array, int count, size_t item_bytes) {
    if (count & (count - 1)) return true;
    if (count >= MAX_COUNT) return false;
    void *larger = realloc(*array, (count ? 2 * (size_t)count : 1) * item_bytes);
    if (!larger) return false;
    *array = larger;
    return true;
}

mm_status mm_graph_create(const char *name, mm_graph **graph_out) {
    MM_TRY(mm_check_given(graph_out, "mm_graph_create", "graph_out"));
    mm_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return no_memory("a graph");
    graph->name = strdup(name ? name : "graph");
    if (!graph->name) {
        mm_graph_destroy(graph);
        return no_memory("a graph");
    }
    *graph_out = graph;
    return MM_OK;
}

void mm_graph_destroy(mm_graph *graph) {
    if (!graph) return;
    for (int i = 0; i < graph->n_tensors; i++) free(graph->tensors[i].name);
    for (int i = 0; i < graph->n_layers; i++) {
        for (int p = 0; p < graph->layers[i].n_parts; p++) free(graph->layers[i].parts[p]);
        free(graph->layers[i].parts);
        free(graph->layers[i].name);
    }
    for (int i = 0; i < graph->n_steps; i++) {
        free(graph->steps[i].uses);
        free(graph->steps[i].pairs);
        free(graph->steps[i].codes);
        free(graph->steps[i].less_bytes);
    }
    free(graph->tensors);
    free(graph->layers);
    free(graph->steps);
    mm_names_fini(&graph->names);
    free(graph->name);
    free(graph);
}

static mm_status check_open(const mm_graph *graph, const char *call) {
    MM_TRY(mm_check_given(graph, call, "graph"));
    if (graph->frozen) return mm_fail(MM_ERR_ORDER, "graph %s is frozen: nothing can be added to it", graph->name);
    return MM_OK;
}

static mm_status check_name(const mm_graph *graph, const char *what, const char *name) {
    if (!name || !*name) return mm_fail(MM_ERR_INVALID, "graph %s: a %s needs a name", graph->name, what);
    if (strlen(name) > MAX_NAME)
        return mm_fail(MM_ERR_INVALID, "graph %s: name of %s '%.40s...' is longer than %d characters", graph->name,
                       what, name, MAX_NAME);
    return MM_OK;
}

static mm_status tensor_bytes(const mm_graph *graph, const mm_tensor_desc *desc, int64_t *bytes_out) {
    if (desc->rank < 1 || desc->rank > MM_RANK_MAX)
        return mm_fail(MM_ERR_INVALID, "graph %s, tensor %s: rank %d is not 1 to %d", graph->name, desc->name,
                       desc->rank, MM_RANK_MAX);
    int64_t bytes = (int64_t)mm_dtype_bytes(desc->dtype);
    for (int i = 0; i < desc->rank; i++) {
        if (desc->dims[i] < 1)
            return mm_fail(MM_ERR_INVALID, "graph %s, tensor %s: dimension %d is %lld, must be at least 1", graph->name,
                           desc->name, i, (long long)desc->dims[i]);
        if (bytes > MAX_TENSOR_BYTES / desc->dims[i])
            return mm_fail(MM_ERR_INVALID, "graph %s, tensor %s: its size is above 2^62 bytes", graph->name,
                           desc->name);
        bytes *= desc->dims[i];
    }
    *bytes_out = bytes;
    return MM_OK;
}

mm_status mm_graph_add_tensor(mm_graph *graph, const mm_tensor_desc *desc, mm_tensor *tensor_out) {
    MM_TRY(check_open(graph, "mm_graph_add_tensor"));
    MM_TRY(mm_check_given(desc, "mm_graph_add_tensor", "desc"));
    MM_TRY(mm_check_given(tensor_out, "mm_graph_add_tensor", "tensor_out"));
    MM_TRY(check_name(graph, "tensor", desc->name));
    if ((unsigned)desc->kind >= MM_TENSOR_KINDS || (unsigned)desc->ownership > MM_EXTERNAL ||
        (unsigned)desc->dtype >= MM_DTYPES)
        return mm_fail(MM_ERR_INVALID, "graph %s, tensor %s: unknown kind, ownership or type", graph->name, desc->name);
    int64_t bytes;
    MM_TRY(tensor_bytes(graph, desc, &bytes));
    if (mm_names_find(&graph->names, desc->name) >= 0)
        return mm_fail(MM_ERR_INVALID, "graph %s: there is a tensor %s already", graph->name, desc->name);
    if (!grow((void **)&graph->tensors, graph->n_tensors, sizeof *graph->tensors))
        return no_memory("a graph's tensors");
    char *name = strdup(desc->name);
    if (!name || mm_names_add(&graph->names, name, graph->n_tensors) != MM_OK) {
        free(name);
        return no_memory("a tensor's name");
    }
    mm_tensor_info *tensor = &graph->tensors[graph->n_tensors];
    *tensor = (mm_tensor_info){.name = name,
                               .kind = desc->kind,
                               .ownership = desc->ownership,
                               .dtype = desc->dtype,
                               .rank = desc->rank,
                               .bytes = bytes,
                               .persistent = desc->ownership == MM_PERSISTENT ? graph->n_persistents++ : -1,
                               .weight = -1,
                               .gradient = -1,
                               .producer = -1,
                               .first_use = -1,
                               .last_use = -1,
                               .last_forward = -1,
                               .first_backward = -1};
    for (int i = 0; i < MM_RANK_MAX; i++) tensor->dims[i] = 1;
    memcpy(tensor->dims, desc->dims, (size_t)desc->rank * sizeof desc->dims[0]);
    *tensor_out = graph->n_tensors++;
    return MM_OK;
}

static int64_t elements(const mm_tensor_info *tensor) { return tensor->bytes / (int64_t)mm_dtype_bytes(tensor->dtype); }

static mm_status check_kind(const mm_graph *graph, mm_tensor tensor, const char *what,
                            bool (*is)(mm_tensor_kind kind)) {
    if (tensor < 0 || tensor >= graph->n_tensors)
        return mm_fail(MM_ERR_INVALID, "graph %s: mm_graph_set_weight: the graph has no tensor %d", graph->name,
                       tensor);
    if (is(graph->tensors[tensor].kind)) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "graph %s, tensor %s: is of the kind %s, not %s", graph->name,
                   graph->tensors[tensor].name, mm_tensor_kind_name(graph->tensors[tensor].kind), what);
}

static bool is_weight(mm_tensor_kind kind) { return kind == MM_WEIGHT; }
static bool is_of_weight(mm_tensor_kind kind) { return kind == MM_WEIGHT_GRADIENT || kind == MM_OPTIMIZER; }

mm_status mm_graph_set_weight(mm_graph *graph, mm_tensor tensor, mm_tensor weight) {
    MM_TRY(check_open(graph, "mm_graph_set_weight"));
    MM_TRY(check_kind(graph, tensor, "a weight's gradient or an optimizer state", is_of_weight));
    MM_TRY(check_kind(graph, weight, "a weight", is_weight));
    mm_tensor_info *own = &graph->tensors[tensor], *of = &graph->tensors[weight];
    const bool gradient = own->kind == MM_WEIGHT_GRADIENT;
    if (own->weight >= 0)
        return mm_fail(MM_ERR_INVALID, "graph %s, tensor %s: belongs to %s already", graph->name, own->name,
                       graph->tensors[own->weight].name);
    if (gradient && of->gradient >= 0)
        return mm_fail(MM_ERR_INVALID, "graph %s, weight %s: has a gradient already, %s", graph->name, of->name,
                       graph->tensors[of->gradient].name);
    if (gradient && elements(own) != elements(of))
        return mm_fail(MM_ERR_INVALID, "graph %s, gradient %s: has %lld elements, its weight %s has %lld", graph->name,
                       own->name, (long long)elements(own), of->name, (long long)elements(of));
    own->weight = weight;
    if (gradient) of->gradient = tensor;
    return MM_OK;
}

mm_status mm_graph_allreduce(mm_graph *graph, mm_tensor tensor, mm_allreduce_when when, mm_reduce_op as) {
    MM_TRY(check_open(graph, "mm_graph_allreduce"));
    if (tensor < 0 || tensor >= graph->n_tensors)
        return mm_fail(MM_ERR_INVALID, "graph %s: mm_graph_allreduce: the graph has no tensor %d", graph->name, tensor);
    mm_tensor_info *info = &graph->tensors[tensor];
    if ((unsigned)when > MM_ALLREDUCE_IN_PLACE_AT_END || (unsigned)as > MM_REDUCE_MEAN)
        return mm_fail(MM_ERR_INVALID,
                       "graph %s, tensor %s: cannot be all-reduced: no mm_allreduce_when %d, or no mm_reduce_op %d",
                       graph->name, info->name, when, as);
    if (info->ownership != MM_PERSISTENT)
        return mm_fail(MM_ERR_INVALID, "graph %s, tensor %s: only persistent tensors can be all-reduced", graph->name,
                       info->name);
    info->shared = when;
    info->shared_as = as;
    return MM_OK;
}

mm_status mm_graph_add_layer(mm_graph *graph, const char *name, mm_layer_kind kind, mm_layer *layer_out) {
    MM_TRY(check_open(graph, "mm_graph_add_layer"));
    MM_TRY(mm_check_given(layer_out, "mm_graph_add_layer", "layer_out"));
    MM_TRY(check_name(graph, "layer", name));
    if ((unsigned)kind >= MM_LAYER_KINDS)
        return mm_fail(MM_ERR_INVALID, "graph %s, layer %s: unknown kind", graph->name, name);
    if (!grow((void **)&graph->layers, graph->n_layers, sizeof *graph->layers)) return no_memory("a graph's layers");
    char *copy = strdup(name);
    if (!copy) return no_memory("a layer's name");
    graph->layers[graph->n_layers] =
        (mm_layer_info){.name = copy, .kind = kind, .properties = mm_layer_kind_properties(kind), .step = {-1, -1, -1}};
    *layer_out = graph->n_layers++;
    return MM_OK;
}

static mm_status check_layer(const mm_graph *graph, const char *what, mm_layer layer) {
    if (layer >= 0 && layer < graph->n_layers) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "graph %s: cannot set %s of layer %d: the graph has layers 0 to %d", graph->name,
                   what, layer, graph->n_layers - 1);
}

mm_status mm_graph_add_part(mm_graph *graph, mm_layer layer, const char *name) {
    MM_TRY(check_open(graph, "mm_graph_add_part"));
    MM_TRY(check_name(graph, "layer's part", name));
    MM_TRY(check_layer(graph, "a part", layer));
    mm_layer_info *info = &graph->layers[layer];
    if (!grow((void **)&info->parts, info->n_parts, sizeof *info->parts)) return no_memory("a layer's parts");
    info->parts[info->n_parts] = strdup(name);
    if (!info->parts[info->n_parts]) return no_memory("a part's name");
    info->n_parts++;
    return MM_OK;
}

mm_status mm_graph_set_properties(mm_graph *graph, mm_layer layer, const mm_layer_properties *properties) {
    MM_TRY(check_open(graph, "mm_graph_set_properties"));
    MM_TRY(mm_check_given(properties, "mm_graph_set_properties", "properties"));
    MM_TRY(check_layer(graph, "properties", layer));
    if ((unsigned)properties->cost > MM_LAYER_EXPENSIVE)
        return mm_fail(MM_ERR_INVALID, "graph %s, layer %s: unknown cost class", graph->name,
                       graph->layers[layer].name);
    graph->layers[layer].properties = *properties;
    return MM_OK;
}

static mm_status check_uses(const mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses, size_t n) {
    const char *name = graph->layers[layer].name;
    for (size_t i = 0; i < n; i++) {
        if (uses[i].tensor < 0 || uses[i].tensor >= graph->n_tensors)
            return mm_fail(MM_ERR_INVALID, "%s %s: use %zu names no tensor of the graph", name, mm_phase_name(phase),
                           i);
        const mm_tensor_info *tensor = &graph->tensors[uses[i].tensor];
        /* MM_FORM_CODE is refused, too. */
        if ((unsigned)uses[i].access > MM_MODIFY || (unsigned)uses[i].form > MM_FORM_SIGN)
            return mm_fail(MM_ERR_INVALID, "%s %s, tensor %s: unknown access or form", name, mm_phase_name(phase),
                           tensor->name);
        if (uses[i].form == MM_FORM_SIGN && (uses[i].access != MM_READ || !mm_dtype_table[tensor->dtype].has_sign))
            return mm_fail(MM_ERR_INVALID, "%s %s, tensor %s: MM_FORM_SIGN is only for reads of floats", name,
                           mm_phase_name(phase), tensor->name);
    }
    return MM_OK;
}

/* The first use of a tensor that an earlier use names, too; n: none. An update uses all parameters, so this takes no
 * longer than the uses are many. */
static mm_status find_twice(const mm_graph *graph, const mm_use *uses, size_t n, size_t *twice_out) {
    bool *named = calloc((size_t)graph->n_tensors + 1, sizeof *named);
    size_t i = 0;
    if (!named) return no_memory("a step's uses");
    for (; i < n && !named[uses[i].tensor]; i++) named[uses[i].tensor] = true;
    free(named);
    *twice_out = i;
    return MM_OK;
}

static mm_status check_once(const mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses, size_t n) {
    enum { FEW = 32 };
    size_t twice = 0;
    if (n > FEW) MM_TRY(find_twice(graph, uses, n, &twice));
    for (bool again = false; n <= FEW && twice < n && !again; twice += !again)
        for (size_t j = 0; j < twice; j++) again |= uses[j].tensor == uses[twice].tensor;
    if (twice == n) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "%s %s: tensor %s is named twice", graph->layers[layer].name, mm_phase_name(phase),
                   graph->tensors[uses[twice].tensor].name);
}

mm_status mm_graph_add_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses, size_t n_uses,
                            size_t workspace_bytes) {
    MM_TRY(check_open(graph, "mm_graph_add_step"));
    if (n_uses > 0) MM_TRY(mm_check_given(uses, "mm_graph_add_step", "uses"));
    if (layer < 0 || layer >= graph->n_layers || (unsigned)phase > MM_UPDATE)
        return mm_fail(MM_ERR_INVALID, "graph %s: cannot add a step: no layer %d, or no phase %d", graph->name, layer,
                       phase);
    mm_layer_info *info = &graph->layers[layer];
    if (info->step[phase] >= 0)
        return mm_fail(MM_ERR_INVALID, "graph %s: there is a step %s %s already", graph->name, info->name,
                       mm_phase_name(phase));
    if (workspace_bytes > (size_t)MAX_TENSOR_BYTES)
        return mm_fail(MM_ERR_INVALID, "%s %s: its workspace is above 2^62 bytes", info->name, mm_phase_name(phase));
    MM_TRY(check_uses(graph, layer, phase, uses, n_uses));
    MM_TRY(check_once(graph, layer, phase, uses, n_uses));
    if (!grow((void **)&graph->steps, graph->n_steps, sizeof *graph->steps)) return no_memory("a graph's steps");
    mm_use *copy = malloc((n_uses ? n_uses : 1) * sizeof *copy);
    if (!copy) return no_memory("a step's uses");
    if (n_uses) memcpy(copy, uses, n_uses * sizeof *copy);
    graph->steps[graph->n_steps] = (step){.info = {.layer = layer,
                                                   .phase = phase,
                                                   .uses = copy,
                                                   .n_uses = (int)n_uses,
                                                   .workspace_bytes = (int64_t)workspace_bytes},
                                          .uses = copy};
    info->step[phase] = graph->n_steps++;
    return MM_OK;
}

static const mm_use *find_use(const mm_step_info *info, mm_tensor tensor) {
    for (int i = 0; i < info->n_uses; i++)
        if (info->uses[i].tensor == tensor) return &info->uses[i];
    return NULL;
}

static mm_status add_pair(mm_graph *graph, mm_tensor input, mm_tensor output, bool alias) {
    MM_TRY(check_open(graph, alias ? "mm_graph_allow_alias" : "mm_graph_allow_inplace"));
    const char *what = alias ? "alias" : "in-place pair";
    if (graph->n_steps == 0)
        return mm_fail(MM_ERR_ORDER, "graph %s: an %s is declared before any step", graph->name, what);
    step *last = &graph->steps[graph->n_steps - 1];
    const char *name = graph->layers[last->info.layer].name;
    const mm_use *in = find_use(&last->info, input), *out = find_use(&last->info, output);
    if (!in || !out || in->access != MM_READ || out->access != MM_WRITE)
        return mm_fail(MM_ERR_INVALID, "%s %s: an %s needs a tensor that the step reads and one that it writes", name,
                       mm_phase_name(last->info.phase), what);
    const mm_tensor_info *a = &graph->tensors[input], *b = &graph->tensors[output];
    if (a->bytes != b->bytes)
        return mm_fail(MM_ERR_INVALID, "%s %s: %s and %s differ in size, so they cannot be an %s", name,
                       mm_phase_name(last->info.phase), a->name, b->name, what);
    if (a->ownership != MM_MANAGED || b->ownership != MM_MANAGED)
        return mm_fail(MM_ERR_INVALID, "%s %s: %s and %s are not both managed, so they cannot be an %s", name,
                       mm_phase_name(last->info.phase), a->name, b->name, what);
    if (!grow((void **)&last->pairs, last->info.n_pairs, sizeof *last->pairs)) return no_memory("a step's pairs");
    last->pairs[last->info.n_pairs++] = (mm_pair){.input = input, .output = output, .alias = alias};
    last->info.pairs = last->pairs;
    return MM_OK;
}

mm_status mm_graph_allow_inplace(mm_graph *graph, mm_tensor input, mm_tensor output) {
    return add_pair(graph, input, output, false);
}

mm_status mm_graph_allow_alias(mm_graph *graph, mm_tensor input, mm_tensor output) {
    return add_pair(graph, input, output, true);
}

mm_status mm_graph_allow_given(mm_graph *graph, mm_tensor output) {
    MM_TRY(check_open(graph, "mm_graph_allow_given"));
    if (graph->n_steps == 0)
        return mm_fail(MM_ERR_ORDER, "graph %s: a given output is declared before any step", graph->name);
    mm_step_info *last = &graph->steps[graph->n_steps - 1].info;
    const mm_use *out = find_use(last, output);
    if (last->phase != MM_FORWARD || !out || out->access != MM_WRITE || out - last->uses >= MM_GIVEN_USES ||
        graph->tensors[output].ownership != MM_MANAGED)
        return mm_fail(MM_ERR_INVALID,
                       "%s %s: only managed tensors that a forward step writes can be given, and of its first %d "
                       "uses only",
                       graph->layers[last->layer].name, mm_phase_name(last->phase), MM_GIVEN_USES);
    last->given |= UINT64_C(1) << (out - last->uses);
    return MM_OK;
}

/* Whether the step may declare, for this use, that it reads or writes a code of the tensor. */
static bool may_code(const mm_graph *graph, const mm_use *use, mm_access access) {
    const mm_tensor_info *tensor = &graph->tensors[use->tensor];
    if (tensor->ownership != MM_MANAGED || tensor->dtype != MM_F32 || use->form != MM_FORM_VALUE) return false;
    return use->access == MM_READ ? access != MM_MODIFY : use->access == MM_WRITE && access == MM_WRITE;
}

static bool is_coded_twice(const mm_step_info *info, int use, mm_access access, const char *codec) {
    for (int i = 0; i < info->n_codes; i++)
        if (info->codes[i].use == use && info->codes[i].access == access && strcmp(info->codes[i].codec, codec) == 0)
            return true;
    return false;
}

mm_status mm_graph_allow_code(mm_graph *graph, const mm_code_use *code) {
    MM_TRY(check_open(graph, "mm_graph_allow_code"));
    MM_TRY(mm_check_given(code, "mm_graph_allow_code", "code"));
    if (graph->n_steps == 0) return mm_fail(MM_ERR_ORDER, "graph %s: a code is declared before any step", graph->name);
    step *last = &graph->steps[graph->n_steps - 1];
    const char *name = graph->layers[last->info.layer].name, *phase = mm_phase_name(last->info.phase);
    const mm_use *use = find_use(&last->info, code->tensor);
    if (!use || !may_code(graph, use, code->access))
        return mm_fail(
            MM_ERR_INVALID,
            "%s %s: a code can be read only in place of managed f32 elements that the step reads, and written only of "
            "such elements that it reads or writes",
            name, phase);
    const int index = (int)(use - last->info.uses);
    const size_t length = code->codec ? strlen(code->codec) : 0;
    if (length == 0 || length >= MM_CODEC_NAME_CAPACITY || strchr(code->codec, ':'))
        return mm_fail(MM_ERR_INVALID, "%s %s: a code needs a codec's name, of 1 to %d characters and without options",
                       name, phase, MM_CODEC_NAME_CAPACITY - 1);
    if (is_coded_twice(&last->info, index, code->access, code->codec))
        return mm_fail(MM_ERR_INVALID, "%s %s: the code of %s by codec %s is declared twice", name, phase,
                       graph->tensors[code->tensor].name, code->codec);
    const bool reads = code->access == MM_READ;
    if (code->workspace_bytes > (size_t)MAX_TENSOR_BYTES || code->workspace_strips < 0 ||
        code->passes < (reads ? 1 : 0) || (!reads && (code->workspace_strips > 0 || code->passes > 0)))
        return mm_fail(MM_ERR_INVALID, "%s %s: a code's workspace or passes are out of range", name, phase);
    if (!grow((void **)&last->codes, last->info.n_codes, sizeof *last->codes)) return no_memory("a step's codes");
    mm_step_code *added = &last->codes[last->info.n_codes++];
    *added = (mm_step_code){.use = index,
                            .access = code->access,
                            .workspace_bytes = (int64_t)code->workspace_bytes,
                            .workspace_strips = code->workspace_strips,
                            .passes = code->passes};
    memcpy(added->codec, code->codec, length + 1);
    last->info.codes = last->codes;
    return MM_OK;
}

mm_status mm_graph_allow_workspace(mm_graph *graph, size_t workspace_bytes) {
    MM_TRY(check_open(graph, "mm_graph_allow_workspace"));
    if (graph->n_steps == 0)
        return mm_fail(MM_ERR_ORDER, "graph %s: a workspace is declared before any step", graph->name);
    step *last = &graph->steps[graph->n_steps - 1];
    int n = last->info.n_less;
    int64_t least = n > 0 ? last->less_bytes[n - 1] : last->info.workspace_bytes;
    if (workspace_bytes >= (size_t)least)
        return mm_fail(MM_ERR_INVALID, "%s %s: a workspace of %zu bytes is not smaller than the previous one of %lld",
                       graph->layers[last->info.layer].name, mm_phase_name(last->info.phase), workspace_bytes,
                       (long long)least);
    if (!grow((void **)&last->less_bytes, n, sizeof *last->less_bytes)) return no_memory("a step's workspaces");
    last->less_bytes[last->info.n_less++] = (int64_t)workspace_bytes;
    last->info.less_bytes = last->less_bytes;
    return MM_OK;
}

/* Why a step on the host cannot use the tensor; NULL: it can. */
static const char *not_on_host(const mm_tensor_info *tensor, const mm_use *use) {
    if (tensor->ownership != MM_PERSISTENT) return "is not persistent";
    if (tensor->shared != MM_ALLREDUCE_NOT) return "is all-reduced";
    return use->form == MM_FORM_VALUE ? NULL : "is read as signs";
}

static mm_status check_on_host(const mm_graph *graph, const mm_step_info *info) {
    const char *name = graph->layers[info->layer].name, *phase = mm_phase_name(info->phase);
    if (info->phase != MM_UPDATE)
        return mm_fail(MM_ERR_INVALID, "%s %s: only an update can run on the host", name, phase);
    if (info->workspace_bytes > 0)
        return mm_fail(MM_ERR_INVALID, "%s %s: runs on the host, so it cannot have a workspace", name, phase);
    for (int u = 0; u < info->n_uses; u++) {
        const mm_tensor_info *tensor = &graph->tensors[info->uses[u].tensor];
        const char *why = not_on_host(tensor, &info->uses[u]);
        if (why)
            return mm_fail(MM_ERR_INVALID, "%s %s: runs on the host, but tensor %s %s", name, phase, tensor->name, why);
    }
    return MM_OK;
}

mm_status mm_graph_run_on_host(mm_graph *graph) {
    MM_TRY(check_open(graph, "mm_graph_run_on_host"));
    if (graph->n_steps == 0)
        return mm_fail(MM_ERR_ORDER, "graph %s: mm_graph_run_on_host comes before any step", graph->name);
    mm_step_info *last = &graph->steps[graph->n_steps - 1].info;
    MM_TRY(check_on_host(graph, last));
    last->on_host = true;
    return MM_OK;
}

/* Marks the tensors that steps on the host use. A tensor may have been declared as all-reduced behind its step. */
static mm_status find_on_host(mm_graph *graph) {
    for (int s = 0; s < graph->n_steps; s++) {
        const mm_step_info *info = &graph->steps[s].info;
        if (!info->on_host) continue;
        MM_TRY(check_on_host(graph, info));
        for (int u = 0; u < info->n_uses; u++) graph->tensors[info->uses[u].tensor].on_host = true;
    }
    for (int t = 0; t < graph->n_tensors; t++)
        if (graph->tensors[t].on_host && graph->tensors[t].first_use == 0)
            return mm_fail(MM_ERR_INVALID, "graph %s: tensor %s is used on the host, so the first step cannot use it",
                           graph->name, graph->tensors[t].name);
    return MM_OK;
}

static mm_status account_use(mm_graph *graph, int s, const mm_use *use) {
    mm_tensor_info *tensor = &graph->tensors[use->tensor];
    const mm_step_info *info = &graph->steps[s].info;
    if (use->access != MM_WRITE && tensor->ownership == MM_MANAGED && tensor->writes == 0)
        return mm_fail(MM_ERR_INVALID, "graph %s: %s %s reads %s before anything wrote it", graph->name,
                       graph->layers[info->layer].name, mm_phase_name(info->phase), tensor->name);
    if (use->access != MM_READ) {
        if (tensor->writes++ == 0) tensor->producer = info->layer;
        tensor->last_write = s;
    }
    if (tensor->first_use < 0) tensor->first_use = s;
    tensor->last_use = s;
    if (info->phase == MM_FORWARD) tensor->last_forward = s;
    if (info->phase == MM_BACKWARD && use->access != MM_WRITE && tensor->first_backward < 0) tensor->first_backward = s;
    return MM_OK;
}

/* Checks the tensor MM_VALUES, which only the manager writes (mm.h). */
static mm_status check_values(const mm_graph *graph) {
    const int index = mm_names_find(&graph->names, MM_VALUES);
    if (index < 0) return MM_OK;
    const mm_tensor_info *values = &graph->tensors[index];
    if (values->ownership != MM_PERSISTENT || values->bytes < MM_VALUES_OWN || values->bytes > MM_VALUES_MOST)
        return mm_fail(MM_ERR_INVALID, "graph %s: tensor " MM_VALUES " must be persistent and have %d to %d bytes",
                       graph->name, MM_VALUES_OWN, MM_VALUES_MOST);
    if (values->writes > 0)
        return mm_fail(MM_ERR_INVALID, "graph %s: a step writes " MM_VALUES ", which steps may only read", graph->name);
    return MM_OK;
}

/* Checks that an update step follows the steps that write an all-reduced tensor: the sum must be there before an update
 * step uses it. */
static mm_status check_shared(const mm_graph *graph) {
    int last_update = graph->n_steps - 1;
    while (last_update >= 0 && graph->steps[last_update].info.phase != MM_UPDATE) last_update--;
    for (int t = 0; t < graph->n_tensors; t++) {
        const mm_tensor_info *tensor = &graph->tensors[t];
        const int written = tensor->last_write;
        if (tensor->shared == MM_ALLREDUCE_NOT) continue;
        if (written >= 0 && graph->steps[written].info.phase != MM_UPDATE && last_update > written) continue;
        return mm_fail(MM_ERR_INVALID,
                       "graph %s, tensor %s: is all-reduced, but no update step follows the steps that write it",
                       graph->name, tensor->name);
    }
    return MM_OK;
}

/* Adds `times` workspaces of `bytes` to the sum of all, each of which a plan places by itself. */
static mm_status add_workspaces(const mm_graph *graph, int64_t bytes, int64_t times, int64_t *total) {
    if (times > 0 && bytes > (MAX_TOTAL_BYTES - *total) / times)
        return mm_fail(MM_ERR_INVALID, "graph %s: its steps' workspaces are above 2^60 bytes together", graph->name);
    *total += bytes * times;
    return MM_OK;
}

/* A strip is at most its whole tensor. */
static mm_status check_workspaces(const mm_graph *graph) {
    int64_t total = 0;
    for (int s = 0; s < graph->n_steps; s++) {
        const mm_step_info *info = &graph->steps[s].info;
        MM_TRY(add_workspaces(graph, info->workspace_bytes, 1, &total));
        for (int c = 0; c < info->n_codes; c++) {
            const mm_step_code *code = &info->codes[c];
            MM_TRY(add_workspaces(graph, code->workspace_bytes, 1, &total));
            MM_TRY(add_workspaces(graph, graph->tensors[info->uses[code->use].tensor].bytes, code->workspace_strips,
                                  &total));
        }
    }
    return MM_OK;
}

mm_status mm_graph_freeze(mm_graph *graph) {
    MM_TRY(check_open(graph, "mm_graph_freeze"));
    if (graph->n_steps == 0) return mm_fail(MM_ERR_INVALID, "graph %s has no step", graph->name);
    MM_TRY(check_workspaces(graph));
    int64_t total = 0;
    for (int t = 0; t < graph->n_tensors; t++) {
        mm_tensor_info *tensor = &graph->tensors[t];
        if (tensor->bytes > MAX_TOTAL_BYTES - total)
            return mm_fail(MM_ERR_INVALID, "graph %s: its tensors are above 2^60 bytes together", graph->name);
        total += tensor->bytes;
        tensor->first_use = tensor->last_use = tensor->last_forward = tensor->first_backward = -1;
        tensor->producer = tensor->last_write = -1;
        tensor->writes = 0;
    }
    for (int s = 0; s < graph->n_steps; s++)
        for (int u = 0; u < graph->steps[s].info.n_uses; u++) MM_TRY(account_use(graph, s, &graph->steps[s].uses[u]));
    for (int t = 0; t < graph->n_tensors; t++)
        if (graph->tensors[t].first_use < 0)
            return mm_fail(MM_ERR_INVALID, "graph %s: no step uses tensor %s", graph->name, graph->tensors[t].name);
    MM_TRY(check_values(graph));
    MM_TRY(check_shared(graph));
    MM_TRY(find_on_host(graph));
    graph->frozen = true;
    return MM_OK;
}

mm_status mm_graph_find_tensor(const mm_graph *graph, const char *name, mm_tensor *tensor_out) {
    MM_TRY(mm_check_given(graph, "mm_graph_find_tensor", "graph"));
    MM_TRY(mm_check_given(name, "mm_graph_find_tensor", "name"));
    MM_TRY(mm_check_given(tensor_out, "mm_graph_find_tensor", "tensor_out"));
    int found = mm_names_find(&graph->names, name);
    if (found < 0) return mm_fail(MM_ERR_NOT_FOUND, "graph %s has no tensor %s", graph->name, name);
    *tensor_out = found;
    return MM_OK;
}

const char *mm_graph_name(const mm_graph *graph) { return graph->name; }
bool mm_graph_frozen(const mm_graph *graph) { return graph->frozen; }
int mm_graph_tensors(const mm_graph *graph) { return graph->n_tensors; }
int mm_graph_persistents(const mm_graph *graph) { return graph->n_persistents; }
bool mm_graph_uses_host(const mm_graph *graph) {
    for (int s = 0; s < graph->n_steps; s++)
        if (graph->steps[s].info.on_host) return true;
    return false;
}
int mm_graph_layers(const mm_graph *graph) { return graph->n_layers; }
int mm_graph_steps(const mm_graph *graph) { return graph->n_steps; }
mm_tensor mm_graph_index(const mm_graph *graph, const char *name) { return mm_names_find(&graph->names, name); }
const mm_tensor_info *mm_graph_tensor(const mm_graph *graph, mm_tensor tensor) { return &graph->tensors[tensor]; }
const mm_layer_info *mm_graph_layer(const mm_graph *graph, mm_layer layer) { return &graph->layers[layer]; }
const mm_step_info *mm_graph_step(const mm_graph *graph, int s) { return &graph->steps[s].info; }

const char *mm_graph_step_name(const mm_graph *graph, int s, char *buffer, size_t capacity) {
    if (s < 0 || s >= graph->n_steps)
        snprintf(buffer, capacity, "no step");
    else
        snprintf(buffer, capacity, "%s %s", graph->layers[graph->steps[s].info.layer].name,
                 mm_phase_name(graph->steps[s].info.phase));
    return buffer;
}
