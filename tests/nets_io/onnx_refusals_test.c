/* SPDX-License-Identifier: MIT */
/* What an ONNX file may get wrong, and graphs that have no layers here: one line names file and node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/net_file.h"
#include "nets/io/onnx/onnx.h"
#include "tests/core/test_case.h"
#include "tests/nets_io/onnx_graph.h"
#include "tests/nets_io/scratch.h"

/* ---------------------------------------------------------------- refusals */

/* Loading the graph fails with a message that has `expected` in it. */
static void refused(onnx_graph *g, const char *expected) {
    nets_net *net = NULL;
    size_t bytes;
    uint8_t *data = onnx_graph_pack(g, &bytes);
    const mm_status status = nets_onnx_parse("made.onnx", data, (int64_t)bytes, &net);
    if (status == MM_OK) fail_msg("taken, but should be refused: %s", expected);
    if (!strstr(mm_last_error(), expected)) fail_msg("'%s' is not in: %s", expected, mm_last_error());
    if (strchr(mm_last_error(), '\n')) fail_msg("not one line: %s", mm_last_error());
    assert_ptr_equal(strstr(mm_last_error(), "made.onnx"), mm_last_error());
    free(data);
    onnx_graph_fini(g);
}

/* A graph of images [1, 4, 8, 8] with a weight `w` of 4 x 4 x 3 x 3. */
static void begin_images(onnx_graph *g) {
    onnx_graph_init(g, 4, (int64_t[]){1, 4, 8, 8});
    onnx_graph_weight(g, "w", 4, (int64_t[]){4, 4, 3, 3});
}

TEST_CASE(missing_operations_are_named_all_at_once_with_their_nodes) {
    onnx_graph g;
    begin_images(&g);
    onnx_graph_node(&g, "Einsum", "x", "a");
    onnx_graph_node(&g, "NonZero", "a", "b");
    onnx_graph_node(&g, "Einsum", "b", "y");
    refused(&g, "no layer here computes Einsum (node a), NonZero (node b) ('mm nets --ops'");
}

