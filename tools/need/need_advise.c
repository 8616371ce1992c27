/* SPDX-License-Identifier: MIT */
/* Messages for a policy that does not fit: what it needs, and what would fit. */
#include <stdio.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "mm/planning/refusal.h"
#include "tools/args/speed.h"
#include "tools/need/need.h"
#include "tools/need/sub_batch_offer.h"

const char *need_pinned_from(pinned_from from) {
    return from == PINNED_HALF   ? " (half of what this host has free)"
           : from == PINNED_REST ? " (what the budget leaves of what this host has free)"
           : from == PINNED_DISK ? " (a part of what this host has free, beside a disk)"
                                 : "";
}

/* Names the disk beside pinned memory; "": there is none. Returns text. */
static const char *beside_disk(const pinned_limit *pinned, char text[96]) {
    text[0] = '\0';
    if (pinned->disk_bytes > 0)
        snprintf(text, 96, ", beside %s on the disk (--disk)", MM_SIZE_TEXT(pinned->disk_bytes));
    return text;
}

mm_status need_refuse(int64_t minimum_bytes, int64_t minimum_pinned_bytes, const char *holder, pinned_limit pinned,
                      const need_free *free) {
    const bool less = free->device_bytes > 0 && free->device_bytes < minimum_bytes;
    if (minimum_pinned_bytes > pinned.bytes || !less)
        return mm_fail(MM_ERR_INFEASIBLE, "infeasible: needs at least %s, held by %s%s", MM_SIZE_TEXT(minimum_bytes),
                       holder, MM_PLAN_PINNED_TEXT(minimum_pinned_bytes));
    return mm_fail(
        MM_ERR_INFEASIBLE,
        "infeasible: with %s of pinned memory%s%s needs at least %s, held by %s; with %s (--pinned) it needs %s",
        MM_SIZE_TEXT(pinned.bytes), need_pinned_from(pinned.from), beside_disk(&pinned, (char[96]){0}),
        MM_SIZE_TEXT(minimum_bytes), holder, MM_SIZE_TEXT(free->pinned_bytes), MM_SIZE_TEXT(free->device_bytes));
}

mm_status need_refuse_pinned(const char *policy, int64_t pinned_bytes, pinned_limit pinned, const char *hint) {
    return mm_fail(MM_ERR_INFEASIBLE, "infeasible: %s needs %s of pinned host memory, but only %s are %s%s%s%s",
                   MM_BRIEF(policy), MM_SIZE_TEXT(pinned_bytes), MM_SIZE_TEXT(pinned.bytes),
                   pinned.from == PINNED_GIVEN  ? "given (--pinned)"
                   : pinned.from == PINNED_HALF ? "half of what this host has free; --pinned sets it"
                   : pinned.from == PINNED_DISK ? "a part of what this host has free, beside a disk; --pinned sets it"
                                                : "left beside the budget of what this host has free; --pinned sets it",
                   beside_disk(&pinned, (char[96]){0}),
                   pinned.disk_bytes == 0 && pinned.bytes > 0
                       ? "; a disk (--disk DIR:SIZE) has room for what waits long in pinned memory"
                       : "",
                   hint);
}

mm_status need_refuse_disk(const char *policy, int64_t disk_bytes, const target *target) {
    return mm_fail(MM_ERR_INFEASIBLE, "infeasible: %s needs %s on the disk, but only %s are given (--disk)",
                   MM_BRIEF(policy), MM_SIZE_TEXT(disk_bytes), MM_SIZE_TEXT(target->disk_bytes));
}

/* ---------------------------------------------------------------- other policies */

/* An mm_times_fn. */
static mm_status add_times(const void *ctx, const mm_graph *graph, mm_graph_facts *facts) {
    const need_case *c = ctx;
    return need_add_times(c->facts, c->target, graph, facts);
}

mm_status need_advise(const need_case *c, const mm_policy *refused, int64_t needs_bytes) {
    const nets_exec_graph last = need_last(c);
    nets_lowered *lowered;
    mm_failure refusal;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    mm_status status = need_lower(c, &last, &lowered);
    mm_status told = mm_failure_restore(&refusal);
    if (status != MM_OK) return told;
    const mm_refused who = {.graph = lowered->graph,
                            .device = c->target->device,
                            .limits = {.device_bytes = c->budget_bytes,
                                       .pinned_bytes = c->pinned.bytes,
                                       .disk_bytes = c->target->disk_bytes,
                                       .base_bytes = mm_plan_base(lowered->graph),
                                       .stop = c->target->stop},
                            .rates = c->target->rates,
                            .pinned_from = need_pinned_from(c->pinned.from),
                            .add_times = c->facts ? add_times : NULL,
                            .times = c,
                            .policy = refused,
                            .needs_bytes = needs_bytes,
                            .recomputes = true,
                            .all_stay = nets_lowered_divides(lowered, NETS_DIVIDE_STATES)};
    told = mm_advise(&who, refusal.message);
    nets_lowered_destroy(lowered);
    return told;
}

