/* SPDX-License-Identifier: MIT */
/* Routes of persistent tensors that move: each byte arrives, through a small buffer; and from wherever a route breaks
 * off there is a way back. */
#include <stdlib.h>
#include <string.h>

#include "mm/planning/home_route.h"
#include "tests/core/deep.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"

enum { UNIT = MM_ALIGN, MOST = 400, PIECE = 16 * MM_ROUTE_SLOT, PIECES = 16 };

/* Memories, and the buffer, as a number for each unit of bytes. */
typedef struct world {
    mm_route_item items[MOST];
    int n;
    int32_t *units[MM_MEMORY_COUNT], *buffer;
    int64_t n_units;
} world;

static int64_t units_of(int64_t bytes) { return (bytes + UNIT - 1) / UNIT; }

static int32_t value_of(int item, int64_t unit) { return (int32_t)(1 + item * 4096 + unit); }

/* Places the tensors one after the other in each memory, as the table of persistent tensors does. */
static void place(world *w, bool after, const mm_memory memory[]) {
    int64_t ends[MM_MEMORY_COUNT] = {0};
    for (int i = 0; i < w->n; i++) {
        mm_place *home = after ? &w->items[i].to : &w->items[i].from;
        *home = (mm_place){ends[memory[i]], memory[i]};
        ends[memory[i]] += mm_memory_round(memory[i], w->items[i].bytes);
        if (units_of(ends[memory[i]]) > w->n_units) w->n_units = units_of(ends[memory[i]]);
    }
}

static void draw(world *w, uint64_t *random) {
    mm_memory before[MOST], after[MOST];
    *w = (world){.n = 1 + random_below(random, random_chance(random, 20) ? MOST : 40)};
    const int large = random_below(random, 60), memories = 2 + random_below(random, 2);
    const int stays = random_below(random, 100);
    for (int i = 0; i < w->n; i++) {
        w->items[i].bytes = 1 + random_below(random, random_chance(random, large) ? 5 * PIECE : 3000);
        before[i] = (mm_memory)random_below(random, memories);
        after[i] = random_chance(random, stays) ? before[i] : (mm_memory)random_below(random, memories);
    }
    place(w, false, before);
    place(w, true, after);
}

static void fill(world *w) {
    for (int m = 0; m < MM_MEMORY_COUNT; m++) {
        w->units[m] = calloc((size_t)w->n_units, sizeof *w->units[m]);
        assert_non_null(w->units[m]);
    }
    for (int i = 0; i < w->n; i++)
        for (int64_t u = 0; u < units_of(w->items[i].bytes); u++)
            w->units[w->items[i].from.memory][w->items[i].from.offset / UNIT + u] = value_of(i, u);
}

static void empty(world *w) {
    for (int m = 0; m < MM_MEMORY_COUNT; m++) free(w->units[m]);
}

static void expect(const world *w, bool after) {
    for (int i = 0; i < w->n; i++) {
        const mm_place *home = after ? &w->items[i].to : &w->items[i].from;
        for (int64_t u = 0; u < units_of(w->items[i].bytes); u++)
            assert_int_equal(w->units[home->memory][home->offset / UNIT + u], value_of(i, u));
    }
}

/* Puts a piece of the buffer to its home before or after, or takes it from there. A put writes whole blocks. */
static void copy(world *w, const mm_route_piece *p, bool after, bool puts) {
    const mm_place *home = after ? &p->to : &p->from;
    int32_t *there = w->units[home->memory] + home->offset / UNIT, *slot = w->buffer + p->slot / UNIT;
    const int64_t n = units_of(p->bytes), whole = mm_memory_round(home->memory, p->bytes) / UNIT;
    if (puts) memset(there, 0, (size_t)whole * sizeof *there);
    memcpy(puts ? there : slot, puts ? slot : there, (size_t)n * sizeof *there);
}

/* Goes the route as far as a step, which fails amid its bytes; then back. */
static void break_off(world *w, const mm_route *r, int failed) {
    fill(w);
    for (int i = 0; i < failed; i++) copy(w, &r->pieces[r->steps[i].piece], r->steps[i].puts, r->steps[i].puts);
    const mm_route_piece *torn = failed < r->n_steps ? &r->pieces[r->steps[failed].piece] : NULL;
    if (torn && r->steps[failed].puts)
        memset(w->units[torn->to.memory] + torn->to.offset / UNIT, 0xee,
               (size_t)(mm_memory_round(torn->to.memory, torn->bytes) / UNIT) * sizeof(int32_t));
    for (int i = failed - 1; i >= 0; i--)
        if (r->pieces[r->steps[i].piece].over <= failed)
            copy(w, &r->pieces[r->steps[i].piece], r->steps[i].puts, !r->steps[i].puts);
    expect(w, false);
    empty(w);
}

