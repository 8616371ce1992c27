/* SPDX-License-Identifier: MIT */
/* Rare graphs: policies must plan those that are valid, and graphs that cannot be are refused. */

#include "mm/mm.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

enum { BUDGET = 1 << 20 };

enum { UNITS = 4 }; /* of every map */

/* A map of this kind for each letter. */
static void maps(terse_graph *g, mm_tensor_kind kind, const char *letters) {
    for (; *letters; letters++) terse_map(g, (const char[]){*letters, 0}, kind, UNITS);
}

/* Plans the graph with each policy, and proves the plans. */
static void assert_planned(terse_graph *g, const char *const *policies) {
    mm_graph *graph = terse_freeze(g);
    for (; *policies; policies++) {
        mm_manager *m;
        mm_options options = {.device_bytes = BUDGET, .pinned_bytes = BUDGET, .policy = *policies};
        expect_ok(mm_manager_create(&options, &m));
        if (mm_manager_prepare(m, graph) != MM_OK) fail_msg("%s: %s", *policies, mm_last_error());
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

static const char *const RECOMPUTING[] = {"recompute:mode=speed,when=always",
                                          "recompute:mode=memory,when=always",
                                          "recompute:mode=cost,when=always",
                                          "recompute:mode=sqrt,when=always",
                                          "recompute:mode=nested,when=always",
                                          "modnn",
                                          NULL};
static const char *const SHARING[] = {"liveness", "swap-async:when=always", "recompute:when=always", "modnn", NULL};

/* relu reads u before the sum is accumulated into it: u as relu saw it is gone. */
TEST_CASE(what_was_made_of_a_map_changed_since_is_not_recomputed) {
    terse_graph g;
    terse_init(&g, "changed");
    maps(&g, MM_INPUT, "i");
    maps(&g, MM_FEATURE_MAP, "utv");
    maps(&g, MM_GRADIENT_MAP, "de");
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=i");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "i =u");
    terse_step(&g, "relu", MM_LAYER_RELU, MM_FORWARD, "u =t");
    terse_step(&g, "sum", MM_LAYER_ADD, MM_FORWARD, "t +u");
    terse_step(&g, "last", MM_LAYER_CONV, MM_FORWARD, "u t =v");
    terse_step(&g, "last", MM_LAYER_CONV, MM_BACKWARD, "v t u =d");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "u d =e");
    assert_planned(&g, RECOMPUTING);
}

/* A forward step has read weights that a backward step updates; so it must not run again after that step. */
TEST_CASE(what_was_made_with_weights_updated_since_is_not_recomputed) {
    terse_graph g;
    terse_init(&g, "updated");
    terse_persistent(&g, "w", UNITS);
    maps(&g, MM_INPUT, "i");
    maps(&g, MM_FEATURE_MAP, "utv");
    maps(&g, MM_GRADIENT_MAP, "de");
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=i");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "i =u");
    terse_step(&g, "norm", MM_LAYER_BATCH_NORM, MM_FORWARD, "u w =t");
    terse_step(&g, "last", MM_LAYER_CONV, MM_FORWARD, "t =v");
    terse_step(&g, "shared", MM_LAYER_BATCH_NORM, MM_BACKWARD, "v +w =d");
    terse_step(&g, "last", MM_LAYER_CONV, MM_BACKWARD, "t d u =e");
    assert_planned(&g, RECOMPUTING);
}

/* The backward pass reads a map's elements, and under the name of its alias its signs. */
TEST_CASE(signs_read_through_an_alias_are_kept_beside_a_lossy_code) {
    terse_graph g;
    terse_init(&g, "alias");
    maps(&g, MM_INPUT, "i");
    maps(&g, MM_FEATURE_MAP, "uav");
    maps(&g, MM_GRADIENT_MAP, "de");
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=i");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "i =u");
    terse_step(&g, "same", MM_LAYER_DROPOUT, MM_FORWARD, "u =a");
    terse_alias(&g, "u", "a");
    terse_step(&g, "last", MM_LAYER_CONV, MM_FORWARD, "u a =v");
    terse_step(&g, "last", MM_LAYER_CONV, MM_BACKWARD, "v u =d");
    terse_step(&g, "same", MM_LAYER_DROPOUT, MM_BACKWARD, "?a d =e");
    assert_planned(&g, (const char *const[]){"freelunch:rate=8,eligible=all,when=always", NULL});
}

/* conv writes u; then a, which equals u, is made, and may share its storage. */
static void start_equal(terse_graph *g, const char *name) {
    terse_init(g, name);
    maps(g, MM_FEATURE_MAP, "uav");
    terse_step(g, "conv", MM_LAYER_CONV, MM_FORWARD, "=u");
    terse_step(g, "same", MM_LAYER_DROPOUT, MM_FORWARD, "u =a");
    terse_alias(g, "u", "a");
}

/* a, which equals u at first, must not change when u is changed later. */
TEST_CASE(an_output_does_not_share_the_storage_of_an_input_that_is_changed_later) {
    terse_graph g;
    start_equal(&g, "root");
    terse_step(&g, "change", MM_LAYER_ADD, MM_FORWARD, "+u");
    terse_step(&g, "last", MM_LAYER_CONV, MM_FORWARD, "u a =v");
    assert_planned(&g, SHARING);
}

/* v may be written over u, of which the step reads one element at a time; but the step reads the same storage also as
 * a, in any order. */
TEST_CASE(an_output_is_not_put_over_what_its_step_also_reads_otherwise) {
    terse_graph g;
    start_equal(&g, "twice");
    terse_step(&g, "sum", MM_LAYER_ADD, MM_FORWARD, "u a =v");
    terse_inplace(&g, "u", "v");
    assert_planned(&g, SHARING);
}

TEST_CASE(tensors_whose_sum_overflows_are_refused) {
    mm_graph *g;
    mm_layer layer;
    mm_use uses[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    expect_ok(mm_graph_create("absurd", &g));
    for (int i = 0; i < 4; i++) {
        mm_tensor_desc desc = {.name = names[i],
                               .kind = MM_STATE,
                               .ownership = MM_PERSISTENT,
                               .dtype = MM_U8,
                               .rank = 1,
                               .dims = {INT64_C(1) << 62}};
        uses[i] = (mm_use){.access = MM_READ};
        expect_ok(mm_graph_add_tensor(g, &desc, &uses[i].tensor));
    }
    expect_ok(mm_graph_add_layer(g, "l", MM_LAYER_OTHER, &layer));
    expect_ok(mm_graph_add_step(g, layer, MM_FORWARD, uses, 4, 0));
    assert_int_equal(mm_graph_freeze(g), MM_ERR_INVALID);
    mm_graph_destroy(g);
}
