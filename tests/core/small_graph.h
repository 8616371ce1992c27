/* SPDX-License-Identifier: MIT */
/* A network small enough to plan by hand: conv, relu, loss, and their backward steps. */
#ifndef TESTS_CORE_SMALL_GRAPH_H
#define TESTS_CORE_SMALL_GRAPH_H

#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"

enum { SMALL_MAP_BYTES = 4000, SMALL_IMAGE_BYTES = 1200, SMALL_WEIGHT_BYTES = 64 };

/* step        reads                    writes
 * CONV_F      images weight            map
 * RELU_F      map                      out        (may be written over map)
 * LOSS_F      out                      loss
 * LOSS_B      out                      d_out
 * RELU_B      out (sign) d_out         d_map      (may be written over d_out)
 * CONV_B      images d_map             d_weight   1000 bytes of workspace
 * UPDATE      d_weight                 weight (modified) */
enum { CONV_F, RELU_F, LOSS_F, LOSS_B, RELU_B, CONV_B, UPDATE, SMALL_STEPS };

typedef struct small_graph {
    mm_graph *graph;
    mm_tensor images, weight, d_weight, loss; /* external, and persistent */
    mm_tensor map, out, d_out, d_map;         /* managed, floats, SMALL_MAP_BYTES each */
} small_graph;

/* Creates the frozen graph; a failure fails the test. */
small_graph small_graph_create(void);

/* Declarations; a failure fails the test. Tensors are vectors of f32. */
mm_tensor small_tensor(mm_graph *graph, const char *name, mm_tensor_kind kind, mm_ownership ownership, int64_t bytes);
mm_layer small_layer(mm_graph *graph, const char *name, mm_layer_kind kind);
void small_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses, size_t n, size_t workspace_bytes);

#endif
