/* SPDX-License-Identifier: MIT */
/* FreeLunch's plans of small graphs: how many buffers, where codes lie, when what is decoded, and the peak. */
#include <string.h>

#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

enum { CONVS = 6, MAP = 8, CODE = 2 }; /* of the chain; units */

static void assert_says(const char *word) {
    if (!strstr(mm_last_error(), word)) fail_msg("'%s' does not say '%s'", mm_last_error(), word);
}

/* x0 -> conv1 -> x1 -> ... -> x6 -> loss, and back; the input takes 1 unit, every map and gradient MAP. */
static mm_graph *chain(void) {
    terse_graph g;
    terse_init(&g, "chain");
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x0", MM_INPUT, 1);
    for (g.i = 1; g.i <= CONVS; g.i++) {
        terse_persistent(&g, "dw#", 1);
        terse_map(&g, "x#", MM_FEATURE_MAP, MAP);
        terse_map(&g, "d#", MM_GRADIENT_MAP, MAP);
    }
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x0");
    for (g.i = 1; g.i <= CONVS; g.i++) terse_step(&g, "conv#", MM_LAYER_CONV, MM_FORWARD, "x< =x#");
    g.i = CONVS;
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "x# +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "x# =d#");
    for (; g.i >= 1; g.i--)
        terse_step(&g, "conv#", MM_LAYER_CONV, MM_BACKWARD, g.i > 1 ? "x< d# =d< =dw#" : "x< d# =dw#");
    return terse_freeze(&g);
}

/* ---------------------------------------------------------------- the linear network */

