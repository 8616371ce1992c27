/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "mm/core/account/account.h"
#include "mm/core/account/account_bound.h"
#include "mm/core/account/account_stash.h"
#include "mm/core/account/plan_memory.h"
#include "mm/core/plan/plan_codes.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

enum { SEEDS = 24 };

typedef struct world {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_account account;
} world;

static int64_t persistent_bytes(const mm_graph *graph) {
    int64_t bytes = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_PERSISTENT) bytes += mm_align(mm_graph_tensor(graph, t)->bytes);
    return bytes;
}

static world world_create(uint64_t seed) {
    world w;
    random_graph_options graph_options = {.seed = seed, .layers = 3 + (int)(seed % 12), .max_channels = 6};
    assert_int_equal(random_graph_create(&graph_options, &w.graph), MM_OK);
    assert_int_equal(random_facts_create(w.graph, seed, &w.facts), MM_OK);
    mm_limits limits = {.base_bytes = persistent_bytes(w.graph)};
    random_plan_options plan_options = {.seed = seed, .lossy = seed % 2 == 0, .dynamic = seed % 3 == 0};
    assert_int_equal(random_plan_create(w.graph, w.facts, &limits, &plan_options, &w.plan), MM_OK);
    assert_int_equal(mm_account_init(w.plan, &w.account), MM_OK);
    return w;
}

static void world_destroy(world *w) {
    mm_account_fini(&w->account);
    mm_plan_destroy(w->plan);
    mm_graph_facts_destroy(w->facts);
    mm_graph_destroy(w->graph);
}

static int64_t sum(const int64_t bytes[MM_ACCOUNT_KINDS]) {
    int64_t all = 0;
    for (int k = 0; k < MM_ACCOUNT_KINDS; k++) {
        assert_true(bytes[k] >= 0);
        all += bytes[k];
    }
    return all;
}

static int64_t live_at(const mm_plan *plan, int node) {
    int64_t live[MM_CATEGORIES], all = 0;
    mm_plan_live_at(plan, node, live);
    for (int c = 0; c < MM_CATEGORIES; c++) all += live[c];
    return all;
}

/* ---------------------------------------------------------------- as JSON */

static int64_t of_segment(const json_t *segment, const char *key) {
    return json_integer_value(json_object_get(segment, key));
}

/* The bytes alive at the node, added up from the JSON as its reader would: what lasts, and the segments alive then. */
static int64_t described_live_at(const json_t *memory, int node) {
    int64_t live = 0;
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(json_object_get(memory, "lasting"), key, value) live += json_integer_value(value);
    json_array_foreach(json_object_get(memory, "segments"), i, value) {
        const char *action = json_string_value(json_object_get(value, "action"));
        if (json_object_get(value, "pinned") || strcmp(action, "lasting") == 0) continue;
        if (of_segment(value, "first") <= node && node <= of_segment(value, "live_last"))
            live += of_segment(value, "bytes");
    }
    return live;
}

static bool names(const json_t *actions, const char *word) {
    for (size_t i = 0; i < json_array_size(actions); i++)
        if (strcmp(json_string_value(json_array_get(actions, i)), word) == 0) return true;
    return false;
}

/* Whether an operation of that kind moves the storage of that name. */
static bool has_node(const mm_plan *plan, mm_node_kind kind, const char *root) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind != kind) continue;
        if (strcmp(mm_graph_tensor(plan->graph, mm_plan_root(plan, node->tensor))->name, root) == 0) return true;
    }
    return false;
}

/* Whether the storage of that name is encoded, by a codec or by a step itself. */
static bool is_encoded(const mm_plan *plan, const char *root) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        const int uses = mm_node_runs_step(node) ? mm_graph_step(plan->graph, node->step)->n_uses : 0;
        for (int u = 0; u < uses; u++) {
            const int code = mm_node_code(plan, node, u);
            if (code >= 0 && strcmp(mm_graph_tensor(plan->graph, plan->segments[code].tensor)->name, root) == 0)
                return true;
        }
    }
    return has_node(plan, MM_NODE_ENCODE, root);
}

