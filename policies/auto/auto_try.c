/* SPDX-License-Identifier: MIT */
/* Tries a choice: whether its plan is the best so far. */
#include <string.h>

#include "mm/core/status.h"
#include "policies/auto/auto_state.h"

void mm_auto_copy_choice(const mm_auto *a, const mm_auto_choice *from, mm_auto_choice *to) {
    const size_t n = (size_t)mm_graph_tensors(a->graph);
    memcpy(to->rule, from->rule, n);
    memcpy(to->eager, from->eager, n);
    memcpy(to->brief, from->brief, n);
    to->nesting = from->nesting;
    to->lead = from->lead;
}

static bool fits(const mm_auto *a, const mm_plan *plan) {
    return plan->peak_bytes <= a->limits->device_bytes && plan->pinned_bytes <= a->limits->pinned_bytes;
}

static bool is_better(const mm_auto *a, const mm_plan *plan, bool plan_fits, int64_t ns) {
    if (!a->plan) return true;
    if (plan_fits != a->fits) return plan_fits;
    if (plan_fits) return ns < a->plan_ns;
    const bool within = plan->pinned_bytes <= a->limits->pinned_bytes;
    if (within != (a->plan->pinned_bytes <= a->limits->pinned_bytes)) return within;
    return plan->peak_bytes < a->plan->peak_bytes;
}

/* As mm_auto_compare. *ns_out: the plan's time; INT64_MAX: it does not fit. */
static mm_status compare(mm_auto *a, mm_plan *plan, int64_t *ns_out, bool *better_out) {
    const bool plan_fits = fits(a, plan);
    *ns_out = INT64_MAX;
    mm_status status = plan_fits ? mm_simulated_time(plan, a->facts, ns_out) : MM_OK;
    *better_out = status == MM_OK && is_better(a, plan, plan_fits, *ns_out);
    mm_plan_destroy(*better_out ? a->plan : plan);
    if (!*better_out) return status;
    a->plan = plan;
    a->plan_ns = plan_fits ? *ns_out : 0;
    a->fits = plan_fits;
    return MM_OK;
}

mm_status mm_auto_compare(mm_auto *a, mm_plan *plan, bool *better_out) {
    int64_t ns;
    return compare(a, plan, &ns, better_out);
}

/* Whether the second layout may make the plan of a->now the best. It does not if waits for bytes that are used again
 * cost the best plan less than 1 / LITTLE of the draft's time. Nor does it, as measured, if the first layout's plan is
 * slower than the best by more than 1 / FAR. */
static bool may_gain(const mm_auto *a, int64_t first_ns) {
    enum { LITTLE = 128, FAR = 16 }; /* chosen */
    if (!a->fits) return true;
    return a->plan_ns > a->draft_ns + a->draft_ns / LITTLE && first_ns <= a->plan_ns + a->plan_ns / FAR;
}

/* Work to place a plan, in drafts of it: where the first layout meets the budget, and where it does not; with the
 * second layout. Measured, roughly. */
enum { MET = 2, MISSED = 4, SECOND = 8 };

/* Places a->now, unless that was done before. *over_out: bytes by which the lowest placement exceeds the budget. */
static mm_status place(mm_auto *a, bool *better_out, int64_t *over_out) {
    static const mm_layout_algorithm layouts[] = {MM_LAYOUT_SOON, MM_LAYOUT_QUICK};
    const mm_assignment assigned = mm_auto_assignment(a, &a->now);
    const mm_selection selection = {.assigned = &assigned};
    int64_t *over, ns = 0;
    bool again;
    MM_TRY(mm_auto_memo_place(a, &over, &again));
    for (int i = 0; i < 2 && !again; i++) {
        mm_plan *plan;
        bool better;
        if (i > 0 && (*over > 0 || !may_gain(a, ns))) break;
        MM_TRY(mm_engine_plan_maps(a->survey, a->menu, &selection, layouts[i], &plan));
        const int64_t bytes = plan->peak_bytes - a->limits->device_bytes;
        a->left -= plan->n_nodes * (i > 0 ? SECOND : bytes > 0 ? MISSED : MET);
        if (bytes < *over) *over = bytes;
        MM_TRY(compare(a, plan, &ns, &better));
        *better_out |= better;
    }
    *over_out = *over;
    return MM_OK;
}

bool mm_auto_stopped(const mm_auto *a) { return a->left <= 0 || mm_is_stopped(a->limits->stop); }

mm_status mm_auto_try(mm_auto *a, const mm_auto_weights *w, bool *better_out) {
    enum { TIGHTER = 3 };
    a->target = a->aim;
    *better_out = false;
    for (int i = 0; i < TIGHTER && !mm_auto_stopped(a); i++) {
        int64_t over = 0;
        MM_TRY(mm_auto_relieve(a, w));
        if (a->draft.bounds.peak_bytes <= a->target) {
            MM_TRY(mm_auto_restore(a, w));
            MM_TRY(mm_auto_relieve(a, w));
        }
        const bool within = a->draft.bounds.peak_bytes <= a->limits->device_bytes &&
                            a->draft.bounds.pinned_bytes <= a->limits->pinned_bytes;
        if (a->plan && (within ? a->fits && a->draft_ns >= a->plan_ns
                               : a->fits || a->draft.bounds.peak_bytes >= a->plan->peak_bytes))
            return MM_OK;
        MM_TRY(place(a, better_out, &over));
        if (*better_out) {
            mm_auto_copy_choice(a, &a->now, &a->best);
            a->best_weights = *w;
        }
        if (over <= 0 || !within) return MM_OK;
        a->target -= over;
    }
    return MM_OK;
}
