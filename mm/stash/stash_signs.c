/* SPDX-License-Identifier: MIT */
/* Adds the rules that give entries with MM_STASH_SIGNS exact signs beside their lossy codes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"
#include "mm/stash/stash_plan.h"
#include "policies/rules/rules.h"

/* Whether the rule's codec is lossy. */
static mm_status is_lossy(const mm_rule *rule, const char *device, bool *lossy_out) {
    mm_codec *codec;
    *lossy_out = false;
    if (rule->mask || !*rule->codec) return MM_OK;
    MM_TRY(mm_codec_create(rule->codec, device, &codec));
    *lossy_out = !codec->flags.lossless;
    mm_codec_destroy(codec);
    return MM_OK;
}

/* Makes from a rule the one for the same layers that also need signs. */
static mm_status sign(const mm_rule *rule, mm_rule *signed_out) {
    char codec[sizeof rule->codec + 8];
    mm_rule made = *rule;
    snprintf(codec, sizeof codec, "signs:%s", rule->codec);
    if (strlen(codec) >= sizeof made.codec)
        return mm_fail(MM_ERR_INVALID, "codec '%s' is too long for 'signs:' before it", rule->codec);
    memcpy(made.codec, codec, strlen(codec) + 1);
    char *selector = mm_text_format("%s&%s", rule->selector.text, mm_stash_signs_part);
    if (!selector) return mm_fail(MM_ERR_NOMEM, "out of memory for a rule");
    mm_status status = mm_selector_parse(selector, &made.selector);
    free(selector);
    if (status == MM_OK) *signed_out = made;
    return status;
}

static mm_status copy(const mm_rule *rule, mm_rule *copy_out) {
    *copy_out = *rule;
    return mm_selector_parse(rule->selector.text, &copy_out->selector);
}

static mm_status sign_rules(const mm_engine_config *config, const char *device, mm_engine_config *out) {
    for (int r = 0; r < config->n_rules; r++) {
        bool lossy;
        MM_TRY(is_lossy(&config->rules[r], device, &lossy));
        if (lossy) {
            MM_TRY(sign(&config->rules[r], &out->rules[out->n_rules]));
            out->n_rules++;
        }
        MM_TRY(copy(&config->rules[r], &out->rules[out->n_rules]));
        out->n_rules++;
    }
    return MM_OK;
}

mm_status mm_stash_sign_policy(const mm_policy *policy, const char *device, mm_policy *signed_out) {
    mm_policy made;
    MM_TRY(mm_policy_copy(policy, &made));
    mm_engine_config rules = made.config;
    rules.n_rules = 0;
    rules.rules = calloc(2 * (size_t)made.config.n_rules + 1, sizeof *rules.rules);
    mm_status status = rules.rules ? sign_rules(&made.config, device, &rules)
                                   : mm_fail(MM_ERR_NOMEM, "out of memory for the rules of a policy");
    mm_rules_fini(status == MM_OK ? &made.config : &rules);
    if (status == MM_OK) {
        made.config = rules;
        *signed_out = made;
    } else
        mm_policy_fini(&made);
    return status;
}
