/* SPDX-License-Identifier: MIT */
#include "tools/requirement.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/account/account.h"
#include "mm/core/status.h"
#include "mm/planning/refusal.h"
#include "policies/schedule/nominal.h"
#include "tools/facts_source.h"

/* A speed that was asked for counts, whatever link the facts are of. Each way has it, with both busy too. */
static void give_link(mm_facts *facts, int64_t bytes_per_s) {
    facts->out_bytes_per_s = facts->in_bytes_per_s = bytes_per_s;
    facts->out_both_bytes_per_s = facts->in_both_bytes_per_s = 0;
}

mm_status requirement_add_times(const facts_source *source, const target *target, const mm_graph *graph,
                                mm_facts *facts) {
    if (source) MM_TRY(facts_source_fill(source, graph, facts));
    if (source && !source->for_run && target->link_bytes_per_s > 0) give_link(facts, target->link_bytes_per_s);
    return MM_OK;
}

/* What is known of a graph's times. */
typedef struct times {
    const facts_source *facts;
    const target *target;
} times;

/* An mm_times_fn. */
static mm_status add_times(const void *ctx, const mm_graph *graph, mm_facts *facts) {
    const times *t = ctx;
    return requirement_add_times(t->facts, t->target, graph, facts);
}

static mm_status gather(requirement *r, const nets_net *net, nets_exec_graph graph, nets_mode mode,
                        const target *target, const char *policy_spec, int64_t base_bytes, const facts_source *facts) {
    MM_TRY(mm_policy_parse(policy_spec, &r->policy));
    MM_TRY(nets_lower_pass(net, target->backend, graph.batch, mode, graph.pass, target->optimizer.id, &r->lowered));
    mm_status gathered = mm_planned_init(&r->planned, &r->policy, r->lowered->graph, target->device);
    if (gathered != MM_OK) return mm_fail_in(gathered, "policy %s", policy_spec);
    MM_TRY(requirement_add_times(facts, target, r->lowered->graph, r->planned.facts));
    mm_planned_log(&r->planned, &target->rates);
    r->stop = target->stop;
    r->base_bytes = base_bytes > 0 ? base_bytes : mm_plan_base(r->lowered->graph);
    return MM_OK;
}

/* By the plan at hand. */
static void set_minimum(requirement *r) {
    const mm_plan *plan = r->planned.plan;
    r->minimum_bytes = plan->peak_bytes;
    r->minimum_pinned_bytes = plan->pinned_bytes;
    r->minimum_step = plan->peak_step;
}

static mm_status plan_least(requirement *r) {
    mm_limits limits = {.device_bytes = 0, /* nothing fits: the plan with the lowest peak */
                        .pinned_bytes = INT64_MAX,
                        .base_bytes = r->base_bytes,
                        .stop = r->stop};
    MM_TRY(mm_planned_make(&r->planned, &r->policy, r->lowered->graph, &limits));
    set_minimum(r);
    r->free = (requirement_free){r->minimum_bytes, r->minimum_pinned_bytes};
    return MM_OK;
}

mm_status requirement_init(requirement *r, const nets_net *net, nets_exec_graph graph, nets_mode mode,
                           const target *target, const char *policy, int64_t base_bytes, const facts_source *facts) {
    memset(r, 0, sizeof *r);
    mm_status status = gather(r, net, graph, mode, target, policy, base_bytes, facts);
    if (status == MM_OK) status = plan_least(r);
    if (status != MM_OK) requirement_fini(r);
    return status;
}

mm_status requirement_limit(requirement *r, int64_t device_bytes, int64_t pinned_bytes, int64_t staged_bytes) {
    mm_limits limits = {.device_bytes = device_bytes,
                        .pinned_bytes = pinned_bytes,
                        .base_bytes = r->base_bytes + staged_bytes,
                        .stop = r->stop};
    const requirement_room room = {device_bytes, pinned_bytes, staged_bytes};
    if (device_bytes > 0 && memcmp(&room, &r->room, sizeof room) == 0) return MM_OK;
    MM_TRY(mm_planned_make(&r->planned, &r->policy, r->lowered->graph, &limits));
    r->room = room;
    return MM_OK;
}

mm_status requirement_simulate(const requirement *r, mm_simulation *sim_out) {
    const mm_facts *facts = r->planned.facts;
    mm_facts nominal;
    if (!mm_nominal_is_due(facts)) return mm_program_simulate(r->planned.program, facts, sim_out);
    mm_status status = mm_nominal_init(r->lowered->graph, facts, &nominal);
    if (status == MM_OK) status = mm_program_simulate(r->planned.program, &nominal, sim_out);
    mm_nominal_fini(&nominal);
    return status;
}

/* Whether the bound of what any plan needs is within the limits. */
static bool may_fit(const requirement *r, const mm_limits *limits) {
    return mm_lower_bound_of(r->lowered->graph, r->planned.facts).bytes <= limits->device_bytes;
}

static mm_status try_pass(requirement *r, int64_t device_bytes, int64_t pinned_bytes, bool *fits_out) {
    const mm_limits limits = {
        .device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = r->base_bytes, .first_fit = true};
    *fits_out = false;
    if (!may_fit(r, &limits)) return MM_OK;
    MM_TRY(mm_planned_make(&r->planned, &r->policy, r->lowered->graph, &limits));
    *fits_out = mm_plan_fits(r->planned.plan, &limits) == MM_OK;
    return MM_OK;
}

