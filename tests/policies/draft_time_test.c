/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "mm/core/time/simulate.h"
#include "policies/schedule/draft_time.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/test_case.h"

typedef struct fixture {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
} fixture;

static fixture fixture_create(uint64_t seed) {
    fixture f;
    const mm_limits limits = {0};
    const random_graph_options graph_options = {.seed = seed, .layers = 15, .max_channels = 4, .images = 12};
    const random_plan_options plan_options = {.seed = seed, .lossy = true, .dynamic = seed % 3 == 0, .pools = seed % 2};
    assert_int_equal(random_graph_create(&graph_options, &f.graph), MM_OK);
    assert_int_equal(random_facts_create(f.graph, seed, &f.facts), MM_OK);
    assert_int_equal(random_plan_create(f.graph, f.facts, &limits, &plan_options, &f.plan), MM_OK);
    f.facts->out_bytes_per_s = f.facts->in_bytes_per_s = INT64_C(1) << (24 + seed % 8);
    f.facts->in_both_bytes_per_s = f.facts->in_bytes_per_s / 2;
    f.facts->contention_permille = (int)(seed * 37 % 900);
    f.facts->link_contention_permille = (int)(seed * 53 % 400);
    f.facts->alloc_ns = (int64_t)(seed % 5) * 1000;
    f.facts->issue_ns = (int64_t)(seed % 7) * 100;
    f.facts->cache_bytes = 1 << 10;
    f.facts->far_ps_per_byte = (int64_t)(seed % 4) * 50;
    return f;
}

static void fixture_destroy(fixture *f) {
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->graph);
}

static int64_t simulated_ns(const fixture *f) {
    mm_simulation sim;
    assert_int_equal(mm_simulate(f->plan, f->facts, &sim), MM_OK);
    int64_t ns = sim.iteration_ns;
    mm_simulation_fini(&sim);
    return ns;
}

/* Removes the waits of half of the nodes for side streams: a draft, whose segments have no places, has fewer waits. */
static void drop_waits(mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i += 2)
        for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++) plan->nodes[i].wait[s] = -1;
}

TEST_CASE(no_plan_is_faster_whatever_waits_are_added) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        fixture f = fixture_create(seed);
        int64_t ns = simulated_ns(&f), least;
        assert_int_equal(mm_draft_time(f.plan, f.facts, &least), MM_OK);
        assert_true(least <= ns);
        drop_waits(f.plan);
        assert_int_equal(mm_draft_time(f.plan, f.facts, &least), MM_OK);
        assert_true(least <= ns);
        fixture_destroy(&f);
    }
}

TEST_CASE(where_nothing_is_slowed_down_it_is_what_the_plan_takes) {
    for (uint64_t seed = 0; seed < 40; seed++) {
        fixture f = fixture_create(seed);
        f.facts->contention_permille = f.facts->link_contention_permille = 0;
        f.facts->contention.known = false;
        f.facts->in_both_bytes_per_s = 0;
        f.facts->alloc_ns = f.facts->far_ps_per_byte = 0;
        int64_t ns = simulated_ns(&f), least;
        assert_int_equal(mm_draft_time(f.plan, f.facts, &least), MM_OK);
        assert_true(least >= ns - 16 * f.plan->n_nodes - ns / 100000);
        fixture_destroy(&f);
    }
}
