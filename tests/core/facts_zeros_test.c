/* SPDX-License-Identifier: MIT */
/* Which maps promise zeros: by the layers that make them, and by what was measured. */
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

/* Declares a layer that reads `inputs`, and writes a map of its name. */
static mm_tensor layer_of(mm_graph *graph, const char *name, mm_layer_kind kind, const mm_tensor *inputs, size_t n) {
    mm_use uses[4];
    const mm_layer layer = small_layer(graph, name, kind);
    const mm_tensor out = small_tensor(graph, name, MM_FEATURE_MAP, MM_MANAGED, SMALL_MAP_BYTES);
    for (size_t i = 0; i < n; i++) uses[i] = (mm_use){inputs[i], MM_READ, MM_FORM_VALUE};
    uses[n] = (mm_use){out, MM_WRITE, MM_FORM_VALUE};
    small_step(graph, layer, MM_FORWARD, uses, n + 1, 0);
    return out;
}
#define LAYER(graph, name, kind, ...)                                                                                  \
    layer_of(graph, name, kind, (const mm_tensor[]){__VA_ARGS__},                                                      \
             sizeof((const mm_tensor[]){__VA_ARGS__}) / sizeof(mm_tensor))

static bool promises(const mm_graph *graph, mm_tensor tensor) {
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(graph, 0, &facts), MM_OK);
    const bool found = mm_facts_promise_zeros(facts, graph, tensor);
    mm_graph_facts_destroy(facts);
    return found;
}

TEST_CASE(relus_and_dropouts_promise_zeros_and_pools_pass_the_promise_on) {
    mm_graph *g;
    assert_int_equal(mm_graph_create("zeros", &g), MM_OK);
    const mm_tensor images = small_tensor(g, "images", MM_INPUT, MM_EXTERNAL, SMALL_MAP_BYTES);
    const mm_tensor conv = LAYER(g, "conv", MM_LAYER_CONV, images);
    const mm_tensor relu = LAYER(g, "relu", MM_LAYER_RELU, conv), bn = LAYER(g, "bn", MM_LAYER_BATCH_NORM, relu);
    const mm_tensor fused = LAYER(g, "bn-relu", MM_LAYER_BATCH_NORM_RELU, bn);
    const mm_tensor dropout = LAYER(g, "dropout", MM_LAYER_DROPOUT, bn);
    const mm_tensor pool = LAYER(g, "pool", MM_LAYER_POOL, relu), plain = LAYER(g, "plain", MM_LAYER_POOL, conv);
    const mm_tensor both = LAYER(g, "both", MM_LAYER_CONCAT, pool, fused);
    const mm_tensor half = LAYER(g, "half", MM_LAYER_CONCAT, pool, plain);
    const mm_tensor crop = LAYER(g, "crop", MM_LAYER_CROP, both), first = LAYER(g, "first", MM_LAYER_POOL, images);
    const mm_tensor same = LAYER(g, "same", MM_LAYER_OTHER, crop);
    assert_int_equal(mm_graph_allow_alias(g, crop, same), MM_OK);
    const mm_tensor other = LAYER(g, "other", MM_LAYER_OTHER, crop), gelu = LAYER(g, "gelu", MM_LAYER_GELU, relu);
    assert_int_equal(mm_graph_freeze(g), MM_OK);
    const mm_tensor many[] = {relu, fused, dropout, pool, both, crop, same};
    const mm_tensor few[] = {images, conv, bn, plain, half, first, other, gelu};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        if (!promises(g, many[i])) fail_msg("%s", mm_graph_tensor(g, many[i])->name);
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        if (promises(g, few[i])) fail_msg("%s", mm_graph_tensor(g, few[i])->name);
    mm_graph_destroy(g);
}

/* A convolution with a ReLU in it is of the kind of convolutions. What gives it away is that its backward step reads
 * its output's signs. A layer that reads its input's signs says nothing about the layer before. */
TEST_CASE(a_layer_whose_backward_reads_signs_of_its_output_promises_zeros) {
    mm_graph *g;
    assert_int_equal(mm_graph_create("signs", &g), MM_OK);
    const mm_tensor images = small_tensor(g, "images", MM_INPUT, MM_EXTERNAL, SMALL_MAP_BYTES);
    const mm_tensor d = small_tensor(g, "d", MM_GRADIENT_MAP, MM_MANAGED, SMALL_MAP_BYTES);
    const mm_tensor before = LAYER(g, "before", MM_LAYER_CONV, images), conv = LAYER(g, "conv", MM_LAYER_CONV, before);
    const mm_use uses[] = {
        {before, MM_READ, MM_FORM_SIGN}, {conv, MM_READ, MM_FORM_SIGN}, {d, MM_WRITE, MM_FORM_VALUE}};
    small_step(g, 1, MM_BACKWARD, uses, 3, 0);
    assert_int_equal(mm_graph_freeze(g), MM_OK);
    assert_true(promises(g, conv));
    assert_false(promises(g, before));
    mm_graph_destroy(g);
}

/* Measured sizes decide, against the kind of the layer too; sizes that a codec assumes do not, nor do those of codecs
 * that are small without zeros. */
TEST_CASE(what_was_measured_decides) {
    enum { HEAD = 40, LIMIT = SMALL_MAP_BYTES * 7 / 8 - HEAD };
    static const struct {
        bool drops_zeros, measured;
        int64_t typical;
        bool map, out; /* what is expected of the map of a convolution, and of that of a ReLU */
    } cases[] = {
        {true, false, 100, false, true},       {true, false, SMALL_MAP_BYTES, false, true},
        {true, true, LIMIT, true, true},       {true, true, LIMIT + 1, false, false},
        {false, true, LIMIT / 2, false, true}, {false, true, SMALL_MAP_BYTES, false, true},
    };
    const small_graph g = small_graph_create();
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(g.graph, 1, &facts), MM_OK);
    facts->codecs[0].gives_value = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        facts->codecs[0].drops_zeros = cases[i].drops_zeros;
        for (int t = 0; t < facts->n_tensors; t++)
            facts->codes[t] = (mm_code_facts){.code_bytes = HEAD,
                                              .body_bound_bytes = SMALL_MAP_BYTES,
                                              .body_reserve_bytes = SMALL_MAP_BYTES,
                                              .body_typical_bytes = cases[i].typical,
                                              .body_is_measured = cases[i].measured};
        assert_int_equal(mm_facts_promise_zeros(facts, g.graph, g.map), cases[i].map);
        assert_int_equal(mm_facts_promise_zeros(facts, g.graph, g.out), cases[i].out);
        assert_false(mm_facts_promise_zeros(facts, g.graph, g.d_map));
    }
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g.graph);
}
