/* SPDX-License-Identifier: MIT */
/* Lifetimes as in training, for tests of layout. Positions are steps: `depth` layers forward, then backward. */
#ifndef TESTS_BUFFERS_LAYOUT_PATTERNS_H
#define TESTS_BUFFERS_LAYOUT_PATTERNS_H

#include "buffers/layout/layout.h"
#include "tests/core/random.h"

typedef struct pattern_items {
    mm_interval *items;
    size_t n, capacity;
    uint64_t random;
} pattern_items;

typedef struct pattern {
    const char *name;
    void (*make)(pattern_items *out, int depth);
    int worst_permille; /* the most that the best placement may exceed the lower bound */
} pattern;

/* Ends with a NULL name. */
extern const pattern training_patterns[];

void pattern_add(pattern_items *items, int64_t bytes, int first, int last);
void pattern_fini(pattern_items *items);

/* Adds up to 1.25 times `pieces` items in random order: a rectangle of 1000 bytes, cut into pieces, that is hard to put
 * together, and behind it a small one. */
void pattern_cut(pattern_items *out, int pieces);

#endif
