/* SPDX-License-Identifier: MIT */
/* Codes that go over the link in pieces while they are encoded and decoded: the same bits as whole, whoever issues, in
 * the same counts; a piece that fails poisons what follows; the encoder keeps to its throttle. */
#include <string.h>

#include "mm/core/plan/program.h"
#include "tests/core/test_case.h"
#include "tests/pipeline/dispatch_rig.h"

enum { LAYERS = 14, IMAGES = 16 };

static const char offload[] = "rules:rules=*=compress-swap(raw),when=always";

static int divided_nodes(const rig *r, mm_node_kind kind) {
    int n = 0;
    for (int i = 0; i < r->planned.plan->n_nodes; i++)
        n += r->planned.plan->nodes[i].kind == kind && mm_program_pieces(r->planned.program, i) > 1;
    return n;
}

static void must_iterate(rig *r, bool on_stream) {
    if (rig_iteration(r, on_stream, NULL) != MM_OK) fail_msg("%s", mm_last_error());
}

/* Runs a plan whose codes go in pieces. way: 0 to 3: who issues, and who computes. */
static void check_offload(const char *policy, uint64_t seed, int way) {
    rig r;
    rig_options options = {.seed = seed,
                           .layers = LAYERS,
                           .policy = policy,
                           .images = IMAGES,
                           .piece_bytes = 1,
                           .issue = way & 1 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                           .self_check = seed % 2,
                           .delay_max_ns = seed % 3 ? 0 : 100000};
    rig_init(&r, &options);
    assert_int_equal(divided_nodes(&r, MM_NODE_ENCODE), divided_nodes(&r, MM_NODE_OUT));
    for (int i = 0; i < 3; i++) must_iterate(&r, way & 2);
    assert_true(rig_digest(&r) == rig_expected(&r, seed, 3));
    rig_fini(&r);
}

TEST_CASE(offload_in_pieces_gives_the_same_bits) {
    static const char *const policies[] = {offload, "cdma:codec=raw,throttle=0,when=always",
                                           "cdma:codec=raw,throttle=1,when=always", "cdma:codec=raw,when=always"};
    for (uint64_t seed = 1; seed <= 24; seed++) check_offload(policies[seed % 4], seed, (int)(seed / 4 % 4));
}

/* Copies and codecs that lose nothing take every type of floats. */
TEST_CASE(maps_of_every_type_come_back) {
    static const char *const policies[] = {offload, "swap-async:when=always", "rules:rules=*=compress(raw),when=always",
                                           "rules:rules=relu=mask;*=swap,when=always"};
    for (int p = 0; p < 4; p++)
        for (mm_dtype dtype = 0; dtype < MM_DTYPES; dtype++) {
            if (dtype == MM_I32 || dtype == MM_U8) continue;
            rig r;
            rig_options options = {
                .seed = 3 + (uint64_t)p, .layers = LAYERS, .policy = policies[p], .images = IMAGES, .dtype = dtype};
            rig_init(&r, &options);
            int acted = 0;
            for (int i = 0; i < r.planned.plan->n_nodes; i++) acted += r.planned.plan->nodes[i].kind != MM_NODE_STEP;
            assert_true(acted > 3);
            for (int i = 0; i < 3; i++) must_iterate(&r, p % 2);
            if (rig_digest(&r) != rig_expected(&r, options.seed, 3))
                fail_msg("%s, %s", policies[p], mm_dtype_name(dtype));
            rig_fini(&r);
        }
}

TEST_CASE(the_graphs_have_maps_to_divide) {
    int encodes = 0, decodes = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        rig r;
        rig_options options = {.seed = seed, .layers = LAYERS, .policy = offload, .images = IMAGES, .piece_bytes = 1};
        rig_init(&r, &options);
        encodes += divided_nodes(&r, MM_NODE_ENCODE);
        decodes += divided_nodes(&r, MM_NODE_DECODE);
        rig_fini(&r);
    }
    print_message("%d encodes and %d decodes in pieces\n", encodes, decodes);
    assert_true(encodes > 50 && decodes > 50);
}

/* A seed of a graph whose plan has at least so many encodes in pieces. */
static uint64_t seed_with_pieces(const char *policy, int wanted) {
    for (uint64_t seed = 1; seed < 100; seed++) {
        rig r;
        rig_options options = {.seed = seed, .layers = LAYERS, .policy = policy, .images = IMAGES, .piece_bytes = 1};
        rig_init(&r, &options);
        int found = divided_nodes(&r, MM_NODE_ENCODE);
        rig_fini(&r);
        if (found >= wanted) return seed;
    }
    fail_msg("%s: no graph with %d encodes in pieces", policy, wanted);
    return 0;
}

