/* Stochastic gradient descent with momentum and weight decay, as torch.optim.SGD without dampening or Nesterov's:
 *   v := momentum v + (g + weight_decay w);   w := w - lr v. */
#ifndef NETS_SGD_H
#define NETS_SGD_H

#include "mm/core/status.h"

/* Above it the update overflows, if not at once then with the next ones. */
#define NETS_GRADIENT_MOST 1e30f

/* The optimizer's constants; the learning rate comes with each iteration (schedule.h). */
typedef struct nets_sgd {
    float momentum, weight_decay;
    bool
        only_finite; /* an iteration whose loss is not finite, or a gradient or statistic (above NETS_GRADIENT_MOST: the
                         next would be), updates nothing, nor does any after it */
} nets_sgd;

/* One learned parameter of the update step. */
typedef struct nets_sgd_param {
    float *weight, *momentum;
    const float *gradient;
    int64_t elems;
} nets_sgd_param;

/* The update step of a backend (op.h). */
typedef struct nets_sgd_args {
    const nets_sgd_param *params; /* the list is in the CPU's memory; valid until the work is done */
    int n_params;
    int n_checked; /* of the list, for only_finite; those after the first n_params have no weight: their gradient is what
                      else must be finite, running statistics */
    const float *lr; /* [1], in the device's memory: read when the work runs */
    nets_sgd sgd;
    const float *loss; /* [1], in the device's memory; looked at with sgd.only_finite alone */
    uint32_t *rng;     /* NETS_RNG, in the device's memory: its iteration is advanced by one, or it is halted */
} nets_sgd_args;

#endif
