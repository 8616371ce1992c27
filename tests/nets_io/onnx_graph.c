/* SPDX-License-Identifier: MIT */
#include "tests/nets_io/onnx_graph.h"

#include <stdlib.h>
#include <string.h>

#include "tests/nets_io/scratch.h"

static void *copy(const void *data, size_t bytes) {
    void *made = malloc(bytes ? bytes : 1);
    if (!made) abort();
    return bytes ? memcpy(made, data, bytes) : made;
}

void onnx_graph_init(onnx_graph *g, int rank, const int64_t dims[]) {
    memset(g, 0, sizeof *g);
    onnx__model_proto__init(&g->model);
    onnx__operator_set_id_proto__init(&g->opset);
    onnx__graph_proto__init(&g->graph);
    onnx__type_proto__init(&g->type);
    onnx__tensor_type_proto__init(&g->tensor_type);
    onnx__tensor_shape_proto__init(&g->shape);
    for (int i = 0; i < 2; i++) onnx__value_info_proto__init(&g->ends[i]);
    g->model.has_ir_version = g->opset.has_version = g->tensor_type.has_elem_type = 1;
    g->model.ir_version = 10;
    g->opset.version = 20;
    g->model.opset_import = g->opsets;
    g->model.n_opset_import = 1;
    g->opsets[0] = &g->opset;
    g->model.graph = &g->graph;
    g->tensor_type.elem_type = 1;
    g->tensor_type.shape = &g->shape;
    g->type.tensor_type = &g->tensor_type;
    g->ends[0].name = "x";
    g->ends[0].type = &g->type;
    g->ends[1].name = "y";
    g->input[0] = &g->ends[0];
    g->output[0] = &g->ends[1];
    g->graph.input = g->input;
    g->graph.output = g->output;
    g->graph.n_input = g->graph.n_output = 1;
    g->shape.dim = g->dim_list;
    g->shape.n_dim = (size_t)rank;
    for (int d = 0; d < rank; d++) {
        onnx__dimension_proto__init(&g->dims[d]);
        g->dim_list[d] = &g->dims[d];
        g->dims[d].has_dim_value = dims[d] >= 0;
        g->dims[d].dim_value = dims[d];
        g->dims[d].dim_param = dims[d] >= 0 ? NULL : "open";
    }
    g->graph.node = g->node_list;
    g->graph.initializer = g->tensor_list;
}

void onnx_graph_fini(onnx_graph *g) {
    for (int i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < 2; k++) free(g->texts[i][k]);
        free(g->attrs[i].name);
        free(g->attrs[i].ints);
    }
    for (int i = 0; i < g->n_tensors; i++) {
        free(g->tensors[i].name);
        free(g->tensors[i].dims);
        free(g->tensors[i].float_data);
        free(g->tensors[i].int64_data);
    }
}

/* Splits at commas; "" has none. */
static size_t split(char *text, char *names[ONNX_GRAPH_NAMES]) {
    size_t n = 0;
    for (char *next; text && *text; text = next) {
        next = strchr(text, ',');
        if (next) *next++ = '\0';
        if (n == ONNX_GRAPH_NAMES) abort();
        names[n++] = text;
    }
    return n;
}

void onnx_graph_node(onnx_graph *g, const char *op, const char *inputs, const char *outputs) {
    const int i = g->n_nodes++;
    if (i >= ONNX_GRAPH_NODES) abort();
    Onnx__NodeProto *node = g->node_list[i] = &g->nodes[i];
    onnx__node_proto__init(node);
    onnx__attribute_proto__init(&g->attrs[i]);
    g->texts[i][0] = copy(inputs, strlen(inputs) + 1);
    g->texts[i][1] = copy(outputs, strlen(outputs) + 1);
    node->op_type = (char *)op;
    node->n_input = split(g->texts[i][0], g->names[i][0]);
    node->n_output = split(g->texts[i][1], g->names[i][1]);
    node->input = g->names[i][0];
    node->output = g->names[i][1];
    node->name = node->n_output ? g->names[i][1][0] : "";
    g->attr_list[i][0] = &g->attrs[i];
    node->attribute = g->attr_list[i];
    g->graph.n_node++;
}

