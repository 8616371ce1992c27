/* SPDX-License-Identifier: MIT */
/* Lowers the tensors that all graphs of a net have, by name (parameters, their gradients and states, counts, the
 * result), and the update step. Internal to lowering. */
#ifndef NETS_LOWER_LOWER_PERSISTENT_H
#define NETS_LOWER_LOWER_PERSISTENT_H

#include "nets/lower/lower.h"

/* Adds a tensor to a graph that is not frozen. */
MM_CHECKED mm_status nets_lower_tensor(mm_graph *graph, mm_tensor_kind kind, mm_ownership ownership, mm_dtype dtype,
                                       int rank, const int64_t *dims, const char *name, mm_tensor *tensor_out);

/* Whether the graph updates the weights; if so, it has more tensors. */
static inline bool nets_lowered_updates(const nets_lowered *out) {
    return out->mode == NETS_TRAIN && !out->pass.goes_on;
}

/* Adds all these tensors and those of the batch. Sets out->params, images, labels, loss, correct, rng, lr and step. */
MM_CHECKED mm_status nets_lower_persistent(nets_lowered *out, const nets_backend *backend);

/* Declares what several ranks all-reduce; does nothing without them. */
MM_CHECKED mm_status nets_lower_allreduces(nets_lowered *out);

/* Adds the step that updates those of the parameters whose gradients are complete behind layer `behind`; none if there
 * are none. complete: for each parameter the layer behind which its gradient is complete. */
MM_CHECKED mm_status nets_lower_layer_update(nets_lowered *out, const int *complete, int behind);

/* Adds the last step of a graph whose updates run on the host. */
MM_CHECKED mm_status nets_lower_host_end(nets_lowered *out);

/* Adds, behind a backward step, the step that adds up the ranks' gradients that it was the last to write. `written`:
 * per NETS_DPARAM + i, such a gradient, or -1. `last`: no such step follows. */
MM_CHECKED mm_status nets_lower_sums(nets_lowered *out, const char *layer, const mm_tensor written[NETS_MAX_PARAMS],
                                     bool last);

/* Adds the step in which all ranks get the weights that each of them has updated. */
MM_CHECKED mm_status nets_lower_gather(nets_lowered *out);

/* Adds the last steps of a training graph without updates by layer: the update, or the end of a pass that goes on. */
MM_CHECKED mm_status nets_lower_update(nets_lowered *out);

#endif
