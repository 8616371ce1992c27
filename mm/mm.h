/* mm: keeps the training of a neural network inside a byte budget.
 *
 * This header is the whole public interface. C11, usable from C++.
 *
 * Object model
 *   mm_graph    the steps of one iteration and the tensors they read and write; declared once, then frozen.
 *   mm_manager  one arena of exactly `device_bytes` bytes, a policy, and the threads that move tensors.
 *               Several graphs (training, a last smaller batch, evaluation) run in the same arena.
 *
 * One iteration
 *   mm_iteration_begin(m, graph)
 *     for each step, in the order declared:
 *       mm_layer_begin(m, layer, phase, stream)   inputs are there, outputs have room
 *       p = mm_tensor_data(m, tensor)             valid until mm_layer_end
 *       ... compute on `stream` ...
 *       mm_layer_end(m, layer, phase)
 *   mm_iteration_end(m)
 *
 * Errors: every fallible function returns mm_status; mm_last_error() has one line saying what, which, how much.
 * On error outputs are untouched. Units are bytes and nanoseconds. Threads: a graph under construction belongs to
 * one thread; a frozen graph may be read by any. A manager is driven by one thread at a time; mm_stats_get and
 * mm_manager_device_bytes may be called from any thread. Two managers do not see each other. */
#ifndef MM_MM_H
#define MM_MM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MM_API          __attribute__((visibility("default")))
#define MM_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define MM_CHECKED      __attribute__((warn_unused_result))
#else
#define MM_API
#define MM_PRINTF(f, a)
#define MM_CHECKED
#endif

/* The version of this header and of the library, major.minor.patch; the only place that has it: pkg-config's file and
 * 'mm --version' are made of it. */
#define MM_VERSION "0.11.0"

/* ---------------------------------------------------------------- status */

typedef enum mm_status {
    MM_OK = 0,
    MM_ERR_INVALID,     /* an argument or a declaration that makes no sense */
    MM_ERR_ORDER,       /* a call out of order */
    MM_ERR_NOMEM,       /* memory ran out */
    MM_ERR_INFEASIBLE,  /* the budget is below the plan's minimum */
    MM_ERR_PLAN,        /* a plan that the checker refuses: a bug of a policy */
    MM_ERR_DEVICE,      /* a device call or an asynchronous job failed */
    MM_ERR_IO,          /* a file cannot be read or written */
    MM_ERR_FORMAT,      /* a file is corrupt or of another kind */
    MM_ERR_NOT_FOUND,   /* an unknown name */
    MM_ERR_UNSUPPORTED, /* a combination that this build or device cannot do */
} mm_status;

/* The status's name, "MM_OK" and so on. */
MM_API const char *mm_status_name(mm_status status);

/* The message of this thread's last failure; "" if there was none. Valid until this thread's next failure. */
MM_API const char *mm_last_error(void);

typedef enum mm_log_level { MM_LOG_ERROR, MM_LOG_WARNING, MM_LOG_INFO, MM_LOG_DEBUG } mm_log_level;

/* Where a manager's messages go. `fn` may be called from any of the manager's threads, one at a time, with no lock
 * held but the sink's own. A zeroed sink is silent. */
typedef struct mm_log {
    void (*fn)(void *ctx, mm_log_level level, const char *message);
    void *ctx;
    mm_log_level level; /* messages above it are dropped */
} mm_log;

/* ---------------------------------------------------------------- graph */

typedef int32_t mm_tensor; /* a tensor's index in its graph, from 0 */
typedef int32_t mm_layer;  /* a layer's index in its graph, from 0 */

typedef enum mm_dtype { MM_F32, MM_I32, MM_U8 } mm_dtype;

/* Bytes of one element. */
MM_API size_t mm_dtype_bytes(mm_dtype dtype);

