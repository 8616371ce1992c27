/* SPDX-License-Identifier: MIT */
#include "mm/manager/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/manager/sampled.h"
#include "mm/manager/states.h"
#include "mm/manager/values.h"

enum { MEASURES = 3 }; /* measures per layer: of its input, the gradient of its output, and the momentum */

/* ---------------------------------------------------------------- making */

/* The node that encodes the tensor with a bound that is read at run time; -1: none does. */
static int encode_of(const mm_planned *planned, mm_tensor root) {
    const mm_plan *plan = planned->plan;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind == MM_NODE_ENCODE && node->tensor == root &&
            planned->codecs[plan->segments[node->dst].codec]->flags.reads_bound)
            return i;
    }
    return -1;
}

/* Keeps, of the layers to watch, those whose input has a code with a bound that is read at run time. */
static void keep_coded(const mm_planned *planned, mm_sampling *s) {
    int kept = 0;
    for (int i = 0; i < s->n; i++) {
        s->coded[kept] = mm_plan_root(planned->plan, s->watched[i].map);
        if (encode_of(planned, s->coded[kept]) >= 0) s->watched[kept++] = s->watched[i];
    }
    s->n = kept;
}

static int node_of(const mm_plan *plan, int step) {
    int node = 0;
    while (plan->nodes[node].kind != MM_NODE_STEP || plan->nodes[node].step != step) node++;
    return node;
}

/* Measures the tensor right before the step, in the segment in which the step finds it. */
static mm_measure_at before_step(const mm_plan *plan, int step, mm_tensor tensor) {
    const mm_step_info *info = mm_graph_step(plan->graph, step);
    mm_measure_at at = {.before = node_of(plan, step)};
    int u = 0;
    while (info->uses[u].tensor != tensor) u++;
    at.segment = plan->bindings[plan->nodes[at.before].first_binding + u];
    return at;
}

static mm_status make_plan(const mm_manager *m, const mm_prepared *p, mm_sampling *s) {
    const mm_plan *plan = p->planned.plan;
    mm_measure_at *at = malloc(((size_t)s->n + 1) * MEASURES * sizeof *at);
    mm_place *places = NULL;
    mm_limits ignored = {0};
    if (!at) return mm_fail(MM_ERR_NOMEM, "out of memory for %d layers that are sampled", s->n);
    for (int i = 0; i < s->n; i++) {
        const mm_watched *w = &s->watched[i];
        const int *step = mm_graph_layer(p->graph, w->layer)->step;
        at[MEASURES * i] = before_step(plan, step[MM_FORWARD], w->map);
        at[MEASURES * i + 1] = before_step(plan, step[MM_BACKWARD], w->gradient);
        at[MEASURES * i + 2] = (mm_measure_at){plan->n_nodes, mm_graph_tensor(p->graph, w->momentum)->persistent};
    }
    mm_status status = mm_persistent_table_places(&m->persistents, &(mm_homes){0}, p->graph, &ignored, &places);
    if (status == MM_OK) status = mm_planned_add_measures(&p->planned, places, at, MEASURES * s->n, &s->planned);
    free(places);
    free(at);
    return status;
}

static mm_status fill(const mm_manager *m, const mm_prepared *p, mm_sampling *s) {
    const size_t layers = (size_t)mm_graph_layers(p->graph) + 1;
    s->watched = malloc(layers * sizeof *s->watched);
    s->coded = malloc(layers * sizeof *s->coded);
    s->samples = calloc(layers, sizeof *s->samples);
    s->verdicts = calloc(layers, sizeof *s->verdicts);
    if (!s->watched || !s->coded || !s->samples || !s->verdicts)
        return mm_fail(MM_ERR_NOMEM, "out of memory for sampling %s", mm_graph_name(p->graph));
    s->n = s->observer->watch(p->graph, s->watched);
    keep_coded(&p->planned, s);
    if (s->n == 0) return MM_OK;
    MM_TRY(make_plan(m, p, s));
    MM_TRY(mm_execution_create(m->dispatch, s->planned.program, p->planned.facts, p->planned.codecs, &s->execution));
    mm_execution_set_block(s->execution, (uint8_t *)mm_pool_base(m->pool) + p->planned.block_offset);
    return MM_OK;
}

mm_status mm_sampling_create(const mm_manager *m, const mm_policy *policy, mm_ready *r) {
    if (!policy->ops->observer) return MM_OK;
    mm_sampling *s = calloc(1, sizeof *s);
    if (!s) return mm_fail(MM_ERR_NOMEM, "out of memory for sampling %s", mm_graph_name(r->prepared->graph));
    s->observer = policy->ops->observer;
    s->config = policy->config.comet;
    mm_status status = fill(m, r->prepared, s);
    if (status == MM_OK && s->n > 0)
        r->sampling = s;
    else
        mm_sampling_destroy(s);
    return status;
}

void mm_sampling_destroy(mm_sampling *s) {
    if (!s) return;
    mm_execution_destroy(s->execution);
    mm_planned_fini(&s->planned);
    free(s->watched);
    free(s->coded);
    free(s->samples);
    free(s->verdicts);
    free(s);
}

/* ---------------------------------------------------------------- iterations */

bool mm_sampling_is_due(const mm_ready *r) {
    return r->sampling && (r->sampled_age < 0 || r->sampled_age >= r->sampling->config.every);
}