static void go(world *w, const mm_route *r) {
    fill(w);
    for (int i = 0; i < r->n_steps; i++) copy(w, &r->pieces[r->steps[i].piece], r->steps[i].puts, r->steps[i].puts);
    expect(w, true);
    empty(w);
}

TEST_CASE(all_bytes_arrive_through_a_small_buffer_or_go_back) {
    uint64_t random = 40;
    int64_t most = 0;
    for (int i = 0; i < test_depth(400, 20000); i++) {
        world w;
        mm_route r;
        draw(&w, &random);
        assert_int_equal(mm_route_init(w.items, w.n, PIECE, PIECES * PIECE, &r), MM_OK);
        w.buffer = malloc((size_t)r.buffer_bytes / UNIT * sizeof *w.buffer + 1);
        assert_non_null(w.buffer);
        go(&w, &r);
        for (int k = 0; k < 3; k++) break_off(&w, &r, random_below(&random, r.n_steps + 1));
        if (i < 40)
            for (int k = 0; k <= r.n_steps; k++) break_off(&w, &r, k);
        if (r.buffer_bytes > most) most = r.buffer_bytes;
        free(w.buffer);
        mm_route_fini(&r);
    }
    print_message("at most %.1f pieces in the buffer\n", (double)most / PIECE);
    assert_true(most > PIECE && most <= 2 * PIECES * PIECE); /* the smallest pieces of some do not all have room */
}

/* Thousands of large tensors: pieces stay large, the buffer is small beside what moves, and the route is found in a
 * moment (a choice that looks at all that wait takes minutes). */
TEST_CASE(large_tensors_move_in_large_pieces) {
    enum { TENSORS = 2000, MEMORIES = 3 };
    const int64_t most = 64 << 20, least_piece = MM_ROUTE_PIECE_BYTES / MM_ROUTE_LESS;
    mm_route_item *items = calloc(TENSORS, sizeof *items);
    assert_non_null(items);
    uint64_t random = 9;
    int64_t ends[2][MM_MEMORY_COUNT] = {{0}}, all = 0;
    mm_route r;
    for (int i = 0; i < TENSORS; i++) {
        items[i].bytes = 1 + (int64_t)(random_next(&random) % (uint64_t)most);
        all += items[i].bytes;
        for (int after = 0; after < 2; after++) {
            const mm_memory memory = (mm_memory)random_below(&random, MEMORIES);
            *(after ? &items[i].to : &items[i].from) = (mm_place){ends[after][memory], memory};
            ends[after][memory] += mm_memory_round(memory, items[i].bytes);
        }
    }
    assert_int_equal(mm_route_init(items, TENSORS, MM_ROUTE_PIECE_BYTES, MM_ROUTE_BUFFER_BYTES, &r), MM_OK);
    print_message("%d pieces, a buffer of %.0f MiB for %.1f GiB\n", r.n_pieces, (double)r.buffer_bytes / (1 << 20),
                  (double)all / (1 << 30));
    assert_int_equal(r.n_steps, 2 * r.n_pieces);
    assert_true(r.n_pieces <= TENSORS + all / least_piece);
    assert_true(r.buffer_bytes > 0 && r.buffer_bytes < all / 64);
    mm_route_fini(&r);
    free(items);
}

/* Two memories that are full change their contents: one piece waits in the buffer, or two. What stays is not moved. */
TEST_CASE(full_memories_change_their_contents) {
    world w = {.n = 20};
    mm_memory before[20], after[20];
    mm_route r;
    for (int i = 0; i < w.n; i++) {
        w.items[i].bytes = 7 * PIECE + 100 + 256 * i;
        before[i] = i % 2 ? MM_MEM_PINNED : MM_MEM_DEVICE;
        after[i] = i % 2 ? MM_MEM_DEVICE : MM_MEM_PINNED;
    }
    place(&w, false, before);
    place(&w, true, after);
    assert_int_equal(mm_route_init(w.items, w.n, PIECE, PIECES * PIECE, &r), MM_OK);
    w.buffer = malloc((size_t)r.buffer_bytes / UNIT * sizeof *w.buffer + 1);
    assert_non_null(w.buffer);
    go(&w, &r);
    assert_true(r.buffer_bytes <= 4 * PIECE);
    free(w.buffer);
    mm_route_fini(&r);
    place(&w, true, before);
    assert_int_equal(mm_route_init(w.items, w.n, PIECE, PIECES * PIECE, &r), MM_OK);
    assert_int_equal(r.n_steps, 0);
    mm_route_fini(&r);
}
