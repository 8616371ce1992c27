/* SPDX-License-Identifier: MIT */
/* mm_requirement_get: checks its arguments, and asks the device for its rates. */
#include "mm/core/graph/graph.h"
#include "mm/device/contract/device.h"
#include "mm/planning/requirement.h"

static mm_status check_graphs(const mm_graph *const *graphs, size_t n) {
    MM_TRY(mm_check_given(graphs, "mm_requirement_get", "graphs"));
    if (n == 0 || n > INT32_MAX) return mm_fail(MM_ERR_INVALID, "mm_requirement_get: %zu graphs: must be 1 or more", n);
    for (size_t i = 0; i < n; i++) {
        MM_TRY(mm_check_given(graphs[i], "mm_requirement_get", "a graph"));
        if (!mm_graph_frozen(graphs[i]))
            return mm_fail(MM_ERR_ORDER, "mm_requirement_get: graph %s is not frozen (mm_graph_freeze)",
                           mm_graph_name(graphs[i]));
    }
    return MM_OK;
}

static mm_status check_limits(const mm_plan_limits *l) {
    if (l->device_bytes >= 0 && l->pinned_bytes >= 0 && l->disk_bytes >= 0 && l->link_bytes_per_s >= 0 &&
        l->disk_bytes_per_s >= 0)
        return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "mm_requirement_get: limits of %lld bytes, %lld pinned, %lld on the disk, %lld and %lld a second: "
                   "must be 0 or more",
                   (long long)l->device_bytes, (long long)l->pinned_bytes, (long long)l->disk_bytes,
                   (long long)l->link_bytes_per_s, (long long)l->disk_bytes_per_s);
}

/* Finds the rates by which a manager plans, too: the disk's, and the device's; these are 0, unknown, if the device does
 * not answer. */
static mm_status find_rates(const mm_plan_limits *l, mm_rates *rates_out) {
    const mm_device_config config = {.link_out_bytes_per_s = l->link_bytes_per_s,
                                     .link_in_bytes_per_s = l->link_bytes_per_s};
    mm_device *device;
    mm_device_description description;
    *rates_out = (mm_rates){.disk_bytes_per_s = l->disk_bytes == 0        ? 0
                                                : l->disk_bytes_per_s > 0 ? l->disk_bytes_per_s
                                                                          : MM_DISK_BYTES_PER_S};
    const mm_status status = mm_device_create(l->device, &config, &device);
    if (status != MM_OK) return status == MM_ERR_NOMEM ? status : MM_OK;
    mm_device_describe(device, &description);
    mm_device_destroy(device);
    rates_out->memory_bytes_per_s = description.memory_bytes_per_s;
    rates_out->link_bytes_per_s = description.link_bytes_per_s;
    return MM_OK;
}

mm_status mm_requirement_get(const mm_graph *const *graphs, size_t n, const mm_facts *facts, const char *policy,
                             const mm_plan_limits *limits, mm_requirement **requirement_out) {
    const mm_device_ops *ops;
    int ordinal;
    mm_requirement_request request = {.graphs = graphs, .facts = facts, .policy = policy ? policy : "liveness"};
    MM_TRY(mm_check_given(requirement_out, "mm_requirement_get", "requirement_out"));
    MM_TRY(check_graphs(graphs, n));
    if (limits) request.limits = *limits;
    MM_TRY(check_limits(&request.limits));
    if (!request.limits.device) request.limits.device = "host";
    MM_TRY(mm_device_find(request.limits.device, &ops, &ordinal));
    request.n = (int)n;
    MM_TRY(find_rates(&request.limits, &request.rates));
    return mm_requirement_make(&request, requirement_out);
}
