/* SPDX-License-Identifier: MIT */
#include "tools/measure/collect.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/time/cache_miss.h"
#include "mm/core/time/simulate.h"
#include "mm/manager/facts_measured.h"
#include "pipeline/codec/codec_facts.h"
#include "tools/measure/device_speed.h"

/* Adds the codecs that a policy uses and that are not listed yet. */
static mm_status add_specs(const char *policy_spec, char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY], int *n) {
    char used[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n_used;
    MM_TRY(mm_policy_codecs(policy_spec, used, &n_used));
    for (int u = 0; u < n_used; u++) {
        int known = 0;
        while (known < *n && strcmp(specs[known], used[u]) != 0) known++;
        if (known < *n) continue;
        if (*n == MM_MAX_CODECS)
            return mm_fail(MM_ERR_UNSUPPORTED, "the policies have more than %d codecs; measure facts with fewer",
                           MM_MAX_CODECS);
        strcpy(specs[(*n)++], used[u]);
    }
    return MM_OK;
}

static mm_status learn_cache(collector *c, const target *target) {
    mm_device *device;
    mm_device_description description;
    MM_TRY(mm_device_create(target->device, NULL, &device));
    mm_device_describe(device, &description);
    mm_device_destroy(device);
    c->cache_bytes = description.cache_bytes;
    return MM_OK;
}

static mm_status make(collector *c, const nets_net *net, int64_t batch, const target *target,
                      const arg_texts *policies) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n = 0;
    for (int p = 0; p < policies->n; p++) MM_TRY(add_specs(policies->text[p], specs, &n));
    for (int i = 0; i < n; i++) MM_TRY(mm_codec_create(specs[i], target->device, &c->codecs[i]));
    MM_TRY(learn_cache(c, target));
    const nets_lowering how = target_lowering(target, NETS_TRAIN);
    MM_TRY(nets_lower(net, target->backend, batch, &how, &c->lowered));
    c->threads = target->backend->threads;
    c->miss_bytes = calloc((size_t)mm_graph_steps(c->lowered->graph) + 1, sizeof *c->miss_bytes);
    if (!c->miss_bytes) return mm_fail(MM_ERR_NOMEM, "out of memory for facts");
    return mm_codec_facts_create(c->lowered->graph, c->codecs, (const char(*)[MM_SPEC_CAPACITY])specs, n, &c->facts);
}

mm_status collector_init(collector *c, const nets_net *net, int64_t batch, const target *target,
                         const arg_texts *policies) {
    memset(c, 0, sizeof *c);
    mm_status status = make(c, net, batch, target, policies);
    if (status != MM_OK) collector_fini(c);
    return status;
}

void collector_fini(collector *c) {
    mm_graph_facts_destroy(c->facts);
    free(c->miss_bytes);
    nets_lowered_destroy(c->lowered);
    for (int i = 0; i < MM_MAX_CODECS; i++) mm_codec_destroy(c->codecs[i]);
    memset(c, 0, sizeof *c);
}

/* The median of the iterations' times divided by their mean, at most 1. The times of nodes are means, which include
 * disturbed iterations. Multiplied by this ratio, they are the times of a typical iteration. */
static double typical_part(const row *r) {
    double part = r->iteration_seconds_mean > 0 ? r->iteration_seconds_median / r->iteration_seconds_mean : 1;
    return part < 1 ? part : 1;
}

static int64_t typical_ns(const mm_measured *m, int node, const row *r) {
    return (int64_t)((double)mm_execution_ns(m->execution, node) * typical_part(r));
}

/* ---------------------------------------------------------------- steps and contention */

typedef struct totals {
    int64_t compute, again, codecs, link; /* ns of an iteration; again: recomputed steps */
    int64_t miss_bytes;                   /* far bytes (collect.h) of the steps in `compute` */
} totals;

