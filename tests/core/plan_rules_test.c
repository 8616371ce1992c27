/* SPDX-License-Identifier: MIT */
/* The rules of mm_program_prove one by one, on a plan made by hand: what breaks each, and what the message says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/plan/plan.h"
#include "tests/core/plan_proof.h"
#include "tests/core/small_graph.h"

/* All of the small graph: `out` in the place of `map`, its mask and its lossy code made after loss forward, decoded
 * for loss backward; `d_map` in the place of `d_out`.
 *
 *   0     768        4864            8960       13056  13568    14592
 *   | base | map, out | out (decoded) | d_out, d_map | mask | code | workspace */
enum {
    BASE = 768, /* weight, d_weight, loss */
    RAW_AT = BASE,
    DECODED_AT = RAW_AT + 4096,
    GRADIENT_AT = DECODED_AT + 4096,
    MASK_AT = GRADIENT_AT + 4096,
    CODE_AT = MASK_AT + 512,
    WORK_AT = CODE_AT + 1024
};
enum { LOSSY, MASK, CODECS };
enum { MASK_BYTES = 128, CODE_BYTES = 1000 };

typedef struct fixture {
    small_graph g;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_limits limits;
    int steps[SMALL_STEPS], encode_mask, encode, decode;        /* nodes */
    int map, out, decoded, d_out, d_map, mask, code, workspace; /* segments */
} fixture;

static int segment(fixture *f, mm_content content, mm_tensor tensor, int64_t offset, int64_t bytes, int codec) {
    int index = mm_plan_segment(f->plan, content, MM_CAT_FEATURE_MAP, tensor, bytes);
    assert_true(index >= 0);
    f->plan->segments[index].offset = offset;
    f->plan->segments[index].codec = codec;
    return index;
}

static void bind(fixture *f, int step, int use, int to) {
    f->plan->bindings[f->plan->nodes[f->steps[step]].first_binding + use] = to;
}

static void make_facts(fixture *f) {
    assert_int_equal(mm_graph_facts_create(f->g.graph, CODECS, &f->facts), MM_OK);
    f->facts->codecs[LOSSY] = (mm_codec_facts){.spec = "lossy", .gives_value = true};
    f->facts->codecs[MASK] = (mm_codec_facts){.spec = "mask", .lossless = true, .gives_sign = true};
    int n = f->facts->n_tensors;
    f->facts->codes[LOSSY * n + f->g.out] = (mm_code_facts){.code_bytes = CODE_BYTES};
    f->facts->codes[MASK * n + f->g.out] = (mm_code_facts){.code_bytes = MASK_BYTES};
}

static void make_segments(fixture *f) {
    f->map = segment(f, MM_CONTENT_RAW, f->g.map, RAW_AT, SMALL_MAP_BYTES, -1);
    f->out = segment(f, MM_CONTENT_RAW, f->g.out, RAW_AT, SMALL_MAP_BYTES, -1);
    f->decoded = segment(f, MM_CONTENT_RAW, f->g.out, DECODED_AT, SMALL_MAP_BYTES, -1);
    f->d_out = segment(f, MM_CONTENT_RAW, f->g.d_out, GRADIENT_AT, SMALL_MAP_BYTES, -1);
    f->d_map = segment(f, MM_CONTENT_RAW, f->g.d_map, GRADIENT_AT, SMALL_MAP_BYTES, -1);
    f->mask = segment(f, MM_CONTENT_CODED, f->g.out, MASK_AT, MASK_BYTES, MASK);
    f->code = segment(f, MM_CONTENT_CODED, f->g.out, CODE_AT, CODE_BYTES, LOSSY);
    f->workspace = segment(f, MM_CONTENT_WORK, -1, WORK_AT, 1000, -1);
}

