#include "mm/advice.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/planning.h"

enum { MESSAGE = 512 };

/* What the policy takes within the limits, or, if it does not fit, at the least. */
static mm_status needs(const char *spec, const mm_graph *graph, const char *device, const mm_limits *limits,
                       mm_limits *needs_out) {
    mm_policy policy;
    mm_planned planned;
    MM_TRY(mm_policy_parse(spec, &policy));
    MM_TRY(mm_planned_init(&planned, &policy, graph, device));
    mm_status status = mm_planned_make(&planned, &policy, graph, limits);
    if (status == MM_OK)
        *needs_out = (mm_limits){.device_bytes = planned.plan->peak_bytes, .pinned_bytes = planned.plan->pinned_bytes};
    mm_planned_fini(&planned);
    return status;
}

/* Without loss, then the others. */
static const char *const policies[] = {
    "liveness",   "recompute",
    "swap-async", "recompute:mode=sqrt",
    "vdnn-all",   "swap",
    "freelunch",  "hybrid",
    "cdma",       "rules:*=compress(zfp:rate=4);*=swap",
};
enum { POLICIES = sizeof policies / sizeof *policies };

/* As published first: that is one plan. A policy that fits so fits in its default form, which tries many. */
static bool fits_as_published(const char *spec, const mm_graph *graph, const char *device, const mm_limits *limits,
                              mm_limits *need_out) {
    char always[MM_POLICY_SPEC];
    bool plain = spec == policies[0];
    snprintf(always, sizeof always, "%s%s%s", spec,
             plain               ? ""
             : strchr(spec, ':') ? ","
                                 : ":",
             plain ? "" : "when=always");
    return needs(always, graph, device, limits, need_out) == MM_OK && need_out->device_bytes <= limits->device_bytes &&
           need_out->pinned_bytes <= limits->pinned_bytes;
}

/* NULL: none does. */
static const char *find_fit(const mm_graph *graph, const char *device, const mm_limits *limits, mm_limits *need_out) {
    for (int i = 0; i < POLICIES; i++)
        if (fits_as_published(policies[i], graph, device, limits, need_out)) return policies[i];
    return NULL;
}

/* The policy that fits, or needs least of those within the pinned memory; NULL if there is none. */
static const char *find_least(const mm_graph *graph, const char *device, const mm_limits *limits, int64_t *bytes_out) {
    const char *least = NULL;
    *bytes_out = INT64_MAX;
    for (int i = 0; i<POLICIES && * bytes_out> limits->device_bytes; i++) {
        mm_limits need;
        if (needs(policies[i], graph, device, limits, &need) != MM_OK) continue; /* not on this device */
        if (need.pinned_bytes > limits->pinned_bytes || need.device_bytes >= *bytes_out) continue;
        least = policies[i];
        *bytes_out = need.device_bytes;
    }
    return least;
}

mm_status mm_advise(const mm_graph *graph, const char *device, const mm_limits *limits) {
    char refusal[MESSAGE];
    const char *least = NULL;
    int64_t least_bytes = 0;
    mm_limits need;
    snprintf(refusal, sizeof refusal, "%s", mm_last_error());
    const char *fit = find_fit(graph, device, limits, &need);
    if (!fit) least = find_least(graph, device, limits, &least_bytes);
    if (least && least_bytes <= limits->device_bytes) fit = least;
    if (fit) return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s would fit", refusal, fit);
    mm_limits unlimited = *limits;
    unlimited.pinned_bytes = INT64_MAX;
    fit = find_fit(graph, device, &unlimited, &need);
    if (fit)
        return mm_fail(MM_ERR_INFEASIBLE,
                       "%s; no policy would fit with %lld bytes of pinned memory; with %lld bytes, policy %s would",
                       refusal, (long long)limits->pinned_bytes, (long long)need.pinned_bytes, fit);
    if (!least) return mm_fail(MM_ERR_INFEASIBLE, "%s", refusal);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; no policy would fit: %s needs least, %lld bytes", refusal, least,
                   (long long)least_bytes);
}
