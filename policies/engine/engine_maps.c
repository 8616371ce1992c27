/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine_maps.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"
#include "policies/engine/recompute.h"
#include "policies/rules/rules.h"

/* Whether any of the layers that read a tensor in the forward pass is named. */
static bool is_reader_named(const mm_schedule *s, const uint8_t *named, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    for (int i = info->first_use; i <= info->last_forward; i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int u = 0; named[step->layer] && u < step->n_uses; u++)
            if (step->uses[u].tensor == tensor && step->uses[u].access == MM_READ) return true;
    }
    return false;
}

/* Whether a layer is named whose output lies in the tensor's storage. All tensors written there in place count: of
 * conv -> bn -> relu in one storage, the ReLU's output is a convolution's output too. */
static bool is_maker_named(const mm_schedule *s, const uint8_t *named, mm_tensor tensor) {
    for (; tensor >= 0; tensor = s->tensors[tensor].over)
        if (named[mm_graph_tensor(s->graph, tensor)->producer]) return true;
    return false;
}

/* Finds the forms of a tensor and of its aliases that the backward pass reads, and the last reader of elements. */
static void backward_reads(const mm_schedule *s, mm_map *m) {
    m->last_value = -1;
    for (int i = m->first_backward; i <= s->tensors[m->tensor].last_step; i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int u = 0; u < step->n_uses; u++) {
            if (s->plan->alias[step->uses[u].tensor] != m->tensor) continue;
            m->value |= step->uses[u].form == MM_FORM_VALUE;
            m->sign |= step->uses[u].form == MM_FORM_SIGN;
            if (step->uses[u].form == MM_FORM_VALUE) m->last_value = i;
        }
    }
}

/* Whether the codec can encode the tensor, and gives back elements that the tensor's readers accept. */
static bool codes_value(const mm_schedule *s, int codec, mm_tensor tensor) {
    if (codec < 0 || !s->facts->codecs[codec].gives_value) return false;
    if (mm_facts_code(s->facts, codec, tensor)->code_bytes < 0) return false;
    return s->facts->codecs[codec].lossless || mm_tensor_takes_loss(mm_graph_tensor(s->graph, tensor));
}

static bool takes(const mm_facts *facts, int codec, mm_tensor tensor) {
    return codec >= 0 && mm_facts_code(facts, codec, tensor)->code_bytes >= 0;
}

/* The index of a step's use of a tensor; -1: it does not use it. */
static int use_of(const mm_step_info *step, mm_tensor tensor) {
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) return u;
    return -1;
}

/* Whether a step can read or write the codec's code of the tensor by itself. */
static bool codes(const mm_schedule *s, int step, mm_tensor tensor, mm_access access, int codec) {
    const mm_step_info *info = mm_graph_step(s->graph, step);
    const int use = use_of(info, tensor);
    return use >= 0 && codec >= 0 && mm_step_code_of(s->facts, info, use, access, codec, tensor);
}

/* Whether all backward steps that read the map's elements can read its code. */
static bool readers_code(const mm_schedule *s, const mm_map *m) {
    for (int i = m->first_backward; i <= s->tensors[m->tensor].last_step; i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int u = 0; u < step->n_uses; u++) {
            if (s->plan->alias[step->uses[u].tensor] != m->tensor) continue;
            if (step->uses[u].form == MM_FORM_SIGN && m->sign) continue; /* it reads the mask */
            if (step->uses[u].form == MM_FORM_SIGN || !codes(s, i, m->tensor, MM_READ, m->codec)) return false;
        }
    }
    return true;
}

/* Decides which of the map's codes the steps themselves write and read. */
static void choose_coding(const mm_schedule *s, const mm_engine_config *config, mm_map *m) {
    if (config->coding != MM_CODES_IN_STEP || config->codes == MM_REGION_HEAP || m->action != MM_ACTION_CODE) return;
    const int producer = mm_schedule_producer(s->graph, m->tensor);
    m->in_step = m->value && codes(s, m->last_forward, m->tensor, MM_WRITE, m->codec) && readers_code(s, m);
    m->mask_in_step =
        m->sign && producer >= 0 && codes(s, producer, m->tensor, MM_WRITE, mm_facts_codec(s->facts, mm_mask_spec));
}

