/* SPDX-License-Identifier: MIT */
/* Prepares graphs, forgets them, and knows their plans. */
#include "mm/manager/prepare.h"

#include "mm/manager/budget.h"
#include "mm/manager/install.h"
#include "mm/manager/observe.h"
#include "mm/manager/persistent.h"
#include "mm/manager/save_graph.h"
#include "mm/manager/states.h"

static mm_status check_frozen(const mm_graph *graph) {
    if (graph && mm_graph_frozen(graph)) return MM_OK;
    return mm_fail(MM_ERR_ORDER, "mm_manager_prepare: the graph is not frozen (mm_graph_freeze)");
}

/* Whether a tensor that has been on the device is used by a step on the host now. */
static bool leaves_device(const mm_manager *m) {
    for (int i = 0; i < m->persistents.n; i++)
        if (m->persistents.entries[i].on_host && m->persistents.entries[i].place.memory == MM_MEM_DEVICE) return true;
    return false;
}

/* Whether homes must be chosen anew for the graph: the policy gives them or lets none stay on the device, or steps on
 * the host use some, of which copies are then planned. */
static bool chooses_homes(const mm_policy *policy, const mm_graph *graph) {
    return policy->ops->places || policy->config.resident == MM_RESIDENT_NONE || mm_graph_uses_host(graph);
}

/* Plans the graph beside those that are prepared. Its persistent tensors are in the table, whose end was at `base`. */
static mm_status add(mm_manager *m, const mm_new_graph *added, int64_t base) {
    /* Plans lie above the persistent tensors, so every plan moves up when those grow. */
    const bool moved = chooses_homes(&m->plans.policy_now, added->graph) ||
                       ((m->persistents.bytes != base || leaves_device(m)) && m->n_ready > 0);
    const int64_t budget = m->budget_bytes;
    MM_TRY(mm_budget_follow(m, &m->plans.policy, added->graph));
    return mm_budget_keep(m, budget, mm_manager_add(m, added, !moved));
}

mm_status mm_manager_prepare_new(mm_manager *m, const mm_new_graph *added) {
    MM_TRY(check_frozen(added->graph));
    mm_manager_save_graphs(m, added->graph);
    mm_policy_thread_interrupt(&m->policy_thread);
    int entries = m->persistents.n;
    int64_t base = m->persistents.bytes;
    mm_status status = mm_persistent_table_add(&m->persistents, added->graph);
    if (status == MM_OK) status = add(m, added, base);
    if (status == MM_OK) mm_persistent_table_declare(&m->persistents, added->graph);
    return mm_persistent_commit(m, entries, status);
}

mm_status mm_manager_prepare(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_prepare"));
    MM_TRY(check_frozen(graph));
    if (mm_manager_find(m, graph)) return MM_OK;
    MM_TRY(mm_manager_drain(m, "mm_manager_prepare"));
    return mm_manager_prepare_new(m, &(mm_new_graph){.graph = graph});
}

mm_status mm_manager_forget(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_forget"));
    mm_ready *r = mm_manager_find(m, graph);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "mm_manager_forget: the graph was not prepared");
    mm_status drained = mm_manager_drain(m, "mm_manager_forget");
    (void)drained; /* failures of its iterations are dropped (mm.h) */
    mm_policy_thread_interrupt(&m->policy_thread);
    r = mm_manager_find(m, graph);
    mm_page_guard_open(m); /* it names faults by the plan */
    mm_ready_fini(r);
    *r = m->ready[--m->n_ready];
    mm_plan_set_forget(&m->plans, graph);
    mm_observe_forget(m, graph);
    return MM_OK;
}

const mm_plan *mm_plan_now(const mm_manager *m, const mm_graph *graph) {
    const mm_ready *r = mm_manager_find(m, graph);
    return r ? r->prepared->planned.plan : NULL;
}

mm_status mm_plan_offer(mm_manager *m, mm_plan *plan, int64_t device_bytes) {
    mm_policy_thread_interrupt(&m->policy_thread);
    return mm_plan_set_offer(&m->plans, plan, device_bytes);
}
