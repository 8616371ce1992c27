/* SPDX-License-Identifier: MIT */
#include "mm/manager/install.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/log.h"
#include "mm/core/size.h"
#include "mm/core/text.h"
#include "mm/manager/arena.h"
#include "mm/manager/home_moves.h"
#include "mm/manager/sampling.h"
#include "mm/manager/states.h"
#include "mm/planning/fallback_draft.h"
#include "mm/planning/refusal.h"

/* ---------------------------------------------------------------- plans made ready to run */

void mm_ready_fini(mm_ready *r) {
    mm_execution_destroy(r->execution);
    mm_sampling_destroy(r->sampling);
    mm_upload_destroy(r->block);
    free(r->bounds);
    free(r->external);
}

void mm_ready_set_allreduce(mm_ready *r) {
    mm_execution_set_allreduce(r->execution, &r->allreduce_fns, r->gradient_ctx);
    if (r->sampling) mm_execution_set_allreduce(r->sampling->execution, &r->allreduce_fns, r->gradient_ctx);
}

static mm_status open_block(const mm_manager *m, mm_ready *r) {
    const mm_planned *planned = &r->prepared->planned;
    uint8_t *place = (uint8_t *)mm_pool_base(m->pool) + planned->block_offset;
    if (planned->block_bytes == 0) return MM_OK;
    mm_execution_set_block(r->execution, place);
    return mm_upload_create(m->device, place, planned->block_bytes, &r->block);
}

/* If the graph was ready before, keeps its external memory, its bounds, the functions that it was given, and
 * told_untimed. */
static mm_status ready_init(const mm_manager *m, const mm_policy *policy, mm_prepared *prepared, mm_ready *ready_out) {
    mm_ready *before = mm_manager_find(m, prepared->graph);
    if (before) mm_sampling_judge(before);
    const mm_planned *planned = &prepared->planned;
    mm_ready r = {.prepared = prepared,
                  .recompute = before ? before->recompute : NULL,
                  .recompute_ctx = before ? before->recompute_ctx : NULL,
                  .allreduce_fns = before ? before->allreduce_fns : (mm_allreduce_fns){0},
                  .gradient_ctx = before ? before->gradient_ctx : NULL,
                  .compared_at = -1,
                  .sampled_age = before ? before->sampled_age : -1,
                  .told_untimed = before && before->told_untimed};
    const size_t n = (size_t)mm_graph_tensors(prepared->graph) + 1;
    r.external = calloc(n, sizeof *r.external);
    r.bounds = calloc(n, sizeof *r.bounds);
    mm_status status = MM_OK;
    if (!r.external || !r.bounds)
        status = mm_fail(MM_ERR_NOMEM, "out of memory for the graph %s", mm_graph_name(prepared->graph));
    if (status == MM_OK && before) {
        memcpy(r.external, before->external, n * sizeof *r.external);
        memcpy(r.bounds, before->bounds, n * sizeof *r.bounds);
    }
    if (status == MM_OK)
        status = mm_execution_create(m->dispatch, planned->program, planned->facts, planned->codecs, &r.execution);
    if (status == MM_OK) status = open_block(m, &r);
    if (status == MM_OK) status = mm_sampling_create(m, policy, &r);
    if (status == MM_OK) mm_ready_set_allreduce(&r);
    if (status == MM_OK && m->observed.permille > 0) status = mm_execution_observe(r.execution, m->observed.window);
    if (status == MM_OK)
        *ready_out = r;
    else
        mm_ready_fini(&r);
    return status;
}

/* Makes the draft's new plans ready to run. All that may fail happens here. */
static mm_status make_ready(mm_manager *m, const mm_draft *draft, mm_ready *ready) {
    mm_status status = MM_OK;
    int made = draft->kept;
    for (int i = 0; i < draft->kept; i++) ready[i] = *mm_manager_find(m, draft->prepared[i]->graph);
    while (status == MM_OK && made < draft->n) {
        status = ready_init(m, &draft->policy, draft->prepared[made], &ready[made]);
        if (status == MM_OK) made++;
    }
    if (status == MM_OK) status = mm_homes_move(m, &draft->homes);
    for (int i = draft->kept; status != MM_OK && i < made; i++) mm_ready_fini(&ready[i]);
    return status;
}

static bool stays(const mm_draft *draft, const mm_prepared *prepared) {
    for (int i = 0; i < draft->kept; i++)
        if (draft->prepared[i] == prepared) return true;
    return false;
}

