/* SPDX-License-Identifier: MIT */
/* Building plans and their accounts; facts as they are made. */
#include <string.h>

#include "mm/core/plan/plan.h"
#include "mm/core/plan/plan_fits.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

typedef struct fixture {
    small_graph g;
    mm_limits limits;
    mm_plan *plan;
} fixture;

static fixture fixture_create(void) {
    fixture f = {.g = small_graph_create(), .limits = {.base_bytes = 512, .device_bytes = 1 << 20}};
    assert_int_equal(mm_plan_create(f.g.graph, &f.limits, &f.plan), MM_OK);
    return f;
}

static void fixture_destroy(fixture *f) {
    mm_plan_destroy(f->plan);
    mm_graph_destroy(f->g.graph);
}

static int raw(fixture *f, mm_category category, mm_tensor tensor, int64_t offset) {
    int segment = mm_plan_segment(f->plan, MM_CONTENT_RAW, category, tensor, SMALL_MAP_BYTES);
    f->plan->segments[segment].offset = offset;
    return segment;
}

static int32_t *binding(fixture *f, int node, int use) {
    return &f->plan->bindings[f->plan->nodes[node].first_binding + use];
}

/* map, out over it, d_out, d_map over that; nothing moves. Nodes are steps. */
static void plan_everything(fixture *f, int segments[4]) {
    for (int s = 0; s < SMALL_STEPS; s++) assert_int_equal(mm_plan_step(f->plan, s), s);
    segments[0] = raw(f, MM_CAT_FEATURE_MAP, f->g.map, 512);
    segments[1] = raw(f, MM_CAT_FEATURE_MAP, f->g.out, 512);
    segments[2] = raw(f, MM_CAT_GRADIENT_MAP, f->g.d_out, 8192);
    segments[3] = raw(f, MM_CAT_GRADIENT_MAP, f->g.d_map, 8192);
    *binding(f, CONV_F, 2) = *binding(f, RELU_F, 0) = segments[0];
    *binding(f, RELU_F, 1) = *binding(f, LOSS_F, 0) = *binding(f, LOSS_B, 0) = *binding(f, RELU_B, 0) = segments[1];
    *binding(f, LOSS_B, 1) = *binding(f, RELU_B, 1) = segments[2];
    *binding(f, RELU_B, 2) = *binding(f, CONV_B, 1) = segments[3];
}

TEST_CASE(new_plan_is_empty_and_shares_nothing) {
    fixture f = fixture_create();
    assert_int_equal(f.plan->n_nodes, 0);
    assert_int_equal(f.plan->base_bytes, 512);
    for (int t = 0; t < mm_graph_tensors(f.g.graph); t++) assert_int_equal(mm_plan_root(f.plan, t), t);
    fixture_destroy(&f);
}

TEST_CASE(graph_must_be_frozen) {
    mm_graph *graph;
    mm_plan *plan = NULL;
    assert_int_equal(mm_graph_create("open", &graph), MM_OK);
    assert_int_equal(mm_plan_create(graph, &(mm_limits){0}, &plan), MM_ERR_ORDER);
    assert_null(plan);
    mm_graph_destroy(graph);
}

TEST_CASE(nodes_are_numbered_on_their_streams) {
    fixture f = fixture_create();
    int a = mm_plan_step(f.plan, 0), b = mm_plan_op(f.plan, MM_NODE_ENCODE, f.g.map, 3, 4);
    int c = mm_plan_step(f.plan, 1), d = mm_plan_op(f.plan, MM_NODE_DECODE, f.g.map, 4, 5);
    int e = mm_plan_op(f.plan, MM_NODE_ENCODE, f.g.out, 6, 7);
    const mm_node *n = f.plan->nodes;
    assert_int_equal(n[a].stream, MM_STREAM_COMPUTE);
    assert_int_equal(n[b].stream, MM_STREAM_ENCODE);
    assert_int_equal(n[d].stream, MM_STREAM_DECODE);
    assert_int_equal(n[c].seq, 1);
    assert_int_equal(n[e].seq, 1);
    assert_int_equal(n[d].seq, 0);
    assert_int_equal(n[e].src, 6);
    assert_int_equal(n[e].work, -1);
    assert_int_equal(f.plan->stream_nodes[MM_STREAM_ENCODE], 2);
    assert_int_equal(*binding(&f, c, 0), -1);
    fixture_destroy(&f);
}

TEST_CASE(the_later_of_two_waits_on_one_stream_counts) {
    fixture f = fixture_create();
    for (int s = 0; s < 3; s++) mm_plan_step(f.plan, s);
    int op = mm_plan_op(f.plan, MM_NODE_ENCODE, f.g.out, 0, 1);
    mm_plan_wait(f.plan, op, 2);
    mm_plan_wait(f.plan, op, 1);
    assert_int_equal(f.plan->nodes[op].wait[MM_STREAM_COMPUTE], 2);
    mm_plan_wait(f.plan, 2, 1); /* one stream: in order anyway */
    assert_int_equal(f.plan->nodes[2].wait[MM_STREAM_COMPUTE], -1);
    fixture_destroy(&f);
}

