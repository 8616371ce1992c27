/* SPDX-License-Identifier: MIT */
/* Lowering: a net, a batch size and a mode become a frozen graph (mm.h) and a table that says, for each of its steps,
 * which op runs and which tensor has which role. Layers that are fused (fuse.h, unless nets_lowering.no_fuse) are one
 * layer of the graph. A batch norm that is fused with a ReLU has the batch norm's name, also in its saved tensors; its
 * output has the ReLU's.
 *
 * Managed tensors are called images, labels, <layer>.out; <layer>.mean, <layer>.var, <layer>.index for saved ones; and
 * grad.<layer>.out, or grad.<layer>.out.1, .2, ... for the parts of a sum over several consumers. Persistent tensors
 * are shared by name with the other graphs of the net: the parameters, grad.<parameter>, <state>.<parameter> for each
 * state of the optimizer (optimizer.h: momentum.<parameter>; if it is in codes, absmax.<state>.<parameter>, too), loss,
 * correct, rng, lr, and step if the optimizer counts; with bf16 maps bf16.<parameter>, the copy of a weight that is a
 * factor. With NETS_UPDATE_IN_BACKWARD grad.<parameter> is managed, unless the host updates. If ranks divide gradients,
 * it is, too, and the persistent tensor shares.grad has a rank's shares of all. The update's layer is called after the
 * optimizer (nets_optimizer_traits.layer): <optimizer>; <optimizer>.1, .2, ... for its parts; <optimizer>.<layer> if
 * there is one for each layer. Then large parameters' states are cut (param_strips.h), unless they are codes or the
 * host updates: those of strip i are called <state>.<parameter>[i], and <optimizer>.<parameter>[i] updates them. A
 * frozen parameter (nets_freeze) is read only: it has no gradient and no states, and with a bf16 copy no value. What
 * would only give the gradients of frozen parameters, or of maps below the first layer that trains, is left out: steps,
 * and reads of maps.
 *
 * If a tensor has several consumers, each backward writes a gradient map of its own. A later one reads what the earlier
 * ones have written and adds it to its own. So the last map is the sum, always in the same order. */
#ifndef NETS_LOWER_LOWER_H
#define NETS_LOWER_LOWER_H

#include "nets/contract/op.h"
#include "nets/contract/op_order.h"
#include "nets/exchange.h"
#include "nets/lower/param_strips.h"

typedef enum nets_mode {
    NETS_TRAIN,
    NETS_EVAL, /* forward only, with running statistics and without dropout; gives loss and correct */
} nets_mode;

/* All-reduces of processes that train one network, each on a part of every batch: rank r on the r-th. All zero: there
 * is one process. */
typedef struct nets_allreduce {
    int n, rank;
    mm_allreduce_when when;      /* when gradients and results are all-reduced (mm_graph_allreduce) */
    const mm_allreduce_fns *fns; /* who all-reduces them, for executors; borrowed. NULL: for planning only */
    void *ctx;
    int64_t (*begun)(void *ctx); /* how many all-reduces have begun so far; NULL: not known */
    /* Makes *word, at least 0, the sum of the ranks' words. Called once an iteration, on a thread of the device, while
     * all-reduces are under way; blocks until all ranks have called it. NULL: nobody asks the others. */
    mm_status (*agree)(void *ctx, int32_t *word);
    nets_divide divide;   /* what the ranks divide */
    bool whole_gradients; /* for planning: the device's operations give no gradients in parts (param_parts.h) */
    const nets_exchange *exchange; /* with `divide`, how they exchange it; borrowed; ctx as above. NULL: for planning */
} nets_allreduce;

/* When weights are updated. All give the same bits. */
typedef enum nets_update_when {
    NETS_UPDATE_AT_END,   /* in one step behind the backward pass; with MM_ALLREDUCE_AT_ONCE, in several */
    NETS_UPDATE_BY_LAYER, /* behind the backward pass, in a step for each layer, the last layers first; or for each
                           * strip of a large parameter (param_strips.h), as in the backward pass, too */
    /* In a step for each layer, behind the backward step that completes its gradients. These are managed tensors, so a
     * gradient takes memory only until then. Of a parameter that several layers share, that is the first layer's. */
    NETS_UPDATE_IN_BACKWARD,
} nets_update_when;

/* How a net is lowered, beside its batch and backend. */
typedef struct nets_lowering {
    nets_mode mode;
    nets_optimizer_id optimizer;
    nets_update_when update;
    nets_pass pass;           /* one of several passes, of a training in sub-batches. All zero: the whole batch */
    bool no_fuse;             /* layer by layer, without fusion (fuse.h) */
    bool clips;               /* nets_optimizer.clip_norm is set */
    int64_t strip_elems;      /* of each strip of a large parameter, at most; 0: nets_strip_most */
    bool on_host;             /* nets_optimizer.on_host: updates run on the host (mm_graph_run_on_host) */
    nets_allreduce allreduce; /* of one rank of several */
} nets_lowering;

/* A layer that contributes to a weight's gradient in parts (param_parts.h). */
typedef struct nets_part_source {
    nets_op *op;
    nets_op_kind kind;
    mm_tensor x, dy; /* nets_part_args */
} nets_part_source;

enum { NETS_PART_SOURCES = 2 }; /* an embedding, and the loss that is tied to it */

