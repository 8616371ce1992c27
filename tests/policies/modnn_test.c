/* modnn: what leaves, what comes back and when, by hand-computed schedules; and random graphs in all budgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/account.h"
#include "mm/core/simulate.h"
#include "tests/core/random_graph.h"
#include "tests/policies/engine_rig.h"

#define MUCH (INT64_C(1) << 40)

/* Plans, and proves the plan. Returns what mm_plan_fits says of it. */
static mm_status plan_in(const mm_graph *graph, const mm_facts *facts, const char *spec, int64_t device_bytes,
                         int64_t pinned_bytes, mm_plan **plan_out) {
    mm_policy policy;
    const int64_t base = mm_plan_base(graph);
    const mm_limits limits = {.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = base};
    if (mm_policy_parse(spec, &policy) != MM_OK) fail_msg("%s", mm_last_error());
    if (mm_policy_plan(&policy, graph, facts, &limits, plan_out) != MM_OK) fail_msg("%s", mm_last_error());
    mm_policy_fini(&policy);
    const mm_limits own = {
        .device_bytes = (*plan_out)->peak_bytes, .pinned_bytes = (*plan_out)->pinned_bytes, .base_bytes = base};
    if (mm_plan_check(*plan_out, facts, &own) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    return mm_plan_fits(*plan_out, &limits);
}

/* ---------------------------------------------------------------- random graphs */

static int64_t step_ns(const mm_plan *plan, const mm_facts *facts) {
    mm_simulation sim;
    assert_int_equal(mm_simulate(plan, facts, &sim), MM_OK);
    const int64_t ns = sim.iteration_ns;
    mm_simulation_fini(&sim);
    return ns;
}

static void assert_same_plan(const mm_plan *a, const mm_plan *b) {
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_segments, b->n_segments);
    assert_memory_equal(a->nodes, b->nodes, (size_t)a->n_nodes * sizeof *a->nodes);
    for (int i = 0; i < a->n_segments; i++) assert_int_equal(a->segments[i].offset, b->segments[i].offset);
}

/* Each value is copied out once at most: its copy stays until its last use. */
static void assert_no_second_copy_out(const mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        int outs = 0, writes = 0;
        if (n->kind != MM_NODE_OUT) continue;
        for (int j = 0; j < plan->n_nodes; j++)
            outs += plan->nodes[j].kind == MM_NODE_OUT && plan->nodes[j].tensor == n->tensor;
        writes = mm_graph_tensor(plan->graph, n->tensor)->writes;
        assert_true(outs <= writes);
    }
}

typedef struct tally {
    int moved, defragmented, slowed; /* plans that copy maps, that defragment, with other than the first variants */
} tally;

static void try_budgets(const mm_graph *graph, const mm_facts *facts, const char *spec, tally *sum) {
    enum { BUDGETS = 8 };
    mm_plan *least, *kept, *plan, *again;
    assert_int_equal(plan_in(graph, facts, "liveness", MUCH, 0, &kept), MM_OK);
    (void)plan_in(graph, facts, spec, 0, MUCH, &least);
    assert_true(least->peak_bytes <= kept->peak_bytes);
    const int64_t low = least->peak_bytes, high = kept->peak_bytes;
    for (int i = -1; i <= BUDGETS; i++) {
        const int64_t budget = i < 0 ? low - 1 : low + (high - low) * i / BUDGETS;
        const mm_status status = plan_in(graph, facts, spec, budget, MUCH, &plan);
        if (status != (i < 0 ? MM_ERR_INFEASIBLE : MM_OK))
            fail_msg("%s in %lld of %lld to %lld bytes: %s", spec, (long long)budget, (long long)low, (long long)high,
                     mm_last_error());
        (void)plan_in(graph, facts, spec, budget, MUCH, &again);
        assert_same_plan(plan, again);
        assert_no_second_copy_out(plan);
        sum->moved += mm_account_moves(plan).offloads > 0;
        sum->defragmented += plan->defragmentations > 0;
        for (int n = 0; n < plan->n_nodes; n++) sum->slowed += plan->nodes[n].variant > 0;
        if (i == BUDGETS && !strstr(spec, "least")) {
            assert_int_equal(mm_account_moves(plan).offloads, 0);
            assert_int_equal(step_ns(plan, facts), step_ns(kept, facts));
        }
        mm_plan_destroy(plan);
        mm_plan_destroy(again);
    }
    mm_plan_destroy(least);
    mm_plan_destroy(kept);
}

/* Of a step's variants the first is the fastest, and has the largest workspace. */
static void order_variants(mm_facts *facts, uint64_t seed) {
    for (int s = 0; s < facts->n_steps; s++)
        for (int v = facts->variant_first[s], end = facts->variant_first[s + 1], i = 0; v < end; v++, i++) {
            const int64_t first_ns = facts->variants[facts->variant_first[s]].ns;
            facts->variants[v].ns = first_ns + first_ns * i / (1 + (int64_t)(seed % 7));
            facts->variants[v].workspace_bytes += (int64_t)(end - v) * 1000 * (1 + (int64_t)(seed % 9));
        }
}

static void plans_fit_from_their_minimum_to_what_keeping_all_takes(void **state) {
    (void)state;
    static const char *const specs[] = {"modnn", "modnn:algorithms=fastest", "modnn:algorithms=least"};
    enum { GRAPHS = 60 };
    tally sum = {0};
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        mm_graph *graph;
        mm_facts *facts;
        random_graph_options options = {.seed = seed, .layers = 4 + (int)seed % 20, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        order_variants(facts, seed);
        if (seed % 4 == 0) /* then nominal times */
            for (int v = 0; v < facts->variant_first[facts->n_steps]; v++) facts->variants[v].ns = 0;
        else
            facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1000000000);
        try_budgets(graph, facts, specs[seed % 3], &sum);
        mm_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(sum.moved > 4 * GRAPHS && sum.defragmented > GRAPHS && sum.slowed > GRAPHS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_fit_from_their_minimum_to_what_keeping_all_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
