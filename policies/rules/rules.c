/* SPDX-License-Identifier: MIT */
/* Parses and prints rules: "conv=compress(zfp:rate=4);conv-in=keep;layer1.*=swap;relu=mask;*=swap"; of homes:
 * "weights=host;states=host". */
#include "policies/rules/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/text.h"
#include "policies/rules/config.h"

const char mm_mask_spec[] = "mask";

static const struct action_name {
    const char *name;
    mm_action action;
    bool coded; /* takes a codec in parentheses */
    bool lean;
} actions[] = {
    {"keep", MM_ACTION_KEEP, false, false},
    {"compress", MM_ACTION_CODE, true, false},
    {"swap", MM_ACTION_SWAP, false, false},
    {"lean-swap", MM_ACTION_SWAP, false, true},
    {"recompute", MM_ACTION_RECOMPUTE, false, false},
    {"lean-recompute", MM_ACTION_RECOMPUTE, false, true},
    {"compress-swap", MM_ACTION_CODE_SWAP, true, false},
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
        rule->lean = actions[a].lean;
        if (!codec) return MM_OK;
        text[end - 1] = '\0';
        if (strlen(codec + 1) >= MM_SPEC_CAPACITY)
            return mm_fail(MM_ERR_INVALID, "rule '%s=%s': its codec's name is longer than %d characters", selector,
                           MM_BRIEF(text), MM_SPEC_CAPACITY - 1);
        strcpy(rule->codec, codec + 1);
        return MM_OK;
    }
    return mm_fail(MM_ERR_INVALID,
                   "rule '%s=%s': must be keep, mask, recompute, lean-recompute, swap, lean-swap, compress(CODEC) or "
                   "compress-swap(CODEC), as compress(zfp)",
                   MM_BRIEF(selector), MM_BRIEF(text));
}

static mm_status parse_rule(char *part, mm_rule *rule) {
    char *action = strchr(part, '=');
    if (!action) return mm_fail(MM_ERR_INVALID, "rule '%s': must be SELECTOR=ACTION, as conv=swap", MM_BRIEF(part));
    *action++ = '\0';
    MM_TRY(mm_selector_parse(part, &rule->selector));
    return parse_action(part, action, rule);
}

/* What rules may name beside maps: "weights=host". */
static const char to_host[] = "host";
static const struct home_kind {
    const char *name;
    mm_tensor_kind kind;
} home_kinds[] = {{"weights", MM_WEIGHT}, {"states", MM_OPTIMIZER}, {"gradients", MM_WEIGHT_GRADIENT}};
enum { HOME_KINDS = sizeof home_kinds / sizeof *home_kinds };

static const struct home_kind *find_home_kind(const char *name, size_t length) {
    for (int k = 0; k < HOME_KINDS; k++)
        if (strlen(home_kinds[k].name) == length && memcmp(home_kinds[k].name, name, length) == 0)
            return &home_kinds[k];
    return NULL;
}

/* Reads a rule for homes into config->away. False: it is none. */
static bool parse_home_rule(const char *part, mm_engine_config *config, mm_status *status_out) {
    const size_t length = strcspn(part, "=");
    const bool is_host = part[length] != '\0' && strcmp(part + length + 1, to_host) == 0;
    const struct home_kind *kind = find_home_kind(part, length);
    *status_out = MM_OK;
    if (!kind && !is_host) return false;
    if (!kind)
        *status_out =
            mm_fail(MM_ERR_INVALID, "rule '%s': only weights, states and gradients have homes; for maps there is swap",
                    MM_BRIEF(part));
    else if (!is_host)
        *status_out =
            mm_fail(MM_ERR_INVALID,
                    "rule '%s': must be %s=host; homes for which pinned memory has no room go to the disk, if "
                    "there is one",
                    MM_BRIEF(part), kind->name);
    else if (config->away & 1u << kind->kind)
        *status_out = mm_fail(MM_ERR_INVALID, "rule '%s' is given twice", MM_BRIEF(part));
    else
        config->away |= 1u << kind->kind;
    return true;
}

enum { ACTION_CAPACITY = MM_SPEC_CAPACITY + 32, RULE_CAPACITY = ACTION_CAPACITY + MM_BRIEF_CAPACITY };

