/* SPDX-License-Identifier: MIT */
#include "tests/core/graph_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/core/expect.h"

const char *graph_files_path(const char *name, char path_out[GRAPH_PATH]) {
    const char *root = getenv("TEST_TMPDIR");
    snprintf(path_out, GRAPH_PATH, "%s/%d-%s", root ? root : "/tmp", (int)getpid(), name);
    assert_int_not_equal(access(path_out, F_OK), 0);
    return path_out;
}

void graph_files_write(const char *path, const void *text, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

char *graph_files_read(const char *path, size_t *n_out) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *n_out = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*n_out + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *n_out, file), *n_out);
    text[*n_out] = '\0';
    fclose(file);
    return text;
}

/* ---------------------------------------------------------------- a graph with everything */

static mm_tensor tensor(mm_graph *graph, const char *name, mm_tensor_kind kind, mm_ownership ownership) {
    const mm_tensor_desc desc = {.name = name, .kind = kind, .ownership = ownership, .rank = 3, .dims = {2, 8, 8}};
    mm_tensor number;
    expect_ok(mm_graph_add_tensor(graph, &desc, &number));
    return number;
}

static mm_layer layer(mm_graph *graph, const char *name, mm_layer_kind kind) {
    mm_layer number;
    expect_ok(mm_graph_add_layer(graph, name, kind, &number));
    return number;
}

#define USE(t, access) ((mm_use){t, access, MM_FORM_VALUE})
#define STEP(layer, phase, n, work, ...)                                                                               \
    expect_ok(mm_graph_add_step(graph, layer, phase, (mm_use[]){__VA_ARGS__}, n, work))

static mm_graph *everything(bool hosts) {
    mm_graph *graph;
    expect_ok(mm_graph_create("all \"that\" there is, \xc3\xa9", &graph));
    const mm_tensor x = tensor(graph, "x", MM_INPUT, MM_EXTERNAL), w = tensor(graph, "w", MM_WEIGHT, MM_PERSISTENT);
    const mm_tensor dw = tensor(graph, "dw", MM_WEIGHT_GRADIENT, MM_PERSISTENT);
    const mm_tensor moments = tensor(graph, "moments", MM_OPTIMIZER, MM_PERSISTENT);
    const mm_tensor mean = tensor(graph, "mean", MM_SAVED, MM_MANAGED),
                    h = tensor(graph, "h", MM_FEATURE_MAP, MM_MANAGED);
    const mm_tensor r = tensor(graph, "r", MM_FEATURE_MAP, MM_MANAGED);
    const mm_tensor dr = tensor(graph, "dr", MM_GRADIENT_MAP, MM_MANAGED);
    const mm_tensor dh = tensor(graph, "dh", MM_GRADIENT_MAP, MM_MANAGED);
    const mm_tensor loss = tensor(graph, "mean loss", MM_STATE, MM_PERSISTENT);
    expect_ok(mm_graph_set_weight(graph, dw, w));
    expect_ok(mm_graph_set_weight(graph, moments, w));
    expect_ok(mm_graph_allreduce(graph, dw, MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM));
    expect_ok(mm_graph_allreduce(graph, loss, MM_ALLREDUCE_AT_END, MM_REDUCE_MEAN));
    const mm_layer norm = layer(graph, "norm", MM_LAYER_BATCH_NORM), relu = layer(graph, "twice", MM_LAYER_RELU);
    const mm_layer end = layer(graph, "twice", MM_LAYER_LOSS), update = layer(graph, "update", MM_LAYER_UPDATE);
    expect_ok(mm_graph_add_part(graph, norm, "norm.relu"));
    expect_ok(mm_graph_add_part(graph, norm, "norm.sum"));
    expect_ok(mm_graph_set_properties(graph, relu, &(mm_layer_properties){MM_LAYER_EXPENSIVE, false}));
    STEP(norm, MM_FORWARD, 4, 4096, USE(x, MM_READ), USE(w, MM_READ), USE(mean, MM_WRITE), USE(h, MM_WRITE));
    expect_ok(mm_graph_allow_workspace(graph, 1024));
    expect_ok(mm_graph_allow_workspace(graph, 0));
    expect_ok(mm_graph_allow_given(graph, mean));
    expect_ok(mm_graph_allow_code(graph, &(mm_code_use){.tensor = h, .access = MM_WRITE, .codec = "zfp"}));
    STEP(relu, MM_FORWARD, 2, 0, USE(h, MM_READ), USE(r, MM_WRITE));
    expect_ok(mm_graph_allow_inplace(graph, h, r));
    expect_ok(mm_graph_allow_alias(graph, h, r));
    expect_ok(mm_graph_allow_code(graph, &(mm_code_use){.tensor = h,
                                                        .access = MM_READ,
                                                        .codec = "zfp",
                                                        .workspace_bytes = 512,
                                                        .workspace_strips = 3,
                                                        .passes = 2}));
    STEP(end, MM_BACKWARD, 3, 0, USE(r, MM_READ), USE(dr, MM_WRITE), USE(loss, MM_WRITE));
    STEP(relu, MM_BACKWARD, 3, 0, {r, MM_READ, MM_FORM_SIGN}, USE(dr, MM_READ), USE(dh, MM_WRITE));
    STEP(norm, MM_BACKWARD, 5, 64, USE(x, MM_READ), USE(w, MM_READ), USE(mean, MM_READ), USE(dh, MM_READ),
         USE(dw, MM_WRITE));
    STEP(update, MM_UPDATE, 3, 0, USE(w, MM_MODIFY), USE(moments, MM_MODIFY), USE(dw, MM_READ));
    if (hosts) {
        const mm_tensor count = tensor(graph, "count", MM_OPTIMIZER, MM_PERSISTENT);
        STEP(layer(graph, "host", MM_LAYER_UPDATE), MM_UPDATE, 1, 0, USE(count, MM_MODIFY));
        expect_ok(mm_graph_run_on_host(graph));
    }
    expect_ok(mm_graph_freeze(graph));
    return graph;
}

