/* SPDX-License-Identifier: MIT */
/* A graph that is read back equals the one that was written; a file that cannot be read is refused in one line. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/core/random_graph.h"

/* Writes graphs, reads them, compares, and writes them again: both files are the same. */
static void round_trip(const mm_graph *const *graphs, size_t n) {
    char path[GRAPH_PATH];
    mm_graph **read;
    size_t n_read, n_first, n_second;
    expect_ok(mm_graph_save(graphs, n, graph_files_path("graphs.json", path)));
    char *first = graph_files_read(path, &n_first);
    expect_ok(mm_graph_load(path, &read, &n_read));
    assert_int_equal(n_read, n);
    for (size_t i = 0; i < n; i++) graph_files_expect_same(graphs[i], read[i]);
    expect_ok(mm_graph_save((const mm_graph *const *)read, n, path));
    char *second = graph_files_read(path, &n_second);
    assert_string_equal(first, second);
    mm_graph_list_destroy(read, n_read);
    assert_int_equal(unlink(path), 0);
    free(first);
    free(second);
}

TEST_CASE(all_that_a_graph_declares_comes_back) {
    mm_graph *graphs[] = {graph_files_everything(), graph_files_with_host()};
    round_trip((const mm_graph *const *)graphs, 2);
    mm_graph_destroy(graphs[0]);
    mm_graph_destroy(graphs[1]);
}

TEST_CASE(random_graphs_come_back_in_their_order) {
    enum { GRAPHS = 3 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        mm_graph *graphs[GRAPHS];
        for (int i = 0; i < GRAPHS; i++) {
            const random_graph_options options = {.seed = seed + (uint64_t)i,
                                                  .layers = 8 + i,
                                                  .max_channels = 4,
                                                  .dtype = i == 1 ? MM_BF16 : MM_F32,
                                                  .shares = (mm_allreduce_when)(seed % 5)};
            expect_ok(random_graph_create(&options, &graphs[i]));
        }
        round_trip((const mm_graph *const *)graphs, GRAPHS);
        for (int i = 0; i < GRAPHS; i++) mm_graph_destroy(graphs[i]);
    }
}

/* ---------------------------------------------------------------- refusals */

static void expect_refused(mm_status status, mm_status wanted, const char *says) {
    if (status != wanted || !strstr(mm_last_error(), says))
        fail_msg("%s: '%s' does not say '%s'", mm_status_name(status), mm_last_error(), says);
    for (const char *c = mm_last_error(); *c; c++) assert_true((unsigned char)*c >= ' ');
}

TEST_CASE(what_cannot_be_written_is_refused_and_leaves_no_file) {
    char path[GRAPH_PATH];
    mm_graph *graph, *whole = graph_files_everything();
    mm_layer layer;
    graph_files_path("refused.json", path);
    const mm_graph *const both[] = {whole, NULL};
    expect_refused(mm_graph_save(both, 0, path), MM_ERR_INVALID, "0 graphs");
    expect_refused(mm_graph_save(both, 2, path), MM_ERR_INVALID, "a graph is NULL");
    expect_refused(mm_graph_save(NULL, 1, path), MM_ERR_INVALID, "graphs is NULL");
    expect_refused(mm_graph_save(both, 1, NULL), MM_ERR_INVALID, "path is NULL");
    expect_refused(mm_graph_save(both, 1, "/nowhere/g.json"), MM_ERR_IO, "/nowhere/g.json");
    static const char *const names[] = {"two\nlines", "tab\t", "\x7f", "not utf-8 \xff"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        expect_ok(mm_graph_create("named", &graph));
        const mm_graph *const one[] = {graph};
        expect_refused(mm_graph_save(one, 1, path), MM_ERR_ORDER, "not frozen");
        expect_ok(mm_graph_add_layer(graph, names[i], MM_LAYER_OTHER, &layer));
        expect_ok(mm_graph_add_step(graph, layer, MM_FORWARD, NULL, 0, 0));
        expect_ok(mm_graph_freeze(graph));
        expect_refused(mm_graph_save(one, 1, path), MM_ERR_INVALID, i < 3 ? "control characters" : "not UTF-8");
        mm_graph_destroy(graph);
    }
    assert_int_not_equal(access(path, F_OK), 0);
    mm_graph_destroy(whole);
}

#define HEAD      "{\"format\": \"mm graph\", \"version\": 1, "
#define STEPS     "\"steps\": [{\"layer\": 0, \"phase\": \"forward\", \"workspace_bytes\": 0, "
#define ONE(more) HEAD "\"graphs\": [{\"name\": \"g\", " more "}]}"
#define T(more)                                                                                                        \
    "\"tensors\": [{\"name\": \"t\", \"kind\": \"feature map\", \"ownership\": \"managed\", \"dtype\": \"f32\", " more \
    "}], "
#define LAYER      "\"layers\": [{\"name\": \"l\", \"kind\": \"relu\", \"cost\": \"cheap\", \"repeatable\": true}], "
#define NONE       "\"steps\": []"
#define WRITES(ac) "\"uses\": [{\"tensor\": \"t\", \"access\": \"" ac "\"}]"

