/* Nodes in pieces: which are divided and where, and that nothing which the plan keeps apart comes together by it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mm/core/pieces.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/small_graph.h"

/* ---------------------------------------------------------------- by hand */

enum { ROWS = SMALL_MAP_BYTES / 4, SPLIT = 50, PIECE_ROWS = 200 };

/* The small graph's `out`, 1000 rows of 4 bytes, encoded and copied out after relu, fetched and decoded for loss
 * backward. Nothing is placed. */
typedef struct fixture {
    small_graph g;
    mm_facts *facts;
    mm_plan *plan;
    int steps[SMALL_STEPS], encode, out, in, decode; /* nodes */
    int segments[5];                                 /* raw, code, copy, code again, raw again */
    mm_pieces pieces;
} fixture;

static void add_segments(fixture *f) {
    for (int i = 0; i < 5; i++) {
        bool raw = i == 0 || i == 4;
        f->segments[i] =
            mm_plan_segment(f->plan, raw ? MM_CONTENT_RAW : MM_CONTENT_CODED, raw ? MM_CAT_FEATURE_MAP : MM_CAT_CODE,
                            f->g.out, raw ? SMALL_MAP_BYTES : 1000);
        f->plan->segments[f->segments[i]].codec = raw ? -1 : 0;
        f->plan->segments[f->segments[i]].pinned = i == 2;
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
    assert_int_equal(mm_facts_create(f.g.graph, 1, &f.facts), MM_OK);
    assert_int_equal(f.facts->piece_bytes, MM_PIECE_BYTES);
    assert_int_equal(mm_plan_create(f.g.graph, &limits, &f.plan), MM_OK);
    f.facts->piece_bytes = PIECE_ROWS * 4;
    f.facts->codecs[0].fixed_size = true;
    f.facts->codes[f.g.out] = (mm_code_facts){.code_bytes = 1000, .split_rows = SPLIT};
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
    mm_pieces_fini(&f->pieces);
    assert_int_equal(mm_pieces_init(f->plan, f->facts, &f->pieces), MM_OK);
}

static void fixture_destroy(fixture *f) {
    mm_pieces_fini(&f->pieces);
    mm_plan_destroy(f->plan);
    mm_facts_destroy(f->facts);
    mm_graph_destroy(f->g.graph);
}

static int count(const fixture *f, int node) { return f->pieces.last[node] - f->pieces.first[node] + 1; }

static const mm_piece *piece_at(const fixture *f, int node, int index) {
    mm_stream_id stream = f->plan->nodes[node].stream;
    return &f->pieces.pieces[f->pieces.at[stream][f->pieces.first[node] + index]];
}

/* All four operations in as many pieces. */
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
        assert_int_equal(a->wait[before], i == 0 ? f->pieces.last[waited_by_first] : -1);
    }
}

static void a_code_and_its_copy_are_cut_at_the_same_rows(void **state) {
    (void)state;
    fixture f = fixture_create();
    assert_counts(&f, 5, 5);
    check_pair(&f, f.encode, f.out, f.steps[RELU_F]);
    check_pair(&f, f.in, f.decode, f.out);
    assert_int_equal(piece_at(&f, f.steps[LOSS_B], 0)->wait[MM_STREAM_DECODE], f.pieces.last[f.decode]);
    assert_int_equal(f.pieces.count[MM_STREAM_COMPUTE], SMALL_STEPS);
    assert_int_equal(f.pieces.n, SMALL_STEPS + 20);
    fixture_destroy(&f);
}

static void pieces_end_where_the_codec_allows_and_are_not_too_many(void **state) {
    (void)state;
    fixture f = fixture_create();
    f.facts->piece_bytes = 4 * 210; /* up to the next cut */
    assert_counts(&f, 4, 4);
    assert_int_equal(piece_at(&f, f.encode, 0)->rows, 250);
    f.facts->piece_bytes = 4 * 300;
    assert_counts(&f, 4, 4);
    assert_int_equal(piece_at(&f, f.encode, 3)->first_row, 900);
    assert_int_equal(piece_at(&f, f.encode, 3)->rows, 100); /* the rest */
    f.facts->piece_bytes = 1;
    assert_counts(&f, 7, 7); /* an eighth is 125 rows: 150 */
    f.facts->codes[f.g.out].split_rows = 1;
    assert_counts(&f, MM_PIECES_MOST, MM_PIECES_MOST);
    fixture_destroy(&f);
}

static void what_cannot_be_cut_stays_whole(void **state) {
    (void)state;
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
    f.plan->nodes[f.decode].src = f.segments[1]; /* not what is fetched */
    assert_counts(&f, 5, 1);
    fixture_destroy(&f);
}