static void make_nodes(fixture *f) {
    for (int s = 0; s < SMALL_STEPS; s++) {
        if (s == LOSS_B) f->decode = mm_plan_op(f->plan, MM_NODE_DECODE, f->g.out, f->code, f->decoded);
        f->steps[s] = mm_plan_step(f->plan, s);
        if (s != LOSS_F) continue;
        f->encode_mask = mm_plan_op(f->plan, MM_NODE_ENCODE, f->g.out, f->out, f->mask);
        f->encode = mm_plan_op(f->plan, MM_NODE_ENCODE, f->g.out, f->out, f->code);
    }
    mm_plan_wait(f->plan, f->encode_mask, f->steps[RELU_F]);
    mm_plan_wait(f->plan, f->decode, f->encode);
    mm_plan_wait(f->plan, f->steps[LOSS_B], f->decode);
    f->plan->nodes[f->steps[CONV_B]].work = f->workspace;
    bind(f, CONV_F, 2, f->map);
    bind(f, RELU_F, 0, f->map);
    bind(f, RELU_F, 1, f->out);
    bind(f, LOSS_F, 0, f->out);
    bind(f, LOSS_B, 0, f->decoded);
    bind(f, LOSS_B, 1, f->d_out);
    bind(f, RELU_B, 0, f->mask);
    bind(f, RELU_B, 1, f->d_out);
    bind(f, RELU_B, 2, f->d_map);
    bind(f, CONV_B, 1, f->d_map);
}

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->g = small_graph_create();
    f->limits = (mm_limits){.base_bytes = BASE, .device_bytes = WORK_AT + 1000 + SMALL_IMAGE_BYTES};
    make_facts(f);
    assert_int_equal(mm_plan_create(f->g.graph, &f->limits, &f->plan), MM_OK);
    assert_int_equal(mm_plan_name(f->plan, "by-hand"), MM_OK);
    make_segments(f);
    make_nodes(f);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->g.graph);
    free(f);
    return 0;
}

/* Finishes the plan and checks it: the status, and that the message has all the words ("a|b|c"). */
static void expect(fixture *f, mm_status status, const char *words) {
    char copy[200];
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    mm_status got = plan_check(f->plan, f->facts, &f->limits);
    if (got != status)
        fail_msg("expected %s, got %s: %s", mm_status_name(status), mm_status_name(got), mm_last_error());
    strcpy(copy, words);
    for (char *rest = copy, *word; (word = strtok_r(rest, "|", &rest));)
        if (!strstr(mm_last_error(), word)) fail_msg("no '%s' in: %s", word, mm_last_error());
}

static mm_node *node(fixture *f, int index) { return &f->plan->nodes[index]; }
static mm_segment *seg(fixture *f, int index) { return &f->plan->segments[index]; }

static void plan_by_hand_is_right(void **state) { expect(*state, MM_OK, ""); }

static void step_reads_a_decode_without_waiting_for_it(void **state) {
    fixture *f = *state;
    node(f, f->steps[LOSS_B])->wait[MM_STREAM_DECODE] = -1;
    expect(f, MM_ERR_PLAN, "by-hand|small|loss backward|tensor out|without a wait for decode of out");
}

static void encode_reads_a_map_without_waiting_for_its_step(void **state) {
    fixture *f = *state;
    node(f, f->encode_mask)->wait[MM_STREAM_COMPUTE] = CONV_F;
    expect(f, MM_ERR_PLAN, "encode of out after loss forward|without a wait for relu forward");
}

static void operation_waits_for_one_that_is_issued_later(void **state) {
    fixture *f = *state;
    node(f, f->encode)->wait[MM_STREAM_DECODE] = 0;
    expect(f, MM_ERR_PLAN, "encode of out|decode stream|not issued before");
}

static void signs_are_read_from_a_decoded_lossy_code(void **state) {
    fixture *f = *state;
    bind(f, RELU_B, 0, f->decoded);
    expect(f, MM_ERR_PLAN, "relu backward|tensor out|lossy");
}

static void elements_are_read_from_a_mask(void **state) {
    fixture *f = *state;
    bind(f, LOSS_B, 0, f->mask);
    expect(f, MM_ERR_PLAN, "loss backward|tensor out|mask|elements");
}

static void mask_is_decoded(void **state) {
    fixture *f = *state;
    node(f, f->decode)->src = f->mask;
    expect(f, MM_ERR_PLAN, "decode of out|mask|does not give the elements");
}

static void output_is_written_in_place_while_an_encode_may_read_it(void **state) {
    fixture *f = *state;
    seg(f, f->d_out)->offset = seg(f, f->d_map)->offset = RAW_AT;
    /* The decode, for which loss backward waits, waits for the encode: as it should be. */
    expect(f, MM_OK, "");
    node(f, f->decode)->wait[MM_STREAM_ENCODE] = 0; /* now it waits for the mask's encode only */
    expect(f, MM_ERR_PLAN, "tensor out|without a wait for encode of out");
}

