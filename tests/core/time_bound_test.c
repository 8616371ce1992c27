/* The bound of an iteration's time: below every plan that the check accepts, and what it is where that is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mm/core/simulate.h"
#include "mm/core/status.h"
#include "mm/core/time_bound.h"
#include "tests/core/expect.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"

static void set_rates(mm_facts *facts, uint64_t seed) {
    facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1) << (24 + seed % 8);
    facts->in_both_bytes_per_s = facts->in_bytes_per_s / 2;
    facts->contention_permille = (int)(seed * 37 % 900);
    facts->link_contention_permille = (int)(seed * 53 % 400);
    facts->issue_ns = (int64_t)(seed % 7) * 100;
}

/* Whether it runs only repeatable layers again: the bound is for such plans. */
static bool repeats_well(const mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE &&
            !mm_graph_step_properties(plan->graph, plan->nodes[i].step)->repeatable)
            return false;
    return true;
}

/* In no more memory than it takes itself. */
static int64_t bound_of(const mm_plan *plan, const mm_facts *facts) {
    const mm_limits limits = {
        .device_bytes = plan->peak_bytes, .pinned_bytes = plan->pinned_bytes, .base_bytes = plan->base_bytes};
    mm_time_bound bound;
    expect_ok(mm_time_bound_of(plan->graph, facts, &limits, &bound));
    return bound.ns;
}

static void random_plans_take_at_least_the_bound(void **state) {
    (void)state;
    int compared = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        mm_graph *graph;
        mm_facts *facts;
        const mm_limits limits = {0};
        const random_graph_options graph_options = {
            .seed = seed, .layers = 4 + (int)(seed % 12), .max_channels = 4, .images = 12};
        expect_ok(random_graph_create(&graph_options, &graph));
        expect_ok(random_facts_create(graph, seed, &facts));
        set_rates(facts, seed);
        for (uint64_t variant = 0; variant < 4; variant++) {
            const random_plan_options options = {
                .seed = seed + 1000 * variant, .lossy = variant != 3, .pools = variant % 2, .measures = variant == 2};
            mm_plan *plan;
            mm_simulation sim;
            expect_ok(random_plan_create(graph, facts, &limits, &options, &plan));
            expect_ok(mm_simulate(plan, facts, &sim));
            const int64_t bound = bound_of(plan, facts);
            if (repeats_well(plan)) {
                compared++;
                if (bound > sim.iteration_ns)
                    fail_msg("seed %d, %d: %lld ns, the bound is %lld", (int)seed, (int)variant,
                             (long long)sim.iteration_ns, (long long)bound);
            }
            mm_simulation_fini(&sim);
            mm_plan_destroy(plan);
        }
        mm_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(compared > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_take_at_least_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
