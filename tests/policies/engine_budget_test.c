/* SPDX-License-Identifier: MIT */
/* The engine of rules within limits: buffers, pinned memory, budgets; and the times that it goes by where none are
 * known. */
#include <stdio.h>
#include <string.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/time/simulate.h"
#include "policies/engine/engine_floor.h"
#include "policies/schedule/draft_time.h"
#include "policies/schedule/nominal.h"
#include "tests/core/plan_proof.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"
#include "tests/policies/engine_rig.h"

typedef struct outcome {
    mm_status status;
    int operations;
    int64_t device_bytes, pinned_bytes, ns;
} outcome;

/* Plans within limits, with a base of 32 KiB, and proves the plan. */
static outcome plan_within(const mm_graph *graph, const mm_graph_facts *facts, const char *spec, int64_t device_bytes,
                           int64_t pinned_bytes) {
    mm_policy policy;
    mm_plan *plan;
    mm_simulation sim;
    mm_limits limits = {.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = 128 * UNIT};
    outcome o = {0};
    if (mm_policy_parse(spec, &policy) != MM_OK) fail_msg("%s", mm_last_error());
    o.status = mm_policy_plan(&policy, graph, facts, &limits, &plan);
    mm_policy_fini(&policy);
    if (o.status != MM_OK) return o;
    o.device_bytes = limits.device_bytes = plan->peak_bytes;
    o.pinned_bytes = limits.pinned_bytes = plan->pinned_bytes;
    if (plan_check(plan, facts, &limits) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    assert_int_equal(mm_simulate(plan, facts, &sim), MM_OK);
    o.ns = sim.iteration_ns;
    mm_simulation_fini(&sim);
    for (int i = 0; i < plan->n_nodes; i++) o.operations += plan->nodes[i].kind != MM_NODE_STEP;
    limits = (mm_limits){.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = 128 * UNIT};
    o.status = mm_plan_fits(plan, &limits);
    mm_plan_destroy(plan);
    return o;
}

TEST_CASE(too_few_buffers_are_refused_or_passed_over) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
    int64_t much = INT64_C(1) << 40;
    assert_int_equal(plan_within(graph, facts, "swap-async:depth=1,k=2,when=always", much, much).status,
                     MM_ERR_INFEASIBLE);
    assert_says("2 buffers");
    assert_says("3");
    assert_int_equal(plan_within(graph, facts, "swap-async:depth=1,k=3,when=always", much, much).status, MM_OK);
    outcome idle = plan_within(graph, facts, "swap-async:depth=1,k=2", much, much);
    assert_int_equal(idle.status, MM_OK);
    assert_int_equal(idle.operations, 0);
    assert_int_equal(plan_within(graph, facts, "swap-async:depth=1,k=2", idle.device_bytes - 1, much).status,
                     MM_ERR_INFEASIBLE);
    assert_says("2 buffers"); /* not: liveness does not fit */
    assert_says("3");
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

TEST_CASE(nominal_times_are_for_all_but_what_is_known) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
    facts->out_bytes_per_s = INT64_C(450000000);
    assert_true(mm_nominal_is_due(facts));
    mm_nominal_times(graph, facts);
    assert_false(mm_nominal_is_due(facts));
    for (int v = 0; v < facts->variant_first[facts->n_steps]; v++) assert_true(facts->variants[v].ns > 0);
    for (int c = 0; c < facts->n_codecs * facts->n_tensors; c++)
        assert_true(facts->codes[c].encode_ns > 0 && facts->codes[c].decode_ns > 0);
    assert_int_equal(facts->out_bytes_per_s, 450000000);
    assert_true(facts->in_bytes_per_s > facts->out_bytes_per_s);
    assert_true(mm_facts_link_is_possible(facts));
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* With four times the memory's rate, no step takes longer, some take less, and the link's rate is the same. */
TEST_CASE(nominal_times_go_by_the_rate_of_the_devices_memory) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts[3];
    const int64_t rates[3] = {0, INT64_C(250000000000), INT64_C(1000000000000)};
    int shorter = 0;
    for (int i = 0; i < 3; i++) {
        facts[i] = terse_facts(graph, CODE * UNIT);
        facts[i]->memory_bytes_per_s = rates[i];
        mm_nominal_times(graph, facts[i]);
        assert_int_equal(facts[i]->out_bytes_per_s, facts[0]->out_bytes_per_s);
    }
    for (int v = 0; v < facts[0]->variant_first[facts[0]->n_steps]; v++) {
        assert_int_equal(facts[1]->variants[v].ns, facts[0]->variants[v].ns);
        assert_true(facts[2]->variants[v].ns <= facts[0]->variants[v].ns);
        shorter += facts[2]->variants[v].ns < facts[0]->variants[v].ns;
    }
    assert_true(shorter > 0);
    for (int i = 0; i < 3; i++) mm_graph_facts_destroy(facts[i]);
    mm_graph_destroy(graph);
}