static void decode_over_a_map_that_a_step_may_still_read(void **state) {
    fixture *f = *state;
    seg(f, f->decoded)->offset = RAW_AT;
    expect(f, MM_ERR_PLAN, "decode of out|segment 5 is put over segment 4 (out), which loss forward may still use");
    node(f, f->decode)->wait[MM_STREAM_COMPUTE] = LOSS_F;
    expect(f, MM_OK, "");
}

static void code_over_the_map_that_it_is_made_of(void **state) {
    fixture *f = *state;
    seg(f, f->code)->offset = RAW_AT + 256;
    expect(f, MM_ERR_PLAN, "encode of out|tensor out|is put over");
}

static void workspace_lies_over_what_its_step_reads(void **state) {
    fixture *f = *state;
    seg(f, f->workspace)->offset = GRADIENT_AT + 1024;
    expect(f, MM_ERR_PLAN, "conv backward|tensor d_map|is put over");
}

static void place_is_taken_in_place_at_another_offset(void **state) {
    fixture *f = *state;
    seg(f, f->d_map)->offset = GRADIENT_AT - MM_ALIGN;
    expect(f, MM_ERR_PLAN, "relu backward|tensor d_map|is put over");
}

static void place_is_taken_of_a_tensor_that_is_still_needed(void **state) {
    fixture *f = *state;
    seg(f, f->d_out)->offset = DECODED_AT;
    expect(f, MM_ERR_PLAN, "loss backward|tensor d_out|is put over");
}

static void alias_that_the_graph_does_not_allow(void **state) {
    fixture *f = *state;
    f->plan->alias[f->g.d_map] = f->g.d_out;
    expect(f, MM_ERR_PLAN, "d_map");
}

static void decode_that_nobody_reads(void **state) {
    fixture *f = *state;
    bind(f, LOSS_B, 0, f->out);
    expect(f, MM_ERR_PLAN, "decode of out|not used");
}

static void segment_that_nobody_uses(void **state) {
    fixture *f = *state;
    segment(f, MM_CONTENT_WORK, -1, WORK_AT + 1024, 10, -1);
    expect(f, MM_ERR_PLAN, "segment 11|no node uses it");
}

static void tensor_that_is_not_bound(void **state) {
    fixture *f = *state;
    bind(f, CONV_B, 1, -1);
    expect(f, MM_ERR_PLAN, "conv backward|tensor d_map|not bound");
}

static void external_tensor_that_is_bound(void **state) {
    fixture *f = *state;
    bind(f, CONV_F, 0, f->map);
    expect(f, MM_ERR_PLAN, "conv forward|tensor images|fixed place");
}

static void workspace_too_small_for_the_variant(void **state) {
    fixture *f = *state;
    f->facts->variants[CONV_B].workspace_bytes = 1001;
    expect(f, MM_ERR_PLAN, "conv backward|1000 bytes of the 1001");
}

static void code_smaller_than_the_facts_say(void **state) {
    fixture *f = *state;
    seg(f, f->code)->bytes = CODE_BYTES - 1;
    expect(f, MM_ERR_PLAN, "tensor out|not of the code's size");
}

static void step_twice(void **state) {
    fixture *f = *state;
    node(f, f->steps[UPDATE])->step = CONV_B;
    node(f, f->steps[UPDATE])->first_binding = node(f, f->steps[CONV_B])->first_binding;
    expect(f, MM_ERR_PLAN, "step 5|step 6 is due");
}

static void step_missing(void **state) {
    fixture *f = *state;
    f->plan->n_nodes--;
    f->plan->stream_nodes[MM_STREAM_COMPUTE]--;
    expect(f, MM_ERR_PLAN, "6 of the graph's 7 steps");
}

static void segment_below_the_base(void **state) {
    fixture *f = *state;
    seg(f, f->mask)->offset = 256;
    expect(f, MM_ERR_PLAN, "tensor out|below");
}

static void base_that_grew_since_the_plan_was_made(void **state) {
    fixture *f = *state;
    f->plan->base_bytes = BASE - MM_ALIGN;
    expect(f, MM_ERR_PLAN, "base");
}

static void budget_one_byte_short(void **state) {
    fixture *f = *state;
    f->limits.device_bytes--;
    expect(f, MM_ERR_INFEASIBLE, "small|16792");
}

