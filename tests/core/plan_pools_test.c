/* SPDX-License-Identifier: MIT */
/* Codes with bodies on a plan made by hand: what breaks each rule of pools, and what the message says; what such a plan
 * counts, and how long it takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/account/account.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/core/plan/program.h"
#include "mm/core/time/simulate.h"
#include "tests/core/plan_proof.h"
#include "tests/core/small_graph.h"

/* All of the small graph: `out` is encoded after relu forward, and decoded for loss backward. Each segment has a place
 * of its own.
 *
 *   device   base | map | out | out (decoded) | d_out, d_map | head | pool | workspace
 *   pinned   spill */
enum { BASE = 768, ROOM = 4096, HEAD_BYTES = 8, BOUND = 4000, TYPICAL = 1500, POOL_BYTES = 1000 };
enum { VARIABLE, FIXED, CODECS };

typedef struct fixture {
    small_graph g;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_limits limits;
    int steps[SMALL_STEPS], encode, decode;
    int map, out, decoded, d_out, d_map, head, pool, spill, workspace; /* segments */
    int64_t end[2];                                                    /* of what is placed, by memory */
} fixture;

static int segment(fixture *f, mm_content content, mm_tensor tensor, int64_t bytes, bool pinned) {
    const mm_category category = content == MM_CONTENT_POOL ? MM_CAT_CODE : MM_CAT_FEATURE_MAP;
    const int index = mm_plan_segment(f->plan, content, category, tensor, bytes);
    assert_true(index >= 0);
    f->plan->segments[index].memory = pinned ? MM_MEM_PINNED : MM_MEM_DEVICE;
    f->plan->segments[index].offset = f->end[pinned];
    f->end[pinned] += mm_align(bytes) + ROOM;
    return index;
}

static void make_segments(fixture *f) {
    f->map = segment(f, MM_CONTENT_RAW, f->g.map, SMALL_MAP_BYTES, false);
    f->out = segment(f, MM_CONTENT_RAW, f->g.out, SMALL_MAP_BYTES, false);
    f->decoded = segment(f, MM_CONTENT_RAW, f->g.out, SMALL_MAP_BYTES, false);
    f->d_out = segment(f, MM_CONTENT_RAW, f->g.d_out, SMALL_MAP_BYTES, false);
    f->d_map = segment(f, MM_CONTENT_RAW, f->g.d_map, SMALL_MAP_BYTES, false);
    f->head = segment(f, MM_CONTENT_CODED, f->g.out, HEAD_BYTES, false);
    f->pool = segment(f, MM_CONTENT_POOL, -1, POOL_BYTES, false);
    f->spill = segment(f, MM_CONTENT_POOL, -1, mm_align(BOUND) + MM_CHUNK_BYTES - POOL_BYTES, true);
    f->workspace = segment(f, MM_CONTENT_WORK, -1, 1000, false);
    f->plan->segments[f->head].codec = VARIABLE;
    f->plan->segments[f->head].pool = f->pool;
    f->plan->segments[f->pool].spill = f->spill;
}

static void bind(fixture *f, int step, int use, int to) {
    f->plan->bindings[f->plan->nodes[f->steps[step]].first_binding + use] = to;
}

static void make_nodes(fixture *f) {
    for (int s = 0; s < SMALL_STEPS; s++) {
        if (s == LOSS_B) f->decode = mm_plan_op(f->plan, MM_NODE_DECODE, f->g.out, f->head, f->decoded);
        f->steps[s] = mm_plan_step(f->plan, s);
        if (s == RELU_F) f->encode = mm_plan_op(f->plan, MM_NODE_ENCODE, f->g.out, f->out, f->head);
    }
    mm_plan_wait(f->plan, f->encode, f->steps[RELU_F]);
    mm_plan_wait(f->plan, f->decode, f->encode);
    mm_plan_wait(f->plan, f->steps[LOSS_B], f->decode);
    f->plan->nodes[f->steps[CONV_B]].work = f->workspace;
    bind(f, CONV_F, 2, f->map);
    bind(f, RELU_F, 0, f->map);
    bind(f, RELU_F, 1, f->out);
    bind(f, LOSS_F, 0, f->out);
    bind(f, LOSS_B, 0, f->decoded);
    bind(f, LOSS_B, 1, f->d_out);
    bind(f, RELU_B, 0, f->decoded);
    bind(f, RELU_B, 1, f->d_out);
    bind(f, RELU_B, 2, f->d_map);
    bind(f, CONV_B, 1, f->d_map);
}

static mm_code_facts *code(fixture *f, int codec) { return &f->facts->codes[codec * f->facts->n_tensors + f->g.out]; }

