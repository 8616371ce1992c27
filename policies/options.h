/* Options of a policy: from text to its configuration, and back. */
#ifndef POLICIES_OPTIONS_H
#define POLICIES_OPTIONS_H

#include "policies/policy.h"

/* Of each of ops->options the value that was given, checked against its description; NULL: none was. */
typedef struct mm_option_values {
    const char *given[MM_OPTION_MAX];
} mm_option_values;

/* The configuration, with rules that the caller ends. MM_ERR_INVALID: options that contradict each other, rules that are
 * none, more codecs than a plan may have; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_options_configure(const mm_policy_ops *ops, const mm_option_values *values,
                                          mm_engine_config *config_out);

/* "name:key=value,...", without options that are at their fallbacks; the caller frees it. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_options_print(const mm_policy_ops *ops, const mm_engine_config *config, char **spec_out);

#endif
