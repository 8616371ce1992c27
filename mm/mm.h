/* SPDX-License-Identifier: MIT */
/* mm: keeps the training of a neural network inside a byte budget.
 *
 * This header is the whole public interface. C11, usable from C++.
 *
 * Object model
 *   mm_graph    the steps of one iteration, and the tensors that they read and write; declared once, then frozen.
 *   mm_manager  one arena of `device_bytes` bytes, a policy, and the threads that move tensors.
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
 * which object, and with which numbers. On an error, outputs are untouched. Any function may return MM_ERR_NOMEM for
 * the library's own memory, and MM_ERR_INVALID for a NULL argument; the comments below leave these out. "Between
 * iterations" means: MM_ERR_ORDER while an iteration is under way. Ownership. The caller destroys what a _create or
 * _load function returns. Strings that are passed in are copied, unless the comment says "borrowed". Strings that are
 * returned belong to the library. Units are bytes and nanoseconds. Threads. A graph under construction belongs to one
 * thread; a frozen graph may be read by any. A manager is driven by one thread at a time; mm_stats_get and
 * mm_manager_device_bytes may be called from any thread. Two managers in one process do not affect each other.
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

/* The version of this header and of the library: as text, which pkg-config's file and 'mm --version' take from here,
 * and as numbers for the preprocessor. The number in the library's soname, libmm.so.1 (mm/BUILD), is another one: it
 * changes when programs that were built against an older library would no longer run.
 *
 * Stable is all that is not marked "May change": it leaves the interface only after a minor version that calls it
 * deprecated. What is marked so (codes in strips, sampling, the stash) may change with any minor version. Constants
 * keep their numbers; those without one count the others of their enum, and grow. mm/CONTRIBUTING.md has the rules. */
#define MM_VERSION "0.15.0"

#define MM_VERSION_MAJOR 0
#define MM_VERSION_MINOR 15
#define MM_VERSION_PATCH 0

/* The library's MM_VERSION. Static. */
MM_API const char *mm_version(void);

/* ---------------------------------------------------------------- status */

typedef enum mm_status {
    MM_OK = 0,
    MM_ERR_INVALID = 1,      /* an invalid argument or declaration */
    MM_ERR_ORDER = 2,        /* a call out of order */
    MM_ERR_NOMEM = 3,        /* memory ran out: see "When memory is short" */
    MM_ERR_INFEASIBLE = 4,   /* the budget is below the plan's minimum */
    MM_ERR_PLAN = 5,         /* the check refused a plan: a bug in a policy */
    MM_ERR_DEVICE = 6,       /* a device call or an asynchronous job failed */
    MM_ERR_IO = 7,           /* a file cannot be read or written */
    MM_ERR_FORMAT = 8,       /* a file is corrupt or of another kind */
    MM_ERR_NOT_FOUND = 9,    /* an unknown name */
    MM_ERR_UNSUPPORTED = 10, /* this build or device cannot do it */
} mm_status;

/* The status's name, such as "MM_OK". Static. */
MM_API const char *mm_status_name(mm_status status);

/* The message of this thread's last failure; "" if there was none. Valid until this thread's next failure. */
MM_API const char *mm_last_error(void);

typedef enum mm_log_level { MM_LOG_ERROR = 0, MM_LOG_WARNING = 1, MM_LOG_INFO = 2, MM_LOG_DEBUG = 3 } mm_log_level;

/* Where a manager's messages go. Any of the manager's threads may call `fn`, but only one at a time; it holds no lock
 * of the manager then. With all members zero, nothing is logged. */
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
    MM_F32 = 0,
    MM_I32 = 1,
    MM_U8 = 2,
    MM_F16 = 3,  /* IEEE binary16 */
    MM_BF16 = 4, /* the upper half of a binary32 */
    MM_DTYPES
} mm_dtype;

/* Bytes of one element; 0 for a number that is no type. */
MM_API size_t mm_dtype_bytes(mm_dtype dtype);

/* The type's name, such as "f32"; "unknown" for a number that is no type. Static. */
MM_API const char *mm_dtype_name(mm_dtype dtype);

typedef enum mm_tensor_kind {
    MM_INPUT = 0,           /* a batch's images or labels */
    MM_FEATURE_MAP = 1,     /* a layer's output */
    MM_GRADIENT_MAP = 2,    /* the gradient of the loss with respect to a feature map */
    MM_SAVED = 3,           /* saved for the backward step, never compressed lossily: a batch norm's means and inverse
                           deviations, a pool's index map */
    MM_WEIGHT = 4,          /* learned parameters */
    MM_WEIGHT_GRADIENT = 5, /* the gradient of the loss with respect to a weight */
    MM_OPTIMIZER = 6,       /* optimizer state, such as momentum */
    MM_STATE = 7,           /* other tensors that outlive an iteration: running statistics, the loss */
    MM_TENSOR_KINDS
} mm_tensor_kind;

MM_API const char *mm_tensor_kind_name(mm_tensor_kind kind);

typedef enum mm_ownership {
    MM_MANAGED = 0,    /* owned by the manager: lives within one iteration, and may be moved, freed or compressed */
    MM_PERSISTENT = 1, /* owned by the manager: one fixed place for the manager's life; graphs share it by name */
    MM_EXTERNAL = 2,   /* owned by the user (mm_external_set): counts in the budget, and is never moved */
} mm_ownership;

typedef enum mm_layer_kind {
    MM_LAYER_OTHER = 0,
    MM_LAYER_DATA = 1,
    MM_LAYER_CONV = 2,
    MM_LAYER_LINEAR = 3,
    MM_LAYER_BATCH_NORM = 4,
    MM_LAYER_BATCH_NORM_RELU = 5, /* one layer that computes batch norm, then a residual sum if any, then ReLU */
    MM_LAYER_LRN = 6,
    MM_LAYER_RELU = 7,
    MM_LAYER_POOL = 8,
    MM_LAYER_ADD = 9,
    MM_LAYER_CONCAT = 10,
    MM_LAYER_CROP = 11,
    MM_LAYER_UPSAMPLE = 12,
    MM_LAYER_DROPOUT = 13,
    MM_LAYER_LOSS = 14,
    MM_LAYER_UPDATE = 15,
    MM_LAYER_EMBEDDING = 16, /* a learned row for each token, or for each position */
    MM_LAYER_LAYER_NORM = 17,
    MM_LAYER_GELU = 18,
    MM_LAYER_ATTENTION = 19,
    MM_LAYER_KINDS
} mm_layer_kind;

MM_API const char *mm_layer_kind_name(mm_layer_kind kind);

/* How long a layer's forward step takes. */
typedef enum mm_layer_cost {
    MM_LAYER_CHEAP = 0, /* as long as passes over its maps: batch norm, ReLU, pool */
    MM_LAYER_DEAR = 1,  /* longer, because it multiplies matrices: convolution */
} mm_layer_cost;

/* Properties of a layer that policies choose by. */
typedef struct mm_layer_properties {
    mm_layer_cost cost;
    bool repeatable; /* its forward step may run again, and then gives the same bits (mm_recompute_fn) */
} mm_layer_properties;

/* The default properties of a kind: MM_LAYER_CONV, _LINEAR and _ATTENTION are dear, all others cheap; MM_LAYER_OTHER,
 * _DATA, _LOSS and _UPDATE are not repeatable, all others are. */
MM_API mm_layer_properties mm_layer_kind_properties(mm_layer_kind kind);

typedef enum mm_phase { MM_FORWARD = 0, MM_BACKWARD = 1, MM_UPDATE = 2 } mm_phase;

MM_API const char *mm_phase_name(mm_phase phase);

typedef enum mm_access {
    MM_READ = 0,
    MM_WRITE = 1,  /* writes every byte; earlier contents are lost */
    MM_MODIFY = 2, /* reads, then writes in place: accumulation, weight update */
} mm_access;

