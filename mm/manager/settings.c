/* SPDX-License-Identifier: MIT */
/* Settings that the user changes between iterations: the policy, the budget. */
#include "mm/core/size.h"
#include "mm/manager/arena.h"
#include "mm/manager/budget.h"
#include "mm/manager/install.h"
#include "mm/manager/states.h"

const char *mm_policy_now(const mm_manager *m) { return m ? m->plans.policy_now.spec : NULL; }

static mm_status switch_policy(mm_manager *m, const mm_policy *policy) {
    MM_TRY(mm_planned_try_codecs(policy, m->options.device));
    MM_TRY(mm_manager_drain(m, "mm_policy_set"));
    const int64_t budget = m->budget_bytes;
    MM_TRY(mm_budget_follow(m, policy, NULL));
    return mm_budget_keep(m, budget, mm_manager_replan(m, policy, "the policy is set"));
}

mm_status mm_policy_set(mm_manager *m, const char *spec) {
    MM_TRY(mm_manager_check_idle(m, "mm_policy_set"));
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    mm_status status = switch_policy(m, &policy);
    if (status != MM_OK) {
        mm_policy_fini(&policy);
        return status;
    }
    mm_policy_fini(&m->plans.policy);
    m->plans.policy = policy;
    mm_manager_notify(m, MM_EVENT_POLICY, m->plans.policy.spec, 0, 0);
    return MM_OK;
}

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