typedef enum mm_tensor_kind {
    MM_INPUT,           /* a batch's images or labels */
    MM_FEATURE_MAP,     /* a layer's output */
    MM_GRADIENT_MAP,    /* the loss's gradient by a feature map */
    MM_SAVED,           /* small and exact, saved for the backward: means, inverse deviations, a pool's index map */
    MM_WEIGHT,          /* learned parameters */
    MM_WEIGHT_GRADIENT, /* the loss's gradient by them */
    MM_OPTIMIZER,       /* optimizer state, momentum for example */
    MM_STATE,           /* what else outlives an iteration: running statistics, the loss */
    MM_TENSOR_KINDS
} mm_tensor_kind;

MM_API const char *mm_tensor_kind_name(mm_tensor_kind kind);

typedef enum mm_ownership {
    MM_MANAGED,    /* the manager's: lives within an iteration, may be moved, freed, compressed */
    MM_PERSISTENT, /* the manager's: fixed offset for the manager's life; graphs share it by name */
    MM_EXTERNAL,   /* the user's pointer (mm_external_set): counted in the budget, never moved */
} mm_ownership;

typedef enum mm_layer_kind {
    MM_LAYER_OTHER,
    MM_LAYER_DATA,
    MM_LAYER_CONV,
    MM_LAYER_LINEAR,
    MM_LAYER_BATCH_NORM,
    MM_LAYER_BATCH_NORM_RELU, /* in one layer: batch norm, the sum with another map if any, ReLU */
    MM_LAYER_LRN,
    MM_LAYER_RELU,
    MM_LAYER_POOL,
    MM_LAYER_ADD,
    MM_LAYER_CONCAT,
    MM_LAYER_CROP,
    MM_LAYER_UPSAMPLE,
    MM_LAYER_DROPOUT,
    MM_LAYER_LOSS,
    MM_LAYER_UPDATE,
    MM_LAYER_KINDS
} mm_layer_kind;

MM_API const char *mm_layer_kind_name(mm_layer_kind kind);

typedef enum mm_phase { MM_FORWARD, MM_BACKWARD, MM_UPDATE } mm_phase;

MM_API const char *mm_phase_name(mm_phase phase);

typedef enum mm_access {
    MM_READ,
    MM_WRITE,  /* every byte is written; what was there is lost */
    MM_MODIFY, /* read, then written in place (accumulation, weight update) */
} mm_access;

/* The form in which a reader needs a tensor. */
typedef enum mm_form {
    MM_FORM_VALUE, /* the elements */
    MM_FORM_SIGN,  /* only whether each element is > 0: the elements themselves serve, and so does the exact mask,
                      one bit an element, least significant bit first in 32-bit little-endian words.
                      mm_tensor_form says which of the two the step was given. */
} mm_form;

typedef struct mm_tensor_desc {
    const char *name; /* unique in the graph; copied */
    mm_tensor_kind kind;
    mm_ownership ownership;
    mm_dtype dtype;
    int rank;        /* 1 to 4 */
    int64_t dims[4]; /* outermost first; feature maps are NHWC: batch, height, width, channels */
} mm_tensor_desc;

typedef struct mm_use {
    mm_tensor tensor;
    mm_access access;
    mm_form form; /* of a read; writes are MM_FORM_VALUE */
} mm_use;

typedef struct mm_graph mm_graph;

/* An empty graph. `name` (copied) appears in messages. The caller owns it, and keeps it alive as long as any manager
 * that has run it. */
MM_API MM_CHECKED mm_status mm_graph_create(const char *name, mm_graph **graph_out);
MM_API void mm_graph_destroy(mm_graph *graph);

/* Declares a tensor. MM_ERR_INVALID: a name used twice, rank or dims out of range, a size above 2^62 bytes. */
MM_API MM_CHECKED mm_status mm_graph_add_tensor(mm_graph *graph, const mm_tensor_desc *desc, mm_tensor *tensor_out);

/* Declares a layer. By its kind alone policies choose: give one of yours the kind that it is like, any other activation
 * MM_LAYER_RELU. Run again are from MM_LAYER_BATCH_NORM to MM_LAYER_DROPOUT (cheap), by some policies MM_LAYER_CONV and
 * MM_LAYER_LINEAR too, and no others: MM_LAYER_OTHER never. */
MM_API MM_CHECKED mm_status mm_graph_add_layer(mm_graph *graph, const char *name, mm_layer_kind kind,
                                               mm_layer *layer_out);

