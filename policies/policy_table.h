/* SPDX-License-Identifier: MIT */
/* The policies of this build. A new one is a file with an mm_policy_ops, and a name here. */
#ifndef POLICIES_POLICY_TABLE_H
#define POLICIES_POLICY_TABLE_H

#include "policies/policy.h"

/* The two baselines (baselines.c), presets of the engine (presets.c), vdnn-dyn (vdnn_dyn.c), modnn (modnn.c), auto
 * (auto.c) and plans from files (saved.c), in the order of `mm policies`. */
#define MM_POLICIES(X)                                                                                                 \
    X(naive)                                                                                                           \
    X(liveness)                                                                                                        \
    X(freelunch)                                                                                                       \
    X(swap)                                                                                                            \
    X(swap_async)                                                                                                      \
    X(hybrid)                                                                                                          \
    X(vdnn_all)                                                                                                        \
    X(vdnn_conv)                                                                                                       \
    X(vdnn_dyn)                                                                                                        \
    X(cdma)                                                                                                            \
    X(modnn)                                                                                                           \
    X(comet)                                                                                                           \
    X(gist)                                                                                                            \
    X(recompute)                                                                                                       \
    X(recompute_swap)                                                                                                  \
    X(auto)                                                                                                            \
    X(rules)                                                                                                           \
    X(rotor)                                                                                                           \
    X(knapsack)                                                                                                        \
    X(plan_file)

#define MM_POLICY_OPS(name) extern const mm_policy_ops mm_policy_##name;
MM_POLICIES(MM_POLICY_OPS)
#undef MM_POLICY_OPS

enum { MM_AUTO_EFFORT }; /* index of auto's search effort in mm_engine_config.own; an effort of 0: no search */

#endif
