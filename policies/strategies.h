/* The policies of this build: the two baselines (keep.c), and the presets of the engine (presets.c). policy.c lists
 * them. */
#ifndef POLICIES_STRATEGIES_H
#define POLICIES_STRATEGIES_H

#include "policies/policy.h"

extern const mm_policy_ops mm_policy_naive, mm_policy_liveness, mm_policy_freelunch, mm_policy_swap,
    mm_policy_swap_async, mm_policy_hybrid, mm_policy_vdnn_all, mm_policy_vdnn_conv, mm_policy_cdma, mm_policy_rules,
    mm_policy_recompute, mm_policy_recompute_swap;

#endif
