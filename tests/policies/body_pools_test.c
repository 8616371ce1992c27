/* SPDX-License-Identifier: MIT */
/* The engine's plans with codes of variable size: heads as slots, bodies in one pool with its spill. */
#include <stdio.h>
#include <string.h>

#include "mm/core/plan/plan_fits.h"
#include "tests/core/plan_proof.h"
#include "tests/core/plan_run.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"
#include "tests/policies/engine_rig.h"

enum { HEAD = 16, RESERVE = 3 * UNIT, BOUND = MAP * UNIT, TYPICAL = 2 * UNIT, MAPS = 4 };

/* Facts in which codes of zfp:rate=8 have bodies. */
static mm_graph_facts *body_facts(const mm_graph *graph) {
    mm_graph_facts *facts = terse_facts(graph, HEAD);
    facts->codecs[0].fixed_size = false;
    for (int t = 0; t < facts->n_tensors; t++) {
        facts->codes[t].body_bound_bytes = BOUND;
        facts->codes[t].body_reserve_bytes = RESERVE;
        facts->codes[t].body_typical_bytes = TYPICAL;
    }
    return facts;
}

/* Plans within these limits, and proves the plan, which may take more. */
static mm_plan *plan(const mm_graph *graph, const mm_graph_facts *facts, const char *spec, int64_t device_bytes,
                     int64_t pinned_bytes) {
    mm_policy policy;
    mm_plan *plan;
    mm_limits limits = {.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = mm_plan_base(graph)};
    if (mm_policy_parse(spec, &policy) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    if (mm_policy_plan(&policy, graph, facts, &limits, &plan) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    mm_policy_fini(&policy);
    limits.device_bytes = limits.pinned_bytes = INT64_MAX;
    if (plan_check(plan, facts, &limits) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    return plan;
}

/* Finds the plan's pools, that on the device first. Returns their number. */
static int find_pools(const mm_plan *plan, const mm_segment *found[3]) {
    int n = 0;
    for (int pinned = 0; pinned < 2; pinned++)
        for (int i = 0; i < plan->n_segments; i++)
            if (plan->segments[i].content == MM_CONTENT_POOL && (plan->segments[i].memory == MM_MEM_PINNED) == pinned) {
                assert_true(n < 3);
                found[n++] = &plan->segments[i];
            }
    return n;
}

TEST_CASE(bodies_lie_in_one_pool_with_a_spill) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts = body_facts(graph);
    const mm_segment *pools[3];
    char text[512];
    mm_plan *p = plan(graph, facts, "rules:*=compress(zfp:rate=8),when=always", INT64_MAX, INT64_MAX);
    assert_string_equal(terse_tell(p, text, sizeof text), "data conv1 conv2 (x1 conv3 (x2 conv4 (x3 loss (x4 x4) x3) "
                                                          "loss' x2) conv4' x1) conv3' conv2' conv1'");
    assert_int_equal(find_pools(p, pools), 2);
    assert_int_equal(pools[0]->bytes, MAPS * RESERVE);
    assert_ptr_equal(&p->segments[pools[0]->spill], pools[1]);
    assert_int_equal(pools[1]->bytes, MAPS * (BOUND - RESERVE) + MM_CHUNK_BYTES);
    assert_int_equal(p->pinned_bytes, pools[1]->bytes);
    int heads = 0;
    for (int i = 0; i < p->n_segments; i++) {
        heads += p->segments[i].pool >= 0;
        if (p->segments[i].pool >= 0) assert_int_equal(p->segments[i].bytes, HEAD);
    }
    assert_int_equal(heads, MAPS);
    mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = p->pinned_bytes - 1};
    assert_int_equal(mm_plan_fits(p, &limits), MM_ERR_INFEASIBLE);
    assert_says("of pinned memory");
    mm_plan_destroy(p);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

TEST_CASE(without_pinned_memory_the_pool_has_room_for_all) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts = body_facts(graph);
    const mm_segment *pools[3];
    mm_plan *p = plan(graph, facts, "rules:*=compress(zfp:rate=8),when=always", INT64_MAX, 0);
    assert_int_equal(find_pools(p, pools), 1);
    assert_int_equal(pools[0]->bytes, MAPS * BOUND);
    assert_int_equal(pools[0]->spill, -1);
    assert_int_equal(p->pinned_bytes, 0);
    mm_plan_destroy(p);
    /* Such codes save nothing: unless the policy has when=always, no map is compressed. */
    p = plan(graph, facts, "liveness", INT64_MAX, 0);
    const int64_t least = p->peak_bytes;
    mm_plan_destroy(p);
    p = plan(graph, facts, "rules:*=compress(zfp:rate=8)", least, 0);
    assert_int_equal(find_pools(p, pools), 0);
    assert_true(p->peak_bytes <= least);
    mm_plan_destroy(p);
    for (int t = 0; t < facts->n_tensors; t++) facts->codes[t].body_reserve_bytes = UNIT;
    p = plan(graph, facts, "rules:*=compress(zfp:rate=8),depth=1", 1, INT64_MAX);
    assert_int_equal(find_pools(p, pools), 2);
    assert_true(p->peak_bytes < least);
    mm_plan_destroy(p);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* With less pinned memory than the spill needs, the pool on the device is larger by the rest, if that fits the
 * budget. */
TEST_CASE(a_spill_takes_no_more_than_the_pinned_memory) {
    static const char spec[] = "rules:*=compress(zfp:rate=8),when=always";
    enum { SPILL = MAPS * (BOUND - RESERVE) + MM_CHUNK_BYTES, LESS = SPILL - UNIT };
    mm_graph *graph = row(false);
    mm_graph_facts *facts = body_facts(graph);
    const mm_segment *pools[3];
    mm_plan *p = plan(graph, facts, spec, INT64_MAX, LESS);
    assert_int_equal(find_pools(p, pools), 2);
    assert_int_equal(pools[1]->bytes, LESS / MM_ALIGN * MM_ALIGN);
    assert_int_equal(pools[0]->bytes + pools[1]->bytes, MAPS * BOUND + MM_CHUNK_BYTES);
    assert_true(p->pinned_bytes <= LESS);
    mm_plan_destroy(p);
    p = plan(graph, facts, spec, 1, INT64_MAX);
    const int64_t least = p->peak_bytes;
    mm_plan_destroy(p);
    p = plan(graph, facts, spec, INT64_MAX, MM_CHUNK_BYTES); /* not even one chunk besides the slack */
    assert_int_equal(find_pools(p, pools), 1);
    assert_int_equal(pools[0]->bytes, MAPS * BOUND);
    mm_plan_destroy(p);
    /* If the larger pool does not fit the budget, the pool has its reserve, and the plan takes too much pinned
     * memory. */
    const mm_limits limits = {.device_bytes = least, .pinned_bytes = LESS};
    p = plan(graph, facts, spec, limits.device_bytes, limits.pinned_bytes);
    assert_int_equal(find_pools(p, pools), 2);
    assert_int_equal(pools[0]->bytes, MAPS * RESERVE);
    assert_int_equal(mm_plan_spill_bytes(p), SPILL);
    assert_int_equal(mm_plan_fits(p, &limits), MM_ERR_INFEASIBLE);
    char told[64];
    snprintf(told, sizeof told, "needs %d bytes", SPILL);
    assert_says(told);
    assert_says("with reserve=100");
    mm_plan_destroy(p);
    /* Where maps are swapped, too, the spill has the pinned memory that they leave. */
    p = plan(graph, facts, "rules:conv2=swap;*=compress(zfp:rate=8),when=always", INT64_MAX, MAP * UNIT + LESS / 2);
    assert_int_equal(find_pools(p, pools), 2);
    assert_true(p->pinned_bytes <= MAP * UNIT + LESS / 2 && p->pinned_bytes > MAP * UNIT);
    mm_plan_destroy(p);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

TEST_CASE(swapped_codes_are_encoded_into_pinned_memory) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts = body_facts(graph);
    const mm_segment *pools[3];
    char text[512];
    mm_plan *p = plan(graph, facts, "cdma:rate=8,when=always", INT64_MAX, INT64_MAX);
    assert_string_equal(terse_tell(p, text, sizeof text), "data conv1 conv2 (x1 conv3 (x2 conv4 (x3 loss (x4 x4) x3) "
                                                          "loss' x2) conv4' x1) conv3' conv2' conv1'");
    assert_int_equal(find_pools(p, pools), 1);
    assert_true(pools[0]->memory == MM_MEM_PINNED);
    assert_int_equal(pools[0]->bytes, MAPS * BOUND);
    assert_int_equal(p->pinned_bytes, MAPS * BOUND);
    for (int i = 0; i < p->n_nodes; i++) {
        assert_int_equal(p->nodes[i].throttle, 0);
        if (p->nodes[i].kind != MM_NODE_DECODE) continue;
        int step = i; /* a decode overlaps with one step only, as a copy over the link does */
        while (p->nodes[step].kind != MM_NODE_STEP) step--;
        assert_int_equal(p->nodes[i].wait[MM_STREAM_COMPUTE], p->nodes[step].seq);
    }
    mm_plan_destroy(p);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

TEST_CASE(codes_of_variable_size_are_not_allocated_at_run_time) {
    mm_graph *graph = row(false);
    mm_graph_facts *facts = body_facts(graph);
    const mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX};
    mm_policy policy;
    mm_plan *p;
    assert_int_equal(mm_policy_parse("freelunch:rate=8,workspace=naive", &policy), MM_OK);
    assert_int_equal(mm_policy_plan(&policy, graph, facts, &limits, &p), MM_ERR_INVALID);
    assert_says("'zfp:rate=8' has codes of variable size");
    assert_says("workspace=sliding");
    mm_policy_fini(&policy);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* On random graphs, however much is spilled, every order that the waits allow gives the results of steps with memory of
 * their own. */
TEST_CASE(plans_with_pools_compute_the_same) {
    static const struct {
        const char *spec;
        int64_t device_bytes, pinned_bytes;
    } cases[] = {
        {"rules:*=compress(test-variable),when=always", 1, INT64_MAX},
        {"rules:*=compress(test-variable),when=always", INT64_MAX, 0},
        {"rules:*=compress(test-variable),when=always", INT64_MAX, 3 * MM_CHUNK_BYTES},
        {"rules:*=compress-swap(test-variable),when=always", 1, INT64_MAX},
        {"rules:conv=compress(test-variable);relu=compress-swap(test-variable);*=swap,when=always,depth=4", 1,
         INT64_MAX},
        {"rules:*=compress(test-variable)", 1, INT64_MAX},
        {"rules:*=compress(test-variable)", 1, 2 * MM_CHUNK_BYTES},
        {"rules:relu&conv-in=compress(test-variable);relu=compress(test-variable);*=swap,when=always,depth=0", 1,
         INT64_MAX},
        {"rules:conv=compress(test-variable);*=recompute,inplace=off,layout=groups,stash=apart,when=always", 1,
         INT64_MAX},
    };
    int bodies = 0, spills = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        const random_graph_options options = {.seed = seed, .layers = 12, .max_channels = 24, .images = 2};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        mm_facts_keep_least_workspaces(facts); /* the variant that steps of random graphs run by */
        const uint64_t expected = random_graph_reference(graph, seed, 2);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            mm_plan *p = plan(graph, facts, cases[i].spec, cases[i].device_bytes, cases[i].pinned_bytes);
            for (int order = PLAN_ORDER_ISSUE; order <= PLAN_ORDER_RANDOM; order++)
                if (plan_run(p, facts, seed, 2, order, seed, NULL) != expected)
                    fail_msg("%s goes wrong on %s", cases[i].spec, mm_graph_name(graph));
            for (int s = 0; s < p->n_segments; s++) {
                bodies += p->segments[s].pool >= 0;
                spills += p->segments[s].spill >= 0;
            }
            mm_plan_destroy(p);
        }
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    print_message("%d bodies, %d spills\n", bodies, spills);
    assert_true(bodies > 100 && spills > 20);
}