static void pinned_code_counts_against_the_pinned_limit(void **state) {
    fixture *f = *state;
    seg(f, f->code)->memory = MM_MEM_PINNED;
    seg(f, f->code)->offset = 0;
    f->limits.pinned_bytes = CODE_BYTES;
    expect(f, MM_OK, "");
    f->limits.pinned_bytes--;
    expect(f, MM_ERR_INFEASIBLE, "pinned");
}

static void map_in_pinned_memory(void **state) {
    fixture *f = *state;
    seg(f, f->decoded)->memory = MM_MEM_PINNED;
    f->limits.pinned_bytes = INT64_MAX;
    expect(f, MM_ERR_PLAN, "tensor out|pinned");
}

static void heap_smaller_than_what_lives_in_it(void **state) {
    fixture *f = *state;
    seg(f, f->code)->dynamic = seg(f, f->mask)->dynamic = seg(f, f->decoded)->dynamic = true;
    f->plan->heap_offset = WORK_AT + 1024;
    f->plan->heap_code_bytes = 1024 + 256;
    f->plan->heap_bytes = f->plan->heap_code_bytes + 4096;
    f->limits.device_bytes = INT64_MAX;
    expect(f, MM_OK, "");
    f->plan->heap_bytes--;
    expect(f, MM_ERR_PLAN, "decode of out|4096 bytes of a heap of 4095");
    f->plan->heap_bytes = f->plan->heap_code_bytes + 4096 + MM_ALIGN;
    f->plan->heap_code_bytes -= MM_ALIGN;
    expect(f, MM_ERR_PLAN, "encode of out|1280 bytes of a heap of 1024 for codes");
}

static void segment_inside_the_heap(void **state) {
    fixture *f = *state;
    seg(f, f->code)->dynamic = true;
    f->plan->heap_offset = WORK_AT;
    f->plan->heap_bytes = f->plan->heap_code_bytes = 1024;
    expect(f, MM_ERR_PLAN, "lies in the heap");
}

static void heap_below_the_base(void **state) {
    fixture *f = *state;
    seg(f, f->mask)->dynamic = true;
    f->plan->heap_offset = BASE - MM_ALIGN;
    f->plan->heap_bytes = f->plan->heap_code_bytes = MM_ALIGN;
    expect(f, MM_ERR_PLAN, "its heap (256 bytes at 512) is out of place");
}

static void bindings_beyond_the_end_of_the_plans(void **state) {
    fixture *f = *state;
    mm_node *last = node(f, f->steps[UPDATE]);
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    for (int by = 1; by <= 2; by++) {
        last->first_binding++;
        assert_int_equal(plan_check(f->plan, f->facts, &f->limits), MM_ERR_PLAN);
        assert_non_null(strstr(mm_last_error(), "its bindings are out of range"));
    }
}

static void what_is_kept_to_the_end_may_count_to_the_end(void **state) {
    fixture *f = *state;
    f->plan->keeps_all = true;
    expect(f, MM_OK, "");
    f->plan->keeps_all = false; /* the lives in the plan are still those that keep all */
    assert_int_equal(plan_check(f->plan, f->facts, &f->limits), MM_ERR_PLAN);
}

static void plan_that_was_not_finished(void **state) {
    fixture *f = *state;
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    f->plan->peak_bytes -= 100;
    assert_int_equal(plan_check(f->plan, f->facts, &f->limits), MM_ERR_PLAN);
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    seg(f, f->code)->last_node--;
    assert_int_equal(plan_check(f->plan, f->facts, &f->limits), MM_ERR_PLAN);
}

static void facts_of_another_graph(void **state) {
    fixture *f = *state;
    f->facts->n_steps--;
    expect(f, MM_ERR_PLAN, "facts");
    f->facts->n_steps++;
}

/* ---------------------------------------------------------------- steps that run again */

/* step    reads       writes
 * MAKE    fixed       map
 * BETWEEN map         fixed     (modified, or only read)
 * USE     map         sum */
enum { MAKE, BETWEEN, USE };

/* Checks a plan in which MAKE runs again, into another segment, before USE. codes: the second run has a list of codes
 * to write, all empty. */