static Onnx__AttributeProto *last_attr(onnx_graph *g, const char *name) {
    Onnx__AttributeProto *attr = &g->attrs[g->n_nodes - 1];
    free(attr->name);
    attr->name = copy(name, strlen(name) + 1);
    g->nodes[g->n_nodes - 1].n_attribute = 1;
    return attr;
}

void onnx_graph_int(onnx_graph *g, const char *name, int64_t number) {
    Onnx__AttributeProto *attr = last_attr(g, name);
    attr->has_i = 1;
    attr->i = number;
}

void onnx_graph_ints(onnx_graph *g, const char *name, const int64_t numbers[], size_t n) {
    Onnx__AttributeProto *attr = last_attr(g, name);
    free(attr->ints);
    attr->ints = copy(numbers, n * sizeof *numbers);
    attr->n_ints = n;
}

static Onnx__TensorProto *add_tensor(onnx_graph *g, const char *name, int type, int rank, const int64_t dims[]) {
    const int i = g->n_tensors++;
    if (i >= ONNX_GRAPH_TENSORS) abort();
    Onnx__TensorProto *tensor = g->tensor_list[i] = &g->tensors[i];
    onnx__tensor_proto__init(tensor);
    tensor->name = copy(name, strlen(name) + 1);
    tensor->has_data_type = 1;
    tensor->data_type = type;
    tensor->dims = copy(dims, (size_t)rank * sizeof *dims);
    tensor->n_dims = (size_t)rank;
    g->graph.n_initializer++;
    return tensor;
}

void onnx_graph_weight(onnx_graph *g, const char *name, int rank, const int64_t dims[]) {
    Onnx__TensorProto *tensor = add_tensor(g, name, 1, rank, dims);
    size_t n = 1;
    for (int d = 0; d < rank; d++) n *= (size_t)dims[d];
    tensor->float_data = malloc(n * sizeof *tensor->float_data);
    if (!tensor->float_data) abort();
    tensor->n_float_data = n;
    for (size_t i = 0; i < n; i++) tensor->float_data[i] = 0.01f * (float)(i + 1);
}

void onnx_graph_numbers(onnx_graph *g, const char *name, int n, const int64_t numbers[]) {
    Onnx__TensorProto *tensor = add_tensor(g, name, 7, 1, &(int64_t){n});
    tensor->int64_data = copy(numbers, (size_t)n * sizeof *numbers);
    tensor->n_int64_data = (size_t)n;
}

void onnx_graph_external(onnx_graph *g, const char *name, int rank, const int64_t dims[], const char *location,
                         const char *offset) {
    Onnx__TensorProto *tensor = add_tensor(g, name, 1, rank, dims);
    const char *const texts[2][2] = {{"location", location}, {"offset", offset}};
    for (int i = 0; i < 2; i++) {
        onnx__string_string_entry_proto__init(&g->entries[i]);
        g->entries[i].key = (char *)texts[i][0];
        g->entries[i].value = (char *)texts[i][1];
        g->entry_list[i] = &g->entries[i];
    }
    tensor->external_data = g->entry_list;
    tensor->n_external_data = 2;
    tensor->has_data_location = 1;
    tensor->data_location = 1;
}

uint8_t *onnx_graph_pack(onnx_graph *g, size_t *bytes_out) {
    *bytes_out = onnx__model_proto__get_packed_size(&g->model);
    uint8_t *data = malloc(*bytes_out);
    if (!data) abort();
    onnx__model_proto__pack(&g->model, data);
    return data;
}

void onnx_graph_save(onnx_graph *g, const char *path) {
    size_t bytes;
    uint8_t *data = onnx_graph_pack(g, &bytes);
    scratch_write(path, data, bytes);
    free(data);
}
