/* SPDX-License-Identifier: MIT */
/* mm_graph_load of JSON that was read already. */
#ifndef MM_CORE_GRAPH_GRAPH_READ_H
#define MM_CORE_GRAPH_GRAPH_READ_H

#include <jansson.h>

#include "mm/core/status.h"

/* path: for messages. Errors of mm_graph_load. */
MM_CHECKED mm_status mm_graph_parse(const char *path, const json_t *root, mm_graph ***graphs_out, size_t *n_out);

#endif
