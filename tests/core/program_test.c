/* SPDX-License-Identifier: MIT */
/* Lowering a plan to its program: which nodes are cut into pieces, where, and what the pieces wait for. */

#include "mm/core/plan/plan_allreduce.h"
#include "mm/core/plan/program.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

/* ---------------------------------------------------------------- by hand */

enum { ROWS = SMALL_MAP_BYTES / 4, SPLIT = 50, PIECE_ROWS = 200 };

/* The small graph's `out`, 1000 rows of 4 bytes, encoded and copied out after relu, fetched and decoded for loss
 * backward. Nothing is placed. */
typedef struct fixture {
    small_graph g;
    mm_graph_facts *facts;
    mm_plan *plan;
    int steps[SMALL_STEPS], encode, out, in, decode; /* nodes */
    int segments[5];                                 /* raw, code, copy, code again, raw again */
    mm_program program;
} fixture;

static void add_segments(fixture *f) {
    for (int i = 0; i < 5; i++) {
        bool raw = i == 0 || i == 4;
        f->segments[i] =
            mm_plan_segment(f->plan, raw ? MM_CONTENT_RAW : MM_CONTENT_CODED, raw ? MM_CAT_FEATURE_MAP : MM_CAT_CODE,
                            f->g.out, raw ? SMALL_MAP_BYTES : 1000);
        f->plan->segments[f->segments[i]].codec = raw ? -1 : 0;
        f->plan->segments[f->segments[i]].memory = i == 2 ? MM_MEM_PINNED : MM_MEM_DEVICE;
    }
}

static int add_op(fixture *f, mm_node_kind kind, int src, int after) {
    int node = mm_plan_op(f->plan, kind, f->g.out, f->segments[src], f->segments[src + 1]);
    mm_plan_wait(f->plan, node, after);
    return node;
}

static fixture fixture_create(void) {
    fixture f = {.g = small_graph_create()};
    mm_limits limits = {.base_bytes = 512};
    assert_int_equal(mm_graph_facts_create(f.g.graph, 1, &f.facts), MM_OK);
    assert_int_equal(f.facts->piece_bytes, MM_PIECE_BYTES);
    assert_int_equal(mm_plan_create(f.g.graph, &limits, &f.plan), MM_OK);
    f.facts->piece_bytes = PIECE_ROWS * 4;
    f.facts->codecs[0].fixed_size = true;
    f.facts->codes[f.g.out] = (mm_code_facts){.code_bytes = 1000, .split_rows = SPLIT, .split_bytes = SPLIT};
    add_segments(&f);
    for (int s = 0; s < SMALL_STEPS; s++) {
        f.steps[s] = mm_plan_step(f.plan, s);
        if (s == RELU_F) {
            f.encode = add_op(&f, MM_NODE_ENCODE, 0, f.steps[s]);
            f.out = add_op(&f, MM_NODE_OUT, 1, f.encode);
            f.in = add_op(&f, MM_NODE_IN, 2, f.out);
            f.decode = add_op(&f, MM_NODE_DECODE, 3, f.in);
        }
        if (s == LOSS_B) mm_plan_wait(f.plan, f.steps[s], f.decode);
    }
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    return f;
}

static void divide(fixture *f) {
    mm_program_fini(&f->program);
    assert_int_equal(mm_program_init(f->plan, f->facts, &f->program), MM_OK);
}

static void fixture_destroy(fixture *f) {
    mm_program_fini(&f->program);
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->g.graph);
}

static int count(const fixture *f, int node) { return f->program.last[node] - f->program.first[node] + 1; }

static const mm_piece *piece_at(const fixture *f, int node, int index) {
    mm_stream_id stream = f->plan->nodes[node].stream;
    return &f->program.pieces[f->program.at[stream][f->program.first[node] + index]];
}