static mm_status check_made_again(mm_layer_kind kind, mm_ownership ownership, mm_phase made_in, mm_access between,
                                  bool codes) {
    enum { BYTES = 1024 };
    mm_graph *g;
    mm_graph_facts *facts;
    mm_plan *plan;
    assert_int_equal(mm_graph_create("again", &g), MM_OK);
    mm_tensor fixed = small_tensor(g, "fixed", MM_STATE, ownership, BYTES),
              map = small_tensor(g, "map", MM_FEATURE_MAP, MM_MANAGED, BYTES),
              sum = small_tensor(g, "sum", MM_STATE, MM_PERSISTENT, 4);
    const mm_use make[] = {{fixed, MM_READ, MM_FORM_VALUE}, {map, MM_WRITE, MM_FORM_VALUE}},
                 change[] = {{map, MM_READ, MM_FORM_VALUE}, {fixed, between, MM_FORM_VALUE}},
                 use[] = {{map, MM_READ, MM_FORM_VALUE}, {sum, MM_WRITE, MM_FORM_VALUE}};
    small_step(g, small_layer(g, "make", kind), made_in, make, 2, 0);
    small_step(g, small_layer(g, "between", MM_LAYER_UPDATE), MM_BACKWARD, change, 2, 0);
    small_step(g, small_layer(g, "use", MM_LAYER_LOSS), MM_BACKWARD, use, 2, 0);
    assert_int_equal(mm_graph_freeze(g), MM_OK);
    assert_int_equal(mm_graph_facts_create(g, 0, &facts), MM_OK);
    const mm_limits limits = {.device_bytes = INT64_MAX, .base_bytes = mm_plan_base(g)};
    assert_int_equal(mm_plan_create(g, &limits, &plan), MM_OK);
    int segments[2];
    for (int i = 0; i < 2; i++) {
        segments[i] = mm_plan_segment(plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, map, BYTES);
        plan->segments[segments[i]].offset = limits.base_bytes + BYTES * i;
    }
    const int nodes[] = {mm_plan_step(plan, MAKE), mm_plan_step(plan, BETWEEN), mm_plan_recompute(plan, MAKE),
                         mm_plan_step(plan, USE)};
    const int map_is_use[] = {1, 0, 1, 0};
    for (int i = 0; i < 4; i++) plan->bindings[plan->nodes[nodes[i]].first_binding + map_is_use[i]] = segments[i / 2];
    if (codes) assert_true(mm_plan_write_code(plan, nodes[2], 1, -1));
    assert_int_equal(mm_plan_finish(plan), MM_OK);
    mm_status status = plan_check(plan, facts, &limits);
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(g);
    return status;
}

static void a_step_runs_again_only_on_what_it_read_the_first_time(void **state) {
    (void)state;
    const mm_ownership fixed[] = {MM_PERSISTENT, MM_EXTERNAL};
    for (int i = 0; i < 2; i++) {
        if (check_made_again(MM_LAYER_RELU, fixed[i], MM_FORWARD, MM_READ, false) != MM_OK)
            fail_msg("%s", mm_last_error());
        assert_int_equal(check_made_again(MM_LAYER_RELU, fixed[i], MM_FORWARD, MM_MODIFY, false), MM_ERR_PLAN);
        assert_non_null(strstr(mm_last_error(), "tensor fixed: has changed since the step ran"));
        assert_int_equal(check_made_again(MM_LAYER_RELU, fixed[i], MM_FORWARD, MM_WRITE, false), MM_ERR_PLAN);
    }
}

static void a_step_that_does_not_repeat_does_not_run_again(void **state) {
    (void)state;
    assert_int_equal(check_made_again(MM_LAYER_OTHER, MM_EXTERNAL, MM_FORWARD, MM_READ, false), MM_ERR_PLAN);
    assert_non_null(strstr(mm_last_error(), "recompute of make forward after between backward: does not repeat"));
}

static void a_backward_step_does_not_run_again(void **state) {
    (void)state;
    assert_int_equal(check_made_again(MM_LAYER_RELU, MM_PERSISTENT, MM_BACKWARD, MM_READ, false), MM_ERR_PLAN);
    assert_non_null(strstr(mm_last_error(), "only a forward step can be recomputed"));
}

/* ---------------------------------------------------------------- persistent tensors */

enum { WEIGHT, D_WEIGHT, LOSS }; /* their segments */

static void a_step_that_runs_again_writes_no_codes(void **state) {
    (void)state;
    assert_int_equal(check_made_again(MM_LAYER_RELU, MM_PERSISTENT, MM_FORWARD, MM_READ, true), MM_ERR_PLAN);
    assert_non_null(strstr(mm_last_error(), "only a step that runs first writes codes"));
}

