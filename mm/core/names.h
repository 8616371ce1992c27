/* A map from names to indices. Names are borrowed. Zero it to make it empty. */
#ifndef MM_CORE_NAMES_H
#define MM_CORE_NAMES_H

#include "mm/core/status.h"

typedef struct mm_name {
    const char *name; /* NULL: free */
    int index;
} mm_name;

typedef struct mm_names {
    mm_name *slots; /* open addressing; n_slots is a power of two, at most half of them taken */
    size_t n_slots, taken;
} mm_names;

/* The index of a name, or -1. */
int mm_names_find(const mm_names *names, const char *name);
/* Adds a name that is not there. */
MM_CHECKED mm_status mm_names_add(mm_names *names, const char *name, int index);
/* Forgets all names. */
void mm_names_clear(mm_names *names);
void mm_names_fini(mm_names *names);

#endif
