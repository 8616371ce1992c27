/* The executor: runs a net's iterations under a manager.
 *
 * One executor is one graph: training at a batch size, a last smaller batch, evaluation. Executors of one net share
 * their persistent tensors through the manager, by name. They belong to the thread that drives the manager.
 *
 * Each has pinned memory of its own, beside the manager's pinned_bytes: NETS_AHEAD batches, and in training the running
 * statistics as they were before the iteration. */
#ifndef NETS_EXEC_H
#define NETS_EXEC_H

#include "nets/lower.h"

typedef struct nets_exec nets_exec;

typedef struct nets_result {
    float loss;      /* mean over the batch's labels */
    int32_t correct; /* how many labels scored highest */
    int32_t halted;  /* not 0: it updated nothing (nets_optimizer.only_finite) */
} nets_result;

/* Of a parameter: NETS_STATE + i is the i-th of its optimizer's states. */
typedef enum nets_part {
    NETS_VALUE,
    NETS_GRADIENT,
    NETS_STATE,
    NETS_STATE_LAST = NETS_STATE + NETS_OPTIMIZER_STATES - 1,
    NETS_PARTS
} nets_part;

/* Lowers the net for the manager's device ("host", on all CPUs that the process may use), prepares the graph in the manager and creates its ops. `optimizer`
 * NULL: SGD, no momentum, no decay. The net and the manager must outlive it. MM_ERR_INFEASIBLE if the batch does not fit the
 * budget. */
MM_CHECKED mm_status nets_exec_create(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                                      const char *device, const nets_optimizer *optimizer, nets_exec **exec_out);
/* The same with the caller's backend, of the manager's device, which several executors may share; it must outlive
 * them. Its configuration says, among others, on how many threads. */
MM_CHECKED mm_status nets_exec_create_on(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                                         nets_backend *backend, const nets_optimizer *optimizer, nets_exec **exec_out);
/* Makes the manager forget the graph. Between iterations, before the manager is destroyed. NULL is legal. */
void nets_exec_destroy(nets_exec *exec);

const nets_lowered *nets_exec_lowered(const nets_exec *exec);

/* How many threads it computes on (nets_backend_config.threads); 0: not on this machine's CPUs. The same number gives
 * the same bits on every run, under every lossless policy and in every budget. */
int nets_exec_threads(const nets_exec *exec);

/* Where a parameter's elements lie in the manager, the gradient and states in training only; NULL if there are none.
 * The same place for the manager's life; the CPU can reach it only where the device's memory is the CPU's (host). */
float *nets_exec_param(const nets_exec *exec, int param, nets_part part);

/* Copies all elements of a parameter to `values_out`, or from `values`: on any device. Between iterations; blocks.
 * MM_ERR_NOT_FOUND if there are none. */
MM_CHECKED mm_status nets_exec_param_get(nets_exec *exec, int param, nets_part part, float *values_out);
MM_CHECKED mm_status nets_exec_param_set(nets_exec *exec, int param, nets_part part, const float *values);

/* What of a parameter is outside the device at a time, while it is initialised, saved or loaded. */
enum { NETS_TRANSFER_BYTES = 4 << 20 };

/* Sets all parameters to their initial values (init.h), the optimizer's states, its count and that of iterations to zero. Blocks. */
MM_CHECKED mm_status nets_exec_init(nets_exec *exec, uint64_t seed);

/* One iteration over `n` images (f32 NHWC, normalised) and their labels (nets_net_labels an image); n must be the
 * executor's batch. Blocks until it is done, allocates nothing. In training the weights are updated with the learning
 * rate `lr`. Where memory runs out, it is run again as the manager's ladder allows: weights and running statistics end
 * as if nothing had been. On failure the iteration was aborted, and the manager is usable. Nothing may be submitted and
 * not collected.
 *
 * An iteration that failed before it updated the weights, by this call or those below, leaves weights, the optimizer's states and
 * running statistics as they were before it (unless the device is lost). So does one whose loss or gradients are not
 * finite, with nets_optimizer.only_finite: it succeeds, and its result tells. */
MM_CHECKED mm_status nets_exec_iteration(nets_exec *exec, const float *images, const int32_t *labels, int64_t n,
                                         float lr, nets_result *result_out);

/* How often the weights were updated since nets_exec_init (or what was loaded): iterations that failed may have got so
 * far, or not. Between iterations; blocks. MM_ERR_NOT_FOUND in an evaluation. */
MM_CHECKED mm_status nets_exec_updates(nets_exec *exec, int64_t *updates_out);

/* ---- the same without standing still: while the device runs an iteration, the next one is enqueued behind it */

enum { NETS_AHEAD = 2 }; /* iterations that may be submitted and not collected */

/* Enqueues an iteration and returns: nothing waits for the device, allocates or frees (but what mm_iteration_end_async
 * excepts). The batch is copied: it is the caller's again; NULL, NULL: the batch of NETS_AHEAD iterations before once
 * more. MM_ERR_ORDER: NETS_AHEAD wait to be collected. On failure this iteration was aborted; those before it can be
 * collected. */
MM_CHECKED mm_status nets_exec_submit(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr);

/* Waits for the oldest iteration that was not collected, and gives its result. On failure those submitted after it are
 * void too, and not to be collected; the manager is usable. They are void, too, after one that
 * was halted (nets_exec_outstanding is 0 then). MM_ERR_ORDER: there is none. */
MM_CHECKED mm_status nets_exec_collect(nets_exec *exec, nets_result *result_out);

/* Iterations that were submitted and not collected are void, since another executor's before them was (or failed). The
 * streams are drained: after a collect that told so. */
void nets_exec_drop(nets_exec *exec);

/* Batches come in beside the computation from now on: while an iteration runs, the batch of the next that is
 * submitted is copied to a buffer on the device, nets_exec_stage_bytes of the budget until the executor is destroyed
 * (mm_persistent_add; for the manager's life if others lie behind it then), when other graphs of the manager are
 * planned anew. Bits stay the same. MM_ERR_INFEASIBLE: these do not fit the budget under the policy that is run:
 * nothing changed, and batches come over the compute stream before their iteration's first step, as without.
 * MM_ERR_INVALID: another executor of such a graph has that buffer in this manager. With nothing submitted. */
MM_CHECKED mm_status nets_exec_stage(nets_exec *exec);
int64_t nets_exec_stage_bytes(const nets_net *net, int64_t batch);

/* How many iterations are submitted and not collected. */
int nets_exec_outstanding(const nets_exec *exec);

/* How long the calling thread has been enqueuing iterations, since creation: from when their batches were copied on,
 * with what it waited for meanwhile. */
int64_t nets_exec_enqueue_ns(const nets_exec *exec);

#endif