/* Maps of pools that are apart from each other, so that two buffers serve any number; then several in a row. */
static mm_graph *apart_then_together(void) {
    terse_graph g;
    terse_init(&g, "apart_then_together");
    for (g.i = 0; g.i <= 10; g.i++) terse_map(&g, "m#", MM_FEATURE_MAP, MAP);
    for (g.i = 0; g.i <= 10; g.i++)
        terse_step(&g, "layer#", g.i % 2 == 1 || g.i >= 7 ? MM_LAYER_POOL : MM_LAYER_CONV, MM_FORWARD,
                   g.i > 0 ? "m< =m#" : "=m0");
    terse_step(&g, "end", MM_LAYER_OTHER, MM_FORWARD, "m10");
    for (g.i = 10; g.i >= 0; g.i--)
        if (g.i % 2 == 1 || g.i >= 7) terse_step(&g, "layer#", MM_LAYER_POOL, MM_BACKWARD, "m#");
    return terse_freeze(&g);
}

TEST_CASE(a_plan_that_takes_more_buffers_than_there_are_is_passed_over_for_one_that_fits) {
    mm_graph *graph = apart_then_together();
    mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
    int64_t much = INT64_C(1) << 40;
    assert_int_equal(plan_within(graph, facts, "rules:pool=swap,depth=1,k=2,when=always", much, much).status,
                     MM_ERR_INFEASIBLE);
    outcome idle = plan_within(graph, facts, "rules:pool=swap,depth=1,k=2", much, much);
    outcome less = plan_within(graph, facts, "rules:pool=swap,depth=1,k=2", idle.device_bytes - UNIT, much);
    assert_int_equal(less.status, MM_OK);
    assert_true(less.operations > 0 && less.device_bytes < idle.device_bytes);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

TEST_CASE(too_little_pinned_memory_is_refused_naming_it) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
    int64_t much = INT64_C(1) << 40;
    assert_int_equal(plan_within(graph, facts, "vdnn-all:when=always", much, 4 * MAP * UNIT).status, MM_OK);
    assert_int_equal(plan_within(graph, facts, "vdnn-all:when=always", much, 4 * MAP * UNIT - 1).status,
                     MM_ERR_INFEASIBLE);
    assert_says("8192 bytes (8KiB) of pinned memory");
    assert_says("8191");
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* norm: f -> g, a batch norm with its ReLU, which on its way back reads f and the signs of g; conv: g -> c, and
 * back. */
static mm_graph *normed(void) {
    static const char *const maps[] = {"f", "g", "c", "df", "dg", "dc"};
    terse_graph g;
    terse_init(&g, "normed");
    for (int i = 0; i < 6; i++) terse_map(&g, maps[i], i < 3 ? MM_FEATURE_MAP : MM_GRADIENT_MAP, MAP);
    terse_step(&g, "first", MM_LAYER_CONV, MM_FORWARD, "=f");
    terse_step(&g, "norm", MM_LAYER_BATCH_NORM_RELU, MM_FORWARD, "f =g");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "g =c");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "c");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "c =dc");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "g dc =dg");
    terse_step(&g, "norm", MM_LAYER_BATCH_NORM_RELU, MM_BACKWARD, "?g f dg =df");
    terse_step(&g, "first", MM_LAYER_CONV, MM_BACKWARD, "df");
    return terse_freeze(&g);
}

