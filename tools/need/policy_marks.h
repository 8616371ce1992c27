/* SPDX-License-Identifier: MIT */
/* Properties that a policy has because of the codecs that it names. */
#ifndef TOOLS_NEED_POLICY_MARKS_H
#define TOOLS_NEED_POLICY_MARKS_H

#include <stdbool.h>

/* Whether a policy is lossy: it names a lossy codec. False if the text is not a policy. */
bool policy_is_lossy(const char *policy);
/* Whether a policy samples: it names a codec whose error bounds the policy sets from what it observes in training.
 * False if the text is not a policy. */
bool policy_samples(const char *policy);
/* The text that tables print after a policy's name: " (lossy)" or "". */
const char *policy_mark(const char *policy);

#endif