/* The form in which a reader needs a tensor. */
typedef enum mm_form {
    MM_FORM_VALUE = 0, /* the elements */
    MM_FORM_SIGN = 1,  /* only whether each element is > 0. The reader gets either the elements or the exact mask:
                          one bit for each element, least significant bit first, in 32-bit little-endian words.
                          mm_tensor_form says which of the two it got. */
    MM_FORM_CODE = 2,  /* a code of the elements. No use declares it: mm_tensor_form says it of a tensor whose
                          elements the step reads, and may read in a code (mm_graph_allow_code) */
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

/* How a step uses a tensor. */
typedef struct mm_use {
    mm_tensor tensor;
    mm_access access;
    mm_form form; /* MM_FORM_VALUE; or MM_FORM_SIGN, only for a read of floats */
} mm_use;

/* A code that a step reads or writes by itself, strip by strip (mm_strips), instead of a codec beside it. May
 * change. */
typedef struct mm_code_use {
    mm_tensor tensor; /* a managed tensor of f32 that the step uses */
    mm_access access; /* MM_READ: where it reads the elements, it can read a code of them. MM_WRITE: when it has read or
                          written them, it can also write their code */
    const char *codec;      /* the codec's name, "zfp", whatever its options; copied */
    size_t workspace_bytes; /* that it needs for this beside its workspace (mm_workspace_data has both), */
    int workspace_strips;   /* and the bytes of so many strips of elements; only of a read */
    int passes;             /* how often it decodes all of it; only of a read, at least 1 */
} mm_code_use;

typedef struct mm_graph mm_graph;

/* Creates an empty graph. The name appears in messages. The caller destroys the graph, after every manager that has
 * prepared it is destroyed, or has forgotten it (mm_manager_forget). */
MM_API MM_CHECKED mm_status mm_graph_create(const char *name, mm_graph **graph_out);
/* NULL is legal. No manager may have the graph prepared. */
MM_API void mm_graph_destroy(mm_graph *graph);

/* The functions that declare parts of a graph return MM_ERR_ORDER once it is frozen, and MM_ERR_INVALID for a tensor
 * or a layer that it does not have, or for a name that is empty or longer than 200 characters. */

/* Declares a tensor. MM_ERR_INVALID: a name used twice, rank or dims out of range, a size above 2^62 bytes. */
MM_API MM_CHECKED mm_status mm_graph_add_tensor(mm_graph *graph, const mm_tensor_desc *desc, mm_tensor *tensor_out);

/* Declares to which weight (MM_WEIGHT) a tensor belongs: its gradient (MM_WEIGHT_GRADIENT), of as many elements, or a
 * state that the optimizer keeps for it (MM_OPTIMIZER), of any size. It changes no plan; operations on gradients find
 * their weights by it. MM_ERR_INVALID: a tensor of another kind, a gradient of another size, a second gradient of one
 * weight, or a tensor that belongs to a weight already. */
MM_API MM_CHECKED mm_status mm_graph_set_weight(mm_graph *graph, mm_tensor tensor, mm_tensor weight);

/* Declares a layer. Rules of policies name it by its kind or by its name. It has the properties of its kind
 * (mm_layer_kind_properties), unless mm_graph_set_properties gives it others. Give a layer of your own the kind that it
 * resembles: any activation is a MM_LAYER_RELU. */
MM_API MM_CHECKED mm_status mm_graph_add_layer(mm_graph *graph, const char *name, mm_layer_kind kind,
                                               mm_layer *layer_out);

/* Gives a fused layer the name of a further part, such as that of the ReLU in a convolution with ReLU. Rules find the
 * layer by any of its names. */
MM_API MM_CHECKED mm_status mm_graph_add_part(mm_graph *graph, mm_layer layer, const char *name);

/* Sets a layer's properties, in place of those of its kind. */
MM_API MM_CHECKED mm_status mm_graph_set_properties(mm_graph *graph, mm_layer layer,
                                                    const mm_layer_properties *properties);

/* Appends a step. The order of these calls is the order of execution. At run time the step gets `workspace_bytes` of
 * scratch memory (mm_workspace_data). MM_ERR_INVALID: (layer, phase) has a step already, a tensor is named twice, a
 * sign is read of a type without one, or the workspace is above 2^62 bytes. */
MM_API MM_CHECKED mm_status mm_graph_add_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses,
                                              size_t n_uses, size_t workspace_bytes);

/* Declares for the step added last: `output` may be written over `input`. The step must read and write them element by
 * element, as a ReLU or a residual sum does. The policy decides whether it is done; the step then sees equal pointers.
 * MM_ERR_INVALID, here and for mm_graph_allow_alias: the step does not read the one and write the other, their sizes
 * differ, or they are not both managed. */
