/* SPDX-License-Identifier: MIT */
/* The engine of rules: their text, which rule serves which map, and when maps leave and come back in each preset. */
#include <stdio.h>
#include <string.h>

#include "mm/core/time/simulate.h"
#include "tests/core/plan_proof.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"
#include "tests/policies/engine_rig.h"

/* ---------------------------------------------------------------- rules */

static void refuse(const char *rules, const char *word, const char *other) {
    char spec[512];
    mm_policy p;
    snprintf(spec, sizeof spec, "rules:%s", rules);
    assert_int_equal(mm_policy_parse(spec, &p), MM_ERR_INVALID);
    assert_says(word);
    assert_says(other);
}

TEST_CASE(wrong_rules_are_refused_with_what_would_be_right) {
    refuse("conv", "'conv'", "SELECTOR=ACTION");
    refuse("conv=swap;relu", "'relu'", "SELECTOR=ACTION");
    refuse("-in=swap", "'-in=...'", "conv-in");
    refuse("relu&=swap", "'relu&=...'", "joined by &");
    refuse("a&b&c&d&e=swap", "'a&b&c&d&e=...'", "at most 4");
    refuse("=swap", "'=...'", "must name *, a kind of layer (other, data, conv, linear");
    refuse(";", "give some", "conv=compress(zfp);*=swap");
    refuse("conv=", "'conv='", "keep, mask");
    refuse("conv=drop", "'conv=drop'", "compress(CODEC)");
    refuse("conv=compress", "'conv=compress'", "compress(zfp)");
    refuse("conv=compress()", "'conv=compress()'", "compress(zfp)");
    refuse("conv=compress(zfp", "'conv=compress(zfp'", "compress(zfp)");
    refuse("conv=swap(zfp)", "'conv=swap(zfp)'", "swap");
    refuse("conv=keep()", "'conv=keep()'", "keep");
    refuse("conv=compress(0123456789012345678901234567890123456789012345678901234567890123456789)", "conv=compress",
           "longer than 63 characters");
    refuse("*=swap,depth=-1", "depth=-1", "from 0");
    refuse("*=swap,conv=swap", "'conv'", "rules, mode, depth, k, inplace, layout, stash, when");
}

TEST_CASE(a_rule_that_another_leaves_nothing_to_is_refused) {
    static const char says[] = "never applies";
    refuse("conv=compress(zfp:rate=4);conv=compress(zfp:rate=8)", "rule 'conv=compress(zfp:rate=8)' never applies",
           "the earlier 'conv=compress(zfp:rate=4)' takes all");
    refuse("conv=swap;conv=keep", "rule 'conv=keep' never applies: the earlier 'conv=swap' takes all",
           "write it first");
    refuse("conv=compress(raw);relu=mask;conv=compress(raw)", "rule 'conv=compress(raw)'", says);
    refuse("relu=mask;relu=mask", "rule 'relu=mask'", says);
    refuse("conv-in=keep;conv-in=compress(zfp)", "rule 'conv-in=compress(zfp)'", says);
    refuse("layer1.*=keep;layer1.*=swap", "rule 'layer1.*=swap'", says);
    refuse("*=swap;conv=keep", "rule 'conv=keep'", says);
    refuse("*=swap;conv-in=keep", "rule 'conv-in=keep'", says);
    refuse("*=keep;layer1.*=swap", "rule 'layer1.*=swap'", says);
    refuse("relu=swap;bn-relu=keep", "rule 'bn-relu=keep'", says);
    refuse("relu=swap;relu&conv-in=keep", "rule 'relu&conv-in=keep'", says);
    refuse("conv-in&relu=swap;bn-relu&conv-in=keep", "rule 'bn-relu&conv-in=keep'", says);
    refuse("*=recompute;*=recompute", "rule '*=recompute'", says);
    refuse("*=lean-swap;*=swap", "rule '*=swap'", says);
    refuse("*=keep;*=lean-swap", "rule '*=lean-swap'", says);
}

