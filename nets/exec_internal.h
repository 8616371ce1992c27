/* Inside the executor: exec.c (its life, iterations), exec_params.c; exec_slots.h, exec_kept.h, exec_staging.h. */
#ifndef NETS_EXEC_INTERNAL_H
#define NETS_EXEC_INTERNAL_H

#include "mm/core/graph.h"
#include "nets/exec.h"
#include "nets/exec_kept.h"
#include "nets/exec_slots.h"
#include "nets/exec_staging.h"

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
    nets_exec_pass pass[NETS_PASSES];    /* first, middle, last; one: of the whole batch. Two: there is no middle one */
    int n_passes;
    const nets_lowered *lowered; /* of the last pass, which updates the weights */
    nets_optimizer optimizer;
    nets_update_param *params; /* of the update step: n_params learned parameters, then running statistics */
    int n_params, n_checked;   /* n_checked: both together */
    nets_slots slots;
    nets_kept kept;       /* in training */
    nets_staging staging; /* its stream NULL: batches are copied on the compute stream */
    int64_t ladder_steps; /* mm_stats.ladder_steps when last read */
    int64_t enqueue_ns;   /* nets_exec_enqueue_ns */
    int32_t word;         /* nets_exec_tell */
    nets_watch_fn watch;  /* NULL: nobody watches */
    void *watch_ctx;
    nets_mark_fn mark; /* NULL: nobody is told what is issued */
    void *mark_ctx;
};

static inline const char *nets_exec_name_of(const nets_exec *exec, mm_tensor tensor) {
    return mm_graph_tensor(exec->lowered->graph, tensor)->name;
}

/* 0 for an absent tensor. */
static inline int64_t nets_exec_bytes_of(const nets_exec *exec, mm_tensor tensor) {
    return tensor < 0 ? 0 : mm_graph_tensor(exec->lowered->graph, tensor)->bytes;
}

/* A persistent tensor's address, the same for the manager's life. NULL for an absent tensor. `tensor`: of exec->lowered, whose
 * graph has all that the others have. */
static inline void *nets_exec_place(const nets_exec *exec, mm_tensor tensor) {
    return tensor < 0 ? NULL : mm_persistent_data(exec->manager, nets_exec_name_of(exec, tensor), NULL);
}

#endif
