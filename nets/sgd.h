/* Stochastic gradient descent with momentum and weight decay, as torch.optim.SGD without dampening or Nesterov's:
 *   v := momentum v + (g + weight_decay w);   w := w - lr v. */
#ifndef NETS_SGD_H
#define NETS_SGD_H

#include "mm/core/status.h"

/* The optimizer's constants; the learning rate comes with each iteration (schedule.h). */
typedef struct nets_sgd {
    float momentum, weight_decay;
} nets_sgd;

/* One learned parameter of the update step. */
typedef struct nets_sgd_param {
    float *weight, *momentum;
    const float *gradient;
    int64_t elems;
} nets_sgd_param;

/* The update step of a backend (op.h). */
typedef struct nets_sgd_args {
    const nets_sgd_param *params; /* the list, in the CPU's memory, is valid until the work is done */
    int n_params;
    const float *lr; /* the learning rate, [1] in the device's memory: read when the update runs, so that work recorded
                        once (a CUDA graph) serves all iterations */
    nets_sgd sgd;
    uint32_t *rng; /* NETS_RNG, whose iteration is advanced by one */
} nets_sgd_args;

#endif