TEST_CASE(a_linear_network_takes_three_buffers_and_the_peak_is_their_sum) {
    mm_graph *graph = chain();
    planned p;
    plan_terse(&p, graph, "freelunch:rate=8", CODE * UNIT);
    assert_int_equal(p.plan->buffers, 3);
    assert_int_equal(p.plan->buffer_region_bytes, 3 * MAP * UNIT);
    assert_int_equal(p.plan->code_region_bytes, CONVS * CODE * UNIT);
    /* the sum of: persistent tensor, codes, buffers, input, two gradients at a time */
    assert_int_equal(p.plan->peak_bytes, (1 + CONVS + CONVS * CODE + 3 * MAP + 1 + 2 * MAP) * UNIT);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* Where the regions do not fit beside the rest, gradients lie in buffers and codes that are idle. */
TEST_CASE(where_memory_is_short_idle_codes_and_buffers_hold_other_maps) {
    enum { APART = 1 + CONVS + CONVS * CODE + 3 * MAP + 1 + 2 * MAP };
    mm_graph *graph = chain();
    planned apart, lent;
    plan_terse_within(&lent, graph, "freelunch:rate=8", CODE * UNIT, 1);
    assert_int_equal(lent.plan->buffers, 3);
    assert_int_equal(lent.plan->buffer_region_bytes, 3 * MAP * UNIT);
    assert_int_equal(lent.plan->code_region_bytes, CONVS * CODE * UNIT);
    /* the last backward step: its map and the one before it were the last in the buffers, and no code waits */
    assert_true(lent.plan->peak_bytes <= (APART - MAP - CODE) * UNIT);
    for (int i = 1; i <= CONVS; i++) { /* above the buffers, the code that waits longest first */
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        assert_int_equal(segment_of(&lent, name, 1)->offset, (1 + CONVS + 3 * MAP + (i - 1) * CODE) * UNIT);
    }
    plan_terse_within(&apart, graph, "freelunch:rate=8", CODE * UNIT, APART * UNIT - 1);
    assert_int_equal(apart.plan->peak_bytes, lent.plan->peak_bytes);
    planned_done(&apart);
    plan_terse_within(&apart, graph, "freelunch:rate=8", CODE * UNIT, APART * UNIT);
    assert_int_equal(apart.plan->peak_bytes, APART * UNIT);
    planned_done(&apart);
    planned_done(&lent);
    mm_graph_destroy(graph);
}

TEST_CASE(a_deeper_decode_takes_more_buffers) {
    static const int buffers[] = {0, 3, 3, 3, 4, 5, 6, 6}; /* by depth; there are six maps */
    mm_graph *graph = chain();
    for (int depth = 1; depth <= 7; depth++) {
        planned p;
        char spec[64];
        snprintf(spec, sizeof spec, "freelunch:rate=8,depth=%d", depth);
        plan_terse(&p, graph, spec, CODE * UNIT);
        assert_int_equal(p.plan->buffers, buffers[depth]);
        planned_done(&p);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(codes_lie_one_after_the_other_by_first_backward_use) {
    mm_graph *graph = chain();
    planned p;
    int64_t offset = -1;
    plan_terse(&p, graph, "freelunch:rate=8", CODE * UNIT - 10);
    for (int i = CONVS; i >= 1; i--) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        const mm_segment *code = segment_of(&p, name, 1);
        assert_int_equal(code->content, MM_CONTENT_CODED);
        assert_int_equal(code->bytes, CODE * UNIT - 10);
        if (offset >= 0) assert_int_equal(code->offset, offset);
        offset = code->offset + CODE * UNIT;
    }
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* Writes the plan from the first decode on: decoded maps, and steps between bars: "x6 x5 | loss | x4 | conv6 | ..." */
static void tell_backward(const mm_plan *plan, char *text, size_t capacity) {
    text[0] = '\0';
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        size_t used = strlen(text);
        if (n->kind == MM_NODE_DECODE)
            snprintf(text + used, capacity - used, "%s ", mm_graph_tensor(plan->graph, n->tensor)->name);
        if (n->kind != MM_NODE_STEP || mm_graph_step(plan->graph, n->step)->phase != MM_BACKWARD) continue;
        mm_layer layer = mm_graph_step(plan->graph, n->step)->layer;
        snprintf(text + used, capacity - used, "| %s | ", mm_graph_layer(plan->graph, layer)->name);
    }
}

TEST_CASE(decodes_run_ahead_by_the_depth_then_follow_one_by_one) {
    mm_graph *graph = chain();
    planned p;
    char text[512];
    plan_terse(&p, graph, "freelunch:rate=8", CODE * UNIT);
    tell_backward(p.plan, text, sizeof text);
    assert_string_equal(text,
                        "x6 x5 | loss | x4 | conv6 | x3 | conv5 | x2 | conv4 | x1 | conv3 | | conv2 | | conv1 | ");
    planned_done(&p);
    plan_terse(&p, graph, "freelunch:rate=8,depth=4", CODE * UNIT);
    tell_backward(p.plan, text, sizeof text);
    assert_string_equal(text,
                        "x6 x5 x4 x3 | loss | x2 | conv6 | x1 | conv5 | | conv4 | | conv3 | | conv2 | | conv1 | ");
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* With depth=0 each step waits for the encode before it, and each decode for the step before it; so a map's bytes are
 * free as soon as it is encoded. */
TEST_CASE(at_depth_zero_codecs_are_in_line_with_the_steps) {
    mm_graph *graph = chain();
    planned p;
    char text[512];
    plan_terse(&p, graph, "freelunch:rate=8,depth=0", CODE * UNIT);
    tell_backward(p.plan, text, sizeof text);
    assert_string_equal(text,
                        "x6 | loss | x5 | conv6 | x4 | conv5 | x3 | conv4 | x2 | conv3 | x1 | conv2 | | conv1 | ");
    int encodes = 0, decodes = 0;
    for (int i = 1; i < p.plan->n_nodes; i++) {
        const mm_node *n = &p.plan->nodes[i], *before = &p.plan->nodes[i - 1];
        decodes += n->kind == MM_NODE_DECODE;
        if (n->kind == MM_NODE_DECODE && before->kind == MM_NODE_STEP)
            assert_int_equal(n->wait[MM_STREAM_COMPUTE], before->seq);
        if (before->kind == MM_NODE_ENCODE) {
            assert_int_equal(n->wait[MM_STREAM_ENCODE], before->seq);
            encodes++;
        }
    }
    assert_int_equal(encodes, CONVS);
    assert_int_equal(decodes, CONVS);
    assert_int_equal(p.plan->buffers, 2); /* a step's input and output; depth=1 has a third, being encoded */
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(each_map_is_encoded_after_its_last_forward_use) {
    mm_graph *graph = chain();
    planned p;
    plan_terse(&p, graph, "freelunch:rate=8", CODE * UNIT);
    int encodes = 0;
    for (int i = 0; i < p.plan->n_nodes; i++) {
        const mm_node *n = &p.plan->nodes[i];
        if (n->kind != MM_NODE_ENCODE) continue;
        assert_int_equal(p.plan->nodes[i - 1].step, mm_graph_tensor(graph, n->tensor)->last_forward);
        assert_int_equal(n->wait[MM_STREAM_COMPUTE], p.plan->nodes[i - 1].seq);
        encodes++;
    }
    assert_int_equal(encodes, CONVS);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- how many buffers */

static mm_status plan_status(const mm_graph *graph, const char *spec) {
    mm_policy policy;
    mm_plan *plan;
    mm_limits limits = {.device_bytes = INT64_C(1) << 40, .base_bytes = 64 * UNIT};
    mm_graph_facts *facts = terse_facts(graph, UNIT);
    assert_int_equal(mm_policy_parse(spec, &policy), MM_OK);
    mm_status status = mm_policy_plan(&policy, graph, facts, &limits, &plan);
    if (status == MM_OK) mm_plan_destroy(plan);
    mm_policy_fini(&policy);
    mm_graph_facts_destroy(facts);
    return status;
}

TEST_CASE(too_few_buffers_are_refused_naming_how_many_it_takes) {
    mm_graph *graph = chain();
    planned p;
    assert_int_equal(plan_status(graph, "freelunch:rate=8,when=always,k=2"), MM_ERR_INFEASIBLE);
    assert_says("2");
    assert_says("3");
    assert_int_equal(plan_status(graph, "freelunch:rate=8,when=always,k=1"), MM_ERR_INFEASIBLE);
    assert_int_equal(plan_status(graph, "freelunch:rate=8,when=always,k=3"), MM_OK);
    plan_terse(&p, graph, "freelunch:rate=8,k=5", CODE * UNIT);
    assert_true(p.plan->buffers >= 3 && p.plan->buffers <= 5);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* `blocks` residual blocks: conv, conv, add, whose backward needs all the maps. Block i reads s(i-1) and gives s(i). */
static mm_graph *residual_chain(int blocks) {
    static const char *const names[] = {"s#", "ds#", "a#", "da#", "b#", "db#"};
    terse_graph g;
    terse_init(&g, "residual_chain");
    terse_persistent(&g, "loss", 1);
    for (g.i = 0; g.i <= blocks; g.i++)
        for (int n = 0; n < (g.i ? 6 : 2); n++) terse_map(&g, names[n], n % 2 ? MM_GRADIENT_MAP : MM_FEATURE_MAP, MAP);
    terse_step(&g, "stem", MM_LAYER_CONV, MM_FORWARD, "=s0");
    for (g.i = 1; g.i <= blocks; g.i++) {
        terse_step(&g, "conv#a", MM_LAYER_CONV, MM_FORWARD, "s< =a#");
        terse_step(&g, "conv#b", MM_LAYER_CONV, MM_FORWARD, "a# =b#");
        terse_step(&g, "add#", MM_LAYER_ADD, MM_FORWARD, "b# s< =s#");
    }
    g.i = blocks;
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "s# +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "s# =ds#");
    for (; g.i >= 1; g.i--) {
        terse_step(&g, "add#", MM_LAYER_ADD, MM_BACKWARD, "b# ds# =db# =ds<");
        terse_step(&g, "conv#b", MM_LAYER_CONV, MM_BACKWARD, "a# db# =da#");
        terse_step(&g, "conv#a", MM_LAYER_CONV, MM_BACKWARD, "s< da# +ds<");
    }
    terse_step(&g, "stem", MM_LAYER_CONV, MM_BACKWARD, "ds0");
    return terse_freeze(&g);
}

TEST_CASE(a_residual_network_takes_one_buffer_more_and_no_more_however_deep) {
    for (int blocks = 2; blocks <= 8; blocks += 3) {
        mm_graph *graph = residual_chain(blocks);
        planned p;
        plan_terse(&p, graph, "freelunch:rate=8,eligible=all", CODE * UNIT);
        /* At the second conv: the block's input, which the sum still needs; a and b; and the last map, which is being
         * in flight. */
        assert_int_equal(p.plan->buffers, 4);
        planned_done(&p);
        assert_int_equal(plan_status(graph, "freelunch:rate=8,when=always,eligible=all,k=3"), MM_ERR_INFEASIBLE);
        assert_says("4");
        mm_graph_destroy(graph);
    }
}

/* ---------------------------------------------------------------- signs, and what is eligible */

/* conv -> c; relu over it -> r; conv2 reads r; the relu's backward step reads r's sign. value: conv2's backward
 * step reads r's value. */
static mm_graph *rectified(bool value) {
    terse_graph g;
    terse_init(&g, "rectified");
    terse_map(&g, "c", MM_FEATURE_MAP, MAP);
    terse_map(&g, "r", MM_FEATURE_MAP, MAP);
    terse_map(&g, "y", MM_FEATURE_MAP, MAP);
    terse_map(&g, "dr", MM_GRADIENT_MAP, MAP);
    terse_map(&g, "dc", MM_GRADIENT_MAP, MAP);
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "=c");
    terse_step(&g, "relu", MM_LAYER_RELU, MM_FORWARD, "c =r");
    terse_inplace(&g, "c", "r");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_FORWARD, "r =y");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_BACKWARD, value ? "r =dr" : "=dr");
    terse_step(&g, "relu", MM_LAYER_RELU, MM_BACKWARD, "?r dr =dc");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "dc");
    return terse_freeze(&g);
}

static int count_nodes(const mm_plan *plan, mm_node_kind kind) {
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++) n += plan->nodes[i].kind == kind;
    return n;
}

TEST_CASE(a_map_of_which_only_the_sign_is_read_is_masked_and_not_decoded) {
    mm_graph *graph = rectified(false);
    planned p;
    plan_terse(&p, graph, "freelunch:rate=8", CODE * UNIT);
    assert_int_equal(count_nodes(p.plan, MM_NODE_ENCODE), 1);
    assert_int_equal(count_nodes(p.plan, MM_NODE_DECODE), 0);
    const mm_segment *code = segment_of(&p, "r", 1);
    assert_string_equal(p.facts->codecs[code->codec].spec, "mask");
    assert_int_equal(code->bytes, MAP * UNIT / 32);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(a_lossy_code_of_a_relus_output_has_the_exact_mask_beside_it) {
    mm_graph *graph = rectified(true);
    planned p;
    plan_terse(&p, graph, "freelunch:rate=8", CODE * UNIT);
    assert_int_equal(count_nodes(p.plan, MM_NODE_ENCODE), 2);
    assert_int_equal(count_nodes(p.plan, MM_NODE_DECODE), 1);
    for (int i = 0; i < p.plan->n_nodes; i++) {
        const mm_node *n = &p.plan->nodes[i];
        if (n->kind != MM_NODE_STEP ||
            strcmp(mm_graph_layer(graph, mm_graph_step(graph, n->step)->layer)->name, "relu") != 0)
            continue;
        const mm_segment *read = &p.plan->segments[p.plan->bindings[n->first_binding]];
        bool backward = mm_graph_step(graph, n->step)->phase == MM_BACKWARD;
        assert_int_equal(read->content, backward ? MM_CONTENT_CODED : MM_CONTENT_RAW);
        if (backward) assert_string_equal(p.facts->codecs[read->codec].spec, "mask");
    }
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(only_what_a_convolution_began_is_eligible_unless_all_is) {
    terse_graph g;
    planned p;
    terse_init(&g, "eligible");
    terse_map(&g, "f", MM_FEATURE_MAP, MAP);
    terse_map(&g, "c", MM_FEATURE_MAP, MAP);
    terse_step(&g, "linear", MM_LAYER_LINEAR, MM_FORWARD, "=f");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "f =c");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "f c");
    mm_graph *graph = terse_freeze(&g);
    plan_terse(&p, graph, "freelunch:rate=8", CODE * UNIT);
    assert_int_equal(count_nodes(p.plan, MM_NODE_ENCODE), 1);
    assert_null(segment_of(&p, "f", 1));
    planned_done(&p);
    plan_terse(&p, graph, "freelunch:rate=8,eligible=all", CODE * UNIT);
    assert_int_equal(count_nodes(p.plan, MM_NODE_ENCODE), 2);
    planned_done(&p);
    plan_terse(&p, graph, "freelunch:rate=8,eligible=all", -1); /* a codec that takes none of the maps */
    assert_int_equal(count_nodes(p.plan, MM_NODE_ENCODE), 0);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- the unoptimised workflow, codecs */

TEST_CASE(the_unoptimised_workflow_places_codes_or_maps_at_run_time) {
    mm_graph *graph = chain();
    planned p;
    plan_terse(&p, graph, "freelunch:rate=8,workspace=naive", CODE * UNIT);
    assert_int_equal(p.plan->code_region_bytes, 0);
    assert_int_equal(p.plan->buffers, 3);
    assert_true(p.plan->heap_bytes > 0);
    for (int i = 0; i < p.plan->n_nodes; i++)
        if (p.plan->nodes[i].kind == MM_NODE_ENCODE) assert_true(p.plan->nodes[i].stage >= 0);
    assert_true(segment_of(&p, "x1", 1)->dynamic);
    planned_done(&p);
    plan_terse(&p, graph, "freelunch:rate=8,buffers=naive", CODE * UNIT);
    assert_int_equal(p.plan->code_region_bytes, CONVS * CODE * UNIT);
    assert_int_equal(p.plan->buffers, 0);
    assert_true(segment_of(&p, "x1", 0)->dynamic);
    assert_false(segment_of(&p, "x1", 1)->dynamic);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(a_codec_without_facts_is_refused_by_name) {
    mm_graph *graph = chain();
    assert_int_equal(plan_status(graph, "freelunch:rate=7"), MM_ERR_INVALID);
    assert_says("zfp:rate=7");
    assert_int_equal(plan_status(graph, "freelunch:codec=mask"), MM_ERR_INVALID);
    assert_says("mask");
    mm_graph_destroy(graph);
}