static void persistent_tensor_elsewhere_than_its_place(void **state) {
    fixture *f = *state;
    seg(f, D_WEIGHT)->offset += MM_ALIGN;
    expect(f, MM_ERR_PLAN, "tensor d_weight|lies at 512 on the device, but its place is at 256 on");
}

static void places_are_those_of_the_limits(void **state) {
    fixture *f = *state;
    mm_place places[] = {{.offset = 512}, {.offset = 0}, {.offset = 256}};
    f->limits.places = places;
    expect(f, MM_ERR_PLAN, "tensor weight|lies at 0 on the device, but its place is at 512 on");
    for (int i = 0; i < 3; i++) seg(f, i)->offset = places[i].offset;
    expect(f, MM_OK, "");
    places[LOSS].offset = seg(f, LOSS)->offset = 512;
    expect(f, MM_ERR_PLAN, "tensor loss|overlaps segment 0");
    places[LOSS].offset = seg(f, LOSS)->offset = BASE;
    expect(f, MM_ERR_PLAN, "tensor loss|not below the base of 768 bytes");
}

static void persistent_tensor_bound_to_no_or_another_segment(void **state) {
    fixture *f = *state;
    bind(f, UPDATE, 1, -1);
    expect(f, MM_ERR_PLAN, "conv update|tensor weight|is bound to segment -1, but has a fixed place");
    bind(f, UPDATE, 1, D_WEIGHT);
    expect(f, MM_ERR_PLAN, "conv update|tensor weight|is bound to segment 1, but has a fixed place");
}

static void segment_that_only_counts_as_persistent(void **state) {
    fixture *f = *state;
    seg(f, f->out)->category = MM_CAT_PERSISTENT;
    expect(f, MM_ERR_PLAN, "tensor out|is not of a persistent tensor");
}

/* A copy of a persistent tensor to pinned memory, and back: after the update if `late`, else before it. */
typedef struct trip {
    int out, in; /* nodes */
} trip;

static trip send_and_fetch(fixture *f, mm_tensor tensor, int home, bool late) {
    trip t;
    const mm_node update = f->plan->nodes[--f->plan->n_nodes];
    f->plan->stream_nodes[MM_STREAM_COMPUTE]--;
    const int copy = segment(f, MM_CONTENT_RAW, tensor, 0, SMALL_WEIGHT_BYTES, -1);
    seg(f, copy)->memory = MM_MEM_PINNED;
    f->limits.pinned_bytes = SMALL_WEIGHT_BYTES;
    t.out = mm_plan_op(f->plan, MM_NODE_OUT, tensor, home, copy);
    mm_plan_wait(f->plan, t.out, f->steps[CONV_B]);
    if (!late) t.in = mm_plan_op(f->plan, MM_NODE_IN, tensor, copy, home);
    f->steps[UPDATE] = mm_plan_step(f->plan, UPDATE);
    f->plan->nodes[f->steps[UPDATE]].first_binding = update.first_binding;
    if (late) t.in = mm_plan_op(f->plan, MM_NODE_IN, tensor, copy, home);
    mm_plan_wait(f->plan, t.in, t.out);
    mm_plan_wait(f->plan, f->steps[UPDATE], t.out);
    mm_plan_wait(f->plan, late ? t.in : f->steps[UPDATE], late ? f->steps[UPDATE] : t.in);
    return t;
}

static void gradient_goes_to_pinned_memory_and_back(void **state) {
    fixture *f = *state;
    trip t = send_and_fetch(f, f->g.d_weight, D_WEIGHT, false);
    expect(f, MM_OK, "");
    node(f, f->steps[UPDATE])->wait[MM_STREAM_IN] = -1;
    expect(f, MM_ERR_PLAN, "conv update|tensor d_weight|without a wait for prefetch of d_weight");
    node(f, f->steps[UPDATE])->wait[MM_STREAM_IN] = 0;
    node(f, t.out)->wait[MM_STREAM_COMPUTE] = f->steps[CONV_F];
    expect(f, MM_ERR_PLAN, "offload of d_weight|without a wait for conv backward");
}

static void weight_is_copied_while_it_changes(void **state) {
    fixture *f = *state;
    trip t = send_and_fetch(f, f->g.weight, WEIGHT, false);
    node(f, t.out)->wait[MM_STREAM_COMPUTE] = f->steps[CONV_F];
    expect(f, MM_OK, "");
    node(f, t.out)->wait[MM_STREAM_COMPUTE] = -1;
    expect(f, MM_ERR_PLAN, "offload of weight|without a wait for any step");
    node(f, t.out)->wait[MM_STREAM_COMPUTE] = f->steps[CONV_F];
    node(f, f->steps[UPDATE])->wait[MM_STREAM_IN] = -1;
    expect(f, MM_ERR_PLAN, "conv update|tensor weight|without a wait for prefetch of weight");
}

