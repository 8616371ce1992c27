/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/core/random_graph.h"
#include "tests/core/small_graph.h"

/* The call fails with the status, and the message has the word. */
#define EXPECT(status, word, call)                                                                                     \
    do {                                                                                                               \
        mm_status got_ = (call);                                                                                       \
        if (got_ != (status)) fail_msg("%s: got %s", #call, mm_status_name(got_));                                     \
        if (!strstr(mm_last_error(), word)) fail_msg("no '%s' in: %s", word, mm_last_error());                         \
    } while (0)

static int setup(void **state) {
    assert_int_equal(mm_graph_create("g", (mm_graph **)state), MM_OK);
    return 0;
}

static int teardown(void **state) {
    mm_graph_destroy(*state);
    return 0;
}

static void freeze_finds_each_tensors_uses(void **state) {
    (void)state;
    small_graph g = small_graph_create();
    const mm_tensor_info *out = mm_graph_tensor(g.graph, g.out);
    assert_int_equal(out->bytes, SMALL_MAP_BYTES);
    assert_int_equal(out->dims[0], SMALL_MAP_BYTES / 4);
    assert_int_equal(out->dims[1], 1);
    assert_string_equal(mm_graph_layer(g.graph, out->producer)->name, "relu");
    assert_int_equal(out->first_use, RELU_F);
    assert_int_equal(out->last_use, RELU_B);
    assert_int_equal(out->last_forward, LOSS_F);
    assert_int_equal(out->first_backward, LOSS_B);
    assert_int_equal(out->writes, 1);
    const mm_tensor_info *images = mm_graph_tensor(g.graph, g.images);
    assert_int_equal(images->producer, -1);
    assert_int_equal(images->writes, 0);
    assert_int_equal(images->first_backward, CONV_B);
    const mm_tensor_info *d_map = mm_graph_tensor(g.graph, g.d_map);
    assert_int_equal(d_map->last_forward, -1);
    assert_int_equal(d_map->first_backward, CONV_B); /* the first that reads it */
    assert_int_equal(mm_graph_tensor(g.graph, g.weight)->writes, 1);
    mm_graph_destroy(g.graph);
}

static void layers_know_their_steps(void **state) {
    (void)state;
    small_graph g = small_graph_create();
    assert_int_equal(mm_graph_layers(g.graph), 3);
    assert_int_equal(mm_graph_steps(g.graph), SMALL_STEPS);
    const mm_step_info *step = mm_graph_step(g.graph, RELU_B);
    const mm_layer_info *relu = mm_graph_layer(g.graph, step->layer);
    assert_int_equal(relu->kind, MM_LAYER_RELU);
    assert_int_equal(relu->step[MM_FORWARD], RELU_F);
    assert_int_equal(relu->step[MM_BACKWARD], RELU_B);
    assert_int_equal(relu->step[MM_UPDATE], -1);
    assert_int_equal(step->n_pairs, 1);
    assert_int_equal(step->pairs[0].input, g.d_out);
    assert_int_equal(step->pairs[0].output, g.d_map);
    assert_false(step->pairs[0].alias);
    assert_int_equal(mm_graph_step(g.graph, CONV_B)->workspace_bytes, 1000);
    mm_graph_destroy(g.graph);
}

static void steps_have_names_for_messages(void **state) {
    (void)state;
    small_graph g = small_graph_create();
    char name[64], tiny[6];
    assert_string_equal(mm_graph_step_name(g.graph, CONV_B, name, sizeof name), "conv backward");
    assert_string_equal(mm_graph_step_name(g.graph, UPDATE, name, sizeof name), "conv update");
    assert_string_equal(mm_graph_step_name(g.graph, -1, name, sizeof name), "no step");
    assert_string_equal(mm_graph_step_name(g.graph, SMALL_STEPS, name, sizeof name), "no step");
    assert_string_equal(mm_graph_step_name(g.graph, CONV_B, tiny, sizeof tiny), "conv ");
    mm_graph_destroy(g.graph);
}

static void tensors_are_found_by_name_among_many(void **state) {
    mm_graph *graph = *state;
    char name[32];
    enum { MANY = 3000 };
    mm_tensor tensors[MANY], found;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "tensor%d", i);
        tensors[i] = small_tensor(graph, name, MM_STATE, MM_PERSISTENT, 4);
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "tensor%d", i);
        assert_int_equal(mm_graph_find_tensor(graph, name, &found), MM_OK);
        assert_int_equal(found, tensors[i]);
    }
    found = 77;
    EXPECT(MM_ERR_NOT_FOUND, "tensor3000", mm_graph_find_tensor(graph, "tensor3000", &found));
    assert_int_equal(found, 77);
}

