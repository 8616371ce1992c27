/* SPDX-License-Identifier: MIT */
/* Mutations of where segments lie, and of how large they are. */

#include "tests/core/plan_mutate_parts.h"

static bool shift_offset(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_placed);
    if (s) s->offset += MM_ALIGN * (int64_t)(mutant_below(m, 17) - 8);
    return s != NULL;
}

static bool shift_pinned(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_pinned);
    if (s) s->offset += MM_ALIGN * (int64_t)(mutant_below(m, 9) - 4);
    return s != NULL;
}

static bool pinned_over_another(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_pinned), *other = mutant_find_segment(m, segment_is_pinned);
    if (s) s->offset = other->offset;
    return s != other;
}

static bool misalign_offset(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_placed);
    if (s) s->offset += 1 + mutant_below(m, MM_ALIGN - 1);
    return s != NULL;
}

/* A segment moves over another one, perhaps while that is in use. */
static bool move_over_another(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_placed), *other = mutant_find_segment(m, segment_is_placed);
    if (s) s->offset = other->offset;
    return s != NULL && s != other;
}

static bool swap_offsets(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_placed), *other = mutant_find_segment(m, segment_is_placed);
    if (!s || s == other) return false;
    int64_t offset = s->offset;
    s->offset = other->offset;
    other->offset = offset;
    return true;
}

static bool toggle_pinned(mutant *m) {
    mm_segment *s = mutant_segment(m);
    if (s) s->memory = s->memory == MM_MEM_PINNED ? MM_MEM_DEVICE : MM_MEM_PINNED;
    return s != NULL;
}

static bool toggle_dynamic(mutant *m) {
    mm_segment *s = mutant_segment(m);
    if (s) s->dynamic = !s->dynamic;
    return s != NULL;
}

static bool other_bytes(mutant *m) {
    mm_segment *s = mutant_segment(m);
    if (!s) return false;
    s->bytes += mutant_below(m, 9) - 4;
    return true;
}

static bool grow_segment(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_raw);
    if (s) s->bytes += mutant_below(m, 4000);
    return s != NULL;
}

static bool small_code(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_coded);
    if (s) s->bytes -= 1 + mutant_below(m, (int)s->bytes);
    return s != NULL;
}

static bool low_workspace(mutant *m) {
    mm_node *n = mutant_find_node(m, node_has_work);
    if (!n) return false;
    mm_segment *s = &m->plan->segments[n->work];
    s->bytes -= 1 + mutant_below(m, (int)s->bytes);
    return true;
}

static bool smaller_heap(mutant *m) {
    if (m->plan->heap_bytes == 0) return false;
    m->plan->heap_bytes -= 1 + mutant_below(m, 1000);
    return true;
}

static bool move_heap(mutant *m) {
    if (m->plan->heap_bytes == 0) return false;
    m->plan->heap_offset += MM_ALIGN * (int64_t)(mutant_below(m, 9) - 4);
    return true;
}

static bool other_heap_parts(mutant *m) {
    if (m->plan->heap_bytes == 0) return false;
    m->plan->heap_code_bytes += MM_ALIGN * (int64_t)(mutant_below(m, 5) - 2) + (mutant_below(m, 4) == 0);
    return true;
}

const mutation mutations_of_bytes[] = {
    {"shift_offset", shift_offset},
    {"shift_pinned", shift_pinned},
    {"pinned_over_another", pinned_over_another},
    {"misalign_offset", misalign_offset},
    {"move_over_another", move_over_another},
    {"swap_offsets", swap_offsets},
    {"toggle_pinned", toggle_pinned},
    {"toggle_dynamic", toggle_dynamic},
    {"other_bytes", other_bytes},
    {"grow_segment", grow_segment},
    {"small_code", small_code},
    {"low_workspace", low_workspace},
    {"smaller_heap", smaller_heap},
    {"move_heap", move_heap},
    {"other_heap_parts", other_heap_parts},
    {NULL, NULL},
};
