/* SPDX-License-Identifier: MIT */
#include "mm/planning/fallback_draft.h"

#include "mm/core/size.h"
#include "mm/core/text.h"
#include "mm/planning/refusal.h"
#include "policies/fallback.h"

/* Returns the refusal with advice. descended: all substitutes (the ladder) were tried. */
static mm_status advise(const mm_plan_set *set, const mm_fallback_request *request, const mm_refusal *refusal,
                        bool descended) {
    const mm_refused refused = {.graph = refusal->graph,
                                .device = set->sources.device,
                                .limits = request->limits,
                                .rates = set->sources.rates,
                                .policy = request->policy,
                                .needs_bytes = refusal->need_bytes,
                                .add_times = set->sources.facts ? mm_times_measured : NULL,
                                .times = set->sources.facts,
                                .recomputes = refusal->recomputes,
                                .descended = descended};
    return mm_advise(&refused, refusal->failure.message);
}

static bool allows_less_workspace(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->n_less > 0) return true;
    return false;
}

/* Whether any graph allows smaller workspaces; if none does, the first substitute, the same policy with smaller
 * workspaces, equals the policy. */
static bool has_smaller_workspaces(const mm_plan_set *set, const mm_new_graph *added) {
    bool any = added && allows_less_workspace(added->graph);
    for (int i = 0; i < set->n && !any; i++) any = allows_less_workspace(set->prepared[i]->graph);
    return any;
}

/* Drafts with the first substitute whose plans fit for all graphs. own: why the policy itself does not fit. */
static mm_status draft_substitute(const mm_plan_set *set, const mm_fallback_request *request,
                                  const mm_fallback *fallback, const mm_refusal *own, mm_draft *draft_out) {
    const char *least = request->policy->spec;
    int64_t least_bytes = own->need_bytes > 0 ? own->need_bytes : INT64_MAX;
    for (int i = has_smaller_workspaces(set, request->added) ? 0 : 1; i < fallback->n; i++) {
        const mm_substitute *other = &fallback->substitutes[i];
        const mm_plan_request attempt = {.policy = &other->policy,
                                         .least_workspaces = true,
                                         .stands_in = true,
                                         .step = other->step,
                                         .limits = request->limits,
                                         .added = request->added};
        mm_refusal refusal;
        mm_status status = mm_plan_set_draft(set, &attempt, draft_out, &refusal);
        if (status == MM_ERR_INVALID) continue; /* it needs measured times, which the facts lack (auto) */
        if (status != MM_ERR_INFEASIBLE) return status;
        if (refusal.need_bytes == 0 || refusal.need_bytes >= least_bytes) continue;
        least_bytes = refusal.need_bytes;
        least = other->policy.spec;
    }
    mm_refusal all = *own;
    mm_failure_save(&all.failure, mm_fail(MM_ERR_INFEASIBLE, "%s; of all its substitutes, %s needs least: %s",
                                          own->failure.message, MM_BRIEF(least), MM_SIZE_TEXT(least_bytes)));
    return advise(set, request, &all, true);
}

static mm_status try_substitutes(const mm_plan_set *set, const mm_fallback_request *request, const mm_refusal *own,
                                 mm_draft *draft_out) {
    mm_fallback fallback;
    MM_TRY(mm_fallback_init(&fallback, request->policy));
    mm_status status = draft_substitute(set, request, &fallback, own, draft_out);
    mm_fallback_fini(&fallback);
    return status;
}

mm_status mm_fallback_draft(const mm_plan_set *set, const mm_fallback_request *request, mm_draft *draft_out) {
    mm_refusal refusal;
    if (request->others_stay) {
        mm_plan_request now = mm_plan_set_again(set, &request->limits);
        now.added = request->added;
        now.others_stay = true;
        mm_status status = mm_plan_set_draft(set, &now, draft_out, &refusal);
        if (status != MM_ERR_INFEASIBLE) return status;
        if (!request->is_short) return advise(set, request, &refusal, false);
    }
    const mm_plan_request own = {.policy = request->policy,
                                 .runs_at_once = !mm_policy_equal(request->policy, &set->policy),
                                 .limits = request->limits,
                                 .added = request->added};
    mm_status status = mm_plan_set_draft(set, &own, draft_out, &refusal);
    const bool unable = status == MM_ERR_UNSUPPORTED && !own.runs_at_once;
    if (request->is_short && (status == MM_ERR_INFEASIBLE || unable))
        return try_substitutes(set, request, &refusal, draft_out);
    return status == MM_ERR_INFEASIBLE ? advise(set, request, &refusal, false) : status;
}
