/* SPDX-License-Identifier: MIT */
/* Given offsets, and placements that have to meet a goal. */
#include <string.h>

#include "buffers/layout/layout_problem.h"
#include "tests/buffers/layout_patterns.h"
#include "tests/core/test_case.h"

static const mm_layout_algorithm algorithms[] = {MM_LAYOUT_MODNN, MM_LAYOUT_QUICK, MM_LAYOUT_BEST,
                                                 MM_LAYOUT_EXACT, MM_LAYOUT_FIT,   MM_LAYOUT_GROUPS};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms, MOST = 40 };

static bool collide(const mm_interval *a, const mm_interval *b) {
    return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static void assert_places(const mm_interval *items, const mm_interval *before, size_t n, int64_t align,
                          int64_t height) {
    int64_t top = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(items[i].offset >= 0 && items[i].offset % align == 0);
        if (before[i].is_given) assert_int_equal(items[i].offset, before[i].offset);
        if (items[i].bytes > 0 && items[i].offset + items[i].bytes > top) top = items[i].offset + items[i].bytes;
        for (size_t k = 0; k < i; k++) assert_false(collide(&items[i], &items[k]));
    }
    assert_int_equal(height, (top + align - 1) / align * align);
}

/* Adds random items of up to `largest` units of `align` bytes. Each tries an offset; those that collide with no earlier
 * one get it with a chance of `percent`. */
static void make_random(pattern_items *out, int n, int positions, int64_t align, int largest, int percent) {
    for (int i = 0; i < n; i++) {
        const int first = random_below(&out->random, positions);
        pattern_add(out, align * (1 + random_below(&out->random, largest)), first,
                    first + random_below(&out->random, 1 + positions / 2));
        mm_interval *item = &out->items[i];
        item->offset = align * random_below(&out->random, 2 * largest);
        item->is_given = random_chance(&out->random, percent);
        for (int k = 0; k < i; k++)
            if (out->items[k].is_given && collide(item, &out->items[k])) item->is_given = false;
    }
}

TEST_CASE(every_algorithm_places_around_given_offsets) {
    for (int seed = 0; seed < 60; seed++) {
        const int64_t align = seed % 3 ? 1 : 256;
        pattern_items items = {.random = (uint64_t)seed};
        mm_interval before[MOST];
        int64_t height[ALGORITHMS];
        make_random(&items, 1 + seed % MOST, 1 + seed % 23, align, 1 + seed % 100, seed * 7 % 101);
        memcpy(before, items.items, items.n * sizeof *before);
        const int64_t bound = mm_layout_lower_bound(before, items.n, align);
        for (int a = 0; a < ALGORITHMS; a++) {
            memcpy(items.items, before, items.n * sizeof *before);
            assert_int_equal(mm_layout_place(items.items, items.n, algorithms[a], align, MM_LAYOUT_NO_GOAL, &height[a]),
                             MM_OK);
            assert_places(items.items, before, items.n, align, height[a]);
            assert_true(height[a] >= bound);
        }
        for (int a = 1; a < 4; a++) assert_true(height[a] <= height[a - 1]);
        pattern_fini(&items);
    }
}

/* Whether the items from `i` on can be placed within `height`: tries every offset. */
static bool some_placement(mm_interval *items, size_t n, size_t i, int64_t height) {
    if (i == n) return true;
    const int64_t given = items[i].offset;
    for (int64_t offset = 0; offset + items[i].bytes <= height; offset++) {
        bool free = !items[i].is_given || offset == given;
        items[i].offset = offset;
        for (size_t k = 0; k < i && free; k++) free = !collide(&items[i], &items[k]);
        if (free && some_placement(items, n, i + 1, height)) return true;
    }
    items[i].offset = given;
    return false;
}

TEST_CASE(the_exact_search_agrees_with_trying_every_offset) {
    enum { PLENTY = 1000000 };
    int around = 0;
    for (int seed = 0; seed < 1500; seed++) {
        pattern_items items = {.random = (uint64_t)seed};
        mm_interval before[8], copy[8];
        int64_t high, optimum = 0, nodes = PLENTY;
        bool fits;
        make_random(&items, 2 + seed % 6, 6, 1, 4, 45);
        memcpy(before, items.items, items.n * sizeof *before);
        do {
            memcpy(copy, before, items.n * sizeof *copy);
        } while (!some_placement(copy, items.n, 0, optimum) && ++optimum < 100);
        assert_int_equal(mm_layout_place(items.items, items.n, MM_LAYOUT_MODNN, 1, MM_LAYOUT_NO_GOAL, &high), MM_OK);
        around += high > optimum;
        assert_int_equal(mm_layout_fit(items.items, items.n, 1, optimum - 1, &nodes, &fits), MM_OK);
        assert_true(!fits && nodes > 0);
        assert_int_equal(mm_layout_fit(items.items, items.n, 1, optimum, &nodes, &fits), MM_OK);
        assert_true(fits);
        assert_places(items.items, before, items.n, 1, optimum);
        pattern_fini(&items);
    }
    assert_true(around > 100); /* the search had something to find */
}

