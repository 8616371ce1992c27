/* SPDX-License-Identifier: MIT */
/* The executor's structs and the functions that its files share: exec.c, exec_iteration.c, exec_pass.c, exec_ranks.c,
 * exec_divide.c, exec_strips.c and exec_params.c. */
#ifndef NETS_EXEC_EXEC_INTERNAL_H
#define NETS_EXEC_EXEC_INTERNAL_H

#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/exec/exec.h"
#include "nets/exec/exec_divide.h"
#include "nets/exec/exec_on_host.h"
#include "nets/exec/exec_ring.h"
#include "nets/exec/exec_staging.h"
#include "nets/exec/exec_strips.h"
#include "nets/exec/exec_undo.h"

/* One pass over a batch, or over a sub-batch of it: a graph of its own. */
typedef struct nets_exec_pass {
    nets_exec *exec;
    nets_lowered *lowered;
    bool prepared;
    void *recorded_images, *recorded_labels; /* where the recorded pass reads its batch */
} nets_exec_pass;

struct nets_exec {
    const nets_net *net;
    mm_manager *manager;
    nets_backend *backend, *own_backend; /* own_backend NULL: the caller's */
    int64_t batch, sub_batch;            /* images of an iteration, and of each pass but the last */
    nets_exec_pass pass[NETS_PASSES];    /* first, middle, last; two: first, last; one: the whole batch */
    int n_passes;
    const nets_lowered *lowered; /* the last pass's, which updates the weights */
    nets_optimizer optimizer;
    /* What is updated or checked: n_params that train, then running statistics; and gradients as the steps that
     * write them find them, for checks there. Places are set when a step uses them (exec_pass.c): as long as a plan is
     * used, they stay. */
    nets_update_param *params, *written;
    nets_update_param *strips; /* per part of the update: the strip of a parameter that it updates (exec_strips.h) */
    int *number;               /* their numbers in the net */
    int n_params, n_checked;   /* n_checked: parameters and statistics together */
    int *param_of;        /* per tensor of `lowered`: index in `params` of the parameter whose gradient it is, or -1 */
    mm_call vote;         /* the call that nets_exec_enqueue_vote enqueues */
    nets_divider divider; /* what ranks divide; all zero: nothing */
    nets_on_host on_host; /* updates on the host; all zero: none */
    nets_ring ring;
    nets_undo undo;       /* copies to undo an iteration from; used in training */
    nets_staging staging; /* its stream NULL: batches are copied on the compute stream */
    int64_t ladder_steps; /* mm_stats.ladder_steps when last read */
    int64_t enqueue_ns;   /* nets_exec_enqueue_ns */
    int32_t word;         /* nets_exec_set_word */
    nets_watch_fn watch;  /* NULL: none */
    void *watch_ctx;
    nets_mark_fn mark; /* NULL: none */
    void *mark_ctx;
};

static inline const char *nets_exec_name_of(const nets_exec *exec, mm_tensor tensor) {
    return mm_graph_tensor(exec->lowered->graph, tensor)->name;
}

/* The bytes of a tensor of exec->lowered; 0 for an absent tensor. */
static inline int64_t nets_exec_bytes_of(const nets_exec *exec, mm_tensor tensor) {
    return tensor < 0 ? 0 : mm_graph_tensor(exec->lowered->graph, tensor)->bytes;
}

/* The address of a persistent tensor's home, which may move between iterations. NULL for an absent tensor. `tensor`: of
 * exec->lowered, whose graph has all that the others have. */
static inline void *nets_exec_place(const nets_exec *exec, mm_tensor tensor) {
    return tensor < 0 ? NULL : mm_persistent_data(exec->manager, nets_exec_name_of(exec, tensor), NULL);
}

/* The bytes of an image in the network, without padding. */
static inline int64_t nets_exec_image_bytes(const nets_exec *exec) {
    const int64_t bytes = nets_exec_bytes_of(exec, exec->lowered->images) / exec->lowered->batch;
    return exec->lowered->pads_images ? bytes / 4 * 3 : bytes;
}

static inline int64_t nets_exec_label_bytes(const nets_exec *exec) {
    return nets_exec_bytes_of(exec, exec->lowered->labels) / exec->lowered->batch;
}

