/* SPDX-License-Identifier: MIT */
/* An order as a graph: a put is a step that writes, gets, returns and ends are steps that read. Its steps are forward
 * up to some event, and backward from there on. */
#ifndef MM_STASH_STASH_GRAPH_H
#define MM_STASH_STASH_GRAPH_H

#include "mm/core/graph/graph.h"
#include "mm/stash/stash_order.h"

typedef struct mm_stash_graph {
    mm_graph *graph;     /* NULL: callers keep all entries */
    bool by_turns;       /* some entries are put after others were read, as in a double backward */
    mm_tensor *tensor;   /* per entry; -1: the caller keeps it */
    int32_t *begins;     /* per event: the step that it begins; -1: none */
    int32_t *ends;       /* per event: the step that it ends; -1: none. A get's step ends with the return or end that
                            directly follows, if one does */
    int32_t *step_entry; /* per step: its entry */
    bool *step_holds;    /* per step: it is a get, and the entry is still held after the step */
} mm_stash_graph;

/* Layers of entries with MM_STASH_SIGNS have a part of this name, by which rules find them. */
extern const char mm_stash_signs_part[];

/* Makes the graph of an order. kept: per entry: the caller keeps it. exact: flags; entries with any of them must not
 * lose anything. A layer is named by its entry's number and producer. Entries that must be exact, or whose type codecs
 * do not take, are bytes in the graph. MM_ERR_NOMEM. The caller frees the graph with mm_stash_graph_fini, even after a
 * failure. */
MM_CHECKED mm_status mm_stash_graph_init(const mm_order *order, const bool *kept, uint32_t exact,
                                         mm_stash_graph *graph_out);
void mm_stash_graph_fini(mm_stash_graph *graph);

#endif
