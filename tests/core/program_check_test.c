/* SPDX-License-Identifier: MIT */
/* The check of programs, against a second opinion by brute force: on programs lowered from random plans, and on the
 * same with one place broken. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/program.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/test_case.h"

typedef struct world {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_program program;
    bool *before; /* [a * n + b]: piece a ends before piece b starts */
} world;

static void mark(world *w, int piece, int target) {
    const mm_piece *p = &w->program.pieces[piece];
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int seq = s == (int)p->stream ? p->seq - 1 : p->wait[s];
        int earlier = seq < 0 ? -1 : w->program.at[s][seq];
        if (earlier < 0 || w->before[earlier * w->program.n + target]) continue;
        w->before[earlier * w->program.n + target] = true;
        mark(w, earlier, target);
    }
}

static void find_order(world *w) {
    memset(w->before, 0, (size_t)w->program.n * (size_t)w->program.n * sizeof *w->before);
    for (int i = 0; i < w->program.n; i++) mark(w, i, i);
}

static world world_create(uint64_t seed) {
    world w = {0};
    random_graph_options graph = {.seed = seed, .layers = 4 + (int)(seed % 8), .max_channels = 4, .images = 12};
    random_plan_options plan = {
        .seed = seed, .lossy = seed % 2, .dynamic = seed % 5 == 0, .disk = seed % 3 == 1, .pools = seed % 4 == 0};
    assert_int_equal(random_graph_create(&graph, &w.graph), MM_OK);
    assert_int_equal(random_facts_create(w.graph, seed, &w.facts), MM_OK);
    mm_limits limits = {.base_bytes = mm_plan_base(w.graph) + MM_ALIGN};
    assert_int_equal(random_plan_create(w.graph, w.facts, &limits, &plan, &w.plan), MM_OK);
    w.facts->piece_bytes = 1;
    for (int i = 0; i < w.plan->n_nodes; i++)
        if (w.plan->nodes[i].kind == MM_NODE_ENCODE) w.plan->nodes[i].throttle = (int)(seed % 4);
    assert_int_equal(mm_program_init(w.plan, w.facts, &w.program), MM_OK);
    w.before = calloc((size_t)w.program.n * (size_t)w.program.n, sizeof *w.before);
    assert_non_null(w.before);
    find_order(&w);
    return w;
}

static void world_destroy(world *w) {
    free(w->before);
    mm_program_fini(&w->program);
    mm_plan_destroy(w->plan);
    mm_graph_facts_destroy(w->facts);
    mm_graph_destroy(w->graph);
}

static int index_of(const world *w, int node, int i) { return mm_program_piece(&w->program, node, i); }

static int pieces_of(const world *w, int node) { return mm_program_pieces(&w->program, node); }