TEST_CASE(segments_as_json_add_up_to_the_live_bytes_of_every_node) {
    int swapped = 0, coded = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        json_t *memory, *map;
        size_t m;
        assert_int_equal(mm_plan_memory(w.plan, w.facts, &memory), MM_OK);
        assert_int_equal(json_array_size(json_object_get(memory, "nodes")), w.plan->n_nodes);
        for (int i = 0; i < w.plan->n_nodes; i++) assert_int_equal(described_live_at(memory, i), live_at(w.plan, i));
        json_array_foreach(json_object_get(memory, "maps"), m, map) {
            const char *name = json_string_value(json_object_get(map, "name"));
            const json_t *actions = json_object_get(map, "actions");
            if (names(actions, "swap")) {
                assert_true(has_node(w.plan, MM_NODE_OUT, name));
                swapped++;
            }
            if (names(actions, "mask") || names(actions, "compress") || names(actions, "compress-swap")) {
                assert_true(is_encoded(w.plan, name));
                assert_non_null(json_object_get(map, "codec"));
                coded++;
            }
        }
        json_decref(memory);
        world_destroy(&w);
    }
    assert_true(swapped > 0 && coded > 0);
}

/* What the JSON says of a map is what `mm plan --explain` says of it. */
TEST_CASE(maps_as_json_have_the_actions_that_were_decided) {
    int several = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        mm_stash_account stash;
        mm_decision *decisions;
        json_t *memory;
        assert_int_equal(mm_plan_memory(w.plan, w.facts, &memory), MM_OK);
        assert_int_equal(mm_stash_account_init(w.plan, w.facts, &stash), MM_OK);
        assert_int_equal(mm_account_decide(w.plan, w.facts, &stash, &decisions), MM_OK);
        const json_t *maps = json_object_get(memory, "maps");
        assert_int_equal(json_array_size(maps), stash.n_maps);
        for (int i = 0; i < stash.n_maps; i++) {
            const json_t *map = json_array_get(maps, (size_t)i), *actions = json_object_get(map, "actions");
            const char *codec = json_string_value(json_object_get(map, "codec"));
            const int of = decisions[i].codec >= 0 ? decisions[i].codec : decisions[i].sign_codec;
            int n = 0;
            for (mm_remedy_kind k = MM_REMEDY_KEEP; k < MM_REMEDY_KINDS; k++) {
                if (!(decisions[i].kinds & 1u << k)) continue;
                assert_true(names(actions, mm_remedy_kind_name(k)));
                n++;
            }
            assert_int_equal(json_array_size(actions), n);
            assert_string_equal(codec ? codec : "none", of < 0 ? "none" : w.facts->codecs[of].spec);
            several += n > 1;
        }
        free(decisions);
        mm_stash_account_fini(&stash);
        json_decref(memory);
        world_destroy(&w);
    }
    assert_true(several > 0);
}

/* ---------------------------------------------------------------- accounts */

TEST_CASE(kinds_at_the_peak_add_up_to_what_the_plan_needs) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        assert_int_equal(sum(w.account.at_peak), w.plan->live_peak_bytes);
        assert_true(w.account.idle_bytes >= 0);
        assert_int_equal(sum(w.account.at_peak) + w.account.idle_bytes, w.plan->peak_bytes);
        int64_t segments = w.plan->base_bytes + w.plan->external_bytes, before = INT64_MAX;
        for (int i = 0; i < w.account.n_segments; i++) {
            const mm_segment *s = &w.plan->segments[w.account.segments[i]];
            assert_true(s->bytes <= before);
            before = s->bytes;
            segments += s->bytes;
        }
        assert_int_equal(segments, w.plan->live_peak_bytes);
        int node = w.account.peak_node;
        while (node > 0 && !mm_node_runs_step(&w.plan->nodes[node])) node--;
        assert_int_equal(w.plan->nodes[node].step, w.plan->peak_step);
        world_destroy(&w);
    }
}

TEST_CASE(every_step_has_the_most_that_is_alive_until_the_next) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        int64_t highest = 0;
        assert_int_equal(w.account.n_steps, mm_graph_steps(w.graph));
        for (int i = 0, node = 0; i < w.account.n_steps; i++) {
            const mm_account_step *step = &w.account.steps[i];
            int64_t live[MM_CATEGORIES], most = 0;
            assert_int_equal(w.plan->nodes[node].step, step->step);
            do {
                if (live_at(w.plan, node) > most) most = live_at(w.plan, node);
            } while (++node < w.plan->n_nodes && w.plan->nodes[node].kind != MM_NODE_STEP);
            assert_int_equal(sum(step->bytes), most);
            assert_int_equal(step->live_bytes, most);
            mm_plan_live_at(w.plan, step->node, live);
            assert_int_equal(step->bytes[MM_ACCOUNT_CODE], live[MM_CAT_CODE]);
            assert_int_equal(step->bytes[MM_ACCOUNT_WORKSPACE], live[MM_CAT_WORKSPACE]);
            assert_int_equal(step->bytes[MM_ACCOUNT_GRADIENT_MAP], live[MM_CAT_GRADIENT_MAP]);
            if (most > highest) highest = most;
        }
        assert_int_equal(highest, w.plan->live_peak_bytes);
        world_destroy(&w);
    }
}