static void maps_that_move_as_they_are_stay_whole(void **state) {
    (void)state;
    fixture f = fixture_create();
    for (int i = 1; i < 4; i++) {
        f.plan->segments[f.segments[i]].content = MM_CONTENT_RAW;
        f.plan->segments[f.segments[i]].codec = -1;
    }
    assert_counts(&f, 1, 1);
    fixture_destroy(&f);
}

static void waiting_for_what_is_not_there_is_refused(void **state) {
    (void)state;
    fixture f = fixture_create();
    f.plan->nodes[f.out].wait[MM_STREAM_ENCODE] = 7;
    assert_int_equal(mm_pieces_init(f.plan, f.facts, &f.pieces), MM_ERR_PLAN);
    fixture_destroy(&f);
}

/* ---------------------------------------------------------------- throttle */

static void a_throttled_encode_waits_for_the_copy_of_an_earlier_piece(void **state) {
    (void)state;
    fixture f = fixture_create();
    for (int ahead = 1; ahead <= 6; ahead++) {
        f.plan->nodes[f.encode].throttle = ahead;
        assert_counts(&f, 5, 5);
        for (int i = 0; i < 5; i++) {
            const mm_piece *encode = piece_at(&f, f.encode, i), *out = piece_at(&f, f.out, i);
            assert_int_equal(encode->wait[MM_STREAM_OUT], i < ahead ? -1 : f.pieces.first[f.out] + i - ahead);
            assert_int_equal(out - encode, 1); /* issued in turn */
        }
    }
    fixture_destroy(&f);
}

static void a_throttle_goes_on_from_one_map_to_the_next(void **state) {
    (void)state;
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
    assert_int_equal(piece_at(&f, encode, 0)->wait[MM_STREAM_OUT], f.pieces.last[f.out]);
    f.plan->nodes[encode].throttle = 2;
    divide(&f);
    assert_int_equal(piece_at(&f, encode, 0)->wait[MM_STREAM_OUT], -1);
    fixture_destroy(&f);
}

/* ---------------------------------------------------------------- any plan */

typedef struct world {
    mm_graph *graph;
    mm_facts *facts;
    mm_plan *plan;
    mm_pieces pieces;
    bool *before; /* [a * n + b]: piece a ends before piece b starts */
} world;

static void mark(world *w, int piece, int target) {
    const mm_piece *p = &w->pieces.pieces[piece];
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int seq = s == (int)p->stream ? p->seq - 1 : p->wait[s];
        int earlier = seq < 0 ? -1 : w->pieces.at[s][seq];
        if (earlier < 0 || w->before[earlier * w->pieces.n + target]) continue;
        w->before[earlier * w->pieces.n + target] = true;
        mark(w, earlier, target);
    }
}

static world world_create(uint64_t seed) {
    world w = {0};
    mm_limits limits = {.base_bytes = MM_ALIGN};
    random_graph_options graph = {.seed = seed, .layers = 4 + (int)(seed % 8), .max_channels = 4, .images = 12};
    random_plan_options plan = {.seed = seed, .lossy = seed % 2, .dynamic = seed % 5 == 0};
    assert_int_equal(random_graph_create(&graph, &w.graph), MM_OK);
    assert_int_equal(random_facts_create(w.graph, seed, &w.facts), MM_OK);
    assert_int_equal(random_plan_create(w.graph, w.facts, &limits, &plan, &w.plan), MM_OK);
    w.facts->piece_bytes = 1;
    for (int i = 0; i < w.plan->n_nodes; i++)
        if (w.plan->nodes[i].kind == MM_NODE_ENCODE) w.plan->nodes[i].throttle = (int)(seed % 4);
    assert_int_equal(mm_pieces_init(w.plan, w.facts, &w.pieces), MM_OK);
    w.before = calloc((size_t)w.pieces.n * (size_t)w.pieces.n, sizeof *w.before);
    assert_non_null(w.before);
    for (int i = 0; i < w.pieces.n; i++) mark(&w, i, i);
    return w;
}

static void world_destroy(world *w) {
    free(w->before);
    mm_pieces_fini(&w->pieces);
    mm_plan_destroy(w->plan);
    mm_facts_destroy(w->facts);
    mm_graph_destroy(w->graph);
}

static int index_of(const world *w, int node, int i) {
    return w->pieces.at[w->plan->nodes[node].stream][w->pieces.first[node] + i];
}

static int pieces_of(const world *w, int node) { return w->pieces.last[node] - w->pieces.first[node] + 1; }

