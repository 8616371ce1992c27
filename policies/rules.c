/* The rules' text: "conv=compress(zfp:rate=4);conv-in=keep;layer1.*=swap;relu=mask;*=swap". */
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
    MM_TRY(mm_selector_parse(part, &rule->selector));
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
    config->rules = calloc(count(text, ';') + 1, sizeof *config->rules);
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
    for (int r = 0; r < config->n_rules; r++) mm_selector_fini(&config->rules[r].selector);
    free(config->rules);
    config->rules = NULL;
    config->n_rules = 0;
}
