/* SPDX-License-Identifier: MIT */
#include "tools/need/policy_effect.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"
#include "policies/reach.h"
#include "policies/rules/rules.h"

/* lossy_codecs_out NULL: not wanted. */
static mm_status reach_of(const mm_policy *policy, const mm_graph *graph, const char *device, mm_reach *reach,
                          unsigned *lossy_codecs_out) {
    mm_planned planned;
    MM_TRY(mm_planned_init(&planned, policy, graph, device));
    mm_status status = mm_policy_reach(policy, graph, planned.facts, reach);
    if (lossy_codecs_out) *lossy_codecs_out = plan_work_lossy_codecs(planned.facts);
    mm_planned_fini(&planned);
    return status;
}

static char *add_option(const mm_policy *policy, const char *key, const char *value, int length) {
    return mm_text_format("%s%c%s=%.*s", policy->spec, strchr(policy->spec, ':') ? ',' : ':', key, length, value);
}

/* The policy with one more option, if that spec is legal and acts on maps of the graph; else NULL. The caller frees
 * it. */
static char *try_option(const mm_policy *policy, const char *key, const char *value, int length, const mm_graph *graph,
                        const char *device, int *maps_out) {
    char *spec = add_option(policy, key, value, length);
    mm_policy other;
    mm_reach reach = {0};
    if (!spec || mm_policy_parse(spec, &other) != MM_OK) {
        free(spec);
        return NULL;
    }
    const bool acts = reach_of(&other, graph, device, &reach, NULL) == MM_OK && reach.maps > 0;
    mm_policy_fini(&other);
    *maps_out = reach.maps;
    if (acts) return spec;
    free(spec);
    return NULL;
}

/* The first option of the policy, with a value, that makes it act. NULL: there is none. */
static char *find_option(const mm_policy *policy, const mm_graph *graph, const char *device, int *maps_out) {
    for (const mm_option_desc *d = policy->ops->options; d && d->key; d++) {
        const bool of_rules = d->type == MM_OPTION_ELIGIBLE || d->type == MM_OPTION_RULE_SET;
        if (!d->choices || (!of_rules && d->type != MM_OPTION_CHOICE)) continue;
        for (const char *value = d->choices; *value; value += strspn(value, "|")) {
            const int length = (int)strcspn(value, "|");
            char *spec = try_option(policy, d->key, value, length, graph, device, maps_out);
            if (spec) return spec;
            value += length;
        }
    }
    return NULL;
}

static mm_status explain(const mm_policy *policy, const mm_graph *graph, const char *device, texts *texts,
                         policy_effect *effect) {
    int maps = 0;
    char *rules = mm_rules_print(&policy->config), *would = find_option(policy, graph, device, &maps), *idle = NULL;
    if (rules && would)
        idle = mm_text_format("%s acts on no map of %s (its rules: %s); %s would act on %d", policy->spec,
                              mm_graph_name(graph), rules, would, maps);
    else if (rules)
        idle = mm_text_format("%s acts on no map of %s (its rules: %s), and no option of it would", policy->spec,
                              mm_graph_name(graph), rules);
    effect->idle = idle ? texts_keep(texts, idle) : NULL;
    effect->would = would ? texts_keep(texts, would) : NULL;
    const bool good = effect->idle && (!would || effect->would);
    free(rules);
    free(would);
    free(idle);
    return good ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a note on policy %s", policy->spec);
}

/* The policy with when=always. NULL: the policy does not take it, or out of memory. The caller frees it. */
static char *spec_of_always(const mm_policy *policy) {
    char *spec = add_option(policy, "when", "always", (int)strlen("always"));
    mm_policy other;
    if (spec && mm_policy_parse(spec, &other) == MM_OK) {
        mm_policy_fini(&other);
        return spec;
    }
    free(spec);
    return NULL;
}

static mm_status explain_unforced(const mm_policy *policy, const mm_graph *graph, int maps, texts *texts,
                                  policy_effect *effect) {
    char *would = spec_of_always(policy),
         *more = would ? mm_text_format("; %s would act on %d", would, maps) : strdup("");
    char *text = more ? mm_text_format("%s acts on no map of %s where the budget suffices without it%s", policy->spec,
                                       mm_graph_name(graph), more)
                      : NULL;
    effect->unforced = text ? texts_keep(texts, text) : NULL;
    effect->unforced_would = would ? texts_keep(texts, would) : NULL;
    const bool good = effect->unforced && (!would || effect->unforced_would);
    free(would);
    free(more);
    free(text);
    return good ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a note on policy %s", policy->spec);
}

const char *policy_effect_idle(const policy_effect *effect, const plan_work *work, const char **would_out) {
    const bool unforced = !effect->idle && work->digest != 0 && !work->acts;
    *would_out = unforced ? effect->unforced_would : effect->would;
    return unforced ? effect->unforced : effect->idle;
}

static bool has_backward(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->phase == MM_BACKWARD) return true;
    return false;
}

mm_status policy_effect_find(const char *spec, const mm_graph *graph, const char *device, texts *texts,
                             policy_effect *effect_out) {
    policy_effect effect = {0};
    mm_policy policy;
    mm_reach reach;
    MM_TRY(mm_policy_parse(spec, &policy));
    mm_status status = reach_of(&policy, graph, device, &reach, &effect.lossy_codecs);
    if (status == MM_OK) effect.lossy = reach.lossy > 0;
    if (status == MM_OK && reach.by_rules && has_backward(graph))
        status = reach.maps == 0 ? explain(&policy, graph, device, texts, &effect)
                                 : explain_unforced(&policy, graph, reach.maps, texts, &effect);
    mm_policy_fini(&policy);
    if (status == MM_OK) *effect_out = effect;
    return status;
}