TEST_CASE(finish_finds_lives_extent_and_peak) {
    fixture f = fixture_create();
    int s[4];
    plan_everything(&f, s);
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    const mm_segment *map = &f.plan->segments[s[0]], *out = &f.plan->segments[s[1]];
    assert_int_equal(map->first_node, CONV_F);
    assert_int_equal(map->last_node, RELU_F);
    assert_int_equal(map->live_last, CONV_F); /* relu's output takes its bytes */
    assert_int_equal(out->first_node, RELU_F);
    assert_int_equal(out->live_last, RELU_B);
    assert_int_equal(f.plan->extent_bytes, 8192 + SMALL_MAP_BYTES);
    assert_int_equal(f.plan->external_bytes, SMALL_IMAGE_BYTES);
    assert_int_equal(f.plan->peak_bytes, 8192 + SMALL_MAP_BYTES + SMALL_IMAGE_BYTES);
    assert_int_equal(f.plan->live_peak_bytes, 512 + 2 * SMALL_MAP_BYTES + SMALL_IMAGE_BYTES);
    assert_int_equal(f.plan->peak_step, LOSS_B);
    assert_int_equal(f.plan->stash_bytes, SMALL_MAP_BYTES);
    assert_int_equal(f.plan->pinned_bytes, 0);
    int64_t bytes[MM_CATEGORIES];
    mm_plan_live_at(f.plan, RELU_B, bytes);
    assert_int_equal(bytes[MM_CAT_PERSISTENT], 512);
    assert_int_equal(bytes[MM_CAT_FEATURE_MAP], SMALL_IMAGE_BYTES + SMALL_MAP_BYTES);
    assert_int_equal(bytes[MM_CAT_GRADIENT_MAP], SMALL_MAP_BYTES);
    assert_int_equal(bytes[MM_CAT_CODE], 0);
    fixture_destroy(&f);
}

TEST_CASE(both_of_two_segments_that_do_not_share_count_at_the_step_between) {
    fixture f = fixture_create();
    int s[4];
    plan_everything(&f, s);
    f.plan->segments[s[1]].offset = 16384;
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    assert_int_equal(f.plan->segments[s[0]].live_last, RELU_F);
    int64_t bytes[MM_CATEGORIES];
    mm_plan_live_at(f.plan, RELU_F, bytes);
    assert_int_equal(bytes[MM_CAT_FEATURE_MAP], SMALL_IMAGE_BYTES + 2 * SMALL_MAP_BYTES);
    fixture_destroy(&f);
}

TEST_CASE(finish_twice_gives_the_same) {
    fixture f = fixture_create();
    int s[4];
    plan_everything(&f, s);
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    mm_plan before = *f.plan;
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    assert_memory_equal(&before, f.plan, sizeof before);
    fixture_destroy(&f);
}

TEST_CASE(heap_and_pinned_memory_are_counted_apart) {
    fixture f = fixture_create();
    int s[4];
    plan_everything(&f, s);
    f.plan->segments[s[3]].dynamic = true;
    f.plan->segments[s[3]].offset = 1 << 30; /* not looked at */
    f.plan->segments[s[2]].memory = MM_MEM_PINNED;
    f.plan->heap_offset = 12288;
    f.plan->heap_bytes = 4096;
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    assert_int_equal(f.plan->extent_bytes, 12288 + 4096);
    assert_int_equal(f.plan->pinned_bytes, 8192 + SMALL_MAP_BYTES);
    fixture_destroy(&f);
}

TEST_CASE(fits_says_how_much_is_needed_and_where) {
    fixture f = fixture_create();
    int s[4];
    plan_everything(&f, s);
    assert_int_equal(mm_plan_name(f.plan, "some-policy"), MM_OK);
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    f.limits.device_bytes = f.plan->peak_bytes;
    assert_int_equal(mm_plan_fits(f.plan, &f.limits), MM_OK);
    f.limits.device_bytes--;
    assert_int_equal(mm_plan_fits(f.plan, &f.limits), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "some-policy on small needs at least 13392 bytes"));
    assert_non_null(strstr(mm_last_error(), "loss backward"));
    assert_non_null(strstr(mm_last_error(), "13391"));
    f.limits = (mm_limits){.device_bytes = INT64_MAX, .pinned_bytes = 10};
    f.plan->pinned_bytes = 11;
    assert_int_equal(mm_plan_fits(f.plan, &f.limits), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "pinned"));
    fixture_destroy(&f);
}

TEST_CASE(destroy_takes_null) {
    mm_plan_destroy(NULL);
    mm_graph_facts_destroy(NULL);
}

TEST_CASE(new_facts_have_one_variant_a_step_and_no_code) {
    small_graph g = small_graph_create();
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(g.graph, 2, &facts), MM_OK);
    assert_int_equal(facts->n_steps, SMALL_STEPS);
    for (int s = 0; s < SMALL_STEPS; s++) {
        assert_int_equal(facts->variant_first[s + 1] - facts->variant_first[s], 1);
        const mm_variant *v = &facts->variants[facts->variant_first[s]];
        assert_int_equal(v->workspace_bytes, s == CONV_B ? 1000 : 0);
        assert_int_equal(v->ns, 0);
        assert_true(v->deterministic);
    }
    for (int c = 0; c < 2; c++)
        for (int t = 0; t < mm_graph_tensors(g.graph); t++)
            assert_int_equal(mm_facts_code(facts, c, t)->code_bytes, -1);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g.graph);
}

TEST_CASE(codecs_are_found_by_their_spec) {
    small_graph g = small_graph_create();
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(g.graph, 2, &facts), MM_OK);
    strcpy(facts->codecs[0].spec, "zfp:rate=4");
    strcpy(facts->codecs[1].spec, "zfp:rate=8");
    assert_int_equal(mm_facts_codec(facts, "zfp:rate=8"), 1);
    assert_int_equal(mm_facts_codec(facts, "zfp"), -1);
    facts->codes[facts->n_tensors + g.out].code_bytes = 12;
    assert_int_equal(mm_facts_code(facts, 1, g.out)->code_bytes, 12);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g.graph);
}