/* Lowers the plan and checks the numbers of pieces: of encode and out, and of in and decode. */
static void assert_counts(fixture *f, int encode_and_out, int in_and_decode) {
    divide(f);
    assert_int_equal(count(f, f->encode), encode_and_out);
    assert_int_equal(count(f, f->out), encode_and_out);
    assert_int_equal(count(f, f->in), in_and_decode);
    assert_int_equal(count(f, f->decode), in_and_decode);
    for (int s = 0; s < SMALL_STEPS; s++) assert_int_equal(count(f, f->steps[s]), 1);
}

static void check_pair(const fixture *f, int first, int second, int waited_by_first) {
    mm_stream_id stream = f->plan->nodes[first].stream, before = f->plan->nodes[waited_by_first].stream;
    for (int i = 0; i < count(f, first); i++) {
        const mm_piece *a = piece_at(f, first, i), *b = piece_at(f, second, i);
        assert_int_equal(a->first_row, PIECE_ROWS * i);
        assert_int_equal(a->rows, PIECE_ROWS);
        assert_int_equal(b->first_row, a->first_row);
        assert_int_equal(b->rows, a->rows);
        assert_int_equal(b->wait[stream], a->seq);
        assert_int_equal(a->wait[before], i == 0 ? f->program.last[waited_by_first] : -1);
    }
}

TEST_CASE(a_code_and_its_copy_are_cut_at_the_same_rows) {
    fixture f = fixture_create();
    assert_counts(&f, 5, 5);
    check_pair(&f, f.encode, f.out, f.steps[RELU_F]);
    check_pair(&f, f.in, f.decode, f.out);
    assert_int_equal(piece_at(&f, f.steps[LOSS_B], 0)->wait[MM_STREAM_DECODE], f.program.last[f.decode]);
    assert_int_equal(f.program.count[MM_STREAM_COMPUTE], SMALL_STEPS);
    assert_int_equal(f.program.n, SMALL_STEPS + 20);
    fixture_destroy(&f);
}

TEST_CASE(pieces_end_where_the_codec_allows_and_are_not_too_many) {
    fixture f = fixture_create();
    f.facts->piece_bytes = 4 * 210; /* rounded up to the next cut: 250 rows */
    assert_counts(&f, 4, 4);
    assert_int_equal(piece_at(&f, f.encode, 0)->rows, 250);
    f.facts->piece_bytes = 4 * 300;
    assert_counts(&f, 4, 4);
    assert_int_equal(piece_at(&f, f.encode, 3)->first_row, 900);
    assert_int_equal(piece_at(&f, f.encode, 3)->rows, 100); /* the rows that are left */
    f.facts->piece_bytes = 1;
    assert_counts(&f, 7, 7); /* at most eight: 125 rows, rounded up to 150 */
    f.facts->codes[f.g.out].split_rows = f.facts->codes[f.g.out].split_bytes = 1;
    assert_counts(&f, MM_PIECES_MOST, MM_PIECES_MOST);
    fixture_destroy(&f);
}

TEST_CASE(what_cannot_be_cut_stays_whole) {
    fixture f = fixture_create();
    f.facts->piece_bytes = SMALL_MAP_BYTES;
    assert_counts(&f, 1, 1);
    f.facts->piece_bytes = PIECE_ROWS * 4;
    f.facts->codes[f.g.out].split_rows = 0;
    assert_counts(&f, 1, 1);
    f.facts->codes[f.g.out].split_rows = SPLIT;
    f.facts->codecs[0].fixed_size = false;
    assert_counts(&f, 1, 1);
    f.facts->codecs[0].fixed_size = true;
    f.plan->segments[f.segments[0]].dynamic = true;
    assert_counts(&f, 1, 5);
    f.plan->segments[f.segments[0]].dynamic = false;
    f.plan->nodes[f.encode].stage = f.segments[1];
    assert_counts(&f, 1, 5);
    f.plan->nodes[f.encode].stage = -1;
    f.plan->nodes[f.decode].src = f.segments[1]; /* not the segment that was fetched into */
    assert_counts(&f, 5, 1);
    fixture_destroy(&f);
}

