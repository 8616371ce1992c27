#include "mm/advice.h"

#include <stdio.h>

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

mm_status mm_advise(const mm_graph *graph, const char *device, const mm_limits *limits) {
    static const char *const policies[] = {"liveness",   "recompute",
                                           "swap-async", "recompute:mode=sqrt",
                                           "vdnn-all",   "swap",
                                           "freelunch",  "hybrid",
                                           "cdma",       "rules:*=compress(zfp:rate=4);*=swap"};
    char refusal[MESSAGE];
    const char *least = NULL;
    int64_t least_bytes = INT64_MAX;
    snprintf(refusal, sizeof refusal, "%s", mm_last_error());
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        mm_limits need;
        if (needs(policies[i], graph, device, limits, &need) != MM_OK) continue; /* not on this device */
        if (need.pinned_bytes > limits->pinned_bytes) continue;
        if (need.device_bytes <= limits->device_bytes)
            return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s would fit", refusal, policies[i]);
        if (need.device_bytes >= least_bytes) continue;
        least = policies[i];
        least_bytes = need.device_bytes;
    }
    if (!least) return mm_fail(MM_ERR_INFEASIBLE, "%s", refusal);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; no policy would fit: %s needs least, %lld bytes", refusal, least,
                   (long long)least_bytes);
}
