/* SPDX-License-Identifier: MIT */
#include "tests/buffers/layout_patterns.h"

#include <stdlib.h>

void pattern_add(pattern_items *items, int64_t bytes, int first, int last) {
    if (items->n == items->capacity) {
        items->capacity = items->capacity ? 2 * items->capacity : 64;
        items->items = realloc(items->items, items->capacity * sizeof *items->items);
        if (!items->items) abort();
    }
    items->items[items->n++] = (mm_interval){.bytes = bytes, .first = first, .last = last};
}

void pattern_fini(pattern_items *items) {
    free(items->items);
    *items = (pattern_items){0};
}

/* Bytes of a convolutional network's map at layer i of `depth`: four stages, each with half of the one before. */
static int64_t stage_bytes(int i, int depth) { return INT64_C(8 << 20) >> (4 * i / depth); }

static int64_t uneven_bytes(pattern_items *out) { return 1000 + random_below(&out->random, 4 << 20); }

/* Adds a step's workspace, of up to twice the largest map. */
static void add_workspace(pattern_items *out, int step) {
    pattern_add(out, 1 + random_below(&out->random, 16 << 20), step, step);
}

/* Adds a chain: every map lives until the backward step of the layer that read it, a gradient for two steps. */
static void chain(pattern_items *out, int depth, bool even, bool workspaces) {
    for (int i = 0; i < depth; i++) {
        int64_t bytes = even ? stage_bytes(i, depth) : uneven_bytes(out);
        int backward = 2 * depth - 1 - i;
        pattern_add(out, bytes, i, i + 1 < depth ? backward - 1 : backward);
        pattern_add(out, bytes, i + 1 < depth ? backward - 1 : backward, backward);
        if (workspaces) {
            add_workspace(out, i);
            add_workspace(out, backward);
        }
    }
}

static void make_chain(pattern_items *out, int depth) { chain(out, depth, true, false); }
static void make_chain_uneven(pattern_items *out, int depth) { chain(out, depth, false, false); }
static void make_chain_workspaces(pattern_items *out, int depth) { chain(out, depth, false, true); }

/* Blocks of two convolutions with normalisation, and a skip. The skip's input lives until the block's backward, and its
 * gradient until the inner gradients are there. */
static void make_residual(pattern_items *out, int depth) {
    enum { INNER = 6 };
    int blocks = depth / INNER;
    for (int b = 0; b < blocks; b++) {
        int64_t bytes = stage_bytes(b, blocks);
        int forward = b * INNER, end = 2 * depth - 1 - forward;
        for (int i = 0; i < INNER; i++) {
            int backward = end - i;
            bool inplace = i % 3 == 2; /* the relu writes over the normalisation's output */
            if (!inplace) pattern_add(out, bytes, forward + i, i + 1 < INNER ? backward - 1 : backward);
            if (!inplace) pattern_add(out, bytes / 64 + 512, forward + i, backward);
            pattern_add(out, bytes, backward, backward + 1);
            if (i % 3 == 0) add_workspace(out, forward + i);
            if (i % 3 == 0) add_workspace(out, backward);
        }
        pattern_add(out, bytes, forward, end + 1);         /* the block's input */
        pattern_add(out, bytes, end - INNER + 1, end + 1); /* its gradient along the skip */
    }
}

/* Every layer reads all earlier maps of its block: maps live to the block's backward, gradients accumulate from the
 * block's last layer on. */
static void make_dense(pattern_items *out, int depth) {
    enum { LAYERS = 12 };
    for (int begin = 0; begin + LAYERS <= depth; begin += LAYERS) {
        int block_backward = 2 * depth - 1 - (begin + LAYERS - 1);
        int64_t growth = stage_bytes(begin, depth) / 8;
        for (int i = 0; i < LAYERS; i++) {
            int forward = begin + i, backward = 2 * depth - 1 - forward;
            pattern_add(out, growth, forward, backward);
            pattern_add(out, growth, block_backward, backward);
            pattern_add(out, 4 * growth, forward, backward);            /* the bottleneck */
            pattern_add(out, 4 * growth, backward, backward);           /* its gradient */
            pattern_add(out, (i + 1) * growth, forward, forward);       /* the concatenation */
            pattern_add(out, (i + 1) * growth, backward - 1, backward); /* made again, or its gradient */
        }
        pattern_add(out, LAYERS * growth, begin + LAYERS - 1, block_backward + 1);
    }
}

/* An encoder and a decoder with skips between mirrored layers, forward and backward. */
static void make_unet(pattern_items *out, int depth) {
    for (int i = 0; i < depth; i++) {
        int level = i < depth / 2 ? i : depth - 1 - i;
        int64_t bytes = (INT64_C(16) << 20) >> (8 * level / depth);
        int backward = 2 * depth - 1 - i;
        pattern_add(out, bytes, i, backward);
        pattern_add(out, bytes, backward - 1, backward);
        if (i >= depth / 2)
            pattern_add(out, bytes, backward, 2 * depth - 1 - (depth - 1 - i)); /* the skip's gradient */
        add_workspace(out, i);
        add_workspace(out, backward);
    }
}

