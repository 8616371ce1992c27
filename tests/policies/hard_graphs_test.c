/* Graphs that are rare and right: policies plan them, and what cannot be is refused. */

#include "mm/mm.h"
#include "tests/core/expect.h"

enum { BUDGET = 1 << 20 };

static mm_tensor tensor(mm_graph *graph, const char *name, mm_tensor_kind kind, mm_ownership ownership) {
    mm_tensor t;
    mm_tensor_desc desc = {
        .name = name, .kind = kind, .ownership = ownership, .dtype = MM_F32, .rank = 4, .dims = {1, 8, 8, 4}};
    expect_ok(mm_graph_add_tensor(graph, &desc, &t));
    return t;
}

static mm_tensor map(mm_graph *graph, const char *name, mm_tensor_kind kind) {
    return tensor(graph, name, kind, MM_MANAGED);
}

static mm_layer layer(mm_graph *graph, const char *name, mm_layer_kind kind) {
    mm_layer l;
    expect_ok(mm_graph_add_layer(graph, name, kind, &l));
    return l;
}

#define STEP(graph, layer, phase, ...)                                                                                 \
    do {                                                                                                               \
        const mm_use uses_[] = {__VA_ARGS__};                                                                          \
        expect_ok(mm_graph_add_step(graph, layer, phase, uses_, sizeof uses_ / sizeof *uses_, 0));                     \
    } while (0)
#define READ(t)                                                                                                        \
    { t, MM_READ, MM_FORM_VALUE }
#define SIGN(t)                                                                                                        \
    { t, MM_READ, MM_FORM_SIGN }
#define WRITE(t)                                                                                                       \
    { t, MM_WRITE, MM_FORM_VALUE }
#define MODIFY(t)                                                                                                      \
    { t, MM_MODIFY, MM_FORM_VALUE }

