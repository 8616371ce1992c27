/* SPDX-License-Identifier: MIT */
#include "policies/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/number.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "policies/options.h"
#include "policies/policy_table.h"
#include "policies/rules/rules.h"

#define ENTRY(name) &mm_policy_##name,
static const mm_policy_ops *const table[] = {MM_POLICIES(ENTRY)};
#undef ENTRY

const mm_policy_ops *mm_policy_table(size_t i) { return i < sizeof table / sizeof *table ? table[i] : NULL; }

/* A parsed spec, "name:key=value,key=value". Values may contain ':' and '=' (codec=zfp:rate=4). */
typedef struct parsing {
    const mm_policy_ops *ops;
    mm_option_values values; /* point into the text that is parsed */
} parsing;

static const mm_option_desc *find_option(const mm_policy_ops *ops, const char *key) {
    for (const mm_option_desc *d = ops->options; d && d->key; d++)
        if (strcmp(d->key, key) == 0) return d;
    return NULL;
}

static mm_status find_policy(const char *name, const mm_policy_ops **ops_out) {
    char known[256] = "";
    const size_t base = strcspn(name, ",");
    mm_nearest near = {.text = name, .length = base};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i]->name, name) == 0) {
            *ops_out = table[i];
            return MM_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[i]->name);
        mm_nearest_try(&near, table[i]->name);
    }
    if (name[base] && near.found)
        return mm_fail(MM_ERR_NOT_FOUND, "unknown policy '%s': options follow a colon: %s:%s", MM_BRIEF(name),
                       near.found, MM_BRIEF(name + base + 1));
    return mm_fail(MM_ERR_NOT_FOUND, "unknown policy '%s'%s: there are %s", MM_BRIEF(name), MM_DID_YOU_MEAN(&near),
                   known);
}

static mm_status unknown_option(const mm_policy_ops *ops, const char *key) {
    char known[256] = "";
    mm_nearest near = {.text = key, .length = strlen(key)};
    for (const mm_option_desc *d = ops->options; d && d->key; d++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", d->key);
        mm_nearest_try(&near, d->key);
    }
    return mm_fail(MM_ERR_INVALID, "policy %s has no option '%s'%s: it takes %s", ops->name, MM_BRIEF(key),
                   MM_DID_YOU_MEAN(&near), *known ? known : "none");
}

static bool is_choice(const char *choices, const char *value) {
    size_t length = strlen(value);
    for (const char *c = choices; length > 0; c++) {
        size_t n = strcspn(c, "|");
        if (n == length && memcmp(c, value, n) == 0) return true;
        c += n;
        if (*c == '\0') break;
    }
    return false;
}

static mm_status check_value(const mm_policy_ops *ops, const mm_option_desc *desc, const char *value) {
    if (desc->choices && is_choice(desc->choices, value)) return MM_OK;
    if (desc->choices && desc->type != MM_OPTION_NUMBER)
        return mm_fail(MM_ERR_INVALID, "policy %s: %s=%s: must be one of %s", ops->name, desc->key, MM_BRIEF(value),
                       desc->choices);
    if (desc->type == MM_OPTION_REAL) {
        char *end;
        const double number = mm_number_parse(value, &end);
        if (end == value || *end != '\0' || !(number > 0 && number <= (double)desc->max))
            return mm_fail(MM_ERR_INVALID, "policy %s: %s=%s: must be a number above 0 and at most %lld", ops->name,
                           desc->key, MM_BRIEF(value), (long long)desc->max);
    }
    if (desc->type == MM_OPTION_RATIO && *value != '\0') {
        char *end;
        const double number = mm_number_parse(value, &end);
        if (end == value || *end != '\0' || !(number >= desc->min && number <= desc->max))
            return mm_fail(MM_ERR_INVALID, "policy %s: %s=%s: must be a number from %lld to %lld", ops->name, desc->key,
                           MM_BRIEF(value), (long long)desc->min, (long long)desc->max);
    }
    if (desc->type == MM_OPTION_NUMBER || desc->type == MM_OPTION_RESERVE) {
        char *end;
        errno = 0;
        long long number = strtoll(value, &end, 10);
        if (errno || end == value || *end != '\0' || number < desc->min || number > desc->max)
            return mm_fail(MM_ERR_INVALID, "policy %s: %s=%s: must be %s%sa whole number from %lld to %lld", ops->name,
                           desc->key, MM_BRIEF(value), desc->choices ? desc->choices : "", desc->choices ? " or " : "",
                           (long long)desc->min, (long long)desc->max);
    }
    if (*value == '\0')
        return mm_fail(MM_ERR_INVALID, "policy %s: %s= has no value: give one (%s), or leave it out", ops->name,
                       desc->key, desc->help);
    return MM_OK;
}

static mm_status set_option(parsing *p, const char *text, const char *value) {
    const mm_option_desc *desc = find_option(p->ops, text);
    if (!desc) return unknown_option(p->ops, text);
    MM_TRY(check_value(p->ops, desc, value));
    const char **given = &p->values.given[desc - p->ops->options];
    if (*given) return mm_fail(MM_ERR_INVALID, "policy %s: option %s is given twice: give it once", p->ops->name, text);
    *given = value;
    return MM_OK;
}

