/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_fits.h"

#include <stdio.h>

#include "mm/core/size.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

int64_t mm_plan_spill_bytes(const mm_plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->n_segments; i++)
        if (plan->segments[i].spill >= 0) bytes += plan->segments[plan->segments[i].spill].bytes;
    return bytes;
}

const char *mm_plan_pinned_hint(const mm_plan *plan) {
    return mm_plan_spill_bytes(plan) > 0 ? "; with reserve=100 in the spec of its codec, no spill is needed" : "";
}

const char *mm_plan_pinned_text(int64_t bytes, char buffer[MM_PLAN_PINNED_TEXT_CAPACITY]) {
    buffer[0] = '\0';
    if (bytes > 0)
        snprintf(buffer, MM_PLAN_PINNED_TEXT_CAPACITY, ", and %s of pinned host memory", MM_SIZE_TEXT(bytes));
    return buffer;
}

mm_status mm_plan_fits(const mm_plan *plan, const mm_limits *limits) {
    char step[256];
    if (plan->peak_bytes > limits->device_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "%s on %s needs at least %s, held by %s%s; the budget is %s",
                       MM_BRIEF(plan->policy), mm_graph_name(plan->graph), MM_SIZE_TEXT(plan->peak_bytes),
                       mm_graph_step_name(plan->graph, plan->peak_step, step, sizeof step),
                       MM_PLAN_PINNED_TEXT(plan->pinned_bytes), MM_SIZE_TEXT(limits->device_bytes));
    if (plan->pinned_bytes > limits->pinned_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "%s on %s needs %s of pinned memory; its limit is %s%s%s",
                       MM_BRIEF(plan->policy), mm_graph_name(plan->graph), MM_SIZE_TEXT(plan->pinned_bytes),
                       MM_SIZE_TEXT(limits->pinned_bytes), limits->disk_bytes > 0 ? ", beside the disk" : "",
                       mm_plan_pinned_hint(plan));
    if (plan->disk_bytes > limits->disk_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "%s on %s needs %s on the disk; its limit is %s", MM_BRIEF(plan->policy),
                       mm_graph_name(plan->graph), MM_SIZE_TEXT(plan->disk_bytes), MM_SIZE_TEXT(limits->disk_bytes));
    return MM_OK;
}
