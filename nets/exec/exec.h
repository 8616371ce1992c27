/* SPDX-License-Identifier: MIT */
/* The executor: runs a net's iterations under a manager.
 *
 * One executor is for one batch size and mode: training, training on an epoch's smaller last batch, or evaluation. It
 * has one graph, or up to three if it trains in sub-batches. Executors of one net share their persistent tensors
 * through the manager, by name. They may be called only by the thread that drives the manager.
 *
 * Each executor reserves pinned memory beside the manager's pinned_bytes: for NETS_AHEAD batches and, in training, for
 * NETS_AHEAD copies of the running statistics from before an iteration. */
#ifndef NETS_EXEC_EXEC_H
#define NETS_EXEC_EXEC_H

#include "nets/lower/lower.h"

typedef struct nets_exec nets_exec;

typedef struct nets_result {
    float loss;      /* mean over the batch's labels */
    int32_t correct; /* number of labels whose class had the highest score */
    int32_t halted;  /* not 0: the iteration updated nothing (nets_optimizer.only_finite) */
    int32_t words;   /* sum of the ranks' words for this iteration (nets_exec_set_word); 0 without ranks */
} nets_result;

/* The arrays of a parameter. NETS_STATE + i is the optimizer's i-th state. */
typedef enum nets_part {
    NETS_VALUE,
    NETS_GRADIENT,
    NETS_STATE,
    NETS_STATE_LAST = NETS_STATE + NETS_OPTIMIZER_STATES - 1,
    NETS_PARTS
} nets_part;

/* Lowers the net, creates its ops, and registers its graph with the manager. `device` names the manager's device; on
 * "host" the ops compute on all CPUs that the process may use. `optimizer` NULL: SGD without momentum or decay. The net
 * and the manager must outlive the executor. MM_ERR_INFEASIBLE: the batch does not fit the budget. MM_ERR_INVALID: the
 * manager has another device. */
MM_CHECKED mm_status nets_exec_create(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                                      const char *device, const nets_optimizer *optimizer, nets_exec **exec_out);
/* The same with the caller's backend, which must be on the manager's device. Several executors may share one; it must
 * outlive them. Its configuration holds, among others, the number of threads. */
MM_CHECKED mm_status nets_exec_create_on(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                                         nets_backend *backend, const nets_optimizer *optimizer, nets_exec **exec_out);
/* How an executor trains. All zero: whole batches, in one process. */
typedef struct nets_exec_options {
    /* Trains a batch in sub-batches of so many images (1 to batch; the last one has the rest): an iteration is a pass
     * over each, whose gradients are added up in order, and one update. So no more than a sub-batch's maps are in
     * memory. Each sub-batch's gradient is complete before it is added: ((g0 + g1) + g2) + ... The loss is the mean
     * over the whole batch, and dropout draws as for the whole batch. A net without batch norm learns the same as
     * with whole batches, but for rounding. A batch norm normalises each sub-batch by itself, and moves its running
     * statistics once for each. Results have the same bits under every lossless policy and in every budget, for one
     * sub-batch size. 0: whole batches; training only. */
    int64_t sub_batch;
    bool no_fuse; /* nets_lowering.no_fuse */
    /* When weights are updated; training only. MM_ERR_UNSUPPORTED: nets_update_refusal.
     *
     * With NETS_UPDATE_IN_BACKWARD gradients are no part of a parameter (NETS_GRADIENT), policies whose error bounds
     * are guarded cannot run (mm_sampling_guards), and an iteration that fails may have updated some weights: then it
     * is not undone, and nets_exec_updates fails. With nets_optimizer.only_finite, a gradient that is not finite halts
     * its own update and the ones behind it; the iteration is undone if it was found before the first update, as a loss
     * that is not finite always is. */
    nets_update_when update;
    int64_t strip_elems; /* nets_lowering.strip_elems */
    /* Trains as one of several ranks: `batch` is this rank's part of a whole batch of allreduce.n times as many images.
     * Gradients, losses and counts of correct labels are the whole batch's when the update begins; so are results. If
     * memory runs out in an iteration, it is run again only if none of its all-reduces has begun. */
    nets_allreduce allreduce;
} nets_exec_options;
/* The same as nets_exec_create_on, with options. MM_ERR_INVALID: the sub-batch is out of range. */
MM_CHECKED mm_status nets_exec_create_with(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                                           nets_backend *backend, const nets_optimizer *optimizer,
                                           const nets_exec_options *options, nets_exec **exec_out);