TEST_CASE(good_rules_are_taken_with_or_without_their_key) {
    static const char *const good[] = {
        "rules",
        "rules:*=swap",
        "rules:rules=*=swap",
        "rules:depth=3",
        "rules:conv=compress(zfp:rate=4);relu=mask;conv-in=compress-swap(raw);bn=keep;*=swap,depth=3,when=needed",
        "rules:bn-relu=recompute;relu=swap;bn=swap;conv=compress(raw);conv=compress(zfp);conv=swap",
        "rules:conv-in=keep;conv=keep;*-in=recompute;*=recompute;*=swap",
        "rules:*=swap;",
        "rules:*=swap;*=lean-swap", /* which takes images and saved tensors, too */
        "rules:relu&pool-in=mask;relu&conv-in=swap;pool&conv-in&linear-in=compress(raw);relu=keep,depth=0",
        "rules:*=swap,inplace=off,layout=groups,stash=apart",
        "rules:layer1.*.conv?=swap;a layer's name-in=keep;*-in=swap",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        mm_policy p;
        if (mm_policy_parse(good[i], &p) != MM_OK) fail_msg("%s: %s", good[i], mm_last_error());
        mm_policy_fini(&p);
    }
}

static void refuse_plan(const mm_graph *graph, const char *rules, const char *word, const char *other) {
    char spec[256];
    mm_policy p;
    mm_plan *plan;
    mm_limits limits = {.device_bytes = INT64_C(1) << 40, .pinned_bytes = INT64_C(1) << 40};
    mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
    for (int w = 0; w < 2; w++) {
        snprintf(spec, sizeof spec, "rules:%s,when=%s", rules, w ? "always" : "needed");
        assert_int_equal(mm_policy_parse(spec, &p), MM_OK);
        assert_int_equal(mm_policy_plan(&p, graph, facts, &limits, &plan), MM_ERR_INVALID);
        assert_says(word);
        assert_says(other);
        mm_policy_fini(&p);
    }
    mm_graph_facts_destroy(facts);
}

TEST_CASE(a_selector_that_names_nothing_is_refused_with_what_it_could_be) {
    mm_graph *graph = row(false);
    refuse_plan(graph, "covn=swap", "rule 'covn=...': graph row has no such layer", "is it conv?");
    refuse_plan(graph, "rleu=keep;*=swap", "'rleu=...'", "is it relu?");
    refuse_plan(graph, "Conv-in=swap", "'Conv-in=...'", "is it conv-in?");
    refuse_plan(graph, "cnov4=swap", "'cnov4=...'", "is it conv4?");
    refuse_plan(graph, "layer1.*.conv2=swap", "'layer1.*.conv2=...'", "its layers are data, conv1, conv2, conv3, ...;");
    refuse_plan(graph, "all=swap", "'all=...'", "kinds are other, data, conv");
    refuse_plan(graph, "conv=swap;conv5*=swap", "'conv5*=...'", "no such kind");
    refuse_plan(graph, "conv?\?=swap", "'conv?\?=...'", "row");    /* a ? stands for exactly one character */
    refuse_plan(graph, "onv1=swap", "'onv1=...'", "is it conv1?"); /* names the whole name only */
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- plans in words */

static void append(char *text, size_t capacity, const char *prefix, const char *name, const char *suffix) {
    size_t used = strlen(text);
    snprintf(text + used, capacity - used, "%s%s%s%s", used ? " " : "", prefix, name, suffix);
}

/* The node of a layer's step. */
static int node_of(const mm_plan *plan, const char *layer, mm_phase phase) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->kind != MM_NODE_STEP || mm_graph_step(plan->graph, n->step)->phase != phase) continue;
        if (!strcmp(mm_graph_layer(plan->graph, mm_graph_step(plan->graph, n->step)->layer)->name, layer)) return i;
    }
    fail_msg("no step of %s", layer);
    return -1;
}

/* The node of an operation on a tensor. */
static int op_of(const mm_plan *plan, mm_node_kind kind, const char *tensor) {
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == kind && !strcmp(mm_graph_tensor(plan->graph, plan->nodes[i].tensor)->name, tensor))
            return i;
    return -1;
}

/* Whether a step waits, by itself, for an operation. */
static bool waits(const mm_plan *plan, int node, int op) {
    return plan->nodes[node].wait[plan->nodes[op].stream] >= plan->nodes[op].seq;
}