MM_API MM_CHECKED mm_status mm_graph_allow_inplace(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Declares for the step added last: `output` equals `input` bit for bit. For example, the gradient of a residual sum
 * with respect to each addend equals that with respect to the sum. A policy may let both share one storage; the step
 * then sees equal pointers, and has nothing to copy. */
MM_API MM_CHECKED mm_status mm_graph_allow_alias(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Declares for the step added last: when it is recomputed (mm_recompute_fn), it can read what it wrote to `output` the
 * first time, instead of writing it again, and compute only its other outputs. mm_tensor_given then says so. A batch
 * norm, for example, reuses the statistics that it saved. The simulator assumes that such a recomputation takes two
 * thirds of the step's time, as a batch norm's does. MM_ERR_INVALID: not a managed output of a forward step, or not
 * among its first 64 uses. */
MM_API MM_CHECKED mm_status mm_graph_allow_given(mm_graph *graph, mm_tensor output);

/* Declares for the step added last that it can read or write a code by itself. The policy decides whether it does
 * (mm_tensor_coded). May change. MM_ERR_INVALID: the step does not use the tensor so; not a managed tensor of f32; no
 * codec's name, or one of more than 23 characters; or declared twice. */
MM_API MM_CHECKED mm_status mm_graph_allow_code(mm_graph *graph, const mm_code_use *code);

/* Declares for the step added last: it can also run with a workspace of `workspace_bytes`, which must be less than all
 * sizes declared for it before. The size is chosen when the graph is planned (mm_workspace_bytes). Results may round
 * differently with another size. */
MM_API MM_CHECKED mm_status mm_graph_allow_workspace(mm_graph *graph, size_t workspace_bytes);

/* Checks the whole graph and freezes it; managers take frozen graphs only. MM_ERR_INVALID: there is no step, a managed
 * tensor is read before it is written, a tensor is not used, or all tensors together are above 2^60 bytes. */
MM_API MM_CHECKED mm_status mm_graph_freeze(mm_graph *graph);

/* The tensor with that name, or MM_ERR_NOT_FOUND. */
MM_API MM_CHECKED mm_status mm_graph_find_tensor(const mm_graph *graph, const char *name, mm_tensor *tensor_out);

/* ---------------------------------------------------------------- manager */

typedef struct mm_manager mm_manager;
typedef struct mm_stream mm_stream; /* a device's queue of tasks; where NULL is passed, the caller computes inline */

/* Which thread issues the operations of the side streams. */
typedef enum mm_issue {
    MM_ISSUE_THREAD = 0, /* worker threads (default) */
    MM_ISSUE_INLINE = 1, /* the training thread, in mm_layer_end */
} mm_issue;

typedef enum mm_event_kind {
    MM_EVENT_PLAN = 0,            /* a graph was planned: name = graph, bytes = its plan's peak */
    MM_EVENT_POLICY = 1,          /* the policy was set: name = policy */
    MM_EVENT_ITERATION_BEGIN = 2, /* name = graph, bytes = its plan's peak */
    MM_EVENT_ITERATION_END = 3,   /* name = graph, ns = wall time until the call that ended it; it may still run */
    MM_EVENT_ABORT = 4,  /* the iteration failed or was aborted, so it has no MM_EVENT_ITERATION_END: name = graph */
    MM_EVENT_WAIT = 5,   /* mm_layer_begin blocked for a worker or an input: name = layer, ns = how long */
    MM_EVENT_LADDER = 6, /* fallback: name = the substitute policy, bytes = what is available to plans now */
    MM_EVENT_REPLAN = 7, /* mm_observe: a graph has another plan, because iterations did not take what was planned:
                            name = graph, bytes = the new plan's peak, ns = what an iteration is predicted to take */
} mm_event_kind;

typedef struct mm_event_info {
    mm_event_kind kind;
    const char *name; /* graph, policy or layer; valid during the call */
    int64_t bytes;
    int64_t ns;
} mm_event_info;

/* Called on the thread that drives the manager, with no lock held. It must not call the manager. */
typedef void (*mm_event_fn)(void *ctx, const mm_event_info *event);

/* Measured times of a graph's steps, codecs and copies, by the names of layers and tensors. */
typedef struct mm_facts mm_facts;

/* Reads and checks a file of facts, as `mm bench --facts` and mm_facts_save write it. The caller destroys the facts;
 * any number of managers and threads may read them. A manager that gets them (mm_options) plans by the measured times
 * every graph with the same layers, tensors and sizes as the measured one, substitutes included. It plans other graphs
 * without them, and logs that: as a warning, or as MM_LOG_INFO for a graph without a backward pass, where policies
 * have nothing to choose. MM_ERR_IO, MM_ERR_FORMAT: the message names the file and the place in it. */
MM_API MM_CHECKED mm_status mm_facts_load(const char *path, mm_facts **facts_out);
/* No manager may still have the facts. NULL is legal. */
MM_API void mm_facts_destroy(mm_facts *facts);

/* Options of a manager. Zero is every member's default. Later versions add members at the end only. So code that sets
 * members by name, and leaves the rest zero, compiles with every version; and a program that was compiled with an older
 * header runs with a newer library. */
typedef struct mm_options {
    const char *device;   /* "host" (default), "cuda" (the first GPU; in builds with CUDA), "cuda:1" (the second).
                                 See "Devices and threads" */
    int64_t device_bytes; /* the budget: for all that plans place in the arena, and external tensors. Reserved at
                                 creation, never exceeded. Required. A budget above what the device has free is
                                 refused; if the device then gives less, see "When memory is short" */
    int64_t pinned_bytes; /* the budget of host memory for offloaded tensors; reserved at creation */
    const char *policy;   /* "liveness" (default), "freelunch:codec=zfp:rate=4,depth=2", ... see mm_policy_list */
    mm_issue issue;       /* which thread issues operations */
    bool no_ladder;       /* fail when memory is short, instead of running a substitute policy */
    bool self_check;      /* overwrite freed memory with NaNs, and compare checksums of lossless copies; slow */
    bool measure_times;   /* time every step and operation, for mm_facts_save */
    bool equal_streams;   /* on a GPU: all streams have one priority. Default: the compute stream has a higher one */
    bool measure_touched; /* fill the memory of plans with a pattern, so that mm_touched_get can count */
    uint64_t delay_seed;  /* host device, for tests: if not 0, tasks are delayed at random, by at most */
    int64_t delay_max_ns; /* delay_max_ns, so that races show */
    int64_t link_bytes_per_s; /* host device: rate of the simulated link to pinned memory, each way; 0: as memcpy */
    int64_t alloc_cost_ns;    /* host device: simulated cost of an allocation or free at run time (100000: cudaMalloc of
                                 128 MB on an H200, tools/facts/README.md) */
    int codec_threads;        /* host device: number of threads for one encode or decode; 0: 1 */
    mm_log log;
    mm_event_fn event_fn;
    void *event_ctx;
    const mm_facts *facts; /* measured times to plan by (mm_facts_load); borrowed until the manager is destroyed. NULL:
                              plans go by nominal times, scaled to the device's rates of memory and link */
    const volatile int *stop_search; /* not 0: a policy that searches for a plan ends with the best so far. Set by a
                                        signal handler or another thread; borrowed as facts are. NULL: it never is */
    int64_t trace_bytes; /* buffer for the times of a trace (mm_trace_start); 0: 16 MiB, and none on a GPU. More than 0
                              makes a GPU time its events */
} mm_options;

/* Devices and threads. A device's name is KIND or KIND:N, with N from 0; KIND alone is KIND:0. GPUs are numbered as
 * CUDA_VISIBLE_DEVICES leaves them. An unknown name, or a GPU that does not answer, is refused; the message says how
 * many answer. Managers on several GPUs may run concurrently, in one thread by turns or in several threads. The
 * manager's own threads have its GPU as their current device. In the caller's threads each call makes the GPU current,
 * and then restores what was current before (by cudaSetDevice, or a context of the driver). So the caller's own
 * launches between mm_layer_begin and mm_layer_end need cudaSetDevice(N) before, unless N is 0 and no other GPU was
 * set. */

/* When memory is short. There are three cases: the device gives less than it says it has free; mm_budget_set makes the
 * budget smaller; memory runs out in the middle of an iteration, which then fails with MM_ERR_NOMEM (abort it, and run
 * it again). If the policy's plan no longer fits, the manager runs a substitute from the policy's ladder, the first
 * that fits: the same policy with smaller workspaces, with planned memory in place of allocations, with later decodes,
 * with more swapping; then stronger policies, which recompute cheap layers, recompute segments and swap the rest, or
 * swap while the computation waits. A lossless policy never gets a lossy substitute. Each substitution is logged as a
 * warning, counted (mm_stats.ladder_steps) and reported (MM_EVENT_LADDER). The policy that was set runs again as soon
 * as it fits: after mm_budget_set, mm_policy_set, or when graphs are added. If no substitute fits, MM_ERR_INFEASIBLE
 * says what is needed at least, and nothing changes.
 *
 * Two cases are mistakes rather than shortages, and are refused: MM_ERR_INFEASIBLE for a budget that is too small from
 * the start; MM_ERR_NOMEM, with both numbers, for a budget above what the device has free (the host device: above what
 * the machine has). */

/* mm_manager_create for options of `options_bytes` bytes: sizeof(mm_options) in the caller's header. Members beyond are
 * taken as zero. MM_ERR_UNSUPPORTED: the options are longer than this library's, and not zero there, so they are from a
 * newer header. Callers that find functions by name (dlsym) need this one; others call mm_manager_create. */
MM_API MM_CHECKED mm_status mm_manager_create_sized(const mm_options *options, size_t options_bytes,
                                                    mm_manager **manager_out);

/* Creates a manager with its arena and its threads. The options' strings are copied. MM_ERR_INVALID (a value out of
 * range), MM_ERR_NOT_FOUND (policy, device, codec), MM_ERR_NOMEM (the budget), MM_ERR_DEVICE. */
MM_CHECKED static inline mm_status mm_manager_create(const mm_options *options, mm_manager **manager_out) {
    return mm_manager_create_sized(options, sizeof *options, manager_out);
}

/* Writes the measured times of a graph under its present plan to a file for mm_facts_load: mean times of steps, codecs
 * and copies, over all iterations but the first. The manager must have been created with measure_times. The time of a
 * step includes how much codecs and copies beside it slowed it down; `mm bench --facts` measures several policies, and
 * separates the two. Times that this plan does not measure are those of mm_options.facts. Of a graph that is observed
 * (mm_observe), it writes what was learned under all plans that ran, and needs no measure_times. Between iterations.
 * MM_ERR_ORDER: no times were measured; MM_ERR_INVALID: two steps have the same layer name and phase; MM_ERR_IO. */
MM_API MM_CHECKED mm_status mm_facts_save(mm_manager *manager, const mm_graph *graph, const char *path);

/* Aborts an iteration under way, waits for the device, joins the threads, and frees. NULL is legal. */
MM_API void mm_manager_destroy(mm_manager *manager);

/* Plans and checks a graph under the current policy, and places its persistent tensors. Graphs share these by name; new
 * ones are zeroed, and those of the first graph lie lowest. mm_iteration_begin does the same for a graph that was not
 * prepared. Between iterations only. MM_ERR_INFEASIBLE: the message names the minimum, the layer that holds it, and a
 * policy that would fit, if any would; nothing changed. MM_ERR_INVALID: another graph has a persistent tensor with that
 * name and another size. MM_ERR_ORDER: the graph is not frozen. */
MM_API MM_CHECKED mm_status mm_manager_prepare(mm_manager *manager, const mm_graph *graph);

/* Forgets a graph, which may then be destroyed. Persistent tensors stay. Between iterations only. Waits for iterations
 * that were ended without waiting, and drops their failures; call mm_manager_sync before to learn of them.
 * MM_ERR_NOT_FOUND: the graph was not prepared. */
MM_API MM_CHECKED mm_status mm_manager_forget(mm_manager *manager, const mm_graph *graph);

/* The policy that runs now: the one that was set, or its substitute because memory is short. The text is valid until
 * the policy or the budget is set, a graph is prepared, or an iteration fails. */
MM_API const char *mm_policy_now(const mm_manager *manager);

/* Sets the policy for the following iterations: plans and checks every prepared graph first, then switches all or
 * none. Persistent tensors stay where they are. Between iterations only. MM_ERR_NOT_FOUND (policy, codec),
 * MM_ERR_INVALID (an option), MM_ERR_INFEASIBLE as mm_manager_prepare. */
MM_API MM_CHECKED mm_status mm_policy_set(mm_manager *manager, const char *policy);

/* Makes the budget smaller, because others need the memory, or larger again, up to what was reserved at creation. The
 * address range stays reserved, so no tensor moves. Plans and checks every prepared graph under the new budget first,
 * down the ladder if necessary. Memory above a smaller budget is given back to the system, except for persistent
 * tensors. Between iterations only. MM_ERR_INFEASIBLE: the message says how much is needed; nothing changed.
 * MM_ERR_NOMEM: others have the memory now. MM_ERR_INVALID: not from 1 to the bytes reserved. */
MM_API MM_CHECKED mm_status mm_budget_set(mm_manager *manager, int64_t device_bytes);

/* Sets the user's memory for an external tensor: at least as large as the tensor, borrowed until it is replaced.
 * Prepares the graph if it was not. Between iterations only. MM_ERR_INVALID: the tensor is not external. */
MM_API MM_CHECKED mm_status mm_external_set(mm_manager *manager, const mm_graph *graph, mm_tensor tensor, void *data);

/* A persistent tensor's address, the same for the manager's life; NULL if there is no such tensor. *bytes_out (may be
 * NULL): its size. On the host device the caller may read and write its bytes between iterations. (On cuda the CPU
 * cannot reach them: use mm_persistent_get and _set.) The call does not wait: after iterations that were ended without
 * waiting, call mm_manager_sync first. */
MM_API void *mm_persistent_data(mm_manager *manager, const char *name, size_t *bytes_out);

/* Copies `bytes` of a persistent tensor, from `offset` on, to `data` (get) or from `data` (set), on any device. Between
 * iterations only; blocks until the copy is done. MM_ERR_NOT_FOUND: no such tensor. MM_ERR_INVALID: more bytes than it
 * has. */
MM_API MM_CHECKED mm_status mm_persistent_get(mm_manager *manager, const char *name, int64_t offset, void *data,
                                              int64_t bytes);
MM_API MM_CHECKED mm_status mm_persistent_set(mm_manager *manager, const char *name, int64_t offset, const void *data,
                                              int64_t bytes);

/* ---- Values: small numbers that change between iterations and are read on the device, such as a bound, or the
 * iteration's number for random numbers. They lie in one persistent tensor, which graphs declare under this name with
 * MM_VALUES_OWN to MM_VALUES_MOST bytes. Steps may only read it; mm_graph_freeze refuses anything else. The manager
 * writes it before each iteration, also before a replayed one, in stream order. So the steps of an iteration see that
 * iteration's values, even if the caller has set others and begun later iterations meanwhile. At most 8 iterations that
 * read values are under way at a time: beginning one more waits. */
#define MM_VALUES "mm.values"
enum {
    /* Offset of the iteration's number (mm_iteration_number_set), an int64_t in the CPU's byte order. */
    MM_VALUES_ITERATION = 0,
    MM_VALUES_OWN = 8, /* offset of the caller's values, which are zero at first */
    MM_VALUES_MOST = 4096,
};

/* Sets `bytes` of the values at `offset`, for iterations that begin from now on. Does not wait; `data` is copied. Call
 * it between iterations only. MM_ERR_NOT_FOUND: no prepared graph declares MM_VALUES. MM_ERR_INVALID: bytes outside
 * the caller's values. MM_ERR_NOMEM: at the first call. mm_persistent_set refuses this tensor. */
MM_API MM_CHECKED mm_status mm_values_set(mm_manager *manager, int64_t offset, const void *data, int64_t bytes);

/* Sets the number of the next iteration. Each iteration that ends, of whatever graph, makes it one more; it begins
 * with 0, as it does again behind INT64_MAX. Steps can read it (MM_VALUES_ITERATION), and codecs that round at random
 * are keyed by it. So a loop that loads a state sets the number that the state had, and a loop that also evaluates, or
 * runs an iteration again, sets it before each iteration: then a resumed run rounds as one that never stopped. Does
 * not wait. Between iterations only. MM_ERR_INVALID: a negative number. */
MM_API MM_CHECKED mm_status mm_iteration_number_set(mm_manager *manager, int64_t number);

/* Adds a persistent tensor that no graph declares, zeroed: device memory for the caller's own use. Every prepared
 * graph is planned anew around it. Between iterations only. MM_ERR_INFEASIBLE: a graph would no longer fit under the
 * policy that runs now (no substitute is tried); nothing changed. MM_ERR_INVALID: the name is taken or NULL, or bytes
 * <= 0. */
MM_API MM_CHECKED mm_status mm_persistent_add(mm_manager *manager, const char *name, int64_t bytes);

/* Removes a tensor that mm_persistent_add added. Every prepared graph is planned anew without it. Between iterations
 * only. On failure nothing changed. MM_ERR_NOT_FOUND: there is no such tensor. MM_ERR_INVALID: a graph has declared
 * it. MM_ERR_ORDER: persistent tensors that were added later lie above it, and never move. */
MM_API MM_CHECKED mm_status mm_persistent_remove(mm_manager *manager, const char *name);

/* The manager's compute stream, to be passed to mm_layer_begin. The same for the manager's life; the manager owns
 * it. */
MM_API mm_stream *mm_compute_stream(mm_manager *manager);

/* The device's own handle of a stream, for launches and libraries: on cuda a cudaStream_t, which the manager owns.
 * NULL on the host device, where a loop computes on its own thread. Call this in each step, after mm_layer_begin: with
 * measure_times, the step's time counts from this call. */
MM_API void *mm_stream_handle(mm_stream *stream);

/* Begins an iteration of the graph, and prepares the graph if it was not. MM_ERR_ORDER: an iteration is under way, or
 * an external tensor has no memory yet. MM_ERR_UNSUPPORTED: the plan recomputes, and no mm_recompute_fn is set.
 * Otherwise the errors of mm_manager_prepare. */
MM_API MM_CHECKED mm_status mm_iteration_begin(mm_manager *manager, const mm_graph *graph);

/* Ends the iteration: waits for every stream. Returns the first failure of the iteration that no call has returned
 * yet. */
MM_API MM_CHECKED mm_status mm_iteration_end(mm_manager *manager);

/* Ends the iteration without waiting for the device. Tasks that are enqueued on the compute stream afterwards, such as
 * the next iteration's, run after all of this one. Returns only failures to enqueue. A failure while running is
 * returned by a later call that waits: mm_manager_sync, mm_iteration_end of a later iteration, or a call that needs
 * the manager to be idle and so waits first (mm_persistent_get and _set, changes of policy, budget or graphs). Waits
 * like mm_iteration_end if results must be inspected: self_check, measure_times, plans that place tensors at run time
 * (naive forms). */
MM_API MM_CHECKED mm_status mm_iteration_end_async(mm_manager *manager);

/* Waits for all iterations that were ended without waiting. The first call that waits returns a failure of any of them,
 * and clears it (mm_manager_forget drops it). Iterations that were enqueued after the failed one may not have run.
 * Between iterations only. */
MM_API MM_CHECKED mm_status mm_manager_sync(mm_manager *manager);

/* ---- Replaying an iteration. If iterations differ only in the contents of memory, the tasks of one can be recorded
 * and then enqueued with one call (on cuda, as a CUDA graph). The host then spends no time on each layer.
 *
 *   if (mm_replay_state(m, graph) == MM_REPLAY_MAY) {
 *       mm_record_begin(m, graph);  ... every step as in an iteration; nothing runs ...  mm_record_end(m);
 *   }
 *   mm_iteration_replay(m, graph);
 *
 * Pointers and arguments are those of the recording. A change of policy, budget, external memory, persistent tensors
 * or recompute function drops the recording. */
typedef enum mm_replay_state_id {
    MM_REPLAY_NO = 0, /* cannot be recorded (the log says once why), or not yet: no iteration has run under this plan */
    MM_REPLAY_MAY = 1,   /* can be recorded: call mm_record_begin */
    MM_REPLAY_READY = 2, /* is recorded: call mm_iteration_replay */
} mm_replay_state_id;

MM_API mm_replay_state_id mm_replay_state(const mm_manager *manager, const mm_graph *graph);

/* Begins an iteration whose tasks, until mm_record_end, are recorded instead of run. Pass the compute stream to every
 * step. MM_ERR_UNSUPPORTED: MM_ISSUE_THREAD, tensors placed at run time, self_check, measure_times, or a device that
 * cannot record. If this or any call before mm_record_end fails, call mm_iteration_abort: recording is not tried again
 * under this plan, and iterations run step by step. */
MM_API MM_CHECKED mm_status mm_record_begin(mm_manager *manager, const mm_graph *graph);
MM_API MM_CHECKED mm_status mm_record_end(mm_manager *manager);

/* Runs a whole iteration as recorded, and ends it like mm_iteration_end_async. MM_ERR_ORDER: there is no recording. */
MM_API MM_CHECKED mm_status mm_iteration_replay(mm_manager *manager, const mm_graph *graph);

/* ---- Sampling. May change. A policy that chooses the error bounds of its codes by what it measures (comet) lets a
 * graph's first iteration, and every W-th after it, sample: that one runs step by step, its codes lose nothing, and it
 * ends as by mm_iteration_end. mm_replay_state is MM_REPLAY_NO before it; replays do not sample. The loop has nothing
 * to do. It can let the policy compare what its bounds did to the weights' gradients with what it had predicted:
 *
 *   bool guards = mm_sampling_guards(m, graph);
 *   if (guards) {
 *       mm_rehearsal_begin(m, graph);  ... every step of the iteration that comes next, with its batch, but nothing
 *                                          that persists is changed, gradients aside ...
 *       mm_iteration_abort(m);         ... keep the gradients of the weights ...
 *   }
 *   ... the iteration ...
 *   if (guards) mm_sampling_tell(m, graph, weight, deviation of the gradient from the kept one);  for each weight */

/* Whether the next iteration samples, and the policy compares gradients. False for NULL. */
MM_API bool mm_sampling_guards(const mm_manager *manager, const mm_graph *graph);

/* Begins an iteration that does not sample, is not counted, and can only be aborted. Errors of mm_iteration_begin. */
MM_API MM_CHECKED mm_status mm_rehearsal_begin(mm_manager *manager, const mm_graph *graph);

/* Tells the standard deviation of the error of a weight's gradient, after the iteration that sampled, before the next.
 * NaN counts as infinite: the guard has the layer's codes lose nothing until the next sample. 0 tightens nothing.
 * MM_ERR_NOT_FOUND: not a weight (MM_WEIGHT) of a layer that was sampled. MM_ERR_ORDER: the last iteration of the graph
 * did not sample. */
MM_API MM_CHECKED mm_status mm_sampling_tell(mm_manager *manager, const mm_graph *graph, mm_tensor weight,
                                             double sigma);

/* How many iterations of the graph there were from the last that sampled on, that one included; -1: none has. The next
 * one samples if they are W or more, or -1. With the bounds it is what sampling goes on from. What was sampled is
 * judged by then, so the policy must have been told before. Between iterations. MM_ERR_NOT_FOUND: the graph was not
 * prepared. */
MM_API MM_CHECKED mm_status mm_sampling_age(mm_manager *manager, const mm_graph *graph, int64_t *age_out);
/* Sets it: for a state that is loaded, an iteration that a loop undoes, or a graph that runs several times for one
 * update and is to sample once in W updates. Errors as above; MM_ERR_INVALID: below -1. */
MM_API MM_CHECKED mm_status mm_sampling_age_set(mm_manager *manager, const mm_graph *graph, int64_t age);

/* Gives up the iteration: waits for its streams and drops its managed tensors. Persistent tensors stay as the steps
 * that have run left them. A failure of earlier iterations that were ended without waiting stays, for a later call that
 * waits. The manager can be used afterwards. Outside of an iteration, and for NULL, it does nothing. */
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
 * persistent and external tensors are available at any time within the iteration. */
MM_API void *mm_tensor_data(mm_manager *manager, mm_tensor tensor);

/* What mm_tensor_data points to, for a tensor that the step reads: the elements (MM_FORM_VALUE); the mask's bits
 * (MM_FORM_SIGN), only if the step declared a read of MM_FORM_SIGN; or a code (MM_FORM_CODE), only if it declared that
 * it can read one (mm_graph_allow_code). */
MM_API mm_form mm_tensor_form(mm_manager *manager, mm_tensor tensor);

/* A code as a row of strips, each of which can be encoded and decoded by itself, by any thread. The elements are f32,
 * in their order. They come in periods (a map's images), whose last strip has the rest of the period:
 *
 *      elements  | strip | strip | rest | strip | strip | rest | ...      strip s of the code is the bytes from
 *                |<--- period_elems --->|                                 s * strip_bytes on
 *
 * May change, mm_coded and mm_tensor_coded too. */
typedef struct mm_strips mm_strips;
struct mm_strips {
    int64_t elems;        /* of the tensor: a multiple of period_elems */
    int64_t period_elems; /* of a period */
    int64_t strip_elems;  /* of a strip that is not the last of its period */
    int64_t strip_bytes;  /* of its code */
    /* Decode or encode strips first to first + n - 1. elems: of these strips alone. Strips that are worked on at a time
     * must not be the same. counters: of mm_coded. They never fail. decode: NULL for a code of signs. Both are NULL
     * on CUDA, where the step's own kernels do so. */
    void (*decode)(const mm_strips *strips, const void *code, int64_t first, int64_t n, float *elems_out);
    void (*encode)(const mm_strips *strips, const float *elems, int64_t first, int64_t n, void *code_out,
                   void *counters);
    int32_t blocks; /* on CUDA: which kernels of this library can (pipeline/codec/block/code_blocks.h); else 0 */
};

/* A code that the current step reads or writes. */
typedef struct mm_coded {
    const mm_strips *strips; /* valid until the graph is planned anew */
    void *code;
    void *counters; /* of the statistics */
} mm_coded;

/* The code that the current step must write of a tensor (MM_WRITE), or reads in place of its elements (MM_READ). False:
 * there is none. */
MM_API bool mm_tensor_coded(mm_manager *manager, mm_tensor tensor, mm_access access, mm_coded *coded_out);

/* Whether a managed tensor that the step reads has exactly the bits that were first written to it. If so, the step may
 * recompute from it, exactly, other tensors that depend on it alone, instead of reading them. False if a lossy codec
 * decoded the tensor, if it was recomputed from such a tensor, or if its segment holds such contents at another time of
 * the iteration. Other recomputed tensors count as exact, because mm_recompute_fn promises the same bits. */
MM_API bool mm_tensor_exact(mm_manager *manager, mm_tensor tensor);

/* Whether an output of the step holds its value already, so that the step must read it and not write it. True only
 * while a step is recomputed, for outputs declared with mm_graph_allow_given. */
MM_API bool mm_tensor_given(mm_manager *manager, mm_tensor tensor);

/* Recomputes a layer: runs its forward step again. mm_layer_begin of the step that needs the output calls it, on the
 * driving thread. It gets addresses from mm_tensor_data, as in the forward step; they may differ from the first time.
 * It enqueues its tasks on `stream` (NULL: computes before it returns). It must produce the same bits as the first
 * time: it uses the same random numbers, and does not change persistent tensors again (running statistics). */
typedef mm_status (*mm_recompute_fn)(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

/* Sets the function that recomputes layers of a graph, and prepares the graph if it was not. It stays set when the
 * policy changes. Without it, mm_iteration_begin refuses plans that recompute. Between iterations only. */
MM_API MM_CHECKED mm_status mm_recompute_set(mm_manager *manager, const mm_graph *graph, mm_recompute_fn fn, void *ctx);

/* The current step's workspace, 256-byte aligned; NULL if it has none. */
MM_API void *mm_workspace_data(mm_manager *manager);

/* The workspace's bytes: one of the sizes declared with mm_graph_add_step and mm_graph_allow_workspace. */
MM_API size_t mm_workspace_bytes(mm_manager *manager);

/* The current step's index among the graph's steps; -1 outside of a step. */
MM_API int mm_current_step(const mm_manager *manager);

/* The present budget: mm_options.device_bytes, or less if the device gave less or mm_budget_set made it smaller. From
 * any thread. */
MM_API int64_t mm_manager_device_bytes(mm_manager *manager);

/* ---------------------------------------------------------------- observing */

typedef struct mm_observe_options {
    int replan_permille; /* by how much of the planned time iterations may differ, from 1 to 10000; 0: observe
                            nothing */
    int window; /* number of iterations of a graph that are compared with its plan at a time, 1 to 100; 0: 10 */
} mm_observe_options;

/* From now on, iterations are measured, and compared with their plans, a window at a time. Where three quarters of a
 * window's iterations take more than replan_permille longer than their plan, or that much less, the facts of the graph
 * are renewed by the medians of what its steps, codecs and copies took; what did not run keeps the times that it had.
 * Then the policy that runs now plans all graphs again by these facts. The new plans are taken up if they are faster by
 * them (2 % at least), and if no graph goes back to a plan that was left in this way. Weights stay as they would have
 * been, bit for bit: each step keeps its variant, each lossy map its codec, and no other map becomes lossy.
 *
 * That happens when an iteration begins (mm_iteration_begin), at most once in 100 iterations, all graphs' counted. It
 * waits for the iterations before, whose failure mm_iteration_begin then returns, and takes as long as the policy takes
 * to plan. Each such change is logged as a warning, counted (mm_stats.replans), reported (MM_EVENT_REPLAN) and part of
 * a trace; where the plan stays, MM_LOG_INFO says why. mm_policy_set, mm_budget_set and the ladder plan by renewed
 * facts, too, and mm_facts_save saves them.
 *
 * Otherwise nothing waits, and measuring costs what a trace costs (mm_trace_start). Times include what passed since the
 * iteration before, as those of `mm bench --facts` do. On a GPU the first window of a plan runs step by step
 * (mm_replay_state), then one in 100 iterations; recorded iterations are not measured. Nor are those of a loop that
 * leaves more than four running (mm_iteration_end_async).
 *
 * A second call sets other options; facts stay renewed. Between iterations. MM_ERR_INVALID: options out of range, or
 * the manager has no measured times (mm_options.facts). Graphs that these are not of are not compared.
 * MM_ERR_UNSUPPORTED: a GPU, and neither trace_bytes nor measure_times. MM_ERR_NOMEM: nothing is observed then. Else
 * the failure of an iteration that was ended without waiting. */
MM_API MM_CHECKED mm_status mm_observe(mm_manager *manager, const mm_observe_options *options);

/* ---------------------------------------------------------------- traces */

/* Begins a trace: from now on, until mm_trace_stop, it is kept when each step and operation of each iteration ran.
 * That costs about a hundredth of the time. Nothing waits for it. Iterations are not replayed meanwhile
 * (mm_replay_state). What finds no room in the buffer (mm_options.trace_bytes; a step or an operation takes 16 bytes)
 * is dropped. name: of the run, for the viewer. Between iterations. MM_ERR_ORDER: a trace is under way.
 * MM_ERR_UNSUPPORTED: a GPU, and no trace_bytes. */
MM_API MM_CHECKED mm_status mm_trace_start(mm_manager *manager, const char *name);

/* Ends the trace in any case, and writes it to a file, in Chrome's "Trace Event Format", which https://ui.perfetto.dev
 * opens (tools/README.md has what is in it). The file appears as a whole, or not at all. *dropped_out (may be NULL):
 * how many steps and operations are not in it. Waits for iterations that were ended without waiting. Between
 * iterations. MM_ERR_ORDER: no trace is under way; MM_ERR_IO; MM_ERR_FORMAT: a name is not UTF-8; else the failure of
 * an iteration. */
MM_API MM_CHECKED mm_status mm_trace_stop(mm_manager *manager, const char *path, int64_t *dropped_out);

/* ---------------------------------------------------------------- several processes
 *
 * Processes that train one network, each on a part of every batch, add up their gradients. Each has a manager of its
 * own. The graph declares which of its persistent tensors are shared. Its plans then copy each of them to pinned
 * memory, behind the last step that writes it and beside the steps that follow; the caller adds up what the processes
 * have; and the plan copies the sum back before the next MM_UPDATE step that uses it, or the next of all if none does,
 * which waits for it:
 *
 *   compute  ... | backward of c | backward of b | backward of a |               update |
 *   out                          | c             | b             | a |
 *   the caller                        | sum of c      | sum of b      | sum of a |
 *   in                                           | c             | b             | a |
 *
 * That memory is part of mm_options.pinned_bytes. Graphs with the same steps share in the same order, whatever their
 * policies: the order of the steps that write the tensors last.
 *
 * Devices that reach each other need no copies: a tensor that is shared in place stays where it is, and the caller
 * enqueues work that makes it the sum, on a stream of its own beside the computation:
 *
 *   compute  ... | backward of c | backward of b | backward of a |                     update |
 *   sums                         | c             | b             | a | states and results |
 *
 * Gradients are first, in the order of their writers; all else that is shared follows them at once. */

/* When a tensor is shared, and how. */
typedef enum mm_share {
    MM_SHARE_NOT = 0,
    MM_SHARE_AT_ONCE = 1,          /* it goes to pinned memory behind the last step that writes it */
    MM_SHARE_AT_END = 2,           /* ... behind the last step before the update */
    MM_SHARE_IN_PLACE_AT_ONCE = 3, /* the same two, in place */
    MM_SHARE_IN_PLACE_AT_END = 4,
} mm_share;

/* What becomes of the processes' tensors; the library hands it on (mm_shared). */
typedef enum mm_shared_as {
    MM_SHARED_SUM = 0,  /* their sum: of gradients, losses, counts */
    MM_SHARED_MEAN = 1, /* their mean: of running statistics */
} mm_shared_as;

/* Declares a persistent tensor as shared: a weight's gradient, a loss, running statistics. mm_graph_freeze refuses
 * (MM_ERR_INVALID) one that no step writes, or that no MM_UPDATE step follows. MM_ERR_ORDER: the graph is frozen.
 * MM_ERR_INVALID: not a persistent tensor of the graph. */
MM_API MM_CHECKED mm_status mm_graph_share_as(mm_graph *graph, mm_tensor tensor, mm_share when, mm_shared_as as);
/* The same, as MM_SHARED_SUM. */
MM_API MM_CHECKED mm_status mm_graph_share(mm_graph *graph, mm_tensor tensor, mm_share when);

/* A shared tensor of an iteration, in pinned memory, where it has the same place as long as the graph has the same
 * plan; or, if it is shared in place, in device memory. Elements are in the tensor's order. A large tensor goes to
 * pinned memory in parts of some MiB, one after the other; they depend on its dims alone. */
typedef struct mm_shared {
    const mm_graph *graph;
    mm_tensor tensor;
    void *data;
    int64_t bytes;
    int64_t offset; /* of `data` in the tensor: not 0 for a part that is not the first */
    mm_shared_as as;
} mm_shared;

/* What the caller does with shared tensors. The first two are called on threads of the device or of the manager,
 * `await` under MM_ISSUE_INLINE also on the training thread; they may not call the manager or the device. They may be
 * NULL if all are shared in place, `enqueue` if none is. */
typedef struct mm_gradient_fns {
    /* data has what this process has: from now on it is the caller's, until `await` returns. Called in the order above,
     * for each part. It must not block. */
    void (*sent)(void *ctx, const mm_shared *shared);
    /* Returns when data has the sum, which is then copied back. Called in the same order. It may block, and must return
     * if the sum does not come: its failure is the iteration's. */
    mm_status (*await)(void *ctx, const mm_shared *shared);
    /* Enqueues on `stream` what makes the sums of these n tensors, in place. Called in mm_layer_end, by the thread that
     * calls that; the tensors that are together in one call, and the order of calls, are the same for every policy. It
     * may enqueue on that stream only, must not block, and may be recorded. A failure is the step's. */
    mm_status (*enqueue)(void *ctx, const mm_shared *shared, int n, mm_stream *stream);
} mm_gradient_fns;

/* Sets what becomes of a graph's shared tensors, and prepares the graph if it was not. It stays set when the policy
 * changes. fns NULL, the default: nothing; they come back as they were. None is called in a rehearsal. MM_ERR_INVALID:
 * one that the graph needs is NULL. An iteration that calls the first two cannot be recorded (mm_replay_state), so it
 * runs step by step; the log says so once for each plan. Between iterations; waits for iterations that were ended
 * without waiting, and returns their failure. fns is copied. */
MM_API MM_CHECKED mm_status mm_gradient_set(mm_manager *manager, const mm_graph *graph, const mm_gradient_fns *fns,
                                            void *ctx);

/* ---------------------------------------------------------------- statistics */

typedef struct mm_stats {
    int64_t iterations;
    int64_t replays;              /* iterations among these that were replayed (mm_iteration_replay) */
    int64_t predicted_peak_bytes; /* largest peak of the plans run so far: extent in the arena + external tensors */
    int64_t persistent_bytes;     /* of persistent tensors; part of the peak */
    int64_t stash_bytes;     /* held from the forward to the backward pass under the current plan, codes included */
    int64_t outside_bytes;   /* allocated on the device outside of the arena, by libraries */
    int64_t pinned_bytes;    /* host memory reserved for offloaded tensors: mm_options.pinned_bytes, or less */
    int64_t compute_busy_ns; /* time the compute stream ran tasks, since creation; 0 if the caller computes inline */
    int64_t compute_wait_ns; /* time the compute stream, or the caller that computes inline, waited */
    int64_t codec_busy_ns;   /* time the encode and decode streams ran tasks */
    int64_t codec_wait_ns;   /* time the computation waited for a codec that ran. Only for iterations that ended with
                                     mm_iteration_end, on devices whose events are timed */
    int64_t encodes, decodes;
    int64_t encoded_bytes; /* bytes of maps that were encoded */
    /* Bytes of their codes; in pinned memory, of those whose size varies. These are known when the device has encoded:
     * iterations that still run are counted as far as they are. */
    int64_t coded_bytes, spilled_bytes;
    int64_t out_bytes, in_bytes; /* to pinned memory, and back: copied, or written and read there by codecs */
    int64_t nonfinite_blocks;    /* blocks of zfp, mx and group codes that contained Inf or NaN */
    int64_t unplanned_allocs;    /* number of allocations at run time; naive forms only */
    int64_t host_waits;          /* number of mm_layer_begin calls that blocked, for a worker or for an input */
    int64_t ladder_steps;        /* number of substitutions because memory was short */
    int64_t replans;             /* number of times that mm_observe changed plans */
} mm_stats;

/* mm_stats_get for statistics of `stats_bytes` bytes: sizeof(mm_stats) in the caller's header. Members beyond this
 * library's are set to zero. Callers that find functions by name (dlsym) need this one; the function mm_stats_get,
 * which programs that were built with older headers call, fills in the members up to ladder_steps. */
MM_API void mm_stats_get_sized(mm_manager *manager, mm_stats *stats_out, size_t stats_bytes);

/* The manager's statistics since its creation. From any thread. Does nothing if an argument is NULL. */
MM_API void mm_stats_get(mm_manager *manager, mm_stats *stats_out);
#define mm_stats_get(manager, stats_out) mm_stats_get_sized((manager), (stats_out), sizeof(mm_stats))

/* Bytes of the arena that were written (measure_touched). Memory of plans is filled with a pattern before the first
 * plan that takes it runs. The rest of the arena stays zero and costs no memory; zeros that are written there are not
 * seen. */
typedef struct mm_touched {
    int64_t total_bytes;      /* all bytes that were touched. If memory was given back and taken back, the larger of the
                                 counts before and since */
    int64_t persistent_bytes; /* the part in persistent tensors */
    int64_t stray_bytes;      /* the part where no plan has placed anything; a bug if not 0 */
} mm_touched;

/* Counts touched bytes, in a pass over the memory of plans. Between iterations. MM_ERR_ORDER: the manager was created
 * without measure_touched. */
MM_API MM_CHECKED mm_status mm_touched_get(mm_manager *manager, mm_touched *touched_out);

/* The name, and in *summary_out (may be NULL) a line about it, of the i-th policy, codec or device; NULL past the last.
 * Static strings. */
MM_API const char *mm_policy_list(size_t i, const char **summary_out);
MM_API const char *mm_codec_list(size_t i, const char **summary_out);
MM_API const char *mm_device_list(size_t i, const char **summary_out);

/* ---------------------------------------------------------------- stash
 *
 * May change. Holds, inside a budget, what a framework saves in forward passes for backward passes, where nobody can
 * declare a graph beforehand. A tensor is put, got any number of times, and dropped. An iteration begins with a put
 * while there is no entry, and ends when the last entry is dropped.
 *
 *   mm_stash_put(s, &tensor, stream, &entry, &answer)     in the forward pass, for each tensor that is saved
 *       MM_STASH_TAKEN: the caller may release its tensor; MM_STASH_KEPT: it keeps it until it drops the entry
 *   mm_stash_get(s, entry, stream, &data)                 in the backward pass, in any order, any number of times
 *       ... enqueue on `stream` what reads data ...
 *   mm_stash_give_back(s, entry, stream)                  once for each get
 *   mm_stash_drop(s, entry)                               once for each entry
 *
 * The first iteration of an order runs unplanned, yet inside the budget: copies to host memory make room. It is exact.
 * Its order, of puts, gets, returns and drops, becomes a graph: a put is a step that writes, the others are steps that
 * read. A thread of the stash plans it by the policy, and proves the plan as any other. Where puts and gets go by turns
 * (a double backward), policies can move less; an order of that kind that does not fit goes on unplanned. From then on,
 * iterations that follow this order run as planned. What their plan never moves, callers keep. An iteration that leaves
 * its plan loses nothing: it goes on unplanned, is counted and logged (off_plan), and learned. 16 orders are
 * remembered.
 *
 * Budget. What lies in the arena, and what callers keep, is together at most device_bytes at any time. Unplanned
 * iterations use pinned memory as far as there is, then ordinary host memory (mm_stash_stats.host_bytes).
 *
 * Streams. `stream` is the caller's current stream. On cuda it is a cudaStream_t that is not being captured (NULL: the
 * legacy default stream), which mm need not know. A tensor that was taken was read in the order of the stream that put
 * had: whatever the caller enqueues there afterwards may overwrite it. On the host `stream` is NULL, callers compute on
 * their own threads, and bytes are there when a call returns.
 *
 * Threads. All functions may be called from any thread, and wait for one another. mm_stash_drop and mm_stash_give_back
 * wait for no other call, and may be called from the log's function. No lock is held while that is called. */
typedef struct mm_stash mm_stash;
typedef uint64_t mm_stash_entry; /* never 0; the numbers of entries that were dropped are not used again */

typedef enum mm_stash_answer {
    MM_STASH_KEPT = 0,  /* the caller keeps its tensor, unchanged, until it drops the entry */
    MM_STASH_TAKEN = 1, /* the caller may release its tensor, or change it */
} mm_stash_answer;

typedef enum mm_stash_flag {
    MM_STASH_SIGNS = 1, /* readers need exact signs (> 0, or not) beside the values: a ReLU's output */
    MM_STASH_EXACT = 2, /* never in a lossy code: indices, masks, statistics */
} mm_stash_flag;

/* Options of a stash. Later versions add members at the end, as with mm_options. */
typedef struct mm_stash_options {
    const char *device; /* as mm_options.device */
    int64_t
        device_bytes; /* the budget: for the arena, which is reserved at creation, and what callers keep. Required */
    int64_t pinned_bytes; /* host memory for what leaves the arena; reserved at creation */
    const char *policy;   /* "swap-async" (default). Policies that recompute are refused */
    mm_log log;
    const mm_facts *facts; /* these as in mm_options */
    int codec_threads;
    bool measure_touched;
    bool unplanned; /* plan nothing: all iterations run unplanned */
    uint64_t delay_seed;
    int64_t delay_max_ns;
    int64_t link_bytes_per_s;
    /* Called by a put, on its thread, where the device has not the memory for an arena that is to grow: frees what the
     * program caches there; then it is tried once more. It must call no function of the stash but mm_stash_drop and
     * mm_stash_give_back. NULL: there is none */
    void (*reclaim)(void *ctx);
    void *reclaim_ctx;
} mm_stash_options;

/* mm_stash_create for options of `options_bytes` bytes; see mm_manager_create_sized. */
MM_API MM_CHECKED mm_status mm_stash_create_sized(const mm_stash_options *options, size_t options_bytes,
                                                  mm_stash **stash_out);

/* Creates a stash, with its arena and its threads. The options' strings are copied. MM_ERR_INVALID (a value out of
 * range), MM_ERR_NOT_FOUND (policy, device, codec), MM_ERR_UNSUPPORTED (a policy that recomputes: frameworks have
 * checkpointing of their own), MM_ERR_NOMEM (the budget is above what the device has; both numbers), MM_ERR_DEVICE. */
MM_CHECKED static inline mm_status mm_stash_create(const mm_stash_options *options, mm_stash **stash_out) {
    return mm_stash_create_sized(options, sizeof *options, stash_out);
}

/* Waits for the device, and frees. Entries that are left are lost, pointers to them become invalid, and their number is
 * logged as a warning. No other call may be under way. NULL is legal. */
MM_API void mm_stash_destroy(mm_stash *stash);

/* A tensor that is put. */
typedef struct mm_stash_tensor {
    const void *data;             /* device memory on cuda, memory of the process on the host */
    mm_dtype dtype;               /* MM_U8 for a type that mm does not have, with the last dimension in bytes */
    int rank;                     /* 0 to MM_RANK_MAX */
    int64_t dims[MM_RANK_MAX];    /* outermost first, each at least 1 */
    int64_t strides[MM_RANK_MAX]; /* in elements; in some order the dimensions follow each other without gaps. All 0: in
                                     the order of dims */
    const char *producer;         /* what made it, such as "ReluBackward0", for messages and rules; copied. NULL: "" */
    uint32_t flags;               /* of mm_stash_flag */
} mm_stash_tensor;

/* Puts a tensor. On failure there is no new entry, the caller keeps its tensor, and the entries before stay as they
 * were. MM_ERR_INVALID: dimensions, strides or flags. MM_ERR_INFEASIBLE (mm_stash_refusal_get says more): the tensor is
 * larger than the budget; what is held and kept leaves no room for it; or it would begin an iteration of an order that
 * was planned and does not fit: this is told once, and an iteration that begins all the same runs unplanned.
 * MM_ERR_NOMEM: there is no host memory. MM_ERR_DEVICE: a copy failed. */
MM_API MM_CHECKED mm_status mm_stash_put(mm_stash *stash, const mm_stash_tensor *tensor, void *stream,
                                         mm_stash_entry *entry_out, mm_stash_answer *answer_out);

/* Gets an entry's bytes, in the order in memory that they had, for tasks that are enqueued on `stream` from now on:
 * device memory, to be read alone, valid until mm_stash_give_back. Further gets of an entry that is held give the same
 * pointer. Of an entry that the caller kept, it is the caller's own: nothing is held, and a return of it is ignored. On
 * failure the entry stays, and can be got again. MM_ERR_NOT_FOUND: there is no such entry. MM_ERR_INFEASIBLE
 * (mm_stash_refusal_get says more): what is held and kept leaves no room. MM_ERR_NOMEM: there is no host memory.
 * MM_ERR_DEVICE: a copy failed. */
MM_API MM_CHECKED mm_status mm_stash_get(mm_stash *stash, mm_stash_entry entry, void *stream, void **data_out);

/* Gives back what one get gave, when the tasks enqueued on `stream` so far have run. Unknown entries are ignored. */
MM_API void mm_stash_give_back(mm_stash *stash, mm_stash_entry entry, void *stream);

/* Drops an entry. If it is held, its bytes stay until it is given back for the last time. Unknown entries are
 * ignored. */
MM_API void mm_stash_drop(mm_stash *stash, mm_stash_entry entry);

/* The iteration's last backward pass has ended. Entries that are left (a graph that is retained, or was never used)
 * belong to no further iteration: they stay, are served unplanned, and the next put begins a new iteration. The order
 * of one that leaves entries is not learned. Not needed where none is left. */
MM_API void mm_stash_mark(mm_stash *stash);

/* Waits until all orders that were learned are planned. Returns the failure of the newest, as the put would. An order
 * that has no plan for another reason (the check refuses it: a fault of a policy; or puts and gets by turns, and no
 * plan that fits) is told once as a warning, and goes on unplanned. */
MM_API MM_CHECKED mm_status mm_stash_settle(mm_stash *stash);

/* The latest MM_ERR_INFEASIBLE, as data. */
typedef struct mm_stash_refusal {
    int64_t needed_bytes; /* the least budget: for the order; or for the tensor, beside what was held and kept */
    int64_t device_bytes; /* the budget */
    int64_t tensor_bytes; /* of the tensor: for which there was no room, or which an order puts, gets or drops where it
                             needs most */
    int tensor;           /* its number among the puts of the order, from 0; -1: not known */
    const char *producer; /* what made it. Strings are valid until the next refusal */
    const char *policy;   /* that would fit; "": none is known */
} mm_stash_refusal;

/* False: there was none. */
MM_API bool mm_stash_refusal_get(mm_stash *stash, mm_stash_refusal *refusal_out);

/* What became of an entry. */
typedef enum mm_stash_fate {
    MM_STASH_FATE_UNPLANNED = 0, /* its iteration ran unplanned, or left its plan */
    MM_STASH_FATE_KEPT = 1,      /* the caller kept it */
    MM_STASH_FATE_STAYED = 2,    /* it stayed in the arena */
    MM_STASH_FATE_ENCODED = 3,   /* it was encoded; the code stayed in the arena */
    MM_STASH_FATE_OFFLOADED = 4, /* it was copied to pinned memory */
    MM_STASH_FATE_BOTH = 5,      /* it was encoded, and the code copied to pinned memory */
} mm_stash_fate;

typedef struct mm_stash_line {
    const char *producer; /* strings are valid until the next put */
    mm_dtype dtype;
    uint32_t flags; /* of mm_stash_flag */
    int64_t bytes;
    mm_stash_fate fate;
    const char *codec;  /* "": it was not encoded */
    int64_t code_bytes; /* of its code, in the iteration before */
    bool lossy;         /* the code is */
    int gets;           /* as the order has them: gets of an entry that was held already are not counted */
} mm_stash_line;

/* Reports about the i-th entry, in the order of puts, of the iteration that ended last. False: there are no more, or
 * that iteration's order is not known (none has ended, it was too long, or entries of it are left). */
MM_API bool mm_stash_report(mm_stash *stash, int i, mm_stash_line *line_out);

/* Where the plan of the iteration that ended last has bytes, and when. */
typedef struct mm_stash_segment {
    int entry;             /* its number in the report; -1: a codec's scratch, or a pool of codes */
    bool pinned, code;     /* in pinned memory, else in the arena; a code, or a pool of them */
    int64_t offset, bytes; /* from the beginning of that memory */
    int first, last;       /* events of the order, from 0 */
} mm_stash_segment;

/* The i-th segment. False: there are no more, or the iteration had no plan. */
MM_API bool mm_stash_plan_segment(mm_stash *stash, int i, mm_stash_segment *segment_out);

typedef struct mm_stash_stats {
    int64_t entries;                    /* that are there now */
    int64_t kept_bytes;                 /* that callers keep now */
    int64_t puts, gets;                 /* since creation, as all below */
    int64_t iterations;                 /* that have ended */
    int64_t planned;                    /* of these, as planned to their end */
    int64_t off_plan;                   /* of these, that left their plan */
    int64_t plans, planning_ns;         /* plans that were made, and the CPU time for them */
    int64_t peak_bytes;                 /* most bytes at a time: the arena's extent, and what callers keep */
    int64_t predicted_bytes;            /* the same of the plan that ran last, as planned; 0: none has run */
    int64_t needed_bytes;               /* the least budget for the order that was planned last; 0: not known */
    int64_t moved_bytes;                /* of tensors that were taken */
    int64_t out_bytes, in_bytes;        /* copied to host memory, and back */
    int64_t encoded_bytes, coded_bytes; /* of tensors that were encoded, and of their codes */
    int64_t host_bytes;                 /* most bytes of ordinary host memory at a time */
    int64_t lossy_gets;                 /* gets of what a lossy code gave back */
    int64_t predicted_kept_bytes;       /* of predicted_bytes, what callers keep; the rest is the arena's extent */
    int64_t arena_bytes;                /* that the arena may take now; the rest of the budget is for callers */
} mm_stash_stats;

/* mm_stash_stats_get for statistics of `stats_bytes` bytes; members beyond this library's are set to zero. */
MM_API void mm_stash_stats_get_sized(mm_stash *stash, mm_stash_stats *stats_out, size_t stats_bytes);

/* Bytes of the arena that iterations touched which ran as planned, the most of any time (measure_touched). While no
 * entry is there. MM_ERR_ORDER: the stash was created without measure_touched. */
MM_API MM_CHECKED mm_status mm_stash_touched_get(mm_stash *stash, mm_touched *touched_out);

/* The stash's statistics. Does nothing if an argument is NULL. */
static inline void mm_stash_stats_get(mm_stash *stash, mm_stash_stats *stats_out) {
    mm_stash_stats_get_sized(stash, stats_out, sizeof *stats_out);
}

#ifdef __cplusplus
}
#endif
#endif
