/* SPDX-License-Identifier: MIT */
/* modnn: what leaves, what comes back and when, by hand-computed schedules; and random graphs in all budgets. */
#include <stdio.h>
#include <string.h>

#include "mm/core/account/account.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/time/simulate.h"
#include "tests/core/plan_proof.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"
#include "tests/policies/engine_rig.h"

#define MUCH (INT64_C(1) << 40)

/* Plans, and proves the plan. Returns what mm_plan_fits says of it. */
static mm_status plan_in(const mm_graph *graph, const mm_graph_facts *facts, const char *spec, int64_t device_bytes,
                         int64_t pinned_bytes, mm_plan **plan_out) {
    mm_policy policy;
    const int64_t base = mm_plan_base(graph);
    const mm_limits limits = {.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = base};
    if (mm_policy_parse(spec, &policy) != MM_OK) fail_msg("%s", mm_last_error());
    if (mm_policy_plan(&policy, graph, facts, &limits, plan_out) != MM_OK) fail_msg("%s", mm_last_error());
    mm_policy_fini(&policy);
    const mm_limits own = {
        .device_bytes = (*plan_out)->peak_bytes, .pinned_bytes = (*plan_out)->pinned_bytes, .base_bytes = base};
    if (plan_check(*plan_out, facts, &own) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    return mm_plan_fits(*plan_out, &limits);
}

/* ---------------------------------------------------------------- schedules by hand
 *
 * A unit is UNIT bytes, and UNIT ns: a step takes one unless the test says, a copy one for each unit of bytes. */

/* Facts of a graph by hand. ns: per step, in units; NULL: one each. */
static mm_graph_facts *by_hand(const mm_graph *graph, const int *units) {
    mm_graph_facts *facts = terse_facts(graph, UNIT);
    for (int s = 0; s < facts->n_steps; s++)
        for (int v = facts->variant_first[s]; v < facts->variant_first[s + 1]; v++)
            facts->variants[v].ns = (units ? units[s] : 1) * UNIT;
    facts->out_bytes_per_s = facts->in_bytes_per_s = 1000000000;
    return facts;
}

/* Plans in so many units; what the plan does, in the words of terse_tell. Takes the graph and the facts over. */
static void assert_tells(mm_graph *graph, mm_graph_facts *facts, const char *spec, int units, int defragmentations,
                         const char *expected) {
    char text[512];
    mm_plan *plan;
    assert_int_equal(plan_in(graph, facts, spec, mm_plan_base(graph) + units * UNIT, MUCH, &plan), MM_OK);
    assert_string_equal(terse_tell(plan, text, sizeof text), expected);
    assert_int_equal(plan->defragmentations, defragmentations);
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* Maps with their units: "a2 b2 ...". */
static void maps(terse_graph *g, const char *names) {
    char name[8];
    for (int units, n; sscanf(names, " %7[a-z]%d%n", name, &units, &n) == 2; names += n)
        terse_map(g, name, MM_FEATURE_MAP, units);
}

/* A forward step of a layer of its own. */
static void forward(terse_graph *g, const char *layer, const char *uses) {
    terse_step(g, layer, MM_LAYER_OTHER, MM_FORWARD, uses);
}

/* The paper's Figure 6. When g is to be made, memory is full: |a 2|b 2|n 4|e 2|f 2|. n may not leave, as no step has
 * used it yet. a and b can have left by then: their copies take from 1 to 5. e and f, made at 4 and 5, could only have
 * left at 8. b comes back after I: until then the link is busy with a. */
TEST_CASE(contiguous_maps_leave_whose_leaving_delays_least) {
    terse_graph g;
    terse_init(&g, "scheme");
    maps(&g, "a2 b2 n4 e2 f2 g4");
    forward(&g, "A", "=a");
    forward(&g, "B", "a =b");
    forward(&g, "N", "b =n");
    forward(&g, "E", "=e");
    forward(&g, "F", "e =f");
    forward(&g, "F2", "f");
    forward(&g, "G", "=g");
    forward(&g, "H", "n g");
    forward(&g, "I", "e f");
    forward(&g, "J", "a b");
    mm_graph *graph = terse_freeze(&g);
    assert_tells(graph, by_hand(graph, NULL), "modnn", 12, 0, "A >a B >b N E F F2 G H <a I <b J");
}

/* x leaves twice. Its copy in pinned memory stays, so the second time nothing is copied out. */
TEST_CASE(what_has_a_copy_leaves_without_a_second_one) {
    terse_graph g;
    terse_init(&g, "copy");
    maps(&g, "x4 p8 q8");
    forward(&g, "X", "=x");
    forward(&g, "Y", "x");
    forward(&g, "P", "=p");
    forward(&g, "O", "p");
    forward(&g, "U", "x");
    forward(&g, "Q", "=q");
    forward(&g, "R", "q");
    forward(&g, "V", "x");
    mm_graph *graph = terse_freeze(&g);
    assert_tells(graph, by_hand(graph, NULL), "modnn", 8, 0, "X >x Y P O <x U Q R <x V");
}

/* A step changes x, so its copy in pinned memory is stale: the second time x is copied out again. */
TEST_CASE(what_was_changed_since_is_copied_out_again) {
    terse_graph g;
    terse_init(&g, "changed");
    maps(&g, "x4 p8 q8");
    forward(&g, "X", "=x");
    forward(&g, "Y", "x");
    forward(&g, "P", "=p");
    forward(&g, "O", "p");
    forward(&g, "U", "+x");
    forward(&g, "W", "x");
    forward(&g, "Q", "=q");
    forward(&g, "R", "q");
    forward(&g, "V", "x");
    mm_graph *graph = terse_freeze(&g);
    assert_tells(graph, by_hand(graph, NULL), "modnn", 8, 0, "X >x Y P O <x U >x W Q R <x V");
}

/* When d is to be made, memory is |z 1|a 2|free 2|c 2|free 2|: room enough, but in two parts. No step has used a or c,
 * so neither may leave for d; so all is put out, and comes back without gaps. */
TEST_CASE(fragments_are_joined_by_putting_all_out) {
    terse_graph g;
    terse_init(&g, "fragments");
    maps(&g, "z1 a2 b2 c2 d4 y9");
    forward(&g, "Z", "=z");
    forward(&g, "A", "z =a");
    forward(&g, "B", "=b");
    forward(&g, "C", "b =c");
    forward(&g, "D", "=d");
    forward(&g, "E", "a c d");
    forward(&g, "Y", "=y");
    forward(&g, "F", "y");
    forward(&g, "G", "z");
    mm_graph *graph = terse_freeze(&g);
    assert_tells(graph, by_hand(graph, NULL), "modnn", 9, 1, "Z >z A >a B C >c <a D <c E Y F <z G");
}

/* x (of so many units) leaves to make room for p; four steps that use nothing follow; then S reads x. */
static mm_graph *late(int x) {
    terse_graph g;
    terse_init(&g, "late");
    terse_map(&g, "x", MM_FEATURE_MAP, x);
    maps(&g, "p8");
    forward(&g, "X", "=x");
    forward(&g, "Y", "x");
    forward(&g, "P", "=p");
    forward(&g, "O", "p");
    for (g.i = 1; g.i <= 4; g.i++) forward(&g, "I#", "");
    forward(&g, "S", "x");
    return terse_freeze(&g);
}

/* The paper's inequality 9. From the end of I3 there are 3 units of time until S; from the end of I2, 6; of I1, 9. */
TEST_CASE(a_map_is_fetched_when_waiting_would_be_late_and_not_before) {
    static const int units[] = {1, 1, 1, 1, 3, 3, 3, 3, 1};
    mm_graph *graph = late(3);
    assert_tells(graph, by_hand(graph, units), "modnn", 8, 0, "X >x Y P O I1 I2 I3 <x I4 S");
    graph = late(4);
    assert_tells(graph, by_hand(graph, units), "modnn", 8, 0, "X >x Y P O I1 I2 <x I3 I4 S");
    graph = late(7);
    assert_tells(graph, by_hand(graph, units), "modnn", 8, 0, "X >x Y P O I1 <x I2 I3 I4 S");
}

/* Step C can run with 4 units of workspace, or with none. x, of 8 units, is not used by C. */
static mm_graph *two_variants(void) {
    terse_graph g;
    terse_init(&g, "gain");
    maps(&g, "x8 y2");
    forward(&g, "X", "=x");
    forward(&g, "U", "x");
    g.workspace_bytes = 4 * UNIT;
    forward(&g, "C", "=y");
    assert_int_equal(mm_graph_allow_workspace(g.graph, 0), MM_OK);
    g.workspace_bytes = 0;
    forward(&g, "V", "x y");
    return terse_freeze(&g);
}

/* C takes 2 units of time with its workspace, and `slow` without. If x leaves to make
 * room for the workspace, it has left 7 units after C could have begun. */
static void assert_gains(int slow, int units, const char *spec, int variant, const char *expected) {
    char text[256];
    mm_plan *plan;
    mm_graph *graph = two_variants();
    mm_graph_facts *facts = by_hand(graph, NULL);
    facts->variants[facts->variant_first[2]].ns = 2 * UNIT;
    facts->variants[facts->variant_first[2] + 1].ns = slow * UNIT;
    assert_int_equal(plan_in(graph, facts, spec, mm_plan_base(graph) + units * UNIT, MUCH, &plan), MM_OK);
    assert_string_equal(terse_tell(plan, text, sizeof text), expected);
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].step == 2) assert_int_equal(plan->nodes[i].variant, variant);
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* Equation 10: what the faster algorithm saves, less the delay that its workspace causes. */
TEST_CASE(an_algorithm_is_chosen_by_its_gain) {
    assert_gains(6, 14, "modnn", 0, "X U C V");        /* there is room for x and the workspace */
    assert_gains(6, 10, "modnn", 1, "X U C V");        /* it would save 4, and wait 7 */
    assert_gains(22, 10, "modnn", 0, "X >x U C <x V"); /* it saves 20, and waits 7 and 8 */
    assert_gains(22, 10, "modnn:algorithms=least", 1, "X U C V");
    assert_gains(22, 14, "modnn:algorithms=least", 1, "X U C V");
    assert_gains(6, 10, "modnn:algorithms=fastest", 0, "X >x U C <x V");
    assert_gains(22, 10, "modnn:offload=off", 1, "X U C V");
    assert_gains(22, 13, "modnn:offload=off", 1, "X U C V");
    assert_gains(22, 14, "modnn:offload=off", 0, "X U C V");
}

static mm_status status_in(const mm_graph *graph, const mm_graph_facts *facts, int units) {
    mm_policy policy;
    mm_plan *plan = NULL;
    const int64_t base = mm_plan_base(graph);
    const mm_limits limits = {.device_bytes = base + units * UNIT, .pinned_bytes = units * UNIT, .base_bytes = base};
    assert_int_equal(mm_policy_parse("modnn", &policy), MM_OK);
    const mm_status status = mm_policy_plan(&policy, graph, facts, &limits, &plan);
    mm_policy_fini(&policy);
    mm_plan_destroy(plan);
    return status;
}

/* With some times unknown, plans would be bad without notice. Where all maps fit, no times are needed. */
TEST_CASE(facts_without_a_time_that_is_needed_are_refused_naming_it) {
    mm_graph *graph = late(3);
    mm_graph_facts *facts = by_hand(graph, NULL);
    assert_int_equal(status_in(graph, facts, 8), MM_OK);
    facts->in_bytes_per_s = 0;
    assert_int_equal(status_in(graph, facts, 8), MM_ERR_INVALID);
    assert_says("no rate of copies to the device");
    assert_says("'mm bench --facts'");
    facts->in_bytes_per_s = 1;
    facts->variants[facts->variant_first[2]].ns = 0;
    assert_int_equal(status_in(graph, facts, 8), MM_ERR_INVALID);
    assert_says("no time of P forward");
    assert_int_equal(status_in(graph, facts, 11), MM_OK);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* All maps fit with the slower variant; whether it is faster that x leaves depends on the times of copies. */
TEST_CASE(what_fits_by_slower_variants_is_compared_by_all_times) {
    mm_graph *graph = two_variants();
    mm_graph_facts *facts = by_hand(graph, NULL);
    mm_plan *plan;
    facts->out_bytes_per_s = 0;
    assert_int_equal(status_in(graph, facts, 10), MM_ERR_INVALID);
    assert_says("no rate of copies to host memory");
    assert_int_equal(status_in(graph, facts, 14), MM_OK);
    assert_int_equal(plan_in(graph, facts, "modnn:offload=off", INT64_MAX, 0, &plan), MM_OK);
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* With too little pinned memory for the maps that have to leave, the plan keeps all, and says how much memory that
 * takes. */
TEST_CASE(without_pinned_memory_all_is_kept) {
    mm_graph *graph = late(3);
    mm_graph_facts *facts = by_hand(graph, NULL);
    mm_plan *plan;
    const int64_t base = mm_plan_base(graph);
    assert_int_equal(plan_in(graph, facts, "modnn", base + 8 * UNIT, 3 * UNIT - 1, &plan), MM_ERR_INFEASIBLE);
    assert_int_equal(plan->pinned_bytes, 0);
    assert_int_equal(plan->peak_bytes, base + 11 * UNIT);
    mm_plan_destroy(plan);
    assert_int_equal(plan_in(graph, facts, "modnn", base + 8 * UNIT, 3 * UNIT, &plan), MM_OK);
    assert_int_equal(plan->pinned_bytes, 3 * UNIT);
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* In 8 units both a and b would have to leave; but pinned memory has room for one of them only. */
TEST_CASE(in_little_pinned_memory_the_lowest_plan_lets_less_leave) {
    terse_graph g;
    mm_plan *plan;
    terse_init(&g, "two");
    maps(&g, "a3 b3 p8");
    forward(&g, "A", "=a");
    forward(&g, "U", "a");
    forward(&g, "B", "=b");
    forward(&g, "V", "b");
    forward(&g, "P", "=p");
    forward(&g, "O", "p");
    forward(&g, "S", "a b");
    mm_graph *graph = terse_freeze(&g);
    mm_graph_facts *facts = by_hand(graph, NULL);
    for (int units = 0; units <= 11; units++) {
        const int64_t base = mm_plan_base(graph), pinned = 5 * UNIT;
        const mm_status status = plan_in(graph, facts, "modnn", base + units * UNIT, pinned, &plan);
        assert_int_equal(status, units < 11 ? MM_ERR_INFEASIBLE : MM_OK);
        assert_int_equal(plan->peak_bytes, base + 11 * UNIT);
        assert_int_equal(plan->pinned_bytes, 3 * UNIT);
        mm_plan_destroy(plan);
    }
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- random graphs */

static int64_t step_ns(const mm_plan *plan, const mm_graph_facts *facts) {
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
    int squeezed;                    /* minima in half of the pinned memory, of which maps leave */
} tally;

/* With `pinned` bytes of pinned memory, half of what the minimum takes, there is a larger minimum, and every budget
 * from there to `kept` can be planned. */
static void try_pinned(const mm_graph *graph, const mm_graph_facts *facts, const char *spec, int64_t pinned,
                       int64_t kept, tally *sum) {
    mm_plan *least, *plan;
    (void)plan_in(graph, facts, spec, 0, pinned, &least);
    assert_true(least->pinned_bytes <= pinned && least->peak_bytes <= kept);
    for (int i = 0; i < 2; i++) {
        const int64_t budget = least->peak_bytes + (kept - least->peak_bytes) * i / 2;
        if (plan_in(graph, facts, spec, budget, pinned, &plan) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
        mm_plan_destroy(plan);
    }
    sum->squeezed += least->pinned_bytes > 0;
    mm_plan_destroy(least);
}

static void try_budgets(const mm_graph *graph, const mm_graph_facts *facts, const char *spec, tally *sum) {
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
    try_pinned(graph, facts, spec, least->pinned_bytes / 2, high, sum);
    mm_plan_destroy(least);
    mm_plan_destroy(kept);
}

/* Of a step's variants the first is the fastest, and has the largest workspace. */
static void order_variants(mm_graph_facts *facts, uint64_t seed) {
    for (int s = 0; s < facts->n_steps; s++)
        for (int v = facts->variant_first[s], end = facts->variant_first[s + 1], i = 0; v < end; v++, i++) {
            const int64_t first_ns = facts->variants[facts->variant_first[s]].ns;
            facts->variants[v].ns = first_ns + first_ns * i / (1 + (int64_t)(seed % 7));
            facts->variants[v].workspace_bytes += (int64_t)(end - v) * 1000 * (1 + (int64_t)(seed % 9));
        }
}

TEST_CASE(plans_fit_from_their_minimum_to_what_keeping_all_takes) {
    static const char *const specs[] = {"modnn", "modnn:algorithms=fastest", "modnn:algorithms=least"};
    enum { GRAPHS = 60 };
    tally sum = {0};
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        random_graph_options options = {.seed = seed, .layers = 4 + (int)seed % 20, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        order_variants(facts, seed);
        if (seed % 4 == 0) /* no times: the policy takes nominal ones */
            for (int v = 0; v < facts->variant_first[facts->n_steps]; v++) facts->variants[v].ns = 0;
        else
            facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1000000000);
        try_budgets(graph, facts, specs[seed % 3], &sum);
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(sum.moved > 4 * GRAPHS && sum.defragmented > GRAPHS && sum.slowed > GRAPHS && sum.squeezed > 0);
}