mm_status requirement_try_passes(const nets_net *net, int64_t batch, int64_t sub_batch, const target *target,
                                 const char *policy, int64_t device_bytes, int64_t pinned_bytes,
                                 const facts_source *facts, bool *fit_out) {
    nets_exec_graph graphs[NETS_PASSES];
    int64_t base_bytes = 0;
    bool fit = true;
    for (int i = nets_exec_graphs(batch, sub_batch, graphs) - 1; fit && i >= 0; i--) {
        requirement r = {0};
        mm_status status = gather(&r, net, graphs[i], NETS_TRAIN, target, policy, base_bytes, facts);
        if (status == MM_OK) status = try_pass(&r, device_bytes, pinned_bytes, &fit);
        base_bytes = r.base_bytes;
        requirement_fini(&r);
        MM_TRY(status);
    }
    *fit_out = fit;
    return MM_OK;
}

mm_status requirement_limit_pinned(requirement *r, int64_t pinned_bytes) {
    if (r->minimum_pinned_bytes <= pinned_bytes) return MM_OK;
    MM_TRY(requirement_limit(r, 0, pinned_bytes, 0));
    set_minimum(r);
    return MM_OK;
}

static const char *pinned_from(requirement_pinned pinned) { return pinned.given ? "" : " (half of what is free)"; }

mm_status requirement_refuse(int64_t minimum_bytes, int64_t minimum_pinned_bytes, const char *holder,
                             requirement_pinned pinned, const requirement_free *free) {
    if (minimum_pinned_bytes > pinned.bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "infeasible: needs at least %s, and %s of pinned memory, held by %s",
                       MM_SIZE_TEXT(minimum_bytes), MM_SIZE_TEXT(minimum_pinned_bytes), holder);
    if (free->device_bytes == 0 || free->device_bytes >= minimum_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "infeasible: needs at least %s, held by %s", MM_SIZE_TEXT(minimum_bytes),
                       holder);
    return mm_fail(
        MM_ERR_INFEASIBLE,
        "infeasible: with %s of pinned memory%s needs at least %s, held by %s; with %s (--pinned) it needs %s",
        MM_SIZE_TEXT(pinned.bytes), pinned_from(pinned), MM_SIZE_TEXT(minimum_bytes), holder,
        MM_SIZE_TEXT(free->pinned_bytes), MM_SIZE_TEXT(free->device_bytes));
}

mm_status requirement_advise(const nets_net *net, nets_exec_graph graph, const target *target, int64_t device_bytes,
                             requirement_pinned pinned, const facts_source *facts, const requirement *refused_one) {
    const times known = {facts, target};
    requirement r = {0};
    mm_failure refusal;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    mm_status status =
        nets_lower_pass(net, target->backend, graph.batch, NETS_TRAIN, graph.pass, target->optimizer.id, &r.lowered);
    mm_status refused = mm_failure_restore(&refusal);
    if (status == MM_OK) {
        const mm_refused who = {.graph = r.lowered->graph,
                                .device = target->device,
                                .limits = {.device_bytes = device_bytes,
                                           .pinned_bytes = pinned.bytes,
                                           .base_bytes = mm_plan_base(r.lowered->graph),
                                           .stop = target->stop},
                                .rates = target->rates,
                                .pinned_from = pinned_from(pinned),
                                .add_times = facts ? add_times : NULL,
                                .times = &known,
                                .policy = refused_one && refused_one->policy.ops ? &refused_one->policy : NULL,
                                .needs_bytes = refused_one ? refused_one->minimum_bytes : 0,
                                .recomputes = true};
        refused = mm_advise(&who, refusal.message);
    }
    requirement_fini(&r);
    return refused;
}

int64_t requirement_pinned_most(void) {
    char line[128];
    long long free_kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && free_kib == 0 && fgets(line, sizeof line, file)) sscanf(line, "MemAvailable: %lld kB", &free_kib);
    if (file) fclose(file);
    return (int64_t)free_kib * 1024 / 2;
}

void requirement_fini(requirement *r) {
    mm_planned_fini(&r->planned);
    mm_policy_fini(&r->policy);
    nets_lowered_destroy(r->lowered);
    memset(r, 0, sizeof *r);
}

/* Whether a codec that the policy names is of a kind. */
static bool names_codec(const char *policy, bool (*is)(const mm_codec *codec)) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    mm_codec *codec;
    int n = 0;
    bool found = false;
    if (mm_policy_codecs(policy, specs, &n) != MM_OK) return false;
    for (int i = 0; i < n && !found; i++) {
        if (mm_codec_create(specs[i], "host", &codec) != MM_OK) continue;
        found = is(codec);
        mm_codec_destroy(codec);
    }
    return found;
}

static bool is_lossy(const mm_codec *codec) { return !codec->flags.lossless; }
static bool reads_bound(const mm_codec *codec) { return codec->flags.reads_bound; }

bool requirement_is_lossy(const char *policy) { return names_codec(policy, is_lossy); }
/* A policy that does not observe cannot be planned with such a codec. */
bool requirement_samples(const char *policy) { return names_codec(policy, reads_bound); }

const char *requirement_mark(const char *policy) { return requirement_is_lossy(policy) ? " (lossy)" : ""; }