static void names_are_copied(void **state) {
    mm_graph *graph = *state;
    char name[] = "first";
    mm_tensor tensor = small_tensor(graph, name, MM_STATE, MM_PERSISTENT, 4), found;
    strcpy(name, "other");
    assert_string_equal(mm_graph_tensor(graph, tensor)->name, "first");
    assert_int_equal(mm_graph_find_tensor(graph, "first", &found), MM_OK);
}

static void bad_tensors_are_refused(void **state) {
    mm_graph *graph = *state;
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const mm_tensor_desc good = {
        .name = "t", .kind = MM_FEATURE_MAP, .ownership = MM_MANAGED, .dtype = MM_F32, .rank = 2, .dims = {3, 5}};
    mm_tensor_desc d = good;
    mm_tensor tensor = 99;
    d.name = NULL;
    EXPECT(MM_ERR_INVALID, "name", mm_graph_add_tensor(graph, &d, &tensor));
    d.name = "";
    EXPECT(MM_ERR_INVALID, "name", mm_graph_add_tensor(graph, &d, &tensor));
    d.name = long_name;
    EXPECT(MM_ERR_INVALID, "longer", mm_graph_add_tensor(graph, &d, &tensor));
    d = good, d.rank = 0;
    EXPECT(MM_ERR_INVALID, "rank 0", mm_graph_add_tensor(graph, &d, &tensor));
    d.rank = MM_RANK_MAX + 1;
    EXPECT(MM_ERR_INVALID, "rank 9 is not 1 to 8", mm_graph_add_tensor(graph, &d, &tensor));
    d = good, d.dims[1] = 0;
    EXPECT(MM_ERR_INVALID, "dimension 1 is 0", mm_graph_add_tensor(graph, &d, &tensor));
    d.dims[0] = d.dims[1] = INT64_C(1) << 31;
    EXPECT(MM_ERR_INVALID, "2^62", mm_graph_add_tensor(graph, &d, &tensor));
    d = good, d.kind = MM_TENSOR_KINDS;
    EXPECT(MM_ERR_INVALID, "kind", mm_graph_add_tensor(graph, &d, &tensor));
    assert_int_equal(tensor, 99);
    assert_int_equal(mm_graph_tensors(graph), 0);
    assert_int_equal(mm_graph_add_tensor(graph, &good, &tensor), MM_OK);
    EXPECT(MM_ERR_INVALID, "already", mm_graph_add_tensor(graph, &good, &tensor));
}

static void types_are_all_in_the_table(void **state) {
    mm_graph *graph = *state;
    static const size_t bytes[MM_DTYPES] = {[MM_F32] = 4, [MM_I32] = 4, [MM_U8] = 1, [MM_F16] = 2, [MM_BF16] = 2};
    for (mm_dtype type = 0; type < MM_DTYPES; type++) {
        mm_tensor_desc d = {.name = mm_dtype_name(type), .dtype = type, .rank = 6, .dims = {2, 3, 1, 5, 1, 7}};
        mm_tensor tensor;
        assert_int_equal(mm_dtype_bytes(type), bytes[type]);
        assert_int_equal(mm_graph_add_tensor(graph, &d, &tensor), MM_OK); /* each has a name of its own */
        assert_int_equal(mm_graph_tensor(graph, tensor)->bytes, 2 * 3 * 5 * 7 * (int64_t)bytes[type]);
    }
    mm_tensor_desc d = {.name = "t", .dtype = MM_DTYPES, .rank = 1, .dims = {1}};
    mm_tensor tensor;
    EXPECT(MM_ERR_INVALID, "type", mm_graph_add_tensor(graph, &d, &tensor));
    assert_int_equal(mm_dtype_bytes(MM_DTYPES), 0);
    assert_string_equal(mm_dtype_name(MM_DTYPES), "unknown");
}

