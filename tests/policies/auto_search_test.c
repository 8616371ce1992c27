/* SPDX-License-Identifier: MIT */
/* An action for each map (mm_assignment), and the search for the best of them. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/time/simulate.h"
#include "policies/auto/auto_search.h"
#include "policies/rules/rules.h"
#include "policies/schedule/nominal.h"
#include "tests/core/plan_proof.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"
#include "tests/policies/engine_rig.h"

enum { MASK, RECOMPUTE, COMPRESS, SWAP, LEAN, AGAIN, RULES, KEEP = -1 }; /* LEAN: lean-swap; AGAIN: lean-recompute */
static const mm_limits unlimited = {.device_bytes = INT64_C(1) << 40, .pinned_bytes = INT64_C(1) << 40};

/* The rules that an assignment chooses from: one for each action. */
static mm_engine_config menu_of(const char *codec) {
    mm_engine_config menu = {.fetch = MM_FETCH_DEPTH, .depth = 2, .recompute = MM_RECOMPUTE_NESTED};
    char rules[128];
    snprintf(rules, sizeof rules, "*=mask;*=recompute;*=compress(%s);*=swap;*=lean-swap", codec);
    if (mm_rules_parse(rules, &menu) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(menu.n_rules, AGAIN);
    menu.rules = realloc(menu.rules, RULES * sizeof *menu.rules); /* as a rule after *=recompute it would be refused */
    assert_non_null(menu.rules);
    menu.rules[menu.n_rules++] = (mm_rule){.action = MM_ACTION_RECOMPUTE, .lean = true};
    assert_int_equal(mm_selector_parse("*", &menu.rules[AGAIN].selector), MM_OK);
    return menu;
}

/* The plan of an assignment, proved. */
static mm_plan *plan_assigned(const mm_graph *graph, const mm_graph_facts *facts, const mm_engine_config *menu,
                              const mm_assignment *assigned) {
    mm_survey *survey;
    mm_plan *plan;
    mm_limits limits = unlimited;
    limits.base_bytes = mm_plan_base(graph);
    assert_int_equal(mm_survey_create(graph, facts, &limits, menu, NULL, &survey), MM_OK);
    const mm_selection selection = {.assigned = assigned};
    assert_int_equal(mm_engine_plan_maps(survey, menu, &selection, MM_LAYOUT_QUICK, &plan), MM_OK);
    if (plan_check(plan, facts, &limits) != MM_OK) fail_msg("%s", mm_last_error());
    mm_survey_destroy(survey);
    return plan;
}

/* data -> x0; conv -> a; relu -> b; conv -> c; relu -> d; conv -> e; relu -> f; loss. Backward, a ReLU reads the signs
 * of its output, a convolution its input, the loss the value of f. */
static mm_graph *six(void) {
    static const char *const maps[] = {"a", "b", "c", "d", "e", "f"};
    terse_graph g;
    terse_init(&g, "six");
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x0", MM_INPUT, MAP);
    for (int i = 0; i < 6; i++) terse_map(&g, maps[i], MM_FEATURE_MAP, MAP);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x0");
    terse_step(&g, "conv1", MM_LAYER_CONV, MM_FORWARD, "x0 =a");
    terse_step(&g, "relu1", MM_LAYER_RELU, MM_FORWARD, "a =b");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_FORWARD, "b =c");
    terse_step(&g, "relu2", MM_LAYER_RELU, MM_FORWARD, "c =d");
    terse_step(&g, "conv3", MM_LAYER_CONV, MM_FORWARD, "d =e");
    terse_step(&g, "relu3", MM_LAYER_RELU, MM_FORWARD, "e =f");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "f +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "f");
    terse_step(&g, "relu3", MM_LAYER_RELU, MM_BACKWARD, "?f");
    terse_step(&g, "conv3", MM_LAYER_CONV, MM_BACKWARD, "d e");
    terse_step(&g, "relu2", MM_LAYER_RELU, MM_BACKWARD, "?d");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_BACKWARD, "b c");
    terse_step(&g, "relu1", MM_LAYER_RELU, MM_BACKWARD, "?b");
    terse_step(&g, "conv1", MM_LAYER_CONV, MM_BACKWARD, "?a");
    return terse_freeze(&g);
}

