/* SPDX-License-Identifier: MIT */
/* Graphs of damaged files that are accepted, as a stranger may send them: each is planned, or refused in one line, in
 * whatever sizes it has. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/core/graph_mutate.h"
#include "tests/core/random.h"
#include "tests/core/random_graph.h"

static const char *const policies[] = {"liveness",       "naive",         "recompute:mode=sqrt",           "swap-async",
                                       "recompute-swap", "gist:lossless", "freelunch:rate=8,eligible=all", "modnn",
                                       "auto:effort=0",  "vdnn-all"};
enum { POLICIES = sizeof policies / sizeof *policies, MAX_EDITS = 3 };

/* Plans under one policy, without a budget, or within one that is too small for most. */
static void plan(mm_graph **graphs, size_t n, int round) {
    const mm_plan_limits limits = {.device_bytes = round % 3 ? 0 : 10000, .pinned_bytes = INT64_MAX};
    mm_requirement *r;
    const mm_status status =
        mm_requirement_get((const mm_graph *const *)graphs, n, NULL, policies[round % POLICIES], &limits, &r);
    if (status == MM_OK) {
        char *text;
        assert_true(r->least_bytes >= r->persistent_bytes && r->least_bytes >= 0);
        for (int i = 0; i < r->n_graphs; i++) {
            assert_true(r->graphs[i].live_bytes >= 0 && r->graphs[i].live_bytes <= r->graphs[i].planned_bytes);
            assert_true(r->graphs[i].least_bytes <= r->least_bytes);
        }
        expect_ok(mm_requirement_json(r, &text));
        free(text);
        mm_requirement_destroy(r);
        return;
    }
    if (status != MM_ERR_INVALID && status != MM_ERR_INFEASIBLE && status != MM_ERR_UNSUPPORTED)
        fail_msg("round %d: %s", round, mm_last_error());
    for (const char *c = mm_last_error(); *c; c++) assert_true((unsigned char)*c >= ' ');
}

static void plan_mutants_of(mm_graph *graph, uint64_t seed) {
    static char mutant[GRAPH_MUTANT];
    const int rounds = test_depth(test_is_sanitized() ? 1000 : 4000, 60000);
    char path[GRAPH_PATH];
    size_t n_valid, n;
    int accepted = 0;
    expect_ok(mm_graph_save((const mm_graph *[]){graph}, 1, graph_files_path("fuzz.json", path)));
    char *valid = graph_files_read(path, &n_valid);
    for (int round = 0; round < rounds; round++) {
        uint64_t random = seed + (uint64_t)round;
        size_t n_bytes = n_valid;
        mm_graph **graphs;
        memcpy(mutant, valid, n_valid);
        for (int edits = 1 + random_below(&random, MAX_EDITS); edits > 0; edits--)
            n_bytes = graph_mutate(&random, mutant, n_bytes);
        graph_files_write(path, mutant, n_bytes);
        if (mm_graph_load(path, &graphs, &n) != MM_OK) continue;
        plan(graphs, n, round);
        mm_graph_list_destroy(graphs, n);
        accepted++;
    }
    assert_true(accepted > rounds / 100);
    unlink(path);
    free(valid);
    mm_graph_destroy(graph);
}

TEST_CASE(mutants_of_a_graph_with_everything_are_planned_or_refused) { plan_mutants_of(graph_files_with_host(), 0); }

TEST_CASE(mutants_of_a_random_graph_are_planned_or_refused) {
    mm_graph *graph;
    expect_ok(random_graph_create(&(random_graph_options){.seed = 3, .layers = 5, .max_channels = 2}, &graph));
    plan_mutants_of(graph, 1000000);
}