static void make_facts(fixture *f) {
    assert_int_equal(mm_graph_facts_create(f->g.graph, CODECS, &f->facts), MM_OK);
    f->facts->codecs[VARIABLE] =
        (mm_codec_facts){.spec = "variable", .lossless = true, .gives_value = true, .gives_sign = true};
    f->facts->codecs[FIXED] =
        (mm_codec_facts){.spec = "fixed", .lossless = true, .fixed_size = true, .gives_value = true};
    *code(f, VARIABLE) = (mm_code_facts){.code_bytes = HEAD_BYTES,
                                         .encode_ns = 500,
                                         .decode_ns = 500,
                                         .body_bound_bytes = BOUND,
                                         .body_reserve_bytes = POOL_BYTES,
                                         .body_typical_bytes = TYPICAL};
    *code(f, FIXED) = (mm_code_facts){.code_bytes = HEAD_BYTES};
    for (int i = 0; i < f->facts->variant_first[f->facts->n_steps]; i++) f->facts->variants[i].ns = 1000;
    f->facts->out_bytes_per_s = 1000000000; /* a byte a ns */
    f->facts->in_bytes_per_s = 500000000;
}

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->g = small_graph_create();
    f->limits = (mm_limits){.base_bytes = BASE, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20};
    f->end[0] = BASE;
    make_facts(f);
    assert_int_equal(mm_plan_create(f->g.graph, &f->limits, &f->plan), MM_OK);
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

static mm_segment *seg(fixture *f, int index) { return &f->plan->segments[index]; }

/* ---------------------------------------------------------------- rules */

static void no_pool(fixture *f) { seg(f, f->head)->pool = -1; }
static void pool_of_a_fixed_code(fixture *f) { seg(f, f->head)->codec = FIXED; }
static void pool_of_a_map(fixture *f) { seg(f, f->map)->pool = f->pool; }
static void pool_of_a_persistent_tensor(fixture *f) { seg(f, 0)->pool = f->pool; }
static void pool_is_a_workspace(fixture *f) { seg(f, f->head)->pool = f->workspace; }
static void pool_is_no_segment(fixture *f) { seg(f, f->head)->pool = 99; }
static void pool_of_a_tensor(fixture *f) { seg(f, f->pool)->tensor = f->g.out; }
static void pool_in_the_heap(fixture *f) { seg(f, f->pool)->dynamic = true; }
static void spill_on_the_device(fixture *f) { seg(f, f->spill)->memory = MM_MEM_DEVICE; }
static void spill_of_a_pinned_pool(fixture *f) { seg(f, f->pool)->memory = MM_MEM_PINNED; }
static void spill_of_a_workspace(fixture *f) { seg(f, f->workspace)->spill = f->spill; }
static void spill_of_a_spill(fixture *f) { seg(f, f->spill)->spill = f->spill; }
static void body_in_a_spill(fixture *f) { seg(f, f->head)->pool = f->spill; }
static void no_spill(fixture *f) { seg(f, f->pool)->spill = -1; }
static void spill_a_byte_short(fixture *f) { seg(f, f->spill)->bytes--; }

static void pool_alone_a_byte_short(fixture *f) {
    seg(f, f->pool)->spill = -1;
    seg(f, f->pool)->bytes = mm_align(BOUND) - 1;
}

static void spill_of_two_pools(fixture *f) {
    const int other = segment(f, MM_CONTENT_POOL, -1, BOUND, false);
    seg(f, other)->spill = f->spill;
}

static void pool_without_codes(fixture *f) { segment(f, MM_CONTENT_POOL, -1, BOUND, false); }
static void stage(fixture *f) { f->plan->nodes[f->encode].stage = segment(f, MM_CONTENT_WORK, -1, HEAD_BYTES, false); }

static void copy(fixture *f) {
    const int away = segment(f, MM_CONTENT_CODED, f->g.out, HEAD_BYTES, true);
    seg(f, away)->codec = VARIABLE;
    seg(f, away)->pool = f->pool;
    seg(f, f->spill)->bytes += ROOM;
    mm_plan_wait(f->plan, mm_plan_op(f->plan, MM_NODE_OUT, f->g.out, f->head, away), f->encode);
}

static void signs_from_a_head(fixture *f) {
    bind(f, RELU_B, 0, f->head);
    mm_plan_wait(f->plan, f->steps[RELU_B], f->encode);
}

