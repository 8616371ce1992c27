/* SPDX-License-Identifier: MIT */
#include "tools/need/fastest_batch.h"

#include <math.h>
#include <string.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/status.h"

/* All chosen. A batch is worth planning if it may be faster by WORTH_PERMILLE; neighbours of the best are refined until
 * they are NEAR_PERMILLE of it apart; at most FINER plans are made for that. */
enum { WORTH_PERMILLE = 10, NEAR_PERMILLE = 100, FINER = 12 };

/* ---------------------------------------------------------------- one batch */

static mm_limits limits_of(const need *n) {
    return (mm_limits){.device_bytes = n->asked.budget_bytes,
                       .pinned_bytes = n->asked.pinned.bytes,
                       .base_bytes = n->base_bytes,
                       .disk_bytes = n->asked.target->disk_bytes,
                       .stop = n->asked.target->stop};
}

/* Predicts the time with a plan for the budget, without looking for the minimum first. */
static mm_status predict(need *n, int64_t *ns_out) {
    const mm_limits limits = limits_of(n);
    mm_simulation sim;
    need_hasten(&n->pass[0].policy, mm_graph_steps(n->pass[0].lowered->graph));
    MM_TRY(need_within(n, 0, limits.device_bytes, limits.pinned_bytes, 0));
    const mm_plan *plan = n->pass[0].planned.plan;
    if (mm_plan_fits(plan, &limits) != MM_OK) return MM_OK;
    MM_TRY(need_simulate(n, 0, &sim));
    *ns_out = sim.iteration_ns;
    mm_simulation_fini(&sim);
    return MM_OK;
}

/* Single layers may fit where fused ones do not. */
static mm_status predict_apart(const need_case *c, int64_t *ns_out) {
    need n;
    need_case alone = *c;
    alone.apart = true;
    MM_TRY(need_open(&n, &alone));
    mm_status status = predict(&n, ns_out);
    need_fini(&n);
    return status;
}

/* least: the images a second of a batch that is worth planning. */
static mm_status try_batch(const need_case *given, int64_t batch, double least, batch_tried *t) {
    need_case c = *given;
    need n;
    *t = (batch_tried){.batch = batch, .ns = INT64_MAX, .bound_ns = INT64_MAX};
    c.batch = c.sub_batch = batch;
    MM_TRY(need_open(&n, &c));
    mm_status status = need_bound(&n, c.budget_bytes, c.pinned.bytes, INT64_MAX, &t->bound_ns);
    t->planned = t->bound_ns == INT64_MAX || (double)batch * 1e9 / (double)t->bound_ns > least;
    if (status == MM_OK && t->planned) status = predict(&n, &t->ns);
    need_fini(&n);
    MM_TRY(status);
    const bool may = t->planned && t->ns == INT64_MAX && c.may_unfuse && need_may_unfuse(c.target, c.policy);
    return may ? predict_apart(&c, &t->ns) : MM_OK;
}

/* ---------------------------------------------------------------- the search */

static const batch_tried *best_of(const fastest_batch *f) {
    const batch_tried *best = NULL;
    for (int i = 0; i < f->n; i++)
        if (f->tried[i].ns < INT64_MAX && (!best || batch_tried_speed(&f->tried[i]) > batch_tried_speed(best)))
            best = &f->tried[i];
    return best;
}

/* Tries a batch that was not tried yet; keeps the list in order. */
static mm_status add(const need_case *c, int64_t batch, fastest_batch *f) {
    const batch_tried *best = best_of(f);
    batch_tried t;
    int at = 0;
    while (at < f->n && f->tried[at].batch < batch) at++;
    if (f->n == BATCHES_TRIED || (at < f->n && f->tried[at].batch == batch)) return MM_OK;
    MM_TRY(try_batch(c, batch, best ? batch_tried_speed(best) * (1 + WORTH_PERMILLE * 1e-3) : 0, &t));
    memmove(&f->tried[at + 1], &f->tried[at], (size_t)(f->n - at) * sizeof t);
    f->tried[at] = t;
    f->n++;
    return MM_OK;
}

/* The middle of two batches by their ratio, a multiple of 8 if one is between them. 0: they are near each other. */
static int64_t between(int64_t low, int64_t high) {
    if ((high - low) * 1000 <= low * NEAR_PERMILLE || high - low < 2) return 0;
    const int64_t middle = (int64_t)llround(sqrt((double)low * (double)high)), eight = (middle + 4) / 8 * 8;
    return eight > low && eight < high ? eight : middle;
}

/* Halves the wider one of the two gaps beside the best. *done_out: both are narrow. */
static mm_status refine(const need_case *c, fastest_batch *f, bool *done_out) {
    const batch_tried *best = best_of(f);
    *done_out = !best;
    if (!best) return MM_OK;
    const int64_t below = best > f->tried ? best[-1].batch : 0;
    const int64_t above = best < f->tried + f->n - 1 ? best[1].batch : 0;
    const int64_t down = below > 0 ? between(below, best->batch) : 0;
    const int64_t up = above > 0 ? between(best->batch, above) : 0;
    const bool upward = up > 0 && (down == 0 || above * below >= best->batch * best->batch);
    *done_out = up == 0 && down == 0;
    return *done_out ? MM_OK : add(c, upward ? up : down, f);
}

mm_status fastest_batch_find(const need_case *given, fastest_batch *found_out) {
    fastest_batch f = {0};
    need_case kept = *given;
    largest whole;
    bool done = false;
    kept.policy = "liveness";
    MM_TRY(largest_batch_find(given, &f.most));
    MM_TRY(largest_batch_find(&kept, &whole));
    if (whole.n > f.most.n) whole.n = f.most.n;
    if (whole.n > 0) MM_TRY(add(given, whole.n, &f));
    for (int64_t batch = f.most.n; batch > 0 && !mm_is_stopped(given->target->stop); batch /= 2)
        MM_TRY(add(given, batch, &f));
    for (int i = 0; i < FINER && !done && !mm_is_stopped(given->target->stop); i++) MM_TRY(refine(given, &f, &done));
    const batch_tried *best = best_of(&f);
    f.batch = best ? best->batch : 0;
    *found_out = f;
    return MM_OK;
}