/* exec_codes.c. The code of zero in the optimizer's state of that number. */
int nets_codes_zero(int state);
/* Sets to zero those of a parameter's states that are in codes. piece: a buffer of NETS_TRANSFER_BYTES. */
MM_CHECKED mm_status nets_codes_init(nets_exec *exec, int param, void *piece);
/* What the codes of a parameter's k-th state, all of them in torchvision's order, stand for. */
MM_CHECKED mm_status nets_codes_decode(nets_exec *exec, int param, int k, const uint8_t *codes, float *out);

/* An iteration, or one pass of it: where its batch or sub-batch comes from, and where the result goes. */
typedef struct nets_iteration {
    nets_exec_pass *pass;
    const float *images;
    const int32_t *labels;
    nets_slot *slot;
    bool ahead;                /* the iteration ends without a drain */
    bool recorded;             /* its work is being recorded: there is no batch or result yet */
    bool rehearsed;            /* only gradients and results may change of what persists */
    bool undone;               /* the iteration failed, and its changes were undone */
    int64_t ages[NETS_PASSES]; /* sampling ages before the iteration; unset if an iteration has one pass */
    mm_stream *stream;
} nets_iteration;

/* Sets the place at `place_at`, a pointer. Work that is under way may read it, but then it does not change: only
 * another plan has other places, and plans are exchanged when all work is done. */
static inline void nets_exec_set_place(void *place_at, const void *place) {
    const void *before;
    memcpy(&before, place_at, sizeof before);
    if (before != place) memcpy(place_at, &place, sizeof place);
}

/* Whether the manager has gone down its ladder since the last call. */
bool nets_exec_stepped_down(nets_exec *exec);

/* Enqueues the pass over the sub-batch that begins with image `first`. */
MM_CHECKED mm_status nets_exec_run_pass(nets_exec *exec, const nets_iteration *it, int64_t first);
/* mm_recompute_fn; ctx: the pass. */
MM_CHECKED mm_status nets_exec_recompute(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

/* To be called before the first pass: advances NETS_RNG_IMAGE to the first image of this rank's part of the whole
 * batch. */
MM_CHECKED mm_status nets_exec_begin_part(const nets_exec *exec, mm_stream *stream);
/* The number of all-reduces that this rank has begun; 0 if that is not known. */
int64_t nets_exec_sums_begun(const nets_exec *exec);
static inline bool nets_exec_updates_in_backward(const nets_exec *exec) {
    return exec->lowered->update == NETS_UPDATE_IN_BACKWARD;
}
/* Whether the update runs in parts. With only_finite, each rank then checks its own gradients as they are written, and
 * the ranks agree before the first part; in the backward pass each part's gradients are checked before it. Clipping
 * needs all gradients: then the last part updates all parameters. */
static inline bool nets_exec_updates_in_parts(const nets_exec *exec) {
    return nets_exec_updates_in_backward(exec) || (exec->lowered->n_updates > 1 && !(exec->optimizer.clip_norm > 0));
}
/* Whether, with only_finite, each rank checks its own gradients before they are added up. */
static inline bool nets_exec_checks_own(const nets_exec *exec) {
    const nets_divider *d = &exec->divider;
    return exec->optimizer.only_finite && (nets_divider_sums(d) ? d->memory != NULL : nets_exec_updates_in_parts(exec));
}
/* Checks the gradients of n parameters (most, late: nets_update_args), and the loss unless `loss` is NULL. */
MM_CHECKED mm_status nets_exec_enqueue_check(const nets_exec *exec, const nets_update_param *params, int n, float most,
                                             bool late, const float *loss, mm_stream *stream);
/* With nets_exec_checks_own: checks parts of a gradient, which lie one after the other; `parts` is read when the stream
 * comes to it. */
MM_CHECKED mm_status nets_exec_check_parts(const nets_exec *exec, const nets_update_param *parts, mm_stream *stream);
/* Sets NETS_RNG's halted word on all ranks if it is set on any. */
MM_CHECKED mm_status nets_exec_enqueue_vote(nets_exec *exec, mm_stream *stream);
/* Copy this rank's word (nets_exec_set_word) to the tensor that is all-reduced, and that tensor to the result. Without
 * ranks they do nothing. */
MM_CHECKED mm_status nets_exec_enqueue_word(const nets_exec *exec, const nets_slot *slot, mm_stream *stream);
MM_CHECKED mm_status nets_exec_enqueue_result_word(const nets_exec *exec, const nets_slot *slot, mm_stream *stream);

#endif
