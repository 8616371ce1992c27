/* SPDX-License-Identifier: MIT */
/* What the codecs that a policy names make of it. */
#ifndef TOOLS_NEED_POLICY_MARKS_H
#define TOOLS_NEED_POLICY_MARKS_H

#include <stdbool.h>

/* Whether training under a policy is lossy: a codec that it names gives other values back. False of what is no
 * policy. */
bool policy_is_lossy(const char *policy);
/* Whether it samples: it observes, and a codec that it names takes its bounds from that. False of what is no policy. */
bool policy_samples(const char *policy);
/* What stands behind a policy's name in every table: " (lossy)", or "". */
const char *policy_mark(const char *policy);

#endif
