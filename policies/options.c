/* SPDX-License-Identifier: MIT */
#include "policies/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/number.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "policies/rules/rules.h"
#include "policies/saved.h"

static mm_status no_memory(const mm_policy_ops *ops) {
    return mm_fail(MM_ERR_NOMEM, "out of memory for policy %s", ops->name);
}

/* The configuration's field of a NUMBER or CHOICE: an int, or an enumeration, which has the same size. */
static int get_field(const mm_engine_config *config, const mm_option_desc *d) {
    int value;
    memcpy(&value, (const char *)config + d->field, sizeof value);
    return value;
}

static void set_field(mm_engine_config *config, const mm_option_desc *d, int value) {
    memcpy((char *)config + d->field, &value, sizeof value);
}

/* The configuration's field of a REAL: a double. */
static double get_real(const mm_engine_config *config, const mm_option_desc *d) {
    double value;
    memcpy(&value, (const char *)config + d->field, sizeof value);
    return value;
}

static void set_real(mm_engine_config *config, const mm_option_desc *d, double value) {
    memcpy((char *)config + d->field, &value, sizeof value);
}

/* The i-th choice of "a|b|c": returns its length and sets its beginning; 0 past the last. */
static size_t choice(const mm_option_desc *d, int i, const char **begin_out) {
    const char *c = d->choices;
    for (; i > 0 && c; i--) {
        c = strchr(c, '|');
        if (c) c++;
    }
    *begin_out = c;
    return c ? strcspn(c, "|") : 0;
}

/* ---------------------------------------------------------------- from text */

static const mm_option_desc *find_type(const mm_policy_ops *ops, mm_option_type type) {
    for (const mm_option_desc *d = ops->options; d && d->key; d++)
        if (d->type == type) return d;
    return NULL;
}

bool mm_policy_searches(const mm_policy *policy) { return find_type(policy->ops, MM_OPTION_MENU); }

/* The value that the option of that type was given; NULL: none, or the policy has no such option. */
static const char *given_of(const mm_policy_ops *ops, const mm_option_values *values, mm_option_type type) {
    const mm_option_desc *d = find_type(ops, type);
    return d ? values->given[d - ops->options] : NULL;
}

/* The value of the option of that type, given or default; "" if the policy has no such option. */
static const char *value_of(const mm_policy_ops *ops, const mm_option_values *values, mm_option_type type) {
    const mm_option_desc *d = find_type(ops, type);
    const char *given = given_of(ops, values, type);
    return !d ? "" : given ? given : d->fallback;
}

/* The number of a choice; -1: there is none of that name. */
static int find_choice(const mm_option_desc *d, const char *value) {
    const char *c;
    for (int i = 0; choice(d, i, &c) > 0; i++)
        if (strlen(value) == choice(d, i, &c) && strncmp(c, value, strlen(value)) == 0) return i;
    return -1;
}

static void set_fields(const mm_policy_ops *ops, const mm_option_values *values, mm_engine_config *config) {
    for (const mm_option_desc *d = ops->options; d && d->key; d++) {
        const char *given = values->given[d - ops->options], *value = given ? given : d->fallback;
        const int chosen = find_choice(d, value);
        if (d->type == MM_OPTION_REAL) set_real(config, d, mm_number_parse(value, NULL));
        if (d->type != MM_OPTION_NUMBER && d->type != MM_OPTION_CHOICE) continue;
        if (chosen >= 0)
            set_field(config, d, d->values[chosen]);
        else if (d->type == MM_OPTION_NUMBER)
            set_field(config, d, atoi(value));
    }
}

enum { RATE_CAPACITY = 24 };

/* The rate in bits per value: the 32 bits of a float divided by the ratio, with six decimals but no trailing zeros. */
static void rate_of_ratio(const char *ratio, char rate_out[RATE_CAPACITY]) {
    const long long millionths = (long long)(32e6 / mm_number_parse(ratio, NULL) + 0.5);
    int n = snprintf(rate_out, RATE_CAPACITY, "%lld.%06lld", millionths / 1000000, millionths % 1000000);
    while (rate_out[n - 1] == '0') rate_out[--n] = '\0';
    if (rate_out[n - 1] == '.') rate_out[n - 1] = '\0';
}