TEST_CASE(maps_that_move_as_they_are_stay_whole) {
    fixture f = fixture_create();
    for (int i = 1; i < 4; i++) {
        f.plan->segments[f.segments[i]].content = MM_CONTENT_RAW;
        f.plan->segments[f.segments[i]].codec = -1;
    }
    assert_counts(&f, 1, 1);
    fixture_destroy(&f);
}

TEST_CASE(waiting_for_what_is_not_there_is_refused) {
    fixture f = fixture_create();
    f.plan->nodes[f.out].wait[MM_STREAM_ENCODE] = 7;
    assert_int_equal(mm_program_init(f.plan, f.facts, &f.program), MM_ERR_PLAN);
    fixture_destroy(&f);
}

/* ---------------------------------------------------------------- throttle */

TEST_CASE(a_throttled_encode_waits_for_the_copy_of_an_earlier_piece) {
    fixture f = fixture_create();
    for (int ahead = 1; ahead <= 6; ahead++) {
        f.plan->nodes[f.encode].throttle = ahead;
        assert_counts(&f, 5, 5);
        for (int i = 0; i < 5; i++) {
            const mm_piece *encode = piece_at(&f, f.encode, i), *out = piece_at(&f, f.out, i);
            assert_int_equal(encode->wait[MM_STREAM_OUT], i < ahead ? -1 : f.program.first[f.out] + i - ahead);
            assert_int_equal(out - encode, 1); /* the pieces of both are issued in turn */
        }
    }
    fixture_destroy(&f);
}

TEST_CASE(a_throttle_goes_on_from_one_map_to_the_next) {
    fixture f = fixture_create();
    f.facts->piece_bytes = SMALL_MAP_BYTES; /* whole */
    f.plan->nodes[f.encode].throttle = 1;
    int raw = mm_plan_segment(f.plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, f.g.out, SMALL_MAP_BYTES);
    int code = mm_plan_segment(f.plan, MM_CONTENT_CODED, MM_CAT_CODE, f.g.out, 1000);
    int copy = mm_plan_segment(f.plan, MM_CONTENT_CODED, MM_CAT_CODE, f.g.out, 1000);
    f.plan->segments[code].codec = f.plan->segments[copy].codec = 0;
    int encode = mm_plan_op(f.plan, MM_NODE_ENCODE, f.g.out, raw, code);
    f.plan->nodes[encode].throttle = 1;
    int out = mm_plan_op(f.plan, MM_NODE_OUT, f.g.out, code, copy);
    mm_plan_wait(f.plan, out, encode);
    divide(&f);
    assert_int_equal(piece_at(&f, f.encode, 0)->wait[MM_STREAM_OUT], -1);
    assert_int_equal(piece_at(&f, encode, 0)->wait[MM_STREAM_OUT], f.program.last[f.out]);
    f.plan->nodes[encode].throttle = 2;
    divide(&f);
    assert_int_equal(piece_at(&f, encode, 0)->wait[MM_STREAM_OUT], -1);
    fixture_destroy(&f);
}

/* ---------------------------------------------------------------- tensors that processes share */

enum { SHARED_ROWS = 1000, SHARED_BYTES = 4 * SHARED_ROWS };

/* Two steps: the gradient is written, and used by an update. */
typedef struct shared_fixture {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_program program;
    int out, in; /* nodes */
} shared_fixture;