static bool overlap(const mm_segment *a, const mm_segment *b) {
    if (a == b) return true;
    if (a->dynamic || b->dynamic || a->memory != b->memory) return false;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Whether every piece of node `a` ends before any of `b` starts; but pieces of one code, written by `a` and read by
 * `b`, only if they have rows in common. Counts such pairs. */
static bool in_order(const world *w, const access *a, const access *b, int *carried_out) {
    bool carried = a->segment == b->segment && pieces_of(w, a->node) > 1 && pieces_of(w, b->node) > 1 &&
                   a->segment == w->plan->nodes[a->node].dst && a->segment == w->plan->nodes[b->node].src;
    for (int i = 0; i < pieces_of(w, a->node); i++)
        for (int j = 0; j < pieces_of(w, b->node); j++) {
            const int x = index_of(w, a->node, i), y = index_of(w, b->node, j);
            const mm_piece *p = &w->program.pieces[x], *q = &w->program.pieces[y];
            bool apart = p->first_row + p->rows <= q->first_row || q->first_row + q->rows <= p->first_row;
            if (!(carried && apart) && !w->before[x * w->program.n + y]) return false;
        }
    *carried_out += carried;
    return true;
}

/* Whether all pieces that touch the same bytes, one of them to write, are in the order that the nodes have in the plan:
 * a second opinion on the check's rules about pieces, by brute force. */
static bool all_in_order(const world *w, const closure *nodes, int *pairs_out, int *carried_out) {
    int n;
    bool good = true;
    access *list = plan_accesses(w->plan, &n);
    const mm_segment *s = w->plan->segments;
    for (int i = 0; i < n * n; i++) {
        const access *a = &list[i / n], *b = &list[i % n];
        if (!closure_before(nodes, a->node, b->node) || !(a->write || b->write) ||
            !overlap(&s[a->segment], &s[b->segment]))
            continue;
        if (a->segment == b->segment && s[a->segment].content == MM_CONTENT_POOL) continue; /* bodies lie apart */
        good &= in_order(w, a, b, carried_out);
        ++*pairs_out;
    }
    free(list);
    return good;
}

/* If two nodes touch the same bytes, one of them to write, their pieces are in the order that the plan gives the
 * nodes. */
TEST_CASE(pieces_keep_the_order_of_all_that_share_bytes) {
    int pairs = 0, carried = 0;
    for (uint64_t seed = 0; seed < 80; seed++) {
        world w = world_create(seed);
        closure nodes = closure_create(w.plan);
        assert_true(all_in_order(&w, &nodes, &pairs, &carried));
        closure_destroy(&nodes);
        world_destroy(&w);
    }
    print_message("%d pairs in order, of which %d carry on with each other's pieces\n", pairs, carried);
    assert_true(pairs > 10000 && carried > 60);
}

/* If one node ends before another starts by the plan, its last piece ends before the other's last starts. And each
 * piece waits for earlier pieces only, so none waits for ever. */
TEST_CASE(ends_tell_what_they_told_and_waits_are_for_earlier_pieces) {
    for (uint64_t seed = 0; seed < 80; seed++) {
        world w = world_create(seed);
        closure nodes = closure_create(w.plan);
        for (int i = 0; i < w.program.n; i++)
            for (int s = 0; s < MM_STREAM_COUNT; s++) {
                int32_t wait = w.program.pieces[i].wait[s];
                if (wait >= 0) assert_true(s != (int)w.program.pieces[i].stream && w.program.at[s][wait] < i);
            }
        for (int a = 0; a < w.plan->n_nodes; a++)
            for (int b = 0; b < w.plan->n_nodes; b++) {
                int x = index_of(&w, a, pieces_of(&w, a) - 1), y = index_of(&w, b, pieces_of(&w, b) - 1);
                if (closure_before(&nodes, a, b)) assert_true(w.before[x * w.program.n + y]);
            }
        closure_destroy(&nodes);
        world_destroy(&w);
    }
}

TEST_CASE(rows_of_all_pieces_are_those_of_the_map) {
    int divided = 0, throttled = 0;
    for (uint64_t seed = 0; seed < 80; seed++) {
        world w = world_create(seed);
        for (int i = 0; i < w.plan->n_nodes; i++) {
            const mm_node *n = &w.plan->nodes[i];
            int64_t row = 0;
            divided += pieces_of(&w, i) > 1;
            assert_in_range(pieces_of(&w, i), 1, MM_PIECES_MOST);
            for (int k = 0; k < pieces_of(&w, i); k++) {
                const mm_piece *p = &w.program.pieces[index_of(&w, i, k)];
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

/* ---------------------------------------------------------------- programs broken in one place */

static mm_status prove(const world *w) {
    mm_limits limits = {.base_bytes = w->plan->base_bytes,
                        .device_bytes = INT64_MAX,
                        .pinned_bytes = INT64_MAX,
                        .disk_bytes = INT64_MAX};
    return mm_program_prove(&w->program, w->facts, &limits, NULL);
}

/* Removes a wait, or makes it one for the piece before. The check may accept that only if all that share bytes are
 * still in order. */
TEST_CASE(a_wait_is_missed_where_bytes_are_shared) {
    int accepted = 0, refused = 0, stricter = 0, ignored = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        world w = world_create(seed);
        closure nodes = closure_create(w.plan);
        for (int i = 0; i < w.program.n; i++)
            for (int s = 0; s < MM_STREAM_COUNT; s++) {
                int32_t *wait = &w.program.pieces[i].wait[s], whole = *wait;
                if (whole < 0) continue;
                *wait = (seed + (uint64_t)i) % 2 ? -1 : whole - 1;
                find_order(&w);
                bool accept = prove(&w) == MM_OK, right = all_in_order(&w, &nodes, &ignored, &ignored);
                if (accept && !right) fail_msg("seed %d, piece %d: accepted but out of order", (int)seed, i);
                accepted += accept;
                refused += !accept && !right;
                stricter += !accept && right;
                *wait = whole;
            }
        find_order(&w);
        if (prove(&w) != MM_OK) fail_msg("seed %d: %s", (int)seed, mm_last_error());
        closure_destroy(&nodes);
        world_destroy(&w);
    }
    print_message("%d waits are missed, %d are not, %d by the check alone\n", refused, accepted, stricter);
    assert_true(refused > 500 && accepted > 100 && stricter * 20 < refused);
}

typedef enum spoiling {
    ROW_OF_ANOTHER,
    ROWS_TOO_FEW,
    MAP_ELSEWHERE,
    CODE_ELSEWHERE,
    CODE_SHORT,
    OTHER_NODE,
    OTHER_STREAM,
    NUMBER_SKIPPED,
    WAIT_FOR_LATER,
    WAIT_FOR_OWN_STREAM,
    PIECES_IN_TURN_EXCHANGED,
    LAST_PIECE_LOST,
    SPOILINGS
} spoiling;

/* Spoils a piece in that way. Returns false if that is not possible with this piece. */
static bool spoil(world *w, int index, spoiling how) {
    mm_program *p = &w->program;
    mm_piece *piece = &p->pieces[index];
    const mm_node *n = &w->plan->nodes[piece->node];
    if (how <= CODE_SHORT && mm_node_runs_step(n)) return false;
    switch (how) {
    case ROW_OF_ANOTHER:
        piece->first_row++;
        return true;
    case ROWS_TOO_FEW:
        piece->rows--;
        return true;
    case MAP_ELSEWHERE:
        piece->map_offset += MM_ALIGN;
        return true;
    case CODE_ELSEWHERE:
        piece->stored_offset += MM_ALIGN;
        return true;
    case CODE_SHORT:
        piece->stored_bytes--;
        return true;
    case OTHER_NODE:
        piece->node = (piece->node + 1) % w->plan->n_nodes;
        return true;
    case OTHER_STREAM:
        piece->stream = (piece->stream + 1) % MM_STREAM_COUNT;
        return true;
    case NUMBER_SKIPPED:
        piece->seq++;
        return true;
    case WAIT_FOR_LATER:
        piece->wait[(piece->stream + 1) % MM_STREAM_COUNT] = p->count[(piece->stream + 1) % MM_STREAM_COUNT];
        return true;
    case WAIT_FOR_OWN_STREAM:
        piece->wait[piece->stream] = 0;
        return true;
    case PIECES_IN_TURN_EXCHANGED:
        if (mm_piece_is_last(p, piece)) return false;
        p->at[piece->stream][piece->seq] = p->at[piece->stream][piece->seq + 1];
        p->at[piece->stream][piece->seq + 1] = index;
        return true;
    default:
        if (mm_piece_is_first(p, piece) || !mm_piece_is_last(p, piece)) return false;
        p->last[piece->node]--;
        return true;
    }
}

TEST_CASE(a_program_that_is_not_its_plan_is_refused) {
    int refused[SPOILINGS] = {0};
    for (uint64_t seed = 1; seed < 9; seed++) {
        world w = world_create(seed);
        for (int i = 0; i < w.program.n; i++)
            for (spoiling how = 0; how < SPOILINGS; how++) {
                const mm_piece before = w.program.pieces[i];
                if (!spoil(&w, i, how)) continue;
                if (prove(&w) == MM_OK) fail_msg("seed %d, piece %d: spoiling %d is accepted", (int)seed, i, how);
                refused[how]++;
                mm_program_fini(&w.program);
                assert_int_equal(mm_program_init(w.plan, w.facts, &w.program), MM_OK);
                assert_memory_equal(&w.program.pieces[i], &before, sizeof before);
            }
        world_destroy(&w);
    }
    for (spoiling how = 0; how < SPOILINGS; how++) assert_true(refused[how] > 20);
}

/* A segment that is placed at run time is allocated and freed as a whole, so its nodes must not be cut. */
TEST_CASE(what_is_placed_at_run_time_is_not_cut) {
    int refused = 0;
    for (uint64_t seed = 1; seed < 9; seed++) {
        world w = world_create(seed);
        for (int i = 0; i < w.plan->n_nodes; i++) {
            const mm_node *n = &w.plan->nodes[i];
            mm_segment *s = pieces_of(&w, i) > 1
                                ? &w.plan->segments[w.plan->segments[n->src].memory == MM_MEM_PINNED ? n->dst : n->src]
                                : NULL;
            if (!s || s->memory == MM_MEM_PINNED) continue;
            s->dynamic = true;
            assert_int_equal(prove(&w), MM_ERR_PLAN);
            if (!strstr(mm_last_error(), "pieces, but cannot be")) fail_msg("seed %d: %s", (int)seed, mm_last_error());
            s->dynamic = false;
            refused++;
        }
        world_destroy(&w);
    }
    assert_true(refused > 20);
}