/* If several layers read a map, its bound is the least of the bounds that the policy chose for these layers. */
void mm_sampling_judge(mm_ready *r) {
    mm_sampling *s = r->sampling;
    if (!s || !s->pending) return;
    s->pending = false;
    for (int i = 0; i < s->n; i++)
        s->verdicts[i] = s->observer->observe(&s->config, &s->samples[i], r->bounds[s->coded[i]]);
    for (int i = 0; i < s->n; i++) r->bounds[s->coded[i]] = FLT_MAX;
    for (int i = 0; i < s->n; i++) r->bounds[s->coded[i]] = fminf(r->bounds[s->coded[i]], s->verdicts[i].bound);
}

static void take(mm_sampling *s, int layer) {
    const mm_watched *w = &s->watched[layer];
    const mm_graph *graph = s->planned.plan->graph;
    const mm_tensor_info *gradient = mm_graph_tensor(graph, w->gradient);
    mm_sums map = {0}, g = {0}, momentum = {0};
    mm_execution_sums(s->execution, w->map, &map);
    mm_execution_sums(s->execution, w->gradient, &g);
    mm_execution_sums(s->execution, w->momentum, &momentum);
    const double elems = sizeof(float);
    s->samples[layer] = (mm_layer_sample){
        .nonzero_share = map.nonzero * elems / (double)mm_graph_tensor(graph, w->map)->bytes,
        .map_max = map.max_abs,
        .gradient_mean = g.sum_abs * elems / (double)gradient->bytes,
        .gradient_max = g.max_abs,
        .gradient_sum2 = g.sum_squares,
        .momentum_mean = momentum.sum_abs * elems / (double)mm_graph_tensor(graph, w->momentum)->bytes,
        .coverage = w->coverage,
        .batch = gradient->dims[0],
        .channels = gradient->dims[gradient->rank - 1],
        .measured_sigma = -1};
}

void mm_sampling_note_end(mm_ready *r, bool sampled) {
    if (r->sampled_age >= 0) r->sampled_age++;
    if (!sampled) return;
    for (int i = 0; i < r->sampling->n; i++) take(r->sampling, i);
    r->sampling->pending = true;
    r->sampled_age = 1;
}

/* ---------------------------------------------------------------- what the caller adds and asks */

bool mm_sampling_guards(const mm_manager *m, const mm_graph *graph) {
    const mm_ready *r = m ? mm_manager_find(m, graph) : NULL;
    return r && mm_sampling_is_due(r) && r->sampled_age >= 0 && r->sampling->config.guard;
}

static mm_status find(const mm_manager *m, const mm_graph *graph, const char *call, mm_ready **ready_out) {
    MM_TRY(mm_manager_check_idle(m, call));
    *ready_out = mm_manager_find(m, graph);
    return *ready_out ? MM_OK : mm_fail(MM_ERR_NOT_FOUND, "%s: the graph was not prepared", call);
}

static mm_status find_sampling(const mm_manager *m, const mm_graph *graph, const char *call, mm_ready **ready_out) {
    MM_TRY(find(m, graph, call, ready_out));
    if ((*ready_out)->sampling) return MM_OK;
    return mm_fail(MM_ERR_NOT_FOUND, "%s: the policy samples nothing of %s", call, mm_graph_name(graph));
}

mm_status mm_sampling_report(mm_manager *m, const mm_graph *graph, mm_tensor weight, double sigma) {
    mm_ready *r;
    MM_TRY(find_sampling(m, graph, "mm_sampling_report", &r));
    mm_sampling *s = r->sampling;
    if (!s->pending) return mm_fail(MM_ERR_ORDER, "mm_sampling_report: the last iteration of the graph did not sample");
    for (int i = 0; i < s->n; i++) {
        if (s->watched[i].weight != weight) continue;
        s->samples[i].measured_sigma = sigma;
        return MM_OK;
    }
    return mm_fail(MM_ERR_NOT_FOUND, "mm_sampling_report: tensor %d is no weight of a layer that is sampled", weight);
}

mm_status mm_sampled_get(mm_manager *m, const mm_graph *graph, mm_sampled *sampled_out) {
    mm_ready *r;
    MM_TRY(find_sampling(m, graph, "mm_sampled_get", &r));
    mm_sampling_judge(r);
    const mm_sampling *s = r->sampling;
    *sampled_out = (mm_sampled){.n = s->n,
                                .watched = s->watched,
                                .coded = s->coded,
                                .samples = s->samples,
                                .verdicts = s->verdicts,
                                .bounds = r->bounds,
                                .config = s->config};
    return MM_OK;
}

mm_status mm_sampling_age(mm_manager *m, const mm_graph *graph, int64_t *age_out) {
    mm_ready *r;
    MM_TRY(find(m, graph, "mm_sampling_age", &r));
    mm_sampling_judge(r);
    *age_out = r->sampled_age;
    return MM_OK;
}

mm_status mm_sampling_age_set(mm_manager *m, const mm_graph *graph, int64_t age) {
    mm_ready *r;
    MM_TRY(find(m, graph, "mm_sampling_age_set", &r));
    if (age < -1) return mm_fail(MM_ERR_INVALID, "mm_sampling_age_set: %lld: must be -1 or more", (long long)age);
    if (r->sampling) r->sampling->pending = false;
    r->sampled_age = age;
    return MM_OK;
}