mm_graph *graph_files_everything(void) { return everything(false); }
mm_graph *graph_files_with_host(void) { return everything(true); }

/* ---------------------------------------------------------------- the comparison */

static void expect_same_tensors(const mm_tensor_info *x, const mm_tensor_info *y) {
    assert_string_equal(x->name, y->name);
    for (int d = 0; d < MM_RANK_MAX; d++) assert_int_equal(x->dims[d], y->dims[d]);
    assert_int_equal(x->kind, y->kind);
    assert_int_equal(x->ownership, y->ownership);
    assert_int_equal(x->dtype, y->dtype);
    assert_int_equal(x->rank, y->rank);
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->persistent, y->persistent);
    assert_int_equal(x->weight, y->weight);
    assert_int_equal(x->gradient, y->gradient);
    assert_int_equal(x->shared, y->shared);
    assert_int_equal(x->shared_as, y->shared_as);
    assert_int_equal(x->producer, y->producer);
    assert_int_equal(x->first_use, y->first_use);
    assert_int_equal(x->last_use, y->last_use);
    assert_int_equal(x->last_write, y->last_write);
    assert_int_equal(x->last_forward, y->last_forward);
    assert_int_equal(x->first_backward, y->first_backward);
    assert_int_equal(x->writes, y->writes);
    assert_int_equal(x->on_host, y->on_host);
}

static void expect_same_layers(const mm_layer_info *x, const mm_layer_info *y) {
    assert_string_equal(x->name, y->name);
    assert_int_equal(x->kind, y->kind);
    assert_int_equal(x->n_parts, y->n_parts);
    for (int p = 0; p < x->n_parts; p++) assert_string_equal(x->parts[p], y->parts[p]);
    assert_int_equal(x->properties.cost, y->properties.cost);
    assert_int_equal(x->properties.repeatable, y->properties.repeatable);
    for (int p = 0; p < 3; p++) assert_int_equal(x->step[p], y->step[p]);
}

static void expect_same_steps(const mm_step_info *x, const mm_step_info *y) {
    assert_int_equal(x->layer, y->layer);
    assert_int_equal(x->phase, y->phase);
    assert_int_equal(x->workspace_bytes, y->workspace_bytes);
    assert_int_equal(x->given, y->given);
    assert_int_equal(x->n_uses, y->n_uses);
    for (int u = 0; u < x->n_uses; u++) {
        assert_int_equal(x->uses[u].tensor, y->uses[u].tensor);
        assert_int_equal(x->uses[u].access, y->uses[u].access);
        assert_int_equal(x->uses[u].form, y->uses[u].form);
    }
    assert_int_equal(x->n_pairs, y->n_pairs);
    for (int p = 0; p < x->n_pairs; p++) {
        assert_int_equal(x->pairs[p].input, y->pairs[p].input);
        assert_int_equal(x->pairs[p].output, y->pairs[p].output);
        assert_int_equal(x->pairs[p].alias, y->pairs[p].alias);
    }
    assert_int_equal(x->n_less, y->n_less);
    for (int i = 0; i < x->n_less; i++) assert_int_equal(x->less_bytes[i], y->less_bytes[i]);
    assert_int_equal(x->n_codes, y->n_codes);
    for (int c = 0; c < x->n_codes; c++) {
        assert_int_equal(x->codes[c].use, y->codes[c].use);
        assert_int_equal(x->codes[c].access, y->codes[c].access);
        assert_string_equal(x->codes[c].codec, y->codes[c].codec);
        assert_int_equal(x->codes[c].workspace_bytes, y->codes[c].workspace_bytes);
        assert_int_equal(x->codes[c].workspace_strips, y->codes[c].workspace_strips);
        assert_int_equal(x->codes[c].passes, y->codes[c].passes);
    }
}

void graph_files_expect_same(const mm_graph *a, const mm_graph *b) {
    assert_string_equal(mm_graph_name(a), mm_graph_name(b));
    assert_true(mm_graph_frozen(a) && mm_graph_frozen(b));
    assert_int_equal(mm_graph_tensors(a), mm_graph_tensors(b));
    assert_int_equal(mm_graph_persistents(a), mm_graph_persistents(b));
    assert_int_equal(mm_graph_layers(a), mm_graph_layers(b));
    assert_int_equal(mm_graph_steps(a), mm_graph_steps(b));
    for (int t = 0; t < mm_graph_tensors(a); t++) expect_same_tensors(mm_graph_tensor(a, t), mm_graph_tensor(b, t));
    for (int i = 0; i < mm_graph_layers(a); i++) expect_same_layers(mm_graph_layer(a, i), mm_graph_layer(b, i));
    for (int s = 0; s < mm_graph_steps(a); s++) expect_same_steps(mm_graph_step(a, s), mm_graph_step(b, s));
}
