/* SPDX-License-Identifier: MIT */
/* ONNX graphs made by tests. The graph's input is "x", its output "y". */
#ifndef TESTS_NETS_IO_ONNX_GRAPH_H
#define TESTS_NETS_IO_ONNX_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include <onnx.pb-c.h>

enum { ONNX_GRAPH_NODES = 32, ONNX_GRAPH_TENSORS = 16, ONNX_GRAPH_NAMES = 8, ONNX_GRAPH_RANK = 8 };

typedef struct onnx_graph {
    Onnx__ModelProto model;
    Onnx__OperatorSetIdProto opset, *opsets[1]; /* version 20 */
    Onnx__GraphProto graph;
    Onnx__ValueInfoProto ends[2], *input[1], *output[1];
    Onnx__TypeProto type;
    Onnx__TensorTypeProto tensor_type;
    Onnx__TensorShapeProto shape;
    Onnx__DimensionProto dims[ONNX_GRAPH_RANK], *dim_list[ONNX_GRAPH_RANK];
    Onnx__NodeProto nodes[ONNX_GRAPH_NODES], *node_list[ONNX_GRAPH_NODES];
    Onnx__AttributeProto attrs[ONNX_GRAPH_NODES], *attr_list[ONNX_GRAPH_NODES][1];
    char *names[ONNX_GRAPH_NODES][2][ONNX_GRAPH_NAMES], *texts[ONNX_GRAPH_NODES][2];
    Onnx__TensorProto tensors[ONNX_GRAPH_TENSORS], *tensor_list[ONNX_GRAPH_TENSORS];
    Onnx__StringStringEntryProto entries[2], *entry_list[2];
    int n_nodes, n_tensors;
} onnx_graph;

/* An input of floats. A dimension of -1 is open. The graph must not be moved. */
void onnx_graph_init(onnx_graph *g, int rank, const int64_t dims[]);
void onnx_graph_fini(onnx_graph *g);

/* Appends a node called as its first output. Inputs and outputs are separated by commas. */
void onnx_graph_node(onnx_graph *g, const char *op, const char *inputs, const char *outputs);
/* Gives the last node its one attribute. */
void onnx_graph_int(onnx_graph *g, const char *name, int64_t number);
void onnx_graph_ints(onnx_graph *g, const char *name, const int64_t numbers[], size_t n);

/* Adds a constant: floats 0.01, 0.02, ...; whole numbers [n]; or floats in another file, whose texts are borrowed. */
void onnx_graph_weight(onnx_graph *g, const char *name, int rank, const int64_t dims[]);
void onnx_graph_numbers(onnx_graph *g, const char *name, int n, const int64_t numbers[]);
void onnx_graph_external(onnx_graph *g, const char *name, int rank, const int64_t dims[], const char *location,
                         const char *offset);

/* The graph as a file's bytes; the caller frees them. */
uint8_t *onnx_graph_pack(onnx_graph *g, size_t *bytes_out);
void onnx_graph_save(onnx_graph *g, const char *path);

#endif
