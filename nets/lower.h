/* Lowering: a net, a batch size and a mode become a frozen graph (mm.h) and a table that says, for each of its steps,
 * which op runs and which tensor plays which role. Layers that are computed as one (fuse.h; unless the backend's
 * no_fuse) are one layer of the graph: a batch norm and what is behind it, by the batch norm's name, which its saved
 * tensors have too; its output has the ReLU's.
 *
 * Names of tensors: images, labels, <layer>.out; saved <layer>.mean, <layer>.var, <layer>.index; grad.<layer>.out (the
 * parts of a sum over several consumers: grad.<layer>.out.1, .2, ...). Persistent, shared by name with the other graphs
 * of the net: the parameters, grad.<parameter>, <state>.<parameter> for each of the optimizer's
 * states (optimizer.h: momentum.<parameter>), loss, correct, rng, lr, and step of an optimizer that counts.
 *
 * Several consumers of one tensor: each backward writes a gradient map of its own; the one that runs later reads what
 * the earlier ones have written and adds it into its own, so the last is the sum, in an order that is always the same.
 */
#ifndef NETS_LOWER_H
#define NETS_LOWER_H

#include "nets/op.h"

typedef enum nets_mode {
    NETS_TRAIN,
    NETS_EVAL, /* forward only: running statistics, no dropout; loss and correct */
} nets_mode;

typedef struct nets_step {
    int layer; /* of the net, of several the last; -1: the update */
    mm_layer graph_layer;
    mm_phase phase;
    nets_op *op;                   /* NULL: the data and update steps */
    mm_tensor tensors[NETS_ROLES]; /* -1: absent */
    uint64_t sign_roles;           /* bit r: role r may be given as the sign mask (mm_tensor_form) */
    uint64_t modified_roles;       /* bit r: the step changes what role r holds */
} nets_step;

/* A parameter's tensors in the graph; -1: absent. */
typedef struct nets_param_tensors {
    mm_tensor value, gradient, state[NETS_OPTIMIZER_STATES];
} nets_param_tensors;

typedef struct nets_lowered {
    const nets_net *net; /* borrowed */
    int64_t batch;
    nets_mode mode;
    nets_optimizer_id optimizer;
    mm_graph *graph; /* frozen */
    nets_step *steps;
    int n_steps;
    nets_param_tensors *params; /* nets_net_params(net) of them */
    mm_tensor images, labels, loss, correct;
    mm_tensor rng, lr; /* training only: NETS_RNG; f32 [1], the update's learning rate */
    mm_tensor step;    /* training only, of an optimizer that counts: i32 [1], its updates */
    nets_op **ops;     /* each description once */
    int n_ops;
} nets_lowered;

/* `net` and `backend` must outlive it. MM_ERR_INVALID for a batch out of range. */
MM_CHECKED mm_status nets_lower(const nets_net *net, nets_backend *backend, int64_t batch, nets_mode mode,
                                nets_optimizer_id optimizer, nets_lowered **lowered_out);
void nets_lowered_destroy(nets_lowered *lowered);

#endif
