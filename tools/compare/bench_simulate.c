/* SPDX-License-Identifier: MIT */
/* Simulates cells of the table: no device, no data, times from a file. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/size.h"
#include "tools/compare/bench.h"
#include "tools/need/sub_batch.h"
#include "tools/need/sub_batch_offer.h"

bool bench_is_elsewhere(const bench *b) { return b->source && b->source->is_machine; }

need_case bench_need(const bench *b, const char *policy, int64_t sub_batch, int64_t pinned_bytes) {
    return (need_case){.net = b->net,
                       .batch = b->batch,
                       .sub_batch = sub_batch,
                       .mode = NETS_TRAIN,
                       .target = &b->target,
                       .policy = policy,
                       .facts = b->source,
                       .only_facts = true,
                       .pinned = target_pinned(&b->target, pinned_bytes, bench_is_elsewhere(b))};
}

static mm_status plan_within(need *n, int64_t budget_bytes, forecast *f) {
    const need_case *c = &n->asked;
    for (int i = 0; i < n->n; i++) MM_TRY(need_within(n, i, budget_bytes, c->pinned.bytes, 0));
    return forecast_of(n, budget_bytes, c->pinned.bytes, c->facts ? FORECAST_FACTS : FORECAST_NO_TIMES, f, NULL);
}

/* Plans all passes. Without a budget, plans them again with as much memory for each as the most demanding pass needs,
 * since the passes run in the same memory. */
static mm_status plan_asked(need *n, bench_planned *planned) {
    planned->fused = n->fused;
    MM_TRY(plan_within(n, n->asked.budget_bytes, &planned->as));
    if (n->asked.budget_bytes > 0 || !n->asked.facts || n->n == 1) return MM_OK;
    return plan_within(n, planned->as.peak_bytes, &planned->as);
}

static int64_t time_of(const forecast *f) { return f->fits && !f->untimed[0] ? f->iteration_ns : INT64_MAX; }

/* Plans with unfused layers. timed: takes that plan if it is faster; else takes it if it needs less memory. */
static mm_status plan_apart(const need *fused, bool timed, bench_planned *planned) {
    const int fused_steps = mm_graph_steps(need_most(fused)->lowered->graph);
    need apart;
    bench_planned other;
    need_case of_apart = fused->asked;
    of_apart.apart = true;
    MM_TRY(need_open(&apart, &of_apart));
    if (need_is_like(&apart, fused)) { /* there is nothing to fuse */
        need_fini(&apart);
        return MM_OK;
    }
    for (int i = 0; timed && i < apart.n; i++) need_hasten(&apart.pass[i].policy, fused_steps);
    mm_status status = plan_asked(&apart, &other);
    need_fini(&apart);
    MM_TRY(status);
    const bool less = other.as.peak_bytes < planned->as.peak_bytes && other.as.fits >= planned->as.fits;
    if (timed ? time_of(&other.as) < time_of(&planned->as) : less) *planned = other;
    return MM_OK;
}

mm_status bench_plan(const need_case *c, bench_planned *planned) {
    need n;
    MM_TRY(need_open(&n, c));
    mm_status status = plan_asked(&n, planned);
    const bool fits = c->budget_bytes > 0 && planned->as.fits;
    bool timed = fits && c->facts && need_may_unfuse(c->target, c->policy);
    if (status == MM_OK && timed) status = need_is_near(&n, &timed);
    if (status == MM_OK && (!fits || timed) && need_may_unfuse(c->target, c->policy))
        status = plan_apart(&n, timed, planned);
    need_fini(&n);
    return status;
}

/* ---------------------------------------------------------------- rows */

static mm_status does_not_fit(const bench *b, const row *r, const forecast *f) {
    const pinned_limit limit = target_pinned(&b->target, b->pinned_bytes, bench_is_elsewhere(b));
    if (r->asked_bytes > 0 && f->peak_bytes > r->asked_bytes) {
        bench_planned more = {0}; /* the plan without a limit of pinned memory */
        need_case c = bench_need(b, r->policy, r->sub_batch, b->pinned_bytes);
        c.pinned.bytes = INT64_MAX;
        if (limit.bytes < INT64_MAX) MM_TRY(bench_plan(&c, &more));
        const need_free free = {.device_bytes = more.as.peak_bytes, .pinned_bytes = more.as.pinned_bytes};
        return need_refuse(r->minimum_bytes, f->pinned_bytes, f->holder, limit, &free);
    }
    if (f->pinned_bytes <= limit.bytes) return need_refuse_disk(r->policy, f->disk_bytes, &b->target);
    return need_refuse_pinned(r->policy, f->pinned_bytes, limit, f->pinned_hint);
}