/* The passes of an iteration in sub-batches, as graphs: of its first, middle and last sub-batches. Returns their
 * number, 1 to 3. */
typedef struct nets_exec_graph {
    int64_t batch;
    nets_pass pass;
    int64_t passes; /* how many passes of an iteration run this graph */
} nets_exec_graph;
int nets_exec_graphs(int64_t batch, int64_t sub_batch, nets_exec_graph graphs_out[3]);
/* How many passes an iteration has. */
static inline int64_t nets_exec_passes(int64_t batch, int64_t sub_batch) { return (batch + sub_batch - 1) / sub_batch; }
/* Sets this rank's word, at first 0 and never negative, for all iterations submitted from now on. Every rank's result
 * has the sum of all ranks' words (nets_result.words), and no rank waits for it longer than for the result. */
void nets_exec_set_word(nets_exec *exec, int32_t word);
/* Destroys the executor; the manager forgets its graph. Call it between iterations and before the manager is destroyed.
 * NULL is legal. */
void nets_exec_destroy(nets_exec *exec);

/* The executor's graph; with sub-batches the graph of the last sub-batch, which updates the weights. */
const nets_lowered *nets_exec_lowered(const nets_exec *exec);
/* All of its graphs, one for each pass: 0 is that of nets_exec_lowered, 1 and 2 those of the first and of the middle
 * sub-batches. NULL: the executor has no graph of that number. */
enum { NETS_PASSES = 3 };
const nets_lowered *nets_exec_lowered_pass(const nets_exec *exec, int pass);

/* The address of a parameter's elements in the device's memory, in its order (op_order.h), which may move between
 * iterations (mm_persistent_data). NULL if it is on the disk, or the parameter has no such part: gradients and states
 * exist in training only, and not of frozen parameters; of a frozen parameter that is held in bf16, there is no value
 * here. Of a state that is cut (nets/lower/param_strips.h), the elements of the first strip; of a state in codes
 * (state_codes.h), its codes. The CPU may use the address only on device host. */
float *nets_exec_param(const nets_exec *exec, int param, nets_part part);
/* Whether the parameter has such a part, wherever it is. */
bool nets_exec_has_part(const nets_exec *exec, int param, nets_part part);

/* Copies all elements of a parameter's part to `values_out`, or from `values`, on any device, in torchvision's order.
 * Call it between iterations; it blocks. A state in codes is decoded. MM_ERR_NOT_FOUND: the parameter has no such part.
 * MM_ERR_UNSUPPORTED: a state in codes cannot be set so. */
MM_CHECKED mm_status nets_exec_param_get(nets_exec *exec, int param, nets_part part, float *values_out);
MM_CHECKED mm_status nets_exec_param_set(nets_exec *exec, int param, nets_part part, const float *values);

/* The same for `bytes` from `offset` on of the persistent tensor of this name (lower.h): mm_persistent_get and _set,
 * but parameters, gradients and states, also their codes, are in torchvision's order. `offset` and `bytes` are of whole
 * elements. */
MM_CHECKED mm_status nets_exec_values_get(nets_exec *exec, const char *name, int64_t offset, void *values_out,
                                          int64_t bytes);
MM_CHECKED mm_status nets_exec_values_set(nets_exec *exec, const char *name, int64_t offset, const void *values,
                                          int64_t bytes);

/* Parameters are initialised, saved and loaded in pieces of this many bytes, so that no whole copy is in the CPU's
 * memory. Chosen. */
enum { NETS_TRANSFER_BYTES = 4 << 20 };

/* Sets all parameters to their initial values (init.h), and to zero the optimizer's states, its count of updates and
 * the count of iterations. Blocks. */
MM_CHECKED mm_status nets_exec_init(nets_exec *exec, uint64_t seed);

/* Runs one iteration over `n` images (f32 NHWC, normalised) and their labels (nets_net_labels for each image). Blocks
 * until it is done; allocates nothing. In training it updates the weights with the learning rate `lr`. If the policy
 * guards its error bounds (mm.h: mm_sampling_guards), an iteration that samples is rehearsed first. That takes another
 * forward and backward pass, and CPU memory for the gradients of convolutions. If memory runs out and the manager steps
 * down its ladder, the iteration is undone and run again under the new plan. On failure the iteration was aborted and
 * the manager is usable. MM_ERR_INVALID: n is not the executor's batch, or a label is not a class. MM_ERR_ORDER: an
 * iteration is submitted and not collected.
 *
 * An iteration that fails before it updates the weights leaves weights, optimizer states and running statistics as they
 * were before it, unless the device is lost. This holds for the calls below too. With nets_optimizer.only_finite, an
 * iteration whose loss or gradients are not finite also leaves them so: it succeeds, with result.halted set. */