/* The digest of the weights after two iterations with a lossy codec, whose output they depend on. */
static uint64_t lossy_digest(uint64_t seed, int64_t piece_bytes, mm_dispatch_stats *stats_out, int *encodes_out) {
    rig r;
    rig_options options = {.seed = seed,
                           .layers = LAYERS,
                           .policy = "rules:rules=*=compress-swap(zfp:rate=8),when=always",
                           .images = IMAGES,
                           .piece_bytes = piece_bytes};
    rig_init(&r, &options);
    for (int i = 0; i < 2; i++) must_iterate(&r, true);
    uint64_t digest = rig_digest(&r);
    mm_dispatch_stats_get(r.dispatch, stats_out);
    *encodes_out = r.codec.encodes;
    rig_fini(&r);
    return digest;
}

TEST_CASE(pieces_of_a_lossy_code_are_the_code_and_are_counted_as_it) {
    for (uint64_t from = 1, i = 0; i < 3; i++, from++) {
        uint64_t seed = seed_with_pieces("rules:rules=*=compress-swap(zfp:rate=8),when=always", 3) + (i > 0 ? from : 0);
        mm_dispatch_stats whole, pieces;
        int whole_encodes, piece_encodes;
        uint64_t expected = lossy_digest(seed, 0, &whole, &whole_encodes);
        assert_true(lossy_digest(seed, 1, &pieces, &piece_encodes) == expected);
        if (i == 0) assert_true(piece_encodes > whole_encodes);
        assert_int_equal(pieces.encodes, whole.encodes);
        assert_int_equal(pieces.decodes, whole.decodes);
        assert_int_equal(pieces.encoded_bytes, whole.encoded_bytes);
        assert_int_equal(pieces.coded_bytes, whole.coded_bytes);
        assert_int_equal(pieces.out_bytes, whole.out_bytes);
        assert_int_equal(pieces.in_bytes, whole.in_bytes);
        assert_true(whole.out_bytes > 0 && whole.in_bytes > 0);
    }
}

/* Lets each encode and decode of an iteration fail in turn, when it is issued or when it runs; the next iterations must
 * go well. */
static void check_failures(const char *policy, mm_issue issue, bool on_stream) {
    uint64_t seed = seed_with_pieces(policy, 3);
    rig r;
    rig_options options = {.seed = seed,
                           .layers = LAYERS,
                           .policy = policy,
                           .images = IMAGES,
                           .piece_bytes = 1,
                           .issue = issue,
                           .self_check = true};
    rig_init(&r, &options);
    must_iterate(&r, on_stream);
    int encodes = r.codec.encodes, decodes = r.codec.decodes;
    for (int at = 0; at < encodes || at < decodes; at++)
        for (int c = 0; c < 4; c++) {
            fault_place place = c & 1 ? FAULT_RUN : FAULT_ISSUE;
            if (at >= (c & 2 ? encodes : decodes)) continue;
            r.codec.encode = c & 2 ? place : FAULT_NOWHERE;
            r.codec.decode = c & 2 ? FAULT_NOWHERE : place;
            r.codec.encodes = r.codec.decodes = 0;
            r.codec.at = at;
            assert_int_equal(rig_iteration(&r, on_stream, NULL), MM_ERR_DEVICE);
            assert_non_null(strstr(mm_last_error(), "the codec broke"));
        }
    r.codec.encode = r.codec.decode = FAULT_NOWHERE;
    rig_refill(&r, seed);
    for (int i = 0; i < 2; i++) must_iterate(&r, on_stream);
    assert_true(rig_digest(&r) == rig_expected(&r, seed, 2));
    rig_fini(&r);
}

TEST_CASE(any_piece_that_fails_is_told_and_the_next_iteration_goes_well) {
    check_failures(offload, MM_ISSUE_THREAD, true);
    check_failures(offload, MM_ISSUE_INLINE, false);
    check_failures("cdma:codec=raw,throttle=1,when=always", MM_ISSUE_THREAD, false);
    check_failures("cdma:codec=raw,throttle=1,when=always", MM_ISSUE_INLINE, true);
}

/* An iteration can be aborted while a throttled encode waits for a copy that will never be issued. */
TEST_CASE(giving_up_does_not_wait_for_pieces) {
    rig r;
    uint64_t seed = seed_with_pieces("cdma:codec=raw,throttle=1,when=always", 3);
    rig_options options = {.seed = seed,
                           .layers = LAYERS,
                           .policy = "cdma:codec=raw,throttle=1,when=always",
                           .images = IMAGES,
                           .piece_bytes = 1,
                           .delay_max_ns = 200000};
    rig_init(&r, &options);
    mm_stream *stream = mm_dispatch_compute(r.dispatch);
    for (int steps = 0; steps < mm_graph_steps(r.graph); steps++) {
        assert_int_equal(mm_dispatch_begin(r.dispatch, r.execution), MM_OK);
        for (int s = 0; s < steps; s++) {
            int64_t waited_ns;
            int node = mm_execution_node(r.execution, s);
            assert_int_equal(mm_dispatch_step_begin(r.dispatch, node, stream, &waited_ns), MM_OK);
            assert_int_equal(mm_dispatch_step_end(r.dispatch, node), MM_OK);
        }
        mm_dispatch_abort(r.dispatch);
    }
    rig_refill(&r, seed);
    must_iterate(&r, true);
    assert_true(rig_digest(&r) == rig_expected(&r, seed, 1));
    rig_fini(&r);
}