static void gradients_and_states_name_their_weight(void **state) {
    mm_graph *graph = *state;
    mm_tensor w = small_tensor(graph, "w", MM_WEIGHT, MM_PERSISTENT, 40),
              other = small_tensor(graph, "v", MM_WEIGHT, MM_EXTERNAL, 40),
              dw = small_tensor(graph, "dw", MM_WEIGHT_GRADIENT, MM_PERSISTENT, 40),
              again = small_tensor(graph, "dw2", MM_WEIGHT_GRADIENT, MM_PERSISTENT, 40),
              less = small_tensor(graph, "less", MM_WEIGHT_GRADIENT, MM_PERSISTENT, 36),
              rows = small_tensor(graph, "rows", MM_OPTIMIZER, MM_PERSISTENT, 8), half;
    const mm_tensor_desc desc = {"half", MM_WEIGHT_GRADIENT, MM_MANAGED, MM_BF16, 2, {2, 5}};
    assert_int_equal(mm_graph_add_tensor(graph, &desc, &half), MM_OK);
    assert_int_equal(mm_graph_tensor(graph, dw)->weight, -1);
    assert_int_equal(mm_graph_tensor(graph, w)->gradient, -1);
    EXPECT(MM_ERR_INVALID, "no tensor 99", mm_graph_set_weight(graph, 99, w));
    EXPECT(MM_ERR_INVALID, "no tensor -1", mm_graph_set_weight(graph, dw, -1));
    EXPECT(MM_ERR_INVALID, "tensor w: is of the kind weight, not a weight's gradient",
           mm_graph_set_weight(graph, w, w));
    EXPECT(MM_ERR_INVALID, "tensor rows: is of the kind optimizer state, not a weight",
           mm_graph_set_weight(graph, dw, rows));
    EXPECT(MM_ERR_INVALID, "less: has 9 elements, its weight w has 10", mm_graph_set_weight(graph, less, w));
    assert_int_equal(mm_graph_tensor(graph, less)->weight, -1);
    assert_int_equal(mm_graph_set_weight(graph, dw, w), MM_OK);
    assert_int_equal(mm_graph_set_weight(graph, rows, w), MM_OK);
    assert_int_equal(mm_graph_set_weight(graph, half, other), MM_OK); /* of another type, as many elements */
    EXPECT(MM_ERR_INVALID, "weight w: has a gradient already, dw", mm_graph_set_weight(graph, again, w));
    EXPECT(MM_ERR_INVALID, "dw: belongs to w already", mm_graph_set_weight(graph, dw, other));
    assert_int_equal(mm_graph_tensor(graph, dw)->weight, w);
    assert_int_equal(mm_graph_tensor(graph, rows)->weight, w);
    assert_int_equal(mm_graph_tensor(graph, w)->gradient, dw);
    assert_int_equal(mm_graph_tensor(graph, other)->gradient, half);
}