/* ---------------------------------------------------------------- the policy itself */

static mm_status advise_apart(const need_case *c) {
    target open = *c->target;
    need_case again = *c;
    need n;
    mm_failure refusal;
    const char *path = open.fuse_facts;
    open.fuse_facts = NULL;
    again.target = &open;
    again.facts = NULL;
    again.may_unfuse = true;
    if (!path || open.apart || !need_may_unfuse(&open, c->policy)) return MM_ERR_INFEASIBLE;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    bool fits = false;
    if (need_init(&n, &again) == MM_OK) {
        fits = !n.fused && need_fits(&n);
        need_fini(&n);
    }
    if (!fits) return mm_failure_restore(&refusal);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; it fits with --fuse off, but %s has no times for that", refusal.message,
                   path);
}

/* Tries to update each layer behind its backward step: then one layer's states at a time must be on the device. */
static mm_status advise_update(const need_case *c, bool *fits_out) {
    target open = *c->target;
    need_case again = *c;
    mm_failure refusal;
    nets_lowering how = target_lowering(&open, c->mode);
    again.target = &open;
    open.update = how.update = NETS_UPDATE_BY_LAYER;
    how.pass.whole = c->sub_batch > 0 && c->sub_batch < c->batch;
    *fits_out = false;
    if (c->target->update != NETS_UPDATE_AT_END || c->mode != NETS_TRAIN ||
        nets_update_refusal(&how, open.optimizer.clip_norm > 0))
        return MM_ERR_INFEASIBLE;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    if (need_try(&again, fits_out) != MM_OK || !*fits_out) return mm_failure_restore(&refusal);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; with --update by-layer policy %s would fit, with equal bits",
                   refusal.message, MM_BRIEF(c->policy));
}

/* The policy without its option subbatch. */
static mm_status without_number(const char *spec, mm_policy *policy_out) {
    MM_TRY(mm_policy_parse(spec, policy_out));
    policy_out->config.sub_batch = policy_out->ops->config.sub_batch;
    mm_status status = mm_policy_print(policy_out);
    if (status != MM_OK) mm_policy_fini(policy_out);
    return status;
}

/* " at 1258.0 images/s"; "": not known, which is so without a machine's rates, and of policies but `auto`. */
static void tell_speed(const need_case *c, char text[64]) {
    sub_batch_offer offer;
    const int64_t tokens = nets_net_tokens(c->net);
    text[0] = '\0';
    if (!c->facts || sub_batch_offer_find(c, INT64_MAX, &offer) != MM_OK) return;
    const double per_second = speed_of((double)c->batch * 1e9 / (double)offer.ns, tokens);
    if (offer.sub_batch > 0) snprintf(text, 64, " at %.1f %s", per_second, speed_unit(tokens));
    sub_batch_offer_fini(&offer);
}

/* Tries one image at a time: if any sub-batch fits, that one does. */
static mm_status advise_sub_batch(const need_case *c) {
    need_case single = *c;
    mm_policy policy;
    mm_failure refusal;
    bool fits = false;
    char speed[64];
    single.sub_batch = 1;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    if (need_try(&single, &fits) != MM_OK || !fits || without_number(c->policy, &policy) != MM_OK)
        return mm_failure_restore(&refusal);
    tell_speed(c, speed);
    mm_status told = mm_fail(MM_ERR_INFEASIBLE, "%s; with --sub-batch auto policy %s would fit%s (%s)", refusal.message,
                             MM_BRIEF(policy.spec), speed, sub_batch_differs(c->net));
    mm_policy_fini(&policy);
    return told;
}

mm_status need_advise_own(const need_case *c) {
    bool fits;
    const mm_status apart = advise_apart(c), told = advise_update(c, &fits);
    (void)apart; /* its advice is in mm_last_error */
    return c->sub_batch > 1 && !fits ? advise_sub_batch(c) : told;
}