/* Writes the action as in a spec, "compress(zfp:rate=4)"; returns the text. */
static const char *action_text(const mm_rule *rule, char text[ACTION_CAPACITY]) {
    const struct action_name *a = actions;
    while (a->action != rule->action || a->lean != rule->lean) a++;
    if (rule->mask)
        snprintf(text, ACTION_CAPACITY, "%s", mm_mask_spec);
    else
        snprintf(text, ACTION_CAPACITY, "%s%s%s%s", a->name, a->coded ? "(" : "", rule->codec, a->coded ? ")" : "");
    return text;
}

static const char *brief(const mm_rule *rule, char text[RULE_CAPACITY]) {
    char action[ACTION_CAPACITY];
    snprintf(text, RULE_CAPACITY, "%s=%s", MM_BRIEF(rule->selector.text), action_text(rule, action));
    return text;
}

bool mm_rule_same_action(const mm_rule *a, const mm_rule *b) {
    return a->action == b->action && a->mask == b->mask && a->lean == b->lean && strcmp(a->codec, b->codec) == 0;
}

/* Whether rule a serves all maps that rule b serves. For that, codecs are compared by name alone: which maps a codec
 * takes does not depend on its options. */
static bool serves_the_same(const mm_rule *a, const mm_rule *b) {
    const size_t name = strcspn(a->codec, ":");
    return a->action == b->action && a->mask == b->mask && mm_rule_swaps_lean(a) >= mm_rule_swaps_lean(b) &&
           name == strcspn(b->codec, ":") && memcmp(a->codec, b->codec, name) == 0;
}

/* Finds the first rule of n that leaves nothing to `rule`: it names all maps that `rule` names, and can serve any map,
 * or all that `rule` can serve. NULL: none. */
static const mm_rule *find_covering(const mm_engine_config *config, int n, const mm_rule *rule) {
    for (int r = 0; r < n; r++) {
        const mm_rule *before = &config->rules[r];
        bool serves_all =
            before->action == MM_ACTION_KEEP || (before->action == MM_ACTION_SWAP && before->lean >= rule->lean);
        if (mm_selector_covers(&before->selector, &rule->selector) && (serves_all || serves_the_same(before, rule)))
            return before;
    }
    return NULL;
}