static shared_fixture shared_create(int64_t piece_bytes) {
    shared_fixture f = {0};
    mm_plan *plan;
    const mm_limits limits = {.base_bytes = mm_align(SHARED_BYTES)};
    assert_int_equal(mm_graph_create("shared", &f.graph), MM_OK);
    const mm_tensor gradient = small_tensor(f.graph, "gradient", MM_WEIGHT_GRADIENT, MM_PERSISTENT, SHARED_BYTES);
    const mm_layer conv = small_layer(f.graph, "conv", MM_LAYER_CONV);
    const mm_layer update = small_layer(f.graph, "update", MM_LAYER_UPDATE);
    small_step(f.graph, conv, MM_BACKWARD, (mm_use[]){{gradient, MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    small_step(f.graph, update, MM_UPDATE, (mm_use[]){{gradient, MM_READ, MM_FORM_VALUE}}, 1, 0);
    assert_int_equal(mm_graph_allreduce(f.graph, gradient, MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM), MM_OK);
    assert_int_equal(mm_graph_freeze(f.graph), MM_OK);
    assert_int_equal(mm_graph_facts_create(f.graph, 0, &f.facts), MM_OK);
    f.facts->piece_bytes = piece_bytes;
    assert_int_equal(mm_plan_create(f.graph, &limits, &plan), MM_OK);
    for (int s = 0; s < 2; s++) mm_plan_step(plan, s);
    assert_int_equal(mm_plan_finish(plan), MM_OK);
    assert_int_equal(mm_plan_add_allreduce(plan, &f.plan), MM_OK);
    mm_plan_destroy(plan);
    for (int i = 0; i < f.plan->n_nodes; i++) {
        if (f.plan->nodes[i].kind == MM_NODE_OUT) f.out = i;
        if (f.plan->nodes[i].kind == MM_NODE_IN) f.in = i;
    }
    assert_int_equal(mm_program_init(f.plan, f.facts, &f.program), MM_OK);
    return f;
}

static void shared_destroy(shared_fixture *f) {
    mm_program_fini(&f->program);
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->graph);
}

static mm_status prove_shared(const shared_fixture *f) {
    const mm_limits limits = {.base_bytes = f->plan->base_bytes, .device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX};
    return mm_program_prove(&f->program, f->facts, &limits, NULL);
}

TEST_CASE(sums_come_back_while_the_rest_of_a_shared_tensor_goes_out) {
    shared_fixture f = shared_create(300 * 4); /* 300 rows, rounded up to a multiple of 256 bytes: 320 rows */
    const int32_t *first = f.program.first, *last = f.program.last;
    assert_int_equal(last[f.out] - first[f.out], 3);
    assert_int_equal(last[f.in] - first[f.in], 3);
    for (int k = 0; k < 4; k++) {
        const mm_piece *out = &f.program.pieces[mm_program_piece(&f.program, f.out, k)];
        const mm_piece *in = &f.program.pieces[mm_program_piece(&f.program, f.in, k)];
        assert_int_equal(out->stored_offset, 320 * 4 * k);
        assert_int_equal(out->stored_bytes, k < 3 ? 320 * 4 : 40 * 4);
        assert_int_equal(in->stored_offset, out->stored_offset);
        assert_int_equal(in->stored_bytes, out->stored_bytes);
        assert_int_equal(in->wait[MM_STREAM_OUT], out->seq);
        assert_int_equal(out->wait[MM_STREAM_COMPUTE], k == 0 ? 0 : -1);
    }
    const mm_piece *update = &f.program.pieces[f.program.at[MM_STREAM_COMPUTE][1]];
    assert_int_equal(update->wait[MM_STREAM_IN], last[f.in]);
    assert_int_equal(prove_shared(&f), MM_OK);
    /* A piece of the sum must not come in before the same piece has gone out. */
    for (int k = 0; k < 4; k++) {
        int32_t *wait = &f.program.pieces[mm_program_piece(&f.program, f.in, k)].wait[MM_STREAM_OUT];
        (*wait)--;
        assert_int_equal(prove_shared(&f), MM_ERR_PLAN);
        (*wait)++;
    }
    /* The update must not come before the last piece is in. */
    f.program.pieces[f.program.at[MM_STREAM_COMPUTE][1]].wait[MM_STREAM_IN]--;
    assert_int_equal(prove_shared(&f), MM_ERR_PLAN);
    shared_destroy(&f);
    f = shared_create(SHARED_BYTES);
    assert_int_equal(f.program.n, 4); /* a tensor of one piece stays whole */
    assert_int_equal(prove_shared(&f), MM_OK);
    shared_destroy(&f);
}
