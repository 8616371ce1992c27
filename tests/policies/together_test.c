/* SPDX-License-Identifier: MIT */
/* Plans that compress, swap and recompute: in which order, and which is done first. */
#include <string.h>

#include "tests/core/plan_proof.h"
#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

enum { MAP = 8, CODE = 2 }; /* units */
static const int64_t MUCH = INT64_C(1) << 40;
enum { SLOW = 1000000 }; /* the link's bytes per second: a map takes 2 ms; steps run again take microseconds */

/* conv -> pool -> conv -> pool ... -> loss. Each layer's backward step reads the layer's input, and a pool's also the
 * pool's output. So for the backward step of a convolution, the pool before it runs again, which needs that pool's
 * input: the output of the convolution before. */
static mm_graph *blocks(int n) {
    terse_graph g;
    terse_init(&g, "blocks");
    terse_map(&g, "m0", MM_INPUT, MAP);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=m0");
    for (g.i = 1; g.i <= 2 * n; g.i++) {
        bool pool = g.i % 2 == 0;
        terse_map(&g, "m#", MM_FEATURE_MAP, MAP);
        terse_step(&g, pool ? "pool#" : "conv#", pool ? MM_LAYER_POOL : MM_LAYER_CONV, MM_FORWARD, "m< =m#");
    }
    g.i = 2 * n;
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "m#");
    for (; g.i > 0; g.i--)
        if (g.i % 2 == 0)
            terse_step(&g, "pool#", MM_LAYER_POOL, MM_BACKWARD, "m< m#");
        else
            terse_step(&g, "conv#", MM_LAYER_CONV, MM_BACKWARD, "m<");
    return terse_freeze(&g);
}

static int count(const mm_plan *plan, mm_node_kind kind) {
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++) n += plan->nodes[i].kind == kind;
    return n;
}

/* Plans with a policy in a budget, and proves the plan. A budget of 0 gives the plan that takes least. */
static void plan_within(planned *p, const mm_graph *graph, const char *spec, int64_t bytes) {
    mm_policy policy;
    mm_limits limits = {.device_bytes = bytes, .pinned_bytes = MUCH};
    p->facts = terse_facts(graph, CODE * UNIT);
    p->facts->out_bytes_per_s = p->facts->in_bytes_per_s = SLOW;
    assert_int_equal(mm_policy_parse(spec, &policy), MM_OK);
    assert_int_equal(mm_policy_plan(&policy, graph, p->facts, &limits, &p->plan), MM_OK);
    mm_policy_fini(&policy);
    limits.device_bytes = bytes > 0 ? bytes : p->plan->peak_bytes;
    if (plan_check(p->plan, p->facts, &limits) != MM_OK) fail_msg("%s", mm_last_error());
}

static int64_t least_of(const mm_graph *graph, const char *spec) {
    planned p;
    plan_within(&p, graph, spec, 0);
    int64_t bytes = p.plan->peak_bytes;
    planned_done(&p);
    return bytes;
}

TEST_CASE(what_is_fetched_runs_ahead_no_farther_in_a_deeper_net) {
    static const char *const specs[] = {
        "rules:conv=compress(zfp:rate=8);pool=recompute",
        "rules:conv=swap;pool=recompute",
    };
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        int buffers = 0;
        for (int n = 4; n <= 32; n *= 2) {
            mm_graph *graph = blocks(n);
            planned p;
            plan_terse(&p, graph, specs[s], CODE * UNIT);
            assert_int_equal(count(p.plan, MM_NODE_RECOMPUTE), n);
            if (buffers == 0) buffers = p.plan->buffers;
            assert_int_equal(p.plan->buffers, buffers);
            planned_done(&p);
            mm_graph_destroy(graph);
        }
        assert_in_range(buffers, 1, 4);
    }
}

