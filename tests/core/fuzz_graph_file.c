/* SPDX-License-Identifier: MIT */
/* Thousands of damaged files of graphs: each is refused in one line that names the file, or accepted as graphs that can
 * be written and read back. Each lies in memory of exactly its size, so that a sanitizer sees reads beyond it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/graph/graph_read.h"
#include "mm/core/json_text.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/core/graph_mutate.h"
#include "tests/core/random.h"
#include "tests/core/random_graph.h"

enum { MAX_EDITS = 4 };

/* ---------------------------------------------------------------- what becomes of them */

static void check_refused(mm_status status) {
    assert_int_equal(status, MM_ERR_FORMAT);
    if (strncmp(mm_last_error(), "graph file mutant", 17) != 0) fail_msg("'%s'", mm_last_error());
    for (const char *c = mm_last_error(); *c; c++) assert_true((unsigned char)*c >= ' ');
}

/* Reads a copy of exactly this size; true if it was accepted. */
static bool read_copy(const char *text, size_t n_bytes, const char *path) {
    char *copy = malloc(n_bytes ? n_bytes : 1);
    json_error_t error;
    json_t *root;
    mm_graph **graphs, **again;
    size_t n, n_again;
    assert_non_null(copy);
    memcpy(copy, text, n_bytes);
    mm_status status = mm_json_parse(copy, n_bytes, JSON_REJECT_DUPLICATES, &root, &error);
    free(copy);
    if (status != MM_OK) return false;
    status = mm_graph_parse("mutant", root, &graphs, &n);
    json_decref(root);
    if (status != MM_OK) {
        check_refused(status);
        return false;
    }
    expect_ok(mm_graph_save((const mm_graph *const *)graphs, n, path));
    expect_ok(mm_graph_load(path, &again, &n_again));
    assert_int_equal(n, n_again);
    for (size_t i = 0; i < n; i++) graph_files_expect_same(graphs[i], again[i]);
    mm_graph_list_destroy(graphs, n);
    mm_graph_list_destroy(again, n_again);
    return true;
}

static void mutants_of(mm_graph *graph, uint64_t seed) {
    static char mutant[GRAPH_MUTANT];
    const int rounds = test_depth(test_is_sanitized() ? 1500 : 4000, 100000);
    char path[GRAPH_PATH];
    size_t n_valid;
    int accepted = 0;
    expect_ok(mm_graph_save((const mm_graph *[]){graph}, 1, graph_files_path("fuzz.json", path)));
    char *valid = graph_files_read(path, &n_valid);
    assert_true(n_valid < GRAPH_MUTANT / 2);
    assert_true(read_copy(valid, n_valid, path));
    for (int round = 0; round < rounds; round++) {
        uint64_t random = seed + (uint64_t)round;
        size_t n_bytes = n_valid;
        memcpy(mutant, valid, n_valid);
        for (int edits = 1 + random_below(&random, MAX_EDITS); edits > 0; edits--)
            n_bytes = graph_mutate(&random, mutant, n_bytes);
        accepted += read_copy(mutant, n_bytes, path);
    }
    /* Some changes are harmless, most are not. */
    assert_in_range(accepted, rounds / 200, rounds / 2);
    unlink(path);
    free(valid);
    mm_graph_destroy(graph);
}

TEST_CASE(mutants_of_a_graph_with_everything_are_refused_or_whole) { mutants_of(graph_files_everything(), 0); }

TEST_CASE(mutants_of_a_random_graph_are_refused_or_whole) {
    mm_graph *graph;
    expect_ok(random_graph_create(&(random_graph_options){.seed = 3, .layers = 6, .max_channels = 2}, &graph));
    mutants_of(graph, 1000000);
}
