/* SPDX-License-Identifier: MIT */
/* The table of a manager's persistent tensors, which its graphs share by name. They lie one after the other from the
 * arena's low end, and never move. */
#ifndef MM_PLANNING_PERSISTENT_TABLE_H
#define MM_PLANNING_PERSISTENT_TABLE_H

#include "mm/core/graph/graph.h"
#include "mm/core/graph/names.h"
#include "mm/core/status.h"

typedef struct mm_persistent {
    char *name;
    int64_t offset, bytes;
    bool declared; /* a graph that was prepared declares it */
} mm_persistent;

typedef struct mm_persistent_table {
    mm_persistent *entries;
    int n;
    mm_names names;
    int64_t bytes; /* offset of the end of the last entry, aligned */
} mm_persistent_table;

/* The entry with that name; NULL: there is none. */
const mm_persistent *mm_persistent_table_find(const mm_persistent_table *persistents, const char *name);

/* Adds the graph's persistent tensors that are not in the table yet. MM_ERR_INVALID: the table has one of them with
 * another size; MM_ERR_NOMEM. On failure entries may have been added; mm_persistent_table_cut removes them. */
MM_CHECKED mm_status mm_persistent_table_add(mm_persistent_table *persistents, const mm_graph *graph);

/* Marks the graph's persistent tensors, all of which must be in the table, as declared. */
void mm_persistent_table_declare(mm_persistent_table *persistents, const mm_graph *graph);

/* Adds a tensor that no graph declares, whose name must be new. MM_ERR_INVALID: too many bytes in all; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_persistent_table_append(mm_persistent_table *persistents, const char *name, int64_t bytes);

/* Offsets of the graph's persistent tensors, all of which must be in the table, for mm_limits.places. The caller frees
 * them. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_persistent_table_places(const mm_persistent_table *persistents, const mm_graph *graph,
                                                int64_t **places_out);

/* Bytes, aligned, of the table's tensors that the graph does not declare; all that it declares must be in the table. */
int64_t mm_persistent_table_beside(const mm_persistent_table *persistents, const mm_graph *graph);

/* Bytes, aligned, of the persistent tensors of `other` that `graph` does not declare. */
int64_t mm_persistent_beside(const mm_graph *graph, const mm_graph *other);

/* Removes all entries but the first n. */
void mm_persistent_table_cut(mm_persistent_table *persistents, int n);
void mm_persistent_table_fini(mm_persistent_table *persistents);

#endif
