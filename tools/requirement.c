#include "tools/requirement.h"

#include <stdio.h>
#include <string.h>

#include "mm/device/device.h"

mm_status requirement_device(const char *device) {
    char known[128] = "";
    const char *name, *summary;
    for (size_t i = 0; (name = mm_device_list(i, &summary)); i++) {
        if (strcmp(name, device) == 0) return MM_OK;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i > 0 ? ", " : "", name);
    }
    const char *absent = mm_device_absent(device);
    return mm_fail(MM_ERR_NOT_FOUND, "--device %s: this build has no such device, but: %s%s%s", device, known,
                   absent ? "; " : "", absent ? absent : "");
}

static mm_status make(requirement *r, const nets_net *net, int64_t batch, nets_mode mode, const char *device,
                      const char *policy_spec, int64_t base_bytes, const char *facts_path) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(policy_spec, &policy));
    MM_TRY(nets_backend_open(device, &r->backend));
    MM_TRY(nets_lower(net, r->backend, batch, mode, &r->lowered));
    MM_TRY(mm_planned_init(&r->planned, &policy, r->lowered->graph, device));
    if (facts_path) MM_TRY(mm_facts_load(facts_path, r->lowered->graph, r->planned.facts));
    mm_limits limits = {.device_bytes = 0, /* nothing fits: the plan with the lowest peak */
                        .pinned_bytes = INT64_MAX,
                        .base_bytes = base_bytes > 0 ? base_bytes : mm_planned_base(r->lowered->graph)};
    mm_status status = mm_planned_make(&r->planned, &policy, r->lowered->graph, &limits);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "policy %s", policy_spec);
}

mm_status requirement_init(requirement *r, const nets_net *net, int64_t batch, nets_mode mode, const char *device,
                           const char *policy, int64_t base_bytes, const char *facts_path) {
    memset(r, 0, sizeof *r);
    mm_status status = make(r, net, batch, mode, device, policy, base_bytes, facts_path);
    if (status != MM_OK) requirement_fini(r);
    return status;
}

const char *requirement_suggest(const nets_net *net, int64_t batch, const char *device, int64_t budget_bytes) {
    static const char *const policies[] = {"liveness", "recompute", "swap-async", "vdnn-all", "freelunch", "hybrid"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        requirement r;
        if (requirement_init(&r, net, batch, NETS_TRAIN, device, policies[i], 0, NULL) != MM_OK) return NULL;
        bool fits = r.planned.plan->peak_bytes <= budget_bytes;
        requirement_fini(&r);
        if (fits) return policies[i];
    }
    return NULL;
}

void requirement_fini(requirement *r) {
    mm_planned_fini(&r->planned);
    nets_lowered_destroy(r->lowered);
    nets_backend_close(r->backend);
    memset(r, 0, sizeof *r);
}