/* ---------------------------------------------------------------- presets */

TEST_CASE(vdnn_lets_a_transfer_overlap_with_one_layer_only) {
    mm_graph *graph = row(false);
    planned p;
    char text[512];
    plan_terse(&p, graph, "vdnn-all", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "data conv1 conv2 >x1 conv3 >x2 conv4 >x3 loss >x4 <x4 <x3 loss' <x2 conv4' <x1 conv3' conv2' "
                        "conv1'");
    int x1 = op_of(p.plan, MM_NODE_OUT, "x1"), x2 = op_of(p.plan, MM_NODE_OUT, "x2");
    assert_false(waits(p.plan, node_of(p.plan, "conv3", MM_FORWARD), x1));
    assert_true(waits(p.plan, node_of(p.plan, "conv4", MM_FORWARD), x1));
    assert_false(waits(p.plan, node_of(p.plan, "conv4", MM_FORWARD), x2));
    assert_true(waits(p.plan, node_of(p.plan, "loss", MM_FORWARD), x2));
    /* A map comes back during the step before the one that reads it, not sooner. */
    int in = op_of(p.plan, MM_NODE_IN, "x2");
    assert_true(waits(p.plan, in, node_of(p.plan, "loss", MM_BACKWARD)));
    assert_false(waits(p.plan, in, node_of(p.plan, "conv4", MM_BACKWARD)));
    assert_false(waits(p.plan, node_of(p.plan, "conv4", MM_BACKWARD), in));
    assert_true(waits(p.plan, node_of(p.plan, "conv3", MM_BACKWARD), in));
    assert_int_equal(p.plan->buffers, 0);
    assert_int_equal(p.plan->pinned_bytes, 4 * MAP * UNIT);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(vdnn_fetches_one_layer_ahead_past_updates) {
    mm_graph *graph = row(true);
    planned p;
    char text[512];
    plan_terse(&p, graph, "vdnn-all", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "data conv1 conv2 >x1 conv3 >x2 conv4 >x3 loss >x4 <x4 <x3 loss' <x2 conv4' conv4 <x1 conv3' "
                        "conv3 conv2' conv2 conv1' conv1");
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(cdma_paces_its_codec_by_the_link) {
    static const struct {
        const char *spec;
        int pieces;
    } cases[] = {{"cdma:rate=8,when=always", 2},
                 {"cdma:rate=8,throttle=5,when=always", 5},
                 {"cdma:rate=8,throttle=0,when=always", 0},
                 {"freelunch:rate=8,when=always", 0}};
    mm_graph *graph = row(false);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        planned p;
        int encodes = 0;
        plan_terse(&p, graph, cases[c].spec, CODE * UNIT);
        for (int i = 0; i < p.plan->n_nodes; i++) {
            const mm_node *n = &p.plan->nodes[i];
            if (n->kind != MM_NODE_ENCODE) continue;
            encodes++;
            assert_int_equal(n->throttle, cases[c].pieces);
            /* A throttle takes effect only if the copy of the code is the next node. */
            if (n->throttle > 0) assert_true(n[1].kind == MM_NODE_OUT && n[1].src == n->dst);
        }
        assert_int_equal(encodes, 4);
        planned_done(&p);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(swap_stops_the_computation_while_a_map_leaves_and_comes_back) {
    mm_graph *graph = row(false);
    planned p;
    char text[512];
    plan_terse(&p, graph, "swap", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "data conv1 conv2 >x1 conv3 >x2 conv4 >x3 loss >x4 <x4 loss' <x3 conv4' <x2 conv3' <x1 conv2' "
                        "conv1'");
    assert_true(waits(p.plan, node_of(p.plan, "conv3", MM_FORWARD), op_of(p.plan, MM_NODE_OUT, "x1")));
    assert_true(waits(p.plan, node_of(p.plan, "conv4", MM_FORWARD), op_of(p.plan, MM_NODE_OUT, "x2")));
    int in = op_of(p.plan, MM_NODE_IN, "x2");
    assert_true(waits(p.plan, in, node_of(p.plan, "conv4", MM_BACKWARD)));
    assert_true(waits(p.plan, node_of(p.plan, "conv3", MM_BACKWARD), in));
    /* So the iteration takes the sum of all times. */
    mm_simulation sim;
    for (int s = 0; s < p.facts->n_steps; s++) p.facts->variants[s].ns = 1000;
    p.facts->out_bytes_per_s = p.facts->in_bytes_per_s = INT64_C(1000000000); /* a byte takes a nanosecond */
    assert_int_equal(mm_simulate(p.plan, p.facts, &sim), MM_OK);
    assert_int_equal(sim.iteration_ns, 11 * 1000 + 8 * MAP * UNIT);
    assert_int_equal(sim.hidden_permille, 0);
    mm_simulation_fini(&sim);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(swap_async_goes_through_persistent_buffers_and_stops_for_none) {
    mm_graph *graph = row(false);
    planned p;
    char text[512];
    plan_terse(&p, graph, "swap-async:depth=1", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "data conv1 conv2 >x1 conv3 >x2 conv4 >x3 loss >x4 <x4 loss' <x3 conv4' <x2 conv3' <x1 conv2' "
                        "conv1'");
    assert_false(waits(p.plan, node_of(p.plan, "conv3", MM_FORWARD), op_of(p.plan, MM_NODE_OUT, "x1")));
    assert_int_equal(p.plan->buffers, 3);
    assert_int_equal(p.plan->buffer_region_bytes, 3 * MAP * UNIT);
    int there = 0, back = 0;
    for (int i = 0; i < p.plan->n_segments; i++) {
        const mm_segment *s = &p.plan->segments[i];
        there += s->memory == MM_MEM_PINNED;
        back += s->category == MM_CAT_BUFFER;
        assert_true(s->content == MM_CONTENT_RAW && !(s->memory == MM_MEM_PINNED && s->category == MM_CAT_BUFFER));
    }
    assert_int_equal(there, 4);
    assert_int_equal(back, 8); /* a buffer before and one after each of four copies */
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(cdmas_code_is_on_the_device_only_around_its_transfer) {
    mm_graph *graph = row(false);
    planned p;
    char text[512];
    int codes = 0;
    plan_terse(&p, graph, "cdma:rate=8", CODE * UNIT);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "data conv1 conv2 (x1 >x1 conv3 (x2 >x2 conv4 (x3 >x3 loss (x4 >x4 <x4 x4) <x3 x3) loss' <x2 "
                        "x2) conv4' <x1 x1) conv3' conv2' conv1'");
    for (int i = 0; i < p.plan->n_segments; i++) {
        const mm_segment *s = &p.plan->segments[i];
        if (s->content != MM_CONTENT_CODED || s->memory == MM_MEM_PINNED) continue;
        assert_int_equal(s->last_node, s->first_node + 1);
        codes++;
    }
    assert_int_equal(codes, 8);
    assert_int_equal(p.plan->code_region_bytes, 0);
    assert_int_equal(p.plan->pinned_bytes, 4 * CODE * UNIT);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* It waits even if the bytes that it is copied to have been free for long. */
TEST_CASE(a_synchronous_fetch_waits_for_the_step_before_it) {
    static const char *const policies[] = {"swap:when=always", "vdnn-all:when=always", "vdnn-conv:when=always",
                                           "cdma:codec=test-lossless,when=always"};
    int fetches = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        mm_policy policy;
        mm_plan *plan;
        mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX};
        random_graph_options options = {.seed = seed, .layers = 12, .max_channels = 6};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        assert_int_equal(mm_policy_parse(policies[seed % 4], &policy), MM_OK);
        assert_int_equal(mm_policy_plan(&policy, graph, facts, &limits, &plan), MM_OK);
        for (int i = 0, step = 0; i < plan->n_nodes; i++) {
            if (mm_node_runs_step(&plan->nodes[i])) step = i;
            if (plan->nodes[i].kind != MM_NODE_IN) continue;
            assert_true(waits(plan, i, step));
            fetches++;
        }
        mm_plan_destroy(plan);
        mm_policy_fini(&policy);
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(fetches > 50);
}

/* ---------------------------------------------------------------- which rule serves which map */

/* linear -> f; relu -> g; conv -> c; pool -> p; and back: pool reads c, relu the sign of g, conv (`value`) its
 * elements. No storage is shared. */
static mm_graph *mixed(mm_layer_kind relu, bool value) {
    static const char *const maps[] = {"f", "g", "c", "p"}, *const gradients[] = {"df", "dg", "dc", "dp"};
    terse_graph g;
    terse_init(&g, "mixed");
    terse_persistent(&g, "loss", 1);
    for (int i = 0; i < 4; i++) terse_map(&g, maps[i], MM_FEATURE_MAP, MAP);
    for (int i = 0; i < 4; i++) terse_map(&g, gradients[i], MM_GRADIENT_MAP, MAP);
    terse_step(&g, "linear", MM_LAYER_LINEAR, MM_FORWARD, "=f");
    terse_step(&g, "relu", relu, MM_FORWARD, "f =g");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "g =c");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_FORWARD, "c =p");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "p +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "p =dp");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_BACKWARD, "c dp =dc");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, value ? "g dc =dg" : "dc =dg");
    terse_step(&g, "relu", relu, MM_BACKWARD, "?g dg =df");
    terse_step(&g, "linear", MM_LAYER_LINEAR, MM_BACKWARD, "f df");
    return terse_freeze(&g);
}

/* Checks what the plan does with each map: "f= out g=mask" for example. */
static void check_actions_with(mm_layer_kind relu, const char *spec, bool value, int64_t code_bytes,
                               const char *expected) {
    static const char *const maps[] = {"f", "g", "c", "p"};
    mm_graph *graph = mixed(relu, value);
    planned p;
    char text[256] = "";
    plan_terse(&p, graph, spec, code_bytes);
    for (int i = 0; i < 4; i++) {
        int encode = op_of(p.plan, MM_NODE_ENCODE, maps[i]), out = op_of(p.plan, MM_NODE_OUT, maps[i]);
        if (encode < 0 && out < 0) continue;
        const char *codec = encode < 0 ? "" : p.facts->codecs[p.plan->segments[p.plan->nodes[encode].dst].codec].spec;
        append(text, sizeof text, maps[i], "=", codec);
        if (out >= 0) append(text, sizeof text, "", "out", "");
    }
    if (strcmp(text, expected) != 0) fail_msg("%s: '%s', not '%s'", spec, text, expected);
    planned_done(&p);
    mm_graph_destroy(graph);
}

static void check_actions(const char *spec, bool value, int64_t code_bytes, const char *expected) {
    check_actions_with(MM_LAYER_RELU, spec, value, code_bytes, expected);
}

TEST_CASE(a_selector_names_the_layer_that_makes_or_reads_a_map) {
    check_actions("rules:conv=swap", true, -1, "c= out");
    check_actions("rules:conv-in=swap", true, -1, "g= out");
    check_actions("rules:relu-in=swap", true, -1, "f= out");
    check_actions("rules:pool=swap", true, -1, "p= out");
    check_actions("rules:loss-in=swap", true, -1, "p= out");
    check_actions("rules:*=swap", true, -1, "f= out g= out c= out p= out");
    check_actions("rules:bn=swap", true, -1, "");
    check_actions("vdnn-conv", true, -1, "g= out");
    check_actions("rules:relu&conv-in=swap", true, -1, "g= out");
    check_actions("rules:relu&pool-in=swap", true, -1, "");
    check_actions("rules:conv&pool-in=swap;linear&relu-in=swap", true, -1, "f= out c= out");
    check_actions("rules:*&conv-in&relu=swap", true, -1, "g= out");
}

static const char *swapped(const mm_graph *graph, const char *spec, char text[64]) {
    planned p;
    plan_terse(&p, graph, spec, -1);
    text[0] = '\0';
    for (int i = 0; i < p.plan->n_nodes; i++)
        if (p.plan->nodes[i].kind == MM_NODE_OUT)
            append(text, 64, "", mm_graph_tensor(graph, p.plan->nodes[i].tensor)->name, "");
    planned_done(&p);
    return text;
}

TEST_CASE(a_selector_names_layers_by_name) {
    static const char *const cases[][2] = {
        {"rules:conv2=swap", "x2"},
        {"rules:conv2-in=swap", "x1"},
        {"rules:conv?=swap", "x1 x2 x3 x4"},
        {"rules:*3=swap", "x3"},
        {"rules:c*v*4-in=swap", "x3"},
        {"rules:conv2=keep;conv=swap", "x1 x3 x4"},
        {"rules:*2=swap;*3=keep;conv=swap", "x1 x2 x4"},
        {"rules:loss*-in=swap", "x4"},
        {"rules:**1*=swap", "x1"},
        {"rules:*-in=swap", "x1 x2 x3 x4"},
        {"rules:data=swap", ""},
        {"rules:conv?&conv3-in=swap", "x2"},
        {"rules:conv1&conv3-in=swap", ""},
    };
    mm_graph *graph = row(false);
    char text[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        swapped(graph, cases[i][0], text);
        if (strcmp(text, cases[i][1]) != 0) fail_msg("%s: '%s', not '%s'", cases[i][0], text, cases[i][1]);
    }
    mm_graph_destroy(graph);
}

/* A rule for bn or for relu selects the layer that is both; a rule for bn-relu selects no other layer. */
TEST_CASE(a_batch_norm_with_its_relu_is_named_by_both) {
    static const char *const selectors[] = {"bn", "relu", "bn-relu"};
    char spec[64];
    for (size_t i = 0; i < sizeof selectors / sizeof selectors[0]; i++) {
        snprintf(spec, sizeof spec, "rules:%s=swap", selectors[i]);
        check_actions_with(MM_LAYER_BATCH_NORM_RELU, spec, true, -1, "g= out");
        snprintf(spec, sizeof spec, "rules:%s-in=swap", selectors[i]);
        check_actions_with(MM_LAYER_BATCH_NORM_RELU, spec, true, -1, "f= out");
        snprintf(spec, sizeof spec, "rules:%s=mask", selectors[i]);
        check_actions_with(MM_LAYER_BATCH_NORM_RELU, spec, false, -1, "g=mask");
    }
    check_actions("rules:bn-relu=swap", true, -1, "");
    check_actions_with(MM_LAYER_BATCH_NORM, "rules:bn-relu=swap", true, -1, "");
    check_actions_with(MM_LAYER_BATCH_NORM, "rules:relu=swap", true, -1, "");
}

TEST_CASE(the_first_rule_that_names_a_map_and_can_serve_it_counts) {
    check_actions("rules:conv=keep;*=swap", true, -1, "f= out g= out p= out");
    check_actions("rules:conv=compress(zfp:rate=8);*=swap", true, CODE * UNIT, "f= out g= out c=zfp:rate=8 p= out");
    /* The same with a codec that takes none of the maps. */
    check_actions("rules:conv=compress(zfp:rate=8);*=swap", true, -1, "f= out g= out c= out p= out");
    check_actions("rules:conv=compress(zfp:rate=8);conv=keep;*=swap", true, -1, "f= out g= out p= out");
    check_actions("rules:conv=compress(zfp:rate=8)", true, -1, "");
    check_actions("hybrid:rate=8", true, CODE * UNIT, "f= out g= out c=zfp:rate=8 p= out");
}

TEST_CASE(a_mask_serves_only_a_map_of_which_only_the_sign_is_read) {
    check_actions("rules:*=mask", false, -1, "g=mask");
    check_actions("rules:*=mask", true, -1, "");
    check_actions("rules:relu=mask;relu=swap", false, -1, "g=mask");
    check_actions("rules:relu=mask;relu=swap", true, -1, "g= out");
    /* A map to be compressed of which only the sign is read gets a mask instead, on the device. */
    check_actions("rules:relu=compress-swap(zfp:rate=8)", false, CODE * UNIT, "g=mask");
}

/* data -> i; pool: i -> a, x (its indices); conv: a -> b. Backward: conv
 * reads a; four steps later `side` reads a again; then pool reads x, the signs of a, and i. few: units of x. */
static mm_graph *apart(int few) {
    terse_graph g;
    terse_init(&g, "apart");
    terse_map(&g, "i", MM_INPUT, 40);
    terse_map(&g, "a", MM_FEATURE_MAP, 64);
    terse_map(&g, "b", MM_FEATURE_MAP, MAP);
    terse_map(&g, "x", MM_SAVED, few);
    terse_map(&g, "d", MM_GRADIENT_MAP, MAP);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=i");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_FORWARD, "i =a =x");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "a =b");
    terse_step(&g, "side", MM_LAYER_CONV, MM_FORWARD, "a b");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "a =d");
    for (g.i = 1; g.i <= 4; g.i++) terse_step(&g, "other#", MM_LAYER_OTHER, MM_BACKWARD, "+d");
    terse_step(&g, "side", MM_LAYER_CONV, MM_BACKWARD, "a d");
    terse_step(&g, "pool", MM_LAYER_POOL, MM_BACKWARD, "x ?a i d");
    return terse_freeze(&g);
}

TEST_CASE(a_lean_swap_keeps_signs_as_a_mask_and_elements_no_longer_than_they_are_read) {
    mm_graph *graph = mixed(MM_LAYER_RELU, true);
    planned p;
    char text[512];
    /* g's mask is made when g has come back: until then nothing of g is on the device. */
    plan_terse(&p, graph, "rules:relu=lean-swap,depth=0", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "linear relu conv >g pool loss loss' pool' <g conv' (g relu' linear'");
    const mm_segment *back = segment_of(&p, "g", 2), *mask = segment_of(&p, "g", 3);
    assert_true(back->content == MM_CONTENT_RAW && mask->content == MM_CONTENT_CODED);
    assert_int_equal(back->last_node, op_of(p.plan, MM_NODE_ENCODE, "g"));
    assert_int_equal(mask->last_node, node_of(p.plan, "relu", MM_BACKWARD));
    planned_done(&p);
    /* With depth=1, g is fetched a step earlier, and its mask is made before the step that reads g. */
    plan_terse(&p, graph, "rules:relu=lean-swap,depth=1", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "linear relu conv >g pool loss <g (g loss' pool' conv' relu' linear'");
    planned_done(&p);
    mm_graph_destroy(graph);
    /* A map of which only signs are read is not copied. */
    check_actions("rules:*=lean-swap", false, -1, "f= out g=mask c= out p= out");
}

TEST_CASE(a_lean_map_is_not_there_between_far_readers_nor_are_images_and_indices) {
    mm_graph *graph = apart(40), *with_few = apart(32);
    planned p;
    char text[512];
    plan_terse(&p, graph, "rules:*=lean-swap,depth=0", -1);
    assert_string_equal(
        terse_tell(p.plan, text, sizeof text),
        "data pool >i >x conv side >a <a conv' (a other1' other2' other3' other4' <a side' <x <i pool'");
    planned_done(&p);
    plan_terse(&p, graph, "rules:*=lean-swap,depth=1", -1);
    assert_string_equal(
        terse_tell(p.plan, text, sizeof text),
        "data pool >i >x conv side >a <a (a conv' other1' other2' other3' other4' <a side' <i <x pool'");
    planned_done(&p);
    plan_terse(&p, graph, "swap", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "data pool conv side >a <a conv' other1' other2' other3' other4' side' pool'");
    planned_done(&p);
    /* A saved tensor as small as a batch norm's statistics stays on the device. */
    plan_terse(&p, with_few, "rules:*=lean-swap,depth=0", -1);
    assert_int_equal(op_of(p.plan, MM_NODE_OUT, "x"), -1);
    assert_true(op_of(p.plan, MM_NODE_OUT, "i") >= 0);
    planned_done(&p);
    mm_graph_destroy(graph);
    mm_graph_destroy(with_few);
}

TEST_CASE(a_gradient_is_not_there_while_no_near_step_uses_it) {
    terse_graph g;
    planned p;
    char text[512];
    terse_init(&g, "residual");
    terse_map(&g, "a", MM_FEATURE_MAP, MAP);
    terse_map(&g, "b", MM_FEATURE_MAP, MAP);
    terse_map(&g, "sum", MM_GRADIENT_MAP, 40);
    terse_map(&g, "same", MM_GRADIENT_MAP, 40); /* an alias */
    terse_map(&g, "small", MM_GRADIENT_MAP, 32);
    terse_map(&g, "last", MM_GRADIENT_MAP, 40);
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "=a");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "a =b");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "b =sum =small");
    terse_step(&g, "other1", MM_LAYER_OTHER, MM_BACKWARD, "sum =same");
    terse_alias(&g, "sum", "same");
    for (g.i = 2; g.i <= 4; g.i++) terse_step(&g, "other#", MM_LAYER_OTHER, MM_BACKWARD, "");
    terse_step(&g, "add", MM_LAYER_ADD, MM_BACKWARD, "a same small =last");
    terse_inplace(&g, "same", "last");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "last");
    mm_graph *graph = terse_freeze(&g);
    plan_terse(&p, graph, "rules:*=lean-swap,depth=0", -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text),
                        "conv loss >a >b <b loss' other1' >sum other2' other3' other4' <a <sum add' conv'");
    const mm_segment *back = segment_of(&p, "sum", 2), *over = segment_of(&p, "last", 0);
    assert_int_equal(back->category, MM_CAT_GRADIENT_MAP);
    assert_true(back->memory == MM_MEM_DEVICE &&
                back->offset == over->offset); /* written in place over the map that came back */
    planned_done(&p);
    plan_terse(&p, graph, "swap", -1);
    assert_int_equal(op_of(p.plan, MM_NODE_OUT, "sum"), -1);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(cdma_moves_maps_whole_where_that_is_asked_for_and_loses_nothing) {
    static const struct {
        const char *spec;
        bool lossless;
        const char *codec;
    } cases[] = {{"cdma:rate=8,when=always", true, "mask"},
                 {"cdma:rate=8,signs=whole,when=always", true, "zfp:rate=8"},
                 {"cdma:rate=8,signs=whole,when=always", false, "mask"}};
    mm_graph *graph = mixed(MM_LAYER_RELU, false);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        mm_graph_facts *facts = terse_facts(graph, CODE * UNIT);
        mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(graph)};
        mm_policy policy;
        mm_plan *plan;
        facts->codecs[0].lossless = cases[c].lossless;
        assert_int_equal(mm_policy_parse(cases[c].spec, &policy), MM_OK);
        assert_string_equal(policy.spec, cases[c].spec);
        assert_int_equal(mm_policy_plan(&policy, graph, facts, &limits, &plan), MM_OK);
        assert_int_equal(plan_check(plan, facts, &limits), MM_OK);
        const int encode = op_of(plan, MM_NODE_ENCODE, "g");
        assert_true(encode >= 0);
        assert_string_equal(facts->codecs[plan->segments[plan->nodes[encode].dst].codec].spec, cases[c].codec);
        assert_int_equal(op_of(plan, MM_NODE_OUT, "g") >= 0, strcmp(cases[c].codec, "mask") != 0);
        mm_plan_destroy(plan);
        mm_policy_fini(&policy);
        mm_graph_facts_destroy(facts);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(a_synchronous_offload_is_awaited_with_a_mask_behind_it) {
    terse_graph t;
    planned p;
    terse_init(&t, "two_leave");
    terse_map(&t, "a", MM_FEATURE_MAP, MAP);
    terse_map(&t, "b", MM_FEATURE_MAP, MAP);
    terse_step(&t, "first", MM_LAYER_CONV, MM_FORWARD, "=a =b");
    terse_step(&t, "both", MM_LAYER_OTHER, MM_FORWARD, "a b");
    terse_step(&t, "next", MM_LAYER_OTHER, MM_FORWARD, "");
    terse_step(&t, "last", MM_LAYER_OTHER, MM_FORWARD, "");
    terse_step(&t, "both", MM_LAYER_OTHER, MM_BACKWARD, "a ?b");
    mm_graph *graph = terse_freeze(&t);
    plan_terse(&p, graph, "cdma:rate=8", CODE * UNIT);
    int last = node_of(p.plan, "last", MM_FORWARD);
    assert_true(waits(p.plan, last, op_of(p.plan, MM_NODE_OUT, "a")));
    assert_true(waits(p.plan, last, op_of(p.plan, MM_NODE_ENCODE, "b")));
    planned_done(&p);
    mm_graph_destroy(graph);
}
