/* SPDX-License-Identifier: MIT */
/* The table of a manager's persistent tensors, which its graphs share by name. Their homes lie one after the other from
 * the low end of the arena, of pinned memory, or of the disk. Between iterations a tensor's home may move from one to
 * another, and the homes behind it move up or down. */
#ifndef MM_PLANNING_PERSISTENT_TABLE_H
#define MM_PLANNING_PERSISTENT_TABLE_H

#include "mm/core/graph/graph.h"
#include "mm/core/graph/names.h"
#include "mm/core/plan/plan.h"
#include "mm/core/status.h"

typedef struct mm_persistent {
    char *name;
    mm_place place;
    int64_t bytes;
    bool declared; /* a graph that was prepared declares it */
    bool on_host;  /* a step on the host uses it: its home is in pinned memory, unless mm_homes has it on the disk */
    bool lost;     /* its home does not have its value: a move of homes failed, and so did the way back */
    bool written;  /* of a lost one: an iteration was issued that writes it; whether it ends well is not known yet */
    int64_t set_bytes; /* of a lost one: the first so many bytes were set since */
} mm_persistent;

typedef struct mm_persistent_table {
    mm_persistent *entries;
    int n;
    mm_names names;
    int64_t bytes, pinned_bytes, disk_bytes; /* where the last home on the device, in pinned memory, and on the disk
                                                ends; aligned */
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

/* In which memories entries have their homes. */
typedef struct mm_homes {
    const uint8_t *memory; /* per entry: an mm_memory; NULL: all are on the device */
    int n;                 /* entries from this number on have their homes on the device */
} mm_homes;

static inline mm_memory mm_homes_memory(const mm_homes *homes, int entry) {
    return homes->memory && entry < homes->n ? (mm_memory)homes->memory[entry] : MM_MEM_DEVICE;
}

/* Sets the limits' bases and places as they are with these homes: *places_out, which the caller frees, for the graph's
 * persistent tensors, all of which must be in the table. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_persistent_table_places(const mm_persistent_table *persistents, const mm_homes *homes,
                                                const mm_graph *graph, mm_limits *limits, mm_place **places_out);

/* Moves the entries to where they are with these homes; their bytes are the caller's business. */
void mm_persistent_table_settle(mm_persistent_table *persistents, const mm_homes *homes);

/* Bytes on the device, aligned, of the table's tensors that the graph does not declare; all that it declares must be in
 * the table. */
int64_t mm_persistent_table_beside(const mm_persistent_table *persistents, const mm_graph *graph);

/* Bytes, aligned, of the persistent tensors of `other` that `graph` does not declare. */
int64_t mm_persistent_beside(const mm_graph *graph, const mm_graph *other);

/* Removes all entries but the first n. */
void mm_persistent_table_cut(mm_persistent_table *persistents, int n);
void mm_persistent_table_fini(mm_persistent_table *persistents);

#endif