TEST_CASE(every_segment_has_a_name) {
    int again = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        for (int i = 0; i < w.plan->n_segments; i++) {
            char name[320], step[256];
            const mm_segment *s = &w.plan->segments[i];
            const mm_node *user = &w.plan->nodes[s->first_node];
            mm_account_segment_name(w.plan, i, name, sizeof name);
            if (s->tensor >= 0)
                assert_string_equal(name, mm_graph_tensor(w.graph, s->tensor)->name);
            else if (mm_node_runs_step(user))
                assert_non_null(strstr(name, mm_graph_step_name(w.graph, user->step, step, sizeof step)));
            else
                assert_non_null(strstr(name, mm_graph_tensor(w.graph, user->tensor)->name));
            again += s->tensor < 0 && user->kind == MM_NODE_RECOMPUTE;
        }
        world_destroy(&w);
    }
    assert_true(again > 0);
}

TEST_CASE(declared_tensors_are_all_counted_once) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        int64_t tensors = 0, counted = 0;
        for (int t = 0; t < mm_graph_tensors(w.graph); t++) tensors += mm_graph_tensor(w.graph, t)->bytes;
        for (int k = 0; k < MM_ACCOUNT_KINDS; k++)
            if (k != MM_ACCOUNT_REST && k != MM_ACCOUNT_CODE && k != MM_ACCOUNT_BUFFER && k != MM_ACCOUNT_WORKSPACE)
                counted += w.account.declared[k];
        assert_int_equal(counted, tensors);
        world_destroy(&w);
    }
}

/* ---------------------------------------------------------------- lower bound */

TEST_CASE(no_plan_needs_less_than_the_lower_bound) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        mm_lower_bound bound = mm_lower_bound_of(w.graph, w.facts);
        assert_true(bound.bytes <= w.plan->live_peak_bytes);
        assert_true(bound.offloaded_bytes <= bound.bytes);
        assert_true(bound.persistent_bytes <= w.plan->base_bytes + w.plan->external_bytes);
        assert_in_range(bound.step, 0, mm_graph_steps(w.graph) - 1);
        world_destroy(&w);
    }
}

TEST_CASE(lower_bound_is_what_the_largest_step_uses) {
    small_graph g = small_graph_create();
    int64_t persistent = SMALL_IMAGE_BYTES + 2 * SMALL_WEIGHT_BYTES + 4;
    mm_lower_bound bound = mm_lower_bound_of(g.graph, NULL);
    assert_int_equal(bound.persistent_bytes, persistent);
    assert_int_equal(bound.bytes, persistent + 2 * SMALL_MAP_BYTES);
    assert_int_equal(bound.step, LOSS_B);
    assert_int_equal(bound.offloaded_bytes, 2 * SMALL_MAP_BYTES);
    assert_int_equal(bound.offloaded_step, LOSS_B);
    mm_graph_destroy(g.graph);
}

/* The expected window, by brute force: the most bytes that `length` steps in a row use together. A managed tensor that
 * several of these steps use counts once; the largest of their workspaces and all other tensors are added. */
static int64_t window_of(const mm_graph *graph, int length) {
    int64_t most = 0, rest = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership != MM_MANAGED) rest += mm_graph_tensor(graph, t)->bytes;
    for (int from = 0; from + length <= mm_graph_steps(graph); from++) {
        int64_t bytes = 0, workspace = 0;
        for (int t = 0; t < mm_graph_tensors(graph); t++) {
            bool used = false;
            for (int s = from; s < from + length; s++)
                for (int u = 0; u < mm_graph_step(graph, s)->n_uses; u++)
                    used |= mm_graph_step(graph, s)->uses[u].tensor == t;
            if (used && mm_graph_tensor(graph, t)->ownership == MM_MANAGED) bytes += mm_graph_tensor(graph, t)->bytes;
        }
        for (int s = from; s < from + length; s++)
            if (mm_graph_step(graph, s)->workspace_bytes > workspace)
                workspace = mm_graph_step(graph, s)->workspace_bytes;
        if (bytes + workspace > most) most = bytes + workspace;
    }
    return rest + most;
}

TEST_CASE(a_window_is_what_steps_in_a_row_use_together) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world w = world_create(seed);
        const int n = mm_graph_steps(w.graph);
        const int permilles[] = {1, 150, 500, 1000};
        for (int i = 0; i < 4; i++) {
            int64_t bytes;
            assert_int_equal(mm_window_bytes(w.graph, NULL, permilles[i], &bytes), MM_OK);
            assert_int_equal(bytes, window_of(w.graph, (n * permilles[i] + 999) / 1000));
        }
        world_destroy(&w);
    }
}

