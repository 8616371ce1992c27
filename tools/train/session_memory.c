/* SPDX-License-Identifier: MIT */
#include "tools/train/session_memory.h"

#include <stdlib.h>

#include "mm/core/graph/graph.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/size.h"
#include "mm/device/contract/device.h"
#include "mm/manager/prepare.h"
#include "mm/planning/planning.h"
#include "tools/train/session_parts.h"

mm_status session_go_on(const session *s) {
    if (!session_is_stopped(s)) return MM_OK;
    return mm_fail(MM_ERR_ORDER, "interrupted before the first iteration");
}

/* Raises policy p's minimum to that of a pass. */
static void raise_by(session *s, int p, const need_pass *pass) {
    if (pass->minimum_bytes > s->need_bytes[p]) s->need_bytes[p] = pass->minimum_bytes;
    if (p > 0 || pass->minimum_bytes <= s->minimum_bytes) return;
    s->minimum_bytes = pass->minimum_bytes;
    s->minimum_pinned_bytes = pass->minimum_pinned_bytes;
    s->free = pass->free;
    mm_graph_step_name(pass->lowered->graph, pass->minimum_step, s->holder, sizeof s->holder);
}

/* Makes room for one more need for each policy. */
static mm_status make_room(session *s) {
    int n = s->n_needs + s->config.policies.n;
    need *more = realloc(s->needs, (size_t)n * sizeof *more);
    if (!more) return mm_fail(MM_ERR_NOMEM, "out of memory for %d plans", n);
    s->needs = more;
    return MM_OK;
}

/* Plans a batch under policy p. Measured facts belong to the first graph, the training graph; other graphs are planned
 * without them, as in the manager. Only the first plan of the first policy chooses whether layers are fused: all graphs
 * and policies must agree on that. */
static mm_status find_need(const session *s, int64_t batch, int64_t sub_batch, nets_mode mode, int p,
                           int64_t base_bytes, need *n) {
    const session_config *c = &s->config;
    need_case asked = {.net = c->net,
                       .batch = batch,
                       .sub_batch = sub_batch,
                       .mode = mode,
                       .target = &c->target,
                       .policy = c->policies.text[p],
                       .facts = c->facts,
                       .budget_bytes = c->budget_bytes,
                       .pinned = s->pinned,
                       .base_bytes = base_bytes,
                       .may_unfuse = s->n_needs == 0,
                       .wants_fastest = true};
    for (;; asked.facts = NULL) {
        mm_status status = need_init(n, &asked);
        if (!asked.facts || status != MM_ERR_FORMAT || s->n_needs < c->policies.n) return status;
    }
}

mm_status session_memory_raise(session *s, int64_t batch, int64_t sub_batch, nets_mode mode, int64_t *base_bytes) {
    MM_TRY(make_room(s));
    for (int p = 0; p < s->config.policies.n; p++) {
        need *n = &s->needs[s->n_needs];
        MM_TRY(session_go_on(s));
        MM_TRY(find_need(s, batch, sub_batch, mode, p, *base_bytes, n));
        s->n_needs++;
        if (n->fused == s->config.target.apart) {
            s->config.target.apart = true;
            s->fused_bytes = n->fused_bytes;
        }
        *base_bytes = n->base_bytes;
        s->staged_bytes = need_stages(n, s->staged_bytes);
        raise_by(s, p, need_most(n));
    }
    return MM_OK;
}

void session_memory_end(session *s) {
    for (int i = 0; i < s->n_needs; i++) need_fini(&s->needs[i]);
    free(s->needs);
    s->needs = NULL;
    s->n_needs = 0;
}

/* Raises the pinned memory needed to that of a plan, which must be within the disk, too. */
static mm_status raise_pinned(session *s, const mm_plan *plan) {
    if (plan->pinned_bytes > s->pinned.bytes)
        return need_refuse_pinned(plan->policy, plan->pinned_bytes, s->pinned, mm_plan_pinned_hint(plan));
    if (plan->disk_bytes > s->config.target.disk_bytes)
        return need_refuse_disk(plan->policy, plan->disk_bytes, &s->config.target);
    if (plan->pinned_bytes > s->pinned_needed_bytes) s->pinned_needed_bytes = plan->pinned_bytes;
    return MM_OK;
}

/* Raises the pinned memory needed to that of a pass's plans with and without staging: either plan may run, and neither
 * always needs more. In a budget that the user set, the plan is the fastest one, even if the budget is just the
 * minimum. Without such a budget, the budget is the minimum, whose plan exists already. */
static mm_status pin(session *s, need *n, int pass) {
    const int64_t minimum = n->pass[pass].minimum_bytes, budget = s->config.budget_bytes;
    for (int staged = 0; staged <= (s->staged_bytes > 0); staged++) {
        int64_t bytes = staged * s->staged_bytes, room = budget - bytes;
        if (room < minimum) continue;
        MM_TRY(session_go_on(s));
        if (staged || s->budget_given || room > minimum) MM_TRY(need_within(n, pass, budget, s->pinned.bytes, bytes));
        MM_TRY(raise_pinned(s, n->pass[pass].planned.plan));
    }
    return MM_OK;
}

/* Pinned memory is reserved once, but planning again (--replan, or by the first iterations' times) may need more than
 * the present plans. Then raises the pinned memory needed to that of the plan with the lowest peak. */
static void pin_for_others(session *s) {
    const int64_t least = s->minimum_pinned_bytes, most = s->pinned.bytes, bytes = least < most ? least : most;
    const bool may_change = s->config.replan_percent > 0 || session_plans_again(s);
    if (may_change && bytes > s->pinned_needed_bytes) s->pinned_needed_bytes = bytes;
}

