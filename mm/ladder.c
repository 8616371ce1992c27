#include "mm/ladder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/planning.h"

typedef struct ladder {
    const mm_policy *policy;
    mm_rung *rungs;
    int n;
} ladder;

static bool is_option(const mm_policy *policy, const char *key, const char *value) {
    return strcmp(mm_policy_option(policy->ops, &policy->options, key), value) == 0;
}

/* What is too long to be written, no policy, or there already is left out. */
static void add(ladder *l, const char *step, const char *spec, int length) {
    mm_policy parsed;
    if (length >= MM_POLICY_SPEC || l->n == MM_LADDER_MAX || mm_policy_parse(spec, &parsed) != MM_OK) return;
    if (strcmp(l->policy->spec, spec) == 0) return;
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->rungs[i].spec, spec) == 0) return;
    mm_rung *rung = &l->rungs[l->n++];
    *rung = (mm_rung){.step = step, .least_workspaces = true};
    strcpy(rung->spec, spec);
}

#define ADD(l, step, ...)                                                                                              \
    do {                                                                                                               \
        char spec_[MM_POLICY_SPEC];                                                                                    \
        int length_ = snprintf(spec_, sizeof spec_, __VA_ARGS__);                                                      \
        add(l, step, spec_, length_);                                                                                  \
    } while (0)

/* The policy with some options set to other values, and without any wish for a number of buffers. */
static int with_options(const mm_policy *policy, const char *const (*set)[2], int n_set, char spec[MM_POLICY_SPEC]) {
    int length = snprintf(spec, MM_POLICY_SPEC, "%s", policy->ops->name);
    char before = ':';
    for (int o = 0; o < policy->options.n && length < MM_POLICY_SPEC; o++) {
        bool replaced = strcmp(policy->options.key[o], "k") == 0;
        for (int s = 0; s < n_set; s++) replaced |= strcmp(policy->options.key[o], set[s][0]) == 0;
        if (replaced) continue;
        length += snprintf(spec + length, (size_t)(MM_POLICY_SPEC - length), "%c%s=%s", before, policy->options.key[o],
                           policy->options.value[o]);
        before = ',';
    }
    for (int s = 0; s < n_set && length < MM_POLICY_SPEC; s++, before = ',')
        length += snprintf(spec + length, (size_t)(MM_POLICY_SPEC - length), "%c%s=%s", before, set[s][0], set[s][1]);
    return length;
}

static void add_own(ladder *l) {
    static const char *const options[][2] = {{"depth", "1"}, {"buffers", "persistent"}, {"workspace", "sliding"}};
    char spec[MM_POLICY_SPEC];
    const mm_policy *policy = l->policy;
    bool unplanned = is_option(policy, "buffers", "naive") || is_option(policy, "workspace", "naive");
    l->rungs[l->n] = (mm_rung){.step = "smaller workspaces", .least_workspaces = true};
    strcpy(l->rungs[l->n++].spec, policy->spec);
    if (strcmp(policy->ops->name, "naive") == 0) ADD(l, "storage used again", "liveness");
    if (unplanned) add(l, "planned memory", spec, with_options(policy, options + 1, 2, spec));
    if (atoi(mm_policy_option(policy->ops, &policy->options, "depth")) > 1)
        add(l, "later decodes", spec, with_options(policy, options, unplanned ? 3 : 1, spec));
}

/* The codec of a policy that compresses, the first if it has several; "" if it does not. The mask is none. */
static void codec_of(const mm_policy *policy, char codec[MM_SPEC_CAPACITY]) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n = policy->ops->codecs ? policy->ops->codecs(policy->ops, &policy->options, specs, MM_MAX_CODECS) : 0;
    codec[0] = '\0';
    for (int c = n - 1; c >= 0; c--)
        if (strcmp(specs[c], "mask") != 0) strcpy(codec, specs[c]);
}

int mm_ladder_list(const mm_policy *policy, mm_rung rungs_out[MM_LADDER_MAX]) {
    static const char tail[] = "depth=1,when=needed";
    ladder l = {.policy = policy, .rungs = rungs_out};
    char rules[MM_OPTION_VALUE], codec[MM_SPEC_CAPACITY];
    add_own(&l);
    if (mm_policy_rules_text(policy, rules, sizeof rules - 1) != MM_OK) return l.n;
    codec_of(policy, codec);
    if (*rules) strcat(rules, ";");
    ADD(&l, "more swapping", "rules:rules=%s*=swap,%s", rules, tail);
    ADD(&l, "recomputing", "rules:rules=%s*=recompute,%s", rules, tail);
    ADD(&l, "recomputing and swapping", "rules:rules=%s*=recompute;*=swap,%s", rules, tail);
    ADD(&l, "recomputing segments and swapping", "recompute-swap:%s", tail);
    ADD(&l, "swapping while the computation waits", "swap:when=needed");
    ADD(&l, "recomputing anew for each use", "recompute:mode=memory,when=needed");
    ADD(&l, "recomputing all layers of a segment", "recompute:mode=sqrt,when=needed");
    if (*codec) ADD(&l, "compressing all maps", "rules:rules=*=compress(%s);*=swap,%s", codec, tail);
    return l.n;
}
