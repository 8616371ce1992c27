/* SPDX-License-Identifier: MIT */
/* The policies for comparison: their optima, against searches that try everything. */
#include <stdlib.h>
#include <string.h>

#include "policies/engine/recompute_blocks.h"
#include "policies/engine/recompute_knapsack.h"
#include "tests/core/expect.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

/* ---------------------------------------------------------------- rotor: chains of blocks */

enum { BLOCKS = 5 };

typedef struct example {
    mm_stage stages[BLOCKS];
    int64_t across[BLOCKS * (BLOCKS + 1)];
    int64_t crossing[BLOCKS]; /* bytes of the map that block i + 1 reads */
    mm_chain chain;
} example;

/* Blocks of 1 to 30 ns, with maps of 1 to 9 bytes, of which the next block reads one. */
static void make(example *e, int n, uint64_t seed) {
    uint64_t random = seed;
    memset(e, 0, sizeof *e);
    e->chain = (mm_chain){.n = n, .stages = e->stages, .across = e->across};
    for (int i = 0; i < n; i++) {
        mm_stage *s = &e->stages[i];
        e->crossing[i] = 1 + random_below(&random, 4);
        s->ns = 1 + random_below(&random, 30);
        s->bytes = e->crossing[i] + random_below(&random, 6);
        s->forward_bytes = 1 + random_below(&random, 8);
        s->entry_bytes = random_below(&random, 3);
        s->backward_bytes = s->bytes + random_below(&random, 5);
        for (int a = 0; a <= i; a++) e->across[a * (n + 1) + i + 1] = e->crossing[i];
    }
}

/* What is known at a moment of a schedule. Stages above `back` are done. */
typedef struct moment {
    int back;      /* the block whose backward pass is next */
    int at;        /* the block whose output is there, of the last run; -1: none */
    unsigned kept; /* bit i: the map that block i + 1 reads is kept */
    unsigned full; /* bit i: all maps of block i are kept */
} moment;

enum { MOMENTS = (BLOCKS + 1) * (BLOCKS + 1) << 2 * BLOCKS };

static int index_of(const moment *m) {
    return (((m->back + 1) * (BLOCKS + 1) + m->at + 1) << 2 * BLOCKS) | (int)(m->kept << BLOCKS | m->full);
}

static moment moment_of(int index) {
    const int places = index >> 2 * BLOCKS;
    return (moment){.back = places / (BLOCKS + 1) - 1,
                    .at = places % (BLOCKS + 1) - 1,
                    .kept = (unsigned)index >> BLOCKS & ((1u << BLOCKS) - 1),
                    .full = (unsigned)index & ((1u << BLOCKS) - 1)};
}

typedef struct search {
    const example *e;
    int64_t memory, *ns; /* ns: per moment, the least time until it */
    bool changed;
} search;

static int64_t held(const search *q, const moment *m) {
    int64_t bytes = 0;
    for (int i = 0; i < q->e->chain.n; i++) {
        if (m->kept >> i & 1) bytes += q->e->crossing[i];
        if (m->full >> i & 1) bytes += q->e->stages[i].bytes;
    }
    return bytes;
}

static void reach(search *q, moment m, int64_t ns) {
    int64_t *least = &q->ns[index_of(&m)];
    if (held(q, &m) > q->memory || ns >= *least) return;
    *least = ns;
    q->changed = true;
}

/* Whether the output of block i - 1 stays until the backward pass of block i is done. */
static bool stays(const moment *m, int i) { return i == 0 || ((m->kept | m->full) >> (i - 1) & 1); }

/* All that can come next: a block runs, and keeps nothing or all; the last output is kept; the backward pass of a block
 * all of whose maps are there runs. */
static void go_on(search *q, moment m, int64_t ns) {
    const mm_stage *stages = q->e->stages;
    const int64_t room = q->memory - held(q, &m);
    for (int i = 0; i <= m.back; i++) {
        moment next = m;
        if (room < stages[i].forward_bytes + stages[m.back].entry_bytes) continue;
        next.at = i;
        if (m.at == i - 1 || stays(&m, i)) reach(q, next, ns + stages[i].ns);
        next.at = -1;
        next.full |= 1u << i;
        if (stays(&m, i) && !(m.full >> i & 1) && room >= stages[i].backward_bytes) reach(q, next, ns + stages[i].ns);
    }
    if (m.at >= 0 && m.at < m.back && !(m.kept >> m.at & 1)) {
        moment next = m;
        next.kept |= 1u << m.at;
        reach(q, next, ns);
    }
    if (m.full >> m.back & 1) {
        moment next = m;
        next.back--;
        next.at = -1;
        next.full &= ~(1u << m.back);
        if (m.back > 0) next.kept &= ~(1u << (m.back - 1));
        reach(q, next, ns);
    }
}