/* Whether each term of a rule's selector names the map. */
static bool is_named(const mm_schedule *s, const mm_survey *survey, const mm_selector *selector, int rule,
                     mm_tensor tensor) {
    const size_t layers = (size_t)mm_graph_layers(s->graph);
    const uint8_t *named = survey->named + (size_t)rule * MM_SELECTOR_TERMS * layers;
    for (int t = 0; t < selector->n_terms; t++, named += layers)
        if (!(selector->terms[t].reads ? is_reader_named : is_maker_named)(s, named, tensor)) return false;
    return true;
}

/* Chooses what a swap leaves and brings back. A copy comes back exactly, so it serves readers of signs, too. But with a
 * lean rule the elements stay no longer than they are read, so a mask serves readers of signs; and if signs alone are
 * read, nothing is copied. */
static void choose_swap(const mm_schedule *s, const mm_rule *rule, mm_map *m) {
    const int mask = mm_facts_codec(s->facts, mm_mask_spec);
    m->lean = rule->lean;
    if (!m->lean || !m->sign || !takes(s->facts, mask, m->tensor)) {
        mm_maps_read_signs_from_value(s, m);
    } else if (m->value) {
        m->sign = false;
        m->late = true;
    } else {
        m->action = MM_ACTION_CODE;
        m->codec = mask;
    }
}

/* Fills in how the rule evicts the map. False: the rule cannot serve the map, and the next one is tried. */
static bool choose_mode(const mm_schedule *s, mm_maps *maps, const mm_engine_config *config, const mm_rule *rule,
                        mm_map *m) {
    int mask = mm_facts_codec(s->facts, mm_mask_spec);
    m->action = rule->action;
    if (rule->action == MM_ACTION_RECOMPUTE) {
        const mm_layer producer = mm_graph_tensor(s->graph, m->tensor)->producer;
        m->expensive = mm_selector_has_kind(&rule->selector, mm_graph_layer(s->graph, producer)->kind);
        return mm_recompute_choose(s, maps, config->recompute, m);
    }
    m->codec = -1;
    if (rule->action == MM_ACTION_SWAP) {
        choose_swap(s, rule, m);
        return true;
    }
    m->codec = mm_facts_codec(s->facts, rule->codec);
    const bool whole = config->signs_whole && rule->action == MM_ACTION_CODE_SWAP;
    if (m->value && !codes_value(s, m->codec, m->tensor)) return false;
    if (m->sign && (m->value || (whole && codes_value(s, m->codec, m->tensor))) && s->facts->codecs[m->codec].lossless)
        mm_maps_read_signs_from_value(s, m);
    return !m->sign || takes(s->facts, mask, m->tensor);
}

/* Whether recomputation keeps the map, and makes others from it. */
static bool is_checkpoint(const mm_maps *maps, mm_tensor tensor) {
    if (maps->assigned) return false;
    return maps->level ? maps->level[tensor] == 0 : maps->survey->kept[tensor];
}

/* Inputs and saved tensors of at most so many bytes stay: tensors this small are mostly statistics (8 KiB: those of
 * 2048 channels). There are many of them, and a copy of each would take too much time. Chosen. */
enum { SMALL_BYTES = 8 << 10 };

/* Whether the rule may act on the tensor, by its kind and size. */
static bool is_for(const mm_rule *rule, const mm_tensor_info *info) {
    if (info->kind == MM_FEATURE_MAP) return true;
    return rule->lean && (info->kind == MM_INPUT || info->kind == MM_SAVED) && info->bytes > SMALL_BYTES;
}

static bool is_eligible(const mm_schedule *s, mm_maps *maps, const mm_engine_config *config, mm_tensor tensor,
                        mm_map *m) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    if (info->ownership != MM_MANAGED) return false;
    if (s->plan->alias[tensor] != tensor || info->writes != 1) return false;
    if (info->last_forward < 0 || info->first_backward <= info->last_forward) return false;
    mm_map found = {.tensor = tensor,
                    .last_forward = info->last_forward,
                    .first_backward = info->first_backward,
                    .needed = info->first_backward};
    backward_reads(s, &found);
    for (int r = 0; r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        if (!is_for(rule, info)) continue;
        if (maps->assigned ? maps->assigned->rule[tensor] != r : !is_named(s, maps->survey, &rule->selector, r, tensor))
            continue;
        if (rule->action == MM_ACTION_KEEP) return false;
        *m = found;
        m->rule = r;
        if (maps->level) m->level = maps->level[tensor];
        if (rule->action == MM_ACTION_RECOMPUTE && is_checkpoint(maps, tensor)) continue;
        if (!choose_mode(s, maps, config, rule, m)) continue;
        choose_coding(s, config, m);
        return true;
    }
    return false;
}