TEST_CASE(a_window_has_the_workspace_of_the_fastest_variants) {
    small_graph g = small_graph_create();
    mm_graph_facts *facts;
    int64_t declared, bytes;
    assert_int_equal(mm_graph_facts_create(g.graph, 0, &facts), MM_OK);
    assert_int_equal(mm_window_bytes(g.graph, NULL, 1000, &declared), MM_OK);
    assert_int_equal(mm_window_bytes(g.graph, facts, 1000, &bytes), MM_OK);
    assert_int_equal(bytes, declared);
    int64_t workspace = 0;
    for (int s = 0; s < mm_graph_steps(g.graph); s++)
        if (mm_graph_step(g.graph, s)->workspace_bytes > workspace)
            workspace = mm_graph_step(g.graph, s)->workspace_bytes;
    facts->variants[facts->variant_first[CONV_B]].workspace_bytes = workspace + 4096;
    assert_int_equal(mm_window_bytes(g.graph, facts, 1000, &bytes), MM_OK);
    assert_int_equal(bytes, declared + 4096);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g.graph);
}

TEST_CASE(lower_bound_takes_the_smallest_workspace) {
    small_graph g = small_graph_create();
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(g.graph, 0, &facts), MM_OK);
    facts->variants[CONV_B].workspace_bytes = 100000;
    mm_lower_bound bound = mm_lower_bound_of(g.graph, facts);
    assert_int_equal(bound.step, CONV_B);
    assert_int_equal(bound.bytes, bound.persistent_bytes + SMALL_MAP_BYTES + 100000);
    assert_int_equal(bound.offloaded_bytes, SMALL_IMAGE_BYTES + SMALL_WEIGHT_BYTES + SMALL_MAP_BYTES + 100000);
    /* relu backward uses the signs of 1000 elements, and d_out, over which d_map lies. */
    facts->variants[RELU_B].workspace_bytes = 200000;
    bound = mm_lower_bound_of(g.graph, facts);
    assert_int_equal(bound.offloaded_bytes, 32 * 4 + SMALL_MAP_BYTES + 200000);
    facts->variants[UPDATE].workspace_bytes = 300000;
    bound = mm_lower_bound_of(g.graph, facts);
    assert_int_equal(bound.bytes, bound.persistent_bytes + 300000);
    assert_int_equal(bound.offloaded_step, RELU_B);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g.graph);
}

/* ---------------------------------------------------------------- stash */

TEST_CASE(stash_lists_what_the_backward_pass_reads_largest_first) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world w = world_create(seed);
        mm_stash_account stash;
        assert_int_equal(mm_stash_account_init(w.plan, w.facts, &stash), MM_OK);
        int64_t held = 0;
        for (int i = 0; i < stash.n_maps; i++) {
            const mm_stash_map *map = &stash.maps[i];
            assert_true(i == 0 || map->bytes <= stash.maps[i - 1].bytes);
            assert_true(map->n_readers > 0);
            for (int r = 0; r < map->n_readers; r++)
                assert_int_equal(mm_graph_step(w.graph, map->readers[r].step)->phase, MM_BACKWARD);
            assert_int_equal(map->remedies[0].kind, MM_REMEDY_KEEP);
            assert_int_equal(map->remedies[0].bytes_left, map->bytes);
            for (int r = 1; r < map->n_remedies; r++) assert_true(map->remedies[r].bytes_left < map->bytes);
            held += map->held_bytes;
        }
        int last_forward, first_backward;
        mm_plan_turning_point(w.plan, &last_forward, &first_backward);
        assert_true(held <= live_at(w.plan, last_forward));
        mm_stash_account_fini(&stash);
        world_destroy(&w);
    }
}

#define STEP(graph, layer, phase, ...)                                                                                 \
    small_step(graph, layer, phase, (const mm_use[]){__VA_ARGS__},                                                     \
               sizeof((const mm_use[]){__VA_ARGS__}) / sizeof(mm_use), 0)

/* conv -> bn -> relu -> last, with the forms that real layers need. `relu_value`: the backward step of `last` reads the
 * values of `last`'s input, as a convolution's does; else it reads nothing of that input, as a pool's does. */
typedef struct stash_graph {
    mm_graph *graph;
    mm_tensor conv, bn, relu, out;
    mm_plan *plan;
    mm_graph_facts *facts; /* codec 0: lossy, a code of a quarter of the bytes; codec 1: the exact mask */
} stash_graph;

