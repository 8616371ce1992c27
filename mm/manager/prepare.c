/* SPDX-License-Identifier: MIT */
/* Prepares and forgets graphs; sets external memory and recompute functions. */
#include "mm/manager/prepare.h"

#include "mm/manager/install.h"
#include "mm/manager/observe.h"
#include "mm/manager/persistent.h"
#include "mm/manager/states.h"

static mm_status prepare(mm_manager *m, const mm_new_graph *added) {
    int entries = m->persistents.n;
    int64_t base = m->persistents.bytes;
    mm_status status = mm_persistent_table_add(&m->persistents, added->graph);
    /* Plans lie above the persistent tensors, so every plan moves up when those grow. */
    bool moved = m->persistents.bytes != base && m->n_ready > 0;
    if (status == MM_OK) status = mm_manager_add(m, added, !moved);
    if (status == MM_OK) mm_persistent_table_declare(&m->persistents, added->graph);
    return mm_persistent_commit(m, entries, status);
}

static mm_status check_frozen(const mm_graph *graph) {
    if (graph && mm_graph_frozen(graph)) return MM_OK;
    return mm_fail(MM_ERR_ORDER, "mm_manager_prepare: the graph is not frozen (mm_graph_freeze)");
}

mm_status mm_manager_prepare(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_prepare"));
    MM_TRY(check_frozen(graph));
    if (mm_manager_find(m, graph)) return MM_OK;
    MM_TRY(mm_manager_drain(m, "mm_manager_prepare"));
    return prepare(m, &(mm_new_graph){.graph = graph});
}

mm_status mm_recompute_set(mm_manager *m, const mm_graph *graph, mm_recompute_fn fn, void *ctx) {
    MM_TRY(mm_manager_drain(m, "mm_recompute_set"));
    MM_TRY(check_frozen(graph));
    if (!mm_manager_find(m, graph)) MM_TRY(prepare(m, &(mm_new_graph){.graph = graph, .recomputes = fn != NULL}));
    mm_ready *r = mm_manager_find(m, graph);
    mm_execution_unrecord(r->execution);
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

mm_status mm_manager_forget(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_forget"));
    mm_ready *r = mm_manager_find(m, graph);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "mm_manager_forget: the graph was not prepared");
    mm_status drained = mm_manager_drain(m, "mm_manager_forget");
    (void)drained; /* failures of its iterations are dropped (mm.h) */
    r = mm_manager_find(m, graph);
    mm_ready_fini(r);
    *r = m->ready[--m->n_ready];
    mm_plan_set_forget(&m->plans, graph);
    mm_observe_forget(m, graph);
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

const mm_plan *mm_plan_now(const mm_manager *m, const mm_graph *graph) {
    const mm_ready *r = mm_manager_find(m, graph);
    return r ? r->prepared->planned.plan : NULL;
}

mm_status mm_plan_offer(mm_manager *m, mm_plan *plan, int64_t device_bytes) {
    return mm_plan_set_offer(&m->plans, plan, device_bytes);
}