static totals add_up(const mm_measured *m, const int64_t *miss_bytes, const row *r) {
    totals t = {0};
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node_kind kind = m->plan->nodes[i].kind;
        const int64_t ns = typical_ns(m, i, r);
        switch (mm_node_table[kind].cost) {
        case MM_COST_STEP:
            *(kind == MM_NODE_STEP ? &t.compute : &t.again) += ns;
            if (kind == MM_NODE_STEP) t.miss_bytes += miss_bytes[i];
            break;
        case MM_COST_ENCODE:
        case MM_COST_DECODE:
        case MM_COST_MEMORY: /* uses memory beside the computation, as codecs do */
            t.codecs += ns;
            break;
        case MM_COST_LINK_OUT:
        case MM_COST_LINK_IN:
            t.link += ns;
            break;
        case MM_COST_DISK_OUT: /* beside the device */
        case MM_COST_DISK_IN:
            break;
        }
    }
    return t;
}

/* Adds a run without side streams to the fit of far_ps_per_byte: how much longer its steps, recomputed ones included,
 * took than in the run that has given the step times so far, and how many more far bytes they had. */
static void add_far(collector *c, const mm_measured *m, const int64_t *miss_bytes, const totals *t, const row *r) {
    double farther = 0, longer = 0;
    if (c->cache_bytes == 0 || t->codecs + t->link > 0 || c->steps_from < COLLECT_ALONE) return;
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node *node = &m->plan->nodes[i];
        int64_t before = mm_simulate_step_ns(c->facts, node) - (node->step == 0 ? c->beyond_ns : 0);
        farther += (double)(miss_bytes[i] - c->miss_bytes[node->step]);
        longer += (double)(typical_ns(m, i, r) - before);
    }
    c->miss_squared += farther * farther;
    c->miss_longer += farther * longer;
}

static void add_steps(collector *c, const mm_measured *m, const int64_t *miss_bytes, const totals *t, const row *r) {
    bool alone = t->codecs + t->link == 0;
    collect_rank rank = !alone ? COLLECT_BESIDE : strcmp(r->policy, "liveness") == 0 ? COLLECT_LIVENESS : COLLECT_ALONE;
    if (rank < c->steps_from) return;
    c->steps_from = rank;
    c->alone_ns = alone ? t->compute : 0;
    c->alone_miss_bytes = t->miss_bytes;
    mm_measured_steps(m, typical_part(r), false, c->facts);
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node *node = &m->plan->nodes[i];
        if (node->kind == MM_NODE_STEP) c->miss_bytes[node->step] = miss_bytes[i];
    }
    int64_t beyond = (int64_t)(r->iteration_seconds_median * 1e9) - t->compute - t->again;
    c->beyond_ns = alone && beyond > 0 ? beyond : 0;
    c->facts->variants[c->facts->variant_first[0]].ns += c->beyond_ns;
}

/* Adds a run with side streams to the fit of contention. The time for which the computation waited is subtracted from
 * the time of codecs and copies, because they did not run beside the computation then. */
static void add_contention(collector *c, const totals *t, const row *r) {
    double side = (double)(t->codecs + t->link);
    double held_up = r->iteration_seconds_median * 1e9 - (double)(t->compute + t->again + c->beyond_ns);
    double beside = side > held_up ? side - (held_up > 0 ? held_up : 0) : 0;
    if (side <= 0 || c->alone_ns == 0) return;
    if (beside > (double)t->compute) beside = (double)t->compute;
    double codecs = beside * (double)t->codecs / side, link = beside * (double)t->link / side;
    double longer = (double)(t->compute - c->alone_ns), farther = (double)(t->miss_bytes - c->alone_miss_bytes);
    c->contention.cc += codecs * codecs;
    c->contention.cl += codecs * link;
    c->contention.ll += link * link;
    c->contention.cy += codecs * longer;
    c->contention.ly += link * longer;
    c->contention.cf += codecs * farther;
    c->contention.lf += link * farther;
}

static void add_run(collector *c, const mm_measured *measured, const int64_t *miss_bytes, const row *r) {
    const mm_measured m = *measured;
    totals t = add_up(&m, miss_bytes, r);
    add_far(c, &m, miss_bytes, &t, r);
    add_steps(c, &m, miss_bytes, &t, r);
    add_contention(c, &t, r);
    mm_measured_operations(&m, typical_part(r), c->facts, c->copies);
}

