/* SPDX-License-Identifier: MIT */
/* Drafts plans for all graphs of a set together with the homes of their persistent tensors. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/time/node_time.h"
#include "mm/core/time/simulate.h"
#include "mm/planning/plan_set.h"

/* Drafts with more and fewer homes off the device. */
typedef struct housing {
    const mm_plan_set *set;
    const mm_plan_request *request;
    const mm_graph *graph; /* the one whose tensors leave */
    mm_home_order order;
    uint8_t *memory; /* per entry of the table */
    mm_draft draft;  /* the last one that fits */
    bool has_draft;
    mm_misfit misfit; /* of the last try that does not fit; failure: MM_OK if all fit */
    mm_status last;   /* of the last try */
    mm_home_result result;
} housing;

static void drop_draft(housing *h) {
    if (h->has_draft) mm_draft_fini(&h->draft);
    h->has_draft = false;
}

/* What a draft takes, with the predicted time of an iteration of the graph whose tensors leave; 0: it is not known. */
static mm_status describe(const housing *h, const mm_draft *draft, mm_home_result *result_out) {
    *result_out = (mm_home_result){.fits = true};
    for (int i = 0; i < draft->n; i++) {
        const mm_planned *planned = &draft->prepared[i]->planned;
        const mm_plan *plan = planned->plan;
        if (plan->peak_bytes > result_out->peak_bytes) result_out->peak_bytes = plan->peak_bytes;
        if (plan->pinned_bytes > result_out->pinned_bytes) result_out->pinned_bytes = plan->pinned_bytes;
        if (draft->prepared[i]->graph != h->graph) continue;
        MM_TRY(mm_program_predict(planned->program, planned->facts, &result_out->ns));
        if (result_out->ns > 0) result_out->steps_ns = mm_plan_steps_ns(plan, planned->facts);
    }
    return MM_OK;
}

/* Keeps the draft of a trial: unless it is a rival of the one before, and not faster. *tried_ns_out: its time. */
static mm_status keep(housing *h, const mm_home_trial *trial, mm_draft *draft, int64_t *tried_ns_out) {
    mm_home_result result;
    mm_status status = describe(h, draft, &result);
    *tried_ns_out = result.ns;
    if (status != MM_OK || (trial->rival && (result.ns == 0 || result.ns >= h->result.ns))) {
        mm_draft_fini(draft);
        return status;
    }
    drop_draft(h);
    h->draft = *draft;
    h->has_draft = true;
    h->result = result;
    return MM_OK;
}

static mm_status try_homes(void *ctx, const mm_home_trial *trial, mm_home_result *result_out) {
    housing *h = ctx;
    const mm_persistent_table *table = h->set->sources.persistents;
    mm_plan_request request = *h->request;
    mm_draft draft;
    mm_misfit misfit;
    int64_t tried_ns = 0;
    request.limits.first_fit |= trial->first_fit;
    request.limits.few |= trial->few;
    request.limits.ahead_bytes = trial->ahead_bytes;
    request.limits.below_ns = trial->below_ns;
    mm_home_trial_divide(trial, &request.limits);
    if (trial->pinned_free) request.limits.pinned_bytes = INT64_MAX;
    mm_home_trial_mark(trial, &h->order, table, h->memory);
    mm_status status = mm_plan_set_draft_with(h->set, &request, &(mm_homes){h->memory, table->n}, &draft, &misfit);
    const bool fits = status == MM_OK;
    if (fits)
        status = keep(h, trial, &draft, &tried_ns);
    else if (!trial->rival) {
        drop_draft(h);
        h->misfit = misfit;
        h->result = (mm_home_result){.lacks_pinned = misfit.pinned_bytes > request.limits.pinned_bytes,
                                     .lacks_disk = misfit.disk_bytes > request.limits.disk_bytes,
                                     .peak_bytes = misfit.need_bytes,
                                     .pinned_bytes = misfit.pinned_bytes};
    }
    if (!trial->rival || (status != MM_OK && status != MM_ERR_INFEASIBLE)) h->last = status;
    *result_out = h->result;
    result_out->tried_fits = fits;
    result_out->tried_ns = tried_ns;
    return status == MM_ERR_INFEASIBLE ? MM_OK : status;
}

