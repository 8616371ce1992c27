/* SPDX-License-Identifier: MIT */
#include "tests/core/small_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

mm_tensor small_tensor(mm_graph *graph, const char *name, mm_tensor_kind kind, mm_ownership ownership, int64_t bytes) {
    mm_tensor_desc desc = {
        .name = name, .kind = kind, .ownership = ownership, .dtype = MM_F32, .rank = 1, .dims = {bytes / 4}};
    mm_tensor tensor = -1;
    assert_int_equal(mm_graph_add_tensor(graph, &desc, &tensor), MM_OK);
    return tensor;
}

mm_layer small_layer(mm_graph *graph, const char *name, mm_layer_kind kind) {
    mm_layer layer = -1;
    assert_int_equal(mm_graph_add_layer(graph, name, kind, &layer), MM_OK);
    return layer;
}

void small_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses, size_t n, size_t workspace_bytes) {
    assert_int_equal(mm_graph_add_step(graph, layer, phase, uses, n, workspace_bytes), MM_OK);
}

#define STEP(graph, layer, phase, workspace, ...)                                                                      \
    small_step(graph, layer, phase, (const mm_use[]){__VA_ARGS__},                                                     \
               sizeof((const mm_use[]){__VA_ARGS__}) / sizeof(mm_use), workspace)

small_graph small_graph_create(void) {
    small_graph g;
    assert_int_equal(mm_graph_create("small", &g.graph), MM_OK);
    g.images = small_tensor(g.graph, "images", MM_INPUT, MM_EXTERNAL, SMALL_IMAGE_BYTES);
    g.weight = small_tensor(g.graph, "weight", MM_WEIGHT, MM_PERSISTENT, SMALL_WEIGHT_BYTES);
    g.d_weight = small_tensor(g.graph, "d_weight", MM_WEIGHT_GRADIENT, MM_PERSISTENT, SMALL_WEIGHT_BYTES);
    g.loss = small_tensor(g.graph, "loss", MM_STATE, MM_PERSISTENT, 4);
    g.map = small_tensor(g.graph, "map", MM_FEATURE_MAP, MM_MANAGED, SMALL_MAP_BYTES);
    g.out = small_tensor(g.graph, "out", MM_FEATURE_MAP, MM_MANAGED, SMALL_MAP_BYTES);
    g.d_out = small_tensor(g.graph, "d_out", MM_GRADIENT_MAP, MM_MANAGED, SMALL_MAP_BYTES);
    g.d_map = small_tensor(g.graph, "d_map", MM_GRADIENT_MAP, MM_MANAGED, SMALL_MAP_BYTES);
    mm_layer conv = small_layer(g.graph, "conv", MM_LAYER_CONV);
    mm_layer relu = small_layer(g.graph, "relu", MM_LAYER_RELU);
    mm_layer loss = small_layer(g.graph, "loss", MM_LAYER_LOSS);
    STEP(g.graph, conv, MM_FORWARD, 0, {g.images, MM_READ, MM_FORM_VALUE}, {g.weight, MM_READ, MM_FORM_VALUE},
         {g.map, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, relu, MM_FORWARD, 0, {g.map, MM_READ, MM_FORM_VALUE}, {g.out, MM_WRITE, MM_FORM_VALUE});
    assert_int_equal(mm_graph_allow_inplace(g.graph, g.map, g.out), MM_OK);
    STEP(g.graph, loss, MM_FORWARD, 0, {g.out, MM_READ, MM_FORM_VALUE}, {g.loss, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, loss, MM_BACKWARD, 0, {g.out, MM_READ, MM_FORM_VALUE}, {g.d_out, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, relu, MM_BACKWARD, 0, {g.out, MM_READ, MM_FORM_SIGN}, {g.d_out, MM_READ, MM_FORM_VALUE},
         {g.d_map, MM_WRITE, MM_FORM_VALUE});
    assert_int_equal(mm_graph_allow_inplace(g.graph, g.d_out, g.d_map), MM_OK);
    STEP(g.graph, conv, MM_BACKWARD, 1000, {g.images, MM_READ, MM_FORM_VALUE}, {g.d_map, MM_READ, MM_FORM_VALUE},
         {g.d_weight, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, conv, MM_UPDATE, 0, {g.d_weight, MM_READ, MM_FORM_VALUE}, {g.weight, MM_MODIFY, MM_FORM_VALUE});
    assert_int_equal(mm_graph_freeze(g.graph), MM_OK);
    return g;
}