static mm_status codec_spec(const mm_policy_ops *ops, const mm_option_values *values, char spec_out[MM_SPEC_CAPACITY]) {
    const char *codec = given_of(ops, values, MM_OPTION_CODEC), *rate = given_of(ops, values, MM_OPTION_RATE);
    const char *ratio = given_of(ops, values, MM_OPTION_RATIO);
    char by_ratio[RATE_CAPACITY];
    if (ratio) rate_of_ratio(ratio, by_ratio);
    if ((codec != NULL) + (rate != NULL) + (ratio != NULL) > 1)
        return mm_fail(MM_ERR_INVALID,
                       "policy %s: %s is short for codec=zfp:rate=%s; give one of codec, rate and ratio", ops->name,
                       rate ? "rate" : "ratio", rate ? rate : by_ratio);
    if (ratio) rate = by_ratio;
    int n = rate ? snprintf(spec_out, MM_SPEC_CAPACITY, "zfp:rate=%s", rate)
                 : snprintf(spec_out, MM_SPEC_CAPACITY, "%s", value_of(ops, values, MM_OPTION_CODEC));
    if (n >= MM_SPEC_CAPACITY)
        return mm_fail(MM_ERR_INVALID, "policy %s: its codec's name is too long, more than %d characters", ops->name,
                       MM_SPEC_CAPACITY - 1);
    return MM_OK;
}

/* The rules of a choice. reserve: per cent, or "" for the codecs' own. The caller frees them. NULL: out of memory. */
static char *rule_set(const mm_option_desc *d, int chosen, const char *reserve) {
    char *suffix = mm_text_format(*reserve ? ":reserve=%s" : "%s", reserve);
    char *text = suffix ? mm_text_format(d->rules[chosen], suffix, suffix) : NULL;
    free(suffix);
    return text;
}

/* The policy's rules as text. The caller frees it. NULL: out of memory. */
static char *rules_text(const mm_policy_ops *ops, const mm_option_values *values, const char *codec) {
    const mm_option_desc *set = find_type(ops, MM_OPTION_RULE_SET);
    const int chosen = set ? find_choice(set, value_of(ops, values, MM_OPTION_RULE_SET)) : -1;
    if (chosen >= 0) return rule_set(set, chosen, value_of(ops, values, MM_OPTION_RESERVE));
    if (find_type(ops, MM_OPTION_RULES)) return mm_text_format("%s", value_of(ops, values, MM_OPTION_RULES));
    bool all = strcmp(value_of(ops, values, MM_OPTION_ELIGIBLE), "all") == 0;
    char *text = mm_text_format(ops->rules, codec);
    if (!text || !all) return text;
    char *of_all = mm_text_format("*%s", strchr(text, '='));
    free(text);
    return of_all;
}

static mm_status set_rules(const mm_policy_ops *ops, const mm_option_values *values, mm_engine_config *config) {
    char codec[MM_SPEC_CAPACITY], specs[MM_MAX_CODECS + 1][MM_SPEC_CAPACITY], *text = NULL;
    const bool menu = find_type(ops, MM_OPTION_MENU) != NULL;
    MM_TRY(codec_spec(ops, values, codec));
    if (!menu) text = rules_text(ops, values, codec);
    if (!menu && !text) return no_memory(ops);
    mm_status status =
        menu ? mm_rules_menu(value_of(ops, values, MM_OPTION_MENU), config) : mm_rules_parse(text, config);
    free(text);
    if (status == MM_OK && config->away && config->resident == MM_RESIDENT_NEEDED) {
        mm_rules_fini(config);
        return mm_fail(MM_ERR_INVALID,
                       "policy %s: its rules say what has its home in host memory; leave resident=needed out",
                       ops->name);
    }
    if (status == MM_OK && config->away) config->resident = MM_RESIDENT_NONE;
    if (status != MM_OK && menu) return mm_fail_in(status, "policy %s", ops->name);
    if (status != MM_OK || mm_engine_codecs(config, specs, MM_MAX_CODECS + 1) <= MM_MAX_CODECS) return status;
    mm_rules_fini(config);
    return mm_fail(MM_ERR_INVALID, "policy %s: its rules name more than %d codecs, counting the mask", ops->name,
                   MM_MAX_CODECS);
}

/* For CNTK's allocator, which has neither tensor buffers nor a sliding workspace: places buffers and codes by
 * lifetime. */
static void place_all_by_lifetime(mm_engine_config *config) {
    if (config->buffers == MM_REGION_BUFFERS) config->buffers = MM_REGION_GENERAL;
    if (config->codes == MM_REGION_CODES) config->codes = MM_REGION_GENERAL;
}

