/* SPDX-License-Identifier: MIT */
/* A net in training under one policy, with a manager of its own. For benches and accuracy tests. */
#ifndef TOOLS_BENCH_TRAINER_H
#define TOOLS_BENCH_TRAINER_H

#include "nets/exec/exec.h"

typedef struct trainer {
    mm_manager *manager;
    nets_exec *exec;
    int64_t budget_bytes;
} trainer;

/* Makes a trainer on the host device, in the smallest budget in which the policy runs. options: the manager's; device,
 * budget and pinned memory are set here. net must outlive the trainer. Weights are zero until nets_exec_init or
 * trainer_copy. */
MM_CHECKED mm_status trainer_init(trainer *t, const nets_net *net, int64_t batch, const nets_optimizer *sgd,
                                  const mm_options *options);
/* Legal on a zeroed trainer. */
void trainer_fini(trainer *t);

/* Copies all state that outlives an iteration: weights, optimizer state, running statistics, random state. Both must
 * train the same net, and be between iterations. */
MM_CHECKED mm_status trainer_copy(const trainer *from, trainer *to);

#endif
