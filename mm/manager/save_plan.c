/* SPDX-License-Identifier: MIT */
/* mm_plan_save. */
#include <stdlib.h>

#include "mm/core/plan/plan_file.h"
#include "mm/core/text.h"
#include "mm/manager/manager.h"

static mm_status view_plans(const mm_manager *m, const mm_graph *const *graphs, size_t n, mm_plan_view *views) {
    for (size_t i = 0; i < n; i++) {
        const mm_graph *graph = graphs ? graphs[i] : m->plans.prepared[i]->graph;
        MM_TRY(mm_check_given(graph, "mm_plan_save", "a graph"));
        const mm_prepared *prepared = mm_plan_set_find(&m->plans, graph);
        if (!prepared)
            return mm_fail(MM_ERR_NOT_FOUND, "mm_plan_save: the graph %s is not prepared",
                           MM_BRIEF(mm_graph_name(graph)));
        views[i] = (mm_plan_view){.program = prepared->planned.program, .facts = prepared->planned.facts};
    }
    return MM_OK;
}

mm_status mm_plan_save(const mm_manager *m, const mm_graph *const *graphs, size_t n, const char *path) {
    MM_TRY(mm_check_given(m, "mm_plan_save", "manager"));
    MM_TRY(mm_check_given(path, "mm_plan_save", "path"));
    if (!graphs) n = (size_t)m->plans.n;
    if (n == 0) return mm_fail(MM_ERR_NOT_FOUND, "mm_plan_save: no graph is prepared");
    mm_plan_view *views = n <= MM_PLANS_MOST ? calloc(n, sizeof *views) : NULL;
    if (!views && n <= MM_PLANS_MOST) return mm_fail(MM_ERR_NOMEM, "out of memory for saving %zu plans", n);
    mm_status status = views ? view_plans(m, graphs, n, views) : MM_OK;
    if (status == MM_OK) status = mm_plan_file_write(views, n, path);
    free(views);
    return status;
}
