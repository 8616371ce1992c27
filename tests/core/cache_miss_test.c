/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "mm/core/time/cache_miss.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

/* The small graph's maps, one after the other. Bytes that an iteration uses, before each step:
 *   CONV_F 0   RELU_F 4000   LOSS_F 12000   LOSS_B 16000   RELU_B 24000   CONV_B 36000   UPDATE 40000, end 40000 */
typedef struct fixture {
    small_graph g;
    mm_plan *plan;
    int map, out, d_out, d_map; /* segments */
    int64_t far[SMALL_STEPS];
} fixture;

static int segment(fixture *f, mm_tensor tensor, int64_t offset) {
    int index = mm_plan_segment(f->plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, tensor, SMALL_MAP_BYTES);
    f->plan->segments[index].offset = offset;
    return index;
}

static void bind(fixture *f, mm_tensor tensor, int bound) {
    for (int s = 0; s < SMALL_STEPS; s++)
        for (int u = 0; u < mm_graph_step(f->g.graph, s)->n_uses; u++)
            if (mm_graph_step(f->g.graph, s)->uses[u].tensor == tensor)
                f->plan->bindings[f->plan->nodes[s].first_binding + u] = bound;
}

static fixture fixture_create(void) {
    fixture f = {.g = small_graph_create()};
    const mm_limits limits = {0};
    assert_int_equal(mm_plan_create(f.g.graph, &limits, &f.plan), MM_OK);
    for (int s = 0; s < SMALL_STEPS; s++) assert_int_equal(mm_plan_step(f.plan, s), s);
    bind(&f, f.g.map, f.map = segment(&f, f.g.map, 0));
    bind(&f, f.g.out, f.out = segment(&f, f.g.out, 8192));
    bind(&f, f.g.d_out, f.d_out = segment(&f, f.g.d_out, 16384));
    bind(&f, f.g.d_map, f.d_map = segment(&f, f.g.d_map, 24576));
    return f;
}

static void fixture_destroy(fixture *f) {
    mm_plan_destroy(f->plan);
    mm_graph_destroy(f->g.graph);
}

static void expect_far(fixture *f, int64_t cache_bytes, const int64_t expected[SMALL_STEPS]) {
    assert_int_equal(mm_cache_miss_bytes(f->plan, cache_bytes, f->far), MM_OK);
    for (int s = 0; s < SMALL_STEPS; s++) assert_int_equal(f->far[s], expected[s]);
}

TEST_CASE(what_was_used_longer_ago_than_the_cache_holds_is_far) {
    fixture f = fixture_create();
    /* Bytes that steps use between the last step with a tensor and the first one with it in the next iteration: map
     * 28000, out 8000, d_out 20000, d_map 24000. */
    expect_far(&f, 28000, (int64_t[SMALL_STEPS]){0});
    expect_far(&f, 24000, (int64_t[SMALL_STEPS]){[CONV_F] = 4000});
    expect_far(&f, 19999, (int64_t[SMALL_STEPS]){[CONV_F] = 4000, [LOSS_B] = 4000, [RELU_B] = 4000});
    expect_far(&f, 0, (int64_t[SMALL_STEPS]){[CONV_F] = 4000, [RELU_F] = 4000, [LOSS_B] = 4000, [RELU_B] = 4000});
    fixture_destroy(&f);
}

TEST_CASE(bytes_that_another_tensor_had_are_near) {
    fixture f = fixture_create();
    f.plan->segments[f.d_out].offset = 0; /* the place of the map, which was used 4000 bytes before */
    expect_far(&f, 19999, (int64_t[SMALL_STEPS]){[RELU_B] = 4000});
    fixture_destroy(&f);
}

TEST_CASE(a_part_may_be_near) {
    fixture f = fixture_create();
    f.plan->segments[f.d_map].offset = 2000; /* its first half lies in the map's second half */
    expect_far(&f, 20000, (int64_t[SMALL_STEPS]){[CONV_F] = 2000, [RELU_B] = 2000});
    fixture_destroy(&f);
}

TEST_CASE(pinned_memory_and_what_has_no_place_are_not_counted) {
    fixture f = fixture_create();
    f.plan->segments[f.map].memory = MM_MEM_PINNED;
    f.plan->segments[f.d_map].dynamic = true;
    /* An iteration uses 24000 bytes that count; 8000 lie between RELU_B and the next LOSS_B, the uses of d_out. */
    expect_far(&f, 4000, (int64_t[SMALL_STEPS]){[LOSS_B] = 4000});
    fixture_destroy(&f);
}

TEST_CASE(a_copy_brings_its_bytes_near) {
    fixture f = fixture_create();
    int host = segment(&f, f.g.map, 0);
    f.plan->segments[host].memory = MM_MEM_PINNED;
    assert_int_equal(mm_plan_op(f.plan, MM_NODE_IN, f.g.map, host, f.map), SMALL_STEPS); /* behind the update */
    int64_t far[SMALL_STEPS + 1];
    assert_int_equal(mm_cache_miss_bytes(f.plan, 24000, far), MM_OK);
    assert_int_equal(far[CONV_F], 0);
    assert_int_equal(far[SMALL_STEPS], 4000);
    fixture_destroy(&f);
}