static size_t count(const char *text, char c) {
    size_t n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

static mm_status check_reached(const mm_engine_config *config, int rule) {
    const mm_rule *r = &config->rules[rule], *before = find_covering(config, rule, r);
    if (!before) return MM_OK;
    char text[2][RULE_CAPACITY];
    return mm_fail(
        MM_ERR_INVALID,
        "rule '%s' never applies: the earlier '%s' takes all maps that it names; leave it out, or write it first",
        brief(r, text[0]), brief(before, text[1]));
}

/* Chosen: one for each layer of the deepest networks; each is compared with all before it. */
enum { RULES_MOST = 4096 };

mm_status mm_rules_parse(const char *text, mm_engine_config *config) {
    config->n_rules = 0;
    config->rules = NULL;
    config->away = 0;
    if (count(text, ';') >= RULES_MOST)
        return mm_fail(MM_ERR_INVALID, "%zu rules: at most %d are allowed", count(text, ';') + 1, RULES_MOST);
    char *copy = strdup(text), *rest = NULL;
    config->rules = calloc(count(text, ';') + 1, sizeof *config->rules);
    mm_status status = copy && config->rules ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the rules");
    for (char *part = copy ? strtok_r(copy, ";", &rest) : NULL; status == MM_OK && part;
         part = strtok_r(NULL, ";", &rest)) {
        if (parse_home_rule(part, config, &status)) continue;
        status = parse_rule(part, &config->rules[config->n_rules++]);
        if (status == MM_OK) status = check_reached(config, config->n_rules - 1);
    }
    free(copy);
    if (status == MM_OK && config->n_rules == 0 && !config->away)
        status = mm_fail(MM_ERR_INVALID, "no rule: give some, as conv=compress(zfp);*=swap");
    if (status != MM_OK) mm_rules_fini(config);
    return status;
}

void mm_rules_fini(mm_engine_config *config) {
    for (int r = 0; r < config->n_rules; r++) mm_selector_fini(&config->rules[r].selector);
    free(config->rules);
    free(config->file);
    config->rules = NULL;
    config->file = NULL;
    config->n_rules = 0;
}

char *mm_rules_print(const mm_engine_config *config) {
    char *text = strdup("");
    for (int k = 0; text && k < HOME_KINDS; k++) {
        if (!(config->away >> home_kinds[k].kind & 1)) continue;
        char *longer = mm_text_format("%s%s%s=%s", text, *text ? ";" : "", home_kinds[k].name, to_host);
        free(text);
        text = longer;
    }
    for (int r = 0; text && r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        char action[ACTION_CAPACITY];
        char *longer =
            mm_text_format("%s%s%s=%s", text, *text ? ";" : "", rule->selector.text, action_text(rule, action));
        free(text);
        text = longer;
    }
    return text;
}

static mm_status add_to_menu(mm_engine_config *config, mm_action action, bool lean, const char *codec) {
    mm_rule *rule = &config->rules[config->n_rules];
    rule->action = action;
    rule->lean = lean;
    rule->mask = strcmp(codec, mm_mask_spec) == 0;
    strcpy(rule->codec, codec);
    MM_TRY(mm_selector_parse("*", &rule->selector));
    config->n_rules++;
    return MM_OK;
}

/* Adds a codec with its code on the device and in host memory. */
static mm_status add_both_to_menu(mm_engine_config *config, const char *spec, bool offered) {
    const int first = config->n_rules;
    MM_TRY(add_to_menu(config, MM_ACTION_CODE, false, spec));
    MM_TRY(add_to_menu(config, MM_ACTION_CODE_SWAP, false, spec));
    for (int r = first; r < config->n_rules; r++) config->rules[r].offered = offered;
    return MM_OK;
}

/* Lossless codecs for maps with zeros, which are in every menu. */
static const char *const offered[] = {"zvc"};
enum { OFFERED = sizeof offered / sizeof *offered };

static mm_status offer(mm_engine_config *config) {
    for (int i = 0; i < OFFERED; i++) {
        bool named = false;
        for (int r = 0; r < config->n_rules; r++) named |= strcmp(config->rules[r].codec, offered[i]) == 0;
        if (!named) MM_TRY(add_both_to_menu(config, offered[i], true));
    }
    return MM_OK;
}

static mm_status add_codec_to_menu(mm_engine_config *config, const char *codec, size_t length) {
    char spec[MM_SPEC_CAPACITY];
    if (length == 0)
        return mm_fail(MM_ERR_INVALID, "codecs=: a codec's name is missing: give codecs as zfp:rate=4+dpr:fp16");
    if (length >= MM_SPEC_CAPACITY)
        return mm_fail(MM_ERR_INVALID, "codecs=%s: a codec's name is longer than %d characters", MM_BRIEF(codec),
                       MM_SPEC_CAPACITY - 1);
    memcpy(spec, codec, length);
    spec[length] = '\0';
    for (int r = 0; r < config->n_rules; r++)
        if (strcmp(config->rules[r].codec, spec) == 0)
            return mm_fail(MM_ERR_INVALID, "codecs=: %s is %s: leave it out", spec,
                           config->rules[r].mask ? "always among them" : "given twice");
    return add_both_to_menu(config, spec, false);
}

mm_status mm_rules_menu(const char *codecs, mm_engine_config *config) {
    const size_t n = *codecs ? count(codecs, '+') + 1 : 0;
    config->n_rules = 0;
    config->rules = calloc(5 + 2 * (n + OFFERED), sizeof *config->rules);
    mm_status status = config->rules ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the rules");
    if (status == MM_OK) status = add_to_menu(config, MM_ACTION_CODE, false, mm_mask_spec);
    if (status == MM_OK) status = add_to_menu(config, MM_ACTION_RECOMPUTE, false, "");
    if (status == MM_OK) status = add_to_menu(config, MM_ACTION_SWAP, false, "");
    if (status == MM_OK) status = add_to_menu(config, MM_ACTION_SWAP, true, "");
    if (status == MM_OK) status = add_to_menu(config, MM_ACTION_RECOMPUTE, true, "");
    for (size_t i = 0; status == MM_OK && i < n; i++) {
        const size_t length = strcspn(codecs, "+");
        status = add_codec_to_menu(config, codecs, length);
        codecs += length + 1;
    }
    if (status == MM_OK) status = offer(config);
    if (status != MM_OK) mm_rules_fini(config);
    return status;
}

static mm_status copy_rule(const mm_rule *rule, mm_rule *copy) {
    *copy = *rule;
    return mm_selector_parse(rule->selector.text, &copy->selector);
}

mm_status mm_rules_add(mm_engine_config *config, mm_action action, const char *codec) {
    mm_rule rule = {.action = action};
    mm_rule *rules = realloc(config->rules, ((size_t)config->n_rules + 1) * sizeof *rules);
    if (!rules) return mm_fail(MM_ERR_NOMEM, "out of memory for the rules");
    config->rules = rules;
    snprintf(rule.codec, sizeof rule.codec, "%s", codec ? codec : "");
    MM_TRY(mm_selector_parse("*", &rule.selector));
    if (find_covering(config, config->n_rules, &rule))
        mm_selector_fini(&rule.selector);
    else
        config->rules[config->n_rules++] = rule;
    return MM_OK;
}

mm_status mm_config_copy(const mm_engine_config *config, mm_engine_config *copy_out) {
    mm_engine_config copy = *config;
    copy.n_rules = 0;
    copy.rules = calloc((size_t)config->n_rules + 1, sizeof *copy.rules);
    copy.file = config->file ? strdup(config->file) : NULL;
    const bool whole = copy.rules && (copy.file || !config->file);
    mm_status status = whole ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the rules");
    while (status == MM_OK && copy.n_rules < config->n_rules) {
        status = copy_rule(&config->rules[copy.n_rules], &copy.rules[copy.n_rules]);
        copy.n_rules += status == MM_OK;
    }
    if (status == MM_OK)
        *copy_out = copy;
    else
        mm_rules_fini(&copy);
    return status;
}

static bool is_same_rule(const mm_rule *a, const mm_rule *b) {
    return mm_rule_same_action(a, b) && strcmp(a->selector.text, b->selector.text) == 0;
}

static bool is_same_comet(const mm_comet_config *a, const mm_comet_config *b) {
    return a->every == b->every && a->rule == b->rule && a->guard == b->guard && a->sigma == b->sigma && a->a == b->a;
}

bool mm_config_equal(const mm_engine_config *a, const mm_engine_config *b) {
    bool equal = a->n_rules == b->n_rules && a->fetch == b->fetch && a->depth == b->depth &&
                 a->leave_steps == b->leave_steps && a->buffers == b->buffers && a->k == b->k &&
                 a->recompute == b->recompute && a->codes == b->codes && a->throttle == b->throttle &&
                 a->signs_whole == b->signs_whole && a->coding == b->coding && a->when == b->when &&
                 a->algorithms == b->algorithms && a->sub_batch == b->sub_batch && a->resident == b->resident &&
                 a->away == b->away && memcmp(&a->sharing, &b->sharing, sizeof a->sharing) == 0 &&
                 is_same_comet(&a->comet, &b->comet) && memcmp(a->own, b->own, sizeof a->own) == 0;
    equal = equal && !a->file == !b->file && (!a->file || strcmp(a->file, b->file) == 0);
    for (int r = 0; equal && r < a->n_rules; r++) equal = is_same_rule(&a->rules[r], &b->rules[r]);
    return equal;
}

mm_status mm_rules_check_codec(const mm_engine_config *config, const mm_codec_facts *codec) {
    for (int r = 0; r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        if (strcmp(rule->codec, codec->spec) != 0) continue;
        if (!codec->gives_value && !rule->mask)
            return mm_fail(MM_ERR_INVALID,
                           "codec '%s' does not give the elements back: choose one that does, as zfp or raw",
                           codec->spec);
        if (config->codes == MM_REGION_HEAP && !codec->fixed_size)
            return mm_fail(MM_ERR_INVALID,
                           "codec '%s' has codes of variable size, which workspace=naive cannot allocate: their sizes "
                           "are known on the device alone. Choose workspace=sliding",
                           codec->spec);
    }
    return MM_OK;
}

const char *mm_rules_codec(const mm_engine_config *config) {
    for (int r = 0; r < config->n_rules; r++)
        if (*config->rules[r].codec && !config->rules[r].mask && !config->rules[r].offered)
            return config->rules[r].codec;
    return "";
}

int mm_engine_codecs(const mm_engine_config *config, char specs_out[][MM_SPEC_CAPACITY], int capacity) {
    int n = 0;
    bool coded = false;
    for (int r = 0; r < config->n_rules && n < capacity; r++) {
        const mm_rule *rule = &config->rules[r];
        coded |= mm_rule_swaps_lean(rule);
        if (rule->action != MM_ACTION_CODE && rule->action != MM_ACTION_CODE_SWAP) continue;
        coded = true;
        int known = 0;
        while (known < n && strcmp(specs_out[known], rule->codec) != 0) known++;
        if (known == n) strcpy(specs_out[n++], rule->codec);
    }
    int known = 0;
    while (known < n && strcmp(specs_out[known], mm_mask_spec) != 0) known++;
    if (coded && known == n && n < capacity) strcpy(specs_out[n++], mm_mask_spec);
    return n;
}