TEST_CASE(each_map_gets_the_action_that_it_is_assigned) {
    char text[512];
    mm_graph *graph = six();
    mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
    mm_engine_config menu = menu_of("zfp:rate=8");
    int8_t rule[16];
    int32_t fetch[16], gone[16];
    memset(rule, KEEP, sizeof rule);
    rule[terse_tensor(graph, "a")] = MASK; /* only its signs are read */
    rule[terse_tensor(graph, "b")] = SWAP;
    rule[terse_tensor(graph, "c")] = COMPRESS;
    rule[terse_tensor(graph, "d")] = RECOMPUTE; /* from a lossy code of c, so not exact: its signs are kept */
    rule[terse_tensor(graph, "e")] = MASK;      /* not possible, since its value is read: it is kept */
    mm_assignment assigned = {.rule = rule};
    mm_plan *plan = plan_assigned(graph, facts, &menu, &assigned);
    assert_string_equal(terse_tell(plan, text, sizeof text),
                        "data conv1 relu1 (a conv2 >b relu2 (c conv3 (d relu3 loss c) <b loss' relu3' ~relu2 conv3' "
                        "relu2' conv2' relu1' conv1'");
    mm_plan_destroy(plan);

    /* fetch: the step before which a map is fetched; if none is given, the step that needs it. gone: the step by
     * which it has left. */
    for (int t = 0; t < 16; t++) fetch[t] = INT32_MAX, gone[t] = 0;
    fetch[terse_tensor(graph, "b")] = 9; /* relu3' */
    gone[terse_tensor(graph, "b")] = 5;  /* conv3 */
    rule[terse_tensor(graph, "c")] = SWAP;
    rule[terse_tensor(graph, "d")] = KEEP;
    assigned.fetch = fetch;
    assigned.gone = gone;
    plan = plan_assigned(graph, facts, &menu, &assigned);
    assert_string_equal(
        terse_tell(plan, text, sizeof text),
        "data conv1 relu1 (a conv2 >b relu2 >c conv3 relu3 loss loss' <b relu3' conv3' relu2' <c conv2' "
        "relu1' conv1'");
    mm_plan_destroy(plan);
    mm_rules_fini(&menu);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* x is read by three backward steps, and y is made from it. What is made again for each use is dropped after each;
 * what is brief comes back for each. */
TEST_CASE(maps_leave_between_all_uses) {
    char text[512];
    terse_graph g;
    terse_init(&g, "uses");
    terse_map(&g, "x0", MM_INPUT, MAP);
    for (int i = 0; i < 3; i++) terse_map(&g, (const char *const[]){"x", "y", "z"}[i], MM_FEATURE_MAP, MAP);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x0");
    terse_step(&g, "first", MM_LAYER_CONV, MM_FORWARD, "x0 =x");
    terse_step(&g, "act", MM_LAYER_RELU, MM_FORWARD, "x =y");
    terse_step(&g, "last", MM_LAYER_CONV, MM_FORWARD, "y =z");
    terse_step(&g, "last", MM_LAYER_CONV, MM_BACKWARD, "y");
    terse_step(&g, "act", MM_LAYER_RELU, MM_BACKWARD, "x z");
    terse_step(&g, "first", MM_LAYER_CONV, MM_BACKWARD, "x0");
    terse_step(&g, "data", MM_LAYER_DATA, MM_BACKWARD, "x x0");
    mm_graph *graph = terse_freeze(&g);
    mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
    mm_engine_config menu = menu_of("zfp:rate=8");
    int8_t rule[16];
    uint8_t brief[16];
    memset(rule, KEEP, sizeof rule);
    memset(brief, true, sizeof brief);
    rule[terse_tensor(graph, "x")] = AGAIN;
    rule[terse_tensor(graph, "y")] = RECOMPUTE;
    mm_assignment assigned = {.rule = rule};
    mm_plan *plan = plan_assigned(graph, facts, &menu, &assigned);
    assert_string_equal(terse_tell(plan, text, sizeof text),
                        "data first act last ~first ~act last' ~first act' first' ~first data'");
    mm_plan_destroy(plan);
    rule[terse_tensor(graph, "x")] = LEAN;
    plan = plan_assigned(graph, facts, &menu, &assigned);
    assert_string_equal(terse_tell(plan, text, sizeof text), "data first act >x last <x ~act last' act' first' data'");
    mm_plan_destroy(plan);
    assigned.brief = brief;
    plan = plan_assigned(graph, facts, &menu, &assigned);
    assert_string_equal(terse_tell(plan, text, sizeof text),
                        "data first act >x last <x ~act last' <x act' first' <x data'");
    mm_plan_destroy(plan);
    mm_rules_fini(&menu);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* A map whose assigned action is not possible is kept. */
TEST_CASE(any_assignment_gives_a_plan_that_is_proved) {
    int seen[MM_NODE_KINDS] = {0};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        const random_graph_options options = {.seed = seed, .layers = 4 + (int)seed % 16, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        strcpy(facts->codecs[RANDOM_MASK].spec, mm_mask_spec);
        mm_engine_config menu = menu_of(facts->codecs[seed % 2 ? RANDOM_LOSSY : RANDOM_LOSSLESS].spec);
        const int n = mm_graph_tensors(graph), steps = mm_graph_steps(graph);
        int8_t *rule = malloc((size_t)n);
        uint8_t *level = malloc((size_t)n), *cut = malloc((size_t)steps), *brief = malloc((size_t)n);
        int32_t *fetch = malloc((size_t)n * sizeof *fetch), *gone = malloc((size_t)n * sizeof *gone);
        uint64_t random = seed;
        for (int t = 0; t < n; t++) {
            rule[t] = (int8_t)(random_next(&random) % (RULES + 1)) - 1;
            level[t] = (uint8_t)(random_next(&random) % 4);
            brief[t] = random_next(&random) % 2;
            fetch[t] = (int32_t)(random_next(&random) % (uint64_t)steps);
            gone[t] = (int32_t)(random_next(&random) % (uint64_t)steps);
        }
        for (int i = 0; i < steps; i++) cut[i] = random_next(&random) % 2 ? MM_LEVEL_STAGE : (uint8_t)(i % 3);
        mm_assignment assigned = {.rule = rule};
        if (seed % 3) assigned.level = level, assigned.cut = cut;
        if (seed % 5) assigned.fetch = fetch, assigned.gone = gone;
        if (seed % 4) assigned.brief = brief;
        assigned.paced = seed % 2;
        mm_plan *plan = plan_assigned(graph, facts, &menu, &assigned);
        for (int i = 0; i < plan->n_nodes; i++) seen[plan->nodes[i].kind]++;
        mm_plan_destroy(plan);
        free(rule), free(level), free(cut), free(brief), free(fetch), free(gone);
        mm_rules_fini(&menu);
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(seen[MM_NODE_ENCODE] > 40 && seen[MM_NODE_OUT] > 40 && seen[MM_NODE_RECOMPUTE] > 40);
}

/* ---------------------------------------------------------------- the search */

typedef struct found {
    int64_t bytes, pinned_bytes, ns;
    int nodes;
} found;

/* Searches within limits, and checks the plan that is found. incumbent: the policy of the plan that the search begins
 * with, made without a limit of pinned memory; NULL: none. */
static found search_within_both(const mm_graph *graph, const mm_graph_facts *facts, int64_t bytes, int64_t pinned_bytes,
                                const char *incumbent) {
    mm_engine_config menu = menu_of(facts->codecs[RANDOM_LOSSLESS].spec);
    mm_limits limits = {.device_bytes = bytes, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(graph)};
    mm_simulation before = {0}, after;
    mm_plan *plan = NULL;
    if (incumbent) {
        mm_policy policy;
        assert_int_equal(mm_policy_parse(incumbent, &policy), MM_OK);
        assert_int_equal(mm_policy_plan(&policy, graph, facts, &limits, &plan), MM_OK);
        mm_policy_fini(&policy);
        assert_int_equal(mm_simulate(plan, facts, &before), MM_OK);
    }
    const int64_t before_bytes = plan && plan->pinned_bytes <= pinned_bytes ? plan->peak_bytes : INT64_MAX;
    limits.pinned_bytes = pinned_bytes;
    assert_int_equal(mm_auto_search(graph, facts, &limits, &menu, NULL, 1000 * mm_graph_steps(graph), NULL, &plan),
                     MM_OK);
    assert_int_equal(mm_simulate(plan, facts, &after), MM_OK);
    const found f = {.bytes = plan->peak_bytes,
                     .pinned_bytes = plan->pinned_bytes,
                     .ns = after.iteration_ns,
                     .nodes = plan->n_nodes};
    if (before_bytes <= bytes) assert_true(f.bytes <= bytes && f.ns <= before.iteration_ns);
    if (before_bytes > bytes) assert_true(f.bytes <= before_bytes);
    limits.device_bytes = f.bytes;
    if (limits.pinned_bytes < f.pinned_bytes) limits.pinned_bytes = f.pinned_bytes;
    if (plan_check(plan, facts, &limits) != MM_OK) fail_msg("%s", mm_last_error());
    mm_simulation_fini(&before);
    mm_simulation_fini(&after);
    mm_plan_destroy(plan);
    mm_rules_fini(&menu);
    return f;
}

static found search_within(const mm_graph *graph, const mm_graph_facts *facts, int64_t bytes, const char *incumbent) {
    return search_within_both(graph, facts, bytes, INT64_MAX, incumbent);
}

/* In a larger budget the plan may take half a percent longer: the search starts elsewhere, and no start is always the
 * best. */
TEST_CASE(a_search_keeps_to_its_budget_and_never_loses_to_what_it_began_with) {
    enum { GRAPHS = 10, BUDGETS = 8 };
    static const char *const incumbents[] = {"swap", NULL, "recompute", "liveness", NULL};
    int gained = 0;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        const random_graph_options options = {.seed = seed, .layers = 4 + (int)seed % 16, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        strcpy(facts->codecs[RANDOM_MASK].spec, mm_mask_spec);
        facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1000000000);
        const char *incumbent = incumbents[seed % 5];
        const found most = search_within(graph, facts, INT64_MAX, "liveness");
        const found least = search_within(graph, facts, 0, incumbent);
        int64_t ns = INT64_MAX / 2;
        for (int i = 0; i < BUDGETS; i++) {
            const int64_t budget = least.bytes + (most.bytes - least.bytes) * i / BUDGETS;
            const found f = search_within(graph, facts, budget, incumbent);
            gained += f.bytes <= budget && f.bytes < most.bytes;
            if (f.bytes <= budget) assert_true(f.ns <= ns + ns / 200);
            if (f.bytes <= budget && f.ns < ns) ns = f.ns;
            if (i % 4 != 0) continue;
            const found again = search_within(graph, facts, budget, incumbent);
            assert_true(f.bytes == again.bytes && f.ns == again.ns && f.nodes == again.nodes);
        }
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(gained > GRAPHS * BUDGETS / 2);
}

/* The search must give up a plan that takes too much pinned memory, for a slower one that does not. */
TEST_CASE(a_search_keeps_to_its_pinned_memory) {
    int within = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        const random_graph_options options = {.seed = seed, .layers = 6 + (int)seed, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        strcpy(facts->codecs[RANDOM_MASK].spec, mm_mask_spec);
        facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1000000000000);
        const int64_t most = search_within(graph, facts, INT64_MAX, "liveness").bytes;
        for (int i = 10; i < 16; i++) {
            const int64_t budget = most * i / 16;
            const found kept = search_within_both(graph, facts, budget, 0, "liveness");
            assert_int_equal(kept.pinned_bytes, 0);
            if (kept.bytes > budget) continue;
            const found f = search_within_both(graph, facts, budget, 0, "swap-async:when=always");
            assert_int_equal(f.pinned_bytes, 0);
            assert_true(f.bytes <= budget);
            within++;
        }
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(within >= 5);
}

/* Searches for a plan of the graph within 96 units of device memory, and expects the plan to contain these operations.
 * `operations` ends with NULL. */
static void expect_found(terse_graph *g, const char *const *operations) {
    char text[512];
    mm_graph *graph = terse_freeze(g);
    mm_graph_facts *facts = terse_facts(graph, -1);
    mm_limits limits = {.device_bytes = 96 * UNIT, .pinned_bytes = INT64_MAX};
    mm_policy policy;
    mm_plan *plan = NULL;
    mm_nominal_times(graph, facts);
    assert_int_equal(mm_policy_parse("auto", &policy), MM_OK);
    assert_int_equal(
        mm_auto_search(graph, facts, &limits, &policy.config, NULL, 120 * mm_graph_steps(graph), NULL, &plan), MM_OK);
    if (plan_check(plan, facts, &limits) != MM_OK) fail_msg("%s", mm_last_error());
    terse_tell(plan, text, sizeof text);
    for (; *operations; operations++)
        if (!strstr(text, *operations)) fail_msg("no %s: %s", *operations, text);
    mm_plan_destroy(plan);
    mm_policy_fini(&policy);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* The plan fits only if the images and a pool's indices leave the device. */
TEST_CASE(images_and_indices_leave_where_maps_do_not_suffice) {
    terse_graph g;
    terse_init(&g, "pooled");
    terse_map(&g, "images", MM_INPUT, 40);
    terse_map(&g, "indices", MM_SAVED, 40);
    for (g.i = 1; g.i <= 3; g.i++) terse_map(&g, "x#", MM_FEATURE_MAP, MAP);
    terse_map(&g, "d", MM_GRADIENT_MAP, 64);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=images");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_FORWARD, "images =x1 =indices");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "x1 =x2");
    terse_step(&g, "head", MM_LAYER_LINEAR, MM_FORWARD, "x2 =x3");
    terse_step(&g, "head", MM_LAYER_LINEAR, MM_BACKWARD, "x3 =d");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "x1 d");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_BACKWARD, "images indices");
    expect_found(&g, (const char *[]){">images", ">indices", "<images", NULL});
}

/* The plan fits only if the gradient of a residual sum leaves the device while the block's backward steps run. */
TEST_CASE(idle_gradients_leave_where_maps_do_not_suffice) {
    static const struct {
        const char *layer, *forward, *backward;
    } layers[] = {{"conv1", "x1 =x2", "x1 h d"},
                  {"conv2", "x2 =x3", "x2 f =h"},
                  {"conv3", "x3 =x4", "x3 e =f"},
                  {"conv4", "x4 =x5", "x4 =e"},
                  {"conv5", "x5 =x6", "x5 =d"}};
    enum { LAYERS = sizeof layers / sizeof *layers };
    terse_graph g;
    terse_init(&g, "residual");
    for (g.i = 1; g.i <= 6; g.i++) terse_map(&g, "x#", MM_FEATURE_MAP, 1);
    terse_map(&g, "d", MM_GRADIENT_MAP, 64);
    terse_map(&g, "e", MM_GRADIENT_MAP, 8);
    terse_map(&g, "f", MM_GRADIENT_MAP, 64);
    terse_map(&g, "h", MM_GRADIENT_MAP, 8);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x1");
    for (int i = 0; i < LAYERS; i++) terse_step(&g, layers[i].layer, MM_LAYER_CONV, MM_FORWARD, layers[i].forward);
    for (int i = LAYERS - 1; i >= 0; i--)
        terse_step(&g, layers[i].layer, MM_LAYER_CONV, MM_BACKWARD, layers[i].backward);
    expect_found(&g, (const char *[]){">d", "<d", NULL});
}

/* Of a graph with few choices, all drafts come back: that is work, too, so that the search ends. */
TEST_CASE(a_search_with_few_choices_ends) {
    for (int d = 1; d <= 40; d += 13) {
        terse_graph g;
        terse_init(&g, "few");
        for (g.i = 1; g.i <= 3; g.i++) terse_map(&g, "x#", MM_FEATURE_MAP, 40);
        terse_map(&g, "d", MM_GRADIENT_MAP, d);
        terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x1");
        terse_step(&g, "conv1", MM_LAYER_CONV, MM_FORWARD, "x1 =x2");
        terse_step(&g, "conv2", MM_LAYER_CONV, MM_FORWARD, "x2 =x3");
        terse_step(&g, "conv2", MM_LAYER_CONV, MM_BACKWARD, "=d");
        terse_step(&g, "conv1", MM_LAYER_CONV, MM_BACKWARD, "x1 d");
        expect_found(&g, (const char *[]){">x1", "<x1", NULL});
    }
}