static stash_graph stash_graph_create(bool relu_value) {
    stash_graph g;
    assert_int_equal(mm_graph_create("stash", &g.graph), MM_OK);
    mm_tensor image = small_tensor(g.graph, "image", MM_INPUT, MM_EXTERNAL, 4000);
    g.conv = small_tensor(g.graph, "conv.out", MM_FEATURE_MAP, MM_MANAGED, 4000);
    g.bn = small_tensor(g.graph, "bn.out", MM_FEATURE_MAP, MM_MANAGED, 4000);
    g.relu = small_tensor(g.graph, "relu.out", MM_FEATURE_MAP, MM_MANAGED, 4000);
    g.out = small_tensor(g.graph, "out", MM_SAVED, MM_MANAGED, 400);
    mm_tensor d_relu = small_tensor(g.graph, "d_relu", MM_GRADIENT_MAP, MM_MANAGED, 4000);
    mm_tensor d_bn = small_tensor(g.graph, "d_bn", MM_GRADIENT_MAP, MM_MANAGED, 4000);
    mm_tensor d_conv = small_tensor(g.graph, "d_conv", MM_GRADIENT_MAP, MM_MANAGED, 4000);
    mm_layer conv = small_layer(g.graph, "conv", MM_LAYER_CONV), bn = small_layer(g.graph, "bn", MM_LAYER_BATCH_NORM);
    mm_layer relu = small_layer(g.graph, "relu", MM_LAYER_RELU), last = small_layer(g.graph, "last", MM_LAYER_OTHER);
    STEP(g.graph, conv, MM_FORWARD, {image, MM_READ, MM_FORM_VALUE}, {g.conv, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, bn, MM_FORWARD, {g.conv, MM_READ, MM_FORM_VALUE}, {g.bn, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, relu, MM_FORWARD, {g.bn, MM_READ, MM_FORM_VALUE}, {g.relu, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, last, MM_FORWARD, {g.relu, MM_READ, MM_FORM_VALUE}, {g.out, MM_WRITE, MM_FORM_VALUE});
    if (relu_value)
        STEP(g.graph, last, MM_BACKWARD, {g.out, MM_READ, MM_FORM_VALUE}, {g.relu, MM_READ, MM_FORM_VALUE},
             {d_relu, MM_WRITE, MM_FORM_VALUE});
    else
        STEP(g.graph, last, MM_BACKWARD, {g.out, MM_READ, MM_FORM_VALUE}, {d_relu, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, relu, MM_BACKWARD, {g.relu, MM_READ, MM_FORM_SIGN}, {d_relu, MM_READ, MM_FORM_VALUE},
         {d_bn, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, bn, MM_BACKWARD, {g.conv, MM_READ, MM_FORM_VALUE}, {d_bn, MM_READ, MM_FORM_VALUE},
         {d_conv, MM_WRITE, MM_FORM_VALUE});
    STEP(g.graph, conv, MM_BACKWARD, {image, MM_READ, MM_FORM_VALUE}, {d_conv, MM_READ, MM_FORM_VALUE});
    assert_int_equal(mm_graph_freeze(g.graph), MM_OK);
    assert_int_equal(mm_graph_facts_create(g.graph, 2, &g.facts), MM_OK);
    g.facts->codecs[0] = (mm_codec_facts){.spec = "lossy", .fixed_size = true, .gives_value = true};
    g.facts->codecs[1] = (mm_codec_facts){.spec = "mask", .lossless = true, .fixed_size = true, .gives_sign = true};
    for (int t = 0; t < g.facts->n_tensors; t++) {
        g.facts->codes[t].code_bytes = 1000;
        g.facts->codes[g.facts->n_tensors + t].code_bytes = 128;
    }
    g.facts->codes[g.out].code_bytes = 100;
    for (int s = 0; s < g.facts->n_steps; s++) g.facts->variants[s].ns = 10 * (s + 1);
    mm_limits limits = {0};
    assert_int_equal(mm_plan_create(g.graph, &limits, &g.plan), MM_OK);
    return g;
}

static void stash_graph_destroy(stash_graph *g) {
    mm_plan_destroy(g->plan);
    mm_graph_facts_destroy(g->facts);
    mm_graph_destroy(g->graph);
}

/* Storage of its own for every managed tensor, from its first use to its last. */
static void plan_plainly(stash_graph *g) {
    int64_t offset = 0;
    int segment_of[16];
    for (int t = 0; t < mm_graph_tensors(g->graph); t++) segment_of[t] = -1;
    for (int s = 0; s < mm_graph_steps(g->graph); s++) {
        const mm_step_info *step = mm_graph_step(g->graph, s);
        int node = mm_plan_step(g->plan, s);
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            const mm_tensor_info *tensor = mm_graph_tensor(g->graph, t);
            if (tensor->ownership != MM_MANAGED) continue;
            mm_category category = tensor->kind == MM_GRADIENT_MAP ? MM_CAT_GRADIENT_MAP : MM_CAT_FEATURE_MAP;
            if (segment_of[t] < 0) {
                segment_of[t] = mm_plan_segment(g->plan, MM_CONTENT_RAW, category, t, tensor->bytes);
                g->plan->segments[segment_of[t]].offset = offset;
                offset += mm_align(tensor->bytes);
            }
            g->plan->bindings[g->plan->nodes[node].first_binding + u] = segment_of[t];
        }
    }
    assert_int_equal(mm_plan_finish(g->plan), MM_OK);
}

static const mm_stash_map *map_of(const mm_stash_account *stash, mm_tensor tensor) {
    for (int i = 0; i < stash->n_maps; i++)
        if (stash->maps[i].tensor == tensor) return &stash->maps[i];
    return NULL;
}

static const mm_remedy *remedy_of(const mm_stash_map *map, mm_remedy_kind kind) {
    for (int i = 0; i < map->n_remedies; i++)
        if (map->remedies[i].kind == kind) return &map->remedies[i];
    return NULL;
}

TEST_CASE(maps_that_wait_for_the_backward_pass_are_told_from_those_that_do_not) {
    enum { BN_F = 1, LAST_F = 3, RELU_B = 5 };
    stash_graph g = stash_graph_create(true);
    mm_account account;
    mm_stash_account stash;
    plan_plainly(&g);
    assert_int_equal(mm_account_init(g.plan, &account), MM_OK);
    assert_int_equal(account.declared[MM_ACCOUNT_STASH], 4000 + 4000 + 4000 + 400); /* image, conv, relu, out */
    assert_int_equal(account.declared[MM_ACCOUNT_FEATURE_MAP], 4000);
    assert_int_equal(account.declared[MM_ACCOUNT_GRADIENT_MAP], 3 * 4000);
    assert_int_equal(account.steps[BN_F].bytes[MM_ACCOUNT_STASH], 4000 + 4000);
    assert_int_equal(account.steps[BN_F].bytes[MM_ACCOUNT_FEATURE_MAP], 4000);
    assert_int_equal(account.steps[LAST_F].bytes[MM_ACCOUNT_STASH], account.declared[MM_ACCOUNT_STASH]);
    assert_int_equal(account.steps[LAST_F].bytes[MM_ACCOUNT_FEATURE_MAP], 0);
    assert_int_equal(account.steps[RELU_B].bytes[MM_ACCOUNT_GRADIENT_MAP], 4000 + 4000);
    assert_int_equal(g.plan->nodes[account.peak_node].step, RELU_B);
    assert_int_equal(mm_stash_account_init(g.plan, g.facts, &stash), MM_OK);
    for (int i = 0; i < stash.n_maps; i++) assert_int_equal(stash.maps[i].held_bytes, stash.maps[i].bytes);
    mm_stash_account_fini(&stash);
    mm_account_fini(&account);
    stash_graph_destroy(&g);
}

TEST_CASE(map_read_by_sign_alone_can_be_a_mask) {
    stash_graph g = stash_graph_create(false);
    mm_stash_account stash;
    assert_int_equal(mm_stash_account_init(g.plan, g.facts, &stash), MM_OK);
    const mm_stash_map *relu = map_of(&stash, g.relu), *conv = map_of(&stash, g.conv);
    assert_non_null(relu);
    assert_non_null(conv);
    assert_null(map_of(&stash, g.bn));
    assert_int_equal(relu->n_readers, 1);
    assert_int_equal(relu->readers[0].form, MM_FORM_SIGN);
    assert_int_equal(remedy_of(relu, MM_REMEDY_MASK)->bytes_left, 128);
    assert_int_equal(remedy_of(relu, MM_REMEDY_MASK)->codec, 1);
    assert_null(remedy_of(relu, MM_REMEDY_COMPRESS));
    assert_null(remedy_of(conv, MM_REMEDY_MASK));
    assert_int_equal(remedy_of(conv, MM_REMEDY_COMPRESS)->bytes_left, 1000);
    assert_int_equal(remedy_of(conv, MM_REMEDY_COMPRESS)->sign_codec, -1);
    mm_stash_account_fini(&stash);
    stash_graph_destroy(&g);
}

TEST_CASE(lossy_code_of_a_map_read_by_sign_too_has_the_mask_beside_it) {
    stash_graph g = stash_graph_create(true);
    mm_stash_account stash;
    assert_int_equal(mm_stash_account_init(g.plan, g.facts, &stash), MM_OK);
    const mm_stash_map *relu = map_of(&stash, g.relu);
    assert_int_equal(relu->n_readers, 2);
    assert_null(remedy_of(relu, MM_REMEDY_MASK));
    assert_int_equal(remedy_of(relu, MM_REMEDY_COMPRESS)->bytes_left, 1000 + 128);
    assert_int_equal(remedy_of(relu, MM_REMEDY_COMPRESS)->sign_codec, 1);
    mm_stash_account_fini(&stash);
    g.facts->codecs[0].lossless = true;
    assert_int_equal(mm_stash_account_init(g.plan, g.facts, &stash), MM_OK);
    assert_int_equal(remedy_of(map_of(&stash, g.relu), MM_REMEDY_COMPRESS)->bytes_left, 1000);
    mm_stash_account_fini(&stash);
    stash_graph_destroy(&g);
}

TEST_CASE(saved_tensor_takes_no_loss) {
    stash_graph g = stash_graph_create(true);
    mm_stash_account stash;
    assert_int_equal(mm_stash_account_init(g.plan, g.facts, &stash), MM_OK);
    assert_null(remedy_of(map_of(&stash, g.out), MM_REMEDY_COMPRESS));
    mm_stash_account_fini(&stash);
    g.facts->codecs[0].lossless = true;
    assert_int_equal(mm_stash_account_init(g.plan, g.facts, &stash), MM_OK);
    assert_int_equal(remedy_of(map_of(&stash, g.out), MM_REMEDY_COMPRESS)->bytes_left, 100);
    mm_stash_account_fini(&stash);
    stash_graph_destroy(&g);
}

TEST_CASE(map_made_by_layers_that_may_run_again_from_what_is_there_can_be_recomputed) {
    stash_graph g = stash_graph_create(true);
    mm_stash_account stash;
    assert_int_equal(mm_stash_account_init(g.plan, g.facts, &stash), MM_OK);
    const mm_remedy *relu = remedy_of(map_of(&stash, g.relu), MM_REMEDY_RECOMPUTE);
    assert_non_null(relu);
    assert_int_equal(relu->bytes_left, 0);
    assert_int_equal(relu->layer_kinds, 1u << MM_LAYER_BATCH_NORM | 1u << MM_LAYER_RELU);
    assert_int_equal(relu->ns, 20 + 30);
    const mm_remedy *conv = remedy_of(map_of(&stash, g.conv), MM_REMEDY_RECOMPUTE);
    assert_non_null(conv); /* conv runs again from the image, which is external */
    assert_int_equal(conv->bytes_left, 0);
    assert_int_equal(conv->layer_kinds, 1u << MM_LAYER_CONV);
    assert_int_equal(conv->ns, 10);
    assert_null(remedy_of(map_of(&stash, g.out), MM_REMEDY_RECOMPUTE)); /* its layer is of the kind OTHER */
    mm_stash_account_fini(&stash);
    stash_graph_destroy(&g);
}

/* Adds a segment in pinned memory, raw or coded. */
static int pinned_segment(mm_plan *plan, mm_content content, mm_tensor tensor, int codec, int64_t bytes) {
    const int segment = mm_plan_segment(plan, content, MM_CAT_FEATURE_MAP, tensor, bytes);
    plan->segments[segment].memory = MM_MEM_PINNED;
    plan->segments[segment].codec = codec;
    return segment;
}

static int code_segment(mm_plan *plan, mm_tensor tensor, int codec) {
    const int segment = mm_plan_segment(plan, MM_CONTENT_CODED, MM_CAT_CODE, tensor, 128);
    plan->segments[segment].codec = codec;
    return segment;
}

/* What happens to each map is told by the plan's nodes, in whatever order these are. */
TEST_CASE(decisions_are_what_the_nodes_do) {
    enum { LOSSY, MASK, RELU_F = 2 };
    stash_graph g = stash_graph_create(true);
    mm_stash_account stash;
    mm_decision *decisions;
    g.facts->out_bytes_per_s = g.facts->in_bytes_per_s = 1000000000;
    g.facts->issue_ns = 5;
    for (int c = 0; c < 2; c++) g.facts->codes[c * g.facts->n_tensors + g.relu].encode_ns = 7 + c;
    for (int changed = 0; changed < 2; changed++) {
        mm_plan *plan = g.plan;
        if (!changed) plan_plainly(&g);
        if (changed) {
            const int code = code_segment(plan, g.relu, LOSSY), mask = code_segment(plan, g.relu, MASK);
            mm_plan_op(plan, MM_NODE_OUT, g.conv, plan->bindings[plan->nodes[0].first_binding + 1],
                       pinned_segment(plan, MM_CONTENT_RAW, g.conv, -1, 4000));
            mm_plan_op(plan, MM_NODE_ENCODE, g.relu, -1, code);
            mm_plan_op(plan, MM_NODE_ENCODE, g.relu, -1, mask);
            mm_plan_op(plan, MM_NODE_OUT, g.relu, code, pinned_segment(plan, MM_CONTENT_CODED, g.relu, LOSSY, 128));
            mm_plan_recompute(plan, RELU_F + 1); /* makes `out` again; as it also stays, it counts as kept */
        }
        assert_int_equal(mm_plan_finish(plan), MM_OK);
        assert_int_equal(mm_stash_account_init(plan, g.facts, &stash), MM_OK);
        assert_int_equal(mm_account_decide(plan, g.facts, &stash, &decisions), MM_OK);
        for (int i = 0; i < stash.n_maps; i++) {
            const mm_tensor t = stash.maps[i].tensor;
            const bool conv = changed && t == g.conv, relu = changed && t == g.relu;
            assert_int_equal(decisions[i].kinds, conv   ? 1u << MM_REMEDY_SWAP
                                                 : relu ? 1u << MM_REMEDY_MASK | 1u << MM_REMEDY_COMPRESS_SWAP
                                                        : 1u << MM_REMEDY_KEEP);
            assert_int_equal(decisions[i].codec, relu ? LOSSY : -1);
            assert_int_equal(decisions[i].ns, conv ? 4005 : relu ? 7 + 8 + 133 : 0);
        }
        free(decisions);
        mm_stash_account_fini(&stash);
    }
    stash_graph_destroy(&g);
}

/* relu makes c of b. */
TEST_CASE(what_a_map_is_made_of_says_whether_it_is_recomputed) {
    static const struct {
        mm_layer_kind producer; /* the kind of the layer that makes b */
        bool b_is_read, b_is_changed, possible;
    } cases[] = {
        {MM_LAYER_CONV, true, false, true},   /* c is made again from b, which is kept anyway */
        {MM_LAYER_CONV, true, true, false},   /* relu adds to b: again, it would add twice */
        {MM_LAYER_CONV, false, false, true},  /* b is made again, too */
        {MM_LAYER_OTHER, true, false, true},  /* c is made again from b */
        {MM_LAYER_OTHER, false, false, false} /* b would have to be kept, as large as c */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_graph *g;
        mm_plan *plan;
        mm_graph_facts *facts;
        mm_stash_account stash;
        mm_limits limits = {0};
        assert_int_equal(mm_graph_create("made", &g), MM_OK);
        mm_tensor b = small_tensor(g, "b", MM_FEATURE_MAP, MM_MANAGED, 4000),
                  c = small_tensor(g, "c", MM_FEATURE_MAP, MM_MANAGED, 4000);
        mm_layer first = small_layer(g, "first", cases[i].producer), relu = small_layer(g, "relu", MM_LAYER_RELU),
                 last = small_layer(g, "last", MM_LAYER_OTHER);
        STEP(g, first, MM_FORWARD, {b, MM_WRITE, MM_FORM_VALUE});
        STEP(g, relu, MM_FORWARD, {b, cases[i].b_is_changed ? MM_MODIFY : MM_READ, MM_FORM_VALUE},
             {c, MM_WRITE, MM_FORM_VALUE});
        const mm_use uses[] = {{c, MM_READ, MM_FORM_VALUE}, {b, MM_READ, MM_FORM_VALUE}};
        small_step(g, last, MM_BACKWARD, uses, 1 + (size_t)cases[i].b_is_read, 0);
        assert_int_equal(mm_graph_freeze(g), MM_OK);
        assert_int_equal(mm_plan_create(g, &limits, &plan), MM_OK);
        assert_int_equal(mm_graph_facts_create(g, 0, &facts), MM_OK);
        assert_int_equal(mm_stash_account_init(plan, facts, &stash), MM_OK);
        assert_int_equal(remedy_of(map_of(&stash, c), MM_REMEDY_RECOMPUTE) != NULL, cases[i].possible);
        assert_non_null(remedy_of(map_of(&stash, c), MM_REMEDY_SWAP));
        mm_stash_account_fini(&stash);
        mm_graph_facts_destroy(facts);
        mm_plan_destroy(plan);
        mm_graph_destroy(g);
    }
}