mm_status collector_add(collector *c, session *s, const row *r) {
    mm_measured m;
    MM_TRY(mm_measured_get(s->manager, nets_exec_lowered(s->train)->graph, &m));
    if (c->variants_only) {
        mm_measured_steps(&m, typical_part(r), true, c->facts);
        return MM_OK;
    }
    int64_t *miss_bytes = calloc((size_t)m.plan->n_nodes + 1, sizeof *miss_bytes);
    if (!miss_bytes) return mm_fail(MM_ERR_NOMEM, "out of memory for facts");
    mm_status status = c->cache_bytes > 0 ? mm_cache_miss_bytes(m.plan, c->cache_bytes, miss_bytes) : MM_OK;
    if (status == MM_OK) add_run(c, &m, miss_bytes, r);
    free(miss_bytes);
    return status;
}

/* ---------------------------------------------------------------- variants */

/* Whether a step with several variants has no time yet for variant `variant`, or for its last one if it has fewer. */
static bool lacks(const collector *c, int variant) {
    for (int s = 0; s < c->facts->n_steps; s++) {
        const int first = c->facts->variant_first[s], last = c->facts->variant_first[s + 1] - 1;
        const int v = first + variant < last ? first + variant : last;
        if (last > first && c->facts->variants[v].ns == 0) return true;
    }
    return false;
}

mm_status collector_measure_variants(collector *c, collect_run run, void *ctx) {
    static const char *const POLICIES[NETS_WORKSPACES] = {"liveness", "liveness:algorithms=1", "liveness:algorithms=2",
                                                          "liveness:algorithms=3"};
    mm_status status = MM_OK;
    c->variants_only = true;
    for (int i = 0; status == MM_OK && i < NETS_WORKSPACES; i++)
        if (lacks(c, i)) status = run(ctx, POLICIES[i], c);
    c->variants_only = false;
    return status;
}

/* ---------------------------------------------------------------- computing the facts */

/* As permille, at most MM_CONTENTION_MOST: on a disturbed machine the measured slowdown can be arbitrarily large. */
static int permille(double part) {
    double permille = 1000 * part;
    return permille > MM_CONTENTION_MOST ? MM_CONTENTION_MOST : permille > 0 ? (int)permille : 0;
}

/* The additional time of a far byte, in ns; 0 if the runs do not show any. */
static double far_ns(const collector *c) {
    double most = 1e-3 * MM_FAR_PS_MOST, far = c->miss_longer > 0 ? c->miss_longer / c->miss_squared : 0;
    return far < most ? far : most;
}

/* Subtracts the time of far bytes from the steps' times, for all variants alike. At least half of a step's time stays;
 * chosen. */
static void take_far_off(const collector *c, double far, mm_graph_facts *facts) {
    for (int s = 0; s < facts->n_steps; s++)
        for (int v = facts->variant_first[s]; v < facts->variant_first[s + 1]; v++) {
            int64_t *ns = &facts->variants[v].ns, off = (int64_t)((double)c->miss_bytes[s] * far);
            *ns -= off < *ns / 2 ? off : *ns / 2;
        }
    facts->cache_bytes = c->cache_bytes;
    facts->far_ps_per_byte = (int64_t)(1000 * far);
}

/* Computes the two contention factors, of codecs and of the link, by least squares, neither below zero. If one would be
 * below zero, or if both loads always occur together (a relative determinant below 1e-6), one of the factors gets the
 * whole slowdown. */