static void fill_row(row *r, const forecast *f, const policy_effect *effect) {
    r->predicted_peak_bytes = f->peak_bytes;
    r->stash_bytes = f->stash_bytes;
    r->pinned_bytes = f->pinned_bytes;
    r->moved_bytes = f->moves.bytes;
    r->steps_again = f->steps_again;
    r->work = f->work;
    r->lossy = f->work.lossy;
    r->idle = policy_effect_idle(effect, &r->work, &r->would);
    r->unforced = r->idle && r->idle == effect->unforced;
    r->iteration_seconds_predicted = (double)f->iteration_ns * 1e-9;
    r->bound_seconds = f->bound_ns < INT64_MAX ? (double)f->bound_ns * 1e-9 : 0;
    r->images_per_second = (double)r->batch / r->iteration_seconds_predicted;
    if (f->codec_ns > 0) r->codec_hidden_share = f->hidden_ns / (double)f->codec_ns;
}

/* Notes in the row what sub-batches would gain. */
static mm_status note_offer(bench *b, const need_case *c, int64_t own_ns, row *r) {
    sub_batch_offer offer;
    if (c->budget_bytes == 0) return MM_OK;
    MM_TRY(sub_batch_offer_find(c, own_ns, &offer));
    char *text = offer.sub_batch > 0 ? sub_batch_offer_text(&offer, b->net, r->batch, own_ns) : NULL;
    if (text) {
        r->offer = texts_keep(&b->texts, offer.spec);
        r->offer_text = texts_keep(&b->texts, text);
        r->offer_differs = sub_batch_differs_key(b->net);
        r->offer_per_second = offer.ns < INT64_MAX ? (double)r->batch * 1e9 / (double)offer.ns : 0;
    }
    const bool enough = offer.sub_batch == 0 || (text && r->offer && r->offer_text);
    free(text);
    sub_batch_offer_fini(&offer);
    return enough ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a row of %s", r->policy);
}

mm_status bench_simulate(bench *b, int policy, row *r) {
    need_case c = bench_need(b, r->policy, r->sub_batch, b->pinned_bytes);
    r->simulated = true;
    MM_TRY(sub_batch_check_facts("--simulate", b->source, b->batch, r->sub_batch));
    if (b->least[policy].sub_batch != r->sub_batch) {
        MM_TRY(bench_plan(&c, &b->least[policy].planned));
        b->least[policy].sub_batch = r->sub_batch;
    }
    bench_planned planned = b->least[policy].planned;
    r->minimum_bytes = planned.as.peak_bytes;
    c.budget_bytes = r->asked_bytes;
    if (r->asked_bytes >= planned.as.peak_bytes)
        MM_TRY(bench_plan(&c, &planned));
    else if (r->asked_bytes > 0)
        planned.as.fits = false; /* no plan fits */
    snprintf(r->fuse, sizeof r->fuse, "%s", planned.fused ? "on" : "off");
    if (planned.as.cut_short)
        fprintf(stderr, "mm bench: %s, batch %lld, %s: interrupted: this is the best plan that was found so far\n",
                r->net, (long long)r->batch, r->policy);
    r->budget_bytes = r->asked_bytes > 0 ? r->asked_bytes : planned.as.peak_bytes;
    if (!planned.as.fits) {
        MM_TRY(note_offer(b, &c, INT64_MAX, r));
        return does_not_fit(b, r, &planned.as);
    }
    if (planned.as.untimed[0])
        return mm_fail(MM_ERR_NOT_FOUND, "%s has no times of %s; 'mm bench --facts' with this policy measures them",
                       b->source->path, planned.as.untimed);
    fill_row(r, &planned.as, &b->effects[policy]);
    return note_offer(b, &c, planned.as.iteration_ns, r);
}
