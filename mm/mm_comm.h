/* SPDX-License-Identifier: MIT */
/* For several processes that train one network: all-reduces of their gradients. Include mm/mm.h, which includes it.
 *
 * Each process trains on a part of every batch, with a manager of its own, and they add up their gradients. The graph
 * declares which of its persistent tensors are all-reduced. Its plans copy each such tensor to pinned memory after the
 * last step that writes it, while later steps run. The caller adds up the tensors of all processes. The plan copies the
 * sum back, and the next MM_UPDATE step that uses the tensor waits for it (if no MM_UPDATE step uses it, the next
 * MM_UPDATE step waits):
 *
 *   compute  ... | backward of c | backward of b | backward of a |               update |
 *   out                          | c             | b             | a |
 *   the caller                        | sum of c      | sum of b      | sum of a |
 *   in                                           | c             | b             | a |
 *
 * The pinned memory is part of mm_options.pinned_bytes. Graphs with the same steps all-reduce in the same order,
 * whatever their policies: the order of the steps that write the tensors last.
 *
 * Devices that reach each other's memory need no copies: a tensor that is all-reduced in place stays where it is, and
 * the caller enqueues work that makes it the sum, on a stream beside the computation:
 *
 *   compute  ... | backward of c | backward of b | backward of a |                     update |
 *   sums                         | c             | b             | a | states and results |
 *
 * Gradients come first, in the order of the steps that write them; all other tensors follow together. */
#ifndef MM_MM_COMM_H
#define MM_MM_COMM_H

#include "mm/mm_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When a tensor is all-reduced, and where. */
typedef enum mm_allreduce_when {
    MM_ALLREDUCE_NOT = 0,
    MM_ALLREDUCE_AT_ONCE = 1,          /* it is copied to pinned memory after the last step that writes it */
    MM_ALLREDUCE_AT_END = 2,           /* it is copied to pinned memory after the last step before the update */
    MM_ALLREDUCE_IN_PLACE_AT_ONCE = 3, /* this and the next: it is all-reduced in place, at the same times as the two
                                          above */
    MM_ALLREDUCE_IN_PLACE_AT_END = 4,
} mm_allreduce_when;

/* How the processes' tensors are combined. The library only passes it on to the caller (mm_allreduce_part.as). */
typedef enum mm_reduce_op {
    MM_REDUCE_SUM = 0,  /* their sum: of gradients, losses, counts */
    MM_REDUCE_MEAN = 1, /* their mean: of running statistics */
} mm_reduce_op;

/* Declares that a persistent tensor is all-reduced: a weight's gradient, a loss, running statistics. mm_graph_freeze
 * refuses (MM_ERR_INVALID) a tensor that no step writes, or that no MM_UPDATE step follows. MM_ERR_ORDER: the graph is
 * frozen. MM_ERR_INVALID: not a persistent tensor of the graph. */
MM_API MM_CHECKED mm_status mm_graph_allreduce(mm_graph *graph, mm_tensor tensor, mm_allreduce_when when,
                                               mm_reduce_op as);

/* A tensor that is all-reduced, or a part of it. It lies in pinned memory, at the same address as long as the graph has
 * the same plan; or, if it is all-reduced in place, in device memory. Elements are in the tensor's order. A large
 * tensor goes to pinned memory in parts of some MiB, one after the other; how it is cut depends on its dims alone. */
typedef struct mm_allreduce_part {
    const mm_graph *graph;
    mm_tensor tensor;
    void *data;
    int64_t bytes;
    int64_t offset; /* bytes from the beginning of the tensor to `data`; 0 for the first part */
    mm_reduce_op as;
} mm_allreduce_part;

/* The caller's functions, which all-reduce the tensors that mm_graph_allreduce declares. `sent` and `await` are called
 * on threads of the device or of the manager, `await` under MM_ISSUE_INLINE also on the training thread; they may not
 * call the manager or the device. They may be NULL if all tensors are all-reduced in place; `enqueue` may be NULL if
 * none is. */
typedef struct mm_allreduce_fns {
    /* `data` holds this process's values. From now on, until `await` returns, it belongs to the caller. Called for each
     * part, in the order in which tensors are all-reduced (see the top of this file). It must not block. */
    void (*sent)(void *ctx, const mm_allreduce_part *shared);
    /* Returns when `data` holds the sum, which is then copied back. Called for each part, in the same order as `sent`.
     * It may block. If the sum does not come, it must return a failure, which becomes the iteration's. */
    mm_status (*await)(void *ctx, const mm_allreduce_part *shared);
    /* Enqueues on `stream` the work that replaces these n tensors by their sums, in place. mm_layer_end calls it, on
     * its thread. Which tensors come together in one call, and the order of calls, are the same for every policy. It
     * may enqueue on that stream only, must not block, and may be called while an iteration is recorded. Its failure
     * becomes the step's. */
    mm_status (*enqueue)(void *ctx, const mm_allreduce_part *shared, int n, mm_stream *stream);
} mm_allreduce_fns;

/* Sets the functions that all-reduce a graph's tensors, and prepares the graph if it was not. They stay set when the
 * policy changes. fns NULL (the default): tensors stay as they are. No function is called in a rehearsal.
 * MM_ERR_INVALID: a function that the graph needs is NULL. An iteration that calls `sent` and `await` cannot be
 * recorded (mm_replay_state), so it runs step by step; the log says so once for each plan. Between iterations; waits
 * for iterations that were ended without waiting, and returns their failure. fns is copied. */
MM_API MM_CHECKED mm_status mm_allreduce_set(mm_manager *manager, const mm_graph *graph, const mm_allreduce_fns *fns,
                                             void *ctx);

#ifdef __cplusplus
}
#endif
#endif
