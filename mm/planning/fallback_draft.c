/* SPDX-License-Identifier: MIT */
#include "mm/planning/fallback_draft.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/core/size.h"
#include "mm/core/text.h"
#include "mm/planning/refusal.h"
#include "policies/fallback.h"

/* ---------------------------------------------------------------- a refusal */

/* Of the set's graphs and the new one, the i-th. */
static mm_new_graph graph_at(const mm_plan_set *set, const mm_fallback_request *request, int i) {
    return i < set->n ? (mm_new_graph){set->prepared[i]->graph, set->prepared[i]->recomputes} : *request->added;
}

static int count_graphs(const mm_plan_set *set, const mm_fallback_request *request) {
    return set->n + (request->added != NULL);
}

mm_refusal mm_misfit_describe(const mm_plan_set *set, const mm_limits *limits, const char *policy,
                              const mm_misfit *misfit, const mm_new_graph *others, int n) {
    mm_refusal r = {.needed_bytes = misfit->need_bytes,
                    .needed_pinned_bytes = misfit->pinned_bytes,
                    .device_bytes = limits->device_bytes,
                    .pinned_bytes = limits->pinned_bytes,
                    .other_bytes = mm_persistent_table_beside(set->sources.persistents, misfit->graph)};
    const mm_graph *other = mm_refused_beside(misfit->graph, others, n);
    char step[MM_PLAN_NAME_CAPACITY];
    mm_refused_put(r.policy, policy);
    mm_refused_put(r.graph, mm_graph_name(misfit->graph));
    if (misfit->held_step >= 0)
        mm_refused_put(r.held_by, mm_graph_step_name(misfit->graph, misfit->held_step, step, sizeof step));
    if (other) mm_refused_put(r.other_graph, mm_graph_name(other));
    for (int k = 0; k < MM_HELD_KINDS; k++) r.held[k] = misfit->held[k];
    return r;
}

/* Returns the refusal with advice, which holds for all graphs together. descended: all substitutes (the ladder) were
 * tried. */
static mm_status advise(const mm_plan_set *set, const mm_fallback_request *request, const mm_misfit *misfit,
                        bool descended) {
    const int graphs = count_graphs(set, request);
    char told[MM_MESSAGE_CAPACITY];
    mm_new_graph *others = malloc(((size_t)graphs + 1) * sizeof *others);
    int n = 0;
    if (!others) return mm_fail(MM_ERR_NOMEM, "out of memory for the refusal of %s", mm_graph_name(misfit->graph));
    for (int i = 0; i < graphs; i++)
        if (graph_at(set, request, i).graph != misfit->graph) others[n++] = graph_at(set, request, i);
    mm_refusal r = mm_misfit_describe(set, &request->limits, request->policy->spec, misfit, others, n);
    const mm_refused refused = {.graph = misfit->graph,
                                .others = others,
                                .n_others = n,
                                .persistents = set->sources.persistents,
                                .device = set->sources.device,
                                .limits = request->limits,
                                .rates = set->sources.rates,
                                .policy = request->policy,
                                .needs_bytes = misfit->need_bytes,
                                .add_times = set->sources.facts ? mm_times_measured : NULL,
                                .times = set->sources.facts,
                                .recomputes = misfit->recomputes,
                                .descended = descended,
                                .advised = &r.advised,
                                .recomputing = &r.recomputing};
    const int64_t beside = misfit->need_bytes > 0 ? r.other_bytes : 0;
    const mm_status status =
        mm_advise(&refused, mm_refused_tell_others(misfit->failure.message, beside, r.other_graph, told));
    free(others);
    snprintf(r.message, sizeof r.message, "%s", mm_last_error());
    if (status == MM_ERR_INFEASIBLE && request->refusal) *request->refusal = r;
    return status;
}

/* ---------------------------------------------------------------- substitutes */

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
                                  const mm_fallback *fallback, const mm_misfit *own, mm_draft *draft_out) {
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
        mm_misfit misfit;
        mm_status status = mm_plan_set_draft(set, &attempt, draft_out, &misfit);
        if (status == MM_ERR_INVALID) continue; /* it needs measured times, which the facts lack (auto) */
        if (status != MM_ERR_INFEASIBLE) return status;
        if (misfit.need_bytes == 0 || misfit.need_bytes >= least_bytes) continue;
        least_bytes = misfit.need_bytes;
        least = other->policy.spec;
    }
    mm_misfit all = *own;
    mm_failure_save(&all.failure, mm_fail(MM_ERR_INFEASIBLE, "%s; of all its substitutes, %s needs least: %s",
                                          own->failure.message, MM_BRIEF(least), MM_SIZE_TEXT(least_bytes)));
    return advise(set, request, &all, true);
}

static mm_status try_substitutes(const mm_plan_set *set, const mm_fallback_request *request, const mm_misfit *own,
                                 mm_draft *draft_out) {
    mm_fallback fallback;
    MM_TRY(mm_fallback_init(&fallback, request->policy));
    mm_status status = draft_substitute(set, request, &fallback, own, draft_out);
    mm_fallback_fini(&fallback);
    return status;
}

mm_status mm_fallback_draft(const mm_plan_set *set, const mm_fallback_request *request, mm_draft *draft_out) {
    mm_misfit misfit;
    if (request->others_stay) {
        mm_plan_request now = mm_plan_set_again(set, &request->limits);
        now.added = request->added;
        now.others_stay = true;
        mm_status status = mm_plan_set_draft(set, &now, draft_out, &misfit);
        if (status != MM_ERR_INFEASIBLE) return status;
        /* with other homes, the policy itself may fit */
        const bool all_stay = set->policy_now.config.resident == MM_RESIDENT_ALL;
        if (!request->is_short && all_stay) return advise(set, request, &misfit, false);
    }
    const mm_plan_request own = {.policy = request->policy,
                                 .runs_at_once = !mm_policy_equal(request->policy, &set->policy),
                                 .limits = request->limits,
                                 .added = request->added};
    mm_status status = mm_plan_set_draft(set, &own, draft_out, &misfit);
    const bool unable = status == MM_ERR_UNSUPPORTED && !own.runs_at_once;
    if (request->is_short && (status == MM_ERR_INFEASIBLE || unable))
        return try_substitutes(set, request, &misfit, draft_out);
    return status == MM_ERR_INFEASIBLE ? advise(set, request, &misfit, false) : status;
}
