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
#include "tests/core/random_graph.h"

enum { MAX_EDITS = 4, CAPACITY = 1 << 16 };

/* Replaces the `n` bytes at `at` by `with`. Returns the new length; does nothing if the text would be too long. */
static size_t replace(char *text, size_t n_bytes, size_t at, size_t n, const char *with) {
    const size_t length = strlen(with);
    if (n_bytes - n + length > CAPACITY) return n_bytes;
    memmove(text + at + length, text + at + n, n_bytes - at - n);
    memcpy(text + at, with, length);
    return n_bytes - n + length;
}

static size_t place(uint64_t *random, size_t n) { return (size_t)random_below(random, (int)n); }

/* Changes one byte; JSON's own characters come more often than by chance. */
static size_t change_byte(uint64_t *random, char *text, size_t n_bytes) {
    static const char meaning[] = "{}[]\",:0123456789-.eE\\u \n\0tfn";
    const size_t at = place(random, n_bytes);
    text[at] = random_below(random, 3) ? meaning[place(random, sizeof meaning - 1)] : (char)random_below(random, 256);
    return n_bytes;
}

/* Changes a value after a colon. The file stays JSON, so it gets past the JSON parser. */
static size_t change_value(uint64_t *random, char *text, size_t n_bytes) {
    static const char *const values[] = {"0",
                                         "-1",
                                         "1",
                                         "2",
                                         "7",
                                         "64",
                                         "2147483647",
                                         "2147483648",
                                         "4611686018427387904",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "1.5",
                                         "true",
                                         "false",
                                         "null",
                                         "\"\"",
                                         "\"conv0\"",
                                         "\"relu1\"",
                                         "\"read\"",
                                         "\"write\"",
                                         "\"modify\"",
                                         "\"sign\"",
                                         "\"value\"",
                                         "\"managed\"",
                                         "\"persistent\"",
                                         "\"external\"",
                                         "\"weight\"",
                                         "\"state\"",
                                         "\"input\"",
                                         "\"forward\"",
                                         "\"backward\"",
                                         "\"update\"",
                                         "\"bf16\"",
                                         "\"i32\"",
                                         "\"alias\"",
                                         "\"inplace\"",
                                         "\"at once\"",
                                         "\"mean\"",
                                         "\"zfp\"",
                                         "\"mm.values\"",
                                         "[]",
                                         "{}",
                                         "[1, 2]",
                                         "[9223372036854775807, 9223372036854775807]",
                                         "[\"h\"]"};
    size_t at = place(random, n_bytes), n = 0;
    while (at < n_bytes && text[at] != ':') at++;
    if (n_bytes - at < 3) return n_bytes;
    at += 2;
    const bool list = text[at] == '[';
    while (at + n < n_bytes && !strchr(list ? "]\n" : ",]}\n", text[at + n])) n++;
    n += list && at + n < n_bytes;
    return replace(text, n_bytes, at, n, values[place(random, sizeof values / sizeof *values)]);
}

/* Gives a name the text of another place. */
static size_t change_name(uint64_t *random, char *text, size_t n_bytes) {
    char name[64];
    size_t from = place(random, n_bytes), at = place(random, n_bytes), n = 0, old = 0;
    while (from < n_bytes && text[from] != '"') from++;
    for (from++; from + n < n_bytes && n + 1 < sizeof name && text[from + n] != '"' && text[from + n]; n++)
        name[n] = text[from + n];
    name[n] = '\0';
    while (at < n_bytes && text[at] != '"') at++;
    at++;
    while (at + old < n_bytes && text[at + old] != '"') old++;
    return at + old < n_bytes ? replace(text, n_bytes, at, old, name) : n_bytes;
}

/* Removes a line (a tensor, a layer, a step), or swaps it with the next. */
static size_t change_line(uint64_t *random, char *text, size_t n_bytes) {
    static char line[CAPACITY + 1];
    size_t begin = place(random, n_bytes), end, n = 0;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    for (end = begin; end < n_bytes && text[end] != '\n';) end++;
    if (end == n_bytes) return n_bytes;
    for (end++; begin + n < end && text[begin + n]; n++) line[n] = text[begin + n];
    line[n] = '\0';
    n_bytes = replace(text, n_bytes, begin, end - begin, "");
    if (random_below(random, 3) == 0) return n_bytes;
    size_t next = begin;
    while (next < n_bytes && text[next] != '\n') next++;
    return replace(text, n_bytes, next < n_bytes ? next + 1 : next, 0, line);
}

static size_t mutate(uint64_t *random, char *text, size_t n_bytes) {
    if (n_bytes == 0) return 0;
    switch (random_below(random, 8)) {
    case 0:
        return change_byte(random, text, n_bytes);
    case 1:
        return change_line(random, text, n_bytes);
    case 2:
        return random_below(random, 8) ? n_bytes : place(random, n_bytes); /* cut, but seldom */
    case 3:
    case 4:
        return change_name(random, text, n_bytes);
    default:
        return change_value(random, text, n_bytes);
    }
}

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
    static char mutant[CAPACITY];
    const int rounds = test_depth(test_is_sanitized() ? 1500 : 4000, 100000);
    char path[GRAPH_PATH];
    size_t n_valid;
    int accepted = 0;
    expect_ok(mm_graph_save((const mm_graph *[]){graph}, 1, graph_files_path("fuzz.json", path)));
    char *valid = graph_files_read(path, &n_valid);
    assert_true(n_valid < CAPACITY / 2);
    assert_true(read_copy(valid, n_valid, path));
    for (int round = 0; round < rounds; round++) {
        uint64_t random = seed + (uint64_t)round;
        size_t n_bytes = n_valid;
        memcpy(mutant, valid, n_valid);
        for (int edits = 1 + random_below(&random, MAX_EDITS); edits > 0; edits--)
            n_bytes = mutate(&random, mutant, n_bytes);
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
