/* SPDX-License-Identifier: MIT */
/* A graph as JSON: an entry of the key "graphs" of a file of graphs (mm/mm_plan.h). */
#ifndef MM_CORE_GRAPH_GRAPH_WRITE_H
#define MM_CORE_GRAPH_GRAPH_WRITE_H

#include <jansson.h>

#include "mm/core/graph/graph.h"
#include "mm/core/status.h"

/* Checks that a name can be saved: MM_ERR_INVALID if it is not UTF-8, or has control characters. call: the function
 * that was called; what: whose name it is; for the message. */
MM_CHECKED mm_status mm_graph_check_name(const char *call, const char *what, const char *name);
/* The same of all names of a graph. */
MM_CHECKED mm_status mm_graph_check_names(const char *call, const mm_graph *graph);

/* The caller releases it. NULL: out of memory, or a name is not UTF-8. */
json_t *mm_graph_json(const mm_graph *graph);

#endif
