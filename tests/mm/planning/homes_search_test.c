/* SPDX-License-Identifier: MIT */
/* The search of how many persistent tensors leave the device (mm_homes_search), with plans that are made up. */
#include <stdio.h>

#include "mm/planning/homes.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"

enum { WEIGHTS = 64, BYTES = 1 << 20 };

/* What trials find, and what was tried. */
typedef struct world {
    int least;            /* so many tensors must leave for a plan to fit */
    int64_t ns;           /* what any plan takes that fits, with no tensor away; one that is searched for, half of it */
    int each_ns;          /* more with each tensor away */
    bool all_are_fast;    /* with all away, a plan takes a quarter */
    bool in_line;         /* but only if copies are in line with the steps */
    bool all_gain;        /* only with all away is a plan that is searched for any faster: it takes an eighth */
    int enough;           /* with fewer tensors away, maps have so little room that a plan takes eight times as long */
    int64_t steps_ns;     /* of each plan, the steps alone */
    int64_t pinned_bytes; /* the limit; 0: none */
    bool compares;        /* mm_home_wish.compares */
    bool untimed;         /* with tensors away, a plan's time is not known */
    mm_home_trial last;   /* the last trial */
    mm_home_result kept;
    int searched, quick; /* trials that search for a fast plan, and that take any */
} world;

static mm_status try(void *ctx, const mm_home_trial *trial, mm_home_result *result_out) {
    world *w = ctx;
    w->last = *trial;
    *(trial->first_fit ? &w->quick : &w->searched) += 1;
    const bool fast = w->all_are_fast && trial->n == WEIGHTS && (!w->in_line || trial->ahead_bytes == 0);
    const int64_t share = fast ? 4 : 1;
    const int64_t searched = !w->all_gain ? 2 : trial->n == WEIGHTS ? 8 : 1, gain = trial->first_fit ? 1 : searched;
    const int64_t any_ns = (w->ns + trial->n * w->each_ns) * (trial->n < w->enough ? 8 : 1) / share, ns = any_ns / gain;
    const bool useful = trial->below_ns == 0 || ns < trial->below_ns;
    const int64_t pinned_bytes = (int64_t)trial->n * BYTES;
    mm_home_result found = {.peak_bytes = INT64_MAX};
    found.lacks_pinned = !trial->pinned_free && w->pinned_bytes > 0 && pinned_bytes > w->pinned_bytes;
    if (trial->n >= w->least && useful && !found.lacks_pinned)
        found = (mm_home_result){.fits = true, .pinned_bytes = pinned_bytes, .ns = ns, .steps_ns = w->steps_ns};
    if (w->untimed && trial->n > 0) found.ns = 0;
    if (!trial->rival || (found.ns > 0 && found.ns < w->kept.ns)) w->kept = found;
    *result_out = w->kept;
    result_out->tried_fits = found.fits;
    result_out->tried_ns = found.ns;
    assert_true(!trial->rival || trial->first_fit || trial->below_ns > 0);
    assert_false(trial->few && !trial->first_fit);
    return MM_OK;
}

/* A step that reads many weights. */
static mm_graph *make_graph(void) {
    mm_graph *graph;
    mm_use uses[WEIGHTS];
    mm_layer layer;
    expect_ok(mm_graph_create("weights", &graph));
    expect_ok(mm_graph_add_layer(graph, "layer", MM_LAYER_LINEAR, &layer));
    for (int i = 0; i < WEIGHTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        const mm_tensor_desc desc = {
            .name = name, .kind = MM_WEIGHT, .ownership = MM_PERSISTENT, .dtype = MM_U8, .rank = 1, .dims = {BYTES}};
        uses[i] = (mm_use){.access = MM_READ};
        expect_ok(mm_graph_add_tensor(graph, &desc, &uses[i].tensor));
    }
    expect_ok(mm_graph_add_step(graph, layer, MM_FORWARD, uses, WEIGHTS, 0));
    expect_ok(mm_graph_freeze(graph));
    return graph;
}

static void search(world *w, int64_t below_ns) {
    mm_graph *graph = make_graph();
    mm_tensor tensors[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) tensors[i] = i;
    const mm_home_order order = {.graph = graph, .tensors = tensors, .n = WEIGHTS};
    const mm_limits limits = {.device_bytes = (int64_t)WEIGHTS * BYTES / 2,
                              .pinned_bytes = w->pinned_bytes ? w->pinned_bytes : INT64_MAX,
                              .below_ns = below_ns};
    const mm_home_wish wish = {.resident = MM_RESIDENT_NEEDED, .compares = w->compares};
    expect_ok(mm_homes_search(&wish, &order, &limits, try, w));
    mm_graph_destroy(graph);
}

TEST_CASE(few_leave_where_that_is_fast) {
    for (int least = 33; least <= WEIGHTS; least++) {
        world w = {.least = least, .ns = 1000, .each_ns = 10};
        search(&w, 0);
        assert_false(w.last.first_fit);
        if (least <= 55) assert_int_equal(w.last.compared, 2); /* of fewer that stay, only one number is ranked */
        assert_in_range(w.kept.pinned_bytes / BYTES, least, least + 1 + WEIGHTS / 16);
        assert_true(w.quick <= 16);
    }
}

