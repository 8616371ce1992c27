/* SPDX-License-Identifier: MIT */
/* What is run again in each mode, when, and what it saves. */
#include <string.h>

#include "tests/core/plan_proof.h"
#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

enum { MAP = 8 }; /* units */

/* data -> conv -> x0 -> cheap1 -> x1 -> ... -> x(n) -> loss. The backward step of cheap i reads x(i), the conv's the
 * data. The cheap layers are pools, not in place, so every map has its own storage. wide: units that the conv's
 * backward step takes besides, which make it the largest layer. */
static mm_graph *chain(int n, int wide) {
    terse_graph g;
    terse_init(&g, "chain");
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "images", MM_INPUT, 1);
    for (g.i = 0; g.i <= n; g.i++) {
        terse_map(&g, "x#", MM_FEATURE_MAP, MAP);
        terse_map(&g, "d#", MM_GRADIENT_MAP, MAP);
    }
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=images");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "images =x0");
    for (g.i = 1; g.i <= n; g.i++) terse_step(&g, "p#", MM_LAYER_POOL, MM_FORWARD, "x< =x#");
    g.i = n;
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "+loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "=d#");
    for (; g.i >= 1; g.i--) terse_step(&g, "p#", MM_LAYER_POOL, MM_BACKWARD, "x# d# =d<");
    g.workspace_bytes = (size_t)wide * UNIT;
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "images x0 d0");
    return terse_freeze(&g);
}

static void expect(const mm_graph *graph, const char *spec, const char *words) {
    planned p;
    char text[2048];
    plan_terse(&p, graph, spec, -1);
    if (strcmp(terse_tell(p.plan, text, sizeof text), words) != 0) fail_msg("%s: %s", spec, text);
    planned_done(&p);
}

static int64_t peak_of(const mm_graph *graph, const char *spec) {
    planned p;
    plan_terse(&p, graph, spec, -1);
    int64_t peak = p.plan->peak_bytes;
    planned_done(&p);
    return peak;
}

static int count_again(const mm_graph *graph, const char *spec) {
    planned p;
    plan_terse(&p, graph, spec, -1);
    int n = 0;
    for (int i = 0; i < p.plan->n_nodes; i++) n += p.plan->nodes[i].kind == MM_NODE_RECOMPUTE;
    planned_done(&p);
    return n;
}

/* ---------------------------------------------------------------- what a layer declares */

/* x0 -> own -> x1 -> loss, where x1 is read again by the backward step; `own` is of no kind that is known. */
static mm_graph *with_own_layer(const mm_layer_properties *properties) {
    terse_graph g;
    terse_init(&g, "own");
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x0", MM_FEATURE_MAP, MAP);
    terse_map(&g, "x1", MM_FEATURE_MAP, MAP);
    terse_map(&g, "d1", MM_GRADIENT_MAP, MAP);
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "=x0");
    terse_step(&g, "own", MM_LAYER_OTHER, MM_FORWARD, "x0 =x1");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "+loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "=d1");
    terse_step(&g, "own", MM_LAYER_OTHER, MM_BACKWARD, "x0 x1 d1");
    if (properties) assert_int_equal(mm_graph_set_properties(g.graph, g.layers[1], properties), MM_OK);
    return terse_freeze(&g);
}

TEST_CASE(a_layer_runs_again_by_its_properties_whatever_its_kind) {
    const mm_layer_properties cheap = {MM_LAYER_CHEAP, true}, dear = {MM_LAYER_EXPENSIVE, true},
                              once = {MM_LAYER_CHEAP, false};
    mm_graph *graphs[] = {with_own_layer(NULL), with_own_layer(&cheap), with_own_layer(&dear), with_own_layer(&once)};
    static const int cost[] = {0, 1, 0, 0}, sqrt[] = {0, 1, 1, 0};
    for (int g = 0; g < 4; g++) {
        assert_int_equal(count_again(graphs[g], "recompute:mode=cost"), cost[g]);
        assert_int_equal(count_again(graphs[g], "rules:*=recompute"), cost[g]);
        assert_int_equal(count_again(graphs[g], "rules:other=recompute"), sqrt[g]); /* even expensive layers */
        assert_int_equal(count_again(graphs[g], "rules:other=recompute,mode=sqrt"), sqrt[g]);
        mm_graph_destroy(graphs[g]);
    }
}

