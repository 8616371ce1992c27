#include "tools/session_memory.h"

#include <stdio.h>

#include "mm/core/graph.h"
#include "mm/device/device.h"
#include "tools/requirement.h"

/* By one plan of the p-th policy: its least, and the host memory that it takes in the budget. */
static mm_status raise_by(session *s, int p, requirement *r) {
    const requirement_free free = {r->minimum_bytes, r->planned.plan->pinned_bytes};
    if (free.pinned_bytes > s->pinned_most_bytes) MM_TRY(requirement_limit(r, 0, s->pinned_most_bytes));
    const mm_plan *plan = r->planned.plan;
    if (plan->peak_bytes > s->need_bytes[p]) s->need_bytes[p] = plan->peak_bytes;
    if (p == 0 && plan->peak_bytes > s->minimum_bytes) {
        s->minimum_bytes = plan->peak_bytes;
        s->free = free;
        mm_graph_step_name(plan->graph, plan->peak_step, s->holder, sizeof s->holder);
    }
    if (s->config.budget_bytes > plan->peak_bytes)
        MM_TRY(requirement_limit(r, s->config.budget_bytes, s->pinned_most_bytes));
    plan = r->planned.plan;
    if (plan->pinned_bytes > s->pinned_most_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "infeasible: %s needs %lld bytes of pinned host memory, %lld are %s",
                       plan->policy, (long long)plan->pinned_bytes, (long long)s->pinned_most_bytes,
                       s->config.pinned_bytes > 0 ? "given" : "half of what is free; --pinned sets it");
    if (plan->pinned_bytes > s->pinned_needed_bytes) s->pinned_needed_bytes = plan->pinned_bytes;
    return MM_OK;
}

mm_status session_memory_raise(session *s, int64_t batch, nets_mode mode, int64_t *base_bytes) {
    for (int p = 0; p < s->config.policies.n; p++) {
        requirement r;
        MM_TRY(requirement_init(&r, s->config.net, batch, mode, &s->config.target, s->config.policies.text[p],
                                *base_bytes, NULL));
        *base_bytes = r.planned.plan->base_bytes;
        mm_status status = raise_by(s, p, &r);
        requirement_fini(&r);
        MM_TRY(status);
    }
    return MM_OK;
}

static mm_status look_at_device(const session *s, const mm_device_ops **ops_out, mm_memory_info *info_out) {
    mm_device *device;
    MM_TRY(mm_device_create(s->config.target.device, NULL, &device));
    *ops_out = device->ops;
    mm_device_memory_info(device, info_out);
    mm_device_destroy(device);
    return MM_OK;
}

/* Where the device knows what others have, that is not the ladder's affair. */
static mm_status check_device(const session *s) {
    const mm_device_ops *ops;
    mm_memory_info info;
    char size[32];
    int64_t wanted = s->config.budget_bytes > 0 ? s->config.budget_bytes : s->minimum_bytes;
    MM_TRY(look_at_device(s, &ops, &info));
    bool given = s->config.budget_bytes > 0, free = s->config.no_ladder || ops->knows_free_memory;
    int64_t there = free ? info.free_bytes : info.total_bytes;
    if (wanted <= there) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "%s %lld bytes (%s), device %s has %lld%s; %s", given ? "the budget is" : "this needs",
                   (long long)wanted, mm_size_format(wanted, size, sizeof size), s->config.target.device,
                   (long long)there, free ? " free" : "",
                   given ? "give a smaller one, or end what else uses the device"
                         : "choose a policy that does with less, a smaller batch, or end what else uses the device");
}

mm_status session_memory_default(session *s) {
    const mm_device_ops *ops;
    mm_memory_info info;
    if (s->config.budget_bytes > 0) return MM_OK;
    MM_TRY(look_at_device(s, &ops, &info));
    int64_t staged = !ops->cpu_reaches_memory ? nets_exec_stage_bytes(s->config.net, s->config.batch) : 0;
    s->config.budget_bytes = s->minimum_bytes;
    if (staged <= info.free_bytes - s->minimum_bytes) s->config.budget_bytes += staged;
    return MM_OK;
}

mm_status session_memory_stage(session *s) {
    int64_t staged = nets_exec_stage_bytes(s->config.net, s->config.batch);
    for (int p = 1; p < s->config.policies.n; p++)
        if (s->need_bytes[p] + staged > s->config.budget_bytes) return MM_OK;
    mm_status status = nets_exec_stage(s->train);
    return status == MM_ERR_INFEASIBLE ? MM_OK : status; /* a tight budget does without */
}

mm_status session_memory_check(const session *s) {
    if (s->config.budget_bytes == 0 || s->config.budget_bytes >= s->minimum_bytes) return check_device(s);
    return requirement_refuse(s->minimum_bytes, s->holder, s->pinned_most_bytes, &s->free);
}

mm_status session_memory_check_switches(session *s) {
    bool given = s->config.budget_bytes > 0;
    int64_t budget = given ? s->config.budget_bytes : s->minimum_bytes;
    for (int p = 1; p < s->config.policies.n; p++) {
        if (s->need_bytes[p] <= budget) continue;
        s->refused_switch = true;
        return mm_fail(
            MM_ERR_INFEASIBLE, "infeasible: to switch to %s takes at least %lld bytes, the budget is %lld%s%s%s",
            s->config.policies.text[p], (long long)s->need_bytes[p], (long long)budget, given ? "" : ", what ",
            given ? "" : s->config.policies.text[0], given ? "" : " takes; --budget sets it");
    }
    return MM_OK;
}
