/* SPDX-License-Identifier: MIT */
/* A hash map from names to indices. Borrows the names. A zeroed map is empty. */
#ifndef MM_CORE_GRAPH_NAMES_H
#define MM_CORE_GRAPH_NAMES_H

#include "mm/core/status.h"

typedef struct mm_name {
    const char *name; /* NULL: the slot is free */
    int index;
} mm_name;

typedef struct mm_names {
    mm_name *slots; /* open addressing; n_slots is a power of two, and at most half of them are taken */
    size_t n_slots, taken;
} mm_names;

/* The index of a name; -1: it is not in the map. */
int mm_names_find(const mm_names *names, const char *name);
/* Adds a name that is not in the map. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_names_add(mm_names *names, const char *name, int index);
/* Removes all names. */
void mm_names_clear(mm_names *names);
void mm_names_fini(mm_names *names);

#endif