/* The least time of any schedule, by trying all until nothing changes. */
static int64_t least_ns(const example *e, int64_t memory, int64_t *ns) {
    search q = {.e = e, .memory = memory, .ns = ns};
    const moment first = {.back = e->chain.n - 1, .at = -1};
    int64_t least = MM_BLOCKS_NEVER;
    for (int i = 0; i < MOMENTS; i++) ns[i] = MM_BLOCKS_NEVER;
    reach(&q, first, 0);
    while (q.changed) {
        q.changed = false;
        for (int i = MOMENTS - 1; i >= 0; i--)
            if (ns[i] < MM_BLOCKS_NEVER && moment_of(i).back >= 0) go_on(&q, moment_of(i), ns[i]);
    }
    for (int i = 0; i < MOMENTS; i++)
        if (moment_of(i).back < 0 && ns[i] < least) least = ns[i];
    return least;
}

TEST_CASE(blocks_take_as_long_as_the_best_of_all_persistent_schedules) {
    int64_t *ns = malloc(MOMENTS * sizeof *ns);
    int feasible = 0, recomputing = 0;
    assert_non_null(ns);
    for (uint64_t seed = 1; seed <= 25; seed++) {
        const int n = 1 + (int)(seed % BLOCKS);
        example e;
        mm_blocks b;
        int64_t once = 0;
        make(&e, n, seed);
        for (int i = 0; i < n; i++) once += e.stages[i].ns;
        expect_ok(mm_blocks_solve(&e.chain, 1, &b));
        for (int m = 1; m < 60; m += 3) {
            int64_t found = b.ns[mm_blocks_at(&b, 0, n - 1, m)];
            if (found > MM_BLOCKS_NEVER) found = MM_BLOCKS_NEVER;
            assert_int_equal(found, least_ns(&e, m, ns));
            feasible += found < MM_BLOCKS_NEVER;
            recomputing += found < MM_BLOCKS_NEVER && found > once;
        }
        mm_blocks_fini(&b);
    }
    free(ns);
    assert_true(feasible > 250 && recomputing > 40);
}

/* ---------------------------------------------------------------- knapsack */

TEST_CASE(a_knapsack_is_worth_as_much_as_the_best_of_all_sets) {
    enum { ITEMS = 10, CAPACITY = 40 };
    uint8_t take[ITEMS * (CAPACITY + 1)];
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t random = seed;
        int64_t worth[ITEMS];
        int weight[ITEMS];
        for (int i = 0; i < ITEMS; i++) {
            worth[i] = 1 + random_below(&random, 50);
            weight[i] = random_below(&random, 15);
        }
        expect_ok(mm_knapsack_solve(ITEMS, worth, weight, CAPACITY, take));
        for (int c = 0; c <= CAPACITY; c += 4) {
            int64_t best = 0, found = 0;
            int left = c;
            for (unsigned set = 0; set < 1u << ITEMS; set++) {
                int64_t sum = 0, bytes = 0;
                for (int i = 0; i < ITEMS; i++)
                    if (set >> i & 1) sum += worth[i], bytes += weight[i];
                if (bytes <= c && sum > best) best = sum;
            }
            for (int i = ITEMS - 1; i >= 0; i--)
                if (take[i * (CAPACITY + 1) + left]) found += worth[i], left -= weight[i];
            assert_true(left >= 0);
            assert_int_equal(found, best);
        }
    }
}

/* ---------------------------------------------------------------- their plans */

/* Four equal layers, each backward step of which reads what its forward step read. */
static mm_graph *chain_of_four(void) {
    terse_graph g;
    terse_init(&g, "chain");
    for (g.i = 0; g.i <= 4; g.i++) {
        terse_map(&g, "x#", MM_FEATURE_MAP, 4);
        terse_map(&g, "d#", MM_GRADIENT_MAP, 1);
    }
    g.i = 0;
    terse_step(&g, "L#", MM_LAYER_CONV, MM_FORWARD, "=x0");
    for (g.i = 1; g.i <= 4; g.i++) terse_step(&g, "L#", MM_LAYER_CONV, MM_FORWARD, "x< =x#");
    g.i = 4;
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "x# =d#");
    for (; g.i >= 1; g.i--) terse_step(&g, "L#", MM_LAYER_CONV, MM_BACKWARD, "x< d# =d<");
    return terse_freeze(&g);
}

static void assert_told(const mm_graph *graph, const char *policy, const char *expected) {
    planned p;
    char text[512];
    plan_terse(&p, graph, policy, -1);
    assert_string_equal(terse_tell(p.plan, text, sizeof text), expected);
    planned_done(&p);
}

TEST_CASE(rotor_runs_rows_of_blocks_again_and_knapsack_drops_single_maps) {
    mm_graph *graph = chain_of_four();
    assert_told(graph, "rotor:when=always", "L0 L1 L2 L3 L4 loss' L4' ~L0 ~L1 ~L2 L3' L2' ~L0 L1'");
    assert_told(graph, "knapsack:when=always", "L0 L1 L2 L3 L4 ~L0 ~L1 ~L2 ~L3 ~L4 loss' L4' L3' L2' L1'");
    mm_graph_destroy(graph);
}
