/* SPDX-License-Identifier: MIT */
/* The work of a graph's steps, from which a machine's rates give their times (machine.h says how it is counted). */
#ifndef TOOLS_FACTS_MACHINE_WORK_H
#define TOOLS_FACTS_MACHINE_WORK_H

#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"

/* The product of matrices that a layer computes. */
typedef struct machine_product {
    double multiply_adds; /* of the forward step; 0: the layer is no product */
    double outputs;       /* elements of the output; of a loss with a product: of its scores */
    bool linear, winograd, attention;
    mm_dtype type; /* of the maps */
    const mm_tensor_info *x, *w, *y;
    const mm_tensor_info *filtered; /* convolution: y, or x if transposed: a filter is applied for each element of it */
} machine_product;

/* A layer's product; multiply_adds 0: it has none. The tensors are the graph's. */
machine_product machine_product_of(const mm_graph *graph, mm_layer layer);

/* The multiply-adds of a step as a multiple of multiply_adds of its layer's product. A loss with a product computes
 * both gradients in its forward step; of frozen weights there is none. An attention has two products forward, and five
 * backward, as it computes its scores again. */
double machine_times(const mm_graph *graph, const mm_step_info *step);
/* Whether a backward step computes two gradients: of the weights and of the input. */
bool machine_is_twice(const mm_graph *graph, const mm_step_info *step);

/* Bytes of the tensors that a step reads and writes; 0: its outputs only share storage. */
double machine_traffic_bytes(const mm_graph *graph, const mm_step_info *step);

double machine_elems(const mm_tensor_info *tensor);

#endif
