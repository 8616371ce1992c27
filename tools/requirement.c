#include "tools/requirement.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/account.h"
#include "mm/core/status.h"
#include "mm/refusal.h"
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

static mm_status make(requirement *r, const nets_net *net, nets_exec_graph graph, nets_mode mode, const target *target,
                      const char *policy_spec, int64_t base_bytes, const facts_source *facts) {
    MM_TRY(mm_policy_parse(policy_spec, &r->policy));
    MM_TRY(nets_lower_pass(net, target->backend, graph.batch, mode, graph.pass, target->optimizer.id, &r->lowered));
    mm_status gathered = mm_planned_init(&r->planned, &r->policy, r->lowered->graph, target->device);
    if (gathered != MM_OK) return mm_fail_in(gathered, "policy %s", policy_spec);
    MM_TRY(requirement_add_times(facts, target, r->lowered->graph, r->planned.facts));
    mm_planned_tell(&r->planned, &target->rates);
    r->stop = target->stop;
    r->base_bytes = base_bytes > 0 ? base_bytes : mm_plan_base(r->lowered->graph);
    mm_limits limits = {.device_bytes = 0, /* nothing fits: the plan with the lowest peak */
                        .pinned_bytes = INT64_MAX,
                        .base_bytes = r->base_bytes,
                        .stop = r->stop};
    MM_TRY(mm_planned_make(&r->planned, &r->policy, r->lowered->graph, &limits));
    r->minimum_bytes = r->planned.plan->peak_bytes;
    r->free = (requirement_free){r->minimum_bytes, r->planned.plan->pinned_bytes};
    return MM_OK;
}

mm_status requirement_init(requirement *r, const nets_net *net, nets_exec_graph graph, nets_mode mode,
                           const target *target, const char *policy, int64_t base_bytes, const facts_source *facts) {
    memset(r, 0, sizeof *r);
    mm_status status = make(r, net, graph, mode, target, policy, base_bytes, facts);
    if (status != MM_OK) requirement_fini(r);
    return status;
}

mm_status requirement_limit(requirement *r, int64_t device_bytes, int64_t pinned_bytes, int64_t staged_bytes) {
    mm_limits limits = {.device_bytes = device_bytes,
                        .pinned_bytes = pinned_bytes,
                        .base_bytes = r->base_bytes + staged_bytes,
                        .stop = r->stop};
    return mm_planned_make(&r->planned, &r->policy, r->lowered->graph, &limits);
}

mm_status requirement_limit_pinned(requirement *r, int64_t pinned_bytes) {
    if (r->planned.plan->pinned_bytes <= pinned_bytes) return MM_OK;
    MM_TRY(requirement_limit(r, 0, pinned_bytes, 0));
    r->minimum_bytes = r->planned.plan->peak_bytes;
    return MM_OK;
}

mm_status requirement_refuse(int64_t minimum_bytes, const char *holder, int64_t pinned_bytes,
                             const requirement_free *free) {
    if (free->device_bytes == 0 || free->device_bytes >= minimum_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "infeasible: needs at least %s, held by %s", MM_SIZE_TOLD(minimum_bytes),
                       holder);
    return mm_fail(MM_ERR_INFEASIBLE,
                   "infeasible: with %s of pinned memory needs at least %s, held by %s; with %s (--pinned) it needs %s",
                   MM_SIZE_TOLD(pinned_bytes), MM_SIZE_TOLD(minimum_bytes), holder, MM_SIZE_TOLD(free->pinned_bytes),
                   MM_SIZE_TOLD(free->device_bytes));
}

mm_status requirement_advise(const nets_net *net, nets_exec_graph graph, const target *target, int64_t device_bytes,
                             int64_t pinned_bytes, const facts_source *facts, const requirement *refused_one) {
    const times known = {facts, target};
    requirement r = {0};
    mm_failure refusal;
    mm_failure_keep(&refusal, MM_ERR_INFEASIBLE);
    mm_status status =
        nets_lower_pass(net, target->backend, graph.batch, NETS_TRAIN, graph.pass, target->optimizer.id, &r.lowered);
    mm_status refused = mm_failure_tell(&refusal);
    if (status == MM_OK) {
        const mm_refused who = {.graph = r.lowered->graph,
                                .device = target->device,
                                .limits = {.device_bytes = device_bytes,
                                           .pinned_bytes = pinned_bytes,
                                           .base_bytes = mm_plan_base(r.lowered->graph),
                                           .stop = target->stop},
                                .rates = target->rates,
                                .add_times = facts ? add_times : NULL,
                                .times = &known,
                                .policy = refused_one ? &refused_one->policy : NULL,
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

/* The graph that updates the weights comes first: it has all persistent tensors of the others. */
static mm_status make_passes(requirement_passes *p, const nets_net *net, nets_mode mode, const target *target,
                             const char *policy, int64_t base_bytes, int64_t pinned_bytes, const facts_source *facts) {
    for (int i = p->n - 1; i >= 0; i--) {
        requirement *r = &p->r[i];
        MM_TRY(requirement_init(r, net, p->graphs[i], mode, target, policy, base_bytes, facts));
        MM_TRY(requirement_limit_pinned(r, pinned_bytes));
        base_bytes = r->base_bytes;
        if (r->minimum_bytes > p->r[p->most].minimum_bytes) p->most = i;
    }
    return MM_OK;
}

mm_status requirement_passes_init(requirement_passes *p, const nets_net *net, int64_t batch, int64_t sub_batch,
                                  nets_mode mode, const target *target, const char *policy, int64_t base_bytes,
                                  int64_t pinned_bytes, const facts_source *facts) {
    memset(p, 0, sizeof *p);
    p->n = nets_exec_graphs(batch, sub_batch, p->graphs);
    p->most = p->n - 1;
    mm_status status = make_passes(p, net, mode, target, policy, base_bytes, pinned_bytes, facts);
    if (status != MM_OK) requirement_passes_fini(p);
    return status;
}

void requirement_passes_fini(requirement_passes *p) {
    for (int i = 0; i < p->n; i++) requirement_fini(&p->r[i]);
    memset(p, 0, sizeof *p);
}

const char *requirement_bound_text(const requirement_passes *p, char *buffer, size_t capacity) {
    mm_lower_bound most = {0};
    const mm_graph *graph = NULL;
    char step[256];
    for (int i = 0; i < p->n; i++) {
        const mm_lower_bound bound = mm_lower_bound_of(p->r[i].lowered->graph, p->r[i].planned.facts);
        if (bound.bytes <= most.bytes || bound.step < 0) continue;
        most = bound;
        graph = p->r[i].lowered->graph;
    }
    snprintf(buffer, capacity, "no policy needs less than %s: %lld stay on the device, %s uses the rest",
             MM_SIZE_TOLD(most.bytes), (long long)most.persistent_bytes,
             graph ? mm_graph_step_name(graph, most.step, step, sizeof step) : "nothing");
    return buffer;
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
