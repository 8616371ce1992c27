/* SPDX-License-Identifier: MIT */
#include "mm/core/account/account.h"
#include "mm/core/graph/graph.h"
#include "mm/manager/prepare.h"
#include "tools/train/session_parts.h"

/* The share of the codecs' time during which the computation did not wait for them. */
static double hidden_share(const mm_stats *before, const mm_stats *after) {
    double busy = (double)(after->codec_busy_ns - before->codec_busy_ns);
    double wait = (double)(after->codec_wait_ns - before->codec_wait_ns);
    if (busy <= 0) return -1;
    return wait >= busy ? 0 : 1 - wait / busy;
}

static void copy_text(char *to, size_t capacity, const char *from) { snprintf(to, capacity, "%s", from); }

/* Sets the process's memory and its planned part: pinned memory; on the host device also the arena and external
 * tensors. */
static void fill_host_memory(const session *s, row *r) {
    r->host_planned_bytes = r->pinned_bytes + (s->ahead ? 0 : r->predicted_peak_bytes);
    r->host_peak_bytes = host_memory_peak(&s->host_before);
}

/* Sets the averages per iteration. All iterations have ended. */
static void fill_shares(const mm_stats *before, const mm_stats *after, row *r) {
    const double n = (double)r->iterations;
    if (n == 0) return;
    r->codec_busy_seconds = (double)(after->codec_busy_ns - before->codec_busy_ns) * 1e-9 / n;
    r->compute_busy_seconds = (double)(after->compute_busy_ns - before->compute_busy_ns) * 1e-9 / n;
    r->encoded_bytes = (double)(after->encoded_bytes - before->encoded_bytes) / n;
    r->coded_bytes = (double)(after->coded_bytes - before->coded_bytes) / n;
    r->spilled_bytes = (double)(after->spilled_bytes - before->spilled_bytes) / n;
}

/* Sets the figures of the plans for full batches: the largest stash of any pass, and the bytes that an iteration moves
 * and the steps that it recomputes. */
static void fill_plans(const session *s, row *r) {
    const nets_lowered *pass;
    r->stash_bytes = r->moved_bytes = r->steps_again = 0;
    for (int i = 0; (pass = nets_exec_lowered_pass(s->train, i)); i++) {
        const int64_t passes = i < 2 ? 1 : nets_exec_passes(row_part(r), r->sub_batch) - 2;
        const mm_plan *plan = mm_plan_now(s->manager, pass->graph);
        if (plan->stash_bytes > r->stash_bytes) r->stash_bytes = plan->stash_bytes;
        r->moved_bytes += passes * mm_account_moves(plan).bytes;
        r->steps_again += passes * mm_account_steps_again(plan);
    }
}

mm_status session_fill_row(session *s, const mm_stats *before, row *r) {
    const mm_graph *graph = nets_exec_lowered(s->train)->graph;
    mm_stats after;
    mm_stats_get(s->manager, &after);
    r->staged_bytes = s->staged_bytes;
    r->layers = mm_graph_layers(graph);
    r->predicted_peak_bytes = after.predicted_peak_bytes;
    r->outside_bytes = after.outside_bytes;
    fill_plans(s, r);
    r->pinned_bytes = after.pinned_bytes;
    r->store_bytes = after.store_bytes - before->store_bytes;
    r->load_bytes = after.load_bytes - before->load_bytes;
    fill_host_memory(s, r);
    r->codec_hidden_share = hidden_share(before, &after);
    r->ladder_steps = after.ladder_steps;
    r->replans = after.replans;
    r->diverged_iteration = s->diverged_iteration;
    r->replays = after.replays;
    MM_TRY(session_fill_policies(s, r));
    fill_shares(before, &after, r);
    if (!s->config.measure || r->iterations == 0) return MM_OK;
    mm_touched touched;
    MM_TRY(mm_touched_get(s->manager, &touched));
    r->peak_bytes = touched.total_bytes;
    if (touched.stray_bytes == 0) return MM_OK;
    return mm_fail(MM_ERR_PLAN, "%lld bytes were written that no plan uses: a bug of mm",
                   (long long)touched.stray_bytes);
}

mm_status session_name_row(const session *s, row *r) {
    copy_text(r->net, sizeof r->net, nets_net_name(s->config.net));
    copy_text(r->device, sizeof r->device, s->config.target.device);
    r->threads = s->config.target.backend->threads;
    copy_text(r->precision, sizeof r->precision, s->config.target.precision);
    copy_text(r->fuse, sizeof r->fuse, target_fuse_text(&s->config.target));
    MM_TRY(session_name_policies(s, r));
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n_codecs;
    MM_TRY(mm_policy_codecs(r->policy, specs, &n_codecs));
    if (n_codecs > 0) copy_text(r->codec, sizeof r->codec, specs[0]);
    r->batch = s->config.batch;
    r->sub_batch = session_sub_batch(s, session_part(s, s->config.batch));
    r->workspace_limit_bytes = s->config.target.workspace_bytes;
    r->budget_bytes = s->config.budget_bytes;
    r->minimum_bytes = s->minimum_bytes;
    r->sample_tokens = nets_net_tokens(s->config.net);
    r->codec_hidden_share = r->test_accuracy = -1;
    return MM_OK;
}
