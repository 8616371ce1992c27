#include "mm/ladder.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/planning.h"

static bool is_option(const mm_policy *policy, const char *key, const char *value) {
    return strcmp(mm_policy_option(policy->ops, &policy->options, key), value) == 0;
}

static bool has_rung(const mm_ladder *l, const char *spec) {
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->rungs[i].spec, spec) == 0) return true;
    return false;
}

/* A rung of a spec, which is taken; NULL: out of memory. What is no policy, or there already, is left out. */
static mm_status add(mm_ladder *l, const char *step, char *spec) {
    mm_policy parsed;
    if (!spec) return mm_fail(MM_ERR_NOMEM, "out of memory for the ladder");
    mm_status status = mm_policy_parse(spec, &parsed);
    if (status == MM_OK) mm_policy_fini(&parsed);
    if (status == MM_OK && !has_rung(l, spec)) {
        l->rungs[l->n++] = (mm_rung){.spec = spec, .step = step, .least_workspaces = true};
        return MM_OK;
    }
    free(spec);
    return status == MM_ERR_NOMEM ? status : MM_OK;
}

/* The policy with some options set to other values, and without any wish for a number of buffers. NULL: out of
 * memory. */
static char *with_options(const mm_policy *policy, const char *const (*set)[2], int n_set) {
    char *spec = strdup(policy->ops->name), before = ':';
    for (int o = 0; spec && o < policy->options.n + n_set; o++) {
        bool own = o < policy->options.n, replaced = own && strcmp(policy->options.key[o], "k") == 0;
        for (int s = 0; own && s < n_set; s++) replaced |= strcmp(policy->options.key[o], set[s][0]) == 0;
        const char *key = own ? policy->options.key[o] : set[o - policy->options.n][0];
        const char *value = own ? policy->options.value[o] : set[o - policy->options.n][1];
        if (replaced) continue;
        char *longer = mm_text_format("%s%c%s=%s", spec, before, key, value);
        free(spec);
        spec = longer;
        before = ',';
    }
    return spec;
}

static mm_status add_own(mm_ladder *l, const mm_policy *policy) {
    static const char *const options[][2] = {{"depth", "1"}, {"buffers", "persistent"}, {"workspace", "sliding"}};
    bool unplanned = is_option(policy, "buffers", "naive") || is_option(policy, "workspace", "naive");
    MM_TRY(add(l, "smaller workspaces", strdup(policy->spec)));
    if (strcmp(policy->ops->name, "naive") == 0) MM_TRY(add(l, "storage used again", strdup("liveness")));
    if (unplanned) MM_TRY(add(l, "planned memory", with_options(policy, options + 1, 2)));
    if (atoi(mm_policy_option(policy->ops, &policy->options, "depth")) > 1)
        MM_TRY(add(l, "later decodes", with_options(policy, options, unplanned ? 3 : 1)));
    return MM_OK;
}

/* The codec of a policy that compresses, the first if it has several; "" if it does not. The mask is none. */
static void codec_of(const mm_policy *policy, char codec[MM_SPEC_CAPACITY]) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n = policy->ops->codecs ? policy->ops->codecs(policy->ops, &policy->options, specs, MM_MAX_CODECS) : 0;
    codec[0] = '\0';
    for (int c = n - 1; c >= 0; c--)
        if (strcmp(specs[c], "mask") != 0) strcpy(codec, specs[c]);
}

#define TAIL "depth=1,when=needed"

/* Policies that act on more maps. `rules`: what becomes of them under the policy itself. */
static mm_status add_stronger(mm_ladder *l, const mm_policy *policy, const char *rules) {
    static const char *const more[][2] = {{"more swapping", "*=swap"},
                                          {"recomputing", "*=recompute"},
                                          {"recomputing and swapping", "*=recompute;*=swap"}};
    static const char *const others[][2] = {
        {"recomputing segments and swapping", "recompute-swap:" TAIL},
        {"swapping while the computation waits", "swap:when=needed"},
        {"recomputing anew for each use", "recompute:mode=memory,when=needed"},
        {"recomputing all layers of a segment", "recompute:mode=sqrt,when=needed"},
    };
    char codec[MM_SPEC_CAPACITY];
    codec_of(policy, codec);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        MM_TRY(add(l, more[i][0], mm_text_format("rules:rules=%s%s%s,%s", rules, *rules ? ";" : "", more[i][1], TAIL)));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) MM_TRY(add(l, others[i][0], strdup(others[i][1])));
    if (*codec)
        MM_TRY(add(l, "compressing all maps", mm_text_format("rules:rules=*=compress(%s);*=swap,%s", codec, TAIL)));
    return MM_OK;
}

mm_status mm_ladder_init(mm_ladder *l, const mm_policy *policy) {
    char *rules = NULL;
    *l = (mm_ladder){.n = 0};
    mm_status status = add_own(l, policy);
    if (status == MM_OK) status = mm_policy_rules_text(policy, &rules);
    if (status == MM_OK) status = add_stronger(l, policy, rules);
    free(rules);
    if (status != MM_OK) mm_ladder_fini(l);
    return status;
}

void mm_ladder_fini(mm_ladder *l) {
    for (int i = 0; i < l->n; i++) free(l->rungs[i].spec);
    *l = (mm_ladder){.n = 0};
}