/* A map from which a pool's output is made again comes back for that, before the maps of earlier layers. */
TEST_CASE(what_something_is_made_of_is_fetched_in_the_turn_of_that) {
    char text[1024];
    mm_graph *graph = blocks(3);
    planned p;
    plan_terse(&p, graph, "rules:conv=compress(zfp:rate=8);pool=recompute,depth=1", CODE * UNIT);
    const char *backward = strstr(terse_tell(p.plan, text, sizeof text), "loss ");
    assert_string_equal(backward, "loss m5) ~pool6 pool6' m3) ~pool4 conv5' pool4' m1) ~pool2 conv3' pool2' conv1'");
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* If the outputs of all pools are made again, the plan fits: nothing is swapped, which would make steps wait. */
TEST_CASE(what_one_rule_does_comes_before_what_the_next_does) {
    mm_graph *graph = blocks(12);
    int64_t budget = least_of(graph, "rules:pool=recompute,when=always");
    planned p;
    plan_within(&p, graph, "rules:pool=recompute;*=swap", budget);
    assert_true(p.plan->peak_bytes <= budget);
    assert_true(count(p.plan, MM_NODE_RECOMPUTE) > 0);
    assert_int_equal(count(p.plan, MM_NODE_OUT), 0);
    planned_done(&p);
    plan_within(&p, graph, "rules:pool=recompute;*=swap", budget - MAP * UNIT);
    assert_true(p.plan->peak_bytes <= budget - MAP * UNIT);
    assert_in_range(count(p.plan, MM_NODE_OUT), 1, 4);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* A region for codes alone is idle while maps need the memory. Where memory is short, codes are placed by their lives
 * instead, in bytes that maps leave free. */
TEST_CASE(codes_take_the_room_that_maps_leave_where_it_is_short) {
    mm_graph *graph = blocks(12);
    int64_t published = least_of(graph, "freelunch:rate=8,eligible=all,when=always");
    int64_t least = least_of(graph, "freelunch:rate=8,eligible=all");
    assert_true(least < published);
    planned p;
    plan_within(&p, graph, "freelunch:rate=8,eligible=all", least);
    assert_int_equal(p.plan->code_region_bytes, 0);
    assert_true(p.plan->peak_bytes <= least);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* conv1 -> pool -> conv2 -> loss. The backward step of the pool reads only the index that the pool saved; that of conv2
 * reads the pool's output; that of conv1 its input and its output. */
static mm_graph *pooled(void) {
    terse_graph g;
    terse_init(&g, "pooled");
    terse_map(&g, "m0", MM_INPUT, MAP);
    terse_map(&g, "m1", MM_FEATURE_MAP, MAP);
    terse_map(&g, "m2", MM_FEATURE_MAP, MAP);
    terse_map(&g, "index", MM_SAVED, MAP);
    terse_map(&g, "m3", MM_FEATURE_MAP, MAP);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=m0");
    terse_step(&g, "conv1", MM_LAYER_CONV, MM_FORWARD, "m0 =m1");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_FORWARD, "m1 =m2 =index");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_FORWARD, "m2 =m3");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "m3");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_BACKWARD, "m2");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_BACKWARD, "index");
    terse_step(&g, "conv1", MM_LAYER_CONV, MM_BACKWARD, "m0 m1");
    return terse_freeze(&g);
}

TEST_CASE(a_pool_that_runs_again_makes_its_index_once_unless_it_would_be_another) {
    static const struct {
        const char *spec, *words;
        bool again; /* the pool that runs again makes the index again, too */
    } cases[] = {
        {"rules:pool=recompute", "data conv1 pool conv2 loss ~pool conv2' pool' conv1'", true},
        {"recompute:mode=memory", "data conv1 pool conv2 loss ~pool conv2' pool' conv1'", true},
        {"rules:conv=compress(zfp:rate=8);pool=recompute",
         "data conv1 pool (m1 conv2 loss m1) ~pool conv2' pool' conv1'", false},
        {"rules:pool=swap", "data conv1 pool conv2 >m2 loss <m2 conv2' pool' conv1'", false},
    };
    mm_graph *graph = pooled();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned p;
        char text[256];
        plan_terse(&p, graph, cases[i].spec, CODE * UNIT);
        assert_string_equal(terse_tell(p.plan, text, sizeof text), cases[i].words);
        const mm_segment *first = segment_of(&p, "index", 0);
        const mm_node *last = &p.plan->nodes[first->last_node];
        assert_int_equal(mm_graph_step(graph, last->step)->phase, cases[i].again ? MM_FORWARD : MM_BACKWARD);
        planned_done(&p);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(recompute_swap_swaps_what_segments_are_made_of) {
    mm_graph *graph = blocks(24);
    planned kept, swapped;
    plan_terse(&kept, graph, "recompute:mode=sqrt", CODE * UNIT);
    plan_terse(&swapped, graph, "recompute-swap", CODE * UNIT);
    assert_int_equal(count(swapped.plan, MM_NODE_RECOMPUTE), count(kept.plan, MM_NODE_RECOMPUTE));
    assert_in_range(count(swapped.plan, MM_NODE_OUT), 1, 24);
    assert_int_equal(count(swapped.plan, MM_NODE_IN), count(swapped.plan, MM_NODE_OUT));
    assert_true(swapped.plan->peak_bytes < kept.plan->peak_bytes);
    assert_int_equal(count(swapped.plan, MM_NODE_ENCODE), 0);
    planned_done(&kept);
    planned_done(&swapped);
    mm_graph_destroy(graph);
}
