/* SPDX-License-Identifier: MIT */
#include "mm/core/graph/names.h"

#include <stdlib.h>
#include <string.h>

static size_t hash(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

/* The slot of `name`; if it is not in the map, the free slot where it belongs. */
static mm_name *find_slot(mm_name *slots, size_t n_slots, const char *name) {
    for (size_t i = hash(name) & (n_slots - 1);; i = (i + 1) & (n_slots - 1))
        if (!slots[i].name || strcmp(slots[i].name, name) == 0) return &slots[i];
}

int mm_names_find(const mm_names *names, const char *name) {
    if (names->taken == 0) return -1;
    const mm_name *slot = find_slot(names->slots, names->n_slots, name);
    return slot->name ? slot->index : -1;
}

static mm_status grow(mm_names *names) {
    size_t n_slots = names->n_slots ? 2 * names->n_slots : 64;
    mm_name *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return mm_fail(MM_ERR_NOMEM, "out of memory for %zu names", n_slots);
    for (size_t i = 0; i < names->n_slots; i++)
        if (names->slots[i].name) *find_slot(slots, n_slots, names->slots[i].name) = names->slots[i];
    free(names->slots);
    names->slots = slots;
    names->n_slots = n_slots;
    return MM_OK;
}

mm_status mm_names_add(mm_names *names, const char *name, int index) {
    if (2 * (names->taken + 1) > names->n_slots) MM_TRY(grow(names));
    *find_slot(names->slots, names->n_slots, name) = (mm_name){name, index};
    names->taken++;
    return MM_OK;
}

void mm_names_clear(mm_names *names) {
    if (names->slots) memset(names->slots, 0, names->n_slots * sizeof *names->slots);
    names->taken = 0;
}

void mm_names_fini(mm_names *names) {
    free(names->slots);
    memset(names, 0, sizeof *names);
}
