/* SPDX-License-Identifier: MIT */
#include "policies/fallback.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/text.h"
#include "policies/policy_table.h"
#include "policies/rules/rules.h"

static bool has_option(const mm_policy *policy, const char *key) {
    const mm_option_desc *d = policy->ops->options;
    while (d && d->key && strcmp(d->key, key) != 0) d++;
    return d && d->key;
}

/* Adds a policy, which `f` then owns; frees it instead if the list has an equal one. */
static void take(mm_fallback *f, const char *step, mm_policy *policy) {
    bool known = false;
    for (int i = 0; i < f->n && !known; i++) known = mm_policy_equal(&f->substitutes[i].policy, policy);
    if (known)
        mm_policy_fini(policy);
    else
        f->substitutes[f->n++] = (mm_substitute){.policy = *policy, .step = step};
}

/* Adds a policy whose configuration was changed. status: the result of that change; on a failure, frees the policy and
 * returns the failure. */
static mm_status take_changed(mm_fallback *f, const char *step, mm_policy *policy, mm_status status) {
    if (has_option(policy, "resident")) policy->config.resident = f->resident;
    if (status == MM_OK) status = mm_policy_print(policy);
    if (status == MM_OK)
        take(f, step, policy);
    else
        mm_policy_fini(policy);
    return status;
}

/* ---------------------------------------------------------------- the policy in less memory */

/* Replaces the naive forms, which allocate each map at run time, by planned places. */
static void plan_memory(mm_engine_config *config) {
    if (config->buffers == MM_REGION_HEAP) config->buffers = MM_REGION_BUFFERS;
    if (config->codes == MM_REGION_HEAP) config->codes = MM_REGION_CODES;
}

/* Adds the policy with planned memory, with this depth, and with as many buffers as it needs. */
static mm_status add_smaller(mm_fallback *f, const mm_policy *policy, const char *step, int depth) {
    mm_policy smaller;
    MM_TRY(mm_policy_copy(policy, &smaller));
    plan_memory(&smaller.config);
    smaller.config.k = 0;
    smaller.config.depth = depth;
    return take_changed(f, step, &smaller, MM_OK);
}

static mm_status add_own(mm_fallback *f, const mm_policy *policy) {
    const mm_engine_config *own = &policy->config;
    mm_policy same, liveness;
    MM_TRY(mm_policy_copy(policy, &same));
    take(f, "smaller workspaces", &same);
    if (policy->ops == &mm_policy_naive || policy->ops == &mm_policy_liveness) {
        MM_TRY(mm_policy_default(&mm_policy_liveness, &liveness));
        MM_TRY(take_changed(f, "storage used again", &liveness, MM_OK));
    }
    if (own->buffers == MM_REGION_HEAP || own->codes == MM_REGION_HEAP)
        MM_TRY(add_smaller(f, policy, "planned memory", own->depth));
    return own->depth > 1 ? add_smaller(f, policy, "later decodes", 1) : MM_OK;
}

/* ---------------------------------------------------------------- stronger policies */

/* Fetches one map ahead rather than several. */
static void fetch_late(mm_engine_config *config) {
    if (config->depth > 1) config->depth = 1;
}

/* Sets the rules to those of a policy, followed by rules with these actions for all other maps. */
static mm_status extend(mm_engine_config *config, const mm_engine_config *own, const mm_action actions[2],
                        const char *codec) {
    mm_engine_config copy;
    MM_TRY(mm_config_copy(own, &copy));
    mm_rules_fini(config);
    config->rules = copy.rules;
    config->n_rules = copy.n_rules;
    for (int i = 0; i < 2 && actions[i] != MM_ACTION_KEEP; i++)
        MM_TRY(mm_rules_add(config, actions[i], actions[i] == MM_ACTION_CODE ? codec : NULL));
    return MM_OK;
}