static void find_contention(const collect_contention *sums, double far, int *codecs_out, int *link_out) {
    collect_contention less = *sums, *s = &less;
    less.cy -= far * less.cf;
    less.ly -= far * less.lf;
    double determinant = s->cc * s->ll - s->cl * s->cl, codecs = 0, link = 0;
    if (determinant > 1e-6 * s->cc * s->ll) {
        codecs = (s->cy * s->ll - s->ly * s->cl) / determinant;
        link = (s->ly * s->cc - s->cy * s->cl) / determinant;
    }
    if (determinant <= 1e-6 * s->cc * s->ll || codecs < 0 || link < 0) { /* give one of them the whole slowdown */
        codecs = s->cc > 0 && (link <= 0 || s->ll == 0) ? s->cy / s->cc : 0;
        link = s->ll > 0 && codecs <= 0 ? s->ly / s->ll : 0;
    }
    *codecs_out = permille(codecs);
    *link_out = permille(link);
}

/* The rate with both directions busy, limited to what facts may contain: at most the rate alone, and above a tenth of
 * it. */
static int64_t shared_rate(int64_t both, int64_t alone) {
    int64_t least = alone / 10 + 1;
    return alone > 0 && both > alone ? alone : both < least ? least : both;
}

/* Measures the pairs, unless the device cannot compute the work. */
static mm_status measure_pairs(collector *c, const target *target) {
    mm_device *device;
    const mm_codec *codec = NULL;
    for (int i = 0; i < MM_MAX_CODECS && c->codecs[i] && !codec; i++)
        if (device_pairs_takes(c->codecs[i])) codec = c->codecs[i];
    MM_TRY(mm_device_create(target->device, &(mm_device_config){.timed = true}, &device));
    mm_status status = device_pairs_measure(device, target->backend, codec, DEVICE_PAIRS_IMAGES, &c->pairs);
    mm_device_destroy(device);
    c->has_pairs = status == MM_OK;
    return status == MM_ERR_UNSUPPORTED ? MM_OK : status;
}

mm_status collector_measure_device(collector *c, const target *target) {
    mm_device *device;
    device_speed speed = {0};
    const mm_device_config config = {.link_out_bytes_per_s = target->link_bytes_per_s,
                                     .link_in_bytes_per_s = target->link_bytes_per_s};
    MM_TRY(mm_device_create(target->device, &config, &device));
    mm_status status = device_speed_link(device, &speed);
    mm_device_destroy(device);
    c->both_bytes_per_s = speed.both;
    return status == MM_OK && !target_is_host(target->device) ? measure_pairs(c, target) : status;
}

/* Sets the facts' contention of each pair: as measured, else as the facts' two contention_permille say. */
static void put_pairs(const device_pairs *pairs, mm_graph_facts *facts) {
    mm_contention found = {.known = true};
    facts->contention.known = false; /* so that mm_facts_contention uses the two numbers */
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++) {
            const int measured = pairs->permille[of][beside];
            found.permille[of][beside] =
                measured == DEVICE_PAIRS_UNKNOWN ? mm_facts_contention(facts, of, beside) : measured;
        }
    facts->contention = found;
}

static void conclude(const collector *c, mm_graph_facts *facts) {
    double far = far_ns(c);
    take_far_off(c, far, facts);
    facts->threads = c->threads;
    mm_measured_link(c->copies, facts);
    if (c->both_bytes_per_s > 0) {
        facts->out_both_bytes_per_s = shared_rate(c->both_bytes_per_s, facts->out_bytes_per_s);
        facts->in_both_bytes_per_s = shared_rate(c->both_bytes_per_s, facts->in_bytes_per_s);
    }
    find_contention(&c->contention, far, &facts->contention_permille, &facts->link_contention_permille);
    if (c->has_pairs) put_pairs(&c->pairs, facts);
}

mm_status collector_fill(const void *ctx, const mm_graph *graph, mm_graph_facts *facts) {
    const collector *c = ctx;
    MM_TRY(mm_graph_facts_merge(c->facts, graph, MM_FACTS_TIMES, facts));
    conclude(c, facts);
    return MM_OK;
}

mm_status collector_save(const collector *c, const char *path) {
    if (c->steps_from != COLLECT_NONE) conclude(c, c->facts); /* else facts came whole, from a file */
    return mm_facts_write(c->facts, c->lowered->graph, path);
}