/* With mode=memory the convolution's map is made anew for each of its two readers. */
TEST_CASE(a_rule_that_names_a_dear_kind_means_it_in_every_mode) {
    static const char without[] = "data conv p1 loss loss' ~p1 p1' conv'",
                      with[] = "data conv p1 loss loss' ~conv ~p1 p1' conv'",
                      anew[] = "data conv p1 loss loss' ~conv ~p1 p1' ~conv conv'",
                      alone[] = "data conv p1 loss loss' p1' ~conv conv'";
    mm_graph *graph = chain(1, 4 * MAP);
    expect(graph, "rules:*=recompute", without);
    expect(graph, "rules:con?=recompute;*=recompute", without);
    expect(graph, "rules:pool-in=recompute;*=recompute", without);
    expect(graph, "rules:conv=recompute", alone);
    expect(graph, "rules:conv&pool-in=recompute,mode=speed", alone);
    expect(graph, "rules:conv=recompute;pool=recompute", with);
    expect(graph, "rules:conv=recompute;*=recompute,mode=speed", with);
    expect(graph, "rules:conv=recompute;*=recompute,mode=memory", anew);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- a segment of cheap layers */

TEST_CASE(speed_runs_a_segment_once_and_keeps_what_it_makes) {
    mm_graph *graph = chain(3, 0);
    expect(graph, "recompute:mode=speed", "data conv p1 p2 p3 loss loss' ~p1 ~p2 ~p3 p3' p2' p1' conv'");
    mm_graph_destroy(graph);
}

TEST_CASE(memory_runs_it_anew_for_each_backward_step_and_keeps_nothing) {
    mm_graph *graph = chain(3, 0);
    expect(graph, "recompute:mode=memory", "data conv p1 p2 p3 loss loss' ~p1 ~p2 ~p3 p3' ~p1 ~p2 p2' ~p1 p1' conv'");
    /* While x(i) is made: x0, x(i-1), x(i) and a gradient; in a backward step: x0, x(i), d(i) and d(i-1). */
    assert_int_equal(peak_of(graph, "recompute:mode=memory"), (2 + 4 * MAP) * UNIT);
    mm_graph_destroy(graph);
}

TEST_CASE(what_memory_holds_does_not_grow_with_the_segment) {
    mm_graph *shorter = chain(4, 0), *longer = chain(9, 0);
    assert_int_equal(peak_of(longer, "recompute:mode=memory"), peak_of(shorter, "recompute:mode=memory"));
    assert_int_equal(peak_of(longer, "recompute:mode=speed"),
                     peak_of(shorter, "recompute:mode=speed") + 5 * MAP * UNIT);
    assert_true(peak_of(longer, "recompute:mode=memory") < peak_of(longer, "liveness"));
    mm_graph_destroy(shorter);
    mm_graph_destroy(longer);
}

/* If none were kept, the number of steps that run again would grow with the square of the depth: 28680 here. */
TEST_CASE(memory_keeps_a_map_where_its_chain_would_be_long) {
    enum { POOLS = 240 };
    mm_graph *graph = chain(POOLS, 0);
    assert_in_range(count_again(graph, "recompute:mode=memory"), 32 * POOLS, 64 * POOLS);
    mm_graph_destroy(graph);
}

/* A pool's backward step takes three maps, a segment of n pools n maps: mode=cost is as mode=memory from n = 4 on. */
TEST_CASE(cost_runs_a_segment_anew_only_if_it_takes_more_than_the_largest_layer) {
    for (int n = 2; n <= 6; n++) {
        mm_graph *graph = chain(n, 0);
        const char *as = n <= 3 ? "recompute:mode=speed" : "recompute:mode=memory";
        planned by_cost, other;
        char text[2048], words[2048];
        plan_terse(&by_cost, graph, "recompute:mode=cost", -1);
        plan_terse(&other, graph, as, -1);
        assert_string_equal(terse_tell(by_cost.plan, text, sizeof text), terse_tell(other.plan, words, sizeof words));
        planned_done(&by_cost);
        planned_done(&other);
        mm_graph_destroy(graph);
    }
    mm_graph *wide = chain(6, 6 * MAP); /* now the convolution is the largest layer */
    assert_int_equal(count_again(wide, "recompute:mode=cost"), 6);
    mm_graph_destroy(wide);
}

TEST_CASE(cost_is_the_default) {
    mm_graph *graph = chain(6, 0);
    assert_int_equal(count_again(graph, "recompute"), count_again(graph, "recompute:mode=cost"));
    assert_int_not_equal(count_again(graph, "recompute"), count_again(graph, "recompute:mode=speed"));
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- residual networks */

/* Blocks of conv -> relu -> conv, and a sum with the block's input. The sum is read by the next block's conv, and its
 * signs by the sum's backward step. */
static mm_graph *residual(int blocks) {
    static const char *const names[] = {"s#", "ds#", "a#", "da#", "r#", "dr#", "b#", "db#"};
    terse_graph g;
    terse_init(&g, "residual");
    terse_persistent(&g, "loss", 1);
    for (g.i = 0; g.i <= blocks; g.i++)
        for (int n = 0; n < (g.i ? 8 : 2); n++) terse_map(&g, names[n], n % 2 ? MM_GRADIENT_MAP : MM_FEATURE_MAP, MAP);
    terse_step(&g, "stem", MM_LAYER_CONV, MM_FORWARD, "=s0");
    for (g.i = 1; g.i <= blocks; g.i++) {
        terse_step(&g, "a#", MM_LAYER_CONV, MM_FORWARD, "s< =a#");
        terse_step(&g, "r#", MM_LAYER_RELU, MM_FORWARD, "a# =r#");
        terse_step(&g, "b#", MM_LAYER_CONV, MM_FORWARD, "r# =b#");
        terse_step(&g, "s#", MM_LAYER_ADD, MM_FORWARD, "b# s< =s#");
    }
    g.i = blocks;
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "+loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "s# =ds#");
    for (; g.i >= 1; g.i--) {
        terse_step(&g, "s#", MM_LAYER_ADD, MM_BACKWARD, "?s# b# ds# =db# =ds<");
        terse_step(&g, "b#", MM_LAYER_CONV, MM_BACKWARD, "r# db# =dr#");
        terse_step(&g, "r#", MM_LAYER_RELU, MM_BACKWARD, "a# ?r# dr# =da#");
        terse_step(&g, "a#", MM_LAYER_CONV, MM_BACKWARD, "s< da# +ds<");
    }
    terse_step(&g, "stem", MM_LAYER_CONV, MM_BACKWARD, "ds0");
    return terse_freeze(&g);
}

TEST_CASE(a_sum_is_made_again_from_the_sums_before_it) {
    mm_graph *graph = residual(2);
    expect(graph, "recompute:mode=speed",
           "stem a1 r1 b1 s1 a2 r2 b2 s2 loss ~s1 ~s2 loss' s2' ~r2 b2' r2' a2' s1' ~r1 b1' r1' a1' stem'");
    expect(graph, "recompute:mode=memory",
           "stem a1 r1 b1 s1 a2 r2 b2 s2 loss ~s1 ~s2 loss' ~s1 ~s2 s2' ~r2 b2' ~r2 r2' ~s1 a2' ~s1 s1' ~r1 b1' ~r1 "
           "r1' a1' stem'");
    mm_graph_destroy(graph);
}

/* Along many residual blocks, mode=memory takes quadratic time, and mode=cost does not. */
TEST_CASE(cost_keeps_a_sum_here_and_there_so_that_each_is_made_once) {
    enum { BLOCKS = 24 };
    mm_graph *graph = residual(BLOCKS);
    assert_true(count_again(graph, "recompute:mode=memory") > BLOCKS * BLOCKS);
    assert_true(count_again(graph, "recompute:mode=cost") < 2 * BLOCKS);
    assert_true(count_again(graph, "recompute:mode=cost") > 3 * BLOCKS / 2);
    int64_t by_cost = peak_of(graph, "recompute:mode=cost"), by_speed = peak_of(graph, "recompute:mode=speed");
    assert_true(by_cost < by_speed && by_speed < peak_of(graph, "liveness"));
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- sqrt(n) segments */

static bool runs_again(const planned *p, const char *layer) {
    for (int i = 0; i < p->plan->n_nodes; i++) {
        const mm_node *n = &p->plan->nodes[i];
        if (n->kind != MM_NODE_RECOMPUTE) continue;
        const mm_step_info *step = mm_graph_step(p->plan->graph, n->step);
        if (!strcmp(mm_graph_layer(p->plan->graph, step->layer)->name, layer)) return true;
    }
    return false;
}

TEST_CASE(within_segments_convolutions_run_again_and_each_layer_once) {
    enum { BLOCKS = 16 };
    mm_graph *graph = residual(BLOCKS);
    planned p;
    plan_terse(&p, graph, "recompute:mode=sqrt", -1);
    int again[256] = {0}, kept = 0;
    for (int i = 0; i < p.plan->n_nodes; i++)
        if (p.plan->nodes[i].kind == MM_NODE_RECOMPUTE) again[p.plan->nodes[i].step]++;
    for (int s = 0; s < mm_graph_steps(graph); s++) assert_true(again[s] <= 1);
    for (int i = 1; i <= BLOCKS; i++) {
        char name[24];
        snprintf(name, sizeof name, "s%d", i);
        kept += !runs_again(&p, name);
        for (const char *c = "arb"; *c; c++) { /* no cut within a block: two maps would have to be kept for it */
            snprintf(name, sizeof name, "%c%d", *c, i);
            if (!runs_again(&p, name)) fail_msg("%s is kept", name);
        }
    }
    /* The root of 66 layers: about eight segments. */
    assert_in_range(kept, 4, 12);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(what_segments_hold_grows_with_the_root_of_the_depth) {
    mm_graph *shallow = residual(12), *deep = residual(48);
    int64_t fixed = (2 + 1) * UNIT, stash[2];
    stash[0] = peak_of(shallow, "recompute:mode=sqrt") - fixed;
    stash[1] = peak_of(deep, "recompute:mode=sqrt") - fixed;
    assert_true(10 * stash[1] < 23 * stash[0]); /* four times as deep: twice as much, not four times */
    assert_true(peak_of(deep, "liveness") > 5 * stash[1]);
    mm_graph_destroy(shallow);
    mm_graph_destroy(deep);
}

/* ---------------------------------------------------------------- segments of segments */

/* Plans nested recomputation in a budget, and checks the plan. */
static void plan_nested(planned *p, const mm_graph *graph, int64_t budget) {
    mm_policy policy;
    const mm_limits limits = {.device_bytes = budget, .base_bytes = mm_plan_base(graph)};
    p->facts = terse_facts(graph, -1);
    assert_int_equal(mm_policy_parse("recompute:mode=nested", &policy), MM_OK);
    assert_int_equal(mm_policy_plan(&policy, graph, p->facts, &limits, &p->plan), MM_OK);
    mm_policy_fini(&policy);
    if (plan_check(p->plan, p->facts, &limits) != MM_OK) fail_msg("%s", mm_last_error());
}

/* s4 is kept from the forward pass on. s2 is made again once, and kept until the backward steps of the blocks behind it
 * are done. */
TEST_CASE(nested_segments_are_made_again_from_maps_that_were_made_again) {
    mm_graph *graph = residual(8);
    planned p;
    char text[2048];
    plan_nested(&p, graph, 74 * UNIT);
    assert_string_equal(
        terse_tell(p.plan, text, sizeof text),
        "stem a1 r1 b1 s1 a2 r2 b2 s2 a3 r3 b3 s3 a4 r4 b4 s4 a5 r5 b5 s5 a6 r6 b6 s6 a7 r7 b7 s7 a8 r8 b8 s8 loss "
        "loss' s8' ~a8 ~r8 b8' r8' a8' "
        "~a5 ~r5 ~b5 ~s5 ~a6 ~r6 ~b6 ~s6 ~a7 ~r7 ~b7 s7' b7' r7' a7' "
        "~a5 ~r5 ~b5 ~s5 ~a6 ~r6 ~b6 s6' b6' r6' a6' "
        "~a5 ~r5 ~b5 s5' b5' r5' a5' "
        "~stem ~a1 ~r1 ~b1 ~s1 ~a2 ~r2 ~b2 ~s2 ~a3 ~r3 ~b3 ~s3 ~a4 ~r4 ~b4 s4' b4' r4' a4' "
        "~a3 ~r3 ~b3 s3' b3' r3' a3' "
        "~stem ~a1 ~r1 ~b1 ~s1 ~a2 ~r2 ~b2 s2' b2' r2' a2' "
        "~stem ~a1 ~r1 ~b1 s1' b1' r1' a1' stem'");
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(nested_segments_fit_half_of_what_segments_need_at_three_forward_passes) {
    enum { BLOCKS = 60 };
    mm_graph *graph = residual(BLOCKS);
    planned p;
    plan_nested(&p, graph, peak_of(graph, "recompute:mode=sqrt") / 2);
    int again[512] = {0}, sum = 0, most = 0;
    for (int i = 0; i < p.plan->n_nodes; i++) {
        const mm_node *n = &p.plan->nodes[i];
        if (n->kind != MM_NODE_RECOMPUTE) continue;
        sum++;
        if (++again[n->step] > most) most = again[n->step];
    }
    assert_in_range(most, 2, 6);
    assert_true(sum < 3 * 4 * BLOCKS);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(a_step_that_is_not_deterministic_is_not_run_again) {
    static const char *const modes[] = {"speed", "memory", "cost", "sqrt", "nested"};
    mm_graph *graph = chain(3, 0);
    mm_limits limits = {.device_bytes = INT64_MAX, .base_bytes = UNIT};
    for (int m = 0; m < 5; m++) {
        char spec[64];
        mm_policy policy;
        mm_plan *plan;
        mm_graph_facts *facts = terse_facts(graph, -1);
        facts->variants[3].deterministic = false; /* p2 */
        snprintf(spec, sizeof spec, "recompute:mode=%s,when=always", modes[m]);
        assert_int_equal(mm_policy_parse(spec, &policy), MM_OK);
        assert_int_equal(mm_policy_plan(&policy, graph, facts, &limits, &plan), MM_OK);
        assert_int_equal(plan_check(plan, facts, &limits), MM_OK);
        for (int i = 0; i < plan->n_nodes; i++)
            if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) assert_int_not_equal(plan->nodes[i].step, 3);
        mm_plan_destroy(plan);
        mm_policy_fini(&policy);
        mm_graph_facts_destroy(facts);
    }
    mm_graph_destroy(graph);
}
