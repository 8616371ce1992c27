/* SPDX-License-Identifier: MIT */
/* Where a plan has persistent tensors (mm_graph_requirement.housed). */
#include <stdlib.h>

#include "mm/core/plan/plan_visits.h"
#include "mm/planning/refusal.h"
#include "mm/planning/requirement.h"

#define SAME(memory) _Static_assert((int)MM_HOME_##memory == (int)MM_MEM_##memory, "the enums differ")
SAME(DEVICE);
SAME(PINNED);
SAME(DISK);
#undef SAME
_Static_assert((int)MM_HOME_MEMORIES == (int)MM_MEMORY_COUNT, "the enums differ");

const char *mm_home_memory_name(mm_home_memory memory) { return mm_memory_name((mm_memory)memory); }

/* Counts the persistent tensors and their visits. False: all are at home on the device. */
static bool count(const mm_plan *plan, int *n_out, int *n_visits_out) {
    bool away = false;
    *n_out = *n_visits_out = 0;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        mm_plan_visit visit;
        *n_out += mm_graph_tensor(plan->graph, t)->persistent >= 0;
        away |= mm_plan_visits(plan, t);
        for (int s = 0; mm_plan_visits(plan, t) && mm_plan_next_visit(plan, t, &s, &visit);) ++*n_visits_out;
    }
    return away;
}

/* The number of steps before each node, less one: the index in the timeline of what runs there. NULL: out of memory. */
static int *index_nodes(const mm_plan *plan) {
    int *index = malloc(((size_t)plan->n_nodes + 1) * sizeof *index);
    for (int i = 0, n = 0; index && i < plan->n_nodes; i++) {
        n += plan->nodes[i].kind == MM_NODE_STEP;
        index[i] = n > 0 ? n - 1 : 0;
    }
    return index;
}

mm_status mm_requirement_housed(const mm_plan *plan, mm_housed **housed_out, int *n_out) {
    int n, n_visits;
    *housed_out = NULL;
    *n_out = 0;
    if (!count(plan, &n, &n_visits)) return MM_OK;
    int *index = index_nodes(plan);
    mm_housed *list = calloc(1, (size_t)n * sizeof *list + (size_t)n_visits * sizeof *list->visits);
    mm_home_visit *visits = (mm_home_visit *)(list + n);
    if (!index || !list) {
        free(index);
        free(list);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a list of %d homes", n);
    }
    n = 0;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        if (tensor->persistent < 0) continue;
        mm_housed *one = &list[n++];
        mm_plan_visit v;
        *one = (mm_housed){.tensor = t,
                           .kind = tensor->kind,
                           .home = (mm_home_memory)plan->segments[tensor->persistent].memory,
                           .bytes = tensor->bytes,
                           .visits = visits};
        mm_refused_put(one->name, tensor->name);
        for (int s = 0; mm_plan_visits(plan, t) && mm_plan_next_visit(plan, t, &s, &v); one->n_visits++)
            *visits++ = (mm_home_visit){index[v.begin_node], index[v.end_node]};
    }
    free(index);
    *housed_out = list;
    *n_out = n;
    return MM_OK;
}