TEST_CASE(a_lean_swaps_minimum_has_a_mask_where_signs_are_read) {
    mm_graph *graph = normed();
    mm_graph_facts *facts = terse_facts(graph, -1);
    const int64_t base = 128 * UNIT, much = INT64_C(1) << 40;
    const outcome swap = plan_within(graph, facts, "swap", 0, much),
                  lean = plan_within(graph, facts, "rules:*=lean-swap,depth=0", 0, much);
    assert_int_equal(swap.device_bytes, base + 4 * MAP * UNIT); /* f, g, dg, df */
    const int64_t mask = lean.device_bytes - base - 3 * MAP * UNIT;
    if (mask <= 0 || mask > UNIT) fail_msg("beside f, dg and df %lld bytes", (long long)mask);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* Random graphs with times, in budgets from all that liveness takes down to less than the policy can do with. */
TEST_CASE(the_step_never_takes_longer_with_a_larger_budget) {
    static const char *const policies[] = {
        "swap:",
        "swap-async:",
        "vdnn-all:",
        "vdnn-conv:",
        "cdma:codec=test-lossless,",
        "freelunch:codec=test-lossless,eligible=all,",
        "hybrid:codec=test-lossless,",
        "rules:relu=mask;conv=compress-swap(test-lossless);*=swap,",
        "rules:relu=recompute;conv=compress(test-lossy:rate=8);*=swap,",
        "recompute:mode=speed,",
        "recompute:mode=memory,",
        "recompute:mode=cost,",
        "recompute:mode=sqrt,",
        "recompute:mode=nested,",
        "recompute-swap:mode=nested,",
        "rules:*=lean-swap,depth=0,",
        "rules:relu=recompute;conv=compress(test-lossy:rate=8);*=lean-swap,",
    };
    enum { GRAPHS = 65 };
    int refused = 0, acted = 0, slower = 0;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        const char *policy = policies[seed % (sizeof policies / sizeof *policies)];
        char spec[160], always[160];
        snprintf(spec, sizeof spec, "%swhen=needed", policy);
        snprintf(always, sizeof always, "%swhen=always", policy);
        random_graph_options options = {.seed = seed, .layers = 4 + (int)seed % 16, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        strcpy(facts->codecs[RANDOM_MASK].spec, "mask");
        facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1000000000);
        facts->out_both_bytes_per_s = facts->in_both_bytes_per_s = INT64_C(600000000);
        outcome liveness = plan_within(graph, facts, "liveness", INT64_MAX, 0);
        int64_t least = plan_within(graph, facts, spec, 0, INT64_MAX).device_bytes, ns = INT64_MAX;
        assert_true(least <= plan_within(graph, facts, always, 0, INT64_MAX).device_bytes);
        for (int i = -1; i <= 8; i++) {
            int64_t budget = i < 0 ? least - 1 : least + (liveness.device_bytes - least) * i / 8;
            outcome o = plan_within(graph, facts, spec, budget, INT64_MAX);
            if (o.status != (i < 0 ? MM_ERR_INFEASIBLE : MM_OK))
                fail_msg("seed %d, %s, %lld bytes: %s", (int)seed, spec, (long long)budget, mm_last_error());
            refused += i < 0;
            acted += o.operations > 0;
            if (i < 0) continue;
            assert_true(o.device_bytes <= budget && o.ns <= ns);
            slower += o.ns > liveness.ns;
            ns = o.ns;
            if (i == 8) assert_true(o.operations == 0 && o.ns == liveness.ns);
        }
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(refused == GRAPHS && acted > GRAPHS && slower > GRAPHS / 2);
}

/* How near the lower bounds come that the engine knows before it builds a plan. */
typedef struct nearness {
    int plans, near, fast; /* near: within a tenth, of bytes; fast: of the time */
} nearness;

/* Checks that a policy's plans, from those that keep all maps to those that keep none, take at least that. */
static void assert_floors_below(const mm_graph *graph, const mm_graph_facts *facts, const char *spec, nearness *n) {
    enum { MOST = 12 };
    const mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = 128 * UNIT};
    mm_policy policy;
    mm_survey *survey;
    if (mm_policy_parse(spec, &policy) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(mm_survey_create(graph, facts, &limits, &policy.config, NULL, &survey), MM_OK);
    for (int i = 0; i <= MOST; i++) {
        const mm_selection selection = {.limit = i < MOST ? i * i : INT32_MAX,
                                        .nesting = i % (mm_survey_nestings(survey) + 1)};
        mm_engine e;
        mm_bounds bounds;
        int64_t floor_bytes, least_ns, ns;
        if (mm_survey_nestings(survey) > 0 && selection.nesting == mm_survey_nestings(survey)) continue;
        assert_int_equal(mm_engine_begin(&e, survey, &policy.config, &selection), MM_OK);
        assert_int_equal(mm_engine_floor(&e, &floor_bytes), MM_OK);
        assert_int_equal(mm_engine_least_time(&e, &least_ns), MM_OK);
        assert_int_equal(mm_engine_build(&e, &bounds), MM_OK);
        if (floor_bytes > bounds.peak_bytes)
            fail_msg("%s, %d maps: %lld bytes at least, but it takes %lld", spec, selection.limit,
                     (long long)floor_bytes, (long long)bounds.peak_bytes);
        assert_int_equal(mm_simulated_time(e.schedule.plan, facts, &ns), MM_OK);
        if (least_ns > ns)
            fail_msg("%s, %d maps: %lld ns at least, but it takes %lld", spec, selection.limit, (long long)least_ns,
                     (long long)ns);
        n->fast += least_ns > ns - ns / 10;
        n->plans++;
        n->near += floor_bytes > bounds.peak_bytes - bounds.peak_bytes / 10;
        mm_engine_fini(&e);
    }
    mm_survey_destroy(survey);
    mm_policy_fini(&policy);
}

TEST_CASE(what_a_plan_takes_at_least_is_known_before_it_is_built_and_near) {
    static const char *specs[] = {
        "recompute",
        "recompute:mode=nested",
        "recompute-swap:mode=sqrt",
        "swap-async",
        "rules:*=mask;*=swap,mode=nested",
        "rules:*=lean-swap",
        "rules:conv=lean-recompute;*=lean-swap,mode=memory",
        "rules:relu=recompute;conv=compress(test-lossy:rate=8);*=lean-swap",
        "freelunch:codec=test-lossy:rate=8,eligible=all",
        "freelunch:codec=test-lossy:rate=8,eligible=all,codes=in-step",
        "freelunch:codec=test-lossy:rate=8,eligible=all,buffers=naive,workspace=naive",
    };
    nearness n = {0};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        random_graph_options options = {.seed = seed, .layers = 4 + (int)seed % 16, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        strcpy(facts->codecs[RANDOM_MASK].spec, "mask");
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) assert_floors_below(graph, facts, specs[i], &n);
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    if (2 * n.near < n.plans) fail_msg("near for %d of %d plans", n.near, n.plans);
    if (2 * n.fast < n.plans) fail_msg("near by time for %d of %d plans", n.fast, n.plans);
}
