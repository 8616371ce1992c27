/* SPDX-License-Identifier: MIT */
#include "tools/host_rates/host_rates.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/text.h"
#include "policies/policy.h"
#include "tools/host_rates/cache.h"
#include "tools/need/policy_marks.h"

/* Takes the machine that was read as a source of facts of every graph, over the link that is simulated if one is. */
static void use(host_rates *r, const target *target) {
    r->source.path = r->path;
    r->source.is_machine = r->source.for_run = true;
    r->source.link_bytes_per_s = target->link_bytes_per_s;
    r->from = HOST_RATES_CACHE;
}

/* ---------------------------------------------------------------- choosing */

/* What some policy of the run does. */
typedef struct traits {
    bool searches, lossy;
} traits;

static mm_status find_traits(const arg_texts *policies, traits *traits_out) {
    traits all = {false, false};
    for (int i = 0; i < policies->n; i++) {
        mm_policy policy;
        bool lossy;
        MM_TRY(mm_policy_parse(policies->text[i], &policy));
        all.searches |= mm_policy_searches(&policy);
        mm_policy_fini(&policy);
        MM_TRY(policy_find_lossy(policies->text[i], &lossy));
        all.lossy |= lossy;
    }
    *traits_out = all;
    return MM_OK;
}

static mm_status read_nominal(const char *rates, bool *nominal_out) {
    *nominal_out = rates && strcmp(rates, "nominal") == 0;
    if (!rates || *nominal_out || strcmp(rates, "host") == 0) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--rates %s: must be host or nominal", rates);
}

/* Why this run plans by nominal times only; NULL: it need not. All ranks must have the same plan, and where maps lose
 * bits the result depends on the plan, so that must depend on nothing but the options. */
static const char *why_nominal(const host_rates_case *c, bool nominal, bool lossy) {
    if (nominal) return "--rates nominal";
    if (c->ranks > 1) return "all ranks must have one plan; --facts gives them times";
    if (lossy) return "it may lose bits, so its plan must be the same on every host; --facts gives times";
    if (c->target->backend->maps != MM_F32) return "a host's rates are of fp32 maps; --facts gives times";
    return NULL;
}

mm_status host_rates_open(host_rates *r, const char *command, const host_rates_case *c) {
    bool nominal;
    traits traits;
    *r = (host_rates){.from = HOST_RATES_NONE};
    MM_TRY(read_nominal(c->rates, &nominal));
    if (c->has_facts || !target_is_host(c->target->device)) return MM_OK;
    MM_TRY(find_traits(c->policies, &traits));
    if (!traits.searches) return MM_OK;
    r->from = HOST_RATES_NOMINAL;
    r->why = why_nominal(c, nominal, traits.lossy);
    if (r->why) return MM_OK;
    const mm_status status = host_cache_read(c->target, r->path, &r->source.machine, r->measured);
    if (status == MM_OK) use(r, c->target);
    if (status == MM_OK || status == MM_ERR_NOMEM) return status;
    if (status != MM_ERR_NOT_FOUND && !c->quiet) fprintf(stderr, "mm %s: %s\n", command, mm_last_error());
    r->from = c->same_plan ? HOST_RATES_NOMINAL : HOST_RATES_RUN;
    r->why = "'mm device --facts' measures this host's";
    return MM_OK;
}

void host_rates_close(host_rates *r) {
    facts_source_close(&r->source);
    r->from = HOST_RATES_NONE;
}

void host_rates_tell(const host_rates *r, const char *command, const char *policy) {
    const char *name = MM_BRIEF(policy);
    if (r->from == HOST_RATES_CACHE)
        fprintf(stderr, "mm %s: %s plans by this host's rates (%s, measured %s)\n", command, name, r->path,
                r->measured);
    else if (r->from == HOST_RATES_RUN)
        fprintf(stderr, "mm %s: %s plans by nominal times, and once again after iteration %d by measured ones (%s)\n",
                command, name, HOST_RATES_ITERATIONS, r->why);
    else if (r->from == HOST_RATES_NOMINAL)
        fprintf(stderr, "mm %s: %s plans by nominal times (%s)\n", command, name, r->why);
}
