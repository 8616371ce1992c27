/* SPDX-License-Identifier: MIT */
/* The message's nodes and tensors as lists, linked by their names; and the graph's input. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

/* Chosen: as many nodes as a net may have layers, and four tensors a node. */
enum { OLDEST_OPSET = 13, NODES_MOST = 1 << 16, VALUES_MOST = 4 * NODES_MOST };

/* The value of that name, made if it is new; there is room for it. */
static mm_status value_of(onnx_import *m, const char *name, int *value_out) {
    int value = mm_names_find(&m->names, name);
    if (value < 0) {
        value = m->n_values++;
        m->values[value].name = name;
        MM_TRY(mm_names_add(&m->names, name, value));
    }
    *value_out = value;
    return MM_OK;
}

static mm_status link_node(onnx_import *m, const Onnx__NodeProto *proto, int *n_links) {
    onnx_node *node = &m->nodes[m->n_nodes++];
    *node = (onnx_node){.proto = proto,
                        .op = proto->op_type ? proto->op_type : "",
                        .first_value = *n_links,
                        .n_inputs = (int)proto->n_input,
                        .n_outputs = (int)proto->n_output};
    node->name = proto->name && *proto->name            ? proto->name
                 : proto->n_output && *proto->output[0] ? proto->output[0]
                                                        : node->op;
    for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const char *name = i < node->n_inputs ? proto->input[i] : proto->output[i - node->n_inputs];
        int value = -1;
        if (*name) {
            MM_TRY(value_of(m, name, &value));
            m->values[value].uses += i < node->n_inputs;
        }
        m->links[(*n_links)++] = value;
    }
    return MM_OK;
}

static bool is_initializer(const onnx_import *m, const char *name) {
    const int value = mm_names_find(&m->names, name);
    return value >= 0 && m->values[value].initializer;
}

/* The graph's input: its shape becomes the data, draft 0. */
static mm_status take_input(onnx_import *m, const Onnx__ValueInfoProto *info) {
    const Onnx__TensorTypeProto *type = info->type ? info->type->tensor_type : NULL;
    const char *name = info->name;
    if (!type || !type->shape) return mm_fail(MM_ERR_UNSUPPORTED, "%s: input %.64s has no shape", m->path, name);
    const int rank = (int)type->shape->n_dim;
    m->tokens = !onnx_is_real(type->elem_type);
    int64_t dims[ONNX_RANK_MAX] = {0};
    if (m->tokens ? rank != 2 : rank < 2 || rank > 4)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "%s: input %.64s has %d dimensions; here it is [n, channels, height, width], [n, tokens, "
                       "channels], [n, channels], or whole numbers of [n, tokens]",
                       m->path, name, rank);
    for (int d = 0; d < rank; d++) {
        const Onnx__DimensionProto *dim = type->shape->dim[d];
        dims[d] = dim->has_dim_value ? dim->dim_value : d == 0 ? 1 : 0;
        if (dims[d] < 1 || dims[d] > INT32_MAX)
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "%s: dimension %d of input %.64s is not fixed%s%.32s; export with fixed sizes of all but "
                           "the batch",
                           m->path, d, name, dim->dim_param ? ": " : "", dim->dim_param ? dim->dim_param : "");
    }
    nets_shape shape = {3, {1, 1, dims[1]}};
    if (m->tokens) shape = (nets_shape){3, {1, dims[1], 1}};
    if (rank == 3) shape = (nets_shape){3, {1, dims[1], dims[2]}};
    if (rank == 4) shape = (nets_shape){3, {dims[2], dims[3], dims[1]}};
    m->batch = dims[0];
    int value, draft;
    MM_TRY(value_of(m, name, &value));
    MM_TRY(onnx_draft_special(m, NULL, ONNX_LAYER, &shape, -1, &draft));
    onnx_view view = onnx_view_map(&shape, m->batch, rank == 4 ? 4 : 2);
    if (m->tokens || rank == 3) {
        view = (onnx_view){rank, 0, {onnx_dim_of(m->batch, nets_shape_elems(&shape))}};
        view.dims[1] = onnx_dim_of(dims[1], shape.dims[2]);
        if (rank == 3) view.dims[2] = onnx_dim_of(dims[2], 1);
    }
    onnx_give_map(&m->values[value], draft, &view);
    return MM_OK;
}

