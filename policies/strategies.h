/* The strategies of this build, one file each; policy.c lists them. */
#ifndef POLICIES_STRATEGIES_H
#define POLICIES_STRATEGIES_H

#include "policies/policy.h"

extern const mm_policy_ops mm_policy_naive, mm_policy_liveness, mm_policy_freelunch;

#endif
