/* SPDX-License-Identifier: MIT */
/* The interface of policies. A policy makes a plan from a graph, facts, limits and its configuration. It is a pure
 * function, without device, thread, clock or global: the same inputs give the same plan everywhere. Thread-safe. */
#ifndef POLICIES_POLICY_H
#define POLICIES_POLICY_H

#include "mm/core/plan/plan.h"
#include "policies/rules/config.h"
#include "policies/rules/observer.h"

enum {
    MM_OPTION_MAX = 16, /* limit of a policy's number of options; no policy has so many */
    MM_MAX_CODECS = 30, /* most codecs of a policy, the mask included; rules that name more are refused */
};

/* What an option sets: a field of the configuration (config.h), or its rules. */
typedef enum mm_option_type {
    MM_OPTION_NUMBER,   /* a field: a number from min to max, or the value of a choice */
    MM_OPTION_REAL,     /* a field: a number above 0 and at most max */
    MM_OPTION_CHOICE,   /* a field: the value of a choice */
    MM_OPTION_CODEC,    /* the codec of the rules */
    MM_OPTION_RATE,     /* the codec of the rules: zfp with this rate */
    MM_OPTION_RATIO,    /* the same, given as the ratio of a map's bytes to its code's: a number from min to max */
    MM_OPTION_ELIGIBLE, /* which layers the rules name: the policy's own kind, or all */
    MM_OPTION_RULES,    /* the rules */
    MM_OPTION_RULE_SET, /* the rules, as one of several sets by name */
    MM_OPTION_MENU,     /* the rules, as codecs joined by + (mm_rules_menu) */
    MM_OPTION_RESERVE,  /* reserve=PERCENT in the specs of a rule set's codecs of variable size */
    MM_OPTION_FILE,     /* a file of plans (saved.h) */
} mm_option_type;

/* Description of an option, for parsing, checking, printing and help. */
typedef struct mm_option_desc {
    const char *key, *fallback, *help; /* fallback: the default, as text */
    mm_option_type type;
    size_t field;         /* offset in mm_engine_config, of an int or enumeration (NUMBER, CHOICE) or a double (REAL) */
    const char *choices;  /* "a|b|c", at most five; or NULL */
    int values[5];        /* CHOICE, NUMBER: the value of each choice */
    const char *rules[5]; /* RULE_SET: the rules of each choice, with %s twice for the codecs' reserve */
    int64_t min, max;     /* NUMBER, RATIO, RESERVE: inclusive; REAL: only max */
} mm_option_desc;

/* A policy: its options, its configuration, and its planner. */
typedef struct mm_policy_ops {
    const char *name, *summary;
    const mm_option_desc *options; /* ended by a NULL key; NULL: none */
    bool takes_text;               /* the first option may be given without its key: NAME:text,key=value */
    bool asks;                     /* without its first option it does nothing, or is refused */
    const char *rules;             /* rules as text, with %s for the codec. NULL: an option gives them, or there are
                                      none */
    mm_engine_config config;       /* the fields that no option sets; without rules */
    /* Plans. If no plan fits the limits, *plan_out is the one with the lowest peak that the configuration allows; the
     * caller finds out with mm_plan_fits. The caller destroys the plan. */
    mm_status (*plan)(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                      const mm_engine_config *config, mm_plan **plan_out);
    /* NULL: the homes of persistent tensors are chosen (mm/planning/homes.h). Else says where the plan of a graph has
     * them, in the order of their declaration. The plans of such a policy are whole: they have the copies of tensors
     * that are all-reduced, too. */
    mm_status (*places)(const mm_graph *graph, const mm_engine_config *config, mm_place *places_out);
    /* Why auto does not try the policy's plans (auto_portfolio.h); NULL: one of its members does. */
    const char *not_in_auto;
    bool peer; /* it is there to be compared with, and for nothing else */
    /* NULL: the policy does not sample. Otherwise it samples every config.comet.every iterations. */
    const mm_observer *observer;
} mm_policy_ops;

/* A policy with its configuration. A plain copy of the struct borrows from it. */
typedef struct mm_policy {
    const mm_policy_ops *ops;
    mm_engine_config config;
    char *spec; /* text for people: as given to mm_policy_parse, or as mm_policy_print wrote it */
} mm_policy;

/* The i-th policy; NULL past the last. */
const mm_policy_ops *mm_policy_table(size_t i);

/* Parses a spec. MM_ERR_NOT_FOUND: no such policy (the message lists them); MM_ERR_INVALID: an unknown option (the
 * message lists them), or a value that is missing or out of range; MM_ERR_NOMEM. The caller frees the policy with
 * mm_policy_fini. */
MM_CHECKED mm_status mm_policy_parse(const char *spec, mm_policy *policy_out);
void mm_policy_fini(mm_policy *policy);

/* The policy with all options at their defaults. MM_ERR_NOMEM. The caller frees it with mm_policy_fini. */
MM_CHECKED mm_status mm_policy_default(const mm_policy_ops *ops, mm_policy *policy_out);

/* A deep copy. MM_ERR_NOMEM. The caller frees it with mm_policy_fini. */
MM_CHECKED mm_status mm_policy_copy(const mm_policy *policy, mm_policy *copy_out);

/* Replaces policy->spec by one printed from the configuration, without options at their defaults. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_policy_print(mm_policy *policy);

/* Whether it searches for a plan, which takes long: it chooses an action for each map from a menu (auto). */
bool mm_policy_searches(const mm_policy *policy);

/* Makes the facts say what the policy will do: a codec that its menu offers though nobody named it (mm_rule.offered)
 * encodes no tensor that promises no zeros. */
void mm_policy_restrict(const mm_policy *policy, const mm_graph *graph, mm_graph_facts *facts);

/* Whether both have the same planner and configuration; specs are not compared. */
bool mm_policy_equal(const mm_policy *a, const mm_policy *b);

/* How many images the policy wants computed at a time, or MM_SUB_BATCH_OFF or MM_SUB_BATCH_AUTO (config.h). Whoever
 * builds the graphs reads it; plans do not depend on it. */
static inline int mm_policy_sub_batch(const mm_policy *policy) { return policy->config.sub_batch; }

/* Checks a spec. Errors of mm_policy_parse. */
MM_CHECKED mm_status mm_policy_check(const char *spec);

/* Writes the specs of the codecs whose facts the policy needs, with the mask if it compresses; returns their number. */
int mm_policy_list_codecs(const mm_policy *policy, char specs_out[MM_MAX_CODECS][MM_SPEC_CAPACITY]);

/* The same for a spec. Errors of mm_policy_parse. */
MM_CHECKED mm_status mm_policy_codecs(const char *spec, char specs_out[MM_MAX_CODECS][MM_SPEC_CAPACITY], int *n_out);

/* Checks that the policy can use a codec of its rules: that it gives elements back, and that its codes can be
 * allocated. MM_ERR_INVALID. */
MM_CHECKED mm_status mm_policy_check_codec(const mm_policy *policy, const mm_codec_facts *codec);

/* Plans, and sets plan->policy to the spec. The caller destroys the plan. Errors name the policy. */
MM_CHECKED mm_status mm_policy_plan(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                                    const mm_limits *limits, mm_plan **plan_out);

#endif