static mm_status take_inputs(onnx_import *m, const Onnx__GraphProto *graph) {
    const Onnx__ValueInfoProto *input = NULL;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfoProto *info = graph->input[i];
        if (!info->name || is_initializer(m, info->name)) continue; /* old files list initializers, too */
        const int value = mm_names_find(&m->names, info->name);
        if (value < 0) continue; /* no node reads it */
        if (input)
            return mm_fail(MM_ERR_UNSUPPORTED, "%s: two inputs, %.64s and %.64s; networks here have one", m->path,
                           input->name, info->name);
        input = info;
    }
    if (!input) return mm_fail(MM_ERR_FORMAT, "%s: its graph has no input", m->path);
    return take_input(m, input);
}

/* Messages are one line, and have names in them. */
static void make_line(char *text) {
    for (; text && *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7F) *text = '?';
}

static void make_lines(Onnx__GraphProto *graph) {
    for (size_t i = 0; i < graph->n_node; i++) {
        Onnx__NodeProto *node = graph->node[i];
        make_line(node->name);
        make_line(node->op_type);
        for (size_t k = 0; k < node->n_input; k++) make_line(node->input[k]);
        for (size_t k = 0; k < node->n_output; k++) make_line(node->output[k]);
        for (size_t k = 0; k < node->n_attribute; k++) {
            make_line(node->attribute[k]->name);
            if (node->attribute[k]->t) make_line(node->attribute[k]->t->name);
        }
    }
    for (size_t i = 0; i < graph->n_initializer; i++) {
        make_line(graph->initializer[i]->name);
        for (size_t k = 0; k < graph->initializer[i]->n_external_data; k++)
            make_line(graph->initializer[i]->external_data[k]->value);
    }
    for (size_t i = 0; i < graph->n_input; i++) {
        Onnx__ValueInfoProto *input = graph->input[i];
        make_line(input->name);
        if (!input->type || !input->type->tensor_type || !input->type->tensor_type->shape) continue;
        for (size_t d = 0; d < input->type->tensor_type->shape->n_dim; d++)
            make_line(input->type->tensor_type->shape->dim[d]->dim_param);
    }
    for (size_t i = 0; i < graph->n_output; i++) make_line(graph->output[i]->name);
}

static mm_status link_all(onnx_import *m, const Onnx__GraphProto *graph) {
    size_t n_links = 0;
    for (size_t i = 0; i < graph->n_node; i++) n_links += graph->node[i]->n_input + graph->node[i]->n_output;
    const size_t n_values = n_links + graph->n_initializer + graph->n_input + 1;
    if (graph->n_node > NODES_MOST || n_values > VALUES_MOST)
        return mm_fail(MM_ERR_UNSUPPORTED, "%s: more than %d nodes or %d tensors", m->path, NODES_MOST, VALUES_MOST);
    m->values = calloc(n_values, sizeof *m->values);
    m->links = calloc(n_links + 1, sizeof *m->links);
    m->nodes = calloc(graph->n_node + 1, sizeof *m->nodes);
    m->joined = calloc(3 * n_links + 1, sizeof *m->joined); /* attention joins three where it has two inputs */
    m->initializers = calloc(graph->n_initializer + 1, sizeof *m->initializers);
    if (!m->values || !m->links || !m->nodes || !m->joined || !m->initializers)
        return mm_fail(MM_ERR_NOMEM, "%s: no memory for its nodes", m->path);
    int linked = 0, value;
    for (size_t i = 0; i < graph->n_node; i++) MM_TRY(link_node(m, graph->node[i], &linked));
    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (!graph->initializer[i]->name) continue;
        MM_TRY(value_of(m, graph->initializer[i]->name, &value));
        m->values[value].kind = ONNX_CONSTANT;
        m->initializers[i].proto = graph->initializer[i];
        m->values[value].initializer = &m->initializers[i];
    }
    MM_TRY(take_inputs(m, graph));
    m->output = graph->n_output && graph->output[0]->name ? mm_names_find(&m->names, graph->output[0]->name) : -1;
    if (m->output < 0) return mm_fail(MM_ERR_FORMAT, "%s: no node gives its output", m->path);
    m->values[m->output].uses++;
    return MM_OK;
}

mm_status onnx_model_link(onnx_import *m) {
    for (size_t i = 0; i < m->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = m->model->opset_import[i];
        if (!set->domain || !*set->domain || strcmp(set->domain, "ai.onnx") == 0) m->opset = set->version;
    }
    if (!m->model->graph || !m->opset) return mm_fail(MM_ERR_FORMAT, "%s: not an ONNX file, or damaged", m->path);
    if (m->opset < OLDEST_OPSET)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "%s: its operations are of version %lld; export again with opset_version=%d or a later one",
                       m->path, (long long)m->opset, OLDEST_OPSET);
    make_lines(m->model->graph);
    return link_all(m, m->model->graph);
}
