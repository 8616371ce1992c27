/* SPDX-License-Identifier: MIT */
/* Planning while memory runs out: each policy answers MM_ERR_NOMEM, whichever allocation fails, and never crashes. */
#include <stdlib.h>

#include "policies/policy.h"
#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

enum { SEED = 5, LAYERS = 14, CODE_BYTES = 64, MOST = 100000 };

/* Plans with every allocation failing in turn (in the usual tier: every ninth), then with none. */
static void plan_without_memory(const mm_graph *graph, const char *spec) {
    const int stride = test_depth(9, 1);
    mm_graph_facts *facts = terse_facts(graph, CODE_BYTES);
    mm_policy policy;
    assert_int_equal(mm_policy_parse(spec, &policy), MM_OK);
    const mm_limits limits = {
        .device_bytes = INT64_C(1) << 40, .pinned_bytes = INT64_C(1) << 40, .base_bytes = mm_plan_base(graph)};
    int nth = 1;
    for (bool fails = true; fails; nth += stride) {
        mm_plan *plan = NULL;
        assert_true(nth < MOST);
        alloc_fault_set(nth);
        const mm_status status = mm_policy_plan(&policy, graph, facts, &limits, &plan);
        fails = alloc_fault_happened();
        alloc_fault_set(0);
        /* A search may do without what it found no memory for. */
        if (status != MM_OK && (!fails || status != MM_ERR_NOMEM))
            fail_msg("%s, allocation %d fails: %s: %s", spec, nth, mm_status_name(status), mm_last_error());
        if (status == MM_OK) assert_non_null(plan);
        mm_plan_destroy(plan);
    }
    assert_true(nth > 3 * stride);
    mm_policy_fini(&policy);
    mm_graph_facts_destroy(facts);
}

TEST_CASE(each_policy_says_that_there_is_no_memory) {
    static const char *const specs[] = {"naive",
                                        "liveness",
                                        "swap:when=always",
                                        "hybrid:rate=8,when=always",
                                        "recompute:mode=nested,when=always",
                                        "recompute-swap:when=always",
                                        "freelunch:rate=8,eligible=all,when=always",
                                        "modnn",
                                        "rotor:when=always",
                                        "knapsack:when=always",
                                        "auto:effort=0"};
    mm_graph *graph;
    assert_int_equal(
        random_graph_create(&(random_graph_options){.seed = SEED, .layers = LAYERS, .max_channels = 4}, &graph), MM_OK);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) plan_without_memory(graph, specs[i]);
    mm_graph_destroy(graph);
}
