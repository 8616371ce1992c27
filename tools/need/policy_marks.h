/* SPDX-License-Identifier: MIT */
/* Properties that a policy has because of the codecs that it names; and what ranks that divide need of it. */
#ifndef TOOLS_NEED_POLICY_MARKS_H
#define TOOLS_NEED_POLICY_MARKS_H

#include <stdbool.h>

#include "mm/core/status.h"
#include "policies/policy.h"
#include "tools/args/texts.h"

/* Finds whether a policy is lossy: it names a lossy codec. False if the text is not a policy. MM_ERR_NOMEM. */
MM_CHECKED mm_status policy_find_lossy(const char *policy, bool *lossy_out);
/* Finds whether a policy samples: it names a codec whose error bounds the policy sets from what it observes in
 * training. False if the text is not a policy. MM_ERR_NOMEM. */
MM_CHECKED mm_status policy_find_samples(const char *policy, bool *samples_out);

/* What ranks divide stays on the device: sets the policy's option resident= to all. MM_ERR_INVALID: it is none. */
MM_CHECKED mm_status policy_stay(mm_policy *policy);
/* The same for a spec; `texts` owns the new one. Errors of mm_policy_parse, MM_ERR_NOMEM. */
MM_CHECKED mm_status policy_stay_text(const char **policy, texts *texts);

#endif
