/* SPDX-License-Identifier: MIT */
/* Options of a policy: parses them into its configuration, and prints them from it. */
#ifndef POLICIES_OPTIONS_H
#define POLICIES_OPTIONS_H

#include "policies/policy.h"

/* The values that were given, one per entry of ops->options and already checked against it; NULL: none was. */
typedef struct mm_option_values {
    const char *given[MM_OPTION_MAX];
} mm_option_values;

/* Makes the configuration; the caller frees its rules (mm_rules_fini). MM_ERR_INVALID: options that contradict each
 * other, invalid rules, or more than MM_MAX_CODECS codecs; MM_ERR_NOMEM. Errors of mm_saved_configure. */
MM_CHECKED mm_status mm_options_configure(const mm_policy_ops *ops, const mm_option_values *values,
                                          mm_engine_config *config_out);

/* Prints the spec, "name:key=value,...". Options at their default are left out. The caller frees it. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_options_print(const mm_policy_ops *ops, const mm_engine_config *config, char **spec_out);

#endif