TEST_CASE(a_wrong_file_is_refused_and_the_message_names_the_place) {
    static const char *const cases[][2] = {
        {"", "line 1"},
        {"[]", "\"format\" is not"},
        {"{}", "\"format\" is not"},
        {"{\"format\": \"mm facts\", \"version\": 1}", "\"format\" is not"},
        {"{\"format\": \"mm graph\"}", "\"version\" is missing"},
        {"{\"format\": \"mm graph\", \"version\": 0}", "reads versions 1 to 1"},
        {"{\"format\": \"mm graph\", \"version\": 2, \"graphs\": []}", "is of version 2; mm " MM_VERSION},
        {HEAD "\"graphs\": 3}", "\"graphs\" is not an array"},
        {HEAD "\"graphs\": []}", "\"graphs\" is missing or empty"},
        {HEAD "\"graphs\": [7]}", "graph 0: is not an object"},
        {HEAD "\"graphs\": [{}]}", "graph 0: \"name\" is missing"},
        {ONE("\"tensor\": []"), "\"tensor\" is not one of its keys"},
        {ONE("\"steps\": []"), "graph g has no step"},
        {ONE(T("\"dims\": [1.5]") NONE), "tensor 0: \"dims\" has an entry that is not an integer"},
        {ONE(T("\"dims\": []") NONE), "rank 0"},
        {ONE(T("\"dims\": [0]") NONE), "dimension 0 is 0"},
        {ONE(T("\"dims\": [4611686018427387904, 4611686018427387904]") NONE), "above 2^62"},
        {ONE(T("\"dims\": [1, 1, 1, 1, 1, 1, 1, 1, 1]") NONE), "\"dims\" has 9 entries, at most 8"},
        {ONE(T("\"dims\": [1], \"weight\": \"w\"") NONE), "\"weight\" names no tensor of the graph: w"},
        {ONE(T("\"dims\": [1], \"allreduce\": {\"when\": \"now\", \"as\": \"sum\"}") NONE), "\"when\" cannot be 'now'"},
        {ONE("\"layers\": [{\"name\": \"l\", \"kind\": \"hope\"}]"), "layer 0: \"kind\" cannot be 'hope'"},
        {ONE("\"layers\": [{\"name\": \"l\", \"kind\": \"relu\", \"cost\": \"cheap\"}]"), "\"repeatable\" is not true"},
        {ONE(T("\"dims\": [4]") LAYER STEPS WRITES("eat") "}]"), "step 0: \"access\" cannot be 'eat'"},
        {ONE(T("\"dims\": [4]") LAYER STEPS WRITES("read") "}]"), "reads t before anything wrote it"},
        {ONE(T("\"dims\": [4]") LAYER STEPS WRITES("write") ", \"given\": [3]}]"), "\"given\" is not a string"},
        {ONE(T("\"dims\": [4]") LAYER STEPS WRITES("write") ", \"less_workspace_bytes\": [0]}]"), "not smaller"},
        {ONE(T("\"dims\": [4]") LAYER STEPS WRITES("write") "}, "
                                                            "{\"layer\": 1, \"phase\": \"forward\", "
                                                            "\"workspace_bytes\": 0}]"),
         "step 1: graph g: cannot add a step: no layer 1"},
        {ONE("\"name\": \"twice\""), "duplicate object key"},
        {ONE("\"tensors\": [{\"name\": \"a\\nb\"}]"), "tensor 0: \"name\" has control characters"},
    };
    char path[GRAPH_PATH];
    mm_graph **graphs = NULL;
    size_t n = 7;
    graph_files_path("wrong.json", path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_files_write(path, cases[i][0], strlen(cases[i][0]));
        expect_refused(mm_graph_load(path, &graphs, &n), MM_ERR_FORMAT, cases[i][1]);
        assert_non_null(strstr(mm_last_error(), path));
        assert_null(graphs);
    }
    unlink(path);
    expect_refused(mm_graph_load(path, &graphs, &n), MM_ERR_IO, "cannot be read");
    assert_int_equal(n, 7);
    mm_graph_list_destroy(NULL, 0);
}

/* What a file says beside its graphs, as a plan, is not read. */
TEST_CASE(further_keys_at_the_top_are_ignored) {
    static const char text[] =
        HEAD "\"plans\": {\"policy\": \"liveness\"}, \"graphs\": [{\"name\": \"g\", " T("\"dims\": [4]")
            LAYER STEPS WRITES("write") "}]}]}";
    char path[GRAPH_PATH];
    mm_graph **graphs;
    size_t n;
    graph_files_write(graph_files_path("more.json", path), text, strlen(text));
    expect_ok(mm_graph_load(path, &graphs, &n));
    assert_int_equal(n, 1);
    mm_graph_list_destroy(graphs, n);
    unlink(path);
}

/* ---------------------------------------------------------------- memory runs out */

TEST_CASE(one_allocation_that_fails_is_said_and_leaves_nothing) {
    const int stride = test_depth(3, 1);
    mm_graph *graph = graph_files_everything();
    const mm_graph *const one[] = {graph};
    char path[GRAPH_PATH];
    graph_files_path("nomem.json", path);
    bool happened = true;
    int nth = 1;
    for (; happened; nth += stride) {
        mm_graph **graphs = NULL;
        size_t n;
        alloc_fault_set(nth);
        mm_status status = mm_graph_save(one, 1, path);
        if (status == MM_OK) status = mm_graph_load(path, &graphs, &n);
        happened = alloc_fault_happened();
        alloc_fault_set(0);
        if (status == MM_OK) {
            graph_files_expect_same(graph, graphs[0]);
            mm_graph_list_destroy(graphs, n);
        } else if (!happened || status != MM_ERR_NOMEM)
            fail_msg("allocation %d fails: %s: %s", nth, mm_status_name(status), mm_last_error());
        unlink(path);
    }
    assert_true(nth > 20 * stride);
    mm_graph_destroy(graph);
}