/* Maps end after their forward use, and others begin some steps before the backward use; codes live in between. */
static void make_compressed(pattern_items *out, int depth) {
    for (int i = 0; i < depth; i++) {
        int64_t bytes = stage_bytes(i, depth);
        int backward = 2 * depth - 1 - i, back = backward - 2 - random_below(&out->random, 3);
        pattern_add(out, bytes, i, i + 1 + random_below(&out->random, 2));
        pattern_add(out, bytes, back > depth ? back : depth, backward);
        if (i + 1 < depth)
            pattern_add(out, bytes / 8 + random_below(&out->random, (int)(bytes / 8)), i + 1, backward - 1);
        pattern_add(out, bytes, backward - 1, backward);
        add_workspace(out, i);
        add_workspace(out, backward);
    }
}

/* Checkpoints stay; the maps between two of them are made again in the backward pass. That has more positions: each
 * segment's backward begins with a second forward. */
static void make_recomputed(pattern_items *out, int depth) {
    int segment = 1;
    while (segment * segment < depth) segment++;
    for (int begin = 0; begin < depth; begin += segment) {
        int end = begin + segment < depth ? begin + segment : depth;
        int backward_begin = 3 * depth - 2 * end, backward_end = 3 * depth - 2 * begin - 1;
        pattern_add(out, stage_bytes(begin, depth), begin, backward_end);
        for (int i = begin; i < end; i++) {
            int64_t bytes = stage_bytes(i, depth) + 256 * random_below(&out->random, 64);
            int again = backward_begin + (i - begin), backward = backward_end - (i - begin);
            pattern_add(out, bytes, i, i + 1);
            pattern_add(out, bytes, again, backward);
            pattern_add(out, bytes, backward - 1, backward);
            add_workspace(out, i);
            add_workspace(out, backward);
        }
    }
}

/* Some maps are kept, some come back late, some are small masks; sizes without structure. */
static void make_mixed(pattern_items *out, int depth) {
    for (int i = 0; i < depth; i++) {
        int64_t bytes = uneven_bytes(out);
        int backward = 2 * depth - 1 - i;
        switch (random_below(&out->random, 4)) {
        case 0:
            pattern_add(out, bytes, i, backward);
            break;
        case 1:
            pattern_add(out, bytes, i, i + 2);
            pattern_add(out, bytes, backward - 3 > depth ? backward - 3 : depth, backward);
            break;
        case 2:
            pattern_add(out, bytes, i, i + 1);
            pattern_add(out, bytes / 32, i, backward);
            break;
        default:
            pattern_add(out, bytes, i, i + 1 + random_below(&out->random, 8));
            pattern_add(out, bytes / 4, i, backward);
            break;
        }
        pattern_add(out, bytes, backward - 1, backward);
        if (random_below(&out->random, 2)) add_workspace(out, i);
        if (random_below(&out->random, 2)) add_workspace(out, backward);
    }
}

/* "compressed" is hard: codes of uneven sizes between short-lived maps, and workspaces larger than these. About one
 * case in fifty ends above 1 %. */
const pattern training_patterns[] = {
    {"chain", make_chain, 10},
    {"chain uneven", make_chain_uneven, 10},
    {"chain workspaces", make_chain_workspaces, 10},
    {"residual", make_residual, 10},
    {"dense", make_dense, 10},
    {"unet", make_unet, 10},
    {"compressed", make_compressed, 50},
    {"recomputed", make_recomputed, 10},
    {"mixed", make_mixed, 10},
    {NULL, NULL, 0},
};

/* Cuts a rectangle, of the positions first to last and of `height` bytes, into `pieces` items at most. */
static void cut(pattern_items *out, int first, int last, int64_t height, int pieces) {
    bool upright = height < 2 || (first < last && random_chance(&out->random, 50));
    if (pieces < 2 || (upright && first == last)) {
        pattern_add(out, height, first, last);
    } else if (upright) {
        int at = first + random_below(&out->random, last - first);
        cut(out, first, at, height, pieces / 2);
        cut(out, at + 1, last, height, pieces - pieces / 2);
    } else {
        int64_t at = 1 + random_below(&out->random, (int)height - 1);
        cut(out, first, last, at, pieces / 2);
        cut(out, first, last, height - at, pieces - pieces / 2);
    }
}

void pattern_cut(pattern_items *out, int pieces) {
    enum { POSITIONS = 40, BYTES = 1000 };
    cut(out, 0, POSITIONS - 1, BYTES, pieces);
    cut(out, POSITIONS, POSITIONS + 9, BYTES / 2, pieces / 4);
    for (size_t i = out->n - 1; i > 0; i--) {
        const size_t other = (size_t)random_below(&out->random, (int)i + 1);
        const mm_interval item = out->items[i];
        out->items[i] = out->items[other];
        out->items[other] = item;
    }
}
