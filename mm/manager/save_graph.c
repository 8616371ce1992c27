/* SPDX-License-Identifier: MIT */
#include "mm/manager/save_graph.h"

#include <stdlib.h>

#include "mm/core/log.h"
#include "mm/core/status.h"

/* The file that MM_SAVE_GRAPH names; NULL: none. */
static const char *named_file(void) {
    const char *path = secure_getenv("MM_SAVE_GRAPH");
    return path && *path ? path : NULL;
}

void mm_manager_save_graphs(mm_manager *m, const mm_graph *added) {
    const char *path = named_file();
    const mm_graph **graphs = path ? malloc(((size_t)m->plans.n + 1) * sizeof *graphs) : NULL;
    if (!path) return;
    mm_status status = graphs ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for saving %d graphs", m->plans.n + 1);
    for (int i = 0; graphs && i < m->plans.n; i++) graphs[i] = m->plans.prepared[i]->graph;
    if (graphs) graphs[m->plans.n] = added;
    if (status == MM_OK) status = mm_graph_save(graphs, (size_t)m->plans.n + 1, path);
    if (status != MM_OK)
        mm_log_send(&m->options.log, MM_LOG_WARNING, "MM_SAVE_GRAPH: graphs are not saved: %s", mm_last_error());
    free(graphs);
}