static void values_are_persistent_and_only_read(void **state) {
    (void)state;
    static const struct {
        mm_ownership ownership;
        int64_t bytes;
        mm_access access;
        const char *word; /* NULL: all is right */
    } cases[] = {
        {MM_PERSISTENT, MM_VALUES_OWN, MM_READ, NULL},
        {MM_PERSISTENT, MM_VALUES_MOST, MM_READ, NULL},
        {MM_PERSISTENT, MM_VALUES_OWN - 4, MM_READ, "must be persistent and have 8 to 4096 bytes"},
        {MM_PERSISTENT, MM_VALUES_MOST + 4, MM_READ, "must be persistent and have 8 to 4096 bytes"},
        {MM_EXTERNAL, MM_VALUES_OWN, MM_READ, "must be persistent and have 8 to 4096 bytes"},
        {MM_PERSISTENT, MM_VALUES_OWN, MM_MODIFY, "a step writes mm.values"},
        {MM_PERSISTENT, MM_VALUES_OWN, MM_WRITE, "a step writes mm.values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_graph *graph;
        assert_int_equal(mm_graph_create("g", &graph), MM_OK);
        mm_tensor values = small_tensor(graph, MM_VALUES, MM_STATE, cases[i].ownership, cases[i].bytes);
        const mm_use use = {values, cases[i].access, MM_FORM_VALUE};
        small_step(graph, small_layer(graph, "l", MM_LAYER_OTHER), MM_FORWARD, &use, 1, 0);
        if (cases[i].word)
            EXPECT(MM_ERR_INVALID, cases[i].word, mm_graph_freeze(graph));
        else
            assert_int_equal(mm_graph_freeze(graph), MM_OK);
        mm_graph_destroy(graph);
    }
}

static void properties_replace_those_of_the_kind(void **state) {
    mm_graph *graph = *state;
    mm_layer conv = small_layer(graph, "c", MM_LAYER_CONV), other = small_layer(graph, "o", MM_LAYER_OTHER);
    const mm_layer_properties cheap = {MM_LAYER_CHEAP, true}, unknown = {MM_LAYER_EXPENSIVE + 1, true};
    assert_int_equal(mm_graph_layer(graph, conv)->properties.cost, MM_LAYER_EXPENSIVE);
    assert_true(mm_graph_layer(graph, conv)->properties.repeatable);
    assert_false(mm_graph_layer(graph, other)->properties.repeatable);
    assert_false(mm_layer_kind_properties(MM_LAYER_DROPOUT).repeatable);
    assert_int_equal(mm_graph_set_properties(graph, other, &cheap), MM_OK);
    assert_true(mm_graph_layer(graph, other)->properties.repeatable);
    EXPECT(MM_ERR_INVALID, "layers 0 to 1", mm_graph_set_properties(graph, 2, &cheap));
    EXPECT(MM_ERR_INVALID, "a part of layer 2: the graph has layers 0 to 1", mm_graph_add_part(graph, 2, "part"));
    EXPECT(MM_ERR_INVALID, "needs a name", mm_graph_add_part(graph, conv, ""));
    EXPECT(MM_ERR_INVALID, "cost class", mm_graph_set_properties(graph, conv, &unknown));
    EXPECT(MM_ERR_INVALID, "properties is NULL", mm_graph_set_properties(graph, conv, NULL));
}

static void largest_tensor_is_of_2_to_the_62_bytes(void **state) {
    mm_graph *graph = *state;
    mm_tensor_desc d = {.name = "t", .kind = MM_STATE, .ownership = MM_PERSISTENT, .dtype = MM_F32, .rank = 2};
    d.dims[0] = INT64_C(1) << 30, d.dims[1] = INT64_C(1) << 30;
    mm_tensor tensor;
    assert_int_equal(mm_graph_add_tensor(graph, &d, &tensor), MM_OK);
    assert_int_equal(mm_graph_tensor(graph, tensor)->bytes, INT64_C(1) << 62);
}

static void bad_steps_are_refused(void **state) {
    mm_graph *graph = *state;
    mm_tensor t = small_tensor(graph, "t", MM_STATE, MM_PERSISTENT, 4);
    mm_layer layer = small_layer(graph, "l", MM_LAYER_OTHER);
    mm_use twice[] = {{t, MM_READ, MM_FORM_VALUE}, {t, MM_WRITE, MM_FORM_VALUE}};
    EXPECT(MM_ERR_INVALID, "named twice", mm_graph_add_step(graph, layer, MM_FORWARD, twice, 2, 0));
    mm_use unknown = {t + 1, MM_READ, MM_FORM_VALUE};
    EXPECT(MM_ERR_INVALID, "names no tensor", mm_graph_add_step(graph, layer, MM_FORWARD, &unknown, 1, 0));
    mm_use sign_written = {t, MM_WRITE, MM_FORM_SIGN};
    EXPECT(MM_ERR_INVALID, "MM_FORM_SIGN", mm_graph_add_step(graph, layer, MM_FORWARD, &sign_written, 1, 0));
    mm_use access = {t, (mm_access)7, MM_FORM_VALUE};
    EXPECT(MM_ERR_INVALID, "access", mm_graph_add_step(graph, layer, MM_FORWARD, &access, 1, 0));
    EXPECT(MM_ERR_INVALID, "no layer", mm_graph_add_step(graph, layer + 1, MM_FORWARD, twice, 1, 0));
    EXPECT(MM_ERR_INVALID, "no phase 3", mm_graph_add_step(graph, layer, (mm_phase)3, twice, 1, 0));
    assert_int_equal(mm_graph_steps(graph), 0);
    small_step(graph, layer, MM_FORWARD, twice, 1, 0);
    EXPECT(MM_ERR_INVALID, "l forward already", mm_graph_add_step(graph, layer, MM_FORWARD, twice, 1, 0));
}

static void bad_pairs_are_refused(void **state) {
    mm_graph *graph = *state;
    mm_tensor a = small_tensor(graph, "a", MM_FEATURE_MAP, MM_MANAGED, 8);
    mm_tensor b = small_tensor(graph, "b", MM_FEATURE_MAP, MM_MANAGED, 8);
    mm_tensor large = small_tensor(graph, "large", MM_FEATURE_MAP, MM_MANAGED, 16);
    mm_tensor fixed = small_tensor(graph, "fixed", MM_STATE, MM_PERSISTENT, 8);
    EXPECT(MM_ERR_ORDER, "before any step", mm_graph_allow_inplace(graph, a, b));
    mm_use uses[] = {{a, MM_READ, MM_FORM_VALUE},
                     {b, MM_WRITE, MM_FORM_VALUE},
                     {large, MM_WRITE, MM_FORM_VALUE},
                     {fixed, MM_WRITE, MM_FORM_VALUE}};
    small_step(graph, small_layer(graph, "l", MM_LAYER_OTHER), MM_FORWARD, uses, 4, 0);
    EXPECT(MM_ERR_INVALID, "reads and one that it writes", mm_graph_allow_inplace(graph, b, a));
    EXPECT(MM_ERR_INVALID, "reads and one that it writes", mm_graph_allow_alias(graph, b, large));
    EXPECT(MM_ERR_INVALID, "differ in size", mm_graph_allow_inplace(graph, a, large));
    EXPECT(MM_ERR_INVALID, "managed", mm_graph_allow_inplace(graph, a, fixed));
    assert_int_equal(mm_graph_step(graph, 0)->n_pairs, 0);
    assert_int_equal(mm_graph_allow_alias(graph, a, b), MM_OK);
    assert_true(mm_graph_step(graph, 0)->pairs[0].alias);
}

static void freeze_refuses_a_graph_without_steps(void **state) {
    EXPECT(MM_ERR_INVALID, "no step", mm_graph_freeze(*state));
}

static void freeze_refuses_a_read_before_the_first_write(void **state) {
    mm_graph *graph = *state;
    mm_tensor t = small_tensor(graph, "early", MM_FEATURE_MAP, MM_MANAGED, 4);
    mm_use read = {t, MM_READ, MM_FORM_VALUE}, write = {t, MM_WRITE, MM_FORM_VALUE};
    small_step(graph, small_layer(graph, "reader", MM_LAYER_OTHER), MM_FORWARD, &read, 1, 0);
    small_step(graph, small_layer(graph, "writer", MM_LAYER_OTHER), MM_FORWARD, &write, 1, 0);
    EXPECT(MM_ERR_INVALID, "reader forward reads early", mm_graph_freeze(graph));
    assert_false(mm_graph_frozen(graph));
}

static void freeze_refuses_a_modify_before_the_first_write(void **state) {
    mm_graph *graph = *state;
    mm_use modify = {small_tensor(graph, "t", MM_FEATURE_MAP, MM_MANAGED, 4), MM_MODIFY, MM_FORM_VALUE};
    small_step(graph, small_layer(graph, "l", MM_LAYER_OTHER), MM_FORWARD, &modify, 1, 0);
    EXPECT(MM_ERR_INVALID, "before anything wrote it", mm_graph_freeze(graph));
}

static void freeze_refuses_a_tensor_that_no_step_uses(void **state) {
    mm_graph *graph = *state;
    mm_use use = {small_tensor(graph, "used", MM_STATE, MM_PERSISTENT, 4), MM_READ, MM_FORM_VALUE};
    small_tensor(graph, "idle", MM_STATE, MM_PERSISTENT, 4);
    small_step(graph, small_layer(graph, "l", MM_LAYER_OTHER), MM_FORWARD, &use, 1, 0);
    EXPECT(MM_ERR_INVALID, "idle", mm_graph_freeze(graph));
    mm_use late = {1, MM_READ, MM_FORM_VALUE};
    small_step(graph, small_layer(graph, "late", MM_LAYER_OTHER), MM_FORWARD, &late, 1, 0);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
}

/* A plan places each workspace by itself, so that their sum, too, must fit 64 bits. */
static void freeze_refuses_workspaces_above_2_to_the_60_bytes(void **state) {
    mm_graph *graph = *state;
    mm_tensor map = small_tensor(graph, "map", MM_FEATURE_MAP, MM_MANAGED, 1 << 20);
    mm_layer first = small_layer(graph, "first", MM_LAYER_CONV), second = small_layer(graph, "second", MM_LAYER_CONV);
    small_step(graph, first, MM_FORWARD, &(mm_use){map, MM_WRITE, MM_FORM_VALUE}, 1, (size_t)1 << 59);
    small_step(graph, second, MM_FORWARD, &(mm_use){map, MM_READ, MM_FORM_VALUE}, 1, (size_t)1 << 58);
    mm_code_use code = {.tensor = map, .access = MM_READ, .codec = "zfp", .passes = 1};
    code.workspace_bytes = (size_t)1 << 58;
    assert_int_equal(mm_graph_allow_code(graph, &code), MM_OK);
    code.codec = "raw";
    code.workspace_bytes = 0;
    code.workspace_strips = 1; /* of the tensor's size at most */
    assert_int_equal(mm_graph_allow_code(graph, &code), MM_OK);
    EXPECT(MM_ERR_INVALID, "workspaces are above 2^60 bytes together", mm_graph_freeze(graph));
}

static void frozen_graph_takes_nothing_more(void **state) {
    (void)state;
    small_graph g = small_graph_create();
    mm_tensor_desc d = {
        .name = "more", .kind = MM_STATE, .ownership = MM_PERSISTENT, .dtype = MM_F32, .rank = 1, .dims = {1}};
    mm_tensor tensor;
    mm_layer layer;
    EXPECT(MM_ERR_ORDER, "frozen", mm_graph_add_tensor(g.graph, &d, &tensor));
    EXPECT(MM_ERR_ORDER, "frozen", mm_graph_add_layer(g.graph, "more", MM_LAYER_OTHER, &layer));
    EXPECT(MM_ERR_ORDER, "frozen", mm_graph_add_step(g.graph, 0, MM_UPDATE, NULL, 0, 0));
    EXPECT(MM_ERR_ORDER, "frozen", mm_graph_allow_inplace(g.graph, g.map, g.out));
    EXPECT(MM_ERR_ORDER, "frozen", mm_graph_freeze(g.graph));
    mm_graph_destroy(g.graph);
}

static void bad_codes_are_refused(void **state) {
    (void)state;
    mm_graph *graph;
    assert_int_equal(mm_graph_create("codes", &graph), MM_OK);
    const mm_tensor weight = small_tensor(graph, "w", MM_WEIGHT, MM_PERSISTENT, 64);
    const mm_tensor x = small_tensor(graph, "x", MM_FEATURE_MAP, MM_MANAGED, 64);
    const mm_tensor y = small_tensor(graph, "y", MM_FEATURE_MAP, MM_MANAGED, 64);
    const mm_layer layer = small_layer(graph, "layer", MM_LAYER_BATCH_NORM);
    mm_code_use code = {.tensor = x, .access = MM_READ, .codec = "zfp", .passes = 1};
    EXPECT(MM_ERR_ORDER, "before any step", mm_graph_allow_code(graph, &code));
    const mm_use uses[] = {{weight, MM_READ, MM_FORM_VALUE}, {x, MM_READ, MM_FORM_VALUE}, {y, MM_WRITE, MM_FORM_VALUE}};
    small_step(graph, layer, MM_FORWARD, uses, 3, 0);
    assert_int_equal(mm_graph_allow_code(graph, &code), MM_OK);
    EXPECT(MM_ERR_INVALID, "declared twice", mm_graph_allow_code(graph, &code));
    code.access = MM_WRITE;
    EXPECT(MM_ERR_INVALID, "passes are out of range", mm_graph_allow_code(graph, &code));
    code.passes = 0;
    assert_int_equal(mm_graph_allow_code(graph, &code), MM_OK);
    code.codec = "zfp:rate=4";
    EXPECT(MM_ERR_INVALID, "without options", mm_graph_allow_code(graph, &code));
    code = (mm_code_use){.tensor = weight, .access = MM_WRITE, .codec = "zfp"};
    EXPECT(MM_ERR_INVALID, "managed f32", mm_graph_allow_code(graph, &code));
    code = (mm_code_use){.tensor = y, .access = MM_READ, .codec = "zfp", .passes = 1};
    EXPECT(MM_ERR_INVALID, "managed f32", mm_graph_allow_code(graph, &code));
    mm_graph_destroy(graph);
}

static void steps_on_the_host_are_updates_of_persistent_tensors_alone(void **state) {
    mm_graph *graph = *state;
    const mm_ownership ownerships[] = {MM_PERSISTENT, MM_PERSISTENT, MM_MANAGED, MM_PERSISTENT};
    static const char *const names[] = {"weight", "state", "managed", "shared"};
    mm_tensor t[4];
    mm_layer data, layer;
    EXPECT(MM_ERR_ORDER, "before any step", mm_graph_run_on_host(graph));
    for (int i = 0; i < 4; i++)
        EXPECT(MM_OK, "",
               mm_graph_add_tensor(graph,
                                   &(mm_tensor_desc){.name = names[i],
                                                     .kind = ownerships[i] == MM_MANAGED ? MM_FEATURE_MAP : MM_STATE,
                                                     .ownership = ownerships[i],
                                                     .rank = 1,
                                                     .dims = {64}},
                                   &t[i]));
    const mm_use uses[4] = {{t[0], MM_MODIFY, MM_FORM_VALUE},
                            {t[1], MM_MODIFY, MM_FORM_VALUE},
                            {t[2], MM_READ, MM_FORM_VALUE},
                            {t[3], MM_READ, MM_FORM_VALUE}};
    EXPECT(MM_OK, "", mm_graph_add_layer(graph, "data", MM_LAYER_DATA, &data));
    EXPECT(MM_OK, "",
           mm_graph_add_step(graph, data, MM_FORWARD,
                             (mm_use[]){{t[2], MM_WRITE, MM_FORM_VALUE}, {t[3], MM_WRITE, MM_FORM_VALUE}}, 2, 0));
    EXPECT(MM_ERR_INVALID, "only an update", mm_graph_run_on_host(graph));
    EXPECT(MM_OK, "", mm_graph_allreduce(graph, t[3], MM_ALLREDUCE_AT_END, MM_REDUCE_SUM));
    const struct {
        int first, n, workspace;
        const char *why;
    } cases[] = {{0, 1, 8, "workspace"},
                 {1, 2, 0, "tensor managed is not persistent"},
                 {3, 1, 0, "tensor shared is all-reduced"},
                 {0, 2, 0, ""}};
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "u%d", i);
        EXPECT(MM_OK, "", mm_graph_add_layer(graph, name, MM_LAYER_UPDATE, &layer));
        EXPECT(MM_OK, "",
               mm_graph_add_step(graph, layer, MM_UPDATE, uses + cases[i].first, (size_t)cases[i].n,
                                 (size_t)cases[i].workspace));
        EXPECT(*cases[i].why ? MM_ERR_INVALID : MM_OK, cases[i].why, mm_graph_run_on_host(graph));
    }
    EXPECT(MM_OK, "", mm_graph_freeze(graph));
    assert_true(mm_graph_uses_host(graph));
    for (int i = 0; i < 4; i++) assert_int_equal(mm_graph_tensor(graph, t[i])->on_host, i < 2);
    for (int s = 0; s < mm_graph_steps(graph); s++) assert_int_equal(mm_graph_step(graph, s)->on_host, s == 4);
}

