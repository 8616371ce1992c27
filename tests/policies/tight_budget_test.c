/* SPDX-License-Identifier: MIT */
/* Budgets that only a long search for places meets. The graph's maps are the pieces of a rectangle of RECTANGLE units,
 * each of which lost some: they fit in it, but heuristics do not put it together again. */
#include <stdio.h>

#include "mm/core/status.h"
#include "policies/schedule/draft_time.h"
#include "policies/schedule/nominal.h"
#include "tests/buffers/layout_patterns.h"
#include "tests/core/deep.h"
#include "tests/core/plan_proof.h"
#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

enum { RECTANGLE = 1000, STEPS = 50, WAITING = 400, PINNED = WAITING, MOST_USES = 64 };

static void must(mm_status status) {
    if (status != MM_OK) fail_msg("%s", mm_last_error());
}

static mm_tensor add_map(mm_graph *graph, const char *name, int64_t units) {
    mm_tensor tensor;
    const mm_tensor_desc desc = {.name = name,
                                 .kind = MM_FEATURE_MAP,
                                 .ownership = MM_MANAGED,
                                 .dtype = MM_F32,
                                 .rank = 2,
                                 .dims = {units, UNIT / 4}};
    must(mm_graph_add_tensor(graph, &desc, &tensor));
    return tensor;
}

static mm_layer add_step(mm_graph *graph, const char *name, const mm_use *uses, size_t n) {
    mm_layer layer;
    must(mm_graph_add_layer(graph, name, MM_LAYER_CONV, &layer));
    must(mm_graph_add_step(graph, layer, MM_FORWARD, uses, n, 0));
    return layer;
}

/* The rectangle's maps live where its pieces do, one position a step. waiting: before them, a map of WAITING units is
 * made, which a backward step reads after them. */
static mm_graph *rectangle(bool waiting) {
    pattern_items items = {.random = 1};
    mm_tensor tensors[256], first = -1;
    mm_layer layer = -1;
    mm_graph *graph;
    char name[32];
    pattern_cut(&items, 200);
    assert_true(items.n <= 256);
    must(mm_graph_create("rectangle", &graph));
    if (waiting) {
        first = add_map(graph, "waiting", WAITING);
        layer = add_step(graph, "first", &(mm_use){.tensor = first, .access = MM_WRITE}, 1);
    }
    for (size_t i = 0; i < items.n; i++) {
        mm_interval *item = &items.items[i];
        item->bytes -= item->bytes * random_below(&items.random, 12) / 100;
        snprintf(name, sizeof name, "m%zu", i);
        tensors[i] = add_map(graph, name, item->bytes);
    }
    for (int step = 0; step < STEPS; step++) {
        mm_use uses[MOST_USES];
        size_t n = 0;
        for (size_t i = 0; i < items.n; i++) {
            const mm_interval *item = &items.items[i];
            if (item->first != step && item->last != step) continue;
            assert_true(n < MOST_USES);
            uses[n++] = (mm_use){.tensor = tensors[i], .access = item->first == step ? MM_WRITE : MM_READ};
        }
        snprintf(name, sizeof name, "step%d", step);
        add_step(graph, name, uses, n);
    }
    const mm_use back = {.tensor = first, .access = MM_READ};
    if (waiting) must(mm_graph_add_step(graph, layer, MM_BACKWARD, &back, 1, 0));
    must(mm_graph_freeze(graph));
    pattern_fini(&items);
    return graph;
}

/* Plans in a budget, and checks the plan. *peak_out: its peak, *ns_out: its time, if it fits. */
static bool fits(const mm_graph *graph, const char *spec, int64_t budget, int64_t *peak_out, int64_t *ns_out) {
    mm_limits limits = {.device_bytes = budget, .pinned_bytes = PINNED * UNIT, .no_recompute = true};
    mm_graph_facts *facts = terse_facts(graph, UNIT);
    mm_policy policy;
    mm_plan *plan;
    mm_nominal_times(graph, facts);
    must(mm_policy_parse(spec, &policy));
    must(mm_policy_plan(&policy, graph, facts, &limits, &plan));
    mm_policy_fini(&policy);
    *peak_out = limits.device_bytes = plan->peak_bytes;
    limits.pinned_bytes = plan->pinned_bytes;
    must(plan_check(plan, facts, &limits));
    must(mm_simulated_time(plan, facts, ns_out));
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    return *peak_out <= budget;
}

/* In budgets from RECTANGLE units to beyond the least that is met without the long search, all plans fit, and none is
 * slower than in a smaller budget. */
static void assert_fits_tightly(const mm_graph *graph, const char *spec, int step) {
    int64_t least, peak, ns, before = INT64_MAX;
    assert_false(fits(graph, spec, 0, &least, &ns));
    print_message("%s: least %lld units without the long search\n", spec, (long long)(least / UNIT));
    assert_true(least > RECTANGLE * UNIT);
    for (int64_t budget = RECTANGLE * UNIT; budget <= least + step * UNIT; budget += step * UNIT) {
        if (!fits(graph, spec, budget, &peak, &ns))
            fail_msg("%s: %lld bytes do not fit in %lld", spec, (long long)peak, (long long)budget);
        if (ns > before)
            fail_msg("%s: in %lld bytes slower than in less: %lld ns, not %lld", spec, (long long)budget, (long long)ns,
                     (long long)before);
        before = ns;
    }
}

TEST_CASE(keeping_all_maps_fits_tightly) {
    mm_graph *graph = rectangle(false);
    assert_fits_tightly(graph, "liveness", 6);
    assert_fits_tightly(graph, "swap:when=always", 17);
    mm_graph_destroy(graph);
}

TEST_CASE(the_smallest_of_many_plans_fits_tightly) {
    mm_graph *graph = rectangle(true);
    assert_fits_tightly(graph, test_depth(false, true) ? "auto" : "swap", 36);
    mm_graph_destroy(graph);
}
