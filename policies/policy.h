/* The policy contract: from a graph, facts, limits and options to a plan. A pure function: no device, thread, clock or
 * global, so the same inputs give the same plan everywhere. */
#ifndef POLICIES_POLICY_H
#define POLICIES_POLICY_H

#include "mm/core/plan.h"
#include "policies/config.h"

enum {
    MM_OPTION_MAX = 16, /* options of a policy */
    MM_MAX_CODECS = 16, /* of one policy, the mask among them: what names more is refused */
};

/* What an option sets. */
typedef enum mm_option_type {
    MM_OPTION_NUMBER,   /* a field of the configuration, from min to max */
    MM_OPTION_CHOICE,   /* a field, to the value of the choice */
    MM_OPTION_CODEC,    /* the codec of the rules */
    MM_OPTION_RATE,     /* the same, as a rate of zfp */
    MM_OPTION_ELIGIBLE, /* what the rules name: the kind that they name, or all */
    MM_OPTION_RULES,    /* the rules */
} mm_option_type;

/* One option that a policy takes: for parsing, checking, printing and help. */
typedef struct mm_option_desc {
    const char *key, *fallback, *help;
    mm_option_type type;
    size_t field;        /* NUMBER, CHOICE: offset of an int or enumeration in mm_engine_config */
    const char *choices; /* "a|b|c", or NULL */
    int values[4];       /* CHOICE: of each */
    int64_t min, max;    /* NUMBER */
} mm_option_desc;

/* A policy: its options, the configuration that they are set in, and the function of it that plans. */
typedef struct mm_policy_ops {
    const char *name, *summary;
    const mm_option_desc *options; /* ended by a NULL key; NULL: none */
    bool takes_text;               /* the first option may be given without its key: NAME:text,key=value */
    const char *rules;             /* %s: the codec. NULL: an option gives them, or there are none */
    mm_engine_config config;       /* what no option sets; no rules */
    /* The plan with the lowest peak that the configuration allows, if none fits the limits: the caller tells from
     * plan->peak_bytes (mm_plan_fits). The plan is the caller's. */
    mm_status (*plan)(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                      const mm_engine_config *config, mm_plan **plan_out);
} mm_policy_ops;

/* A policy and its configuration. A copy of the struct borrows from it. */
typedef struct mm_policy {
    const mm_policy_ops *ops;
    mm_engine_config config;
    char *spec; /* for people: as given, or as printed from the configuration */
} mm_policy;

/* The i-th policy, NULL past the last. */
const mm_policy_ops *mm_policy_table(size_t i);

/* MM_ERR_NOT_FOUND (lists the policies), MM_ERR_INVALID (unknown option: lists them; value missing or out of range:
 * says it), MM_ERR_NOMEM. The caller ends the policy with mm_policy_fini. */
MM_CHECKED mm_status mm_policy_parse(const char *spec, mm_policy *policy_out);
void mm_policy_fini(mm_policy *policy);

/* The policy in its default form: all options at their fallbacks. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_policy_default(const mm_policy_ops *ops, mm_policy *policy_out);

MM_CHECKED mm_status mm_policy_copy(const mm_policy *policy, mm_policy *copy_out);

/* Writes policy->spec anew, from the configuration: options at their fallbacks are left out. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_policy_print(mm_policy *policy);

/* Whether they do the same, whatever their specs. */
bool mm_policy_equal(const mm_policy *a, const mm_policy *b);

/* Whether a spec is one: the errors of mm_policy_parse. */
MM_CHECKED mm_status mm_policy_check(const char *spec);

/* Specs of the codecs whose facts the policy needs, with the mask where it compresses; returns how many. */
int mm_policy_list_codecs(const mm_policy *policy, char specs_out[MM_MAX_CODECS][MM_SPEC_CAPACITY]);

/* The same of a spec. */
MM_CHECKED mm_status mm_policy_codecs(const char *spec, char specs_out[MM_MAX_CODECS][MM_SPEC_CAPACITY], int *n_out);

/* Plans and fills in plan->policy. Errors name the policy. */
MM_CHECKED mm_status mm_policy_plan(const mm_policy *policy, const mm_graph *graph, const mm_facts *facts,
                                    const mm_limits *limits, mm_plan **plan_out);

#endif
