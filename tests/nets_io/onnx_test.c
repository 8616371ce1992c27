/* SPDX-License-Identifier: MIT */
/* Networks from ONNX files: their scores are onnxruntime's (references/onnx_files.py), their weights' names are the
 * modules', and what has no layer here is refused with its node. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/init.h"
#include "nets/io/net_file.h"
#include "nets/io/onnx/onnx.h"
#include "nets/io/safetensors.h"
#include "tests/core/test_case.h"
#include "tests/nets_io/onnx_graph.h"
#include "tests/nets_io/onnx_run.h"
#include "tests/nets_io/scratch.h"

#define REFERENCES "tests/nets_io/references/"

static nets_net *load(const char *name) {
    char path[256];
    nets_net *net;
    snprintf(path, sizeof path, "onnx:" REFERENCES "%s.onnx", name);
    if (nets_open(path, &net) != MM_OK) fail_msg("%s: %s", name, mm_last_error());
    return net;
}

/* ---------------------------------------------------------------- scores */

/* onnx_files.py's `number`. */
static float number(int64_t seed, int64_t i) { return (float)((i * 7919 + seed * 104729) % 2003 - 1001) / 1001.0f; }

static float *inputs_of(const nets_net *net, int64_t batch) {
    const int64_t n = batch * nets_shape_elems(&nets_net_layer(net, 0)->shape);
    float *inputs = malloc((size_t)n * sizeof *inputs);
    assert_non_null(inputs);
    for (int64_t i = 0; i < n; i++) inputs[i] = nets_net_tokens(net) ? (float)(i * 5 % 23) : number(1, i);
    return inputs;
}

/* log(sum of e^x) of a row. */
static double log_sum(const float *row, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)row[i]);
    return log(sum);
}

/* Compares with the recorded scores; of a graph that ends in a softmax, with those before it. */
static void check_scores(const char *name) {
    enum { BATCH = 2 };
    nets_safetensors_file *file;
    nets_net *net = load(name);
    const int64_t classes = nets_net_classes(net);
    const bool channels_last = strcmp(name, "heads") == 0; /* [n, tokens, channels] */
    float *inputs = inputs_of(net, BATCH);
    int64_t elems;
    float *got = onnx_run(net, BATCH, inputs, channels_last, &elems);
    if (nets_safetensors_open(REFERENCES "scores.safetensors", &file) != MM_OK) fail_msg("%s", mm_last_error());
    const nets_safetensors_tensor *tensor = nets_safetensors_find(file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->dims[0] * tensor->dims[1], elems);
    float *expected = malloc((size_t)elems * sizeof *expected);
    assert_non_null(expected);
    memcpy(expected, tensor->data, (size_t)elems * sizeof *expected);
    const bool shares = strncmp(name, "images", 6) == 0;
    for (int64_t i = 0; i < elems; i++) {
        const int64_t row = i / classes * classes;
        const double a = (double)got[i] - log_sum(got + row, classes);
        const double b = shares ? log((double)expected[i]) : (double)expected[i] - log_sum(expected + row, classes);
        if (!(fabs(a - b) <= 3e-6 * (1 + fabs(b)))) fail_msg("%s: score %d is %.8g, not %.8g", name, (int)i, a, b);
    }
    free(expected);
    free(got);
    free(inputs);
    nets_safetensors_close(file);
    nets_net_destroy(net);
}

TEST_CASE(images_of_the_older_exporter_have_onnxruntimes_scores) { check_scores("images_older"); }
TEST_CASE(images_of_the_newer_exporter_have_onnxruntimes_scores) { check_scores("images_newer"); }
TEST_CASE(images_exported_in_training_have_torchs_scores_in_evaluation) { check_scores("images_training"); }
TEST_CASE(patches_of_the_older_exporter_have_onnxruntimes_scores) { check_scores("patches_older"); }
TEST_CASE(patches_of_the_newer_exporter_have_onnxruntimes_scores) { check_scores("patches_newer"); }
TEST_CASE(tokens_of_written_out_attention_have_onnxruntimes_scores) { check_scores("tokens_older"); }
TEST_CASE(tokens_of_an_open_batch_have_onnxruntimes_scores) { check_scores("tokens_newer"); }
TEST_CASE(tokens_of_torchs_attention_have_onnxruntimes_scores) { check_scores("tokens_sdpa"); }
TEST_CASE(tokens_of_onnxs_attention_have_onnxruntimes_scores) { check_scores("tokens_attention"); }
TEST_CASE(norms_and_padding_have_onnxruntimes_scores) { check_scores("norms"); }
TEST_CASE(full_attention_by_width_has_onnxruntimes_scores) { check_scores("heads"); }

