/* SPDX-License-Identifier: MIT */
/* Optimizers: each one's states and options, and the arguments of a backend's update step.
 *
 * An iteration updates all parameters after the backward pass: with only_finite all gradients must have been read
 * before any parameter changes. (Other ways: nets_update_when, lower.h.) Weight decay applies to the parameters that
 * their operation's list marks (net_ops.h). These are all learned ones, biases and batch norms' too, as with
 * torch.optim over model.parameters(); in networks of tokens only the matrices.
 *
 *   sgd, as torch.optim.SGD without dampening or Nesterov's:
 *       v := momentum v + (g + weight-decay w);   w := w - lr v;   of momentum 0, v is no tensor
 *   adamw, as torch.optim.AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019:
 *       m := beta1 m + (1 - beta1) g;   v := beta2 v + (1 - beta2) g^2;   t := t + 1
 *       w := w - lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight-decay w)
 *
 * Of adamw with states=8bit, most of the states are held in codes, which loses precision: state_codes.h says which,
 * and how. A new optimizer is an entry in optimizer.c's table, and an update in nets/host/simd_update_loops.h and in
 * nets/cuda. */
#ifndef NETS_OPTIMIZER_H
#define NETS_OPTIMIZER_H

#include "mm/core/status.h"

/* A gradient above this counts as not finite: float32 ends at 3.4e38, and momentum multiplies a gradient by up to
 * 1 / (1 - momentum). Chosen: no gradient of a training that works comes near it. */
#define NETS_GRADIENT_MOST 1e30f

/* NETS_PLAIN_SGD is "sgd" of momentum 0, which needs no state; NETS_ADAMW_8BIT is "adamw" with states=8bit:
 * nets_optimizer_parse and _set choose by the options. */
typedef enum nets_optimizer_id {
    NETS_SGD,
    NETS_ADAMW,
    NETS_PLAIN_SGD,
    NETS_ADAMW_8BIT,
    NETS_OPTIMIZERS
} nets_optimizer_id;

enum { NETS_OPTIMIZER_STATES = 2, NETS_OPTIMIZER_OPTIONS = 6 }; /* at most */

/* An optimizer and its constants; the learning rate comes with each iteration (lr_schedule.h). Constants of another
 * optimizer are ignored. All zero: SGD without momentum or decay. */
typedef struct nets_optimizer {
    nets_optimizer_id id;
    double momentum, weight_decay, beta1, beta2, eps;
    double state_bits; /* the option of `id` (NETS_ADAMW_8BIT), which is what counts */
    /* Above 0: if the root of the sum of all gradients' squares is more, all are multiplied by clip_norm / (that +
     * 1e-6) before the update, as torch.nn.utils.clip_grad_norm_ does. */
    double clip_norm;
    /* An iteration updates nothing if its loss is not finite, or if a gradient or running statistic is NaN or above
     * NETS_GRADIENT_MOST in magnitude. Nor does any iteration after it. If ranks update in parts while gradients are
     * being all-reduced, each checks its own gradients, up to NETS_GRADIENT_MOST divided by the number of ranks. */
    bool only_finite;
    /* States, f32 weights and gradients have their homes in pinned memory, and CPUs update each layer behind its
     * backward step (NETS_UPDATE_IN_BACKWARD), with the bits of the device. No text of it says so: a state of either
     * place goes on in the other. */
    bool on_host;
} nets_optimizer;

/* An option: a number of nets_optimizer, within [least, most], or [least, most) if `below`. */
typedef struct nets_optimizer_option {
    const char *name;
    size_t offset;
    double usual, least, most; /* usual: the default (optimizer.c) */
    bool below;
    const char *unit; /* not NULL: the number is `least` or `most`, and is written with this behind it */
} nets_optimizer_option;

typedef struct nets_optimizer_traits {
    const char *name;
    const char *layer; /* the name of the graph's update layer: facts are of one optimizer */
    /* Its states. For each, every parameter has a tensor "<state>.<parameter>" of its shape and type, initially zero.
     * NULL ends the list. */
    const char *states[NETS_OPTIMIZER_STATES];
    bool coded;  /* states of large parameters are codes (state_codes.h): lossy */
    bool counts; /* it reads how many updates were made (NETS_STEP_NAME) */
    double rate; /* the default learning rate */
    nets_optimizer_option options[NETS_OPTIMIZER_OPTIONS]; /* name NULL ends the list */
} nets_optimizer_traits;

/* The tensor with the number of updates, i32 [1]. */
#define NETS_STEP_NAME "step"
#define NETS_LOSS_NAME "loss"

const nets_optimizer_traits *nets_optimizer_traits_of(nets_optimizer_id id);

/* Reads "NAME[,OPTION=X,...]", such as "adamw,beta2=0.99" or "adamw,on=host" (or device, the default); other options
 * have their defaults. MM_ERR_INVALID: the message says what is wrong, and what there is. */
MM_CHECKED mm_status nets_optimizer_parse(const char *text, nets_optimizer *optimizer_out);
/* Writes the optimizer as a text that nets_optimizer_parse reads back to equal options; not where it runs. */
enum { NETS_OPTIMIZER_TEXT_CAPACITY = 192 };
void nets_optimizer_text(const nets_optimizer *optimizer, char text[NETS_OPTIMIZER_TEXT_CAPACITY]);

/* Sets one option by its name. MM_ERR_INVALID: the optimizer has no such option, or the value is out of its range. */
MM_CHECKED mm_status nets_optimizer_set(nets_optimizer *optimizer, const char *name, double value);

/* One learned parameter of the update step. */
typedef struct nets_update_param {
    float *weight, *state[NETS_OPTIMIZER_STATES];
    const float *gradient;
    int64_t elems;
    bool decayed;   /* weight decay applies to it */
    uint16_t *copy; /* the new weight's bf16 copy; NULL: it has none */
    /* Not NULL: the states are these codes, a byte for each element, and absmax for each block (state_codes.h), and
     * `state` is not used. Of the optimizers with nets_optimizer_traits.coded. */
    uint8_t *codes[NETS_OPTIMIZER_STATES];
    float *absmax[NETS_OPTIMIZER_STATES];
} nets_update_param;

/* The arguments of a backend's update step, or of a part of it (op.h). `params` is an array in the CPU's memory. All
 * other pointers, also those in its elements, are to device memory, which is read when the enqueued work runs. */
typedef struct nets_update_args {
    const nets_update_param *params; /* valid until the work is done */
    int n_params;
    /* As many parts of `params`, which may have no elements: only these are updated, while checks and the norm are of
     * all elements. NULL: `params`. */
    const nets_update_param *moved;
    /* With only_finite: whether `loss` and the gradients of the first n_checked `params` are checked before the update:
     * they must be finite, the gradients at most `most` in magnitude. Params from n_params on have no weight; their
     * `gradient` is a running statistic. */
    bool checks;
    int n_checked;
    float most;
    bool late;         /* the iteration has updated other parameters: the check halts with NETS_TORN (rng.h) */
    const float *loss; /* [1]; NULL: it is not checked */
    const float *lr;   /* [1] */
    nets_optimizer optimizer;
    bool goes_on; /* more parts of the update follow: rng and step do not change yet */
    /* NETS_RNG: the update increments its iteration or sets its halted word; its image becomes 0. NULL: it checks
     * nothing and counts no iteration (nets_backend_ops.update_now alone) */
    uint32_t *rng;
    uint32_t *step; /* [1], if the optimizer counts: incremented unless halted */
} nets_update_args;

#endif
