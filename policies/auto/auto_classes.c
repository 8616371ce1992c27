/* SPDX-License-Identifier: MIT */
/* Repetition: most networks are blocks that repeat. Maps that have the same place in equal blocks are one class, and
 * what is best for one of them is mostly best for all, so the search changes them together.
 *
 *      block 0: a -> b -> c      block 1: a' -> b' -> c'      classes: {a, a'}, {b, b'}, {c, c'}
 *
 * Two maps are in one class if their surroundings look alike: tensors of equal kinds and sizes, used by equal kinds of
 * layers in the same way, up to ROUNDS layers away (colour refinement, Weisfeiler and Leman 1968). Blocks next to the
 * network's ends may differ from those in between. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/splitmix.h"
#include "mm/core/status.h"
#include "policies/auto/auto_state.h"

/* Chosen: with more, the blocks near the ends, and few others, are told apart. */
enum { ROUNDS = 2 };

static uint64_t hash_step(const mm_auto *a, const mm_step_info *step, const uint64_t *of_tensor) {
    uint64_t hash = mm_random_fold((uint64_t)step->phase, (uint64_t)mm_graph_layer(a->graph, step->layer)->kind);
    for (int u = 0; u < step->n_uses; u++) {
        hash = mm_random_fold(hash, (uint64_t)step->uses[u].access * 16 + (uint64_t)step->uses[u].form);
        hash = mm_random_fold(hash, of_tensor[step->uses[u].tensor]);
    }
    return hash;
}

/* One round: each tensor's hash takes in those of the steps that use it, with all that they use. */
static void refine(const mm_auto *a, const uint64_t *before, uint64_t *after) {
    memcpy(after, before, (size_t)mm_graph_tensors(a->graph) * sizeof *after);
    for (int i = 0; i < mm_graph_steps(a->graph); i++) {
        const mm_step_info *step = mm_graph_step(a->graph, i);
        const uint64_t hash = hash_step(a, step, before);
        for (int u = 0; u < step->n_uses; u++)
            after[step->uses[u].tensor] =
                mm_random_fold(after[step->uses[u].tensor], mm_random_fold(hash, (uint64_t)u));
    }
}

typedef struct keyed {
    uint64_t hash;
    int map;
} keyed;

static int by_hash(const void *x, const void *y) {
    const keyed *a = x, *b = y;
    if (a->hash != b->hash) return (a->hash > b->hash) - (a->hash < b->hash);
    return (a->map > b->map) - (a->map < b->map);
}

/* Lists the maps class by class; those of a class in their own order. */
static void list_classes(mm_auto *a, keyed *maps) {
    int *first = a->class_first;
    qsort(maps, (size_t)a->n_maps, sizeof *maps, by_hash);
    for (int i = 0; i < a->n_maps; i++) {
        if (i == 0 || maps[i].hash != maps[i - 1].hash) first[a->n_classes++] = i;
        a->class_maps[i] = maps[i].map;
    }
    first[a->n_classes] = a->n_maps;
}

mm_status mm_auto_classify(mm_auto *a) {
    const size_t n = (size_t)mm_graph_tensors(a->graph) + 1;
    uint64_t *hash = malloc(2 * n * sizeof *hash), *next = hash ? hash + n : NULL;
    keyed *maps = malloc(((size_t)a->n_maps + 1) * sizeof *maps);
    if (!hash || !maps) {
        free(hash);
        free(maps);
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    }
    for (int t = 0; t < mm_graph_tensors(a->graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(a->graph, t);
        hash[t] =
            mm_random_fold(mm_random_fold((uint64_t)info->kind, (uint64_t)info->bytes), (uint64_t)info->ownership);
    }
    for (int round = 0; round < ROUNDS; round++) {
        refine(a, hash, next);
        memcpy(hash, next, (n - 1) * sizeof *hash);
    }
    for (int i = 0; i < a->n_maps; i++) maps[i] = (keyed){hash[a->maps[i].tensor], i};
    list_classes(a, maps);
    free(hash);
    free(maps);
    return MM_OK;
}