typedef struct nets_step {
    int layer; /* layer of the net, of fused ones the last; -1: the update, or the end of a pass that goes on */
    mm_layer graph_layer;
    mm_phase phase;
    nets_op *op;                   /* NULL: the data and update steps */
    mm_tensor tensors[NETS_ROLES]; /* -1: absent */
    uint64_t sign_roles;           /* bit r: role r may be given as the sign mask (mm_tensor_form) */
    uint64_t coded_roles;          /* bit r: the step may write, or read, a code of role r (mm_tensor_coded) */
    uint64_t modified_roles;       /* bit r: the step changes what role r holds */
    /* Where in the workspace the op leaves the gradient of DPARAM + i, which is then added to what the tensor has
     * (nets_pass.adds), or, if there is no tensor because the parameter is frozen, not used; -1: it writes to the
     * tensor itself. */
    int64_t addend[NETS_MAX_PARAMS];
    int64_t op_workspace_at;      /* where the op's own workspace begins: behind the addends */
    int first_updated, n_updated; /* an update's range of the parameters that train */
    bool on_host;                 /* an update that runs on the host */
    int part;                     /* an update's number among the graph's updates, from 0 */
    int strip;                    /* of the update's one parameter, if it is cut: the strip that is updated */
    /* The step exchanges what ranks divide. NETS_SUMS_OWN: it adds up the ranks' gradients DPARAM + i; NETS_SUMS_LAST:
     * the last step that does. NETS_GATHERS: it sends each rank's weights to all. */
    enum { NETS_EXCHANGES_NOT, NETS_SUMS_OWN, NETS_SUMS_LAST, NETS_GATHERS } exchanges;
    /* n_sources not 0: it adds up parts of this parameter's gradient, which it computes in its workspace. */
    int parts_of, n_sources;
    nets_part_source sources[NETS_PART_SOURCES];
} nets_step;

/* A parameter's tensors in the graph; -1: absent. All have the same order of elements. If ranks divide states, `state`
 * has a rank's share (nets_share_room). If the parameter is cut, `state` has those of its first strip; the other
 * strips' tensors follow these. */
typedef struct nets_param_tensors {
    /* copy: NETS_W16. A parameter that is frozen and has a copy has no value. */
    mm_tensor value, copy, gradient, state[NETS_OPTIMIZER_STATES];
    mm_tensor absmax[NETS_OPTIMIZER_STATES]; /* not -1: `state` is codes, of u8 (state_codes.h) */
    nets_order order;
    int64_t part_rows; /* the gradient is computed in parts of so many rows (param_parts.h); 0: at once */
    int64_t row_elems;
    bool parts_only;  /* it is never whole, and has no tensor */
    int64_t share_at; /* in nets_lowered.shares, the first element of this parameter's share */
    nets_param_strips strips;
} nets_param_tensors;

typedef struct nets_lowered {
    const nets_net *net; /* borrowed */
    int64_t batch;
    nets_mode mode;
    nets_pass pass;
    nets_optimizer_id optimizer;
    nets_update_when update;
    int64_t strip_elems; /* of a strip, at most */
    /* All updates run on the host, but the last, which has no parameters: it counts in rng, on the device. Gradients
     * are persistent then. */
    bool on_host;
    nets_allreduce allreduce;
    mm_graph *graph; /* frozen */
    nets_step *steps;
    int n_steps;
    /* The number of the update's parts, the last parameters first. At the end of the backward pass there are several
     * only if gradients are all-reduced one after the other (MM_ALLREDUCE_AT_ONCE), or with NETS_UPDATE_BY_LAYER. A
     * strip's is one, too. */
    int n_updates;
    nets_param_tensors *params; /* nets_net_params(net) of them */
    mm_tensor shares; /* if ranks divide gradients: this rank's shares of all sums; gradients are managed. Else -1 */
    /* Steps of the backward pass add up shares of gradients (NETS_SUMS_OWN), and the plan all-reduces none: if ranks
     * divide gradients; or states, unless clipping needs whole sums, or sums at the end or in place were asked for. */
    bool sums_own;
    mm_tensor images, labels, loss, correct;
    bool pads_images; /* `images` have four channels for three, the last zero (nets_backend_ops.pad) */
    mm_tensor rng;    /* training only: NETS_RNG */
    mm_tensor word;   /* on one of several ranks: i32 [1], its word, which is all-reduced (nets_exec_set_word) */
    mm_tensor lr;     /* if the graph updates the weights: f32 [1], the learning rate */
    mm_tensor step;   /* if its optimizer counts, too: i32 [1], the number of updates */
    nets_op **ops;    /* one for each different description */
    int n_ops;
} nets_lowered;

/* The elements of a part of the gradient. */
static inline int64_t nets_part_elems(const nets_param_tensors *tensors) {
    return tensors->part_rows * tensors->row_elems;
}

/* The unit of ranks' shares of the parameter (nets_share_room). */
static inline int64_t nets_param_share_unit(const nets_param_tensors *tensors) {
    return tensors->parts_only ? nets_part_elems(tensors) : NETS_SHARE_UNIT;
}

/* Whether ranks divide this, or more than this. */
static inline bool nets_lowered_divides(const nets_lowered *out, nets_divide least) {
    return out->allreduce.n > 1 && out->allreduce.divide >= least;
}

/* Why the update cannot be how->update, as the end of a sentence; NULL: it can. clips: gradients are clipped. */
const char *nets_update_refusal(const nets_lowering *how, bool clips);

/* Lowers a net. `net` and `backend` must outlive the result, and so must what how->allreduce points to. `batch`: of the
 * pass; with several ranks, this rank's part. The graph of a training's last pass has all persistent tensors of the
 * other passes' graphs; the optimizer's are in it alone. MM_ERR_INVALID: the batch is out of range. MM_ERR_UNSUPPORTED:
 * nets_update_refusal. */
MM_CHECKED mm_status nets_lower(const nets_net *net, nets_backend *backend, int64_t batch, const nets_lowering *how,
                                nets_lowered **lowered_out);
void nets_lowered_destroy(nets_lowered *lowered);

#endif