static void source_is_a_pool(fixture *f) { f->plan->nodes[f->decode].src = f->pool; }
static void head_of_another_size(fixture *f) { seg(f, f->head)->bytes += 8; }
/* d_out is written while the pool's body is to be decoded, or may be. */
static void gradient_in_the_pool(fixture *f) {
    seg(f, f->d_out)->offset = seg(f, f->pool)->offset;
    f->plan->nodes[f->steps[LOSS_B]].wait[MM_STREAM_DECODE] = -1;
    bind(f, LOSS_B, 0, f->out);
    mm_plan_wait(f->plan, f->steps[LOSS_B], f->encode);
    mm_plan_wait(f->plan, f->steps[RELU_B], f->decode);
}

static void map_in_the_pool(fixture *f) { seg(f, f->pool)->offset = seg(f, f->out)->offset; }
static void encode_on_another_stream(fixture *f) { f->plan->nodes[f->encode].stream = MM_STREAM_OUT; }

static void each_rule_is_checked(void **state) {
    static const struct {
        void (*change)(fixture *);
        const char *words;
    } cases[] = {
        {no_pool, "its codec's codes have bodies but it names no pool"},
        {pool_of_a_fixed_code, "or the reverse"},
        {pool_of_a_map, "names a pool, but it is not a code"},
        {pool_of_a_persistent_tensor, "names a pool, but it is not a code"},
        {pool_is_a_workspace, "or that is not a pool"},
        {pool_is_no_segment, "or that is not a pool"},
        {pool_of_a_tensor, "is a workspace or a pool and has a tensor"},
        {pool_in_the_heap, "a pool in the heap"},
        {spill_on_the_device, "that is not a pool in pinned memory"},
        {spill_of_a_pinned_pool, "is not a pool on the device"},
        {spill_of_a_workspace, "names a spill, but it is not a pool"},
        {spill_of_a_spill, "names a spill, but it is not a pool"},
        {body_in_a_spill, "is the spill of a pool, and has codes of its own"},
        {no_spill, "room for 1000 bytes with its spill, but needs 4096"},
        {spill_a_byte_short, "room for 8191 bytes with its spill, but needs 8192"},
        {pool_alone_a_byte_short, "room for 4095 bytes with its spill, but needs 4096"},
        {spill_of_two_pools, "is the spill of two pools"},
        {pool_without_codes, "no node uses it"},
        {stage, "a code with a body cannot be staged"},
        {copy, "a code with a body cannot be copied"},
        {signs_from_a_head, "relu backward, tensor out: is bound to segment 8, a code with a body"},
        {source_is_a_pool, "its source is a pool on the device, not a code"},
        {head_of_another_size, "not of the code's size"},
        {gradient_in_the_pool, "is put over segment 9 (a pool), which decode of out"},
        {map_in_the_pool, "is put over segment 4 (out)"},
        {encode_on_another_stream, "of an unknown kind, or on another kind's stream"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *own;
        setup(&own);
        fixture *f = own;
        cases[i].change(f);
        if (cases[i].change != pool_is_no_segment) assert_int_equal(mm_plan_finish(f->plan), MM_OK);
        const mm_status status = plan_check(f->plan, f->facts, &f->limits);
        if (status != MM_ERR_PLAN || !strstr(mm_last_error(), cases[i].words))
            fail_msg("'%s': %s: %s", cases[i].words, mm_status_name(status), mm_last_error());
        teardown(&own);
    }
}

static void pool_of_the_bounds_needs_no_spill(void **state) {
    fixture *f = *state;
    seg(f, f->pool)->bytes = mm_align(BOUND);
    seg(f, f->pool)->spill = -1;
    f->plan->n_segments--; /* the workspace takes the spill's number */
    f->plan->segments[f->spill] = f->plan->segments[f->workspace];
    f->plan->nodes[f->steps[CONV_B]].work = f->spill;
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    if (plan_check(f->plan, f->facts, &f->limits) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(f->plan->pinned_bytes, 0);
}

/* ---------------------------------------------------------------- what it counts */

static void pool_lives_from_the_first_encode_to_the_last_decode(void **state) {
    fixture *f = *state;
    int64_t live[MM_CATEGORIES];
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    if (plan_check(f->plan, f->facts, &f->limits) != MM_OK) fail_msg("%s", mm_last_error());
    const int pools[] = {f->pool, f->spill};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(seg(f, pools[i])->first_node, f->encode);
        assert_int_equal(seg(f, pools[i])->last_node, f->decode);
        assert_int_equal(seg(f, pools[i])->live_last, f->decode);
    }
    mm_plan_live_at(f->plan, f->steps[LOSS_F], live);
    assert_int_equal(live[MM_CAT_CODE], POOL_BYTES); /* the head counts as a map here */
    mm_plan_live_at(f->plan, f->steps[LOSS_B], live);
    assert_int_equal(live[MM_CAT_CODE], 0);
    assert_int_equal(f->plan->pinned_bytes, seg(f, f->spill)->bytes);
    const mm_pool_sums sums = mm_account_pools(f->plan);
    assert_int_equal(sums.reserve_bytes, POOL_BYTES);
    assert_int_equal(sums.spill_bytes, seg(f, f->spill)->bytes);
    assert_int_equal(sums.pinned_bytes, 0);
    assert_int_equal(sums.bound_bytes, mm_align(BOUND));
    char name[64];
    assert_string_equal(mm_account_segment_name(f->plan, f->pool, name, sizeof name), "pool of codes");
    mm_touch touch;
    int touches = 0, written = 0;
    for (int i = 0; mm_node_next_touch(f->plan, &f->plan->nodes[f->encode], &i, &touch); touches++)
        written += touch.access == MM_WRITE && (touch.segment == f->pool || touch.segment == f->spill);
    assert_int_equal(touches, 4);
    assert_int_equal(written, 2);
}

static void code_with_a_body_is_not_cut(void **state) {
    fixture *f = *state;
    mm_program program;
    f->facts->codecs[VARIABLE].fixed_size = true; /* whatever the codec says */
    f->facts->piece_bytes = 1;
    code(f, VARIABLE)->split_rows = code(f, VARIABLE)->split_bytes = MM_ALIGN;
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    assert_int_equal(mm_program_init(f->plan, f->facts, &program), MM_OK);
    assert_int_equal(program.n, f->plan->n_nodes);
    mm_program_fini(&program);
}

/* ---------------------------------------------------------------- how long it takes */

static mm_simulation simulate(fixture *f) {
    mm_simulation sim;
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    if (mm_simulate(f->plan, f->facts, &sim) != MM_OK) fail_msg("%s", mm_last_error());
    return sim;
}

static int64_t node_ns(const mm_simulation *sim, int node) {
    return sim->nodes[node].end_ns - sim->nodes[node].start_ns;
}

static void what_is_spilled_goes_over_the_link(void **state) {
    fixture *f = *state;
    mm_simulation sim = simulate(f);
    /* 500 of 1500 bytes are beyond the pool: 500 ns out, 1000 ns in. */
    assert_int_equal(node_ns(&sim, f->encode), 500 + 500);
    assert_int_equal(node_ns(&sim, f->decode), 500 + 1000);
    assert_int_equal(sim.busy_ns[MM_STREAM_OUT], 0);
    mm_simulation_fini(&sim);
    seg(f, f->pool)->bytes = TYPICAL;
    sim = simulate(f);
    assert_int_equal(node_ns(&sim, f->encode), 500);
    assert_int_equal(node_ns(&sim, f->decode), 500);
    mm_simulation_fini(&sim);
}

static void code_in_a_pinned_pool_takes_the_longer_time(void **state) {
    fixture *f = *state;
    seg(f, f->head)->pool = f->spill;
    mm_simulation sim = simulate(f);
    assert_int_equal(node_ns(&sim, f->encode), TYPICAL);
    assert_int_equal(node_ns(&sim, f->decode), 2 * TYPICAL);
    mm_simulation_fini(&sim);
    code(f, VARIABLE)->encode_ns = 2 * TYPICAL;
    sim = simulate(f);
    assert_int_equal(node_ns(&sim, f->encode), 2 * TYPICAL);
    mm_simulation_fini(&sim);
}

/* Encode and decode run beside loss forward. */
static void steps_are_slowed_while_a_codec_uses_the_link(void **state) {
    fixture *f = *state;
    f->facts->link_contention_permille = 1000;
    mm_simulation sim = simulate(f);
    assert_int_equal(node_ns(&sim, f->steps[LOSS_F]), 2000); /* half its speed, beside encode and decode */
    mm_simulation_fini(&sim);
    seg(f, f->pool)->bytes = TYPICAL;
    sim = simulate(f);
    assert_int_equal(node_ns(&sim, f->steps[LOSS_F]), 1000);
    mm_simulation_fini(&sim);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_is_checked),
        CASE(pool_of_the_bounds_needs_no_spill),
        CASE(pool_lives_from_the_first_encode_to_the_last_decode),
        CASE(code_with_a_body_is_not_cut),
        CASE(what_is_spilled_goes_over_the_link),
        CASE(code_in_a_pinned_pool_takes_the_longer_time),
        CASE(steps_are_slowed_while_a_codec_uses_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
