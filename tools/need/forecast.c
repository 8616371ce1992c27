/* SPDX-License-Identifier: MIT */
#include "tools/need/forecast.h"

#include <stdio.h>

#include "mm/core/graph/graph.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/plan/program.h"
#include "mm/core/status.h"
#include "mm/core/time/time_bound.h"
#include "mm/core/time/untimed.h"

/* ---------------------------------------------------------------- pass by pass */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void add_bytes(const mm_plan *plan, const mm_limits *limits, forecast *f) {
    if (plan->peak_bytes > f->peak_bytes) mm_graph_step_name(plan->graph, plan->peak_step, f->holder, sizeof f->holder);
    f->peak_bytes = larger(f->peak_bytes, plan->peak_bytes);
    f->stash_bytes = larger(f->stash_bytes, plan->stash_bytes);
    f->pinned_bytes = larger(f->pinned_bytes, plan->pinned_bytes);
    f->disk_bytes = larger(f->disk_bytes, plan->disk_bytes);
    if (!f->pinned_hint || !f->pinned_hint[0]) f->pinned_hint = mm_plan_pinned_hint(plan);
    f->fits &= (limits->device_bytes == 0 || plan->peak_bytes <= limits->device_bytes) &&
               plan->pinned_bytes <= limits->pinned_bytes && plan->disk_bytes <= limits->disk_bytes;
    f->cut_short |= plan->cut_short;
}

/* Adds the work of a pass that an iteration runs `passes` times. */
static void add_work(const mm_plan *plan, int64_t passes, forecast *f) {
    const mm_moves moves = mm_account_moves(plan);
    f->moves.offloads += passes * moves.offloads;
    f->moves.prefetches += passes * moves.prefetches;
    f->moves.bytes += passes * moves.bytes;
    f->moves.stores += passes * moves.stores;
    f->moves.loads += passes * moves.loads;
    f->moves.disk_bytes += passes * moves.disk_bytes;
    f->steps_again += passes * mm_account_steps_again(plan);
    f->defragmentations += passes * plan->defragmentations;
}

static void add_time(const mm_simulation *sim, int64_t passes, forecast *f) {
    const int64_t codec_ns = sim->busy_ns[MM_STREAM_ENCODE] + sim->busy_ns[MM_STREAM_DECODE];
    f->iteration_ns += passes * sim->iteration_ns;
    f->codec_ns += passes * codec_ns;
    f->hidden_ns += (double)(passes * codec_ns) * sim->codec_hidden_permille / 1000;
}

static mm_status add_bound(const need_pass *p, int64_t budget_bytes, int64_t pinned_bytes, forecast *f) {
    const mm_plan *plan = p->planned.plan;
    const int64_t device_bytes = budget_bytes > 0 ? budget_bytes : plan->peak_bytes;
    mm_time_bound bound = {.ns = INT64_MAX};
    if (f->bound_ns == INT64_MAX) return MM_OK;
    f->any_home |= plan->pinned_base_bytes > 0;
    if (plan->heap_bytes == 0 && f->fits && !f->untimed[0])
        MM_TRY(mm_time_bound_beside(plan, p->planned.facts, device_bytes, pinned_bytes, &bound));
    f->bound_ns = bound.ns < INT64_MAX ? f->bound_ns + p->graph.passes * bound.ns : INT64_MAX;
    return MM_OK;
}

static mm_status simulate_pass(const need *n, int i, forecast *f, mm_simulation *most_out) {
    const bool most = most_out && i == n->most;
    mm_simulation own, *sim = most ? most_out : &own;
    MM_TRY(need_simulate(n, i, sim));
    add_time(sim, n->pass[i].graph.passes, f);
    if (!most) mm_simulation_fini(sim);
    return MM_OK;
}

mm_status forecast_of(const need *n, int64_t budget_bytes, int64_t pinned_bytes, forecast_times times, forecast *f,
                      mm_simulation *most_out) {
    const mm_limits limits = {
        .device_bytes = budget_bytes, .pinned_bytes = pinned_bytes, .disk_bytes = n->asked.target->disk_bytes};
    *f = (forecast){.fits = true, .bound_ns = times == FORECAST_FACTS ? 0 : INT64_MAX};
    for (int i = 0; i < n->n; i++) {
        const need_pass *p = &n->pass[i];
        const mm_plan *plan = p->planned.plan;
        const char *untimed = times == FORECAST_FACTS ? mm_plan_untimed(plan, p->planned.facts) : NULL;
        add_bytes(plan, &limits, f);
        add_work(plan, p->graph.passes, f);
        plan_work_add(&f->work, plan, plan_work_lossy_codecs(p->planned.facts));
        if (untimed && !f->untimed[0]) snprintf(f->untimed, sizeof f->untimed, "%s", untimed);
        if (times != FORECAST_NO_TIMES) MM_TRY(simulate_pass(n, i, f, most_out));
        MM_TRY(add_bound(p, budget_bytes, target_pinned_and_disk(n->asked.target, pinned_bytes), f));
    }
    return MM_OK;
}