static bool overlap(const mm_segment *a, const mm_segment *b) {
    if (a == b) return true;
    if (a->dynamic || b->dynamic || a->pinned != b->pinned) return false;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Every piece of node `a` ends before any of `b` starts; but pieces of one code, written by `a` and read by `b`, only
 * if they have rows in common. Returns whether there were such. */
static bool check_order(const world *w, const access *a, const access *b) {
    bool carried = a->segment == b->segment && pieces_of(w, a->node) > 1 && pieces_of(w, b->node) > 1 &&
                   a->segment == w->plan->nodes[a->node].dst && a->segment == w->plan->nodes[b->node].src;
    for (int i = 0; i < pieces_of(w, a->node); i++)
        for (int j = 0; j < pieces_of(w, b->node); j++) {
            const int x = index_of(w, a->node, i), y = index_of(w, b->node, j);
            const mm_piece *p = &w->pieces.pieces[x], *q = &w->pieces.pieces[y];
            bool apart = p->first_row + p->rows <= q->first_row || q->first_row + q->rows <= p->first_row;
            if (!(carried && apart)) assert_true(w->before[x * w->pieces.n + y]);
        }
    return carried;
}

/* Whatever the plan keeps in order because both touch the same bytes, and everything that ends before something else
 * begins to be counted on, is in order piece by piece. */
static void pieces_keep_the_order_of_all_that_share_bytes(void **state) {
    (void)state;
    int pairs = 0, carried = 0;
    for (uint64_t seed = 0; seed < 80; seed++) {
        world w = world_create(seed);
        closure nodes = closure_create(w.plan);
        int n;
        access *list = plan_accesses(w.plan, &n);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                const access *a = &list[i], *b = &list[j];
                const mm_segment *s = w.plan->segments;
                if (!closure_before(&nodes, a->node, b->node) || !(a->write || b->write) ||
                    !overlap(&s[a->segment], &s[b->segment]))
                    continue;
                carried += check_order(&w, a, b);
                pairs++;
            }
        free(list);
        closure_destroy(&nodes);
        world_destroy(&w);
    }
    print_message("%d pairs in order, of which %d carry on with each other's pieces\n", pairs, carried);
    assert_true(pairs > 10000 && carried > 100);
}

/* What a node's end tells of others' ends stays true; and every piece waits for earlier ones only, so none waits for
 * ever. */
static void ends_tell_what_they_told_and_waits_are_for_earlier_pieces(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 80; seed++) {
        world w = world_create(seed);
        closure nodes = closure_create(w.plan);
        for (int i = 0; i < w.pieces.n; i++)
            for (int s = 0; s < MM_STREAM_COUNT; s++) {
                int32_t wait = w.pieces.pieces[i].wait[s];
                if (wait >= 0) assert_true(s != (int)w.pieces.pieces[i].stream && w.pieces.at[s][wait] < i);
            }
        for (int a = 0; a < w.plan->n_nodes; a++)
            for (int b = 0; b < w.plan->n_nodes; b++) {
                int x = index_of(&w, a, pieces_of(&w, a) - 1), y = index_of(&w, b, pieces_of(&w, b) - 1);
                if (closure_before(&nodes, a, b)) assert_true(w.before[x * w.pieces.n + y]);
            }
        closure_destroy(&nodes);
        world_destroy(&w);
    }
}

static void rows_of_all_pieces_are_those_of_the_map(void **state) {
    (void)state;
    int divided = 0, throttled = 0;
    for (uint64_t seed = 0; seed < 80; seed++) {
        world w = world_create(seed);
        for (int i = 0; i < w.plan->n_nodes; i++) {
            const mm_node *n = &w.plan->nodes[i];
            int64_t row = 0;
            divided += pieces_of(&w, i) > 1;
            assert_in_range(pieces_of(&w, i), 1, MM_PIECES_MOST);
            for (int k = 0; k < pieces_of(&w, i); k++) {
                const mm_piece *p = &w.pieces.pieces[index_of(&w, i, k)];
                assert_int_equal(p->node, i);
                assert_int_equal(p->first_row, row);
                throttled += n->kind == MM_NODE_ENCODE && k > 0 && p->wait[MM_STREAM_OUT] >= 0;
                row += p->rows;
            }
            assert_int_equal(row, n->tensor < 0 ? 0 : mm_graph_tensor(w.graph, n->tensor)->dims[0]);
        }
        world_destroy(&w);
    }
    print_message("%d nodes divided, %d encodes of pieces held up by the throttle\n", divided, throttled);
    assert_true(divided > 100 && throttled > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_and_its_copy_are_cut_at_the_same_rows),
        cmocka_unit_test(pieces_end_where_the_codec_allows_and_are_not_too_many),
        cmocka_unit_test(what_cannot_be_cut_stays_whole),
        cmocka_unit_test(maps_that_move_as_they_are_stay_whole),
        cmocka_unit_test(waiting_for_what_is_not_there_is_refused),
        cmocka_unit_test(a_throttled_encode_waits_for_the_copy_of_an_earlier_piece),
        cmocka_unit_test(a_throttle_goes_on_from_one_map_to_the_next),
        cmocka_unit_test(pieces_keep_the_order_of_all_that_share_bytes),
        cmocka_unit_test(ends_tell_what_they_told_and_waits_are_for_earlier_pieces),
        cmocka_unit_test(rows_of_all_pieces_are_those_of_the_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