TEST_CASE(a_layer_that_differs_from_the_node_is_refused_by_name) {
    static const struct {
        const char *op, *inputs, *attr;
        int64_t numbers[8];
        int n;
        const char *expected;
    } cases[] = {
        {"Conv", "x,w", "pads", {0, 0, 1, 1}, 4, "node y (Conv): its padding differs on both sides"},
        {"Conv", "x,w", "strides", {1, 1, 1}, 3, "node y (Conv): strides has 3 numbers, not 2"},
        {"Conv", "x,w", "strides", {0, 1}, 2, "node y (Conv): a kernel, stride or dilation is out of range"},
        {"Conv", "x,w", "group", {2}, 0, "y.weight has 144 elements, must have 72"},
        {"Conv", "x", NULL, {0}, 0, "node y (Conv): its input 1 must be 4-dimensional weights"},
        {"Conv", "x,x", NULL, {0}, 0, "node y (Conv): its input x is computed from the data"},
        {"MaxPool", "x", "dilations", {2, 2}, 2, "node y (MaxPool): a kernel, stride"},
        {"Transpose", "x", "perm", {0, 2, 2, 1}, 4, "node y (Transpose): its order is no order"},
        {"Transpose", "x", "perm", {0, 1}, 2, "node y (Transpose): its order is not its input's"},
        {"MatMul", "x,w", NULL, {0}, 0, "node y (MatMul): its weight must be a constant matrix"},
        {"MatMul", "x,x", NULL, {0}, 0, "node y (MatMul): layers here multiply maps with weights"},
        {"Tanh", "x", NULL, {0}, 0, "the function of single elements that gives its input y is no activation"},
        {"Sub", "x,x", NULL, {0}, 0, "is no activation"},
        {"Add", "x,w", NULL, {0}, 0, "node y (Add): adds a constant of 144 numbers that is neither a bias"},
        {"Mul", "x,w", NULL, {0}, 0, "node y (Mul): multiplies a map by a constant of 144 numbers"},
        {"Flatten", "x", NULL, {0}, 0, "its output is its input"},
        {"Softmax", "x", "axis", {3}, 0, "node y (Softmax): it is supported over channels"},
        {"Concat", "x,x", "axis", {2}, 0, "node y (Concat): layers here join channels only"},
        {"Concat", "w,x", "axis", {1}, 0, "node y (Concat): layers here join channels, or put one learned token"},
        {"ReduceMean", "x", NULL, {0}, 0, "node y (ReduceMean): layers here compute the mean of all pixels"},
        {"Gather", "x,x", NULL, {0}, 0, "is computed from the data"},
        {"LayerNormalization", "x,w", NULL, {0}, 0, "its last axis is not the channels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_graph g;
        begin_images(&g);
        onnx_graph_node(&g, cases[i].op, cases[i].inputs, "y");
        if (cases[i].n)
            onnx_graph_ints(&g, cases[i].attr, cases[i].numbers, (size_t)cases[i].n);
        else if (cases[i].attr)
            onnx_graph_int(&g, cases[i].attr, cases[i].numbers[0]);
        refused(&g, cases[i].expected);
    }
}

TEST_CASE(a_part_of_the_channels_is_refused_where_a_layer_reads_it) {
    onnx_graph g;
    begin_images(&g);
    onnx_graph_node(&g, "Split", "x", "a,b");
    onnx_graph_int(&g, "axis", 1);
    onnx_graph_node(&g, "Relu", "a", "c");
    onnx_graph_node(&g, "GlobalAveragePool", "c", "y");
    refused(&g, "node y (GlobalAveragePool): its input c is a part of the channels of a map");
}

TEST_CASE(padding_and_softmax_within_the_graph_are_refused) {
    onnx_graph g;
    begin_images(&g);
    onnx_graph_numbers(&g, "pads", 8, (int64_t[]){0, 0, 1, 1, 0, 0, 1, 1});
    onnx_graph_node(&g, "Pad", "x,pads", "a");
    onnx_graph_node(&g, "GlobalAveragePool", "a", "y");
    refused(&g, "node y (GlobalAveragePool): zeros around a map are supported before a convolution");
    begin_images(&g);
    onnx_graph_node(&g, "Softmax", "x", "a");
    onnx_graph_int(&g, "axis", 1);
    onnx_graph_node(&g, "GlobalAveragePool", "a", "y");
    refused(&g, "node y (GlobalAveragePool): a softmax is supported of the output only");
}

TEST_CASE(a_matrix_that_two_layers_share_is_refused) {
    onnx_graph g;
    onnx_graph_init(&g, 2, (int64_t[]){1, 4});
    onnx_graph_weight(&g, "fc.weight", 2, (int64_t[]){4, 4});
    onnx_graph_node(&g, "Gemm", "x,fc.weight", "a");
    onnx_graph_node(&g, "Gemm", "a,fc.weight", "y");
    refused(&g, "two layers have the weight fc.weight");
}

TEST_CASE(graphs_that_are_no_networks_are_refused) {
    onnx_graph g;
    onnx_graph_init(&g, 4, (int64_t[]){1, 4, -1, 8});
    onnx_graph_node(&g, "Relu", "x", "y");
    refused(&g, "dimension 2 of input x is not fixed");
    onnx_graph_init(&g, 5, (int64_t[]){1, 4, 8, 8, 8});
    onnx_graph_node(&g, "Relu", "x", "y");
    refused(&g, "input x has 5 dimensions");
    begin_images(&g);
    onnx_graph_node(&g, "Relu", "x", "z");
    refused(&g, "no node gives its output");
    begin_images(&g);
    onnx_graph_node(&g, "Relu", "w", "y");
    refused(&g, "its graph has no input");
    begin_images(&g);
    onnx_graph_node(&g, "Relu", "x", "y");
    onnx_graph_node(&g, "Relu", "x", "y");
    refused(&g, "its output y is given twice");
    begin_images(&g);
    onnx_graph_node(&g, "Relu", "x", "a");
    onnx_graph_node(&g, "Conv", "z,w", "y");
    refused(&g, "node y (Conv): no earlier node gives its input z");
    begin_images(&g);
    g.opset.version = 11;
    onnx_graph_node(&g, "Relu", "x", "y");
    refused(&g, "export again with opset_version=13");
}

TEST_CASE(constants_that_are_damaged_are_refused) {
    onnx_graph g;
    begin_images(&g);
    onnx_graph_node(&g, "Constant", "", "a");
    onnx_graph_node(&g, "Add", "x,a", "y");
    refused(&g, "node a (Constant): it has no value");
    begin_images(&g);
    g.tensors[0].dims[0] = 5;
    onnx_graph_node(&g, "Conv", "x,w", "y");
    refused(&g, "constant w: it has fewer or more");
    begin_images(&g);
    g.tensors[0].data_type = 8; /* text */
    onnx_graph_node(&g, "Conv", "x,w", "y");
    refused(&g, "constant w: its elements are of ONNX's type 8");
    begin_images(&g);
    g.tensors[0].dims[0] = INT64_MAX;
    onnx_graph_node(&g, "Conv", "x,w", "y");
    refused(&g, "constant w: its shape is no shape");
    begin_images(&g);
    onnx_graph_numbers(&g, "shape", 2, (int64_t[]){1 << 20, 1 << 20});
    onnx_graph_node(&g, "ConstantOfShape", "shape", "a");
    onnx_graph_node(&g, "Add", "x,a", "y");
    refused(&g, "node a (ConstantOfShape): a computed constant of more than");
}

TEST_CASE(what_is_no_onnx_file_is_refused) {
    char folder[PATH_MAX], file[PATH_MAX];
    nets_net *net;
    scratch_create(folder);
    scratch_join(folder, "made.onnx", file);
    scratch_write(file, "hello", 5);
    assert_int_equal(nets_onnx_load(file, &net), MM_ERR_FORMAT);
    scratch_write(file, "", 0);
    assert_int_equal(nets_onnx_load(file, &net), MM_ERR_FORMAT);
    assert_int_equal(nets_onnx_load(folder, &net), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), "not a regular file"));
    assert_int_equal(nets_open("model.onnx", &net), MM_ERR_NOT_FOUND);
    assert_non_null(strstr(mm_last_error(), "is given as onnx:model.onnx"));
    scratch_remove(folder);
}

