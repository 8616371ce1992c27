/* The rules' text: "conv=compress(zfp:rate=4);conv-in=keep;relu=mask;*=swap". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine.h"
#include "policies/engine_maps.h"
#include "policies/policy.h"

static const struct action_name {
    const char *name;
    mm_action action;
    bool coded; /* takes a codec in parentheses */
} actions[] = {
    {"keep", MM_ACTION_KEEP, false},
    {"compress", MM_ACTION_CODE, true},
    {"swap", MM_ACTION_SWAP, false},
    {"recompute", MM_ACTION_RECOMPUTE, false},
    {"compress-swap", MM_ACTION_CODE_SWAP, true},
};

const char *mm_policy_kinds(char text_out[MM_POLICY_KINDS_CAPACITY]) {
    size_t used = 0;
    for (int k = 0; k < MM_LAYER_KINDS && used < MM_POLICY_KINDS_CAPACITY; k++)
        used += (size_t)snprintf(text_out + used, MM_POLICY_KINDS_CAPACITY - used, "%s%s", k > 0 ? ", " : "",
                                 mm_layer_kind_name(k));
    return text_out;
}

/* The kinds of layers that a kind's name stands for: a batch norm with its ReLU is both. */
static uint32_t kinds_named(int kind) {
    bool in_both = kind == MM_LAYER_BATCH_NORM || kind == MM_LAYER_RELU;
    return 1u << kind | (in_both ? 1u << MM_LAYER_BATCH_NORM_RELU : 0);
}

static mm_status parse_selector(const char *text, mm_rule *rule) {
    if (strcmp(text, "*") == 0) {
        rule->kinds = MM_ALL_KINDS;
        return MM_OK;
    }
    size_t length = strlen(text);
    bool input = length > 3 && strcmp(text + length - 3, "-in") == 0;
    if (input) length -= 3;
    for (int k = 0; k < MM_LAYER_KINDS; k++) {
        const char *name = mm_layer_kind_name(k);
        if (strlen(name) != length || memcmp(name, text, length) != 0) continue;
        *(input ? &rule->readers : &rule->kinds) = kinds_named(k);
        return MM_OK;
    }
    char kinds[MM_POLICY_KINDS_CAPACITY];
    return mm_fail(MM_ERR_INVALID,
                   "rule '%s=...': must name *, or a kind of layer (%s), or with -in what such a layer reads (conv-in)",
                   MM_BRIEF(text), mm_policy_kinds(kinds));
}

static mm_status parse_action(const char *selector, char *text, mm_rule *rule) {
    if (strcmp(text, mm_mask_spec) == 0) {
        rule->action = MM_ACTION_CODE;
        rule->mask = true;
        strcpy(rule->codec, mm_mask_spec);
        return MM_OK;
    }
    char *codec = strchr(text, '(');
    size_t length = codec ? (size_t)(codec - text) : strlen(text);
    for (size_t a = 0; a < sizeof actions / sizeof *actions; a++) {
        if (strlen(actions[a].name) != length || memcmp(actions[a].name, text, length) != 0) continue;
        size_t end = strlen(text);
        if (actions[a].coded != (codec != NULL) || (codec && (text[end - 1] != ')' || end - length < 3))) break;
        rule->action = actions[a].action;
        if (!codec) return MM_OK;
        text[end - 1] = '\0';
        if (strlen(codec + 1) >= MM_SPEC_CAPACITY)
            return mm_fail(MM_ERR_INVALID, "rule '%s=%s': its codec's name is longer than %d characters", selector,
                           MM_BRIEF(text), MM_SPEC_CAPACITY - 1);
        strcpy(rule->codec, codec + 1);
        return MM_OK;
    }
    return mm_fail(
        MM_ERR_INVALID,
        "rule '%s=%s': must be keep, mask, recompute, swap, compress(CODEC) or compress-swap(CODEC), as compress(zfp)",
        MM_BRIEF(selector), MM_BRIEF(text));
}

static mm_status parse_rule(char *part, mm_rule *rule) {
    char *action = strchr(part, '=');
    if (!action) return mm_fail(MM_ERR_INVALID, "rule '%s': must be SELECTOR=ACTION, as conv=swap", MM_BRIEF(part));
    *action++ = '\0';
    *rule = (mm_rule){0};
    MM_TRY(parse_selector(part, rule));
    return parse_action(part, action, rule);
}

static size_t count(const char *text, char c) {
    size_t n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

mm_status mm_rules_parse(const char *text, mm_engine_config *config) {
    char *copy = strdup(text), *rest = NULL;
    config->n_rules = 0;
    config->rules = malloc((count(text, ';') + 1) * sizeof *config->rules);
    mm_status status = copy && config->rules ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the rules");
    for (char *part = copy ? strtok_r(copy, ";", &rest) : NULL; status == MM_OK && part;
         part = strtok_r(NULL, ";", &rest))
        status = parse_rule(part, &config->rules[config->n_rules++]);
    free(copy);
    if (status == MM_OK && config->n_rules == 0)
        status = mm_fail(MM_ERR_INVALID, "no rule: give some, as conv=compress(zfp);*=swap");
    if (status != MM_OK) mm_rules_fini(config);
    return status;
}

void mm_rules_fini(mm_engine_config *config) {
    free(config->rules);
    config->rules = NULL;
    config->n_rules = 0;
}
