/* SPDX-License-Identifier: MIT */
/* Settings that the user changes between iterations: the policy, the budget. */
#include "mm/manager/settings.h"

#include "mm/core/log.h"
#include "mm/core/size.h"
#include "mm/core/text.h"
#include "mm/manager/arena.h"
#include "mm/manager/budget.h"
#include "mm/manager/install.h"
#include "mm/manager/states.h"

const char *mm_policy_now(const mm_manager *m) { return m ? m->plans.policy_now.spec : NULL; }

/* Takes the policy over, which is in force from now on. */
static void take_over(mm_manager *m, mm_policy *policy) {
    mm_policy_fini(&m->plans.policy);
    m->plans.policy = *policy;
    mm_manager_notify(m, MM_EVENT_POLICY, m->plans.policy.spec, 0, 0);
}

static mm_status switch_policy(mm_manager *m, mm_policy *policy) {
    MM_TRY(mm_manager_drain(m, "mm_policy_set"));
    const int64_t budget = m->budget_bytes;
    MM_TRY(mm_budget_follow(m, policy, NULL));
    MM_TRY(mm_budget_keep(m, budget, mm_manager_replan(m, policy, "the policy is set")));
    take_over(m, policy);
    return MM_OK;
}

/* ---------------------------------------------------------------- policies that search, at run time */

/* Whether planning is worth a thread: the policy searches, and iterations run. A budget that follows the graphs depends
 * on the plan, and changes at once. */
static bool is_planned_beside(const mm_manager *m, const mm_policy *policy) {
    bool runs = false;
    for (int i = 0; i < m->plans.n; i++) runs = runs || m->plans.prepared[i]->has_begun;
    return runs && mm_policy_searches(policy) && !m->budget_follows;
}

static mm_status start(mm_manager *m) {
    const mm_fallback_request request = mm_manager_request(m, NULL);
    return mm_policy_thread_start(&m->policy_thread, &m->plans, &request);
}

/* Ends planning with a switch, or with a failure, which is kept for mm_policy_wait. */
static mm_status finish(mm_manager *m) {
    mm_policy_thread *t = &m->policy_thread;
    mm_status status = mm_policy_thread_join(t);
    if (status == MM_OK) {
        status = mm_manager_install_wanted(m, &t->draft, &t->policy);
        mm_draft_fini(&t->draft);
    }
    if (status == MM_ERR_INFEASIBLE) {
        m->was_refused = true;
        m->refusal = t->refusal;
    }
    if (status == MM_OK)
        take_over(m, &t->policy);
    else
        mm_policy_fini(&t->policy);
    t->wanted = false;
    return status;
}

mm_status mm_policy_look(mm_manager *m) {
    mm_policy_thread *t = &m->policy_thread;
    if (!t->wanted) return MM_OK;
    if (mm_policy_thread_done(t)) MM_TRY(mm_manager_drain(m, "mm_iteration_begin"));
    /* If memory had run out, graphs were planned anew meanwhile, and the thread was interrupted. */
    mm_status status = MM_OK;
    if (mm_policy_thread_done(t))
        status = finish(m);
    else if (!t->planning)
        status = start(m);
    if (status == MM_OK) return MM_OK;
    mm_failure_save(&t->owed, status);
    mm_policy_thread_cancel(t);
    mm_log_send(&m->options.log, MM_LOG_ERROR, "policy %s stays: %s", MM_BRIEF(m->plans.policy.spec), mm_last_error());
    return MM_OK;
}

mm_status mm_policy_wait(mm_manager *m) {
    MM_TRY(mm_manager_check_idle(m, "mm_policy_wait"));
    mm_policy_thread *t = &m->policy_thread;
    const mm_failure owed = t->owed;
    t->owed.status = MM_OK;
    if (!t->wanted) return mm_failure_restore(&owed);
    MM_TRY(mm_manager_drain(m, "mm_policy_wait"));
    if (!t->planning) MM_TRY(start(m));
    return finish(m);
}

mm_status mm_policy_set(mm_manager *m, const char *spec) {
    MM_TRY(mm_manager_check_idle(m, "mm_policy_set"));
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    mm_status status = mm_planned_try_codecs(&policy, m->options.device);
    if (status != MM_OK) {
        mm_policy_fini(&policy);
        return status;
    }
    mm_policy_thread_cancel(&m->policy_thread);
    m->policy_thread.owed.status = MM_OK;
    if (is_planned_beside(m, &policy)) {
        m->policy_thread.policy = policy;
        m->policy_thread.wanted = true;
        if (start(m) == MM_OK) return MM_OK;
        m->policy_thread.wanted = false; /* there is no thread: it is planned here */
    }
    status = switch_policy(m, &policy);
    if (status != MM_OK) mm_policy_fini(&policy);
    return status;
}

/* ---------------------------------------------------------------- the budget */

mm_status mm_budget_set(mm_manager *m, int64_t device_bytes) {
    MM_TRY(mm_manager_check_idle(m, "mm_budget_set"));
    if (device_bytes <= 0 || device_bytes > mm_pool_bytes(m->pool))
        return mm_fail(MM_ERR_INVALID,
                       "mm_budget_set: a budget of %s: must be from 1 byte to the %s that were reserved",
                       MM_SIZE_TEXT(device_bytes), MM_SIZE_TEXT(mm_pool_bytes(m->pool)));
    MM_TRY(mm_manager_drain(m, "mm_budget_set"));
    int64_t before = m->budget_bytes, ceiling = m->ceiling_bytes;
    const bool followed = m->budget_follows;
    mm_status status = mm_arena_extend(m, device_bytes);
    mm_budget_put(m, device_bytes);
    m->ceiling_bytes = INT64_MAX;
    m->budget_follows = false;
    if (status == MM_OK) status = mm_manager_replan(m, &m->plans.policy, "the budget is set");
    if (status != MM_OK) {
        mm_budget_put(m, before);
        m->ceiling_bytes = ceiling;
        m->budget_follows = followed;
    }
    mm_arena_trim(m);
    return status;
}

int64_t mm_manager_device_bytes(mm_manager *m) {
    if (!m) return 0;
    pthread_mutex_lock(&m->lock);
    int64_t bytes = m->budget_bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}