/* ---------------------------------------------------------------- layers and names */

static const nets_layer *layer_of(const nets_net *net, const char *name) {
    for (int i = 0; i < nets_net_layers(net); i++)
        if (strcmp(nets_net_layer(net, i)->name, name) == 0) return nets_net_layer(net, i);
    fail_msg("no layer %s", name);
    return NULL;
}

static int count(const nets_net *net, nets_op_kind op) {
    int n = 0;
    for (int i = 0; i < nets_net_layers(net); i++) n += nets_net_layer(net, i)->op == op;
    return n;
}

TEST_CASE(a_training_export_keeps_batch_norm_and_dropout) {
    nets_net *net = load("images_training");
    const nets_layer *norm = layer_of(net, "stem.1"), *drop = NULL;
    assert_int_equal(norm->op, NETS_BATCH_NORM);
    assert_true(fabsf(norm->attrs.momentum - 0.1f) < 1e-6f);
    assert_true(nets_net_find_param(net, "stem.1.running_var") >= 0);
    for (int i = 0; i < nets_net_layers(net); i++)
        if (nets_net_layer(net, i)->op == NETS_DROPOUT) drop = nets_net_layer(net, i);
    assert_non_null(drop);
    assert_true(fabsf(drop->attrs.p - 0.2f) < 1e-6f);
    nets_net_destroy(net);
}

TEST_CASE(written_out_activations_become_one_layer_each) {
    static const char *const files[] = {"images_older", "images_newer", "images_training"};
    for (int i = 0; i < 3; i++) {
        nets_net *net = load(files[i]);
        assert_int_equal(count(net, NETS_SILU), 1);
        assert_int_equal(count(net, NETS_SIGMOID), 1);
        assert_int_equal(count(net, NETS_LEAKY_RELU), 1);
        assert_int_equal(count(net, NETS_RELU6), 1);
        assert_int_equal(count(net, NETS_HARD_SWISH), 3);
        assert_int_equal(count(net, NETS_GELU), 1);
        assert_int_equal(count(net, NETS_MUL), 1);
        assert_int_equal(count(net, NETS_CONCAT), 3); /* of two each: each takes what was joined before */
        nets_net_destroy(net);
    }
}

TEST_CASE(an_embedding_that_is_the_last_weight_is_tied) {
    nets_net *net = load("tokens_sdpa");
    assert_true(layer_of(net, "loss")->attrs.tied);
    assert_true(layer_of(net, "wte")->op == NETS_EMBEDDING);
    assert_int_equal(count(net, NETS_ATTENTION), 2);
    nets_net_destroy(net);
    net = load("tokens_older");
    assert_false(layer_of(net, "loss")->attrs.tied);
    nets_net_destroy(net);
}

/* A module's parameters keep their names, shapes and values, so that its state_dict loads. */
TEST_CASE(parameters_have_the_modules_names_and_values) {
    static const struct {
        const char *name;
        int64_t seed, dims[2]; /* fill's */
    } weights[] = {{"fc1.weight", 11 + 19, {9, 96}}, {"fc2.weight", 11 + 21, {5, 9}}};
    nets_net *net = load("images_newer");
    for (size_t k = 0; k < sizeof weights / sizeof *weights; k++) {
        const int param = nets_net_find_param(net, weights[k].name);
        if (param < 0) fail_msg("no %s", weights[k].name);
        const nets_param *p = nets_net_param(net, param);
        assert_int_equal(p->dims[0], weights[k].dims[0]);
        assert_int_equal(p->dims[1], weights[k].dims[1]);
        float first[4];
        nets_init_param(net, param, 77, 4, 4, first); /* whatever the seed */
        for (int i = 0; i < 4; i++)
            if (fabsf(first[i] - 0.3f * number(weights[k].seed, 4 + i)) > 1e-6f)
                fail_msg("%s: element %d is %g", weights[k].name, 4 + i, (double)first[i]);
    }
    nets_net_destroy(net);
}

TEST_CASE(another_number_of_classes_starts_the_last_layer_anew) {
    nets_net *net = load("images_newer"), *other;
    if (nets_open("onnx:" REFERENCES "images_newer.onnx,classes=8", &other) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(nets_net_classes(other), 8);
    assert_int_equal(nets_net_params(other), nets_net_params(net));
    for (int i = 0; i < nets_net_params(net); i++) {
        const nets_param *a = nets_net_param(net, i), *b = nets_net_param(other, i);
        assert_string_equal(a->name, b->name);
        const bool last = strncmp(a->name, "fc2.", 4) == 0;
        assert_int_equal(b->given == NULL, last);
        if (!last) assert_memory_equal(a->given, b->given, (size_t)a->elems * sizeof(float));
    }
    nets_net_destroy(other);
    assert_int_equal(nets_open("onnx:" REFERENCES "tokens_sdpa.onnx,classes=8", &other), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "a class for each token"));
    nets_net_destroy(net);
}

