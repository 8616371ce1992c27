/* SPDX-License-Identifier: MIT */
#include "mm/manager/budget.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/core/log.h"
#include "mm/core/size.h"
#include "mm/core/text.h"
#include "mm/manager/arena.h"
#include "mm/planning/refusal.h"
#include "mm/planning/requirement.h"
#include "policies/policy_table.h"

/* A process may have fewer addresses than the device has memory (RLIMIT_AS): then as many as it gets, halving. */
mm_status mm_budget_reserve(mm_device *device, mm_pool **pool_out) {
    enum { LEFT = 8 /* as of a budget that the device does not give (create.c) */, LEAST = 1 << 20 };
    mm_memory_info info;
    mm_device_memory_info(device, &info);
    int64_t bytes = info.free_bytes - info.free_bytes / LEFT;
    mm_status status = mm_pool_create_trimmed(device, bytes, pool_out);
    while (status == MM_ERR_NOMEM && (bytes /= 2) >= LEAST) status = mm_pool_create_trimmed(device, bytes, pool_out);
    return status;
}

void mm_budget_put(mm_manager *m, int64_t bytes) {
    pthread_mutex_lock(&m->lock);
    m->budget_bytes = bytes;
    pthread_mutex_unlock(&m->lock);
}

/* The least bytes that the graphs need under a policy. */
static mm_status find_need(const mm_manager *m, const mm_graph *const *graphs, int n, const char *policy,
                           int64_t *bytes_out) {
    mm_requirement *r;
    const mm_requirement_request request = {.graphs = graphs,
                                            .n = n,
                                            .beside = &m->persistents,
                                            .facts = m->options.facts,
                                            .policy = policy,
                                            .rates = m->plans.sources.rates,
                                            .limits = {.device = m->options.device,
                                                       .pinned_bytes = mm_pool_bytes(m->pinned),
                                                       .no_advice = true,
                                                       .stop_search = m->options.stop_search}};
    MM_TRY(mm_requirement_make(&request, &r));
    *bytes_out = r->least_bytes;
    mm_requirement_destroy(r);
    return MM_OK;
}

static mm_status find_larger(const mm_manager *m, const mm_graph *const *graphs, int n, const mm_policy *policy,
                             int64_t *bytes_out) {
    int64_t own = 0;
    MM_TRY(find_need(m, graphs, n, "liveness", bytes_out));
    if (policy->ops != &mm_policy_liveness) MM_TRY(find_need(m, graphs, n, policy->spec, &own));
    if (own > *bytes_out) *bytes_out = own;
    return MM_OK;
}

/* The graphs need more than there are addresses. */
static mm_status refuse(mm_manager *m, int64_t bytes, const char *policy) {
    mm_refusal *r = &m->refusal;
    const int64_t there = mm_pool_bytes(m->pool);
    m->was_refused = true;
    *r = (mm_refusal){.needed_bytes = bytes, .device_bytes = there, .pinned_bytes = mm_pool_bytes(m->pinned)};
    mm_refused_put(r->policy, policy);
    mm_status status = mm_fail(MM_ERR_INFEASIBLE, "the graphs need %s under %s, and device %s has %s for them",
                               MM_SIZE_TEXT(bytes), MM_BRIEF(policy), m->options.device, MM_SIZE_TEXT(there));
    snprintf(r->message, sizeof r->message, "%s", mm_last_error());
    return status;
}

static mm_status raise_to(mm_manager *m, int64_t bytes, const char *policy) {
    if (bytes > mm_pool_bytes(m->pool)) return refuse(m, bytes, policy);
    MM_TRY(mm_arena_extend(m, bytes));
    mm_budget_put(m, bytes);
    m->options.device_bytes = bytes;
    mm_log_send(&m->options.log, MM_LOG_INFO, "budget of %s: what the graphs need", MM_SIZE_TEXT(bytes));
    return MM_OK;
}

mm_status mm_budget_keep(mm_manager *m, int64_t bytes, mm_status status) {
    mm_failure failure;
    if (status == MM_OK || m->budget_bytes == bytes) return status;
    mm_failure_save(&failure, status); /* giving memory back may fail, too */
    mm_budget_put(m, bytes);
    m->options.device_bytes = bytes;
    mm_arena_trim(m);
    return mm_failure_restore(&failure);
}

mm_status mm_budget_follow(mm_manager *m, const mm_policy *policy, const mm_graph *added) {
    int64_t bytes = m->persistents.bytes;
    int n = m->plans.n;
    if (!m->budget_follows) return MM_OK;
    const mm_graph **graphs = malloc(((size_t)n + 1) * sizeof *graphs);
    if (!graphs) return mm_fail(MM_ERR_NOMEM, "out of memory for the budget of %d graphs", n + 1);
    for (int i = 0; i < n; i++) graphs[i] = m->plans.prepared[i]->graph;
    if (added) graphs[n++] = added;
    mm_status status = n > 0 ? find_larger(m, graphs, n, policy, &bytes) : MM_OK;
    free(graphs);
    if (status == MM_OK && bytes > m->budget_bytes) status = raise_to(m, bytes, policy->spec);
    return status;
}