static void iteration_ends_with_an_old_weight(void **state) {
    fixture *f = *state;
    send_and_fetch(f, f->g.weight, WEIGHT, true);
    expect(f, MM_ERR_PLAN, "prefetch of weight|does not hold the value that was written last");
}

static void gradient_that_comes_back_after_its_last_reader_is_still_right(void **state) {
    fixture *f = *state;
    send_and_fetch(f, f->g.d_weight, D_WEIGHT, true);
    expect(f, MM_OK, "");
}

/* Refused, though the update then writes the weight: it computes the new one from the inexact one. */
static void weight_is_held_in_a_lossy_code(void **state) {
    fixture *f = *state;
    const mm_node update = f->plan->nodes[--f->plan->n_nodes];
    f->plan->stream_nodes[MM_STREAM_COMPUTE]--;
    f->facts->codes[LOSSY * f->facts->n_tensors + f->g.weight] = (mm_code_facts){.code_bytes = 100};
    const int code = segment(f, MM_CONTENT_CODED, f->g.weight, WORK_AT + 1024, 100, LOSSY);
    f->limits.device_bytes += 1024;
    const int encode = mm_plan_op(f->plan, MM_NODE_ENCODE, f->g.weight, WEIGHT, code);
    const int decode = mm_plan_op(f->plan, MM_NODE_DECODE, f->g.weight, code, WEIGHT);
    f->steps[UPDATE] = mm_plan_step(f->plan, UPDATE);
    f->plan->nodes[f->steps[UPDATE]].first_binding = update.first_binding;
    mm_plan_wait(f->plan, encode, f->steps[CONV_B]);
    mm_plan_wait(f->plan, decode, encode);
    mm_plan_wait(f->plan, f->steps[UPDATE], decode);
    expect(f, MM_ERR_PLAN, "tensor weight|holds a lossy code");
    f->facts->codecs[LOSSY].lossless = true;
    expect(f, MM_OK, "");
}

/* Adds a measure behind all nodes, which waits for step `after`; < 0: for none. */
static mm_node *measure(fixture *f, mm_tensor tensor, int src, int after) {
    const int index = mm_plan_op(f->plan, MM_NODE_MEASURE, tensor, src, -1);
    if (after >= 0) mm_plan_wait(f->plan, index, f->steps[after]);
    return node(f, index);
}

static void maps_and_persistent_tensors_are_measured_where_they_are_exact(void **state) {
    fixture *f = *state;
    measure(f, f->g.out, f->out, RELU_F);
    measure(f, f->g.d_map, f->d_map, RELU_B);
    measure(f, f->g.d_weight, D_WEIGHT, CONV_B);
    mm_node *last = measure(f, f->g.weight, WEIGHT, UPDATE);
    expect(f, MM_OK, "");
    assert_int_equal(seg(f, f->out)->last_node, f->steps[UPDATE] + 1);
    last->wait[MM_STREAM_COMPUTE] = node(f, f->steps[CONV_B])->seq;
    expect(f, MM_ERR_PLAN, "measure of weight|without a wait for conv update");
}

static void measure_of_what_is_not_its_tensors_value(void **state) {
    fixture *f = *state;
    mm_node *n = measure(f, f->g.out, f->decoded, UPDATE);
    expect(f, MM_ERR_PLAN, "measure of out|is measured as it was decoded from a lossy code");
    n->src = f->mask;
    expect(f, MM_ERR_PLAN, "measure of out|its source is a code on the device, not a map on the device");
    n->src = f->out;
    n->dst = f->decoded;
    expect(f, MM_ERR_PLAN, "measure of out|its target is a map on the device, not none");
    n->dst = -1;
    n->work = f->workspace;
    expect(f, MM_ERR_PLAN, "measure of out|is a measure, but has a workspace");
    n->work = -1;
    expect(f, MM_OK, "");
    n->tensor = f->g.d_out;
    n->src = f->d_out; /* at that time d_map lies in its place */
    expect(f, MM_ERR_PLAN, "segment");
}