MM_CHECKED mm_status nets_exec_iteration(nets_exec *exec, const float *images, const int32_t *labels, int64_t n,
                                         float lr, nets_result *result_out);

/* How often the weights were updated since nets_exec_init, or since the state that was loaded began. It tells whether
 * an iteration that failed had updated them. Call it between iterations; it blocks. MM_ERR_NOT_FOUND: this executor
 * evaluates. MM_ERR_DEVICE: an iteration ended after it had updated some of the weights, not all; they are of no use
 * until nets_exec_init, or until the tensor rng is set with the weights of another state. */
MM_CHECKED mm_status nets_exec_updates(nets_exec *exec, int64_t *updates_out);

/* ---- iterations ahead: while the device runs one, the next is enqueued behind it */

enum { NETS_AHEAD = 2 }; /* iterations that may be submitted and not collected */

/* Enqueues an iteration and returns. It does not wait for the device, allocate or free, with the exceptions of
 * mm_iteration_end_async. It copies the batch, so the caller may reuse its arrays. Both NULL: the batch submitted
 * NETS_AHEAD iterations earlier is used again. MM_ERR_ORDER: NETS_AHEAD iterations are submitted and not collected. On
 * failure this iteration was aborted; earlier ones can still be collected. */
MM_CHECKED mm_status nets_exec_submit(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr);

/* Waits for the oldest iteration that is not collected, and gives its result. If it failed or was halted, the ones
 * submitted after it are void: nets_exec_outstanding is 0 then, and the manager is usable. MM_ERR_ORDER: none is
 * submitted. */
MM_CHECKED mm_status nets_exec_collect(nets_exec *exec, nets_result *result_out);

/* Drops the iterations that are submitted and not collected: they are void because an earlier iteration of another
 * executor failed or was halted. Call it after the collect that reported this, which has drained the streams. */
void nets_exec_drop(nets_exec *exec);

/* From now on the batch of the next iteration is copied to the device while the current one runs. It goes to a buffer
 * of nets_exec_stage_bytes, a persistent tensor (mm_persistent_add) that counts in the budget until the executor is
 * destroyed, or for the manager's life if later persistent tensors lie behind it. The manager's graphs are planned
 * again for what is left. Results keep their bits. MM_ERR_INFEASIBLE: the graphs do not fit what would be left; nothing
 * changed, and batches are copied on the compute stream before the iteration's first step, as without this call.
 * MM_ERR_INVALID: another executor of an equally named graph has its buffer in this manager. MM_ERR_ORDER: batches are
 * staged already, or an iteration is submitted and not collected. */
MM_CHECKED mm_status nets_exec_stage(nets_exec *exec);
int64_t nets_exec_stage_bytes(const nets_net *net, int64_t batch);

/* How many iterations are submitted and not collected. */
int nets_exec_outstanding(const nets_exec *exec);

/* Called after a forward step, when its work is done. mm_tensor_data gives the addresses of the step's tensors, which
 * may be read, by the CPU only on device host. A failure fails the iteration. */
typedef mm_status (*nets_watch_fn)(void *ctx, mm_manager *manager, const nets_step *step);

/* From the next iteration on `fn` is called after each forward step; NULL: nothing is. Watched iterations are not
 * replayed, and wait for the device after each forward step. Call it between iterations. */
void nets_exec_watch(nets_exec *exec, nets_watch_fn fn, void *ctx);

/* Called before a step is issued, with its number in the graph, and after the last with -1. */
typedef void (*nets_mark_fn)(void *ctx, int step);

/* From the next iteration on `fn` is called for each step that is issued; NULL: nothing is. Marked iterations are not
 * replayed. Call it between iterations. */
void nets_exec_mark(nets_exec *exec, nets_mark_fn fn, void *ctx);

/* How long the calling thread has spent enqueuing iterations since creation, waits included. Copying batches into
 * pinned memory does not count. */
int64_t nets_exec_enqueue_ns(const nets_exec *exec);

#endif