/* The graph with the most persistent tensors, which is one that trains; NULL: there is none. */
static const mm_graph *graph_to_house(const mm_plan_set *set, const mm_plan_request *a) {
    const mm_graph *most = NULL;
    for (int i = 0; i < set->n + (a->added != NULL); i++) {
        const mm_graph *graph = i < set->n ? set->prepared[i]->graph : a->added->graph;
        if (!most || mm_graph_persistents(graph) > mm_graph_persistents(most)) most = graph;
    }
    return most;
}

static int count_training(const mm_plan_set *set, const mm_plan_request *a) {
    int n = a->added && mm_home_trains(a->added->graph);
    for (int i = 0; i < set->n; i++) n += mm_home_trains(set->prepared[i]->graph);
    return n;
}

static bool uses_host(const mm_plan_set *set, const mm_plan_request *a) {
    bool any = a->added && mm_graph_uses_host(a->added->graph);
    for (int i = 0; i < set->n; i++) any |= mm_graph_uses_host(set->prepared[i]->graph);
    return any;
}

static mm_status draft_housed(const mm_plan_set *set, const mm_plan_request *a, mm_draft *draft_out,
                              mm_misfit *misfit_out) {
    housing h = {.set = set,
                 .request = a,
                 .graph = graph_to_house(set, a),
                 .memory = calloc((size_t)set->sources.persistents->n + 1, 1)};
    const mm_home_wish wish = mm_home_wish_of(a->policy, uses_host(set, a), count_training(set, a) > 1);
    if (!h.memory) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of persistent tensors");
    mm_status status = h.graph ? mm_home_order_init(h.graph, a->policy->config.away, &h.order) : MM_OK;
    if (status == MM_OK) status = mm_homes_search(&wish, &h.order, &a->limits, try_homes, &h);
    if (status == MM_OK) status = h.last;
    if (status == MM_OK) {
        *draft_out = h.draft;
        h.has_draft = false;
    } else if (misfit_out) {
        *misfit_out = h.misfit;
        if (status == MM_ERR_INFEASIBLE) status = mm_failure_restore(&h.misfit.failure);
    }
    drop_draft(&h);
    mm_home_order_fini(&h.order);
    free(h.memory);
    return status;
}

/* Drafts with the homes that the policy gives. */
static mm_status draft_given(const mm_plan_set *set, const mm_plan_request *a, mm_draft *draft_out,
                             mm_misfit *misfit_out) {
    const int n = set->sources.persistents->n;
    uint8_t *memory = calloc((size_t)n + 1, 1);
    if (!memory) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of persistent tensors");
    mm_status status =
        a->added ? mm_homes_mark_given(a->policy, a->added->graph, set->sources.persistents, memory) : MM_OK;
    for (int i = 0; status == MM_OK && i < set->n; i++)
        status = mm_homes_mark_given(a->policy, set->prepared[i]->graph, set->sources.persistents, memory);
    if (status == MM_OK) status = mm_plan_set_draft_with(set, a, &(mm_homes){memory, n}, draft_out, misfit_out);
    free(memory);
    return status;
}

mm_status mm_plan_set_draft(const mm_plan_set *set, const mm_plan_request *a, mm_draft *draft_out,
                            mm_misfit *misfit_out) {
    if (a->others_stay || a->homes_stay) return mm_plan_set_draft_with(set, a, &set->homes, draft_out, misfit_out);
    if (a->policy->ops->places) return draft_given(set, a, draft_out, misfit_out);
    if (a->policy->config.resident != MM_RESIDENT_ALL || uses_host(set, a))
        return draft_housed(set, a, draft_out, misfit_out);
    return mm_plan_set_draft_with(set, a, &(mm_homes){.n = set->sources.persistents->n}, draft_out, misfit_out);
}