TEST_CASE(given_offsets_that_cannot_be_are_refused_in_a_line) {
    mm_interval items[] = {{.bytes = 300, .first = 0, .last = 2, .offset = 0, .is_given = true},
                           {.bytes = 100, .first = 2, .last = 3, .offset = 256, .is_given = true},
                           {.bytes = 100, .first = 0, .last = 9}};
    int64_t height = -1;
    assert_int_equal(mm_layout_place(items, 3, MM_LAYOUT_BEST, 256, MM_LAYOUT_NO_GOAL, &height), MM_ERR_INVALID);
    assert_string_equal(
        mm_last_error(),
        "items 0 and 1 are alive together, but their given bytes, 0 to 512 and 256 to 512, overlap: give "
        "other offsets, or leave one free");
    items[1].offset = 512;
    assert_int_equal(mm_layout_place(items, 3, MM_LAYOUT_FIT, 256, 767, &height), MM_ERR_INFEASIBLE);
    assert_string_equal(mm_last_error(),
                        "item 1 ends at 768 by its given offset, but all have to end within 767 bytes");
    assert_int_equal(height, -1);
    assert_int_equal(mm_layout_place(items, 3, MM_LAYOUT_FIT, 256, 1024, &height), MM_OK);
    assert_int_equal(height, 1024);
    items[1].offset = 100;
    assert_int_equal(mm_layout_place(items, 3, MM_LAYOUT_BEST, 256, MM_LAYOUT_NO_GOAL, &height), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "item 1 has the given offset 100: must be a multiple of 256"));
    items[1].offset = -256;
    assert_int_equal(mm_layout_place(items, 3, MM_LAYOUT_BEST, 256, MM_LAYOUT_NO_GOAL, &height), MM_ERR_INVALID);
    int32_t rank[3] = {0}, buffer[3];
    int k;
    assert_int_equal(mm_layout_sliding(items, rank, 3, 256, &height), MM_ERR_INVALID);
    assert_int_equal(mm_layout_buffers(items, 3, 0, 256, buffer, &k, &height), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "item 0 has a given offset"));
}

/* Pieces of a rectangle of 1000 bytes, each of which lost up to 11 % of its bytes: they fit in 1000, but hardly in the
 * most bytes alive at once. */
static void make_loose(pattern_items *out, int seed) {
    out->random = (uint64_t)seed;
    pattern_cut(out, 200);
    for (size_t i = 0; i < out->n; i++)
        out->items[i].bytes -= out->items[i].bytes * random_below(&out->random, 12) / 100;
}

static int64_t place(pattern_items *items, const mm_interval *before, mm_layout_algorithm algorithm, int64_t goal) {
    int64_t height;
    assert_int_equal(mm_layout_place(items->items, items->n, algorithm, 1, goal, &height), MM_OK);
    assert_places(items->items, before, items->n, 1, height);
    return height;
}

TEST_CASE(a_goal_is_met_where_the_bound_is_not) {
    enum { CASES = 12 };
    int exact = 0, fit = 0;
    for (int seed = 0; seed < CASES; seed++) {
        pattern_items items = {0}, same = {0};
        make_loose(&items, seed);
        make_loose(&same, seed);
        exact += place(&items, same.items, MM_LAYOUT_EXACT, 1000) <= 1000;
        fit += place(&items, same.items, MM_LAYOUT_FIT, 1000) <= 1000;
        pattern_fini(&items);
        pattern_fini(&same);
    }
    print_message("of %d goals, the search for the bound meets %d, that for the goal %d\n", CASES, exact, fit);
    assert_true(fit == CASES && exact < CASES);
}

TEST_CASE(a_larger_goal_is_met_whenever_a_smaller_one_is) {
    pattern_items items = {0}, same = {0};
    make_loose(&items, 1);
    make_loose(&same, 1);
    const int64_t exact = place(&items, same.items, MM_LAYOUT_EXACT, MM_LAYOUT_NO_GOAL);
    bool fits = false;
    for (int64_t goal = exact - 20; goal <= exact; goal += 4) {
        const int64_t height = place(&items, same.items, MM_LAYOUT_FIT, goal);
        assert_true(height <= exact && (height <= goal || !fits));
        fits = height <= goal;
    }
    assert_true(fits && exact > 1000);
    pattern_fini(&items);
    pattern_fini(&same);
}

/* What is more than a fourth above its goal is not searched, nor is what no placement can meet. */
TEST_CASE(a_goal_out_of_reach_is_given_up_at_once) {
    pattern_items items = {0}, same = {0};
    make_loose(&items, 1);
    make_loose(&same, 1);
    const int64_t bound = mm_layout_lower_bound(items.items, items.n, 1);
    const int64_t exact = place(&items, same.items, MM_LAYOUT_EXACT, MM_LAYOUT_NO_GOAL);
    static const int64_t goals[] = {INT64_MIN, -1, 0, 1, 500};
    for (size_t i = 0; i < sizeof goals / sizeof *goals; i++)
        assert_int_equal(place(&items, same.items, MM_LAYOUT_FIT, goals[i]), exact);
    assert_int_equal(place(&items, same.items, MM_LAYOUT_FIT, bound - 1), exact);
    pattern_fini(&items);
    pattern_fini(&same);
}
