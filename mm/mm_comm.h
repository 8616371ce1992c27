/* SPDX-License-Identifier: MIT */
/* All-reduces: when several processes train one network. Include mm/mm.h, which has it.
 *
 * Each process trains on a part of every batch, with a manager of its own, and they add up their gradients. The graph
 * declares which of its persistent tensors are all-reduced. Its plans then copy each of them to pinned memory, behind the last step that writes it and beside the steps that follow; the caller adds up what the processes
 * have; and the plan copies the sum back before the next MM_UPDATE step that uses it, or the next of all if none does,
 * which waits for it:
 *
 *   compute  ... | backward of c | backward of b | backward of a |               update |
 *   out                          | c             | b             | a |
 *   the caller                        | sum of c      | sum of b      | sum of a |
 *   in                                           | c             | b             | a |
 *
 * That memory is part of mm_options.pinned_bytes. Graphs with the same steps all-reduce in the same order, whatever
 * their policies: the order of the steps that write the tensors last.
 *
 * Devices that reach each other need no copies: a tensor that is all-reduced in place stays where it is, and the caller
 * enqueues work that makes it the sum, on a stream beside the computation:
 *
 *   compute  ... | backward of c | backward of b | backward of a |                     update |
 *   sums                         | c             | b             | a | states and results |
 *
 * Gradients are first, in the order of their writers; all other all-reduces follow them at once. */
#ifndef MM_MM_COMM_H
#define MM_MM_COMM_H

#include "mm/mm_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When a tensor is all-reduced, and where. */
typedef enum mm_allreduce_when {
    MM_ALLREDUCE_NOT = 0,
    MM_ALLREDUCE_AT_ONCE = 1,          /* it goes to pinned memory behind the last step that writes it */
    MM_ALLREDUCE_AT_END = 2,           /* ... behind the last step before the update */
    MM_ALLREDUCE_IN_PLACE_AT_ONCE = 3, /* the same two, in place */
    MM_ALLREDUCE_IN_PLACE_AT_END = 4,
} mm_allreduce_when;

/* What becomes of the processes' tensors; the library hands it on (mm_allreduce_part). */
typedef enum mm_reduce_op {
    MM_REDUCE_SUM = 0,  /* their sum: of gradients, losses, counts */
    MM_REDUCE_MEAN = 1, /* their mean: of running statistics */
} mm_reduce_op;

/* Declares that a persistent tensor is all-reduced: a weight's gradient, a loss, running statistics. mm_graph_freeze refuses
 * (MM_ERR_INVALID) one that no step writes, or that no MM_UPDATE step follows. MM_ERR_ORDER: the graph is frozen.
 * MM_ERR_INVALID: not a persistent tensor of the graph. */
MM_API MM_CHECKED mm_status mm_graph_allreduce(mm_graph *graph, mm_tensor tensor, mm_allreduce_when when,
                                               mm_reduce_op as);

/* A tensor of an iteration that is all-reduced, or a part of it: in pinned memory, where it has the same place as long
 * as the graph has the same plan; or, if it is all-reduced in place, in device memory. Elements are in the tensor's order. A large tensor goes to
 * pinned memory in parts of some MiB, one after the other; they depend on its dims alone. */
typedef struct mm_allreduce_part {
    const mm_graph *graph;
    mm_tensor tensor;
    void *data;
    int64_t bytes;
    int64_t offset; /* of `data` in the tensor: not 0 for a part that is not the first */
    mm_reduce_op as;
} mm_allreduce_part;

/* What the caller does with these tensors. The first two are called on threads of the device or of the manager,
 * `await` under MM_ISSUE_INLINE also on the training thread; they may not call the manager or the device. They may be
 * NULL if all are all-reduced in place, `enqueue` if none is. */
typedef struct mm_allreduce_fns {
    /* data has what this process has: from now on it is the caller's, until `await` returns. Called in the order above,
     * for each part. It must not block. */
    void (*sent)(void *ctx, const mm_allreduce_part *shared);
    /* Returns when data has the sum, which is then copied back. Called in the same order. It may block, and must return
     * if the sum does not come: its failure is the iteration's. */
    mm_status (*await)(void *ctx, const mm_allreduce_part *shared);
    /* Enqueues on `stream` what makes the sums of these n tensors, in place. Called in mm_layer_end, by the thread that
     * calls that; the tensors that are together in one call, and the order of calls, are the same for every policy. It
     * may enqueue on that stream only, must not block, and may be recorded. A failure is the step's. */
    mm_status (*enqueue)(void *ctx, const mm_allreduce_part *shared, int n, mm_stream *stream);
} mm_allreduce_fns;

/* Sets who all-reduces a graph's tensors, and prepares the graph if it was not. It stays set when the policy
 * changes. fns NULL, the default: nothing; they come back as they were. None is called in a rehearsal. MM_ERR_INVALID:
 * one that the graph needs is NULL. An iteration that calls the first two cannot be recorded (mm_replay_state), so it
 * runs step by step; the log says so once for each plan. Between iterations; waits for iterations that were ended
 * without waiting, and returns their failure. fns is copied. */
MM_API MM_CHECKED mm_status mm_allreduce_set(mm_manager *manager, const mm_graph *graph, const mm_allreduce_fns *fns,
                                             void *ctx);

#ifdef __cplusplus
}
#endif
#endif