static int by_key(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void order_fetches(mm_maps *maps) {
    for (int i = 0; i < maps->n_queue; i++) {
        int index = (int)(maps->keys[i] & INT32_MAX);
        if (index == INT32_MAX) continue;
        const mm_map *m = &maps->maps[index];
        const bool timed = maps->assigned && maps->assigned->fetch;
        maps->keys[i] = (int64_t)(timed ? mm_maps_fetch_step(maps, m) : m->needed) << 32 | index;
    }
    qsort(maps->keys, (size_t)maps->n_queue, sizeof *maps->keys, by_key);
    for (int i = 0; i < maps->n_queue; i++) {
        int index = (int)(maps->keys[i] & INT32_MAX);
        maps->queue[i] = index == INT32_MAX ? -1 : index;
    }
}

/* Adds the map to the queue of fetches. Kept maps are in it too, so that fetches run ahead just as far as if all maps
 * were evicted. */
static void queue_up(mm_maps *maps, const mm_map *m, bool kept) {
    if (!m->value || m->in_step || m->action == MM_ACTION_RECOMPUTE) return;
    maps->keys[maps->n_queue++] = ((int64_t)m->first_backward << 32) | (kept ? INT32_MAX : maps->n - 1);
    if (kept) maps->ended[m->last_value]++;
}

/* Whether the index-th of n things is picked, if `limit` are picked and spread evenly. */
static bool is_picked(int64_t index, int64_t limit, int64_t n) { return (index + 1) * limit / n > index * limit / n; }

/* Whether the selection has the map. before: has the counts of eligible maps before this one. */
static bool is_selected(const mm_selection *selection, const mm_map *m, const mm_maps *before) {
    if (selection->assigned) return true;
    if (selection->of == 0) return before->eligible < selection->limit;
    if (!selection->of_rule) return is_picked(before->eligible, selection->limit, selection->of);
    int limit = selection->limit, n = selection->of_rule[m->rule];
    for (int r = 0; r < m->rule; r++) limit -= selection->of_rule[r];
    if (limit <= 0 || limit >= n) return limit > 0;
    /* Recomputation does not overlap with the computation, so the maps need not be spread evenly: dropping whole
     * segments is better. */
    if (m->action == MM_ACTION_RECOMPUTE) return before->of_rule[m->rule] < limit;
    return is_picked(before->of_rule[m->rule], limit, n);
}

/* The recomputed map with which a saved tensor (a pool's index map) is made again, because one step writes both, so
 * that the tensor need not be kept; -1: none. A tensor that the step may read when it runs again (mm_graph_allow_given)
 * is kept. */
static int comes_along(const mm_schedule *s, const mm_maps *maps, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    if (info->kind != MM_SAVED || info->ownership != MM_MANAGED || info->writes != 1) return -1;
    if (s->plan->alias[tensor] != tensor || info->first_backward <= info->last_forward) return -1;
    int producer = mm_schedule_producer(s->graph, tensor);
    if (producer < 0 || info->last_forward != producer) return -1;
    const mm_step_info *step = mm_graph_step(s->graph, producer);
    int with = -1;
    for (int u = 0; u < step->n_uses; u++) {
        if (step->uses[u].access != MM_WRITE) continue;
        if (step->uses[u].tensor == tensor && u < MM_GIVEN_USES && step->given >> u & 1) return -1;
        int other = maps->map_of[step->uses[u].tensor];
        if (other >= 0 && maps->maps[other].action == MM_ACTION_RECOMPUTE && maps->maps[other].exact) with = other;
    }
    return with;
}

static void add_along(mm_maps *maps, const mm_schedule *s, mm_tensor tensor, int with) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    maps->maps[maps->n] = (mm_map){.tensor = tensor,
                                   .action = MM_ACTION_RECOMPUTE,
                                   .codec = -1,
                                   .last_forward = info->last_forward,
                                   .first_backward = info->first_backward,
                                   .needed = info->first_backward,
                                   .last_value = s->tensors[tensor].last_step,
                                   .value = true,
                                   .exact = true,
                                   .along = true,
                                   .level = maps->maps[with].level,
                                   .segment = maps->n};
    maps->map_of[tensor] = maps->n++;
}

