/* Where the persistent tensors of a manager lie, which its graphs share by name: one after the other from the arena's low
 * end. None ever moves. */
#ifndef MM_DIRECTORY_H
#define MM_DIRECTORY_H

#include "mm/core/graph.h"
#include "mm/core/names.h"
#include "mm/core/status.h"

typedef struct mm_persistent {
    char *name;
    int64_t offset, bytes;
    bool declared; /* by a graph that is prepared */
} mm_persistent;

typedef struct mm_directory {
    mm_persistent *entries;
    int n;
    mm_names names;
    int64_t bytes; /* end of the last, aligned */
} mm_directory;

/* The entry of that name, or NULL. */
const mm_persistent *mm_directory_find(const mm_directory *directory, const char *name);

/* Adds the graph's persistent tensors that are not there yet. MM_ERR_INVALID: there already with another size. On error
 * what was added stays until mm_directory_cut. */
MM_CHECKED mm_status mm_directory_add(mm_directory *directory, const mm_graph *graph);

/* The graph's, which are there, are no longer to be removed alone. */
void mm_directory_declare(mm_directory *directory, const mm_graph *graph);

/* Adds one, which no graph declares, and whose name is none of those that are there. */
MM_CHECKED mm_status mm_directory_append(mm_directory *directory, const char *name, int64_t bytes);

/* Places of a graph's persistent tensors, which are all there: what mm_limits.places takes. The caller frees them. */
MM_CHECKED mm_status mm_directory_places(const mm_directory *directory, const mm_graph *graph, int64_t **places_out);

/* Takes back everything after the first n entries. */
void mm_directory_cut(mm_directory *directory, int n);
void mm_directory_fini(mm_directory *directory);

#endif
