/* The policy contract: from a graph, facts, limits and options to a plan. A pure function: no device, thread, clock or
 * global, so the same inputs give the same plan everywhere. */
#ifndef POLICIES_POLICY_H
#define POLICIES_POLICY_H

#include "mm/core/plan.h"
#include "policies/selector.h"

enum {
    MM_OPTION_MAX = 16, /* options of a policy */
    MM_MAX_CODECS = 16, /* of one policy, the mask among them: what names more is refused */
};

/* "name:key=value,key=value" taken apart. Values may hold ':' and '=' (codec=zfp:rate=4), and are of any length. */
typedef struct mm_policy_options {
    int n;
    const char *key[MM_OPTION_MAX], *value[MM_OPTION_MAX]; /* of the policy's text */
} mm_policy_options;

/* One option that a policy takes, for checking and for help. */
typedef struct mm_option_desc {
    const char *key, *fallback, *help;
    const char *choices; /* "a|b|c", or NULL */
    int64_t min, max;    /* of an integer option, if min < max */
} mm_option_desc;

typedef struct mm_policy_ops mm_policy_ops;
struct mm_policy_ops {
    const char *name, *summary;
    const mm_option_desc *options; /* ended by a NULL key; NULL: none */
    bool takes_text;               /* the first option may be given without its key: NAME:text,key=value */
    /* Whether the options make sense together, beyond what their table says. NULL: they do. */
    mm_status (*check)(const mm_policy_ops *ops, const mm_policy_options *options);
    /* Specs of the codecs whose facts it needs, at most `capacity`; returns how many. NULL: none. */
    int (*codecs)(const mm_policy_ops *ops, const mm_policy_options *options, char specs_out[][MM_SPEC_CAPACITY],
                  int capacity);
    /* The plan with the lowest peak that the options allow, if none fits the limits: the caller tells from
     * plan->peak_bytes (mm_plan_fits). The plan is the caller's. */
    mm_status (*plan)(const mm_policy_ops *ops, const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                      const mm_policy_options *options, mm_plan **plan_out);
};

/* A parsed "name:key=value,...", checked against the policy's option table. A copy of the struct borrows from it. */
typedef struct mm_policy {
    const mm_policy_ops *ops;
    mm_policy_options options;
    char *spec; /* as given; and behind its end, the same taken apart */
} mm_policy;

/* The i-th policy, NULL past the last. */
const mm_policy_ops *mm_policy_table(size_t i);

/* MM_ERR_NOT_FOUND (lists the policies), MM_ERR_INVALID (unknown option: lists them; value missing or out of range:
 * says it), MM_ERR_NOMEM. The caller ends the policy with mm_policy_fini. */
MM_CHECKED mm_status mm_policy_parse(const char *spec, mm_policy *policy_out);
void mm_policy_fini(mm_policy *policy);

/* Whether a spec is one: the errors of mm_policy_parse. */
MM_CHECKED mm_status mm_policy_check(const char *spec);

/* Specs of the codecs that a policy names, with the mask where it compresses. */
MM_CHECKED mm_status mm_policy_codecs(const char *spec, char specs_out[MM_MAX_CODECS][MM_SPEC_CAPACITY], int *n_out);

/* The option's value, or its fallback. */
const char *mm_policy_option(const mm_policy_ops *ops, const mm_policy_options *options, const char *key);

/* What becomes of which maps, in the language of the policy `rules`; "" if all are kept. The caller frees
 * the text. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_policy_rules_text(const mm_policy *policy, char **text_out);

/* Plans and fills in plan->policy. Errors name the policy. */
MM_CHECKED mm_status mm_policy_plan(const mm_policy *policy, const mm_graph *graph, const mm_facts *facts,
                                    const mm_limits *limits, mm_plan **plan_out);

#endif
