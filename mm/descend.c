/* What is run where memory is short: a substitute of the policy, and the policy again when it fits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/manager.h"
#include "mm/refusal.h"
#include "policies/fallback.h"

bool mm_manager_is_short(const mm_manager *m) {
    if (m->options.no_ladder) return false;
    return mm_manager_limit_bytes(m) < m->options.device_bytes || mm_pool_bytes(m->staging) < m->options.pinned_bytes;
}

mm_status mm_manager_advise(const mm_manager *m, const mm_attempt *a, bool descended) {
    const mm_refused refused = {.graph = a->refused->graph,
                                .device = m->options.device,
                                .limits = mm_manager_limits(m),
                                .rates = m->rates,
                                .recomputes = a->refused->recompute != NULL,
                                .descended = descended};
    return mm_advise(&refused);
}

/* What is run from now on is what was tried, for the policy that is wanted. `now`: its policy, which is
 * taken. */
static void take_up(mm_manager *m, const mm_attempt *a, mm_policy *now, const mm_policy *wanted, const char *step,
                    const char *why) {
    bool new_policy = !mm_policy_equal(&m->policy, wanted);
    bool other = !mm_policy_equal(&m->policy_now, now) || m->least_workspaces != a->least_workspaces;
    mm_policy_fini(&m->policy_now);
    m->policy_now = *now;
    m->least_workspaces = a->least_workspaces;
    if (!new_policy && !other) return;
    char need[32], have[32], message[2 * MM_MESSAGE_CAPACITY];
    if (!a->stands_in) {
        if (!new_policy) mm_log_send(&m->options.log, MM_LOG_WARNING, "%s fits again", MM_BRIEF(wanted->spec));
        return;
    }
    snprintf(message, sizeof message, "%s; %s: %s instead of %s needs %s of %s", why, step, MM_BRIEF(now->spec),
             MM_BRIEF(wanted->spec), mm_size_format(a->need_bytes, need, sizeof need),
             mm_size_format(mm_manager_limit_bytes(m), have, sizeof have));
    mm_manager_step_down(m, now->spec, mm_manager_limit_bytes(m), message);
}

/* Tries, and takes up what does. */
static mm_status attempt(mm_manager *m, mm_attempt *a, const mm_policy *wanted, const mm_record *added,
                         const char *step, const char *why) {
    mm_policy now;
    MM_TRY(mm_policy_copy(&a->policy, &now));
    mm_status status = mm_manager_try(m, a, added);
    if (status == MM_OK)
        take_up(m, a, &now, wanted, step, why);
    else
        mm_policy_fini(&now);
    return status;
}

static bool allows_less_workspace(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->n_less > 0) return true;
    return false;
}

/* Whether smaller workspaces change anything. */
static bool has_smaller_workspaces(const mm_manager *m, const mm_record *added) {
    bool any = added && allows_less_workspace(added->graph);
    for (int i = 0; i < m->n_records && !any; i++) any = allows_less_workspace(m->records[i].graph);
    return any;
}

/* The first of a policy's substitutes that fits, for all graphs. `own`: the policy itself, which does not. */
static mm_status descend_to(mm_manager *m, const mm_attempt *own, const mm_fallback *fallback, const mm_record *added,
                            const char *why) {
    char refusal[MM_MESSAGE_CAPACITY];
    const char *least = own->policy.spec;
    int64_t least_bytes = own->need_bytes > 0 ? own->need_bytes : INT64_MAX;
    snprintf(refusal, sizeof refusal, "%s", mm_last_error());
    for (int i = has_smaller_workspaces(m, added) ? 0 : 1; i < fallback->n; i++) {
        const mm_substitute *other = &fallback->substitutes[i];
        mm_attempt a = {.policy = other->policy, .least_workspaces = true, .stands_in = true};
        mm_status status = attempt(m, &a, &own->policy, added, other->step, why);
        if (status != MM_ERR_INFEASIBLE) return status;
        if (a.need_bytes == 0 || a.need_bytes >= least_bytes) continue;
        least_bytes = a.need_bytes;
        least = other->policy.spec;
    }
    mm_fail_set("%s; of all that could stand in for it, %s needs least: %s", refusal, MM_BRIEF(least),
                MM_SIZE_TOLD(least_bytes));
    return mm_manager_advise(m, own, true);
}

static mm_status descend(mm_manager *m, const mm_attempt *own, const mm_record *added, const char *why) {
    mm_fallback fallback;
    char refusal[MM_MESSAGE_CAPACITY];
    snprintf(refusal, sizeof refusal, "%s", mm_last_error());
    MM_TRY(mm_fallback_init(&fallback, &own->policy));
    mm_fail_set("%s", refusal);
    mm_status status = descend_to(m, own, &fallback, added, why);
    mm_fallback_fini(&fallback);
    return status;
}

mm_status mm_manager_replan(mm_manager *m, const mm_policy *wanted, const mm_record *added, const char *why) {
    mm_attempt a = {.policy = *wanted};
    mm_status status = attempt(m, &a, wanted, added, NULL, NULL);
    if (status != MM_ERR_INFEASIBLE) return status;
    return mm_manager_is_short(m) ? descend(m, &a, added, why) : mm_manager_advise(m, &a, false);
}

void mm_manager_run_out(mm_manager *m) {
    const mm_graph *graph = m->largest;
    const mm_record *r = graph ? mm_manager_find(m, graph) : NULL;
    if (m->options.no_ladder || !r) return;
    char reason[MM_MESSAGE_CAPACITY], why[2 * MM_MESSAGE_CAPACITY];
    snprintf(reason, sizeof reason, "%s", mm_last_error());
    snprintf(why, sizeof why, "in an iteration of %s, %s", mm_graph_name(graph), reason);
    /* By a part that is worth it for whoever else needs the memory. */
    enum { PART = 32 };
    int64_t peak = r->planned.plan->peak_bytes;
    int64_t ceiling = m->ceiling_bytes, steps = m->ladder_steps;
    m->ceiling_bytes = peak - peak / PART - 1;
    if (mm_manager_replan(m, &m->policy, NULL, why) != MM_OK) {
        m->ceiling_bytes = ceiling;
        mm_log_send(&m->options.log, MM_LOG_ERROR, "memory ran out, and nothing does with less: %s", mm_last_error());
    } else {
        if (m->ladder_steps == steps) mm_manager_step_down(m, m->policy_now.spec, mm_manager_limit_bytes(m), why);
        mm_manager_trim(m);
    }
    mm_fail_set("%s", reason);
}
