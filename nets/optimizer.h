/* Optimizers: what each keeps for a parameter, its options, and what a backend is given to run its update step.
 *
 * A training has one update step for all parameters, after the backward pass: an update that is not taken (only_finite)
 * must look at all gradients before it changes anything. Weight decay is of the parameters that their operation's list
 * says (net_ops.h): of all there are, biases and batch norms' too, as torch.optim gives it to those of model.parameters().
 *
 *   sgd, as torch.optim.SGD without dampening or Nesterov's:
 *       v := momentum v + (g + weight-decay w);   w := w - lr v
 *   adamw, as torch.optim.AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019:
 *       m := beta1 m + (1 - beta1) g;   v := beta2 v + (1 - beta2) g^2;   t := t + 1
 *       w := w - lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight-decay w)
 *
 * A further one is an entry of optimizer.c's table, and an update in nets/host/host_update.c and nets/cuda. */
#ifndef NETS_OPTIMIZER_H
#define NETS_OPTIMIZER_H

#include "mm/core/status.h"

/* Above it the update overflows, if not at once then with the next ones. */
#define NETS_GRADIENT_MOST 1e30f

typedef enum nets_optimizer_id { NETS_SGD, NETS_ADAMW, NETS_OPTIMIZERS } nets_optimizer_id;

enum { NETS_OPTIMIZER_STATES = 2, NETS_OPTIMIZER_OPTIONS = 4 }; /* at most */

/* An optimizer's constants; the learning rate comes with each iteration (lr_schedule.h). Those that are another
 * optimizer's are not looked at. All zero: SGD without momentum or decay. */
typedef struct nets_optimizer {
    nets_optimizer_id id;
    double momentum, weight_decay, beta1, beta2, eps;
    bool
        only_finite; /* an iteration whose loss is not finite, or a gradient or statistic (above NETS_GRADIENT_MOST: the
                         next would be), updates nothing, nor does any after it */
} nets_optimizer;

/* A number among nets_optimizer's, within [least, most], or [least, most) if `below`. */
typedef struct nets_optimizer_option {
    const char *name;
    size_t offset;
    double usual, least, most;
    bool below;
} nets_optimizer_option;

typedef struct nets_optimizer_traits {
    const char *name;                          /* the graph's update layer has it, too */
    const char *states[NETS_OPTIMIZER_STATES]; /* tensors of each parameter's shape and type, which begin at zero:
                                                   "<state>.<parameter>"; NULL: no more */
    bool counts;                               /* it reads how many updates it has made, NETS_STEP_NAME */
    double rate;                               /* the usual learning rate */
    nets_optimizer_option options[NETS_OPTIMIZER_OPTIONS]; /* name NULL: no more */
} nets_optimizer_traits;

/* The count's tensor, i32 [1]. */
#define NETS_STEP_NAME "step"

const nets_optimizer_traits *nets_optimizer_traits_of(nets_optimizer_id id);

/* Reads "NAME[,OPTION=X,...]": "adamw,beta2=0.99"; what is not given is as usual. MM_ERR_INVALID: says what is wrong,
 * and what there is. */
MM_CHECKED mm_status nets_optimizer_parse(const char *text, nets_optimizer *optimizer_out);
/* The same as a text that reads back as it is. */
enum { NETS_OPTIMIZER_TEXT_CAPACITY = 192 };
void nets_optimizer_text(const nets_optimizer *optimizer, char text[NETS_OPTIMIZER_TEXT_CAPACITY]);

/* Sets one option by its name, within its range. MM_ERR_INVALID: the optimizer has no such option, or not that value.
 */
MM_CHECKED mm_status nets_optimizer_set(nets_optimizer *optimizer, const char *name, double value);

/* One learned parameter of the update step. */
typedef struct nets_update_param {
    float *weight, *state[NETS_OPTIMIZER_STATES];
    const float *gradient;
    int64_t elems;
    bool decayed; /* weight decay is of it, too */
} nets_update_param;

/* The update step of a backend (op.h). */
typedef struct nets_update_args {
    const nets_update_param *params; /* the list is in the CPU's memory; valid until the work is done */
    int n_params;
    int n_checked; /* of the list, for only_finite; those after the first n_params have no weight: their gradient is what
                      else must be finite, running statistics */
    const float *lr; /* [1], in the device's memory: read when the work runs */
    nets_optimizer optimizer;
    const float *loss; /* [1], in the device's memory; looked at with optimizer.only_finite alone */
    uint32_t *rng;     /* NETS_RNG, in the device's memory: its iteration is advanced by one, or it is halted */
    uint32_t *step;    /* [1], in the device's memory, of an optimizer that counts: advanced by one, unless halted */
} nets_update_args;

#endif