/* No copy can come before the first step. */
static void freeze_refuses_a_first_step_that_uses_what_the_host_does(void **state) {
    mm_graph *graph = *state;
    mm_tensor t;
    mm_layer layer;
    const mm_tensor_desc desc = {.name = "w", .kind = MM_WEIGHT, .ownership = MM_PERSISTENT, .rank = 1, .dims = {4}};
    EXPECT(MM_OK, "", mm_graph_add_tensor(graph, &desc, &t));
    EXPECT(MM_OK, "", mm_graph_add_layer(graph, "fc", MM_LAYER_LINEAR, &layer));
    EXPECT(MM_OK, "", mm_graph_add_step(graph, layer, MM_FORWARD, &(mm_use){t, MM_READ, MM_FORM_VALUE}, 1, 0));
    EXPECT(MM_OK, "", mm_graph_add_step(graph, layer, MM_UPDATE, &(mm_use){t, MM_MODIFY, MM_FORM_VALUE}, 1, 0));
    EXPECT(MM_OK, "", mm_graph_run_on_host(graph));
    EXPECT(MM_ERR_INVALID, "the first step cannot use it", mm_graph_freeze(graph));
}

static void destroy_takes_null(void **state) {
    (void)state;
    mm_graph_destroy(NULL);
}

static void random_graphs_are_the_same_for_the_same_seed(void **state) {
    (void)state;
    uint64_t first, second, other;
    for (uint64_t seed = 0; seed < 30; seed++) {
        random_graph_options options = {.seed = seed, .layers = 20, .max_channels = 4};
        mm_graph *a, *b;
        assert_int_equal(random_graph_create(&options, &a), MM_OK);
        assert_int_equal(random_graph_create(&options, &b), MM_OK);
        assert_int_equal(mm_graph_steps(a), mm_graph_steps(b));
        first = random_graph_reference(a, 1, 2);
        second = random_graph_reference(b, 1, 2);
        other = random_graph_reference(a, 2, 2);
        assert_true(first == second && first != other);
        mm_graph_destroy(a);
        mm_graph_destroy(b);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freeze_finds_each_tensors_uses),
        cmocka_unit_test(layers_know_their_steps),
        cmocka_unit_test(steps_have_names_for_messages),
        CASE(tensors_are_found_by_name_among_many),
        CASE(names_are_copied),
        CASE(bad_tensors_are_refused),
        CASE(types_are_all_in_the_table),
        CASE(gradients_and_states_name_their_weight),
        CASE(values_are_persistent_and_only_read),
        CASE(properties_replace_those_of_the_kind),
        CASE(largest_tensor_is_of_2_to_the_62_bytes),
        CASE(bad_steps_are_refused),
        CASE(bad_pairs_are_refused),
        CASE(freeze_refuses_a_graph_without_steps),
        CASE(freeze_refuses_a_read_before_the_first_write),
        CASE(freeze_refuses_a_modify_before_the_first_write),
        CASE(freeze_refuses_a_tensor_that_no_step_uses),
        CASE(freeze_refuses_workspaces_above_2_to_the_60_bytes),
        cmocka_unit_test(frozen_graph_takes_nothing_more),
        cmocka_unit_test(bad_codes_are_refused),
        CASE(steps_on_the_host_are_updates_of_persistent_tensors_alone),
        CASE(freeze_refuses_a_first_step_that_uses_what_the_host_does),
        cmocka_unit_test(destroy_takes_null),
        cmocka_unit_test(random_graphs_are_the_same_for_the_same_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
