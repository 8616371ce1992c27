/* SPDX-License-Identifier: MIT */
/* Choices as the engine gets them, and what was drafted and placed before. Many ways lead a search to the same choice:
 * a change that relieving undoes, or a start with other prices. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/splitmix.h"
#include "mm/core/status.h"
#include "policies/auto/auto_state.h"

/* A choice that was placed. */
struct mm_auto_placed {
    uint64_t key; /* 0: the entry is free */
    int64_t over; /* bytes by which the lowest placement exceeded the budget */
};

/* A draft that is kept. */
struct mm_auto_kept {
    uint64_t key;
    mm_engine_draft draft;
    int64_t ns;
};

/* Most drafts that are kept, and about how many steps they may have together. Chosen: most choices that come back do so
 * soon. */
enum { KEPT = 32, KEPT_STEPS = 30000 };

/* A draft that is kept counts as 1 / REPEATED of the work to make it (measured). */
enum { REPEATED = 8 };

mm_assignment mm_auto_assignment(const mm_auto *a, const mm_auto_choice *c) {
    mm_assignment assigned = {.rule = c->rule, .brief = c->brief};
    assigned.paced = c->lead == 0;
    if (c->lead > 0) {
        assigned.fetch = c->fetch;
        assigned.gone = c->gone;
    }
    if (c->nesting >= 0) {
        assigned.level = mm_nesting_levels(&a->survey->nesting, c->nesting);
        assigned.cut = mm_nesting_cuts(&a->survey->nesting, c->nesting);
    }
    return assigned;
}

/* Mixes all that the engine plans by (mm_auto_assignment). Choices with equal keys are taken for equal: of a million
 * choices, two differ and have equal keys with a chance of 3e-8. */
static uint64_t key_of(const mm_auto *a, const mm_auto_choice *c) {
    uint64_t key = mm_random_fold(1 + (c->lead > 0), (uint64_t)(1 + c->nesting));
    for (int t = 0; t < mm_graph_tensors(a->graph); t++) {
        key = mm_random_fold(key, (uint64_t)(uint8_t)c->rule[t] << 8 | c->brief[t]);
        if (c->lead > 0) key = mm_random_fold(key, (uint64_t)(uint32_t)c->fetch[t] << 32 | (uint32_t)c->gone[t]);
    }
    return key == 0 ? 1 : key;
}

/* ---------------------------------------------------------------- drafts */

mm_status mm_auto_memo_draft(mm_auto *a, const mm_auto_choice *c) {
    const mm_assignment assigned = mm_auto_assignment(a, c);
    const mm_selection selection = {.assigned = &assigned};
    int room = KEPT_STEPS / (mm_graph_steps(a->graph) + 1);
    room = room > KEPT ? KEPT : room < 1 ? 1 : room;
    if (!a->kept) a->kept = calloc((size_t)room, sizeof *a->kept);
    if (!a->kept) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    const uint64_t key = key_of(a, c);
    struct mm_auto_kept *kept = NULL;
    for (int i = 0; i < a->n_kept && !kept; i++)
        if (a->kept[i].key == key) kept = &a->kept[i];
    if (!kept) {
        if (a->n_kept < room) a->n_kept++;
        kept = &a->kept[a->next_kept];
        mm_engine_draft_fini(&kept->draft);
        kept->key = 0; /* no draft, in case of a failure */
        a->next_kept = (a->next_kept + 1) % room;
        MM_TRY(mm_engine_draft_maps(a->survey, a->menu, &selection, &kept->draft));
        MM_TRY(mm_simulated_time(kept->draft.plan, a->facts, &kept->ns));
        kept->key = key;
        a->left -= kept->draft.plan->n_nodes;
    } else
        a->left -= 1 + kept->draft.plan->n_nodes / REPEATED;
    a->draft = kept->draft;
    a->draft_ns = kept->ns;
    return MM_OK;
}

/* ---------------------------------------------------------------- placed choices */

/* The entry with the key, or a free one. */
static struct mm_auto_placed *find(struct mm_auto_placed *entries, int capacity, uint64_t key) {
    size_t i = key & (size_t)(capacity - 1);
    while (entries[i].key != 0 && entries[i].key != key) i = (i + 1) & (size_t)(capacity - 1);
    return &entries[i];
}

static mm_status grow(mm_auto *a) {
    enum { LEAST = 256 };
    const int capacity = a->placed_room ? 2 * a->placed_room : LEAST;
    struct mm_auto_placed *placed = calloc((size_t)capacity, sizeof *placed);
    if (!placed) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    for (int i = 0; i < a->placed_room; i++)
        if (a->placed[i].key != 0) *find(placed, capacity, a->placed[i].key) = a->placed[i];
    free(a->placed);
    a->placed = placed;
    a->placed_room = capacity;
    return MM_OK;
}

mm_status mm_auto_memo_place(mm_auto *a, int64_t **over_out, bool *again_out) {
    const uint64_t key = key_of(a, &a->now);
    if (2 * a->n_placed >= a->placed_room) MM_TRY(grow(a));
    struct mm_auto_placed *placed = find(a->placed, a->placed_room, key);
    *again_out = placed->key != 0;
    if (placed->key == 0) {
        *placed = (struct mm_auto_placed){.key = key, .over = INT64_MAX};
        a->n_placed++;
    }
    *over_out = &placed->over;
    return MM_OK;
}

void mm_auto_memo_fini(mm_auto *a) {
    for (int i = 0; i < a->n_kept; i++) mm_engine_draft_fini(&a->kept[i].draft);
    free(a->kept);
    free(a->placed);
}
