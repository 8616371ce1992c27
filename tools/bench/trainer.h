/* A net in training under one policy, with a manager of its own: what the benches and the accuracy tests compare. */
#ifndef TOOLS_BENCH_TRAINER_H
#define TOOLS_BENCH_TRAINER_H

#include "nets/exec.h"

typedef struct trainer {
    mm_manager *manager;
    nets_exec *exec;
    int64_t budget_bytes;
} trainer;

/* On the host device, in the least budget that the policy runs in. `options` gives the policy and whatever else the
 * manager shall do; its device and budget are set here. `net` must outlive the trainer. Weights are zero until
 * nets_exec_init or trainer_copy. */
MM_CHECKED mm_status trainer_init(trainer *t, const nets_net *net, int64_t batch, const nets_optimizer *sgd,
                                  const mm_options *options);
/* Legal on a zeroed one. */
void trainer_fini(trainer *t);

/* Copies what outlives an iteration: weights, optimizer state, running statistics, random state. Both train the same
 * net; between iterations. */
MM_CHECKED mm_status trainer_copy(const trainer *from, trainer *to);

#endif
