/* SPDX-License-Identifier: MIT */
/* An order as a graph: a put is a step that writes, gets, returns and ends are steps that read. Its steps are forward
 * up to some event, and backward from there on. */
#ifndef MM_STASH_STASH_GRAPH_H
#define MM_STASH_STASH_GRAPH_H

#include "mm/core/graph/graph.h"
#include "mm/stash/stash_order.h"

typedef struct mm_stash_graph {
    mm_graph *graph;     /* NULL: all entries are kept */
    bool by_turns;       /* some entries are put after others were read, as in a double backward */
    mm_tensor *tensor;   /* per entry; -1: it is kept */
    int32_t *begins;     /* per event: the step that it begins; -1: none */
    int32_t *ends;       /* per event: the step that it ends; -1: none. A get begins one that the return or end right
                            behind it ends */
    int32_t *step_entry; /* per step */
    bool *step_holds;    /* per step: a get, after whose end the entry is held */
} mm_stash_graph;

/* Layers of entries with MM_STASH_SIGNS have this part, for rules. */
extern const char mm_stash_signs_part[];

/* kept: per entry. exact: the flags of entries in which no loss may be. A layer is named by its entry's number and
 * producer. Entries that must be exact, or whose type codecs do not take, are bytes in the graph. MM_ERR_NOMEM. The
 * caller frees the graph with mm_stash_graph_fini, even after a failure. */
MM_CHECKED mm_status mm_stash_graph_init(const mm_order *order, const bool *kept, uint32_t exact,
                                         mm_stash_graph *graph_out);
void mm_stash_graph_fini(mm_stash_graph *graph);

#endif
