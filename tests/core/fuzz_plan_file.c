/* SPDX-License-Identifier: MIT */
/* Thousands of damaged files of plans: each is refused in one line that names the file, or accepted as plans that the
 * proof judges, and that can be written and read back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_file.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/core/graph_mutate.h"
#include "tests/core/plan_files.h"
#include "tests/core/random.h"

enum { MAX_EDITS = 2 };

static void check_message(void) {
    if (!strstr(mm_last_error(), "mutant.jsonl")) fail_msg("'%s' does not name the file", mm_last_error());
    for (const char *c = mm_last_error(); *c; c++) assert_true((unsigned char)*c >= ' ');
}

/* Writes what was read, reads that, and writes it again: both files are the same. */
static void check_whole(const mm_plan_file *files, size_t n) {
    char path[GRAPH_PATH];
    size_t n_bytes, n_read;
    mm_plan_file *again;
    const mm_plan_view view = plan_files_view(files);
    assert_int_equal(n, 1);
    expect_ok(mm_plan_file_write(&view, 1, graph_files_path("whole.jsonl", path)));
    char *first = graph_files_read(path, &n_bytes);
    expect_ok(mm_plan_files_read(path, &again, &n_read));
    const mm_plan_view second_view = plan_files_view(again);
    expect_ok(mm_plan_file_write(&second_view, 1, path));
    char *second = graph_files_read(path, &n_bytes);
    assert_string_equal(first, second);
    mm_plan_files_destroy(again, n_read);
    remove(path);
    free(first);
    free(second);
}

typedef struct tally {
    int refused, wrong, right;
} tally;

static void judge(const char *text, size_t n_bytes, const char *path, tally *tally) {
    mm_plan_file *files;
    size_t n;
    graph_files_write(path, text, n_bytes);
    const mm_status status = mm_plan_files_read(path, &files, &n);
    if (status != MM_OK) {
        assert_int_equal(status, MM_ERR_FORMAT);
        check_message();
        tally->refused++;
        return;
    }
    const mm_status proved = mm_program_prove(files->program, files->facts, &files->limits, NULL);
    assert_true(proved == MM_OK || proved == MM_ERR_PLAN || proved == MM_ERR_INFEASIBLE);
    ++*(proved == MM_OK ? &tally->right : &tally->wrong);
    if (tally->right + tally->wrong < 20) check_whole(files, n);
    mm_plan_files_destroy(files, n);
}

/* The part of the text after the graph, where most edits are to go. */
static size_t after_graph(const char *text) {
    const char *graph = strstr(text, "{\"is\": \"limits\"");
    assert_non_null(graph);
    return (size_t)(graph - text);
}

/* Changes a digit to another, so that most files can still be read. */
static void change_digit(uint64_t *random, char *text, size_t n) {
    size_t at = (size_t)random_below(random, (int)n);
    while (at < n && (text[at] < '0' || text[at] > '9')) at++;
    if (at < n) text[at] = (char)('0' + random_below(random, 10));
}

static void mutants_of(uint64_t seed) {
    static char mutant[2 * GRAPH_MUTANT];
    const int rounds = test_depth(test_is_sanitized() ? 50 : 200, 50000);
    char path[GRAPH_PATH];
    tally tally = {0};
    size_t n_valid;
    plan_world w = plan_world_create(seed);
    const mm_plan_view view = plan_world_view(&w);
    expect_ok(mm_plan_file_write(&view, 1, graph_files_path("mutant.jsonl", path)));
    char *valid = graph_files_read(path, &n_valid);
    const size_t head = after_graph(valid);
    assert_true(head < GRAPH_MUTANT && n_valid - head < GRAPH_MUTANT / 2);
    judge(valid, n_valid, path, &tally);
    assert_int_equal(tally.right, 1);
    for (int round = 0; round < rounds; round++) {
        uint64_t random = seed + (uint64_t)round;
        const size_t from = random_below(&random, 8) ? head : 0;
        size_t n = n_valid - from;
        if (n > GRAPH_MUTANT) continue;
        memcpy(mutant, valid, n_valid);
        const bool digits = random_below(&random, 2);
        for (int edits = 1 + random_below(&random, MAX_EDITS); edits > 0 && digits; edits--)
            change_digit(&random, mutant + from, n);
        for (int edits = 1 + random_below(&random, MAX_EDITS); edits > 0 && !digits; edits--)
            n = graph_mutate(&random, mutant + from, n);
        judge(mutant, from + n, path, &tally);
    }
    print_message("%d refused, %d proved wrong, %d right\n", tally.refused, tally.wrong, tally.right);
    assert_true(tally.refused > rounds / 4 && tally.wrong > rounds / 50 && tally.right > rounds / 200);
    remove(path);
    free(valid);
    plan_world_destroy(&w);
}

TEST_CASE(mutants_of_a_plan_are_refused_or_judged) { mutants_of(3); }

TEST_CASE(mutants_of_a_plan_with_a_heap_are_refused_or_judged) { mutants_of(6); }

TEST_CASE(mutants_of_a_plan_with_pools_are_refused_or_judged) { mutants_of(1); }