mm_status mm_options_configure(const mm_policy_ops *ops, const mm_option_values *values, mm_engine_config *config_out) {
    mm_engine_config config = ops->config;
    set_fields(ops, values, &config);
    if (config.sharing.layout == MM_PLACING_GROUPS) place_all_by_lifetime(&config);
    if (ops->rules || find_type(ops, MM_OPTION_RULES) || find_type(ops, MM_OPTION_RULE_SET) ||
        find_type(ops, MM_OPTION_MENU))
        MM_TRY(set_rules(ops, values, &config));
    const mm_option_desc *file = find_type(ops, MM_OPTION_FILE);
    if (file && !given_of(ops, values, MM_OPTION_FILE))
        return mm_fail(MM_ERR_INVALID, "policy %s: give a file: %s:FILE", ops->name, ops->name);
    if (file) MM_TRY(mm_saved_configure(given_of(ops, values, MM_OPTION_FILE), &config));
    *config_out = config;
    return MM_OK;
}

/* ---------------------------------------------------------------- to text */

/* The value of reserve= in the codecs of the configuration's rules; "" if there is none. */
static const char *reserve_of(const mm_engine_config *config) {
    static const char key[] = ":reserve=";
    for (int r = 0; r < config->n_rules; r++) {
        const char *found = strstr(config->rules[r].codec, key);
        if (found) return found + sizeof key - 1;
    }
    return "";
}

/* The name of the choice that gives the configuration's rules. The caller frees it. */
static char *rule_set_text(const mm_option_desc *d, const mm_engine_config *config) {
    char *rules = mm_rules_print(config), *name = NULL;
    const char *c = "";
    for (int i = 0; rules && !name && choice(d, i, &c) > 0; i++) {
        char *text = rule_set(d, i, reserve_of(config));
        if (text && strcmp(text, rules) == 0) name = strndup(c, choice(d, i, &c));
        free(text);
    }
    free(rules);
    return name;
}

/* The codecs of a menu, joined by +. */
static char *menu_text(const mm_engine_config *config) {
    char *text = strdup("");
    for (int r = 0; text && r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        if (rule->action != MM_ACTION_CODE || rule->mask || rule->offered) continue;
        char *longer = mm_text_format("%s%s%s", text, *text ? "+" : "", rule->codec);
        free(text);
        text = longer;
    }
    return text;
}

/* The value of an option as text. The caller frees it. NULL: out of memory. */
static char *option_text(const mm_option_desc *d, const mm_engine_config *config) {
    const char *c = "";
    char real[MM_NUMBER_CAPACITY];
    switch (d->type) {
    case MM_OPTION_REAL:
        return mm_text_format("%s", mm_number_format(get_real(config, d), real));
    case MM_OPTION_NUMBER:
    case MM_OPTION_CHOICE:
        for (int i = 0; choice(d, i, &c) > 0; i++)
            if (get_field(config, d) == d->values[i]) return strndup(c, choice(d, i, &c));
        return d->type == MM_OPTION_NUMBER ? mm_text_format("%d", get_field(config, d)) : strdup("");
    case MM_OPTION_CODEC:
        return strdup(mm_rules_codec(config));
    case MM_OPTION_ELIGIBLE:
        return strdup(strcmp(config->rules[0].selector.text, "*") == 0 ? "all" : d->fallback);
    case MM_OPTION_RULES:
        return mm_rules_print(config);
    case MM_OPTION_FILE:
        return strdup(config->file);
    case MM_OPTION_RULE_SET:
        return rule_set_text(d, config);
    case MM_OPTION_MENU:
        return menu_text(config);
    case MM_OPTION_RESERVE:
        return strdup(reserve_of(config));
    case MM_OPTION_RATE: /* printed as codec= */
    case MM_OPTION_RATIO:
        break;
    }
    return strdup("");
}

mm_status mm_options_print(const mm_policy_ops *ops, const mm_engine_config *config, char **spec_out) {
    char *spec = strdup(ops->name), before = ':';
    for (const mm_option_desc *d = ops->options; spec && d && d->key; d++) {
        char *value = option_text(d, config), *longer = NULL;
        bool bare = ops->takes_text && d == ops->options;
        if (value && (!*value || (!bare && strcmp(value, d->fallback) == 0))) {
            free(value);
            continue;
        }
        if (value) longer = mm_text_format("%s%c%s%s%s", spec, before, bare ? "" : d->key, bare ? "" : "=", value);
        before = ',';
        free(value);
        free(spec);
        spec = longer;
    }
    if (!spec) return no_memory(ops);
    *spec_out = spec;
    return MM_OK;
}
