/* SPDX-License-Identifier: MIT */
/* Cells of the table that are simulated: no device, no data, times from a file. */
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/sub_batch.h"

mm_status bench_subject(bench *b, int64_t sub_batch) {
    if (b->subject.n > 0 && b->subject.sub_batch == sub_batch) return MM_OK;
    simulated_fini(&b->subject);
    simulated_fini(&b->apart);
    return simulated_init(&b->subject, b->net, b->batch, sub_batch, &b->target);
}

static mm_status fill_times(const void *source, const mm_graph *graph, mm_facts *facts) {
    return facts_source_fill(source, graph, facts);
}

static mm_status plan(const bench *b, const simulated *subject, const char *policy, int64_t budget_bytes,
                      int64_t pinned_bytes, simulated_run *run_out) {
    const time_source times = {.fill = fill_times, .ctx = b->source, .planned_with = true};
    return simulated_policy(subject, policy, budget_bytes, pinned_bytes, b->source ? &times : NULL, run_out);
}

static mm_status lower_apart(bench *b) {
    if (b->apart.n > 0) return MM_OK;
    target_set_fused(&b->target, false);
    mm_status status = simulated_init(&b->apart, b->net, b->batch, b->subject.sub_batch, &b->target);
    target_set_fused(&b->target, true);
    return status;
}

static int64_t time_of(const simulated_run *run) {
    return run->fits && !run->untimed[0] && run->iteration_ns > 0 ? run->iteration_ns : INT64_MAX;
}

mm_status bench_plan(bench *b, const char *policy, int64_t budget_bytes, int64_t pinned_bytes, int64_t fused_bytes,
                     simulated_run *run_out) {
    const mm_graph *fused = b->subject.lowered[b->subject.n - 1]->graph;
    simulated_run apart;
    MM_TRY(plan(b, &b->subject, policy, budget_bytes, pinned_bytes, run_out));
    const bool fits = budget_bytes > 0 && run_out->fits;
    const bool compared = fits && b->source && requirement_near(fused_bytes, fused, budget_bytes);
    if (budget_bytes == 0) run_out->fused_bytes = run_out->peak_bytes;
    if ((fits && !compared) || !requirement_may_unfuse(&b->target, policy)) return MM_OK;
    MM_TRY(lower_apart(b));
    b->apart.beside = compared ? fused : NULL;
    MM_TRY(plan(b, &b->apart, policy, budget_bytes, pinned_bytes, &apart));
    apart.fused_bytes = run_out->fused_bytes;
    const bool less = apart.peak_bytes < run_out->peak_bytes && apart.fits >= run_out->fits;
    if (compared ? time_of(&apart) < time_of(run_out) : less) *run_out = apart;
    return MM_OK;
}

static mm_status does_not_fit(bench *b, const row *r, const simulated_run *run) {
    if (r->asked_bytes > 0 && run->peak_bytes > r->asked_bytes) {
        simulated_run more = {0}; /* as if nothing limited pinned memory, where something does */
        if (b->pinned_bytes != PINNED_OPEN) MM_TRY(bench_plan(b, r->policy, 0, PINNED_OPEN, 0, &more));
        const requirement_free free = {more.peak_bytes, more.pinned_bytes};
        return requirement_refuse(r->minimum_bytes, run->pinned_bytes, run->holder,
                                  requirement_pinned_of(b->pinned_bytes, INT64_MAX), &free);
    }
    return mm_fail(MM_ERR_INFEASIBLE, "infeasible: needs %s of pinned host memory, --pinned gives %s%s",
                   MM_SIZE_TEXT(run->pinned_bytes), MM_SIZE_TEXT(b->pinned_bytes), run->pinned_hint);
}

mm_status bench_simulate(bench *b, int policy, row *r) {
    simulated_run run;
    r->simulated = true;
    MM_TRY(sub_batch_check_facts("--simulate", b->source, b->batch, r->sub_batch));
    MM_TRY(bench_subject(b, r->sub_batch));
    if (b->least[policy].sub_batch != r->sub_batch) {
        MM_TRY(bench_plan(b, r->policy, 0, b->pinned_bytes, 0, &b->least[policy].run));
        b->least[policy].sub_batch = r->sub_batch;
    }
    run = b->least[policy].run;
    r->minimum_bytes = run.peak_bytes;
    if (r->asked_bytes >= run.peak_bytes)
        MM_TRY(bench_plan(b, r->policy, r->asked_bytes, b->pinned_bytes, run.fused_bytes, &run));
    else if (r->asked_bytes > 0)
        run.fits = false; /* nor does any other plan */
    snprintf(r->fuse, sizeof r->fuse, "%s", run.fused ? "on" : "off");
    if (run.cut_short)
        fprintf(stderr, "mm bench: %s, batch %lld, %s: interrupted: the best plan that was found so far\n", r->net,
                (long long)r->batch, r->policy);
    r->budget_bytes = r->asked_bytes > 0 ? r->asked_bytes : run.peak_bytes;
    if (!run.fits) return does_not_fit(b, r, &run);
    if (run.untimed[0])
        return mm_fail(MM_ERR_NOT_FOUND, "%s has no times of %s; 'mm bench --facts' with this policy measures them",
                       b->source->path, run.untimed);
    if (run.iteration_ns == 0) return mm_fail(MM_ERR_NOT_FOUND, "%s has no times of the steps", b->source->path);
    r->predicted_peak_bytes = run.peak_bytes;
    r->stash_bytes = run.stash_bytes;
    r->pinned_bytes = run.pinned_bytes;
    r->moved_bytes = run.moved_bytes;
    r->steps_again = run.steps_again;
    r->iteration_seconds_predicted = (double)run.iteration_ns * 1e-9;
    r->bound_seconds = (double)run.bound_ns * 1e-9;
    r->images_per_second = (double)r->batch / r->iteration_seconds_predicted;
    if (run.codec_ns > 0) r->codec_hidden_share = run.hidden_ns / (double)run.codec_ns;
    return MM_OK;
}