static void weight_changes_while_it_is_measured(void **state) {
    fixture *f = *state;
    const mm_node update = f->plan->nodes[--f->plan->n_nodes];
    f->plan->stream_nodes[MM_STREAM_COMPUTE]--;
    const int index = mm_plan_op(f->plan, MM_NODE_MEASURE, f->g.weight, WEIGHT, -1);
    f->steps[UPDATE] = mm_plan_step(f->plan, UPDATE);
    f->plan->nodes[f->steps[UPDATE]].first_binding = update.first_binding;
    mm_plan_wait(f->plan, f->steps[UPDATE], index);
    mm_plan_wait(f->plan, index, f->steps[CONV_F]);
    expect(f, MM_OK, "");
    node(f, f->steps[UPDATE])->wait[MM_STREAM_ENCODE]--;
    expect(f, MM_ERR_PLAN, "conv update|tensor weight|is written without a wait for measure of weight");
}

static void persistent_tensors_count_as_the_base(void **state) {
    fixture *f = *state;
    int64_t bytes[MM_CATEGORIES];
    expect(f, MM_OK, "");
    for (int i = 0; i < f->plan->n_nodes; i++) {
        mm_plan_live_at(f->plan, i, bytes);
        assert_int_equal(bytes[MM_CAT_PERSISTENT], BASE);
    }
    assert_int_equal(seg(f, WEIGHT)->first_node, f->steps[CONV_F]);
    assert_int_equal(seg(f, WEIGHT)->last_node, f->steps[UPDATE]);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE(plan_by_hand_is_right),
        RULE(persistent_tensor_elsewhere_than_its_place),
        RULE(places_are_those_of_the_limits),
        RULE(persistent_tensor_bound_to_no_or_another_segment),
        RULE(segment_that_only_counts_as_persistent),
        RULE(gradient_goes_to_pinned_memory_and_back),
        RULE(weight_is_copied_while_it_changes),
        RULE(iteration_ends_with_an_old_weight),
        RULE(gradient_that_comes_back_after_its_last_reader_is_still_right),
        RULE(weight_is_held_in_a_lossy_code),
        RULE(maps_and_persistent_tensors_are_measured_where_they_are_exact),
        RULE(measure_of_what_is_not_its_tensors_value),
        RULE(weight_changes_while_it_is_measured),
        RULE(persistent_tensors_count_as_the_base),
        RULE(step_reads_a_decode_without_waiting_for_it),
        RULE(encode_reads_a_map_without_waiting_for_its_step),
        RULE(operation_waits_for_one_that_is_issued_later),
        RULE(signs_are_read_from_a_decoded_lossy_code),
        RULE(elements_are_read_from_a_mask),
        RULE(mask_is_decoded),
        RULE(output_is_written_in_place_while_an_encode_may_read_it),
        RULE(decode_over_a_map_that_a_step_may_still_read),
        RULE(code_over_the_map_that_it_is_made_of),
        RULE(workspace_lies_over_what_its_step_reads),
        RULE(place_is_taken_in_place_at_another_offset),
        RULE(place_is_taken_of_a_tensor_that_is_still_needed),
        RULE(alias_that_the_graph_does_not_allow),
        RULE(decode_that_nobody_reads),
        RULE(segment_that_nobody_uses),
        RULE(tensor_that_is_not_bound),
        RULE(external_tensor_that_is_bound),
        RULE(workspace_too_small_for_the_variant),
        RULE(code_smaller_than_the_facts_say),
        RULE(step_twice),
        RULE(step_missing),
        RULE(segment_below_the_base),
        RULE(base_that_grew_since_the_plan_was_made),
        RULE(budget_one_byte_short),
        RULE(pinned_code_counts_against_the_pinned_limit),
        RULE(map_in_pinned_memory),
        RULE(heap_smaller_than_what_lives_in_it),
        RULE(segment_inside_the_heap),
        RULE(heap_below_the_base),
        RULE(bindings_beyond_the_end_of_the_plans),
        RULE(what_is_kept_to_the_end_may_count_to_the_end),
        RULE(plan_that_was_not_finished),
        RULE(facts_of_another_graph),
        cmocka_unit_test(a_step_runs_again_only_on_what_it_read_the_first_time),
        cmocka_unit_test(a_step_that_does_not_repeat_does_not_run_again),
        cmocka_unit_test(a_backward_step_does_not_run_again),
        cmocka_unit_test(a_step_that_runs_again_writes_no_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