/* Appends a step: the order of these calls is the order of execution. `workspace_bytes` of scratch are given to the
 * step at run time (mm_workspace_data). At most one step for each (layer, phase). */
MM_API MM_CHECKED mm_status mm_graph_add_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses,
                                              size_t n_uses, size_t workspace_bytes);

/* Says of the last step added that `output` may be written over `input` (same bytes; the step reads the one and
 * writes the other element by element): ReLU on its input, a residual sum on one addend. Whether it is done is the
 * policy's choice: the step sees equal pointers. */
MM_API MM_CHECKED mm_status mm_graph_allow_inplace(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Says of the last step added that `output` equals `input` bit for bit (the gradient of a residual sum by each
 * addend). A policy may then let both share one storage: the step sees equal pointers and has nothing to copy. */
MM_API MM_CHECKED mm_status mm_graph_allow_alias(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Says of the last step added that, when it is run again (mm_recompute_fn), it can do with what it wrote to `output`
 * the first time: it reads that instead of writing it (mm_tensor_given), and computes only the rest. A batch norm so
 * needs no second look for the statistics that it saved. Where time is predicted, any step that is given something is
 * taken to need two thirds of its time, as a batch norm does. */
MM_API MM_CHECKED mm_status mm_graph_allow_given(mm_graph *graph, mm_tensor output);

/* Says of the last step added that it can do with less scratch, too: `workspace_bytes`, less than any said before of
 * it. Which it gets is decided when the graph is planned (mm_workspace_bytes); its results may differ in their
 * rounding. */
MM_API MM_CHECKED mm_status mm_graph_allow_workspace(mm_graph *graph, size_t workspace_bytes);

/* Checks the whole and freezes it: no read of a managed tensor before its write, no tensor never used, no more than
 * 2^60 bytes in all.
 * Every graph passed to a manager must be frozen. */
MM_API MM_CHECKED mm_status mm_graph_freeze(mm_graph *graph);

/* The tensor of that name, or MM_ERR_NOT_FOUND. */
MM_API MM_CHECKED mm_status mm_graph_find_tensor(const mm_graph *graph, const char *name, mm_tensor *tensor_out);

/* ---------------------------------------------------------------- manager */

typedef struct mm_manager mm_manager;
typedef struct mm_stream mm_stream; /* a device's queue of work; NULL: the caller computes inline */

typedef enum mm_issue {
    MM_ISSUE_THREAD, /* worker threads issue the side streams' operations (default) */
    MM_ISSUE_INLINE, /* the training thread issues them itself, in mm_layer_end */
} mm_issue;

typedef enum mm_event_kind {
    MM_EVENT_PLAN,            /* a graph was planned: bytes = its peak */
    MM_EVENT_POLICY,          /* the policy was set */
    MM_EVENT_ITERATION_BEGIN, /* */
    MM_EVENT_ITERATION_END,   /* ns = wall time until it was ended, which may be before it has run */
    MM_EVENT_ABORT,           /* it failed, or was given up: in place of its end */
    MM_EVENT_WAIT,            /* the training thread waited for a worker or an input: ns, name = layer */
    MM_EVENT_LADDER,          /* memory is short: name = the policy that is run instead, bytes = what there is */
} mm_event_kind;

typedef struct mm_event_info {
    mm_event_kind kind;
    const char *name; /* graph, policy or layer; valid during the call */
    int64_t bytes;
    int64_t ns;
} mm_event_info;

/* Called on the thread that drives the manager, with no lock held. Must not call the manager. */
typedef void (*mm_event_fn)(void *ctx, const mm_event_info *event);

typedef struct mm_options {
    const char *device;       /* "host" (default); "cuda" where the build has it: the first GPU, which becomes the
                                 calling thread's current one (cudaSetDevice) */
    int64_t device_bytes;     /* the budget: arena, and external tensors; reserved at once, never exceeded. Required.
                                 More than the device has free is refused; if it gives less: "When memory is short" */
    int64_t pinned_bytes;     /* the host-side budget for offloaded tensors; reserved at once */
    const char *policy;       /* "liveness" (default), "freelunch:codec=zfp:rate=4,depth=2", ... see mm_policy_list */
    mm_issue issue;           /* who issues side-stream operations */
    bool no_ladder;           /* less memory than that is an error at once */
    bool self_check;          /* poison freed ranges, checksum lossless evictions; slow */
    bool measure_times;       /* time every step and operation, for facts (the mm command's bench --facts) */
    bool equal_streams;       /* side streams are as urgent as the computation, which else goes first (a GPU) */
    bool measure_touched;     /* fill with a pattern what plans take of the arena, so that mm_touched_get can count */
    uint64_t delay_seed;      /* host device: not 0 delays side streams at random by up to delay_max_ns, to shake */
    int64_t delay_max_ns;     /* out races */
    int64_t link_bytes_per_s; /* host device: speed of the link to pinned memory, each way; 0: as memcpy */
    int64_t alloc_cost_ns;    /* host device: what one unplanned allocation or free costs (a GPU: 200000) */
    mm_log log;
    mm_event_fn event_fn;
    void *event_ctx;
} mm_options;

/* When memory is short. The device may give less than it says it has free, the budget may be made smaller, memory may
 * run out in the middle of an iteration (which then fails with MM_ERR_NOMEM; abort it). Then a policy whose plan does
 * not fit is replaced by the next of its ladder that does: the same with smaller workspaces, with planned memory, with
 * later decodes, with more swapping, then a stronger one: cheap layers recomputed, all layers of segments recomputed
 * and the rest swapped, then whatever takes least; never a lossy one in place of a lossless one. Each such step is
 * logged as a warning, counted (mm_stats.ladder_steps) and told (MM_EVENT_LADDER). The policy that was set is taken up
 * again as soon as it fits: after mm_budget_set, mm_policy_set, or when graphs are added. Where nothing fits,
 * MM_ERR_INFEASIBLE says what the least would be, nothing is changed and nothing lost.
 *
 * What is no shortage is refused: a budget that was too small from the start; and one above what the device has free
 * (the host: above what the machine has), at creation and by mm_budget_set, with MM_ERR_NOMEM and both numbers. */

/* A manager, its arena and its threads. MM_ERR_INVALID, MM_ERR_NOT_FOUND (policy, device, codec), MM_ERR_NOMEM. */
MM_API MM_CHECKED mm_status mm_manager_create(const mm_options *options, mm_manager **manager_out);

/* Drains, joins its threads, frees. NULL is legal. */
MM_API void mm_manager_destroy(mm_manager *manager);

/* Plans and checks a graph under the current policy, and gives its persistent tensors (by name, shared with graphs
 * prepared earlier) their places; new ones are zeroed. Between iterations only. The first graph's persistents lie
 * lowest. mm_iteration_begin does it for graphs not prepared. MM_ERR_INFEASIBLE: the message names the minimum,
 * the layer that holds it, and a policy that would fit, if any would; nothing changed. */
MM_API MM_CHECKED mm_status mm_manager_prepare(mm_manager *manager, const mm_graph *graph);

/* Forgets a graph: it may then be destroyed. Persistent tensors stay. Between iterations only. Waits for those that
 * were ended without waiting; what failed in them is not told any more (mm_manager_sync before it tells). */
MM_API MM_CHECKED mm_status mm_manager_forget(mm_manager *manager, const mm_graph *graph);

/* The policy that is run: the one that was set, or what stands in for it because memory is short. Valid until the
 * policy or the budget is set, a graph prepared, or an iteration fails. */
MM_API const char *mm_policy_now(const mm_manager *manager);

/* Sets the policy for the following iterations: plans and checks every prepared graph first, then switches all or
 * none. Persistent tensors stay where they are. Between iterations only. */
MM_API MM_CHECKED mm_status mm_policy_set(mm_manager *manager, const char *policy);

/* Makes the budget smaller, because others need the memory, or larger again, up to what was reserved: the range stays
 * reserved, so nothing moves. Plans and checks every prepared graph under the new budget first, down the ladder if it
 * must: MM_ERR_INFEASIBLE says what it takes, and nothing changed. What lies above a smaller budget is given back to
 * the system, but for persistent tensors. Between iterations only. */
MM_API MM_CHECKED mm_status mm_budget_set(mm_manager *manager, int64_t device_bytes);

/* The user's memory for an external tensor, at least its bytes; borrowed until replaced. Between iterations only. */
MM_API MM_CHECKED mm_status mm_external_set(mm_manager *manager, const mm_graph *graph, mm_tensor tensor, void *data);

/* A persistent tensor's place, the same for the manager's life. Its bytes may be read and written between iterations,
 * where the device's memory can be reached by the CPU (the host device). It waits for nothing: after iterations that
 * were ended without waiting, call mm_manager_sync first. NULL if unknown. */
MM_API void *mm_persistent_data(mm_manager *manager, const char *name, size_t *bytes_out);

/* Copies `bytes` of a persistent tensor, from `offset` on, to `data`, or from it: on any device. Between iterations;
 * blocks until it is done. MM_ERR_NOT_FOUND: no such tensor. MM_ERR_INVALID: more bytes than it has. */
MM_API MM_CHECKED mm_status mm_persistent_get(mm_manager *manager, const char *name, int64_t offset, void *data,
                                              int64_t bytes);
MM_API MM_CHECKED mm_status mm_persistent_set(mm_manager *manager, const char *name, int64_t offset, const void *data,
                                              int64_t bytes);

/* Adds a persistent tensor that no graph declares: room for what the caller keeps on the device beside them, zeroed.
 * Every prepared graph is planned anew around it. MM_ERR_INFEASIBLE: one would not fit any more under the policy that
 * is run; there is no step down the ladder for it, and nothing changed. MM_ERR_INVALID: the name is taken or
 * NULL, or bytes <= 0. Between iterations only. */
MM_API MM_CHECKED mm_status mm_persistent_add(mm_manager *manager, const char *name, int64_t bytes);

/* Gives back what mm_persistent_add added. Every prepared graph is planned anew without it. MM_ERR_NOT_FOUND: there is
 * none. MM_ERR_INVALID: a graph has declared it. MM_ERR_ORDER: other persistent tensors lie behind it, which never
 * move: it stays. On failure nothing changed. Between iterations only. */
MM_API MM_CHECKED mm_status mm_persistent_remove(mm_manager *manager, const char *name);

/* The compute stream that work can be enqueued on: what mm_layer_begin takes. The same for the manager's life. */
MM_API mm_stream *mm_compute_stream(mm_manager *manager);

/* A stream as its device knows it, for launches and libraries of your own: on the device cuda a cudaStream_t. NULL on
 * the host device, and for NULL: there a loop computes on its own thread. It stays mm's. Ask in each step, after
 * mm_layer_begin: where times are measured, they count from there. */
MM_API void *mm_stream_handle(mm_stream *stream);

MM_API MM_CHECKED mm_status mm_iteration_begin(mm_manager *manager, const mm_graph *graph);

/* Drains every stream, checks that nothing is left. A failure of any job of the iteration that was not reported yet
 * is returned here. */
MM_API MM_CHECKED mm_status mm_iteration_end(mm_manager *manager);

/* Ends it without waiting for the device: what is enqueued on the compute stream afterwards, the next iteration too,
 * runs after all of it. Only what failed before it was enqueued is returned here; what fails later is returned by the
 * calls that wait: mm_manager_sync, mm_iteration_end of a later iteration, calls that need the manager to be idle (they
 * wait first: mm_persistent_get and _set, changes of policy, budget or graphs). Like mm_iteration_end where something
 * has to be looked at once the work is done: self_check, measure_times, plans that place tensors at run time (naive
 * forms).
 */
MM_API MM_CHECKED mm_status mm_iteration_end_async(mm_manager *manager);

/* Waits for all iterations that were ended without waiting. A failure of any is returned once, by the first call that
 * waits (mm_manager_forget alone drops it), and cleared: the iterations enqueued after the one that failed may not have
 * run. Between iterations. */
MM_API MM_CHECKED mm_status mm_manager_sync(mm_manager *manager);

/* ---- Replaying an iteration. Where nothing changes from one iteration to the next but what lies in memory, its work
 * can be recorded once and enqueued again with one call (on CUDA: a graph): the host then takes no time for each layer.
 *
 *   if (mm_replay_state(m, graph) == MM_REPLAY_MAY) {
 *       mm_record_begin(m, graph);  ... every step as in an iteration; nothing runs ...  mm_record_end(m);
 *   }
 *   mm_iteration_replay(m, graph);
 *
 * Pointers and arguments are as they were when recorded: mm_tensor_data gives the same ones in every iteration. A
 * change of policy or budget, of external memory, of the persistent tensors or of the recompute function drops the
 * recording. */
typedef enum mm_replay_state_id {
    MM_REPLAY_NO,    /* cannot be recorded: the log says once why; or not yet: nothing has run under this plan */
    MM_REPLAY_MAY,   /* mm_record_begin may be tried */
    MM_REPLAY_READY, /* recorded */
} mm_replay_state_id;

MM_API mm_replay_state_id mm_replay_state(const mm_manager *manager, const mm_graph *graph);

/* As mm_iteration_begin: but what is enqueued on the compute stream until mm_record_end is recorded, and does not run.
 * Every step takes the stream. MM_ERR_UNSUPPORTED: issued by threads, tensors placed at run time, self_check,
 * measure_times, a device that cannot record. On any failure give it up with mm_iteration_abort: it is not tried again
 * under this plan, and iterations run as ever. */
MM_API MM_CHECKED mm_status mm_record_begin(mm_manager *manager, const mm_graph *graph);
MM_API MM_CHECKED mm_status mm_record_end(mm_manager *manager);

/* A whole iteration, as recorded; ends as mm_iteration_end_async does. MM_ERR_ORDER: there is no recording. */
MM_API MM_CHECKED mm_status mm_iteration_replay(mm_manager *manager, const mm_graph *graph);

/* Gives the iteration up: drains, drops what the iteration made, keeps persistents (as the steps run so far left
 * them). The manager is usable after it. Legal outside of an iteration: nothing then. */
MM_API void mm_iteration_abort(mm_manager *manager);

/* Begins the next step, which must be (layer, phase) of the iteration's graph: else MM_ERR_ORDER, and nothing changed.
 * stream given (mm_compute_stream): the stream is made to wait for what the step needs; the caller enqueues its work
 * there. stream NULL: blocks until the inputs are there; the caller computes inline before mm_layer_end.
 * A failed job that this step waits for is returned; abort the iteration then. */
MM_API MM_CHECKED mm_status mm_layer_begin(mm_manager *manager, mm_layer layer, mm_phase phase, mm_stream *stream);

/* Ends it; never blocks (but for unplanned allocations that the training thread makes itself: the naive forms under
 * MM_ISSUE_INLINE). MM_ERR_ORDER unless that step was begun. */
MM_API MM_CHECKED mm_status mm_layer_end(mm_manager *manager, mm_layer layer, mm_phase phase);

/* Between begin and end of a step: where a tensor that it uses lies, NULL for any other tensor. Persistent and
 * external tensors: at any time within the iteration. */
MM_API void *mm_tensor_data(mm_manager *manager, mm_tensor tensor);

/* What mm_tensor_data points to for that read: MM_FORM_VALUE, or MM_FORM_SIGN for the mask's bits. */
MM_API mm_form mm_tensor_form(mm_manager *manager, mm_tensor tensor);

/* Whether what mm_tensor_data points to, of a managed tensor that the step reads, is bit for bit what was written
 * there first: else a lossy code gave it back, or it was computed again from what one gave back, or such contents lie
 * in its place at another time. (That a step gives the same bits when it is run again is what mm_recompute_fn
 * promises.) A step may so compute exactly what depends on it, in place of reading it. */
MM_API bool mm_tensor_exact(mm_manager *manager, mm_tensor tensor);

/* Whether what mm_tensor_data points to, of a tensor that the step writes, holds its value already: to be read and left
 * alone. Only where a step is run again, and it was declared so (mm_graph_allow_given). */
MM_API bool mm_tensor_given(mm_manager *manager, mm_tensor tensor);

/* Runs a layer's forward step again, for a policy that recomputes: called within mm_layer_begin of the step that needs
 * it, on the driving thread. As between begin and end of that forward step, pointers are mm_tensor_data's, which may be
 * others than the first time; the work goes to `stream` (NULL: inline). It must compute the same bits: random numbers
 * are replayed, and persistent tensors that the step changes (running statistics) are left alone. */
typedef mm_status (*mm_recompute_fn)(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

/* Sets it for a graph (prepared if it was not); kept over changes of the policy. Without it, policies that recompute
 * are refused by mm_iteration_begin. Between iterations only. */
MM_API MM_CHECKED mm_status mm_recompute_set(mm_manager *manager, const mm_graph *graph, mm_recompute_fn fn, void *ctx);

/* The step's scratch, 256-byte aligned; NULL if it has none. */
MM_API void *mm_workspace_data(mm_manager *manager);

/* How many bytes that is: as declared, or less where the graph allows less. */
MM_API size_t mm_workspace_bytes(mm_manager *manager);

/* The current step's index among the graph's steps, -1 outside. */
MM_API int mm_current_step(const mm_manager *manager);

/* The budget now; what the device gave, if that was less. */
MM_API int64_t mm_manager_device_bytes(mm_manager *manager);

/* ---------------------------------------------------------------- statistics */

typedef struct mm_stats {
    int64_t iterations;
    int64_t replays;              /* of them, those that were replayed (mm_iteration_replay) */
    int64_t predicted_peak_bytes; /* of every plan run so far, the largest: arena's extent and external tensors */
    int64_t persistent_bytes;     /* of it, persistent tensors */
    int64_t stash_bytes;          /* of the current plan, what is held from the forward to the backward pass */
    int64_t outside_bytes;        /* allocated on the device outside of the arena, by libraries */
    int64_t compute_busy_ns;      /* since creation; with an own stream only */
    int64_t compute_wait_ns;      /* the compute stream, or the caller who computes inline, stood waiting */
    int64_t codec_busy_ns;        /* encode and decode streams at work */
    int64_t codec_wait_ns;        /* of it, while the computation waited for them; of iterations that were waited
                                     for, where events have times */
    int64_t encodes, decodes;
    int64_t encoded_bytes;       /* raw bytes that went into encoders */
    int64_t coded_bytes;         /* bytes that came out */
    int64_t out_bytes, in_bytes; /* to pinned memory and back */
    int64_t nonfinite_blocks;    /* ZFP blocks that held Inf or NaN */
    int64_t unplanned_allocs;    /* naive modes only */
    int64_t host_waits;          /* times mm_layer_begin waited for a worker to issue */
    int64_t ladder_steps;        /* taken because memory was short */
} mm_stats;

MM_API void mm_stats_get(mm_manager *manager, mm_stats *stats_out);

/* Bytes of the arena that were written (measure_touched). What plans take of it is filled with a pattern before the
 * first of them runs; the rest is left untouched, and costs nothing: zeros that are written there are not seen. */
typedef struct mm_touched {
    int64_t total_bytes; /* all that was touched; where memory was given back because it was short, and taken back, the
                                 most that was until then, or since */
    int64_t persistent_bytes; /* of it, in persistent tensors */
    int64_t stray_bytes;      /* outside of every segment of every plan run: a bug if not 0 */
} mm_touched;

/* Between iterations. MM_ERR_ORDER without measure_touched. Takes a pass over what plans take of the arena. */
MM_API MM_CHECKED mm_status mm_touched_get(mm_manager *manager, mm_touched *touched_out);

/* Name and one-line description of the i-th policy, codec, device; NULL past the last. Static strings. */
MM_API const char *mm_policy_list(size_t i, const char **summary_out);
MM_API const char *mm_codec_list(size_t i, const char **summary_out);
MM_API const char *mm_device_list(size_t i, const char **summary_out);

#ifdef __cplusplus
}
#endif
#endif
