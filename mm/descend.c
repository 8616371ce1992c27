/* What is run where memory is short: down the policy's ladder, and up again. */
#include <stdio.h>
#include <string.h>

#include "mm/advice.h"
#include "mm/ladder.h"
#include "mm/manager.h"

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

/* What is run from now on is what was tried, for the policy that is wanted. */
static void take_up(mm_manager *m, const mm_attempt *a, const mm_policy *wanted, const char *step, const char *why) {
    bool new_policy = strcmp(m->policy.spec, wanted->spec) != 0;
    bool other = strcmp(m->policy_now, a->policy.spec) != 0 || m->least_workspaces != a->least_workspaces;
    strcpy(m->policy_now, a->policy.spec);
    m->least_workspaces = a->least_workspaces;
    if (!new_policy && !other) return;
    char need[32], have[32], message[MM_MESSAGE_CAPACITY];
    if (!a->stands_in) {
        if (!new_policy) mm_log_send(&m->options.log, MM_LOG_WARNING, "%s fits again", wanted->spec);
        return;
    }
    snprintf(message, sizeof message, "%s; %s: %s instead of %s needs %s of %s", why, step, a->policy.spec,
             wanted->spec, mm_size_format(a->need_bytes, need, sizeof need),
             mm_size_format(mm_manager_limit_bytes(m), have, sizeof have));
    mm_manager_step_down(m, a->policy.spec, mm_manager_limit_bytes(m), message);
}

static bool allows_less_workspace(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->n_less > 0) return true;
    return false;
}

/* Whether the ladder's step of smaller workspaces changes anything. */
static bool has_smaller_workspaces(const mm_manager *m, const mm_record *added) {
    bool any = added && allows_less_workspace(added->graph);
    for (int i = 0; i < m->n_records && !any; i++) any = allows_less_workspace(m->records[i].graph);
    return any;
}

/* The first of a policy's ladder that fits, for all graphs. `own`: the policy itself, which does not. */
static mm_status descend(mm_manager *m, const mm_attempt *own, const mm_record *added, const char *why) {
    mm_rung rungs[MM_LADDER_MAX];
    char refusal[MM_MESSAGE_CAPACITY], least[MM_POLICY_SPEC];
    int64_t least_bytes = own->need_bytes > 0 ? own->need_bytes : INT64_MAX;
    snprintf(refusal, sizeof refusal, "%s", mm_last_error());
    strcpy(least, own->policy.spec);
    int n = mm_ladder_list(&own->policy, rungs);
    for (int i = has_smaller_workspaces(m, added) ? 0 : 1; i < n; i++) {
        mm_attempt a = {.least_workspaces = rungs[i].least_workspaces, .stands_in = true};
        MM_TRY(mm_policy_parse(rungs[i].spec, &a.policy));
        mm_status status = mm_manager_try(m, &a, added);
        if (status == MM_OK) {
            take_up(m, &a, &own->policy, rungs[i].step, why);
            return MM_OK;
        }
        if (status != MM_ERR_INFEASIBLE) return status;
        if (a.need_bytes == 0 || a.need_bytes >= least_bytes) continue;
        least_bytes = a.need_bytes;
        strcpy(least, rungs[i].spec);
    }
    mm_fail_set("%s; of all that could stand in for it, %s needs least: %s", refusal, least, MM_SIZE_TOLD(least_bytes));
    return mm_manager_advise(m, own, true);
}

mm_status mm_manager_replan(mm_manager *m, const mm_policy *wanted, const mm_record *added, const char *why) {
    mm_attempt a = {.policy = *wanted};
    mm_status status = mm_manager_try(m, &a, added);
    if (status == MM_OK) take_up(m, &a, wanted, NULL, NULL);
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
        if (m->ladder_steps == steps) mm_manager_step_down(m, m->policy_now, mm_manager_limit_bytes(m), why);
        mm_manager_trim(m);
    }
    mm_fail_set("%s", reason);
}