/* Attention whose mask, scale or order no layer here has. */
static void begin_attention(onnx_graph *g) {
    onnx_graph_init(g, 3, (int64_t[]){1, 4, 6});
    onnx_graph_numbers(g, "heads", 4, (int64_t[]){1, 4, 2, 3});
    onnx_graph_weight(g, "mask", 2, (int64_t[]){4, 4}); /* numbers that are no mask */
    const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        char weight[16], product[16], split[16];
        snprintf(weight, sizeof weight, "w%s", names[i]);
        snprintf(product, sizeof product, "p%s", names[i]);
        snprintf(split, sizeof split, "s%s", names[i]);
        onnx_graph_weight(g, weight, 2, (int64_t[]){6, 6});
        char inputs[64];
        snprintf(inputs, sizeof inputs, "x,%s", weight);
        onnx_graph_node(g, "MatMul", inputs, product);
        snprintf(inputs, sizeof inputs, "%s,heads", product);
        onnx_graph_node(g, "Reshape", inputs, split);
        onnx_graph_node(g, "Transpose", split, names[i]);
        onnx_graph_ints(g, "perm", i == 1 ? (int64_t[]){0, 2, 3, 1} : (int64_t[]){0, 2, 1, 3}, 4);
    }
    onnx_graph_node(g, "MatMul", "q,k", "scores");
}

TEST_CASE(attention_that_no_layer_computes_is_refused) {
    onnx_graph g;
    begin_attention(&g);
    onnx_graph_node(&g, "Softmax", "scores", "shares");
    onnx_graph_node(&g, "MatMul", "shares,v", "y");
    refused(&g, "node shares (Softmax): attention scales by 1; layers here by 1 / sqrt(3)");
    begin_attention(&g);
    onnx_graph_node(&g, "Add", "scores,mask", "y");
    refused(&g, "node y (Add): attention's mask adds");
    begin_attention(&g);
    onnx_graph_node(&g, "Relu", "scores", "y");
    refused(&g, "no layer here takes its input scores, a part of attention");
    begin_attention(&g);
    onnx_graph_node(&g, "MatMul", "q,v", "y");
    refused(&g, "node y (MatMul): layers here multiply maps with weights, and queries");
}