/* Decides about one tensor. Tensors come in order of first use, so what a map is made from is decided before it. */
static void choose_one(mm_maps *maps, mm_schedule *s, const mm_engine_config *config, const mm_selection *selection,
                       mm_tensor t) {
    mm_map *m = &maps->maps[maps->n];
    const int with = comes_along(s, maps, t);
    if (with >= 0) {
        add_along(maps, s, t, with);
        return;
    }
    if (!is_eligible(s, maps, config, t, m)) return;
    bool kept = !is_selected(selection, m, maps);
    maps->eligible++;
    maps->of_rule[m->rule]++;
    if (!kept) maps->map_of[t] = maps->n++;
    queue_up(maps, m, kept);
    if (kept) return;
    if (m->action == MM_ACTION_RECOMPUTE) {
        mm_recompute_join(s, maps, maps->n - 1);
        return;
    }
    /* All tensors over which the map is written in place lie in its tensor buffer. Heap maps are written over none:
     * each is an allocation of its own. Lean maps, which may be small, do not pass through the tensor buffers, nor do
     * maps of which only steps, and no codec beside them, read and write the elements. */
    if (m->lean || m->in_step || (!m->value && m->mask_in_step)) return;
    if (config->buffers == MM_REGION_HEAP) mm_schedule_split(s, t);
    for (mm_tensor part = t; part >= 0; part = s->tensors[part].over) maps->region_of[part] = (uint8_t)config->buffers;
}

/* Whether a gradient map may be moved out: a lean rule is assigned to it, or names it and all maps are selected. The
 * latter does not count in nested recomputation, where every choice selects all maps. */
static bool gradient_leaves(const mm_schedule *s, const mm_maps *maps, const mm_engine_config *config,
                            const mm_selection *selection, mm_tensor t) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, t);
    if (info->kind != MM_GRADIENT_MAP || info->ownership != MM_MANAGED || info->bytes <= SMALL_BYTES) return false;
    for (int r = 0; r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        if (maps->assigned ? maps->assigned->rule[t] != r : !is_named(s, maps->survey, &rule->selector, r, t)) continue;
        return rule->action == MM_ACTION_SWAP && rule->lean &&
               (maps->assigned || (selection->limit == INT32_MAX && !maps->level));
    }
    return false;
}

static void choose(mm_maps *maps, mm_schedule *s, const mm_engine_config *config, const mm_selection *selection) {
    int n = mm_graph_tensors(s->graph);
    for (int t = 0; t < n; t++) maps->map_of[t] = -1;
    for (int i = 0; i < n; i++) choose_one(maps, s, config, selection, maps->survey->order[i]);
    for (int t = 0; t < n; t++) maps->leaves[t] = gradient_leaves(s, maps, config, selection, t);
    /* No tensor is written in place over a map that is acted on: in the backward pass its elements lie elsewhere, or
     * only its mask is there. */
    for (int t = 0; t < n; t++)
        if (s->tensors[t].over >= 0 && maps->map_of[s->tensors[t].over] >= 0) mm_schedule_split(s, t);
    mm_recompute_choose_retaining(s, maps, config->recompute);
    order_fetches(maps);
}