/* More may leave than must: up to half of the others. */
TEST_CASE(many_leave_where_that_is_fast) {
    for (int least = 33; least <= WEIGHTS / 2 + 16; least++) {
        world w = {.least = least, .ns = 10000, .each_ns = -100};
        search(&w, 0);
        assert_in_range(w.kept.pinned_bytes / BYTES, least + (WEIGHTS - least) / 2 - 1, WEIGHTS);
    }
}

/* All leave where that alone is fast, though it is far from the least number that fits. */
TEST_CASE(all_leave_where_that_is_fast) {
    for (int least = 33; least < WEIGHTS; least++) {
        world w = {.least = least, .ns = 1000, .each_ns = 10, .all_are_fast = true};
        search(&w, 0);
        assert_int_equal(w.kept.pinned_bytes / BYTES, WEIGHTS);
        assert_int_equal(w.searched, 2); /* none leaves; and all, which is so far ahead that no other is searched for */
        assert_int_equal(w.last.compared, 1);
        world in_line = {.least = least, .ns = 1000, .each_ns = 10, .all_are_fast = true, .in_line = true};
        search(&in_line, 0);
        assert_int_equal(in_line.kept.pinned_bytes / BYTES, WEIGHTS);
    }
}

/* All away is searched for even where any plan of it takes a little longer than of numbers near the least. */
TEST_CASE(all_leave_where_a_search_finds_that_fast) {
    for (int least = 33; least < WEIGHTS; least++) {
        world w = {.least = least, .ns = 2000, .each_ns = 1, .all_gain = true};
        search(&w, 0);
        assert_int_equal(w.kept.ns, (2000 + WEIGHTS) / 8);
    }
}

/* All may stay, but maps have too little room then. As few leave as give them enough, to within a sixteenth. */
TEST_CASE(tensors_leave_where_that_is_faster) {
    for (int enough = 1; enough <= WEIGHTS / 2; enough++) {
        const world slow = {.ns = 1000, .each_ns = 40, .enough = enough, .steps_ns = 1000, .compares = true};
        world w = slow;
        search(&w, 0);
        assert_in_range(w.kept.pinned_bytes / BYTES, enough, enough + 1 + WEIGHTS / 16);
        assert_true(w.quick <= 8);
        assert_int_equal(w.searched, 2); /* none leaves, and the best number */
        /* the same plan with just as much pinned memory; without enough, all stay */
        world limited = slow, narrow = slow;
        limited.pinned_bytes = w.kept.pinned_bytes;
        search(&limited, 0);
        assert_int_equal(limited.kept.pinned_bytes, w.kept.pinned_bytes);
        narrow.pinned_bytes = (int64_t)(enough - 1) * BYTES;
        if (enough > 1) search(&narrow, 0);
        if (enough > 1) assert_int_equal(narrow.kept.pinned_bytes, 0);
        if (enough > 1) assert_true(narrow.kept.fits);
    }
}

/* Where all numbers are as fast, all leave: a search then has the most room for maps. */
TEST_CASE(all_leave_where_all_numbers_are_as_fast) {
    world w = {.ns = 1000, .enough = 9, .steps_ns = 1000, .compares = true};
    search(&w, 0);
    assert_int_equal(w.kept.pinned_bytes / BYTES, WEIGHTS);
}

TEST_CASE(none_leave_where_that_is_fast_or_not_asked_for) {
    world other = {.ns = 1000, .enough = 9, .steps_ns = 1000};
    search(&other, 0);
    world fast = {.ns = 1000, .enough = 9, .steps_ns = 3600, .compares = true};
    search(&fast, 0);
    world slower = {.ns = 1000, .each_ns = 1000, .steps_ns = 100, .compares = true};
    search(&slower, 0);
    assert_int_equal(other.searched + other.quick, 1);
    assert_int_equal(fast.searched + fast.quick, 1);
    assert_int_equal(slower.kept.pinned_bytes, 0);
    world untimed = {.ns = 1000, .enough = 9, .steps_ns = 1000, .compares = true, .untimed = true};
    search(&untimed, 0);
    assert_int_equal(untimed.searched, 1);
    assert_int_equal(untimed.kept.pinned_bytes, 0);
}

/* The caller has a plan that takes 500 already: no plan here is faster. */
TEST_CASE(plans_that_cannot_help_end_the_search) {
    world w = {.least = 40, .ns = 1000};
    search(&w, 500);
    assert_int_equal(w.last.below_ns, 500);
    assert_false(w.last.first_fit);
    assert_int_equal(w.searched, 3); /* none leaves, and the two best of the others */
    assert_false(w.kept.fits);
    world useful = {.least = 40, .ns = 1000};
    search(&useful, 501);
    assert_true(useful.kept.fits && useful.kept.ns == 500);
}
