/* SPDX-License-Identifier: MIT */
/* What a caller sets for one graph: recompute functions, all-reduces, external memory. Each call prepares the graph if
 * it is not prepared yet. */
#include "mm/core/graph/graph.h"
#include "mm/manager/install.h"
#include "mm/manager/prepare.h"
#include "mm/manager/states.h"

mm_status mm_recompute_set(mm_manager *m, const mm_graph *graph, mm_recompute_fn fn, void *ctx) {
    MM_TRY(mm_manager_drain(m, "mm_recompute_set"));
    if (!mm_manager_find(m, graph))
        MM_TRY(mm_manager_prepare_new(m, &(mm_new_graph){.graph = graph, .recomputes = fn != NULL}));
    mm_ready *r = mm_manager_find(m, graph);
    mm_execution_unrecord(r->execution);
    mm_policy_thread_interrupt(&m->policy_thread);
    r->prepared->recomputes = fn != NULL;
    r->recompute = fn;
    r->recompute_ctx = ctx;
    return MM_OK;
}

mm_status mm_allreduce_set(mm_manager *m, const mm_graph *graph, const mm_allreduce_fns *fns, void *ctx) {
    MM_TRY(mm_manager_drain(m, "mm_allreduce_set"));
    MM_TRY(mm_manager_prepare(m, graph));
    for (mm_tensor t = 0; fns && t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        if (tensor->shared == MM_ALLREDUCE_NOT) continue;
        if (mm_allreduce_copies(tensor->shared) ? !fns->sent || !fns->await : !fns->enqueue)
            return mm_fail(MM_ERR_INVALID, "mm_allreduce_set: a function that %s needs is NULL", tensor->name);
    }
    mm_ready *r = mm_manager_find(m, graph);
    mm_execution_unrecord(r->execution);
    r->unrecordable = false;
    r->allreduce_fns = fns ? *fns : (mm_allreduce_fns){0};
    r->gradient_ctx = ctx;
    mm_ready_set_allreduce(r);
    return MM_OK;
}

mm_status mm_external_set(mm_manager *m, const mm_graph *graph, mm_tensor tensor, void *data) {
    MM_TRY(mm_manager_drain(m, "mm_external_set"));
    MM_TRY(mm_manager_prepare(m, graph));
    if (tensor < 0 || tensor >= mm_graph_tensors(graph) || mm_graph_tensor(graph, tensor)->ownership != MM_EXTERNAL)
        return mm_fail(MM_ERR_INVALID, "mm_external_set: tensor %d of %s is not external", tensor,
                       mm_graph_name(graph));
    mm_ready *r = mm_manager_find(m, graph);
    mm_execution_unrecord(r->execution);
    r->external[tensor] = data;
    return MM_OK;
}