mm_status mm_maps_init(mm_maps *maps, const mm_survey *survey, mm_schedule *s, const mm_engine_config *config,
                       const mm_selection *selection) {
    size_t n = (size_t)mm_graph_tensors(s->graph) + 1;
    *maps = (mm_maps){.survey = survey,
                      .maps = malloc(n * sizeof *maps->maps),
                      .map_of = malloc(n * sizeof *maps->map_of),
                      .queue = malloc(n * sizeof *maps->queue),
                      .keys = malloc(n * sizeof *maps->keys),
                      .ended = calloc((size_t)mm_graph_steps(s->graph) + 1, sizeof *maps->ended),
                      .region_of = calloc(n, sizeof *maps->region_of),
                      .leaves = calloc(n, sizeof *maps->leaves),
                      .mark = calloc(n, sizeof *maps->mark),
                      .met = malloc(n * sizeof *maps->met),
                      .of_rule = calloc((size_t)config->n_rules + 1, sizeof *maps->of_rule)};
    if (!maps->maps || !maps->map_of || !maps->queue || !maps->keys || !maps->ended || !maps->region_of ||
        !maps->leaves || !maps->mark || !maps->met || !maps->of_rule) {
        mm_maps_fini(maps);
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    }
    maps->assigned = selection->assigned;
    if (maps->assigned) {
        maps->level = maps->assigned->level;
        maps->cut = maps->assigned->cut;
    } else if (mm_survey_nestings(survey) > 0) {
        maps->level = mm_nesting_levels(&survey->nesting, selection->nesting);
        maps->cut = mm_nesting_cuts(&survey->nesting, selection->nesting);
    }
    choose(maps, s, config, selection);
    return MM_OK;
}

void mm_maps_fini(mm_maps *maps) {
    free(maps->maps);
    free(maps->map_of);
    free(maps->queue);
    free(maps->keys);
    free(maps->ended);
    free(maps->region_of);
    free(maps->leaves);
    free(maps->mark);
    free(maps->met);
    free(maps->of_rule);
    memset(maps, 0, sizeof *maps);
}

/* ---------------------------------------------------------------- the survey */

static mm_status order_tensors(mm_survey *survey) {
    int n = mm_graph_tensors(survey->graph);
    int64_t *keys = malloc(((size_t)n + 1) * sizeof *keys);
    if (!keys) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(survey->graph));
    for (int t = 0; t < n; t++) keys[t] = ((int64_t)mm_graph_tensor(survey->graph, t)->first_use << 32) | t;
    qsort(keys, (size_t)n, sizeof *keys, by_key);
    for (int i = 0; i < n; i++) survey->order[i] = (mm_tensor)(keys[i] & INT32_MAX);
    free(keys);
    return MM_OK;
}

/* Most choices of RECOMPUTE_NESTED; chosen as LIMITS of budget_search.c is. */
enum { NESTINGS = 32 };

static mm_status look_around(mm_survey *survey, const mm_engine_config *config) {
    mm_schedule s;
    const mm_recompute_mode mode = config->recompute;
    for (int r = 0; r < config->n_rules; r++)
        MM_TRY(
            mm_selector_find(&config->rules[r].selector, survey->graph,
                             survey->named + (size_t)r * MM_SELECTOR_TERMS * (size_t)mm_graph_layers(survey->graph)));
    MM_TRY(order_tensors(survey));
    MM_TRY(mm_schedule_init(&s, survey->graph, survey->facts, survey->limits, &config->sharing));
    if (mode == MM_RECOMPUTE_COST) survey->layer_peak = mm_recompute_layer_peak(&s);
    mm_status status = mode == MM_RECOMPUTE_SQRT ? mm_recompute_cut(&s, survey->kept) : MM_OK;
    if (mode == MM_RECOMPUTE_NESTED) status = mm_nesting_init(&survey->nesting, &s, NESTINGS);
    mm_schedule_fini(&s);
    return status;
}

mm_status mm_survey_create(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                           const mm_engine_config *config, mm_survey **survey_out) {
    size_t named = (size_t)config->n_rules * MM_SELECTOR_TERMS * (size_t)mm_graph_layers(graph);
    size_t n = (size_t)mm_graph_tensors(graph) + 1;
    mm_survey *survey = malloc(sizeof *survey);
    if (!survey) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    *survey = (mm_survey){.graph = graph,
                          .facts = facts,
                          .limits = limits,
                          .order = malloc(n * sizeof *survey->order),
                          .kept = calloc(n, sizeof *survey->kept),
                          .named = malloc(named + 1)};
    mm_status status = survey->order && survey->kept && survey->named
                           ? look_around(survey, config)
                           : mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    if (status == MM_OK)
        *survey_out = survey;
    else
        mm_survey_destroy(survey);
    return status;
}

void mm_survey_destroy(mm_survey *survey) {
    if (!survey) return;
    free(survey->order);
    free(survey->kept);
    free(survey->named);
    mm_nesting_fini(&survey->nesting);
    free(survey);
}

int mm_survey_nestings(const mm_survey *survey) { return survey->nesting.n; }