/* Parses one option: key=value, or the first option of a policy that takes_text, without its key. */
static mm_status add_option(parsing *p, char *piece, bool first) {
    const mm_policy_ops *ops = p->ops;
    char *value = strchr(piece, '=');
    if (value) *value = '\0';
    bool known = value && find_option(ops, piece);
    if (first && ops->takes_text && !known) {
        if (value) *value = '=';
        return set_option(p, ops->options[0].key, piece);
    }
    if (!value) return mm_fail(MM_ERR_INVALID, "policy %s: '%s' is not key=value", ops->name, MM_BRIEF(piece));
    return set_option(p, piece, value + 1);
}

/* Parses `text`, and writes over it. */
static mm_status parse(char *text, mm_policy *policy) {
    parsing p = {0};
    char *options = strchr(text, ':'), *rest = NULL;
    if (options) *options++ = '\0';
    MM_TRY(find_policy(text, &p.ops));
    if (options && *options == '\0')
        return mm_fail(MM_ERR_INVALID, "policy %s: nothing is behind the colon: give key=value, or leave it out", text);
    for (char *o = options ? strtok_r(options, ",", &rest) : NULL; o; o = strtok_r(NULL, ",", &rest))
        MM_TRY(add_option(&p, o, o == options));
    policy->ops = p.ops;
    return mm_options_configure(p.ops, &p.values, &policy->config);
}

mm_status mm_policy_parse(const char *spec, mm_policy *policy_out) {
    if (!spec) return mm_fail(MM_ERR_INVALID, "a policy is NAME or NAME:key=value,...; none is given");
    mm_policy policy = {.spec = strdup(spec)};
    char *text = strdup(spec);
    mm_status status = policy.spec && text ? parse(text, &policy) : mm_fail(MM_ERR_NOMEM, "out of memory for a policy");
    free(text);
    if (status == MM_OK)
        *policy_out = policy;
    else
        mm_policy_fini(&policy);
    return status;
}

mm_status mm_policy_default(const mm_policy_ops *ops, mm_policy *policy_out) {
    return mm_policy_parse(ops->name, policy_out);
}

mm_status mm_policy_copy(const mm_policy *policy, mm_policy *copy_out) {
    mm_policy copy = {.ops = policy->ops, .spec = strdup(policy->spec)};
    mm_status status = copy.spec ? mm_config_copy(&policy->config, &copy.config)
                                 : mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
    if (status == MM_OK)
        *copy_out = copy;
    else
        mm_policy_fini(&copy);
    return status;
}

mm_status mm_policy_print(mm_policy *policy) {
    char *spec;
    MM_TRY(mm_options_print(policy->ops, &policy->config, &spec));
    free(policy->spec);
    policy->spec = spec;
    return MM_OK;
}

bool mm_policy_equal(const mm_policy *a, const mm_policy *b) {
    return a->ops == b->ops && mm_config_equal(&a->config, &b->config);
}

void mm_policy_fini(mm_policy *policy) {
    free(policy->spec);
    mm_rules_fini(&policy->config);
    *policy = (mm_policy){0};
}

int mm_policy_list_codecs(const mm_policy *policy, char specs_out[MM_MAX_CODECS][MM_SPEC_CAPACITY]) {
    return mm_engine_codecs(&policy->config, specs_out, MM_MAX_CODECS);
}

mm_status mm_policy_check_codec(const mm_policy *policy, const mm_codec_facts *codec) {
    return mm_rules_check_codec(&policy->config, codec);
}

mm_status mm_policy_codecs(const char *spec, char specs_out[MM_MAX_CODECS][MM_SPEC_CAPACITY], int *n_out) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    *n_out = mm_policy_list_codecs(&policy, specs_out);
    mm_policy_fini(&policy);
    return MM_OK;
}

mm_status mm_policy_check(const char *spec) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    mm_policy_fini(&policy);
    return MM_OK;
}

mm_status mm_policy_plan(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                         const mm_limits *limits, mm_plan **plan_out) {
    mm_plan *plan;
    mm_status status = policy->ops->plan(graph, facts, limits, &policy->config, &plan);
    if (status != MM_OK) return mm_fail_in(status, "policy %s", policy->spec);
    status = mm_plan_name(plan, policy->spec);
    if (status == MM_OK)
        *plan_out = plan;
    else
        mm_plan_destroy(plan);
    return status;
}

void mm_policy_restrict(const mm_policy *policy, const mm_graph *graph, mm_graph_facts *facts) {
    for (int r = 0; r < policy->config.n_rules; r++) {
        const mm_rule *rule = &policy->config.rules[r];
        const int codec = rule->offered ? mm_facts_codec(facts, rule->codec) : -1;
        for (int t = 0; codec >= 0 && t < facts->n_tensors; t++)
            if (!mm_facts_promise_zeros(facts, graph, t))
                facts->codes[(size_t)codec * (size_t)facts->n_tensors + (size_t)t].code_bytes = -1;
    }
}