static mm_status add_rules(mm_fallback *f, const mm_engine_config *own, const char *step, const mm_action actions[2],
                           const char *codec) {
    mm_policy rules;
    MM_TRY(mm_policy_default(&mm_policy_rules, &rules));
    fetch_late(&rules.config);
    return take_changed(f, step, &rules, extend(&rules.config, own, actions, codec));
}

static mm_status add_preset(mm_fallback *f, const char *step, const mm_policy_ops *ops, mm_recompute_mode mode) {
    mm_policy preset;
    MM_TRY(mm_policy_default(ops, &preset));
    fetch_late(&preset.config);
    preset.config.recompute = mode;
    return take_changed(f, step, &preset, MM_OK);
}

static mm_status add_spec(mm_fallback *f, const char *step, const char *spec) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    return take_changed(f, step, &policy, MM_OK);
}

/* The last resort: any action on any map, and the policy's codec if it has one. */
static mm_status add_auto(mm_fallback *f, const char *codec) {
    char *spec = mm_text_format(*codec ? "auto:codecs=%s" : "auto", codec);
    if (!spec) return mm_fail(MM_ERR_NOMEM, "out of memory for a policy");
    mm_status status = add_spec(f, "any action on any map", spec);
    free(spec);
    return status;
}

/* Adds policies that act on more maps. */
static mm_status add_stronger(mm_fallback *f, const mm_policy *policy) {
    static const struct {
        const char *step;
        mm_action actions[2]; /* MM_ACTION_KEEP: no action */
    } more[] = {{"more swapping", {MM_ACTION_SWAP}},
                {"recomputing", {MM_ACTION_RECOMPUTE}},
                {"recomputing and swapping", {MM_ACTION_RECOMPUTE, MM_ACTION_SWAP}}};
    static const struct {
        const char *step;
        const mm_policy_ops *ops;
        mm_recompute_mode mode;
    } others[] = {
        {"recomputing segments and swapping", &mm_policy_recompute_swap, MM_RECOMPUTE_SQRT},
        {"swapping while the computation waits", &mm_policy_swap, MM_RECOMPUTE_COST},
        {"recomputing anew for each use", &mm_policy_recompute, MM_RECOMPUTE_MEMORY},
        {"recomputing all layers of a segment", &mm_policy_recompute, MM_RECOMPUTE_SQRT},
    };
    static const mm_action compress[2] = {MM_ACTION_CODE, MM_ACTION_SWAP};
    const mm_engine_config none = {0}, *own = &policy->config;
    /* The rules of a policy that observes do not serve others, because other policies choose no error bounds for its
     * codec. The rules of auto are not rules but its menu of actions. */
    const bool has_rules = !policy->ops->observer && policy->ops != &mm_policy_auto;
    const char *codec = mm_rules_codec(own);
    for (size_t i = 0; has_rules && i < sizeof more / sizeof *more; i++)
        MM_TRY(add_rules(f, own, more[i].step, more[i].actions, NULL));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        MM_TRY(add_preset(f, others[i].step, others[i].ops, others[i].mode));
    MM_TRY(add_spec(f, "keeping signs alone", "rules:*=mask")); /* needs no recompute callback and no pinned memory */
    MM_TRY(add_auto(f, ""));
    if (!*codec || !has_rules) return MM_OK;
    MM_TRY(add_rules(f, &none, "compressing all maps", compress, codec));
    return add_auto(f, codec);
}

mm_status mm_fallback_init(mm_fallback *f, const mm_policy *policy) {
    *f = (mm_fallback){.resident = policy->config.resident};
    mm_status status = add_own(f, policy);
    if (status == MM_OK) status = add_stronger(f, policy);
    if (status != MM_OK) mm_fallback_fini(f);
    return status;
}

void mm_fallback_fini(mm_fallback *f) {
    for (int i = 0; i < f->n; i++) mm_policy_fini(&f->substitutes[i].policy);
    f->n = 0;
}
