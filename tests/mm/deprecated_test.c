/* SPDX-License-Identifier: MIT */
/* The names of version 0.14 (mm_deprecated.h) do what their new names do. */
#include "mm/mm.h"
#include "tests/core/expect.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

TEST_CASE(a_tensor_is_shared_as_it_is_all_reduced) {
    mm_graph *graph;
    mm_tensor loss, map;
    expect_ok(mm_graph_create("old", &graph));
    expect_ok(mm_graph_add_tensor(graph, &(mm_tensor_desc){"loss", MM_STATE, MM_PERSISTENT, MM_F32, 1, {1}}, &loss));
    expect_ok(mm_graph_add_tensor(graph, &(mm_tensor_desc){"map", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 1, {1}}, &map));
    expect_ok(mm_graph_share(graph, loss, MM_SHARE_AT_ONCE));
    expect_ok(mm_graph_share_as(graph, loss, MM_SHARE_IN_PLACE_AT_END, MM_SHARED_MEAN));
    assert_int_equal(mm_graph_share(graph, map, MM_SHARE_AT_ONCE), MM_ERR_INVALID);
    assert_int_equal(mm_graph_share_as(graph, loss, (mm_share)(MM_SHARE_IN_PLACE_AT_END + 1), MM_SHARED_SUM),
                     MM_ERR_INVALID);
    mm_graph_destroy(graph);
}

TEST_CASE(calls_of_a_manager_are_refused_without_one) {
    const mm_gradient_fns none = {0};
    assert_int_equal(mm_gradient_set(NULL, NULL, &none, NULL), MM_ERR_INVALID);
    assert_int_equal(mm_sampling_tell(NULL, NULL, 0, 0), MM_ERR_INVALID);
    assert_int_equal(MM_LAYER_DEAR, MM_LAYER_EXPENSIVE);
}

TEST_CASE(a_stash_serves_its_old_calls) {
    const mm_stash_options options = {.device_bytes = 1 << 20, .pinned_bytes = 1 << 20};
    float map[256] = {1, 2, 3};
    const mm_stash_tensor tensor = {.data = map, .dtype = MM_F32, .rank = 1, .dims = {256}};
    mm_stash *stash;
    mm_stash_entry entry;
    mm_stash_answer answer;
    mm_stash_stats stats;
    void *data;
    expect_ok(mm_stash_create(&options, &stash));
    expect_ok(mm_stash_put(stash, &tensor, NULL, &entry, &answer));
    expect_ok(mm_stash_get(stash, entry, NULL, &data));
    assert_memory_equal(data, map, sizeof map);
    mm_stash_give_back(stash, entry, NULL);
    mm_stash_drop(stash, entry);
    mm_stash_mark(stash);
    expect_ok(mm_stash_settle(stash));
    mm_stash_stats_get(stash, &stats);
    assert_int_equal(stats.iterations, 1);
    assert_int_equal(stats.entries, 0);
    mm_stash_destroy(stash);
}