static bool has_backward(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->phase == MM_BACKWARD) return true;
    return false;
}

/* Logs once for each graph that it is planned without measured times. This is no warning for a graph without a backward
 * pass, where policies have nothing to choose. */
static void report_untimed(mm_manager *m, mm_ready *r) {
    const mm_prepared *p = r->prepared;
    if (p->untimed.status == MM_OK || r->told_untimed) return;
    r->told_untimed = true;
    mm_log_send(&m->options.log, has_backward(p->graph) ? MM_LOG_WARNING : MM_LOG_INFO,
                "%s is planned without measured times: %s", mm_graph_name(p->graph), p->untimed.message);
}

mm_status mm_manager_install(mm_manager *m, mm_draft *draft) {
    mm_policy_thread_interrupt(&m->policy_thread);
    mm_page_guard_open(m); /* persistent tensors may grow into what was managed */
    mm_ready *ready = malloc(((size_t)draft->n + 1) * sizeof *ready);
    if (!ready) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", draft->n);
    mm_status status = make_ready(m, draft, ready);
    if (status != MM_OK) {
        free(ready);
        return status;
    }
    for (int i = 0; i < m->n_ready; i++)
        if (!stays(draft, m->ready[i].prepared)) mm_ready_fini(&m->ready[i]);
    free(m->ready);
    m->ready = ready;
    m->n_ready = draft->n;
    mm_plan_set_commit(&m->plans, draft);
    for (int i = draft->kept; i < draft->n; i++) {
        const mm_prepared *p = ready[i].prepared;
        report_untimed(m, &ready[i]);
        mm_manager_notify(m, MM_EVENT_PLAN, mm_graph_name(p->graph), p->planned.plan->peak_bytes, 0);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- the policy, or a substitute */

/* Whether there is less memory than was asked for, and substitutes are allowed. */
static bool is_short(const mm_manager *m) {
    if (m->options.no_ladder) return false;
    return mm_manager_limit_bytes(m) < m->options.device_bytes || mm_pool_bytes(m->pinned) < m->options.pinned_bytes;
}

/* Reports the substitute that runs from now on. */
static void tell(mm_manager *m, const mm_draft *draft, const mm_policy *wanted, const char *why) {
    char need[32], have[32], message[2 * MM_MESSAGE_CAPACITY];
    const char *now = m->plans.policy_now.spec;
    snprintf(message, sizeof message, "%s; %s: %s runs instead of %s, and needs %s of %s", why, draft->step,
             MM_BRIEF(now), MM_BRIEF(wanted->spec), mm_size_format(draft->need_bytes, need, sizeof need),
             mm_size_format(mm_manager_limit_bytes(m), have, sizeof have));
    mm_manager_step_down(m, now, mm_manager_limit_bytes(m), message);
}

/* Installs the draft, and reports it if a substitute runs from now on, or the wanted policy again. */
static mm_status install(mm_manager *m, mm_draft *draft, const mm_policy *wanted, const char *why) {
    const mm_plan_set *set = &m->plans;
    bool new_policy = !mm_policy_equal(&set->policy, wanted);
    bool other = !mm_policy_equal(&set->policy_now, &draft->policy) || set->least_workspaces != draft->least_workspaces;
    MM_TRY(mm_manager_install(m, draft));
    if (draft->stands_in && (new_policy || other))
        tell(m, draft, wanted, why);
    else if (other && !new_policy)
        mm_log_send(&m->options.log, MM_LOG_WARNING, "%s fits again", MM_BRIEF(wanted->spec));
    return MM_OK;
}

mm_status mm_manager_install_wanted(mm_manager *m, mm_draft *draft, const mm_policy *wanted) {
    return install(m, draft, wanted, "the policy is set");
}

mm_fallback_request mm_manager_request(const mm_manager *m, const mm_policy *policy) {
    return (mm_fallback_request){.policy = policy, .limits = mm_manager_limits(m), .is_short = is_short(m)};
}

static mm_status draft_and_install(mm_manager *m, const mm_fallback_request *request, const char *why) {
    mm_draft draft;
    mm_fallback_request noting = *request;
    noting.refusal = &m->refusal;
    mm_status status = mm_fallback_draft(&m->plans, &noting, &draft);
    m->was_refused |= status == MM_ERR_INFEASIBLE;
    MM_TRY(status);
    status = install(m, &draft, request->policy, why);
    mm_draft_fini(&draft);
    return status;
}

mm_status mm_manager_replan(mm_manager *m, const mm_policy *policy, const char *why) {
    const mm_fallback_request request = mm_manager_request(m, policy);
    return draft_and_install(m, &request, why);
}

mm_status mm_manager_add(mm_manager *m, const mm_new_graph *added, bool others_stay) {
    const mm_fallback_request request = {.policy = &m->plans.policy,
                                         .limits = mm_manager_limits(m),
                                         .is_short = is_short(m),
                                         .added = added,
                                         .others_stay = others_stay};
    char why[MM_MESSAGE_CAPACITY];
    snprintf(why, sizeof why, "%s is added", mm_graph_name(added->graph));
    return draft_and_install(m, &request, why);
}

/* Keeps a refusal without advice. misfit->graph NULL: the persistent tensors alone do not fit. */
static mm_status note_refusal(mm_manager *m, const mm_limits *limits, const mm_misfit *misfit, mm_status status) {
    const char *policy = m->plans.policy_now.spec;
    if (status != MM_ERR_INFEASIBLE) return status;
    m->was_refused = true;
    m->refusal = (mm_refusal){
        .needed_bytes = limits->base_bytes, .device_bytes = limits->device_bytes, .pinned_bytes = limits->pinned_bytes};
    if (misfit->graph)
        m->refusal = mm_misfit_describe(&m->plans, limits, policy, misfit, NULL, 0);
    else
        mm_refused_put(m->refusal.policy, policy);
    snprintf(m->refusal.message, sizeof m->refusal.message, "%s", mm_last_error());
    return status;
}

mm_status mm_manager_plan_around(mm_manager *m) {
    const mm_limits limits = mm_manager_limits(m);
    mm_plan_request now = mm_plan_set_again(&m->plans, &limits);
    mm_draft draft;
    mm_misfit misfit = {.held_step = -1};
    mm_status status = MM_OK;
    if (limits.base_bytes > limits.device_bytes && m->plans.policy_now.config.resident == MM_RESIDENT_ALL)
        status = mm_fail(MM_ERR_INFEASIBLE,
                         "persistent tensors need %s, the budget is %s; with the option resident=needed, some policies "
                         "keep them in pinned memory",
                         MM_SIZE_TEXT(limits.base_bytes), MM_SIZE_TEXT(limits.device_bytes));
    if (status == MM_OK) status = mm_plan_set_draft(&m->plans, &now, &draft, &misfit);
    if (status != MM_OK) return note_refusal(m, &limits, &misfit, status);
    status = mm_manager_install(m, &draft);
    mm_draft_fini(&draft);
    return status;
}

bool mm_refusal_get(const mm_manager *m, mm_refusal *refusal_out) {
    if (!m || !refusal_out || !m->was_refused) return false;
    *refusal_out = m->refusal;
    return true;
}

/* ---------------------------------------------------------------- memory that runs out */

void mm_manager_run_out(mm_manager *m, const mm_failure *reason) {
    const mm_graph *graph = m->largest;
    const mm_ready *r = graph ? mm_manager_find(m, graph) : NULL;
    if (m->options.no_ladder || !r) return;
    char why[2 * MM_MESSAGE_CAPACITY];
    snprintf(why, sizeof why, "in an iteration of %s, %s", mm_graph_name(graph), reason->message);
    /* Sets the ceiling 1/32 below the plan's peak. Chosen: large enough to help the other programs that need the
     * memory. */
    enum { PART = 32 };
    int64_t peak = r->prepared->planned.plan->peak_bytes;
    int64_t ceiling = m->ceiling_bytes, steps = m->ladder_steps;
    m->ceiling_bytes = peak - peak / PART - 1;
    if (mm_manager_replan(m, &m->plans.policy, why) != MM_OK) {
        m->ceiling_bytes = ceiling;
        mm_log_send(&m->options.log, MM_LOG_ERROR, "memory ran out, and no plan fits into less: %s", mm_last_error());
    } else {
        if (m->ladder_steps == steps) mm_manager_step_down(m, m->plans.policy_now.spec, mm_manager_limit_bytes(m), why);
        mm_arena_trim(m);
    }
}

mm_status mm_manager_drain(mm_manager *m, const char *what) {
    MM_TRY(mm_manager_check_idle(m, what));
    mm_failure failure;
    mm_failure_save(&failure, mm_dispatch_sync(m->dispatch));
    mm_homes_judge_written(m, failure.status);
    if (failure.status == MM_ERR_NOMEM) mm_manager_run_out(m, &failure);
    m->largest = NULL;
    return mm_failure_restore(&failure);
}
