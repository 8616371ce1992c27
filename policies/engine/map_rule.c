/* SPDX-License-Identifier: MIT */
#include "policies/engine/map_rule.h"

#include "mm/core/plan/plan_codes.h"
#include "policies/engine/recompute.h"
#include "policies/rules/rules.h"

/* ---------------------------------------------------------------- what a selector names */

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

/* Whether each term of a rule's selector names the map. */
static bool is_named(const mm_schedule *s, const mm_survey *survey, const mm_selector *selector, int rule,
                     mm_tensor tensor) {
    const size_t layers = (size_t)mm_graph_layers(s->graph);
    const uint8_t *named = survey->named + (size_t)rule * MM_SELECTOR_TERMS * layers;
    for (int t = 0; t < selector->n_terms; t++, named += layers)
        if (!(selector->terms[t].reads ? is_reader_named : is_maker_named)(s, named, tensor)) return false;
    return true;
}

/* ---------------------------------------------------------------- what can be done with a map */

/* Aliases of the tensor count as the tensor. */
mm_map_reads mm_map_find_reads(const mm_schedule *s, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    mm_map_reads reads = {.last_value = -1};
    if (info->ownership != MM_MANAGED || s->plan->alias[tensor] != tensor || info->writes != 1) return reads;
    if (info->last_forward < 0 || info->first_backward <= info->last_forward) return reads;
    reads.is_map = true;
    for (int i = info->first_backward; i <= s->tensors[tensor].last_step; i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int u = 0; u < step->n_uses; u++) {
            if (s->plan->alias[step->uses[u].tensor] != tensor) continue;
            reads.value |= step->uses[u].form == MM_FORM_VALUE;
            reads.sign |= step->uses[u].form == MM_FORM_SIGN;
            if (step->uses[u].form == MM_FORM_VALUE) reads.last_value = i;
        }
    }
    return reads;
}

static bool takes(const mm_graph_facts *facts, int codec, mm_tensor tensor) {
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

/* ---------------------------------------------------------------- the rule */

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
        m->anew = rule->lean;
        return mm_recompute_choose(s, maps, config->recompute, m);
    }
    m->codec = -1;
    if (rule->action == MM_ACTION_SWAP) {
        choose_swap(s, rule, m);
        return true;
    }
    m->codec = mm_facts_codec(s->facts, rule->codec);
    const bool whole = config->signs_whole && rule->action == MM_ACTION_CODE_SWAP;
    if (m->value && !mm_facts_gives_value(s->facts, s->graph, m->codec, m->tensor)) return false;
    if (m->sign && (m->value || (whole && mm_facts_gives_value(s->facts, s->graph, m->codec, m->tensor))) &&
        s->facts->codecs[m->codec].lossless)
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
    return mm_rule_swaps_lean(rule) && (info->kind == MM_INPUT || info->kind == MM_SAVED) && info->bytes > SMALL_BYTES;
}

bool mm_map_is_one(const mm_survey *survey, mm_tensor tensor, mm_map *m) {
    const mm_map_reads *reads = &survey->reads[tensor];
    const mm_tensor_info *info = mm_graph_tensor(survey->graph, tensor);
    if (!reads->is_map) return false;
    *m = (mm_map){.tensor = tensor,
                  .last_forward = info->last_forward,
                  .first_backward = info->first_backward,
                  .needed = info->first_backward,
                  .last_value = reads->last_value,
                  .value = reads->value,
                  .sign = reads->sign};
    return true;
}

bool mm_map_find_rule(const mm_schedule *s, mm_maps *maps, const mm_engine_config *config, mm_tensor tensor,
                      mm_map *m) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    mm_map found;
    if (!mm_map_is_one(maps->survey, tensor, &found)) return false;
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

bool mm_map_gradient_leaves(const mm_schedule *s, const mm_maps *maps, const mm_engine_config *config,
                            const mm_selection *selection, mm_tensor t) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, t);
    if (info->kind != MM_GRADIENT_MAP || info->ownership != MM_MANAGED || info->bytes <= SMALL_BYTES) return false;
    for (int r = 0; r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        if (maps->assigned ? maps->assigned->rule[t] != r : !is_named(s, maps->survey, &rule->selector, r, t)) continue;
        return mm_rule_swaps_lean(rule) && (maps->assigned || (selection->limit == INT32_MAX && !maps->level));
    }
    return false;
}