/* Plans and proves it under the policies. */
static void assert_planned(mm_graph *graph, const char *const *policies) {
    expect_ok(mm_graph_freeze(graph));
    for (; *policies; policies++) {
        mm_manager *m;
        mm_options options = {.device_bytes = BUDGET, .pinned_bytes = BUDGET, .policy = *policies};
        expect_ok(mm_manager_create(&options, &m));
        if (mm_manager_prepare(m, graph) != MM_OK) fail_msg("%s: %s", *policies, mm_last_error());
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

/* relu reads u before the sum is accumulated into it: u as relu saw it is gone. */
static void what_was_made_of_a_map_changed_since_is_not_recomputed(void **state) {
    (void)state;
    mm_graph *g;
    expect_ok(mm_graph_create("changed", &g));
    mm_tensor in = map(g, "in", MM_INPUT), u = map(g, "u", MM_FEATURE_MAP), t = map(g, "t", MM_FEATURE_MAP),
              v = map(g, "v", MM_FEATURE_MAP), d = map(g, "d", MM_GRADIENT_MAP), e = map(g, "e", MM_GRADIENT_MAP);
    mm_layer data = layer(g, "data", MM_LAYER_DATA), conv = layer(g, "conv", MM_LAYER_CONV),
             relu = layer(g, "relu", MM_LAYER_RELU), sum = layer(g, "sum", MM_LAYER_ADD),
             last = layer(g, "last", MM_LAYER_CONV);
    STEP(g, data, MM_FORWARD, WRITE(in));
    STEP(g, conv, MM_FORWARD, READ(in), WRITE(u));
    STEP(g, relu, MM_FORWARD, READ(u), WRITE(t));
    STEP(g, sum, MM_FORWARD, READ(t), MODIFY(u));
    STEP(g, last, MM_FORWARD, READ(u), READ(t), WRITE(v));
    STEP(g, last, MM_BACKWARD, READ(v), READ(t), READ(u), WRITE(d));
    STEP(g, conv, MM_BACKWARD, READ(u), READ(d), WRITE(e));
    assert_planned(g,
                   (const char *const[]){"recompute:mode=speed,when=always", "recompute:mode=memory,when=always",
                                         "recompute:mode=cost,when=always", "recompute:mode=sqrt,when=always", NULL});
}

/* A backward step updates weights that another layer's forward step, due to run again after it, has read. */
static void what_was_made_with_weights_updated_since_is_not_recomputed(void **state) {
    (void)state;
    mm_graph *g;
    expect_ok(mm_graph_create("updated", &g));
    mm_tensor w = tensor(g, "w", MM_WEIGHT, MM_PERSISTENT), in = map(g, "in", MM_INPUT),
              u = map(g, "u", MM_FEATURE_MAP), t = map(g, "t", MM_FEATURE_MAP), v = map(g, "v", MM_FEATURE_MAP),
              d = map(g, "d", MM_GRADIENT_MAP), e = map(g, "e", MM_GRADIENT_MAP);
    mm_layer data = layer(g, "data", MM_LAYER_DATA), conv = layer(g, "conv", MM_LAYER_CONV),
             norm = layer(g, "norm", MM_LAYER_BATCH_NORM), last = layer(g, "last", MM_LAYER_CONV),
             shared = layer(g, "shared", MM_LAYER_BATCH_NORM);
    STEP(g, data, MM_FORWARD, WRITE(in));
    STEP(g, conv, MM_FORWARD, READ(in), WRITE(u));
    STEP(g, norm, MM_FORWARD, READ(u), READ(w), WRITE(t));
    STEP(g, last, MM_FORWARD, READ(t), WRITE(v));
    STEP(g, shared, MM_BACKWARD, READ(v), MODIFY(w), WRITE(d));
    STEP(g, last, MM_BACKWARD, READ(t), READ(d), READ(u), WRITE(e));
    assert_planned(g,
                   (const char *const[]){"recompute:mode=speed,when=always", "recompute:mode=memory,when=always",
                                         "recompute:mode=cost,when=always", "recompute:mode=sqrt,when=always", NULL});
}

/* The backward pass reads a map's elements, and under the name of its alias its signs. */
static void signs_read_through_an_alias_are_kept_beside_a_lossy_code(void **state) {
    (void)state;
    mm_graph *g;
    expect_ok(mm_graph_create("alias", &g));
    mm_tensor in = map(g, "in", MM_INPUT), u = map(g, "u", MM_FEATURE_MAP), a = map(g, "a", MM_FEATURE_MAP),
              v = map(g, "v", MM_FEATURE_MAP), d = map(g, "d", MM_GRADIENT_MAP), e = map(g, "e", MM_GRADIENT_MAP);
    mm_layer data = layer(g, "data", MM_LAYER_DATA), conv = layer(g, "conv", MM_LAYER_CONV),
             same = layer(g, "same", MM_LAYER_DROPOUT), last = layer(g, "last", MM_LAYER_CONV);
    STEP(g, data, MM_FORWARD, WRITE(in));
    STEP(g, conv, MM_FORWARD, READ(in), WRITE(u));
    STEP(g, same, MM_FORWARD, READ(u), WRITE(a));
    expect_ok(mm_graph_allow_alias(g, u, a));
    STEP(g, last, MM_FORWARD, READ(u), READ(a), WRITE(v));
    STEP(g, last, MM_BACKWARD, READ(v), READ(u), WRITE(d));
    STEP(g, same, MM_BACKWARD, SIGN(a), READ(d), WRITE(e));
    assert_planned(g, (const char *const[]){"freelunch:rate=8,eligible=all,when=always", NULL});
}

static const char *const SHARING[] = {"liveness", "swap-async:when=always", "recompute:when=always", NULL};

/* The equal output must not change with the input. */
static void an_output_does_not_share_the_storage_of_an_input_that_is_changed_later(void **state) {
    (void)state;
    mm_graph *g;
    expect_ok(mm_graph_create("root", &g));
    mm_tensor u = map(g, "u", MM_FEATURE_MAP), a = map(g, "a", MM_FEATURE_MAP), v = map(g, "v", MM_FEATURE_MAP);
    STEP(g, layer(g, "conv", MM_LAYER_CONV), MM_FORWARD, WRITE(u));
    STEP(g, layer(g, "same", MM_LAYER_DROPOUT), MM_FORWARD, READ(u), WRITE(a));
    expect_ok(mm_graph_allow_alias(g, u, a));
    STEP(g, layer(g, "change", MM_LAYER_ADD), MM_FORWARD, MODIFY(u));
    STEP(g, layer(g, "last", MM_LAYER_CONV), MM_FORWARD, READ(u), READ(a), WRITE(v));
    assert_planned(g, SHARING);
}

/* It may be written over the one, element by element, and reads the same storage under the other's name at will. */
static void an_output_is_not_put_over_what_its_step_also_reads_otherwise(void **state) {
    (void)state;
    mm_graph *g;
    expect_ok(mm_graph_create("twice", &g));
    mm_tensor u = map(g, "u", MM_FEATURE_MAP), a = map(g, "a", MM_FEATURE_MAP), v = map(g, "v", MM_FEATURE_MAP);
    STEP(g, layer(g, "conv", MM_LAYER_CONV), MM_FORWARD, WRITE(u));
    STEP(g, layer(g, "same", MM_LAYER_DROPOUT), MM_FORWARD, READ(u), WRITE(a));
    expect_ok(mm_graph_allow_alias(g, u, a));
    STEP(g, layer(g, "sum", MM_LAYER_ADD), MM_FORWARD, READ(u), READ(a), WRITE(v));
    expect_ok(mm_graph_allow_inplace(g, u, v));
    assert_planned(g, SHARING);
}

static void tensors_whose_sum_overflows_are_refused(void **state) {
    (void)state;
    mm_graph *g;
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
    expect_ok(mm_graph_add_step(g, layer(g, "l", MM_LAYER_OTHER), MM_FORWARD, uses, 4, 0));
    assert_int_equal(mm_graph_freeze(g), MM_ERR_INVALID);
    mm_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_made_of_a_map_changed_since_is_not_recomputed),
        cmocka_unit_test(what_was_made_with_weights_updated_since_is_not_recomputed),
        cmocka_unit_test(signs_read_through_an_alias_are_kept_beside_a_lossy_code),
        cmocka_unit_test(an_output_does_not_share_the_storage_of_an_input_that_is_changed_later),
        cmocka_unit_test(an_output_is_not_put_over_what_its_step_also_reads_otherwise),
        cmocka_unit_test(tensors_whose_sum_overflows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