/* For messages: where a control group limits the host's memory. */
static const char *group_text(const mm_host_memory *memory) {
    return memory->total_bytes < memory->machine_bytes ? " in its control group" : "";
}

/* Pinned memory is the host's, and on the device host so is the budget: together they must be free. */
static mm_status check_host(const session *s) {
    const bool both = target_is_host(s->config.target.device);
    const int64_t wanted = s->pinned_needed_bytes + (both ? s->config.budget_bytes : 0);
    mm_host_memory memory;
    mm_host_memory_get(&memory);
    if (s->pinned_needed_bytes == 0 || wanted <= memory.free_bytes) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "%s%s%s of pinned memory are needed, this host has %s free%s; %s",
                   both ? MM_SIZE_TEXT(s->config.budget_bytes) : "", both ? " for the budget and " : "",
                   MM_SIZE_TEXT(s->pinned_needed_bytes), MM_SIZE_TEXT(memory.free_bytes), group_text(&memory),
                   both ? "give a smaller --budget or --pinned" : "give a smaller --pinned");
}

mm_status session_memory_pin(session *s) {
    for (int i = 0; i < s->n_needs; i++)
        for (int k = 0; k < s->needs[i].n; k++) MM_TRY(pin(s, &s->needs[i], k));
    pin_for_others(s);
    return check_host(s);
}

/* Offers the first policy's plans that were made for the budget. */
mm_status session_memory_offer(session *s) {
    for (int i = 0; i < s->n_needs; i += s->config.policies.n)
        for (int k = 0; k < s->needs[i].n; k++) {
            need_pass *p = &s->needs[i].pass[k];
            if (p->room.device_bytes == s->config.budget_bytes)
                MM_TRY(mm_plan_offer(s->manager, mm_planned_release(&p->planned), p->room.device_bytes));
        }
    return MM_OK;
}

static mm_status look_at_device(const session *s, mm_memory_info *info_out) {
    mm_device *device;
    MM_TRY(mm_device_create(s->config.target.device, NULL, &device));
    mm_device_memory_info(device, info_out);
    mm_device_destroy(device);
    return MM_OK;
}

void session_memory_begin(session *s) {
    s->pinned = target_pinned_beside(&s->config.target, s->config.pinned_bytes, s->config.budget_bytes);
    s->budget_given = s->config.budget_bytes > 0;
    s->staged_bytes =
        target_staged_bytes(&s->config.target, s->config.net,
                            s->config.sub_batch > 0 ? s->config.sub_batch : session_part(s, s->config.batch));
}

/* Checks that the device has so much memory free. */
static mm_status check_device(const session *s) {
    mm_memory_info info;
    mm_host_memory host;
    int64_t wanted = s->config.budget_bytes > 0 ? s->config.budget_bytes : s->minimum_bytes;
    MM_TRY(look_at_device(s, &info));
    bool given = s->config.budget_bytes > 0;
    if (wanted <= info.free_bytes) return MM_OK;
    mm_host_memory_get(&host);
    return mm_fail(MM_ERR_NOMEM, "%s %s, device %s has %s free%s; %s", given ? "the budget is" : "this needs",
                   MM_SIZE_TEXT(wanted), s->config.target.device, MM_SIZE_TEXT(info.free_bytes),
                   target_is_host(s->config.target.device) ? group_text(&host) : "",
                   given ? "give a smaller one, or end what else uses the device"
                         : "choose a policy that needs less or a smaller batch, or end what else uses the device");
}

/* Memory to leave free, because other processes use the device and libraries allocate beside the arena. Chosen: a 32nd
 * of the free memory, at least 64 MiB. */
static int64_t margin_of(const mm_memory_info *info) {
    const int64_t least = INT64_C(64) << 20;
    return info->free_bytes / 32 > least ? info->free_bytes / 32 : least;
}

mm_status session_memory_default(session *s) {
    mm_memory_info info;
    if (s->config.budget_bytes > 0) return MM_OK;
    MM_TRY(look_at_device(s, &info));
    s->config.budget_bytes = s->minimum_bytes;
    if (s->staged_bytes <= info.free_bytes - s->minimum_bytes - margin_of(&info))
        s->config.budget_bytes += s->staged_bytes;
    return MM_OK;
}

mm_status session_memory_stage(session *s) {
    bool room = s->staged_bytes > 0;
    for (int p = 1; p < s->config.policies.n; p++) room &= s->need_bytes[p] + s->staged_bytes <= s->config.budget_bytes;
    mm_status status = room ? nets_exec_stage(s->train) : MM_ERR_INFEASIBLE;
    if (status != MM_ERR_INFEASIBLE) return status;
    s->staged_bytes = 0; /* the budget is too tight for staging */
    return MM_OK;
}

mm_status session_memory_check(const session *s) {
    if (s->config.budget_bytes == 0 || s->config.budget_bytes >= s->minimum_bytes) return check_device(s);
    return need_refuse(s->minimum_bytes, s->minimum_pinned_bytes, s->holder, s->pinned, &s->free);
}

mm_status session_memory_check_switches(session *s) {
    bool given = s->config.budget_bytes > 0;
    int64_t budget = given ? s->config.budget_bytes : s->minimum_bytes;
    for (int p = 1; p < s->config.policies.n; p++) {
        if (s->need_bytes[p] <= budget) continue;
        s->refused_switch = true;
        return mm_fail(MM_ERR_INFEASIBLE, "infeasible: switching to %s needs at least %s, the budget is %s%s%s%s",
                       s->config.policies.text[p], MM_SIZE_TEXT(s->need_bytes[p]), MM_SIZE_TEXT(budget),
                       given ? "" : ", what ", given ? "" : s->config.policies.text[0],
                       given ? "" : " takes; --budget sets it");
    }
    return MM_OK;
}