/* Exporters make equal constants one, and name it again by Identity nodes. */
TEST_CASE(a_constant_that_several_nodes_read_is_read_once) {
    onnx_graph g;
    onnx_graph_init(&g, 2, (int64_t[]){1, 4});
    onnx_graph_weight(&g, "w1", 2, (int64_t[]){4, 4});
    onnx_graph_weight(&g, "w2", 2, (int64_t[]){4, 4});
    onnx_graph_weight(&g, "b", 1, (int64_t[]){4});
    g.tensors[2].has_raw_data = 1; /* as exporters write it */
    g.tensors[2].raw_data = (ProtobufCBinaryData){16, (uint8_t *)g.tensors[2].float_data};
    g.tensors[2].n_float_data = 0;
    onnx_graph_numbers(&g, "from", 1, (int64_t[]){0});
    onnx_graph_numbers(&g, "to", 1, (int64_t[]){2});
    onnx_graph_node(&g, "Identity", "b", "same");
    onnx_graph_node(&g, "Slice", "b,from,to", "part");
    onnx_graph_node(&g, "Gemm", "x,w1,b", "a");
    onnx_graph_node(&g, "Relu", "a", "r");
    onnx_graph_node(&g, "Gemm", "r,w2,same", "y");
    size_t bytes;
    uint8_t *data = onnx_graph_pack(&g, &bytes);
    nets_net *net;
    if (nets_onnx_parse("made.onnx", data, (int64_t)bytes, &net) != MM_OK) fail_msg("%s", mm_last_error());
    int biases = 0;
    for (int i = 0; i < nets_net_params(net); i++) {
        const nets_param *param = nets_net_param(net, i);
        if (param->rank != 1) continue;
        biases++;
        for (int k = 0; k < 4; k++) assert_true(param->given[k] == 0.01f * (float)(k + 1));
    }
    assert_int_equal(biases, 2);
    nets_net_destroy(net);
    free(data);
    onnx_graph_fini(&g);
}

/* ---------------------------------------------------------------- weights in another file */

/* A linear net whose weight [3, 4] lies at `location` from `offset` on. */
static nets_net *load_external(const char *file, const char *location, const char *offset, bool expected) {
    onnx_graph g;
    onnx_graph_init(&g, 2, (int64_t[]){1, 4});
    onnx_graph_external(&g, "fc.weight", 2, (int64_t[]){3, 4}, location, offset);
    onnx_graph_node(&g, "Gemm", "x,fc.weight", "y");
    onnx_graph_int(&g, "transB", 1);
    onnx_graph_save(&g, file);
    onnx_graph_fini(&g);
    nets_net *net = NULL;
    const mm_status status = nets_onnx_load(file, &net);
    if (expected && status != MM_OK) fail_msg("%s", mm_last_error());
    if (!expected) assert_true(status != MM_OK);
    return net;
}

TEST_CASE(weights_beside_the_file_are_read) {
    char folder[PATH_MAX], file[PATH_MAX], path[PATH_MAX];
    scratch_create(folder);
    scratch_join(folder, "made.onnx", file);
    float values[14];
    for (int i = 0; i < 14; i++) values[i] = (float)i;
    scratch_write(scratch_join(folder, "weights.bin", path), values, sizeof values);
    nets_net *net = load_external(file, "weights.bin", "8", true);
    for (int i = 0; i < 12; i++) assert_true(nets_net_param(net, 0)->given[i] == (float)(i + 2));
    nets_net_destroy(net);
    load_external(file, "weights.bin", "12", false);
    assert_non_null(strstr(mm_last_error(), "beyond the end of"));
    load_external(file, "none.bin", "0", false);
    assert_non_null(strstr(mm_last_error(), "No such file"));
    load_external(file, "../weights.bin", "0", false);
    assert_non_null(strstr(mm_last_error(), "must lie beside"));
    load_external(file, "/etc/hostname", "0", false);
    assert_non_null(strstr(mm_last_error(), "must lie beside"));
    load_external(file, "weights.bin", "eight", false);
    assert_non_null(strstr(mm_last_error(), "is no number"));
    scratch_remove(folder);
}
