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
 * Errors. Every function that can fail returns mm_status. mm_last_error() then has one line that says what failed, on
 * which object, and with which numbers. On an error, outputs are untouched.
 * Units are bytes and nanoseconds.
 * Threads. A graph under construction belongs to one thread; a frozen graph may be read by any. A manager is driven by
 * one thread at a time; mm_stats_get and mm_manager_device_bytes may be called from any thread. Two managers in one
 * process do not affect each other.
 *
 * mm/README.md has a picture of the library and a glossary (stash, code, form, ...). */
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
 * 'mm --version' are made of it. The library's soname, libmm.so.1, has a number of its own (mm/BUILD), which changes when
 * programs that were built before would no longer run. */
#define MM_VERSION "0.11.0"

/* ---------------------------------------------------------------- status */

typedef enum mm_status {
    MM_OK = 0,
    MM_ERR_INVALID,     /* an argument or a declaration that makes no sense */
    MM_ERR_ORDER,       /* a call out of order */
    MM_ERR_NOMEM,       /* memory ran out: see "When memory is short" */
    MM_ERR_INFEASIBLE,  /* the budget is below the plan's minimum */
    MM_ERR_PLAN,        /* the check refused a plan: a bug of a policy */
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

/* Where a manager's messages go. `fn` may be called from any of the manager's threads, by one at a time; no lock of the
 * manager is held meanwhile. With all members zero, nothing is logged. */
typedef struct mm_log {
    void (*fn)(void *ctx, mm_log_level level, const char *message);
    void *ctx;
    mm_log_level level; /* messages above it are dropped */
} mm_log;

/* ---------------------------------------------------------------- graph */

typedef int32_t mm_tensor; /* a tensor's index in its graph, from 0 */
typedef int32_t mm_layer;  /* a layer's index in its graph, from 0 */

/* Types of elements. Graphs, plans, copies and lossless codecs take all of them. */
typedef enum mm_dtype {
    MM_F32,
    MM_I32,
    MM_U8,
    MM_F16,  /* IEEE binary16 */
    MM_BF16, /* the upper half of a binary32 */
    MM_DTYPES
} mm_dtype;

/* Bytes of one element; 0 for what is no type. */
MM_API size_t mm_dtype_bytes(mm_dtype dtype);

/* "f32" and so on; "unknown" for what is no type. Static. */
MM_API const char *mm_dtype_name(mm_dtype dtype);

typedef enum mm_tensor_kind {
    MM_INPUT,           /* a batch's images or labels */
    MM_FEATURE_MAP,     /* a layer's output */
    MM_GRADIENT_MAP,    /* the loss's gradient by a feature map */
    MM_SAVED,           /* small and exact, saved for the backward: means, inverse deviations, a pool's index map */
    MM_WEIGHT,          /* learned parameters */
    MM_WEIGHT_GRADIENT, /* the loss's gradient by a weight */
    MM_OPTIMIZER,       /* optimizer state, momentum for example */
    MM_STATE,           /* anything else that outlives an iteration: running statistics, the loss */
    MM_TENSOR_KINDS
} mm_tensor_kind;

MM_API const char *mm_tensor_kind_name(mm_tensor_kind kind);

typedef enum mm_ownership {
    MM_MANAGED,    /* owned by the manager: lives within one iteration, and may be moved, freed or compressed */
    MM_PERSISTENT, /* owned by the manager: one fixed place for the manager's life; graphs share it by name */
    MM_EXTERNAL,   /* owned by the user (mm_external_set): counted in the budget, never moved */
} mm_ownership;

typedef enum mm_layer_kind {
    MM_LAYER_OTHER,
    MM_LAYER_DATA,
    MM_LAYER_CONV,
    MM_LAYER_LINEAR,
    MM_LAYER_BATCH_NORM,
    MM_LAYER_BATCH_NORM_RELU, /* one layer that computes batch norm, then a residual sum if any, then ReLU */
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

/* How long a layer's forward step takes. */
typedef enum mm_layer_cost {
    MM_LAYER_CHEAP, /* it passes over its maps, as a batch norm, a ReLU or a pool does */
    MM_LAYER_DEAR,  /* it multiplies matrices, as a convolution does */
} mm_layer_cost;

/* What policies must know of a layer. */
typedef struct mm_layer_properties {
    mm_layer_cost cost;
    bool repeatable; /* its forward step may run again, and gives the same bits then (mm_recompute_fn) */
} mm_layer_properties;

/* What a layer of that kind has unless it declares properties of its own: MM_LAYER_CONV and MM_LAYER_LINEAR are dear,
 * all others cheap; MM_LAYER_OTHER, _DATA, _LOSS and _UPDATE are not repeatable, all others are. */
MM_API mm_layer_properties mm_layer_kind_properties(mm_layer_kind kind);

typedef enum mm_phase { MM_FORWARD, MM_BACKWARD, MM_UPDATE } mm_phase;

MM_API const char *mm_phase_name(mm_phase phase);

typedef enum mm_access {
    MM_READ,
    MM_WRITE,  /* writes every byte; the earlier contents are lost */
    MM_MODIFY, /* read, then written in place (accumulation, weight update) */
} mm_access;

/* The form in which a reader needs a tensor. */
typedef enum mm_form {
    MM_FORM_VALUE, /* the elements */
    MM_FORM_SIGN,  /* only whether each element is > 0. The reader gets either the elements or the exact mask: one bit
                      for each element, least significant bit first, in 32-bit little-endian words.
                      mm_tensor_form says which of the two. */
} mm_form;

enum { MM_RANK_MAX = 8 };

typedef struct mm_tensor_desc {
    const char *name; /* unique in the graph; copied */
    mm_tensor_kind kind;
    mm_ownership ownership;
    mm_dtype dtype;
    int rank;                  /* 1 to MM_RANK_MAX */
    int64_t dims[MM_RANK_MAX]; /* outermost first; feature maps are NHWC: batch, height, width, channels */
} mm_tensor_desc;

typedef struct mm_use {
    mm_tensor tensor;
    mm_access access;
    mm_form form; /* of a read; writes are MM_FORM_VALUE */
} mm_use;

typedef struct mm_graph mm_graph;

/* An empty graph. `name` (copied) appears in messages. The caller owns the graph, and keeps it alive as long as any
 * manager that has prepared it (or until mm_manager_forget). */
MM_API MM_CHECKED mm_status mm_graph_create(const char *name, mm_graph **graph_out);
/* NULL is legal. No manager may have the graph prepared. */
MM_API void mm_graph_destroy(mm_graph *graph);

/* Declares a tensor. MM_ERR_INVALID: a name used twice, rank or dims out of range, a size above 2^62 bytes. */
MM_API MM_CHECKED mm_status mm_graph_add_tensor(mm_graph *graph, const mm_tensor_desc *desc, mm_tensor *tensor_out);

/* Declares a layer. Rules of policies name it by its kind. It has the properties of its kind
 * (mm_layer_kind_properties) unless mm_graph_set_properties gives it others. Give a layer of your own the kind that it
 * resembles: any activation is a MM_LAYER_RELU. */
MM_API MM_CHECKED mm_status mm_graph_add_layer(mm_graph *graph, const char *name, mm_layer_kind kind,
                                               mm_layer *layer_out);

/* Says that a layer computes one of that name, too, as a convolution with its ReLU in it: rules find it by either
 * name. */
MM_API MM_CHECKED mm_status mm_graph_add_part(mm_graph *graph, mm_layer layer, const char *name);

/* Sets a layer's properties, in place of those of its kind. */
MM_API MM_CHECKED mm_status mm_graph_set_properties(mm_graph *graph, mm_layer layer,
                                                    const mm_layer_properties *properties);

/* Appends a step. The order of these calls is the order of execution. At run time the step gets `workspace_bytes` of
 * scratch memory (mm_workspace_data). Each (layer, phase) has at most one step. */
MM_API MM_CHECKED mm_status mm_graph_add_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses,
                                              size_t n_uses, size_t workspace_bytes);

/* Declares for the step added last: `output` may be written over `input`. Both have the same size, and the step reads
 * one and writes the other element by element, as a ReLU or a residual sum does. The policy decides whether that is
 * done; the step then sees equal pointers. */
MM_API MM_CHECKED mm_status mm_graph_allow_inplace(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Declares for the step added last: `output` equals `input` bit for bit, as the gradient of a residual sum by each of
 * its addends does. A policy may then let both share one storage; the step sees equal pointers and has nothing to
 * copy. */
MM_API MM_CHECKED mm_status mm_graph_allow_alias(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Declares for the step added last: when it is recomputed (mm_recompute_fn), it can read what it wrote to `output` the
 * first time, instead of writing it again, and compute only its other outputs. mm_tensor_given then says so. A batch
 * norm, for example, reuses the statistics that it saved. The simulator assumes that such a recomputation takes two
 * thirds of the step's time, as a batch norm's does. */
MM_API MM_CHECKED mm_status mm_graph_allow_given(mm_graph *graph, mm_tensor output);

/* Declares for the step added last: it can also run with a smaller workspace, of `workspace_bytes`, which is less than
 * any size declared for it before. The size is chosen when the graph is planned (mm_workspace_bytes). Results may
 * differ in their rounding between sizes. */
MM_API MM_CHECKED mm_status mm_graph_allow_workspace(mm_graph *graph, size_t workspace_bytes);

/* Checks the whole graph and freezes it. No managed tensor may be read before it is written, every tensor must be used,
 * and all tensors together have at most 2^60 bytes. A manager takes frozen graphs only. */
MM_API MM_CHECKED mm_status mm_graph_freeze(mm_graph *graph);

/* The tensor of that name, or MM_ERR_NOT_FOUND. */
MM_API MM_CHECKED mm_status mm_graph_find_tensor(const mm_graph *graph, const char *name, mm_tensor *tensor_out);

/* ---------------------------------------------------------------- manager */

typedef struct mm_manager mm_manager;
typedef struct mm_stream mm_stream; /* a device's queue of work; NULL: the caller computes inline */

typedef enum mm_issue {
    MM_ISSUE_THREAD, /* worker threads issue the side streams' operations (default) */
    MM_ISSUE_INLINE, /* mm_layer_end issues them, on the training thread */
} mm_issue;

typedef enum mm_event_kind {
    MM_EVENT_PLAN,            /* a graph was planned: bytes = its peak */
    MM_EVENT_POLICY,          /* the policy was set */
    MM_EVENT_ITERATION_BEGIN, /* name = graph, bytes = its plan's peak */
    MM_EVENT_ITERATION_END,   /* ns = wall time until the call that ended it; its work may still be running */
    MM_EVENT_ABORT,           /* the iteration failed or was aborted; there is no MM_EVENT_ITERATION_END for it */
    MM_EVENT_WAIT,            /* the training thread waited for a worker or an input: name = layer, ns = how long */
    MM_EVENT_LADDER,          /* memory is short: name = the substitute policy, bytes = what plans may use now */
} mm_event_kind;

typedef struct mm_event_info {
    mm_event_kind kind;
    const char *name; /* graph, policy or layer; valid during the call */
    int64_t bytes;
    int64_t ns;
} mm_event_info;

/* Called on the thread that drives the manager, with no lock held. Must not call the manager. */
typedef void (*mm_event_fn)(void *ctx, const mm_event_info *event);

/* Measured times of a graph's steps, codecs and copies, by the names of layers and tensors. */
typedef struct mm_facts mm_facts;

/* Reads and checks a file of facts, as the mm command's `bench --facts` writes it. The caller owns the facts; any number of
 * managers and threads may read them. In mm_options they serve a manager: for a graph of the same layers, tensors and
 * sizes as the one that they were measured of, every plan is made by the measured times, of substitutes too. For any other
 * graph they are left out, with a message in the log: a warning, or MM_LOG_INFO for a graph without a backward pass, where
 * policies have nothing to choose. MM_ERR_IO, MM_ERR_FORMAT: the message names the file and the place. */
MM_API MM_CHECKED mm_status mm_facts_load(const char *path, mm_facts **facts_out);
/* No manager may have the facts. NULL is legal. */
MM_API void mm_facts_destroy(mm_facts *facts);

/* Zeroes are the defaults. Later versions add members, at the end only: whoever sets members by name, and leaves the rest
 * zero, compiles with any of them; and what was compiled with an older header runs with a newer library. */
typedef struct mm_options {
    const char *device;       /* "host" (default); "cuda" where the build has it: the first GPU; "cuda:1": the second.
                                 See "Devices and threads" */
    int64_t device_bytes;     /* the budget: for all that plans place in the arena, and external tensors. Reserved at
                                 creation, never exceeded. Required. A budget above what the device has free is
                                 refused; if the device gives less all the same, see "When memory is short" */
    int64_t pinned_bytes;     /* the budget of host memory for offloaded tensors; reserved at creation */
    const char *policy;       /* "liveness" (default), "freelunch:codec=zfp:rate=4,depth=2", ... see mm_policy_list */
    mm_issue issue;           /* who issues side-stream operations */
    bool no_ladder;           /* if there is less memory than that, fail; no substitute policy is run */
    bool self_check;          /* fill freed memory with poison, and compare checksums of lossless copies; slow */
    bool measure_times;       /* time every step and operation, for mm_facts_save */
    bool equal_streams;       /* on a GPU: give side streams the priority of the compute stream, which is else higher */
    bool measure_touched;     /* fill with a pattern what plans take of the arena, so that mm_touched_get can count */
    uint64_t delay_seed;      /* host device, for tests: if not 0, side streams are delayed at random, by at most */
    int64_t delay_max_ns;     /* delay_max_ns, so that races show */
    int64_t link_bytes_per_s; /* host device: speed of the simulated link to pinned memory, each way; 0: as memcpy */
    int64_t alloc_cost_ns;    /* host device: simulated cost of an allocation or free at run time (a GPU: 200000) */
    int codec_threads;        /* host device: how many threads an encode or a decode is shared out among; 0: 1 */
    mm_log log;
    mm_event_fn event_fn;
    void *event_ctx;
    const mm_facts
        *facts; /* measured times (mm_facts_load), which plans are made by; the manager borrows them until it is
                              destroyed. NULL: plans are made by what the device tells of its memory and link */
} mm_options;

/* Devices and threads. A device's name is its kind, or KIND:N with N from 0 ("cuda" is "cuda:0"; GPUs are numbered as
 * CUDA_VISIBLE_DEVICES leaves them). A name that is none, or a GPU that does not answer, is refused with how many there
 * are. Managers on several GPUs may run at a time, in one thread by turns or in several.
 * The manager's own threads have its GPU as their current device. In the caller's threads each call makes it current,
 * and leaves what was current before (cudaSetDevice, or a context of the driver's) as it was. So the caller's own
 * launches between mm_layer_begin and mm_layer_end need cudaSetDevice(N) before, unless N is 0 and nothing else was
 * set. */

/* When memory is short. There are three cases: the device gives less than it says it has free; mm_budget_set makes the
 * budget smaller; memory runs out in the middle of an iteration, which then fails with MM_ERR_NOMEM (abort it, and run
 * it again). If the policy's plan no longer fits, a substitute from the policy's ladder is run. The manager tries, in
 * this order: the same policy with smaller workspaces, with planned memory in place of allocations, with later decodes,
 * with more swapping; then stronger ones, which recompute cheap layers, recompute segments and swap the rest, or swap
 * while the computation waits. A lossless policy never gets a lossy substitute. Each substitution is logged as a
 * warning, counted (mm_stats.ladder_steps) and reported (MM_EVENT_LADDER). The policy that was set is run again as soon
 * as it fits: after mm_budget_set, mm_policy_set, or when graphs are added. If nothing fits, MM_ERR_INFEASIBLE says
 * what the least would be; nothing is changed and nothing lost.
 *
 * Two cases are mistakes rather than shortages, and are refused: a budget that was too small from the start; and, with
 * MM_ERR_NOMEM and both numbers, a budget above what the device has free (the host device: above what the machine
 * has). */

/* mm_manager_create for options of `options_bytes` bytes, which is sizeof(mm_options) as the caller knows it. Members
 * beyond are zero. MM_ERR_UNSUPPORTED: the options are longer than this library's, and not zero there: they are of a
 * newer header. For those who find the library's functions by name (dlsym); others call mm_manager_create. */
MM_API MM_CHECKED mm_status mm_manager_create_sized(const mm_options *options, size_t options_bytes,
                                                    mm_manager **manager_out);

/* Creates a manager with its arena and its threads. MM_ERR_INVALID, MM_ERR_NOT_FOUND (policy, device, codec),
 * MM_ERR_NOMEM. */
MM_CHECKED static inline mm_status mm_manager_create(const mm_options *options, mm_manager **manager_out) {
    return mm_manager_create_sized(options, sizeof *options, manager_out);
}

/* Writes what a manager created with measure_times measured of a graph under its present plan to a file that
 * mm_facts_load reads: the mean times of steps, codecs and copies in all iterations but the first. Times of steps beside
 * codecs and copies contain how these slow them down: `mm bench --facts` measures several policies, and tells both apart.
 * What the plan does not do keeps the times of mm_options.facts. Between iterations. MM_ERR_ORDER: nothing was measured;
 * MM_ERR_INVALID: two layers have one name; MM_ERR_IO. */
MM_API MM_CHECKED mm_status mm_facts_save(mm_manager *manager, const mm_graph *graph, const char *path);

/* Drains, joins its threads, frees. NULL is legal. */
MM_API void mm_manager_destroy(mm_manager *manager);

/* Plans and checks a graph under the current policy, and places its persistent tensors. Graphs share these by name; new
 * ones are zeroed, and those of the first graph lie lowest. mm_iteration_begin does the same for a graph that was not
 * prepared. Between iterations only. MM_ERR_INFEASIBLE: the message names the minimum, the layer that holds it, and a
 * policy that would fit, if any would; nothing changed. */
MM_API MM_CHECKED mm_status mm_manager_prepare(mm_manager *manager, const mm_graph *graph);

/* Forgets a graph, which may then be destroyed. Persistent tensors stay. Between iterations only. Waits for iterations
 * that were ended without waiting, and drops their failures; call mm_manager_sync before it to learn of those. */
MM_API MM_CHECKED mm_status mm_manager_forget(mm_manager *manager, const mm_graph *graph);

/* The policy that is run now: the one that was set, or its substitute because memory is short. The text is valid until
 * the policy or the budget is set, a graph is prepared, or an iteration fails. */
MM_API const char *mm_policy_now(const mm_manager *manager);

/* Sets the policy for the following iterations: plans and checks every prepared graph first, then switches all or
 * none. Persistent tensors stay where they are. Between iterations only. */
MM_API MM_CHECKED mm_status mm_policy_set(mm_manager *manager, const char *policy);

/* Makes the budget smaller, because others need the memory, or larger again, up to what was reserved at creation. The
 * address range stays reserved, so nothing moves. Plans and checks every prepared graph under the new budget first,
 * down the ladder if necessary. MM_ERR_INFEASIBLE: the message says how much is needed; nothing changed. Memory above a
 * smaller budget is given back to the system, except for persistent tensors. Between iterations only. */
MM_API MM_CHECKED mm_status mm_budget_set(mm_manager *manager, int64_t device_bytes);

/* Sets the user's memory for an external tensor: at least as large as the tensor, borrowed until it is replaced.
 * Between iterations only. */
MM_API MM_CHECKED mm_status mm_external_set(mm_manager *manager, const mm_graph *graph, mm_tensor tensor, void *data);

/* A persistent tensor's address, the same for the manager's life; NULL if there is no such tensor. On the host device
 * the caller may read and write its bytes between iterations. (On cuda the CPU cannot reach them: use mm_persistent_get
 * and _set.) It waits for nothing: after iterations that were ended without waiting, call mm_manager_sync first. */
MM_API void *mm_persistent_data(mm_manager *manager, const char *name, size_t *bytes_out);

/* Copies `bytes` of a persistent tensor, from `offset` on, to `data` (get) or from `data` (set), on any device. Between
 * iterations only; blocks until the copy is done. MM_ERR_NOT_FOUND: no such tensor. MM_ERR_INVALID: more bytes than it
 * has. */
MM_API MM_CHECKED mm_status mm_persistent_get(mm_manager *manager, const char *name, int64_t offset, void *data,
                                              int64_t bytes);
MM_API MM_CHECKED mm_status mm_persistent_set(mm_manager *manager, const char *name, int64_t offset, const void *data,
                                              int64_t bytes);

/* Adds a persistent tensor that no graph declares, zeroed: device memory for the caller's own use. Every prepared graph
 * is planned anew around it. MM_ERR_INFEASIBLE: one of them would no longer fit under the policy that is run (no
 * substitute is tried for this); nothing changed. MM_ERR_INVALID: the name is taken or NULL, or bytes <= 0. Between
 * iterations only. */
MM_API MM_CHECKED mm_status mm_persistent_add(mm_manager *manager, const char *name, int64_t bytes);

/* Removes what mm_persistent_add added. Every prepared graph is planned anew without it. MM_ERR_NOT_FOUND: there is no
 * such tensor. MM_ERR_INVALID: a graph has declared it. MM_ERR_ORDER: other persistent tensors lie behind it; since
 * these never move, it stays. On failure nothing changed. Between iterations only. */
MM_API MM_CHECKED mm_status mm_persistent_remove(mm_manager *manager, const char *name);

/* The manager's compute stream, to be passed to mm_layer_begin. The same for the manager's life. */
MM_API mm_stream *mm_compute_stream(mm_manager *manager);

/* The device's own handle of a stream, for your launches and libraries: on the device cuda a cudaStream_t. NULL on the
 * host device, where a loop computes on its own thread, and for NULL. The manager keeps owning it. Call this in each
 * step, after mm_layer_begin: with measure_times, the step's time counts from this call. */
MM_API void *mm_stream_handle(mm_stream *stream);

/* Begins an iteration of the graph, and prepares the graph if it was not. MM_ERR_ORDER: an iteration is under way, or
 * an external tensor has no memory yet. MM_ERR_UNSUPPORTED: the plan recomputes, and no mm_recompute_fn is set.
 * Otherwise the errors of mm_manager_prepare. */
MM_API MM_CHECKED mm_status mm_iteration_begin(mm_manager *manager, const mm_graph *graph);

/* Ends the iteration: waits for every stream. Returns the first failure of the iteration that no call has returned
 * yet. */
MM_API MM_CHECKED mm_status mm_iteration_end(mm_manager *manager);

/* Ends the iteration without waiting for the device. Work that is enqueued on the compute stream afterwards, such as
 * the next iteration, runs after all of this one. Returns only failures to enqueue. A failure while running is returned
 * by a later call that waits: mm_manager_sync, mm_iteration_end of a later iteration, or a call that needs the manager
 * to be idle and so waits first (mm_persistent_get and _set, changes of policy, budget or graphs). It waits like
 * mm_iteration_end where the results must be inspected: self_check, measure_times, plans that place tensors at run time
 * (naive forms). */
MM_API MM_CHECKED mm_status mm_iteration_end_async(mm_manager *manager);

/* Waits for all iterations that were ended without waiting. The first call that waits returns a failure of any of them,
 * and clears it (mm_manager_forget drops it). Iterations that were enqueued after the failed one may not have run.
 * Between iterations only. */
MM_API MM_CHECKED mm_status mm_manager_sync(mm_manager *manager);

/* ---- Replaying an iteration. If iterations differ only in the contents of memory, the work of one can be recorded and
 * then enqueued with one call (on cuda, as a CUDA graph). The host then spends no time on each layer.
 *
 *   if (mm_replay_state(m, graph) == MM_REPLAY_MAY) {
 *       mm_record_begin(m, graph);  ... every step as in an iteration; nothing runs ...  mm_record_end(m);
 *   }
 *   mm_iteration_replay(m, graph);
 *
 * Pointers and arguments are those of the recording. A change of policy, budget, external memory, persistent tensors or
 * recompute function drops the recording. */
typedef enum mm_replay_state_id {
    MM_REPLAY_NO,    /* cannot be recorded (the log says once why), or not yet: no iteration has run under this plan */
    MM_REPLAY_MAY,   /* can be recorded: call mm_record_begin */
    MM_REPLAY_READY, /* is recorded: call mm_iteration_replay */
} mm_replay_state_id;

MM_API mm_replay_state_id mm_replay_state(const mm_manager *manager, const mm_graph *graph);

/* Like mm_iteration_begin, but work that is enqueued on the compute stream until mm_record_end is recorded instead of
 * run. Pass the compute stream to every step. MM_ERR_UNSUPPORTED: MM_ISSUE_THREAD, tensors placed at run time,
 * self_check, measure_times, or a device that cannot record. After a failure of it or of any call before mm_record_end,
 * call mm_iteration_abort: recording is not tried again under this plan, and iterations run step by step. */
MM_API MM_CHECKED mm_status mm_record_begin(mm_manager *manager, const mm_graph *graph);
MM_API MM_CHECKED mm_status mm_record_end(mm_manager *manager);

/* Runs a whole iteration as recorded, and ends it like mm_iteration_end_async. MM_ERR_ORDER: there is no recording. */
MM_API MM_CHECKED mm_status mm_iteration_replay(mm_manager *manager, const mm_graph *graph);

/* Gives up the iteration: waits for its streams and drops its managed tensors. Persistent tensors stay as the steps
 * that have run left them. The manager can be used afterwards. Outside of an iteration it does nothing. */
MM_API void mm_iteration_abort(mm_manager *manager);

/* Begins the next step, which must be (layer, phase): else MM_ERR_ORDER, and nothing changed.
 * With `stream` (mm_compute_stream): makes the stream wait for what the step needs; the caller enqueues its work there.
 * With NULL: blocks until the inputs are there; the caller computes on its own thread before mm_layer_end.
 * Returns a failure of any operation that the step waits for; abort the iteration then. */
MM_API MM_CHECKED mm_status mm_layer_begin(mm_manager *manager, mm_layer layer, mm_phase phase, mm_stream *stream);

/* Ends the step. Never blocks, with one exception: the naive forms under MM_ISSUE_INLINE allocate on this thread.
 * MM_ERR_ORDER unless that step was begun. */
MM_API MM_CHECKED mm_status mm_layer_end(mm_manager *manager, mm_layer layer, mm_phase phase);

/* The address of a tensor that the current step uses, valid until mm_layer_end; NULL for any other tensor. Addresses of
 * persistent and external tensors can be asked for at any time within the iteration. */
MM_API void *mm_tensor_data(mm_manager *manager, mm_tensor tensor);

/* What mm_tensor_data points to, for a tensor that the step reads: the elements (MM_FORM_VALUE) or, only where the step
 * declared MM_FORM_SIGN, the mask's bits (MM_FORM_SIGN). */
MM_API mm_form mm_tensor_form(mm_manager *manager, mm_tensor tensor);

/* Whether a managed tensor that the step reads has exactly the bits that were first written to it. If so, the step may
 * compute again, exactly, anything that depends only on it, instead of reading that. False if a lossy codec decoded the
 * tensor, if it was recomputed from such a tensor, or if its place holds such contents at another time of the
 * iteration. Recomputed tensors count as exact otherwise, since mm_recompute_fn promises the same bits. */
MM_API bool mm_tensor_exact(mm_manager *manager, mm_tensor tensor);

/* Whether a tensor that the step writes holds its value already, so that the step must read it and not write it. Only
 * true while a step is recomputed, for outputs that were declared so (mm_graph_allow_given). */
MM_API bool mm_tensor_given(mm_manager *manager, mm_tensor tensor);

/* Recomputes a layer: runs its forward step again. mm_layer_begin of the step that needs the output calls it, on the
 * driving thread. It asks mm_tensor_data for addresses, as in the forward step; they may differ from the first time. It
 * enqueues the work on `stream` (NULL: computes before it returns). It must produce the same bits as the first time:
 * use the same random numbers, and do not change persistent tensors again (running statistics). */
typedef mm_status (*mm_recompute_fn)(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

/* Sets the function that recomputes layers of a graph, and prepares the graph if it was not. It stays set when the
 * policy changes. Without it, mm_iteration_begin refuses plans that recompute. Between iterations only. */
MM_API MM_CHECKED mm_status mm_recompute_set(mm_manager *manager, const mm_graph *graph, mm_recompute_fn fn, void *ctx);

/* The current step's workspace, 256-byte aligned; NULL if it has none. */
MM_API void *mm_workspace_data(mm_manager *manager);

/* The workspace's bytes: as declared by mm_graph_add_step, or by mm_graph_allow_workspace. */
MM_API size_t mm_workspace_bytes(mm_manager *manager);

/* The current step's index among the graph's steps; -1 outside of a step. */
MM_API int mm_current_step(const mm_manager *manager);

/* The present budget: what was asked for, or what the device gave if that was less. */
MM_API int64_t mm_manager_device_bytes(mm_manager *manager);

/* ---------------------------------------------------------------- statistics */

typedef struct mm_stats {
    int64_t iterations;
    int64_t replays;              /* iterations among these that were replayed (mm_iteration_replay) */
    int64_t predicted_peak_bytes; /* largest peak of the plans run so far: extent in the arena + external tensors */
    int64_t persistent_bytes;     /* persistent tensors, a part of that */
    int64_t stash_bytes;          /* what the current plan holds from the forward to the backward pass, codes too */
    int64_t outside_bytes;        /* allocated on the device outside of the arena, by libraries */
    int64_t pinned_bytes;         /* host memory reserved for offloaded tensors: as asked for, or what there was */
    int64_t compute_busy_ns;      /* the compute stream at work, since creation; 0 if the caller computes inline */
    int64_t compute_wait_ns;      /* the compute stream, or the caller who computes inline, waited */
    int64_t codec_busy_ns;        /* encode and decode streams at work */
    int64_t codec_wait_ns;        /* the computation waited for a codec at work. Counts only iterations that were waited
                                     for, on devices whose events have times */
    int64_t encodes, decodes;
    int64_t encoded_bytes;       /* bytes of maps that were encoded */
    int64_t coded_bytes;         /* bytes of their codes */
    int64_t out_bytes, in_bytes; /* copied to pinned memory, and back */
    int64_t nonfinite_blocks;    /* ZFP blocks that held Inf or NaN */
    int64_t unplanned_allocs;    /* allocations at run time; naive forms only */
    int64_t host_waits;          /* how often mm_layer_begin waited for a worker to issue an operation */
    int64_t ladder_steps;        /* how often a substitute policy was taken because memory was short */
} mm_stats;

/* From any thread. */
/* Nothing where either is NULL. */
MM_API void mm_stats_get(mm_manager *manager, mm_stats *stats_out);

/* Bytes of the arena that were written (measure_touched). What plans take of it is filled with a pattern before the
 * first of them runs; the rest is left untouched, and costs nothing: zeros that are written there are not seen. */
typedef struct mm_touched {
    int64_t total_bytes;      /* all that was touched. If memory was given back and taken back, the larger of the counts
                                 before and since */
    int64_t persistent_bytes; /* the part in persistent tensors */
    int64_t stray_bytes;      /* the part outside of all that any plan placed there; a bug if not 0 */
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
