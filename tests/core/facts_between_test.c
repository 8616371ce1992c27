/* SPDX-License-Identifier: MIT */
/* Times of any batch of a network that was measured with some. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

enum { FORWARD, BACKWARD, AT_END, SUM, STEPS };

/* A layer that makes a map of `batch` * 1000 bytes and reads it back, an update, and, if the pass goes on, a sum. */
static mm_graph *graph_of(int batch, bool goes_on) {
    mm_graph *g;
    assert_int_equal(mm_graph_create("between", &g), MM_OK);
    const mm_tensor images = small_tensor(g, "images", MM_INPUT, MM_EXTERNAL, 400);
    const mm_tensor d_weight = small_tensor(g, "d", MM_WEIGHT_GRADIENT, MM_EXTERNAL, 400);
    const mm_tensor map = small_tensor(g, "map", MM_FEATURE_MAP, MM_MANAGED, batch * INT64_C(1000));
    const mm_layer conv = small_layer(g, "conv", MM_LAYER_CONV), update = small_layer(g, "update", MM_LAYER_UPDATE),
                   sum = small_layer(g, "sum", MM_LAYER_UPDATE);
    small_step(g, conv, MM_FORWARD, (mm_use[]){{images, MM_READ, 0}, {map, MM_WRITE, 0}}, 2, 0);
    small_step(g, conv, MM_BACKWARD, (mm_use[]){{map, MM_READ, 0}, {d_weight, MM_WRITE, 0}}, 2, 0);
    small_step(g, update, MM_UPDATE, (mm_use[]){{d_weight, MM_READ, 0}}, 1, 0);
    if (goes_on) small_step(g, sum, MM_UPDATE, (mm_use[]){{d_weight, MM_MODIFY, 0}}, 1, 0);
    assert_int_equal(mm_graph_freeze(g), MM_OK);
    return g;
}

/* Facts of that batch as from a file. code: times of the map's code; 0: no codec. */
static mm_facts *measured(int batch, const int64_t ns[3], int64_t code, int64_t link) {
    char path[512];
    mm_graph *g = graph_of(batch, false);
    mm_graph_facts *facts;
    mm_facts *file;
    assert_int_equal(mm_graph_facts_create(g, code > 0, &facts), MM_OK);
    for (int s = 0; s < 3; s++) facts->variants[facts->variant_first[s]].ns = ns[s];
    facts->out_bytes_per_s = facts->in_bytes_per_s = link;
    if (code > 0) {
        facts->codecs[0] = (mm_codec_facts){.spec = "c", .lossless = true, .gives_value = true};
        for (int t = 0; t < facts->n_tensors; t++) facts->codes[t].code_bytes = -1;
        mm_tensor map;
        assert_int_equal(mm_graph_find_tensor(g, "map", &map), MM_OK);
        facts->codes[map] = (mm_code_facts){.code_bytes = 16,
                                            .body_bound_bytes = 800,
                                            .body_reserve_bytes = 800,
                                            .body_typical_bytes = 200,
                                            .body_is_measured = true,
                                            .encode_ns = code,
                                            .decode_ns = 2 * code};
    }
    const char *root = getenv("TEST_TMPDIR");
    snprintf(path, sizeof path, "%s/facts-%d-%d", root ? root : "/tmp", batch, (int)getpid());
    assert_int_equal(mm_facts_write(facts, g, path), MM_OK);
    assert_int_equal(mm_facts_load(path, &file), MM_OK);
    unlink(path);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g);
    return file;
}

/* The times of the steps of a graph of that batch. */
static mm_status times(const mm_facts *const *files, int n, int batch, bool goes_on, int64_t ns_out[STEPS]) {
    mm_graph *g = graph_of(batch, goes_on);
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(g, 0, &facts), MM_OK);
    const mm_status status = mm_facts_apply_between(files, n, g, facts);
    for (int s = 0; s < mm_graph_steps(g); s++) ns_out[s] = facts->variants[facts->variant_first[s]].ns;
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g);
    return status;
}

static void expect_times(const mm_facts *const *files, int n, int batch, int64_t forward, int64_t backward,
                         int64_t update) {
    int64_t ns[STEPS];
    assert_int_equal(times(files, n, batch, false, ns), MM_OK);
    assert_int_equal(ns[FORWARD], forward);
    assert_int_equal(ns[BACKWARD], backward);
    assert_int_equal(ns[AT_END], update);
}

TEST_CASE(times_are_on_the_line_of_the_two_next_batches) {
    mm_facts *two = measured(2, (int64_t[]){100, 1000, 50}, 0, 5),
             *ten = measured(10, (int64_t[]){260, 1800, 60}, 0, 7),
             *six = measured(6, (int64_t[]){150, 1000, 40}, 0, 6);
    const mm_facts *const files[] = {ten, two, six};
    expect_times(files, 2, 4, 140, 1200, 53);
    expect_times(files, 2, 2, 100, 1000, 50);
    expect_times(files, 2, 10, 260, 1800, 60);
    expect_times(files, 2, 1, 80, 900, 50);
    expect_times(files, 2, 20, 460, 2800, 60);
    expect_times(files, 3, 20, 520, 3600, 60); /* no more than in proportion: the line would be at 535 and 3800 */
    expect_times(files, 3, 1, 88, 1000, 50);
    expect_times(&files[1], 1, 1, 50, 500, 50);
    expect_times(files, 3, 4, 125, 1000, 45); /* the two that are next to it */
    expect_times(files, 3, 8, 205, 1400, 50);
    expect_times(&files[1], 1, 8, 400, 4000, 50);
    mm_facts_destroy(two);
    mm_facts_destroy(six);
    mm_facts_destroy(ten);
}

TEST_CASE(a_step_that_was_not_measured_takes_the_others_time_for_each_byte) {
    mm_facts *two = measured(2, (int64_t[]){2400, 2400, 400}, 0, 5);
    int64_t ns[STEPS];
    assert_int_equal(times((const mm_facts *const[]){two}, 1, 2, true, ns), MM_OK);
    assert_int_equal(ns[AT_END], 400);
    assert_int_equal(ns[SUM], 401); /* 400 bytes at a byte a ns; at least 1 ns */
    mm_facts_destroy(two);
}

/* What was not measured is not known, whatever the other batch says. */
TEST_CASE(a_time_that_one_batch_lacks_is_not_known) {
    mm_facts *two = measured(2, (int64_t[]){0, 10, 10}, 0, 5), *ten = measured(10, (int64_t[]){260, 0, 60}, 0, 7);
    expect_times((const mm_facts *const[]){two, ten}, 2, 4, 0, 0, 23);
    mm_facts_destroy(two);
    mm_facts_destroy(ten);
}

TEST_CASE(codes_and_rates_follow_too) {
    mm_facts *two = measured(2, (int64_t[]){1, 1, 1}, 100, 5), *ten = measured(10, (int64_t[]){1, 1, 1}, 900, 7);
    mm_graph *g = graph_of(4, false);
    mm_graph_facts *facts;
    mm_tensor map;
    assert_int_equal(mm_graph_find_tensor(g, "map", &map), MM_OK);
    assert_int_equal(mm_graph_facts_create(g, 1, &facts), MM_OK);
    facts->codecs[0] = (mm_codec_facts){.spec = "c", .lossless = true, .gives_value = true};
    for (int t = 0; t < facts->n_tensors; t++) facts->codes[t].code_bytes = -1;
    facts->codes[map] = (mm_code_facts){
        .code_bytes = 16, .body_bound_bytes = 4000, .body_reserve_bytes = 4000, .body_typical_bytes = 3000};
    assert_int_equal(mm_facts_apply_between((const mm_facts *const[]){two, ten}, 2, g, facts), MM_OK);
    assert_int_equal(facts->codes[map].encode_ns, 300);
    assert_int_equal(facts->codes[map].decode_ns, 600);
    assert_int_equal(facts->codes[map].body_typical_bytes, 1000); /* a quarter of the most, as there */
    assert_true(facts->codes[map].body_is_measured);
    assert_int_equal(facts->codes[map].body_bound_bytes, 4000);
    assert_int_equal(facts->out_bytes_per_s, 5);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g);
    mm_facts_destroy(two);
    mm_facts_destroy(ten);
}

TEST_CASE(facts_of_another_network_are_refused_and_nothing_changes) {
    mm_facts *two = measured(2, (int64_t[]){1, 1, 1}, 0, 5);
    mm_graph *g;
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_create("another", &g), MM_OK);
    const mm_tensor images = small_tensor(g, "images", MM_INPUT, MM_EXTERNAL, 400);
    small_step(g, small_layer(g, "conv", MM_LAYER_CONV), MM_FORWARD, (mm_use[]){{images, MM_READ, 0}}, 1, 0);
    assert_int_equal(mm_graph_freeze(g), MM_OK);
    assert_int_equal(mm_graph_facts_create(g, 0, &facts), MM_OK);
    assert_int_equal(mm_facts_apply_between((const mm_facts *const[]){two}, 1, g, facts), MM_ERR_FORMAT);
    assert_non_null(strstr(mm_last_error(), "another has no step conv backward"));
    assert_int_equal(facts->out_bytes_per_s, 0);
    assert_int_equal(facts->variants[0].ns, 0);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g);
    mm_facts_destroy(two);
}
